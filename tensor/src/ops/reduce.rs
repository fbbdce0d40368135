//! Sums and means.
//!
//! A sum goes by rows of fixed length, then by the sums of those, in a fixed order, so its bits do not depend on the
//! schedule of the device. dx of a sum is dy, repeated.

use super::binary::right_aligned;
use crate::Tensor;
use crate::gpu::{Groups, Kernel, params};

const SUM_ROWS: Kernel = Kernel::new("reduce", "sum_rows");
const SUM_AXES: Kernel = Kernel::new("reduce", "sum_axes");

/// Elements that one thread sums when a whole tensor is summed.
const RUN: usize = 64;

impl Tensor {
    /// The sum of all elements, a tensor of shape `[]`.
    ///
    /// # Panics
    /// If there are no elements.
    #[track_caller]
    pub fn sum(&self) -> Tensor {
        assert!(!self.is_empty(), "sum: {:?} has no elements", self.shape());
        let mut y = self.detach();
        while y.len() > 1 {
            let count = y.len().div_ceil(RUN);
            y = y.sum_rows(RUN, &[count]);
        }
        y.reshape(&[]).recorded_sum("sum", self)
    }

    /// The mean of all elements, a tensor of shape `[]`.
    ///
    /// # Panics
    /// If there are no elements.
    #[track_caller]
    pub fn mean(&self) -> Tensor {
        self.sum()
            .div(&Tensor::full(self.gpu(), &[], self.len() as f32))
    }

    /// The sum over the last axis, which keeps length one.
    pub fn sum_last(&self) -> Tensor {
        let mut shape = self.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = 1;
        }
        let y = self.sum_rows(self.cols(), &shape);
        y.recorded_sum("sum_last", self)
    }

    /// Sums over the axes that `shape` lacks or has with length one: the gradient of broadcasting.
    /// Panics if `shape` cannot be broadcast to the shape of self, or self has more than four axes.
    #[track_caller]
    pub(crate) fn sum_to(&self, shape: &[usize]) -> Tensor {
        if self.shape() == shape {
            return self.clone();
        }
        let (from, to) = (right_aligned(self.shape()), right_aligned(shape));
        let fits = shape.len() <= self.shape().len()
            && self.shape().len() <= 4
            && (0..4).all(|i| from[i] == to[i] || to[i] == 1);
        assert!(
            fits,
            "sum_to: {:?} cannot be summed to {shape:?}",
            self.shape()
        );
        let y = Tensor::empty(self.gpu(), shape);
        let params = params! {
            shape: [u32; 4] = from,
            summed: [u32; 4] = to.map(|length| u32::from(length == 1)),
            count: u32 = y.len(),
            // Of the other kernel.
            length: u32 = 0,
            total: u32 = 0,
        };
        SUM_AXES.launch(&[], &[self, &y], &params, Groups::of(y.len(), 64));
        y.recorded_sum("sum_to", self)
    }

    /// Records a sum of elements of x.
    fn recorded_sum(self, op: &'static str, x: &Tensor) -> Tensor {
        let shape = x.shape().to_vec();
        self.recorded(op, [x], move |dy, _| {
            [Some(Tensor::zeros(dy.gpu(), &shape).add(dy))]
        })
    }

    /// The sums of runs of `length` elements; the last run may be shorter.
    fn sum_rows(&self, length: usize, shape: &[usize]) -> Tensor {
        let y = Tensor::empty(self.gpu(), shape);
        let params = params! {
            // Of the other kernel.
            axes: [u32; 8] = [0u32; 8],
            count: u32 = y.len(),
            length: u32 = length,
            total: u32 = self.len(),
        };
        SUM_ROWS.launch(&[], &[self, &y], &params, Groups::of(y.len(), 64));
        y
    }
}

#[cfg(test)]
mod tests {
    use crate::check::reference::{REDUCE as TOLERANCE, columns, of_rows as rows};
    use crate::testing::{Array, check};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

        #[test]
        fn sums_and_means_agree_with_their_references(m in 1usize..40, n in 1usize..130, seed: u64) {
            let x = [Array::random(&[m, n], seed, 0.1..1.0)];
            let all = |a: &Array| Array { shape: vec![], values: vec![a.values.iter().sum()] };
            check(&|t| t[0].sum(), &|a| all(&a[0]), &x, TOLERANCE);
            check(&|t| t[0].mean(), &|a| all(&a[0]).map(|v| v / (m * n) as f64), &x, TOLERANCE);
            check(&|t| t[0].sum_last(), &|a| rows(&a[0], |r| r.iter().sum()), &x, TOLERANCE);
            check(&|t| t[0].sum_to(&[n]), &|a| columns(&a[0]), &x, TOLERANCE);
        }
    }
}
