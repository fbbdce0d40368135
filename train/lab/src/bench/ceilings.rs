//! The ceilings of a device: what no kernel exceeds.

use lapwing_tensor::{Gpu, GpuError, Tensor};
use serde::{Deserialize, Serialize};

use lapwing_train::Error;

use super::timing::measure;

/// The measured limits of a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ceilings {
    /// Bytes read and written per second in a copy of a long tensor.
    pub copy_bytes_per_second: f64,
    /// Multiplications and additions per second: those of independent chains or of a large product, whichever is faster.
    pub operations_per_second: f64,
    /// Multiplications and additions per second in a product of two large matrices.
    pub product_operations_per_second: f64,
    /// Seconds for a dispatch that does nothing, among many.
    pub dispatch_seconds: f64,
    /// Seconds for a single dispatch and waiting for it.
    pub submission_seconds: f64,
    /// Seconds for a single dispatch and reading the number that it computed.
    pub read_seconds: f64,
}

impl Ceilings {
    /// Measures them, which takes about a second.
    ///
    /// # Errors
    /// An error of the device.
    pub(crate) fn measure(gpu: &Gpu) -> Result<Ceilings, Error> {
        const ROUNDS: usize = 128;
        let (threads, size, length) = match gpu.is_software() {
            true => (1 << 14, 512, 4 << 20),
            false => (1 << 20, 2048, 16 << 20),
        };
        let full = |shape: &[usize]| Tensor::full(gpu, shape, 0.5);
        let [x, w] = [0, 1].map(|_| full(&[size, size]));
        let (long, one) = (full(&[length]), full(&[1]));
        let seconds = |run: &mut dyn FnMut() -> Result<(), GpuError>| {
            Ok::<f64, Error>(measure(gpu, || Ok(run()?))?.0)
        };
        let op = |launch: &dyn Fn() -> Tensor| {
            seconds(&mut || {
                drop(launch());
                Ok(())
            })
        };
        let chains = op(&|| gpu.multiply_adds(threads, ROUNDS).0)?;
        let product = (2 * size * size * size) as f64 / op(&|| x.matmul_nt(&w))?;
        let operations = gpu.multiply_adds(threads, ROUNDS).1 as f64 / chains;
        Ok(Ceilings {
            copy_bytes_per_second: (8 * length) as f64 / op(&|| long.copied())?,
            operations_per_second: product.max(operations),
            product_operations_per_second: product,
            dispatch_seconds: op(&|| one.neg())?,
            submission_seconds: seconds(&mut || {
                drop(one.neg());
                gpu.finish()
            })?,
            read_seconds: seconds(&mut || one.neg().to_vec().map(drop))?,
        })
    }

    /// Returns the shortest time for this work, and what limits it.
    pub(super) fn least(&self, operations: f64, bytes: f64) -> (f64, &'static str) {
        let arithmetic = operations / self.operations_per_second;
        let memory = bytes / self.copy_bytes_per_second;
        match arithmetic > memory {
            true => (arithmetic, "arithmetic"),
            false => (memory, "memory"),
        }
    }
}
