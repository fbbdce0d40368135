//! The loss of MS-GRPO. For a loss token with log-prob l, advantage A, weight c, and the log-probs of the policy before the
//! update (old) and of the reference policy:
//!
//! ```text
//! w    = e^(l - old)
//! loss = sum of c (beta KL - min(w A, clip(w, 1 - eps_low, 1 + eps_high) A))
//! KL   = d^2 / 2 (k2),  e^-d - 1 + d (k3)      with d = l - reference
//! ```
//!
//! The KL estimators are those of John Schulman, "Approximating KL divergence" (2020). Their slopes in l are d and
//! 1 - e^-d. If the clipped term is the smaller one, its slope is 0.
//!
//! Several loss tokens may use the same log-prob, since a packed tree holds equal states once.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::gpu::{Bind, Groups, Kernel, params};
use crate::ops::by_key::by_key;
use crate::{Indices, Tensor};

const GROUP: usize = 64;
const LOSSES: Kernel = Kernel::new("policy_loss", "losses");
const TOTAL: Kernel = Kernel::new("policy_loss", "total");
const BACKWARD: Kernel = Kernel::new("policy_loss", "backward");

/// The estimator of KL(policy, reference) for a token sampled from the policy, with d = log-prob - reference log-prob.
///
/// The gradient of an estimate is not an estimate of the gradient of the KL divergence: the derivative of an expectation
/// has a term for the sampling, which a loss over sampled tokens lacks.
///
/// There is no k1 = d: the mean of its gradient, that of the log-prob, is zero, so it would penalise nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kl {
    /// d² / 2: never negative, biased. On policy, the mean of its gradient is that of KL(policy, reference), which makes the
    /// policy avoid tokens that are unlikely under the reference.
    K2 = 2,
    /// e^-d - 1 + d: never negative, unbiased. On policy, the mean of its gradient is that of KL(reference, policy), which
    /// makes the policy cover the tokens that are likely under the reference.
    K3 = 3,
}

impl<'de> Deserialize<'de> for Kl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Kl, D::Error> {
        match String::deserialize(from)?.as_str() {
            "k2" => Ok(Kl::K2),
            "k3" => Ok(Kl::K3),
            "k1" => Err(D::Error::custom(
                "unknown variant `k1`, expected `k2` or `k3`: the gradient of k1 in the loss is zero on average, \
                 and k2 has the gradient that k1 in the reward would have",
            )),
            other => Err(D::Error::custom(format_args!(
                "unknown variant `{other}`, expected one of `k2`, `k3`"
            ))),
        }
    }
}

/// A token of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossToken {
    /// The index of its log-prob.
    pub pair: u32,
    /// The advantage of its episode.
    pub advantage: f32,
    /// Its weight in the loss. The weights of all tokens sum to 1.
    pub weight: f32,
    /// Its log-prob under the policy before the update.
    pub old: f32,
    /// Its log-prob under the reference.
    pub reference: f32,
}

/// The result of [`Tensor::policy_loss`]: single numbers.
#[derive(Debug)]
pub struct PolicyLoss {
    /// The loss; tracked if the log-probs are.
    pub loss: Tensor,
    /// The unweighted mean of the KL estimates.
    pub kl: Tensor,
    /// The share of loss tokens whose clipped term is the smaller one, so that its gradient is zero.
    pub clip_fraction: Tensor,
}

impl Tensor {
    /// Computes the MS-GRPO loss of these log-probs (P).
    ///
    /// `clip` is (eps_low, eps_high), and `beta` is the factor of the KL penalty.
    ///
    /// # Panics
    /// If there are no loss tokens, or one has a log-prob that does not exist.
    #[track_caller]
    pub fn policy_loss(
        &self,
        tokens: &[LossToken],
        clip: (f32, f32),
        beta: f32,
        kl: Kl,
    ) -> PolicyLoss {
        assert!(!tokens.is_empty(), "policy_loss: there are no loss tokens");
        let count = self.len();
        if let Some(token) = tokens.iter().find(|t| t.pair as usize >= count) {
            panic!(
                "policy_loss: a loss token has the log-prob {} of {count}",
                token.pair
            );
        }
        let gpu = self.gpu();
        let (starts, order) = by_key(tokens.iter().map(|t| t.pair), count);
        let sorted: Vec<f32> = order
            .iter()
            .map(|&i| tokens[i as usize])
            .flat_map(|t| [t.advantage, t.weight, t.old, t.reference])
            .collect();
        let starts = Indices::new(gpu, &starts);
        let sorted = Tensor::from_slice(gpu, &sorted, &[tokens.len(), 4]);
        let params = params! {
            count: u32 = count,
            tokens: u32 = tokens.len(),
            estimator: u32 = kl,
            beta: f32 = beta,
            low: f32 = 1.0 - clip.0,
            high: f32 = 1.0 + clip.1,
        };

        let sums = Tensor::empty(gpu, &[count, 4]);
        let slopes = Tensor::empty(gpu, self.shape());
        let groups = Groups::of(count, GROUP);
        let buffers: [&dyn Bind; 5] = [self, &starts, &sorted, &sums, &slopes];
        LOSSES.launch(&[], &buffers, &params, groups);

        let [loss, kl, clip_fraction] = [(); 3].map(|()| Tensor::empty(gpu, &[]));
        let buffers: [&dyn Bind; 4] = [&sums, &loss, &kl, &clip_fraction];
        TOTAL.launch(&[], &buffers, &params, Groups::count(1));

        let loss = loss.recorded("policy_loss", [self], move |upstream, _| {
            let dx = slopes.empty_like();
            BACKWARD.launch(&[], &[&slopes, upstream, &dx], &params, groups);
            [Some(dx)]
        });
        PolicyLoss {
            loss,
            kl,
            clip_fraction,
        }
    }
}

#[cfg(test)]
mod tests;
