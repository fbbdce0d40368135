//! Checks of ops and kernels on a device: f64 references, the table of op checks, and the list of kernel variants.

use std::sync::OnceLock;

mod compare;
mod op_checks;
pub(crate) mod reference;
mod variants;

pub use compare::Wrong;
#[cfg(test)]
pub(crate) use compare::{Array, Compared, LEAST, OpCase, Tolerance, compare};
pub use op_checks::{Check, checks};
use variants::assert_listed;
pub use variants::{KernelVariant, kernel_variants};

use crate::{Gpu, GpuOptions};

/// Returns the device that all tests of a process share. It compiles kernels with bounds checks, requires that
/// [`kernel_variants`] lists them, and fills new buffers with NaN. `LAPWING_DEVICE` selects the device by its number.
///
/// # Panics
/// If there is no device; the message says what to install.
pub fn gpu() -> Gpu {
    static SHARED: OnceLock<Gpu> = OnceLock::new();
    let number = |text: String| text.parse().expect("a number in LAPWING_DEVICE");
    let open = || {
        let options = GpuOptions {
            device: std::env::var("LAPWING_DEVICE").ok().map(number),
            checked: true,
            poison: true,
            on_compile: Some(assert_listed),
            ..GpuOptions::default()
        };
        Gpu::open(options).unwrap_or_else(|e| panic!("{e}"))
    };
    SHARED.get_or_init(open).clone()
}
