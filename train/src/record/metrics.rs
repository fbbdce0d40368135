//! What is measured. Means are over episodes unless they say else.

use serde::{Deserialize, Serialize};

use crate::play::Episode;

/// What one training step of MS-GRPO brought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Which step, from 1.
    pub step: usize,
    /// Mean composite return: the game's rewards and the shaping.
    pub return_mean: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Share of the replies that could be read.
    pub valid_action_rate: f64,
    /// Mean over the sampled tokens of the entropy of what each was drawn from, in nats.
    pub entropy: f64,
    /// Positions that separate sequences, prompt and reply for every turn of every episode, would have run.
    pub tokens_played: u64,
    /// Positions that really ran through the model: in rollout, reference and update.
    pub tokens_computed: u64,
    /// Seconds in which the episodes were played.
    pub seconds_rollout: f64,
    /// Seconds in which the adapter learned.
    pub seconds_update: f64,
    /// Mean number of turns.
    pub episode_length_mean: f64,
    /// Standard deviation of the composite return over the step's episodes.
    pub return_std: f64,
    /// Groups left out because all of their returns were equal.
    pub groups_skipped: usize,
    /// What learning brought; left out of the line where nothing was learned, since zeros would draw false curves.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
}

/// What an optimiser update did, averaged over the tokens it learned from; or what a step did, averaged over its updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// The estimate of KL(policy, reference), nats a token.
    pub kl: f64,
    /// Share of the tokens whose ratio was clipped.
    pub clip_fraction: f64,
    /// Norm of the whole gradient before it is cut.
    pub grad_norm: f64,
    /// The loss before the update.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
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
            kl: mean(|update| update.kl),
            clip_fraction: mean(|update| update.clip_fraction),
            grad_norm: mean(|update| update.grad_norm),
            loss: mean(|update| update.loss),
            lr: first.lr,
            tokens_computed: updates.iter().map(|update| update.tokens_computed).sum(),
        })
    }
}

impl StepMetrics {
    /// What the episodes of a step tell.
    pub fn of_episodes(episodes: &[Episode]) -> StepMetrics {
        let returns: Vec<f64> = episodes.iter().map(Episode::composite_return).collect();
        let eval = EvalMetrics::of_episodes("", episodes);
        let sampled = episodes.iter().flat_map(Episode::sampled);
        let entropies: Vec<f64> = sampled
            .flat_map(|reply| &reply.entropies)
            .map(|e| f64::from(*e))
            .collect();
        let (return_mean, return_std) = mean_and_spread(&returns);
        StepMetrics {
            return_mean,
            return_std,
            success_rate: eval.success_rate,
            valid_action_rate: eval.valid_action_rate,
            episode_length_mean: eval.episode_length_mean,
            entropy: mean_and_spread(&entropies).0,
            tokens_played: episodes.iter().map(|e| e.tokens() as u64).sum(),
            ..StepMetrics::default()
        }
    }
}

/// How a player did on the scenes of the examination.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalMetrics {
    /// The game.
    pub game: String,
    /// Episodes played.
    pub episodes: usize,
    /// Mean of the game's own returns, without shaping.
    pub return_mean: f64,
    /// Mean of the composite returns, which replies that cannot be read make lower: a player who says nothing to the
    /// point may stand safely still, and should not look good for it.
    pub composite_return_mean: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Share of the replies that could be read.
    pub valid_action_rate: f64,
    /// Mean number of turns.
    pub episode_length_mean: f64,
}

impl EvalMetrics {
    /// How these episodes went.
    pub fn of_episodes(game: &str, episodes: &[Episode]) -> EvalMetrics {
        let count = episodes.len() as f64;
        let turns = episodes.iter().map(|e| e.turns.len()).sum::<usize>() as f64;
        let read = |e: &Episode| e.turns.iter().filter(|turn| turn.action.is_some()).count();
        let composite = episodes.iter().map(Episode::composite_return).sum::<f64>();
        EvalMetrics {
            game: game.to_owned(),
            episodes: episodes.len(),
            return_mean: episodes.iter().map(Episode::game_return).sum::<f64>() / count,
            composite_return_mean: composite / count,
            success_rate: episodes.iter().filter(|e| e.success).count() as f64 / count,
            valid_action_rate: episodes.iter().map(read).sum::<usize>() as f64 / turns,
            episode_length_mean: turns / count,
        }
    }
}

/// Mean and standard deviation (of the whole, not of a sample).
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
