//! Measurement of the speed of a device: independent multiplications and additions, a matrix product, and a copy.
//!
//! The figures of a data sheet are higher, since they count units that no kernel here uses, such as 16-bit matrix units.

use std::time::{Duration, Instant};

use crate::gpu::{Groups, Kernel, params};
use crate::{Gpu, GpuError, Tensor};

const CHAINS: Kernel = Kernel::new("probe", "chains");

/// Operations of a thread in a round: eight chains, two steps, a product and a sum.
const PER_ROUND: usize = 32;

/// The measured speed of a device.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Independent multiplications and additions per second: the peak of the device.
    pub operations: f64,
    /// Multiplications and additions per second in a product of two large matrices.
    pub product: f64,
    /// Bytes read and written per second in a copy of a long tensor.
    pub bytes: f64,
}

impl Gpu {
    /// Measures the speed of the device, which takes a few tenths of a second.
    ///
    /// # Errors
    /// An error of the device.
    pub fn speed(&self) -> Result<Speed, GpuError> {
        const ROUNDS: usize = 512;
        let (threads, size, length) = match self.is_software() {
            true => (1 << 14, 512, 4 << 20),
            false => (1 << 20, 2048, 16 << 20),
        };
        let full = |shape: &[usize]| Tensor::full(self, shape, 0.5);
        let (x, w, long) = (full(&[size, size]), full(&[size, size]), full(&[length]));
        let product = self.rate(2 * size * size * size, || drop(x.matmul_nt(&w)))?;
        let chains = self.rate(threads * ROUNDS * PER_ROUND, || {
            drop(chains(self, threads, ROUNDS, 0.999, 0.001));
        })?;
        Ok(Speed {
            // A product that is faster than the probe is a better lower bound of the peak.
            operations: chains.max(product),
            product,
            bytes: self.rate(8 * length, || drop(long.neg()))?,
        })
    }

    /// Returns `amount` per second of a launch, the best of three measurements.
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

/// Runs the probe; each thread returns the sum of its chains.
pub(crate) fn chains(gpu: &Gpu, count: usize, rounds: usize, factor: f32, more: f32) -> Tensor {
    let y = Tensor::empty(gpu, &[count]);
    let params = params! { count: u32 = count, rounds: u32 = rounds, factor: f32 = factor, more: f32 = more };
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
