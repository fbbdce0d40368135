//! How fast a device is: what it can do, and what the kernels that matter most make of it.
//!
//! What it can do is what it did here: multiplications and additions that wait for nothing, and a copy of a long tensor.
//! The figures of a data sheet are higher; they count units (for matrices of 16 bits, say) that no kernel here uses.

use std::time::{Duration, Instant};

use crate::gpu::{Groups, Kernel};
use crate::{Gpu, GpuError, Tensor};

const CHAINS: Kernel = Kernel::new("probe", "chains");

/// Operations of a thread in a round: eight chains, two steps each, a product and a sum.
const PER_ROUND: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    rounds: u32,
    factor: f32,
    more: f32,
}

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Multiplications and additions a second that wait for nothing: what the device can do.
    pub operations: f64,
    /// Of these, how many a product of two large matrices does.
    pub product: f64,
    /// Bytes a second, read and written, when a long tensor is copied.
    pub bytes: f64,
}

impl Gpu {
    /// Measures the device: some tenths of a second.
    ///
    /// # Errors
    /// What the device reported.
    pub fn speed(&self) -> Result<Speed, GpuError> {
        let software = self.is_software();
        let (threads, rounds) = if software {
            (1 << 14, 512)
        } else {
            (1 << 20, 512)
        };
        let size = if software { 512 } else { 2048 };
        let length = if software { 4 << 20 } else { 16 << 20 };
        let random = |shape: &[usize]| Tensor::full(self, shape, 0.5);
        let (x, w, long) = (
            random(&[size, size]),
            random(&[size, size]),
            random(&[length]),
        );
        let product = self.rate(2 * size * size * size, || drop(x.matmul_nt(&w)))?;
        let chains = self.rate(threads * rounds * PER_ROUND, || {
            drop(chains(self, threads, rounds, 0.999, 0.001));
        })?;
        Ok(Speed {
            // If the product beats the probe, then the device can do that.
            operations: chains.max(product),
            product,
            bytes: self.rate(8 * length, || drop(long.neg()))?,
        })
    }

    /// `amount` a second of a launch, the best of three.
    fn rate(&self, amount: usize, launch: impl Fn()) -> Result<f64, GpuError> {
        const LONG_ENOUGH: Duration = Duration::from_millis(60);
        let (mut best, mut launches) = (0.0f64, 1);
        launch();
        self.finish()?;
        for _ in 0..3 {
            loop {
                let start = Instant::now();
                (0..launches).for_each(|_| launch());
                self.finish()?;
                let taken = start.elapsed();
                best = best.max(launches as f64 * amount as f64 / taken.as_secs_f64());
                if taken >= LONG_ENOUGH || launches >= 1 << 12 {
                    break;
                }
                launches *= 2;
            }
        }
        Ok(best)
    }
}

/// For each thread the sum of its chains.
pub(crate) fn chains(gpu: &Gpu, count: usize, rounds: usize, factor: f32, more: f32) -> Tensor {
    let y = Tensor::empty(gpu, &[count]);
    let params = Params {
        count: count as u32,
        rounds: rounds as u32,
        factor,
        more,
    };
    let groups = Groups::of(count, 64).work(count * rounds * PER_ROUND);
    CHAINS.launch(&[], &[&y], &params, groups);
    y
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_product_is_faster_than_the_device() {
        let speed = crate::testing::gpu().speed().unwrap();
        assert!(speed.product > 0.0 && speed.bytes > 0.0, "{speed:?}");
        assert!(speed.operations >= speed.product, "{speed:?}");
    }
}
