//! Metrics of a training step.

use lapwing_play::metrics::{GameMetrics, PlayMetrics, ReplyMetrics, mean_and_spread};
use serde::{Deserialize, Serialize};

/// Metrics of one training step, of any learner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Number of the step, from 1.
    pub step: usize,
    /// End of the step, in seconds since 1970 (UTC).
    pub time: f64,
    /// Metrics of its episodes.
    #[serde(flatten)]
    pub play: PlayMetrics,
    /// The same by game, if games are mixed. Games that were not played in this step are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub games: Vec<GameMetrics>,
    /// Positions that separate sequences (prompt and reply of every turn) would have computed. Only of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_played: Option<u64>,
    /// Positions that the model computed, in rollout, values, reference and update. Only of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_computed: Option<u64>,
    /// Duration of the rollout in seconds.
    pub seconds_rollout: f64,
    /// Duration of the update in seconds.
    pub seconds_update: f64,
    /// Groups that were skipped because all of their returns were equal. Only of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_skipped: Option<usize>,
    /// Updates that were dropped because their loss or gradient was not finite.
    pub updates_dropped: usize,
    /// Weight of the entropy, if the entropy was outside of its band.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy_weight: Option<f64>,
    /// Effective number of the selected episodes. `None` if none was selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_episodes: Option<f64>,
    /// Noise of the gradient, with `train.measure`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<GradientNoise>,
    /// Metrics of the updates. `None` without updates: zeros would draw false curves.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub learned: Option<UpdateMetrics>,
    /// Metrics of the critic, with `credit.method = "critic"`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub critic: Option<CriticMetrics>,
    /// Metrics of the updates of a value learner.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueUpdateMetrics>,
}

impl StepMetrics {
    /// Whether only the critic was trained (`critic.warmup`).
    pub fn is_warmup(&self) -> bool {
        let no_updates = self.learned.is_none() && self.updates_dropped == 0;
        // After the warm-up, a step without updates has skipped groups.
        self.critic.is_some() && no_updates && self.groups_skipped == Some(0)
    }

    /// Metrics with all optional fields present and all numbers 0.
    pub fn whole() -> StepMetrics {
        StepMetrics {
            play: PlayMetrics {
                replies: Some(ReplyMetrics::default()),
                ..PlayMetrics::default()
            },
            games: vec![GameMetrics::default()],
            tokens_played: Some(0),
            tokens_computed: Some(0),
            groups_skipped: Some(0),
            entropy_weight: Some(0.0),
            effective_episodes: Some(0.0),
            measured: Some(GradientNoise {
                gradient_variance_scenes: Some(0.0),
                gradient_alignment: Some(0.0),
                ..GradientNoise::default()
            }),
            critic: Some(CriticMetrics {
                explained_variance: Some(0.0),
                ..CriticMetrics::default()
            }),
            learned: Some(UpdateMetrics {
                kl: Some(0.0),
                ..UpdateMetrics::default()
            }),
            value: Some(ValueUpdateMetrics::default()),
            ..StepMetrics::default()
        }
    }

    /// Returns the names of all metrics of a step in their order, without `step` and `time`.
    pub fn names() -> Vec<String> {
        let names = numbers(&StepMetrics::whole()).into_iter();
        let names = names.map(|(name, _)| name);
        names
            .filter(|name| name != "step" && name != "time")
            .collect()
    }
}

/// Errors of a critic over all turns of a step, before it was trained on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticMetrics {
    /// Half the mean squared error.
    pub value_loss: f64,
    /// Mean value.
    pub value_mean: f64,
    /// Explained share of the targets' variance: 1 without error, 0 for a constant, negative for worse than a constant.
    /// `None` if all targets are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_variance: Option<f64>,
}

impl CriticMetrics {
    /// Computes the metrics of values and their targets.
    pub(crate) fn of(values: &[f64], targets: &[f64]) -> CriticMetrics {
        let misses: Vec<f64> = targets.iter().zip(values).map(|(r, v)| r - v).collect();
        let (wrong, spread) = (mean_and_spread(&misses), mean_and_spread(targets).1);
        let squares: f64 = misses.iter().map(|miss| miss * miss).sum();
        CriticMetrics {
            value_loss: 0.5 * squares / misses.len() as f64,
            value_mean: mean_and_spread(values).0,
            explained_variance: (spread > 1e-9).then(|| 1.0 - (wrong.1 / spread).powi(2)),
        }
    }
}

/// Noise of a step's gradient. `train/learn/src/measure.rs` has the formulas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GradientNoise {
    /// Estimate of the squared length of the mean gradient, given the scenes. It can be negative if noise dominates.
    pub(crate) gradient_signal: f64,
    /// Estimate of the total variance of the gradient, given the scenes.
    pub(crate) gradient_variance: f64,
    /// Cosine between the gradients of two halves of the episodes.
    pub(crate) gradient_agreement: f64,
    /// Variance between groups, which includes the variance between scenes. Only with several groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gradient_variance_scenes: Option<f64>,
    /// Cosine to the gradient of the previous step. `None` in the first step and after a resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gradient_alignment: Option<f64>,
}

/// What a batch adds to the metrics of its update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchMetrics {
    /// Sampled tokens.
    pub(crate) tokens: usize,
    /// Its part of the loss.
    pub(crate) loss: f64,
    /// The mean over its tokens; `None` without a reference.
    pub(crate) kl: Option<f64>,
    /// The share of its tokens with a clipped ratio.
    pub(crate) clip_fraction: f64,
    /// The largest distance of a ratio from 1.
    pub(crate) ratio_error: f64,
    /// Positions that the model computed, for reference and policy (a sum).
    pub(crate) tokens_computed: u64,
}

/// Metrics of an optimiser update, averaged over its tokens; or of a step, averaged over its updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Estimate of KL(policy, reference) in nats per token. `None` without a reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// Share of tokens with a clipped ratio.
    pub clip_fraction: f64,
    /// Norm of the whole gradient before clipping.
    pub grad_norm: f64,
    /// Loss before the update.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Largest distance of a ratio from 1 in the first update. 0 if rollout and update are bit-identical.
    pub first_ratio_error: f64,
    /// Positions that the model computed, for reference and policy (a sum).
    #[serde(skip)]
    pub tokens_computed: u64,
}

impl UpdateMetrics {
    /// Returns the mean over updates, `None` without updates.
    pub(crate) fn mean_of(updates: &[UpdateMetrics]) -> Option<UpdateMetrics> {
        let count = updates.len() as f64;
        let mean = |of: fn(&UpdateMetrics) -> f64| updates.iter().map(of).sum::<f64>() / count;
        updates.first().map(|first| UpdateMetrics {
            kl: first
                .kl
                .map(|_| mean(|update| update.kl.unwrap_or_default())),
            clip_fraction: mean(|update| update.clip_fraction),
            grad_norm: mean(|update| update.grad_norm),
            loss: mean(|update| update.loss),
            lr: first.lr,
            first_ratio_error: first.first_ratio_error,
            tokens_computed: updates.iter().map(|update| update.tokens_computed).sum(),
        })
    }

    /// Adds a batch with this share of the update's tokens.
    pub(crate) fn add(&mut self, batch: &BatchMetrics, share: f64) {
        self.loss += batch.loss;
        self.kl = batch.kl.map(|kl| self.kl.unwrap_or_default() + share * kl);
        self.clip_fraction += share * batch.clip_fraction;
        self.first_ratio_error = larger_or_nan(self.first_ratio_error, batch.ratio_error);
        self.tokens_computed += batch.tokens_computed;
    }

    /// Whether loss and gradient are finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.grad_norm.is_finite()
    }
}

/// Returns the larger of two numbers, or NaN if one is NaN, which f64::max would ignore.
pub(crate) fn larger_or_nan(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// Metrics of a step of a value learner, averaged over its updates. Its names differ from those of [`UpdateMetrics`], so that a line
/// of `metrics.jsonl` is unambiguous.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueUpdateMetrics {
    /// Optimiser updates.
    pub updates: usize,
    /// Loss before the update.
    pub td_loss: f64,
    /// Mean absolute difference of Q from its target.
    pub td_error: f64,
    /// Mean of the targets.
    pub q_target: f64,
    /// Norm of the whole gradient before clipping.
    pub gradient_norm: f64,
    /// Probability of a random action in play.
    pub epsilon: f64,
    /// Learning rate.
    pub learning_rate: f64,
}

impl ValueUpdateMetrics {
    /// Returns the mean over the updates of one step, `None` without updates.
    pub(crate) fn mean_of(
        updates: &[ValueUpdateMetrics],
        epsilon: f64,
    ) -> Option<ValueUpdateMetrics> {
        let count = updates.len() as f64;
        let mean = |of: fn(&ValueUpdateMetrics) -> f64| updates.iter().map(of).sum::<f64>() / count;
        updates.first().map(|first| ValueUpdateMetrics {
            updates: updates.len(),
            td_loss: mean(|update| update.td_loss),
            td_error: mean(|update| update.td_error),
            q_target: mean(|update| update.q_target),
            gradient_norm: mean(|update| update.gradient_norm),
            epsilon,
            ..*first
        })
    }
}

/// Returns the names and values of a record's numeric fields, in order. Other fields are left out.
///
/// # Panics
/// If the record cannot be serialised as JSON.
pub fn numbers(record: &impl Serialize) -> Vec<(String, f64)> {
    let value = serde_json::to_value(record).expect("metrics are plain values");
    let fields = value.as_object().into_iter().flatten();
    let number = |(name, value): (&String, &serde_json::Value)| {
        value.as_f64().map(|value| (name.clone(), value))
    };
    fields.filter_map(number).collect()
}
