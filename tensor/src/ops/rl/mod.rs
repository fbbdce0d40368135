//! Ops for reinforcement learning of language models: [`Tensor::draw`] samples tokens, [`Tensor::log_probs`] computes
//! log-probs and entropies without holding all logits, and [`Tensor::policy_loss`] is the loss of MS-GRPO.
//!
//! [`Tensor::draw`]: crate::Tensor::draw
//! [`Tensor::log_probs`]: crate::Tensor::log_probs
//! [`Tensor::policy_loss`]: crate::Tensor::policy_loss

mod log_prob;
mod policy_loss;
mod sample;

pub(crate) use log_prob::VocabularyCut;
pub use log_prob::{LmHead, LogProbs};
pub use policy_loss::{Kl, LossToken, PolicyLoss};
pub use sample::{Draw, Draws};
