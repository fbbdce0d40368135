//! Ops for reinforcement learning of language models: token sampling, log-probs and the policy loss.

mod log_prob;
mod policy_loss;
mod sample;

pub(crate) use log_prob::Cut;
pub use log_prob::{LmHead, LogProbs};
pub use policy_loss::{Kl, LossToken, PolicyLoss};
pub use sample::{Draw, Draws};
