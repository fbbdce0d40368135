//! Metrics of a training step.

use lapwing_play::metrics::{GameMetrics, PlayMetrics, ReplyMetrics, mean_and_spread};
use serde::{Deserialize, Serialize};

/// What one training step brought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Which step, from 1.
    pub step: usize,
    /// When it was over, in seconds since 1970 (UTC).
    pub time: f64,
    /// How its episodes went.
    #[serde(flatten)]
    pub play: PlayMetrics,
    /// The same game by game, where other games are mixed in; those that were not played in this step are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub games: Vec<GameMetrics>,
    /// Positions that separate sequences, prompt and reply for every turn of every episode, would have run.
    pub tokens_played: u64,
    /// Positions that really ran through the model: in rollout, reference and update.
    pub tokens_computed: u64,
    /// Seconds in which the episodes were played.
    pub seconds_rollout: f64,
    /// Seconds in which the adapter, or the model, learned.
    pub seconds_update: f64,
    /// Groups left out because all of their returns were equal.
    pub groups_skipped: usize,
    /// Updates that were not made because loss or gradient was no finite number.
    pub updates_dropped: usize,
    /// What replies were sampled at, where that follows the spread of returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The weight of entropy in what was learned, where it left its band.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy_weight: Option<f64>,
    /// How many episodes of equal weight those that were learned from amount to; left out where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_episodes: Option<f64>,
    /// How noisy the gradient was, in a run that measures it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What learning brought; left out of the line where nothing was learned, since zeros would draw false curves.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// How the critic did, where one gives the credit.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub critic: Option<CriticMetrics>,
    /// The same of a learner without language.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueLearned>,
}

impl StepMetrics {
    /// Whether it was one of the first steps of turn-level PPO, in which nobody but the critic learns.
    pub fn is_warmup(&self) -> bool {
        let nothing_chosen = self.learned.is_none() && self.updates_dropped == 0;
        // Otherwise there are groups that were skipped.
        self.critic.is_some() && nothing_chosen && self.groups_skipped == 0
    }
}

/// How well a critic knew what came, over all turns of a step and before it learned from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticMetrics {
    /// Its loss: half the mean square of what it was wrong by.
    pub value_loss: f64,
    /// The mean of what it said.
    pub value_mean: f64,
    /// The share of the variance of what came that it knew: 1 if it was right, 0 if the mean would have done, below 0 if that
    /// would have been better. None where the same came after every turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained_variance: Option<f64>,
}

impl CriticMetrics {
    /// Of what it said, and what it should have said.
    pub fn of(values: &[f64], targets: &[f64]) -> CriticMetrics {
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

impl StepMetrics {
    /// A step in which all was measured that a step can tell; every number is 0.
    pub fn whole() -> StepMetrics {
        StepMetrics {
            play: PlayMetrics {
                replies: Some(ReplyMetrics::default()),
                ..PlayMetrics::default()
            },
            games: vec![GameMetrics::default()],
            temperature: Some(0.0),
            entropy_weight: Some(0.0),
            effective_episodes: Some(0.0),
            measured: Some(Measured {
                gradient_variance_scenes: Some(0.0),
                gradient_alignment: Some(0.0),
                ..Measured::default()
            }),
            critic: Some(CriticMetrics {
                explained_variance: Some(0.0),
                ..CriticMetrics::default()
            }),
            learned: Some(Learned {
                kl: Some(0.0),
                ..Learned::default()
            }),
            value: Some(ValueLearned::default()),
            ..StepMetrics::default()
        }
    }

    /// The names of all numbers that a step can tell of itself, in their order; which step it was, and when, is none.
    pub fn names() -> Vec<String> {
        let names = numbers(&StepMetrics::whole()).into_iter();
        let names = names.map(|(name, _)| name);
        names
            .filter(|name| name != "step" && name != "time")
            .collect()
    }
}

/// How noisy a step's gradient is; [`measure`](lapwing_learn::measure) has the formulas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Estimate of the squared length of the mean gradient, given the scenes; negative where it drowns in noise.
    pub gradient_signal: f64,
    /// Estimate of the variance of the gradient, all its numbers added up, given the scenes.
    pub gradient_variance: f64,
    /// The cosine between the gradients of two halves of the episodes.
    pub gradient_agreement: f64,
    /// The variance between groups, so that scenes have a part in it; only of several groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_variance_scenes: Option<f64>,
    /// The cosine to the gradient of the step before; none in the first step, or the first after a resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_alignment: Option<f64>,
}

/// What an optimiser update did, averaged over the tokens it learned from; or what a step did, averaged over its updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// The estimate of KL(policy, reference), nats a token; left out of the line where no reference is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// Share of the tokens whose ratio was clipped.
    pub clip_fraction: f64,
    /// Norm of the whole gradient before it is cut.
    pub grad_norm: f64,
    /// The loss before the update.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// How far the first update's ratio is from 1, at most, over its tokens: 0 where rollout and update agree to the bit.
    pub first_ratio_error: f64,
    /// Positions that ran through the model, for reference and policy; a sum.
    #[serde(skip)]
    pub tokens_computed: u64,
}

impl Learned {
    /// The mean of some updates, none of none.
    pub fn mean_of(updates: &[Learned]) -> Option<Learned> {
        let count = updates.len() as f64;
        let mean = |of: fn(&Learned) -> f64| updates.iter().map(of).sum::<f64>() / count;
        updates.first().map(|first| Learned {
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

    /// Whether loss and gradient are numbers to go by.
    pub fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.grad_norm.is_finite()
    }
}

/// What a step of a value learner did, averaged over its updates. Its names are none of [`Learned`], so that a line of
/// `metrics.jsonl` says which of both it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueLearned {
    /// Optimiser updates made.
    pub updates: usize,
    /// The loss before the update.
    pub td_loss: f64,
    /// Mean of how far Q was from its target.
    pub td_error: f64,
    /// Mean of the targets.
    pub q_target: f64,
    /// Norm of the whole gradient before it is cut.
    pub gradient_norm: f64,
    /// The chance of any action in play.
    pub epsilon: f64,
    /// The learning rate.
    pub learning_rate: f64,
}

impl ValueLearned {
    /// Of one update towards these targets with these errors.
    pub fn of(
        targets: &[f32],
        errors: &[f64],
        td_loss: f64,
        gradient_norm: f64,
        epsilon: f64,
        learning_rate: f64,
    ) -> ValueLearned {
        let count = targets.len() as f64;
        ValueLearned {
            updates: 1,
            td_loss,
            td_error: errors.iter().map(|error| error.abs()).sum::<f64>() / count,
            q_target: targets.iter().map(|y| f64::from(*y)).sum::<f64>() / count,
            gradient_norm,
            epsilon,
            learning_rate,
        }
    }

    /// The mean of some updates of one step, none of none.
    pub fn mean_of(updates: &[ValueLearned]) -> Option<ValueLearned> {
        let count = updates.len() as f64;
        let mean = |of: fn(&ValueLearned) -> f64| updates.iter().map(of).sum::<f64>() / count;
        updates.first().map(|first| ValueLearned {
            updates: updates.len(),
            td_loss: mean(|update| update.td_loss),
            td_error: mean(|update| update.td_error),
            q_target: mean(|update| update.q_target),
            gradient_norm: mean(|update| update.gradient_norm),
            ..*first
        })
    }
}

/// The numbers of a record by their names, in order; what is no number, and the numbers of players within it, are left out.
///
/// # Panics
/// If the record is not plain values.
pub fn numbers(record: &impl Serialize) -> Vec<(String, f64)> {
    let value = serde_json::to_value(record).expect("metrics are plain values");
    let fields = value.as_object().into_iter().flatten();
    let number = |(name, value): (&String, &serde_json::Value)| {
        value.as_f64().map(|value| (name.clone(), value))
    };
    fields.filter_map(number).collect()
}
