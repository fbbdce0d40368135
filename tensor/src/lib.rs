//! Tensors on any GPU, with gradients.
//!
//! ```
//! use lapwing_tensor::{Gpu, GpuOptions, Tensor};
//!
//! let gpu = Gpu::open(GpuOptions::default())?;
//! let x = Tensor::from_slice(&gpu, &[1.0, 2.0, 3.0], &[3]).tracked();
//! let y = x.square().sum();
//! assert_eq!(y.to_vec()?, [14.0]);
//! let gradients = y.backward();
//! assert_eq!(gradients.get(&x).unwrap().to_vec()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), lapwing_tensor::GpuError>(())
//! ```
//!
//! There is one tensor type ([`Tensor`]: f32, contiguous, any shape) and one device type ([`Gpu`]: any device of Vulkan,
//! Metal or Direct3D 12, including software drivers). An op records its gradient only if one of its inputs is tracked.
//! Work is recorded and submitted in batches; [`Tensor::to_vec`] waits for it. Ops for reinforcement learning of language
//! models are in [`rl`]; [`Tensor::log_probs`] is also the cross-entropy of a classifier. Ops of single elements take up to four axes.
//!
//! # Panics
//! Shapes that do not fit, and tensors of several devices, are bugs in the program: ops panic, at the caller's line, with the
//! name of the op and the shapes. Errors at run time (no device, a lost device, no memory) are a [`GpuError`], which the next
//! read of a tensor, or [`Gpu::finish`], returns.
//!
//! # Determinism
//! On one device the same calls give the same bits: no kernel adds floats in an order that depends on timing.

pub mod check;
// The example imports this crate by its name.
#[cfg(test)]
extern crate self as lapwing_tensor;

#[cfg(test)]
mod example_tests;
mod gpu;
mod indices;
mod ops;
pub mod random;
mod tensor;
#[cfg(test)]
mod testing;

pub use gpu::{Caps, Counts, Gpu, GpuError, GpuOptions};
pub use indices::Indices;
pub use ops::{
    AdamW, LinearLayer, Lora, Matrix, Muon, NamedValues, OutOfRange, ParameterState, Parameters,
    Rotations, Unrotated, Visibility, Weight, WeightFormat, WeightRows, rl,
};
pub use tensor::{ALIGNMENT, Gradients, Tensor, known_output, recomputed};
