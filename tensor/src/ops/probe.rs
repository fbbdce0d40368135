//! Independent multiplications and additions, and a copy, to measure the speed of a device.
//!
//! The figures of a data sheet are higher, since they count units that no kernel here uses, such as 16-bit matrix units.

use crate::gpu::{Groups, Kernel, params};
use crate::{Gpu, Tensor};

const CHAINS: Kernel = Kernel::new("probe", "chains");
const COPY: Kernel = Kernel::new("probe", "copy");

/// Operations of a thread in a round: sixteen chains, four steps, a product and a sum.
const PER_ROUND: usize = 128;

impl Gpu {
    /// Runs independent chains of steps x = 0.5 x + 0.25. Returns the sum of the chains of each thread, the only memory that
    /// is used, and the number of multiplications and additions.
    pub fn multiply_adds(&self, threads: usize, rounds: usize) -> (Tensor, usize) {
        let (y, work) = (
            Tensor::empty(self, &[threads]),
            threads * rounds * PER_ROUND,
        );
        let params = params! { count: u32 = threads, rounds: u32 = rounds, factor: f32 = 0.5, more: f32 = 0.25 };
        CHAINS.launch(
            &[],
            &[&y],
            &params,
            Groups::of(threads, 64).work(work as u64),
        );
        (y, work)
    }
}

impl Tensor {
    /// Returns a copy without gradients, made as fast as the memory allows.
    ///
    /// # Panics
    /// If the number of elements is no multiple of 4.
    #[track_caller]
    pub fn copied(&self) -> Tensor {
        let count = self.len() / 4;
        assert_eq!(4 * count, self.len(), "copied: the number of elements");
        let y = Tensor::empty(self.gpu(), self.shape());
        let params =
            params! { count: u32 = count, rounds: u32 = 0, factor: f32 = 0.0, more: f32 = 0.0 };
        COPY.launch(&[], &[self, &y], &params, Groups::of(count, 64));
        y
    }
}
