//! The ops, one file each: formula, shapes, launch, gradient, and tests against the f64 reference.

mod adamw;
mod attention;
mod binary;
mod by_key;
mod embedding;
mod linear;
mod matmul;
mod norm;
mod probe;
mod reduce;
pub mod rl;
mod rope;
mod rows;
mod swiglu;
mod unary;
mod weight;

pub use adamw::{AdamW, Muon, NamedValues, ParameterState, Parameters};
pub use attention::Visibility;
pub(crate) use attention::{fits_lanes, rows_of_a_thread, tile_constants};
pub(crate) use binary::broadcast;
pub use linear::{LinearLayer, Lora};
pub use rope::{Rotations, Unrotated};
pub use weight::{Matrix, OutOfRange, Weight, WeightFormat, WeightRows};

/// Threads of a workgroup that reduces values together. A processor runs eight threads in lockstep; with more of them
/// each barrier would cost more than the work between two barriers.
fn threads_together(gpu: &crate::Gpu) -> usize {
    if gpu.is_software() { 8 } else { 64 }
}
