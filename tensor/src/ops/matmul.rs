//! Matrix products.
//!
//! y = x w          dx = dy wᵀ       dw = xᵀ dy
//! y = x wᵀ         dx = dy w        dw = dyᵀ x
//! y = xᵀ w         dx = w dyᵀ       dw = x dy
//!
//! One launch computes y = alpha left right + low up + bias + residual. The kernel depends on the device, the matrix
//! and, on a processor, the number of rows; the order of the sum over k depends on the device alone. So the bits of a row
//! of y do not depend on other rows, and rollouts and updates agree.

mod product;

use super::weight::Operand;
use crate::Tensor;
pub(super) use product::{MoreColumns, Product, ProductLayout};

impl Tensor {
    /// (M, K) times (K, N).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn matmul(&self, rhs: &Tensor) -> Tensor {
        self.recorded_product("matmul", ProductLayout::Nn, rhs)
    }

    /// (M, K) times the transpose of (N, K).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn matmul_nt(&self, rhs: &Tensor) -> Tensor {
        self.recorded_product("matmul_nt", ProductLayout::Nt, rhs)
    }

    /// The transpose of (K, M) times (K, N).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn matmul_tn(&self, rhs: &Tensor) -> Tensor {
        self.recorded_product("matmul_tn", ProductLayout::Tn, rhs)
    }

    #[track_caller]
    fn recorded_product(&self, op: &'static str, layout: ProductLayout, rhs: &Tensor) -> Tensor {
        use ProductLayout::{Nn, Nt, Tn};
        let (x, w) = (self.detach(), rhs.detach());
        let y = x.product(op, layout, &w);
        y.recorded(op, [self, rhs], move |dy, [to_x, to_w]| {
            let dx = || match layout {
                Nn => dy.product(op, Nt, &w),
                Nt => dy.product(op, Nn, &w),
                Tn => w.product(op, Nt, dy),
            };
            let dw = || match layout {
                Nn => x.product(op, Tn, dy),
                Nt => dy.product(op, Tn, &x),
                Tn => x.product(op, Nn, dy),
            };
            [to_x.then(dx), to_w.then(dw)]
        })
    }

    /// Computes a product without recording it.
    #[track_caller]
    fn product(&self, op: &str, layout: ProductLayout, right: &Tensor) -> Tensor {
        let (a, b) = (self.shape(), right.shape());
        assert!(
            a.len() == 2 && b.len() == 2,
            "{op}: wanted two matrices, got the shapes {a:?} and {b:?}"
        );
        let (k, inner) = match layout {
            ProductLayout::Nt => (a[1], b[1]),
            ProductLayout::Nn => (a[1], b[0]),
            ProductLayout::Tn => (a[0], b[0]),
        };
        assert!(
            k == inner,
            "{op}: the shapes {a:?} and {b:?} do not fit: {k} against {inner}"
        );
        Product::new(layout, Operand::of(self), Operand::of(right)).compute()
    }
}

#[cfg(test)]
pub(super) mod tests;
