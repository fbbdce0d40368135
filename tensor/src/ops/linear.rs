//! A linear layer: a frozen or trained matrix, optionally with a bias, a low-rank adapter and a residual.
//!
//! y = residual + x Wᵀ + bias + scale (x Aᵀ) Bᵀ
//!
//! low = scale x Aᵀ        dlow = scale dy B
//! dx = dy W + dlow A      dA = dlowᵀ x      dB = dyᵀ low      dW = dyᵀ x      dbias = column sums of dy      dresidual = dy
//!
//! W + scale B A is never computed. The forward pass has two launches with an adapter and one without.

use std::ops::Range;

use super::matmul::{Operand, Product, ProductLayout};
use super::weight::Matrix;
use crate::Tensor;

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
        let (m, r, k) = (x.rows(), self.a.rows(), self.a.cols());
        let y = Tensor::empty(x.gpu(), &[m, r]);
        let (left, right) = (Operand::of(x), Operand::of(&self.a));
        let alpha = self.scale;
        Product {
            alpha,
            ..Product::new(ProductLayout::Nt, [m, r, k], left, right, Operand::of(&y))
        }
        .launch(x.gpu());
        y
    }

    /// before + scale dy B[rows], (M, r).
    pub(crate) fn low_gradient(
        &self,
        dy: &Tensor,
        rows: Range<usize>,
        before: Option<&Tensor>,
    ) -> Tensor {
        let (m, r) = (dy.rows(), self.b.cols());
        let y = Tensor::empty(dy.gpu(), &[m, r]);
        let right = Operand {
            at: rows.start * r,
            ..Operand::of(&self.b)
        };
        let product = Product::new(
            ProductLayout::Nn,
            [m, r, rows.len()],
            Operand::of(dy),
            right,
            Operand::of(&y),
        );
        Product {
            alpha: self.scale,
            residual: before,
            ..product
        }
        .launch(dy.gpu());
        y
    }

    /// before + dlow A, (M, K).
    fn input_gradient(&self, dlow: &Tensor, before: Option<&Tensor>) -> Tensor {
        let (m, r, k) = (dlow.rows(), self.a.rows(), self.a.cols());
        let y = Tensor::empty(dlow.gpu(), &[m, k]);
        let product = Product::new(
            ProductLayout::Nn,
            [m, k, r],
            Operand::of(dlow),
            Operand::of(&self.a),
            Operand::of(&y),
        );
        Product {
            residual: before,
            ..product
        }
        .launch(dlow.gpu());
        y
    }

    /// dA = dlowᵀ x, (r, K).
    pub(crate) fn a_gradient(&self, dlow: &Tensor, x: &Tensor) -> Tensor {
        let y = Tensor::empty(x.gpu(), self.a.shape());
        write_weight_gradient(&y, dlow, x, 0..self.a.rows());
        y
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
    let (n, k, m) = (rows.len(), dw.cols(), x.rows());
    let y = Operand {
        at: rows.start * k,
        ..Operand::of(dw)
    };
    Product::new(
        ProductLayout::Tn,
        [n, k, m],
        Operand::of(dy),
        Operand::of(x),
        y,
    )
    .launch(dw.gpu());
}

/// The terms added to x Wᵀ.
#[derive(Clone, Copy, Default)]
struct AddedTerms<'a> {
    low: Option<(&'a Lora, &'a Tensor)>,
    bias: Option<&'a Tensor>,
    residual: Option<&'a Tensor>,
}

impl Matrix {
    /// x W[rows]ᵀ + low B[rows]ᵀ, (M, rows).
    pub(crate) fn project(
        &self,
        x: &Tensor,
        rows: Range<usize>,
        low: Option<(&Lora, &Tensor)>,
    ) -> Tensor {
        self.forward(
            x,
            rows,
            AddedTerms {
                low,
                ..AddedTerms::default()
            },
        )
    }

    /// x W[rows]ᵀ and the added terms; a bias only with all rows.
    fn forward(&self, x: &Tensor, rows: Range<usize>, added: AddedTerms<'_>) -> Tensor {
        let (m, n, k) = (x.rows(), rows.len(), self.cols());
        let y = Tensor::empty(x.gpu(), &[m, n]);
        // A low-rank term that does not fit into the launch has its own.
        let up = |lora: &Lora, first: usize| Operand {
            at: first * lora.b.cols(),
            ..Operand::of(&lora.b)
        };
        let fits = added
            .low
            .is_none_or(|(lora, low)| Product::fits(low, &up(lora, rows.start)));
        let apart = added.low.filter(|_| !fits).map(|(lora, low)| {
            let y = Tensor::empty(x.gpu(), &[m, n]);
            let size = [m, n, low.cols()];
            let product = Product::new(
                ProductLayout::Nt,
                size,
                Operand::of(low),
                up(lora, rows.start),
                Operand::of(&y),
            );
            Product {
                residual: added.residual,
                ..product
            }
            .launch(x.gpu());
            y
        });
        for piece in self.pieces(rows.clone()) {
            let (first, format) = (piece.rows.start, piece.format);
            let size = [m, piece.rows.len(), k];
            let to = Operand {
                at: first - rows.start,
                ..Operand::of(&y)
            };
            let product = Product::new(ProductLayout::Nt, size, Operand::of(x), piece.into(), to);
            Product {
                format,
                low: added
                    .low
                    .filter(|_| fits)
                    .map(|(lora, low)| (low, up(lora, first))),
                bias: added.bias,
                residual: apart.as_ref().or(added.residual),
                ..product
            }
            .launch(x.gpu());
        }
        y
    }

    /// before + dy W[rows] + dlow A, (M, K).
    pub(crate) fn input_gradient(
        &self,
        dy: &Tensor,
        rows: Range<usize>,
        before: Option<&Tensor>,
        low: Option<(&Lora, &Tensor)>,
    ) -> Tensor {
        let (m, k) = (dy.rows(), self.cols());
        let fits = low.is_none_or(|(lora, dlow)| Product::fits(dlow, &Operand::of(&lora.a)));
        let apart = low
            .filter(|_| !fits)
            .map(|(lora, dlow)| lora.input_gradient(dlow, before));
        let mut sum = apart.or(before.cloned());
        for (i, piece) in self.pieces(rows.clone()).into_iter().enumerate() {
            let y = Tensor::empty(dy.gpu(), &[m, k]);
            let (size, format) = ([m, k, piece.rows.len()], piece.format);
            let left = Operand {
                at: piece.rows.start - rows.start,
                ..Operand::of(dy)
            };
            let product =
                Product::new(ProductLayout::Nn, size, left, piece.into(), Operand::of(&y));
            let low = low.filter(|_| fits && i == 0);
            Product {
                format,
                low: low.map(|(lora, dlow)| (dlow, Operand::of(&lora.a))),
                residual: sum.as_ref(),
                ..product
            }
            .launch(dy.gpu());
            sum = Some(y);
        }
        sum.unwrap_or_else(|| Tensor::zeros(dy.gpu(), &[m, k]))
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
        check_shapes(self, weight, bias, lora, residual);
        let x = self.detach();
        let low = lora.map(|lora| lora.down(&x));
        let added = AddedTerms {
            low: lora.zip(low.as_ref()),
            bias,
            residual,
        };
        let y = weight.forward(&x, 0..weight.rows(), added);
        let kept = LinearBackward {
            weight: weight.detach(),
            lora: lora.map(Lora::detach),
            low,
            x,
        };
        let (a, b) = (lora.map(|l| &l.a), lora.map(|l| &l.b));
        let inputs = [Some(self), residual, bias, a, b, weight.trained()];
        y.recorded("linear", inputs, move |dy, wanted| {
            kept.gradients(dy, wanted)
        })
    }
}

/// The inputs of the backward pass of a linear layer.
struct LinearBackward {
    x: Tensor,
    weight: Matrix,
    lora: Option<Lora>,
    low: Option<Tensor>,
}

impl LinearBackward {
    /// The gradients of x, residual, bias, A, B and W, as far as wanted.
    fn gradients(&self, dy: &Tensor, wanted: [bool; 6]) -> [Option<Tensor>; 6] {
        let [to_x, to_residual, to_bias, to_a, to_b, to_w] = wanted;
        let (rows, lora) = (0..self.weight.rows(), self.lora.as_ref());
        let dlow = lora
            .filter(|_| to_x || to_a)
            .map(|lora| lora.low_gradient(dy, rows.clone(), None));
        let low = lora.zip(dlow.as_ref());
        let dx = to_x.then(|| self.weight.input_gradient(dy, rows.clone(), None, low));
        let da = low
            .filter(|_| to_a)
            .map(|(lora, dlow)| lora.a_gradient(dlow, &self.x));
        let product = |shape: &[usize], right: &Tensor| {
            let gradient = Tensor::empty(dy.gpu(), shape);
            write_weight_gradient(&gradient, dy, right, rows.clone());
            gradient
        };
        let db = lora.zip(self.low.as_ref()).filter(|_| to_b);
        let dw = self.weight.trained().filter(|_| to_w);
        [
            dx,
            to_residual.then(|| dy.clone()),
            to_bias.then(|| dy.sum_to(&[rows.len()])),
            da,
            db.map(|(lora, low)| product(lora.b.shape(), low)),
            dw.map(|w| product(w.shape(), &self.x)),
        ]
    }
}

#[track_caller]
fn check_shapes(
    x: &Tensor,
    weight: &Matrix,
    bias: Option<&Tensor>,
    lora: Option<&Lora>,
    residual: Option<&Tensor>,
) {
    let (n, k) = (weight.rows(), weight.cols());
    let shape = x.shape();
    assert!(
        shape.len() == 2 && shape[1] == k,
        "linear: x has the shape {shape:?}, wanted [rows, {k}] for the matrix [{n}, {k}]"
    );
    if let Some(bias) = bias {
        assert!(
            bias.shape() == [n],
            "linear: the bias has the shape {:?}, wanted [{n}]",
            bias.shape()
        );
    }
    if let Some(residual) = residual {
        let wanted = [shape[0], n];
        assert!(
            residual.shape() == wanted,
            "linear: the residual has the shape {:?}, wanted {wanted:?}",
            residual.shape()
        );
    }
    if let Some(Lora { a, b, .. }) = lora {
        let r = a.rows();
        assert!(
            a.shape() == [r, k] && b.shape() == [n, r],
            "linear: A has the shape {:?} and B {:?}, wanted [r, {k}] and [{n}, r] for the matrix [{n}, {k}]",
            a.shape(),
            b.shape()
        );
    }
}

#[cfg(test)]
mod tests;
