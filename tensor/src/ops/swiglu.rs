//! The gated unit of Llama-like feed-forward layers (Shazeer 2020), element by element.
//!
//! y = g s u with s = 1 / (1 + e^-g); dg = dy u s (1 + g (1 - s)), du = dy g s

use crate::Tensor;
use crate::gpu::{Groups, Kernel};

const FORWARD: Kernel = Kernel::new("swiglu", "forward");
const BACKWARD: Kernel = Kernel::new("swiglu", "backward");

impl Tensor {
    /// silu(self) · `up`, for two tensors of one shape.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn swiglu(&self, up: &Tensor) -> Tensor {
        assert!(
            self.shape() == up.shape(),
            "swiglu: the shapes {:?} and {:?} differ",
            self.shape(),
            up.shape()
        );
        let fours = self.len().div_ceil(4);
        let groups = Groups::of(fours, 64);
        let (x, u, y) = (self.detach(), up.detach(), self.empty_like());
        FORWARD.launch(&[], &[&x, &u, &y], &(fours as u32), groups);
        y.recorded("swiglu", [self, up], move |dy, [to_x, to_up]| {
            let (dx, du) = (x.empty_like(), x.empty_like());
            BACKWARD.launch(&[], &[&x, &u, dy, &dx, &du], &(fours as u32), groups);
            [to_x.then_some(dx), to_up.then_some(du)]
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Tensor;
    use crate::check::reference::{SWIGLU as TOLERANCE, swiglu};
    use crate::testing::{Array, check, gpu};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_its_reference(rows in 1usize..5, cols in 1usize..140, seed: u64) {
            let inputs = [0, 1].map(|i| Array::random(&[rows, cols], seed ^ i, -8.0..8.0));
            check(&|t| t[0].swiglu(&t[1]), &|a| swiglu(&a[0], &a[1]), &inputs, TOLERANCE);
        }
    }

    #[test]
    fn only_what_is_tracked_gets_a_gradient() {
        let gpu = gpu();
        let (gate, up) = (
            Tensor::full(&gpu, &[3], 1.0).tracked(),
            Tensor::full(&gpu, &[3], 2.0),
        );
        let gradients = gate.swiglu(&up).sum().backward();
        assert!(gradients.get(&gate).is_some());
        assert!(gradients.get(&up).is_none());
    }

    #[test]
    #[should_panic(expected = "swiglu: the shapes [2, 3] and [3] differ")]
    fn shapes_that_differ_are_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[2, 3]).swiglu(&Tensor::zeros(&gpu, &[3]));
    }
}
