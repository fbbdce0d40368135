//! The ops, a file each: formula, shape rule, launch with its gradient, f64 reference, properties.

mod adamw;
mod attention;
mod binary;
mod by_key;
mod checks;
mod embedding;
mod layer_norm;
mod linear;
mod log_prob;
mod matmul;
mod policy_loss;
mod probe;
mod reduce;
mod reference;
mod rms_norm;
mod rope;
mod rows;
mod sample;
mod swiglu;
mod unary;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod variants;
mod weight;

pub use adamw::{AdamW, NamedValues, ParameterState, Parameters};
pub use attention::Visibility;
pub use checks::{Check, checks};
pub use linear::Lora;
pub use log_prob::{Head, LogProbs};
pub use policy_loss::{Kl, LossToken, PolicyLoss};
pub use probe::Speed;
pub use rope::Rotations;
pub use sample::{Draw, Draws};
pub use weight::{Format, Matrix, OutOfRange, Weight};

/// Threads of a workgroup that adds up together. A processor runs eight in step; more of them would make every barrier a
/// switch between groups of eight, dearer there than the work between two barriers.
fn threads_together(gpu: &crate::Gpu) -> usize {
    if gpu.is_software() { 8 } else { 64 }
}
