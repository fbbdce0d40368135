//! A linear layer: a frozen or trained matrix, optionally with a bias, a low-rank adapter and a residual.
//!
//! y = residual + x Wᵀ + bias + scale (x Aᵀ) Bᵀ
//!
//! low = scale x Aᵀ        dlow = scale dy B
//! dx = dy W + dlow A      dA = dlowᵀ x      dB = dyᵀ low      dW = dyᵀ x      dbias = column sums of dy      dresidual = dy
//!
//! W + scale B A is never computed. The forward pass has two launches with an adapter and one without. So has that of several
//! layers with one input, if their matrices lie in one buffer.

use std::ops::Range;

use super::matmul::{MoreColumns, Product, ProductLayout};
use super::weight::{Matrix, Operand};
use crate::gpu::{Bind, Binding};
use crate::{ALIGNMENT, Tensor};

/// A low-rank adapter (Hu et al. 2021), which adds scale B A to a matrix.
#[derive(Debug, Clone)]
pub struct Lora {
    /// (r, K)
    pub a: Tensor,
    /// (N, r)
    pub b: Tensor,
    /// lora_alpha / r in PEFT
    pub scale: f32,
}

impl Lora {
    /// low = scale x Aᵀ, (M, r).
    #[track_caller]
    pub(crate) fn down(&self, x: &Tensor) -> Tensor {
        let product = Product::new(ProductLayout::Nt, Operand::of(x), Operand::of(&self.a));
        let alpha = self.scale;
        Product { alpha, ..product }.compute()
    }

    /// before + scale dy B[rows], (M, r).
    pub(crate) fn low_gradient(
        &self,
        dy: &Tensor,
        rows: Range<usize>,
        before: Option<&Tensor>,
    ) -> Tensor {
        let b = Operand::rows_of(&self.b, rows);
        let product = Product {
            alpha: self.scale,
            residual: before,
            ..Product::new(ProductLayout::Nn, Operand::of(dy), b)
        };
        product.compute()
    }

    /// before + dlow A, (M, K).
    fn input_gradient(&self, dlow: &Tensor, residual: Option<&Tensor>) -> Tensor {
        let product = Product::new(ProductLayout::Nn, Operand::of(dlow), Operand::of(&self.a));
        Product {
            residual,
            ..product
        }
        .compute()
    }

    /// dA = dlowᵀ x, (r, K).
    pub(crate) fn a_gradient(&self, dlow: &Tensor, x: &Tensor) -> Tensor {
        Product::new(ProductLayout::Tn, Operand::of(dlow), Operand::of(x)).compute()
    }

    /// The same without gradients.
    pub(crate) fn detach(&self) -> Lora {
        Lora {
            a: self.a.detach(),
            b: self.b.detach(),
            scale: self.scale,
        }
    }
}

/// dW[rows] = dyᵀ x, written into dw (N, K); dy is (M, rows).
pub(crate) fn write_weight_gradient(dw: &Tensor, dy: &Tensor, x: &Tensor, rows: Range<usize>) {
    let product = Product::new(ProductLayout::Tn, Operand::of(dy), Operand::of(x));
    product.write(&Operand::rows_of(dw, rows));
}

impl Matrix {
    /// x W[rows]ᵀ + low B[rows]ᵀ + bias + residual, (M, rows); a bias only with all rows.
    pub(crate) fn project(
        &self,
        x: &Tensor,
        rows: Range<usize>,
        low: Option<(&Lora, &Tensor)>,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
    ) -> Tensor {
        let y = Tensor::empty(x.gpu(), &[x.rows(), rows.len()]);
        self.project_into(&y, x, rows, low, bias, residual);
        y
    }

    /// Writes the same into y.
    fn project_into(
        &self,
        y: &Tensor,
        x: &Tensor,
        rows: Range<usize>,
        low: Option<(&Lora, &Tensor)>,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
    ) {
        let up = |lora: &Lora, rows: &Range<usize>| Operand::rows_of(&lora.b, rows.clone());
        // A low-rank term that does not fit into the launch has its own.
        let fits = low.is_none_or(|(lora, low)| Product::fits(low, &up(lora, &rows)));
        let apart = low.filter(|_| !fits).map(|(lora, low)| {
            let product = Product::new(ProductLayout::Nt, Operand::of(low), up(lora, &rows));
            Product {
                residual,
                ..product
            }
            .compute()
        });
        let low = low.filter(|_| fits);
        for piece in self.pieces(rows.clone()) {
            let to = piece.rows.start - rows.start..piece.rows.end - rows.start;
            let product = Product {
                low: low.map(|(lora, low)| (low, up(lora, &piece.rows))),
                bias: bias.map(|bias| (bias as &dyn Bind, to.start)),
                residual: apart.as_ref().or(residual),
                ..Product::new(ProductLayout::Nt, Operand::of(x), piece)
            };
            product.write(&Operand::cols_of(y, to));
        }
    }

    /// before + dy W[rows] + dlow A, (M, K).
    pub(crate) fn input_gradient(
        &self,
        dy: &Tensor,
        rows: Range<usize>,
        before: Option<&Tensor>,
        low: Option<(&Lora, &Tensor)>,
    ) -> Tensor {
        let fits = low.is_none_or(|(lora, dlow)| Product::fits(dlow, &Operand::of(&lora.a)));
        let apart = low
            .filter(|_| !fits)
            .map(|(lora, dlow)| lora.input_gradient(dlow, before));
        let mut sum = apart.or(before.cloned());
        let mut low = low.filter(|_| fits);
        for piece in self.pieces(rows.clone()) {
            let from = piece.rows.start - rows.start..piece.rows.end - rows.start;
            let product = Product {
                // With the first piece.
                low: low.take().map(|(lora, dlow)| (dlow, Operand::of(&lora.a))),
                residual: sum.as_ref(),
                ..Product::new(ProductLayout::Nn, Operand::cols_of(dy, from), piece)
            };
            sum = Some(product.compute());
        }
        sum.unwrap_or_else(|| Tensor::zeros(dy.gpu(), &[dy.rows(), self.cols()]))
    }
}

impl Tensor {
    /// residual + x Wᵀ + bias + scale (x Aᵀ) Bᵀ for x (M, K), W (N, K), bias (N), A (r, K), B (N, r), residual (M, N).
    /// Gradients for x, the residual, the bias, A and B, and for W if it is a tracked [`Matrix::Trained`].
    ///
    /// The bits of a row do not depend on the other rows of x.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn linear(
        &self,
        weight: &Matrix,
        bias: Option<&Tensor>,
        lora: Option<&Lora>,
        residual: Option<&Tensor>,
    ) -> Tensor {
        let layer = LinearLayer {
            weight,
            bias,
            lora,
            residual,
        };
        layer.check_shapes(self);
        let y = Tensor::empty(self.gpu(), &[self.rows(), weight.rows()]);
        let low = layer.write(self, &y);
        self.record_linear(&layer, low, y)
    }

    /// Several linear layers of one input: the values and gradients of [`Tensor::linear`] for each. If the matrices lie in one
    /// buffer ([`Matrix::together`], or trained ones), the adapters have one rank and scale, and there is no residual, the
    /// forward pass is one launch, and one more for the adapters.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn linears<const N: usize>(&self, layers: [LinearLayer<'_>; N]) -> [Tensor; N] {
        for layer in &layers {
            layer.check_shapes(self);
        }
        let columns = layers.map(|layer| layer.weight.rows());
        // The results are bound at once.
        let fits = 4 * Parts::room(self.rows(), &columns) as u64 <= self.gpu().caps().max_binding;
        let Some(stack) = Stack::new(self, &layers).filter(|_| fits) else {
            return layers.map(|l| self.linear(l.weight, l.bias, l.lora, l.residual));
        };
        let low = stack.low();
        let ys = Parts::new(self, &columns);
        stack.products(low.as_ref(), &ys, false);
        let mut ys = ys.parts.into_iter();
        let mut lows = low.into_iter().flat_map(|low| low.parts);
        layers.map(|layer| {
            let y = ys.next().expect("a result for each layer");
            self.record_linear(&layer, lows.next(), y)
        })
    }

    /// The values of [`Tensor::linears`], without gradients, written into a flat tensor one after the other, each from the next
    /// multiple of [`ALIGNMENT`](crate::ALIGNMENT) numbers on.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn linears_into<const N: usize>(
        &self,
        layers: [LinearLayer<'_>; N],
        into: &Tensor,
    ) -> [Tensor; N] {
        for layer in &layers {
            layer.check_shapes(self);
        }
        let ys = Parts::within(into, self.rows(), &layers.map(|layer| layer.weight.rows()));
        match Stack::new(self, &layers) {
            Some(stack) => stack.products(stack.low().as_ref(), &ys, false),
            None => layers.iter().zip(&ys.parts).for_each(|(layer, y)| {
                layer.write(self, y);
            }),
        }
        ys.parts.try_into().expect("a result for each layer")
    }

    /// Returns `known`, which an earlier pass computed as the [`Tensor::linears`] of an equal input, with the same gradients. Only
    /// scale (x Aᵀ) is computed again.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn known_linears<const N: usize>(
        &self,
        layers: [LinearLayer<'_>; N],
        known: [Tensor; N],
    ) -> [Tensor; N] {
        for layer in &layers {
            layer.check_shapes(self);
        }
        let stack = Stack::new(self, &layers);
        let low = stack.and_then(|stack| stack.low());
        let mut lows = low.into_iter().flat_map(|low| low.parts);
        let mut known = known.into_iter();
        layers.map(|layer| {
            let y = known.next().expect("a result for each layer");
            let wanted = [self.rows(), layer.weight.rows()];
            let found = y.shape();
            assert!(
                found == wanted,
                "linear: a known result has the shape {found:?}, wanted {wanted:?}"
            );
            let x = self.detach();
            let low = lows.next().or_else(|| layer.lora.map(|lora| lora.down(&x)));
            self.record_linear(&layer, low, y)
        })
    }

    /// silu(x Gᵀ) · (x Uᵀ), the first half of a gated unit: [`Tensor::linears`] and [`Tensor::swiglu`], with the same bits. In
    /// one launch, and one more for the adapters, if nothing is tracked.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn gated_linear(&self, gate: LinearLayer<'_>, up: LinearLayer<'_>) -> Tensor {
        let layers = [gate, up];
        for layer in &layers {
            layer.check_shapes(self);
        }
        let has_term = |layer: &LinearLayer<'_>| layer.bias.or(layer.residual).is_some();
        let has_term = layers.iter().any(has_term);
        let is_tracked = self.is_tracked() || layers.iter().any(LinearLayer::is_tracked);
        let alike = layers[0].weight.rows() == layers[1].weight.rows();
        let stack = (alike && !has_term && !is_tracked).then(|| Stack::new(self, &layers));
        if let Some(stack) = stack.flatten() {
            let mut y = Parts::new(self, &[layers[0].weight.rows()]);
            stack.products(stack.low().as_ref(), &y, true);
            return y.parts.remove(0);
        }
        let [gate, up] = self.linears(layers);
        gate.swiglu(&up)
    }

    /// Records `y`, the result of a layer; `low` is scale x Aᵀ.
    fn record_linear(&self, layer: &LinearLayer<'_>, low: Option<Tensor>, y: Tensor) -> Tensor {
        let LinearLayer {
            weight,
            bias,
            lora,
            residual,
        } = *layer;
        let (x, rows) = (self.detach(), 0..weight.rows());
        let (a, b) = (lora.map(|l| &l.a), lora.map(|l| &l.b));
        let inputs = [Some(self), residual, bias, a, b, weight.trained()];
        let (weight, lora) = (weight.detach(), lora.map(Lora::detach));
        y.recorded("linear", inputs, move |dy, wanted| {
            let [to_x, to_residual, to_bias, to_a, to_b, to_w] = wanted;
            let lora = lora.as_ref();
            let dlow = lora
                .filter(|_| to_x || to_a)
                .map(|lora| lora.low_gradient(dy, rows.clone(), None));
            let adapter = lora.zip(dlow.as_ref());
            let dx = to_x.then(|| weight.input_gradient(dy, rows.clone(), None, adapter));
            let da = adapter.filter(|_| to_a);
            let product = |right: &Tensor| {
                Product::new(ProductLayout::Tn, Operand::of(dy), Operand::of(right)).compute()
            };
            [
                dx,
                to_residual.then(|| dy.clone()),
                to_bias.then(|| dy.sum_to(&[rows.len()])),
                da.map(|(lora, dlow)| lora.a_gradient(dlow, &x)),
                low.as_ref().filter(|_| to_b).map(product),
                to_w.then(|| product(&x)),
            ]
        })
    }
}

/// One of several linear layers of an input.
#[derive(Debug, Clone, Copy)]
pub struct LinearLayer<'a> {
    /// (N, K)
    pub weight: &'a Matrix,
    /// (N)
    pub bias: Option<&'a Tensor>,
    /// The adapter.
    pub lora: Option<&'a Lora>,
    /// (M, N), which is added.
    pub residual: Option<&'a Tensor>,
}

impl LinearLayer<'_> {
    /// Writes the result for x into y. Returns scale x Aᵀ.
    fn write(&self, x: &Tensor, y: &Tensor) -> Option<Tensor> {
        let low = self.lora.map(|lora| lora.down(x));
        let adapter = self.lora.zip(low.as_ref());
        let (weight, bias) = (self.weight, self.bias);
        weight.project_into(y, x, 0..weight.rows(), adapter, bias, self.residual);
        low
    }

    #[track_caller]
    fn check_shapes(&self, x: &Tensor) {
        let (n, k) = (self.weight.rows(), self.weight.cols());
        let shape = x.shape();
        assert!(
            shape.len() == 2 && shape[1] == k,
            "linear: x has the shape {shape:?}, wanted [rows, {k}] for the matrix [{n}, {k}]"
        );
        let full = [shape[0], n];
        let terms = [
            ("bias", self.bias, &full[1..]),
            ("residual", self.residual, &full),
        ];
        for (what, term, wanted) in terms {
            let found = term.map_or(wanted, Tensor::shape);
            assert!(
                found == wanted,
                "linear: the {what} has the shape {found:?}, wanted {wanted:?}"
            );
        }
        if let Some(Lora { a, b, .. }) = self.lora {
            let r = a.rows();
            assert!(
                a.shape() == [r, k] && b.shape() == [n, r],
                "linear: A has the shape {:?} and B {:?}, wanted [r, {k}] and [{n}, r] for the matrix [{n}, {k}]",
                a.shape(),
                b.shape()
            );
        }
    }

    fn is_tracked(&self) -> bool {
        let lora = self.lora.map(|lora| [&lora.a, &lora.b]);
        let own = [self.weight.trained(), self.bias, self.residual];
        let mut tensors = own.into_iter().flatten().chain(lora.into_iter().flatten());
        tensors.any(Tensor::is_tracked)
    }
}

/// Layers of one input whose matrices can be bound at once.
struct Stack<'a> {
    x: &'a Tensor,
    scale: f32,
    rank: usize,
    rows: Vec<usize>,
    /// W of the first layer, and the place of each in its buffer
    weight: Placed,
    bias: Option<Placed>,
    a: Option<Placed>,
    b: Option<Placed>,
}

/// The first of several matrices in one buffer, and the places of all.
struct Placed {
    first: Operand,
    at: Vec<usize>,
}

impl Placed {
    /// `None` if they do not lie in one buffer, or differ in their columns or format.
    fn new(all: Vec<Operand>) -> Option<Placed> {
        let bindings: Vec<&Binding> = all.iter().map(|one| &one.binding).collect();
        let (binding, words) = Binding::union(&bindings)?;
        let kind = |one: &Operand| (one.cols, one.step, one.format);
        let alike = all.iter().all(|one| kind(one) == kind(&all[0]));
        // In units of the format.
        let place = |(one, words): (&Operand, usize)| one.at + words * 4 / one.format.unit();
        let at: Vec<usize> = all.iter().zip(words).map(place).collect();
        let first = Operand {
            binding,
            at: at[0],
            ..all.into_iter().next()?
        };
        alike.then_some(Placed { first, at })
    }

    /// Those of all layers, if each has one; `Some(None)` if none has.
    fn of(all: impl Iterator<Item = Option<Operand>>) -> Option<Option<Placed>> {
        let all: Vec<Option<Operand>> = all.collect();
        match all.iter().all(Option::is_none) {
            true => Some(None),
            false => Placed::new(all.into_iter().collect::<Option<_>>()?).map(Some),
        }
    }
}

impl<'a> Stack<'a> {
    fn new(x: &'a Tensor, layers: &[LinearLayer<'_>]) -> Option<Stack<'a>> {
        let whole = |layer: &LinearLayer<'_>| {
            let mut pieces = layer.weight.pieces(0..layer.weight.rows());
            (pieces.len() == 1).then(|| pieces.remove(0))
        };
        let weights = layers.iter().map(whole).collect::<Option<Vec<_>>>()?;
        let rows = weights.iter().map(|weight| weight.rows.len()).collect();
        let shape = layers[0].lora.map(|lora| (lora.a.rows(), lora.scale));
        let is_same =
            |layer: &LinearLayer<'_>| layer.lora.map(|lora| (lora.a.rows(), lora.scale)) == shape;
        let (rank, scale) = shape.unwrap_or((0, 1.0));
        // A launch has up to three parts, and no residual.
        let plain = layers.iter().all(|layer| layer.residual.is_none());
        let few = x.rows() > 0 && layers.len() <= 3 && plain;
        let can = few && rank.is_multiple_of(4) && layers.iter().all(is_same);
        let column = |bias: &Tensor| Operand::of(&bias.detach().reshape(&[bias.len(), 1]));
        let loras = || layers.iter().map(|layer| layer.lora);
        Some(Stack {
            x: can.then_some(x)?,
            scale,
            rank,
            rows,
            weight: Placed::new(weights)?,
            bias: Placed::of(layers.iter().map(|layer| layer.bias.map(column)))?,
            a: Placed::of(loras().map(|lora| lora.map(|lora| Operand::of(&lora.a))))?,
            b: Placed::of(loras().map(|lora| lora.map(|lora| Operand::of(&lora.b))))?,
        })
    }

    fn product(&self, right: &Operand) -> Product<'_> {
        Product::new(ProductLayout::Nt, Operand::of(self.x), right.clone())
    }

    /// scale x Aᵀ of each layer; none without adapters.
    fn low(&self) -> Option<Parts> {
        let a = self.a.as_ref()?;
        let ranks = vec![self.rank; self.rows.len()];
        let low = Parts::new(self.x, &ranks);
        let more = |i: usize| MoreColumns {
            rows: self.rank,
            right_at: a.at[i],
            up_at: 0,
            bias_at: 0,
        };
        let more: Vec<MoreColumns> = (1..ranks.len()).map(more).collect();
        let product = Product {
            alpha: self.scale,
            more: &more,
            ..self.product(&a.first)
        };
        product.write(&Operand::of(&low.parts[0]).within(&low.all));
        Some(low)
    }

    /// Writes the result of each layer; if `gated`, one result, silu(first) · second.
    fn products(&self, low: Option<&Parts>, ys: &Parts, gated: bool) {
        let at = |placed: &Option<Placed>, i: usize| placed.as_ref().map_or(0, |p| p.at[i]);
        let more = |i: usize| MoreColumns {
            rows: self.rows[i],
            right_at: self.weight.at[i],
            up_at: at(&self.b, i),
            bias_at: at(&self.bias, i),
        };
        let more: Vec<MoreColumns> = (1..self.rows.len()).map(more).collect();
        let bias = self.bias.as_ref();
        let product = Product {
            low: low
                .map(|low| &low.all)
                .zip(self.b.as_ref().map(|b| b.first.clone())),
            bias: bias.map(|bias| (&bias.first.binding as &dyn Bind, bias.at[0])),
            more: &more,
            gated,
            ..self.product(&self.weight.first)
        };
        product.write(&Operand::of(&ys.parts[0]).within(&ys.all));
    }
}

/// One flat tensor, and a part (M, columns) of it for each of several matrices, which starts at a multiple of [`ALIGNMENT`].
struct Parts {
    all: Tensor,
    parts: Vec<Tensor>,
}

impl Parts {
    /// Parts with as many rows as `x`, uninitialised.
    fn new(x: &Tensor, columns: &[usize]) -> Parts {
        let all = Tensor::empty(x.gpu(), &[Parts::room(x.rows(), columns)]);
        Parts::within(&all, x.rows(), columns)
    }

    /// Returns the length of the flat tensor.
    fn room(rows: usize, columns: &[usize]) -> usize {
        let of_one = |columns: &usize| (rows * columns).next_multiple_of(ALIGNMENT);
        columns.iter().map(of_one).sum()
    }

    #[track_caller]
    fn within(all: &Tensor, rows: usize, columns: &[usize]) -> Parts {
        let mut start = 0;
        let part = |columns: &usize| {
            let part = all.window(start..start + rows * columns);
            start += (rows * columns).next_multiple_of(ALIGNMENT);
            part.reshape(&[rows, *columns])
        };
        Parts {
            parts: columns.iter().map(part).collect(),
            all: all.detach(),
        }
    }
}

#[cfg(test)]
mod tests;
