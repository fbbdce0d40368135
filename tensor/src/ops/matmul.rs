//! Products of matrices.
//!
//! y = x w          dx = dy wᵀ       dw = xᵀ dy
//! y = x wᵀ         dx = dy w        dw = dyᵀ x
//! y = xᵀ w         dx = w dyᵀ       dw = x dy
//!
//! One launch computes y = alpha left right + low up + bias + residual. Which kernel runs depends on the adapter alone,
//! and an element of y is summed over k in one order whatever the number of rows and the height of the tiles: the bits of
//! a row of y do not depend on the rows beside it, so that rollouts and updates agree.

mod product;

use crate::Tensor;
pub(super) use product::{Layout, Operand, Product};

impl Tensor {
    /// (M, K) times (K, N).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn matmul(&self, rhs: &Tensor) -> Tensor {
        let (x, w) = (self.detach(), rhs.detach());
        let (track_x, track_w) = (self.is_tracked(), rhs.is_tracked());
        x.product("matmul", Layout::Nn, &w)
            .recorded("matmul", &[self, rhs], move |dy| {
                vec![
                    track_x.then(|| dy.product("matmul", Layout::Nt, &w)),
                    track_w.then(|| x.product("matmul", Layout::Tn, dy)),
                ]
            })
    }

    /// (M, K) times the transpose of (N, K).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn matmul_nt(&self, rhs: &Tensor) -> Tensor {
        let (x, w) = (self.detach(), rhs.detach());
        let (track_x, track_w) = (self.is_tracked(), rhs.is_tracked());
        x.product("matmul_nt", Layout::Nt, &w)
            .recorded("matmul_nt", &[self, rhs], move |dy| {
                vec![
                    track_x.then(|| dy.product("matmul_nt", Layout::Nn, &w)),
                    track_w.then(|| dy.product("matmul_nt", Layout::Tn, &x)),
                ]
            })
    }

    /// The transpose of (K, M) times (K, N).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn matmul_tn(&self, rhs: &Tensor) -> Tensor {
        let (x, w) = (self.detach(), rhs.detach());
        let (track_x, track_w) = (self.is_tracked(), rhs.is_tracked());
        x.product("matmul_tn", Layout::Tn, &w)
            .recorded("matmul_tn", &[self, rhs], move |dy| {
                vec![
                    track_x.then(|| w.product("matmul_tn", Layout::Nt, dy)),
                    track_w.then(|| x.product("matmul_tn", Layout::Nn, dy)),
                ]
            })
    }

    /// A product that nothing records.
    #[track_caller]
    pub(crate) fn product(&self, op: &str, layout: Layout, right: &Tensor) -> Tensor {
        let (a, b) = (self.shape(), right.shape());
        assert!(
            a.len() == 2 && b.len() == 2,
            "{op}: wanted two matrices, got the shapes {a:?} and {b:?}"
        );
        let ([m, k], [inner, n]) = match layout {
            Layout::Nt => ([a[0], a[1]], [b[1], b[0]]),
            Layout::Nn => ([a[0], a[1]], [b[0], b[1]]),
            Layout::Tn => ([a[1], a[0]], [b[0], b[1]]),
        };
        assert!(
            k == inner,
            "{op}: the shapes {a:?} and {b:?} do not fit: {k} against {inner}"
        );
        let y = Tensor::empty(self.gpu(), &[m, n]);
        let operands = (Operand::of(self), Operand::of(right));
        Product::new(layout, [m, n, k], operands.0, operands.1, Operand::of(&y)).launch(self.gpu());
        y
    }
}

#[cfg(test)]
pub(super) mod tests;
