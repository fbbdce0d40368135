//! The ops, a file each: formula, shape rule, launch with its gradient, f64 reference, properties.

mod adamw;
mod binary;
mod by_key;
mod policy_loss;
mod reduce;
mod rms_norm;
mod rope;
mod rows;
mod swiglu;
mod unary;

pub use adamw::{AdamW, NamedValues, ParameterState, Parameters};
pub use policy_loss::{KlEstimator, LossToken, PolicyLoss};
pub use rope::Rotations;
