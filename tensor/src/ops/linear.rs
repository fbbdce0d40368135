//! A linear layer: a frozen or trained matrix, optionally with a bias, a low-rank adapter and a residual.
//!
//! y = residual + x Wᵀ + bias + scale (x Aᵀ) Bᵀ
//!
//! low = scale x Aᵀ        dlow = scale dy B
//! dx = dy W + dlow A      dA = dlowᵀ x      dB = dyᵀ low      dW = dyᵀ x      dbias = column sums of dy      dresidual = dy
//!
//! W + scale B A is never computed. The forward pass has two launches with an adapter and one without.

use std::ops::Range;

use super::matmul::{Product, ProductLayout};
use super::weight::{Matrix, Operand};
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
                bias,
                residual: apart.as_ref().or(residual),
                ..Product::new(ProductLayout::Nt, Operand::of(x), piece)
            };
            product.write(&Operand::cols_of(&y, to));
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
        check_shapes(self, weight, bias, lora, residual);
        let x = self.detach();
        let low = lora.map(|lora| lora.down(&x));
        let (rows, adapter) = (0..weight.rows(), lora.zip(low.as_ref()));
        let y = weight.project(&x, rows.clone(), adapter, bias, residual);
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
    let full = [shape[0], n];
    for (what, term, wanted) in [("bias", bias, &full[1..]), ("residual", residual, &full)] {
        let found = term.map_or(wanted, Tensor::shape);
        assert!(
            found == wanted,
            "linear: the {what} has the shape {found:?}, wanted {wanted:?}"
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
