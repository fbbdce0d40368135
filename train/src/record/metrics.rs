//! What is measured. Means are over episodes, each counting the same however long it is, unless they say else.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::play::{Episode, Unread};

/// Seconds since 1970 (UTC), for the `time` of a record.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// How some episodes went: those of a training step, or those of an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlayMetrics {
    /// Episodes played.
    pub episodes: usize,
    /// Mean of the game's own returns, without shaping.
    pub return_mean: f64,
    /// Their standard deviation (of the whole, not of a sample).
    pub return_std: f64,
    /// Mean of the composite returns, which replies that cannot be read make lower: a player who says nothing to the
    /// point may stand safely still, and should not look good for it. Training goes by these.
    pub composite_return_mean: f64,
    /// Their standard deviation.
    pub composite_return_std: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Share of the episodes that the step limit ended.
    pub truncated_rate: f64,
    /// Mean of an episode's share of replies that could be read.
    pub valid_action_rate: f64,
    /// Mean number of turns.
    pub episode_length_mean: f64,
    /// Turns of all of them: what others count as steps of the environment.
    #[serde(default)]
    pub turns: usize,
    /// The action taken most often in all; empty if none could be read.
    pub top_action: String,
    /// Its share of all turns.
    pub top_action_share: f64,
    /// Replies that could not be read because there is no action where it was asked for.
    #[serde(default)]
    pub unread_no_tag: usize,
    /// Replies that could not be read because what is there is none of the actions.
    #[serde(default)]
    pub unread_unknown_word: usize,
    /// Replies that could not be read because they name several actions.
    #[serde(default)]
    pub unread_several_actions: usize,
    /// Replies that could not be read because the limit of tokens cut them off.
    #[serde(default)]
    pub unread_cut_off: usize,
    /// Of the replies, if a model of ours gave them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub replies: Option<ReplyMetrics>,
}

/// How a model replied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplyMetrics {
    /// Mean over the sampled tokens of the entropy of what each was drawn from, in nats.
    pub entropy: f64,
    /// Mean of an episode's mean tokens of a reply.
    pub reply_length_mean: f64,
    /// Mean of an episode's share of replies that the limit of tokens cut off before they could be read.
    pub reply_cut_rate: f64,
}

impl PlayMetrics {
    /// How these episodes went; `actions` are the words of the game.
    pub fn of(actions: &[String], episodes: &[Episode]) -> PlayMetrics {
        PlayMetrics::of_all(&[(actions, episodes)])
    }

    /// How the episodes of several games went together, each with the words of its game.
    pub fn of_all(games: &[(&[String], &[Episode])]) -> PlayMetrics {
        let episodes: Vec<&Episode> = games.iter().flat_map(|(_, played)| *played).collect();
        let over = |of: &dyn Fn(&Episode) -> f64| {
            let values: Vec<f64> = episodes.iter().map(|e| of(e)).collect();
            mean_and_spread(&values)
        };
        let share = |e: &Episode, count: usize| count as f64 / e.turns.len() as f64;
        let read = |e: &Episode| e.turns.iter().filter(|turn| turn.action.is_some()).count();
        let (return_mean, return_std) = over(&Episode::game_return);
        let (composite_return_mean, composite_return_std) = over(&Episode::composite_return);
        let turns: usize = episodes.iter().map(|e| e.turns.len()).sum();
        let mut taken: Vec<(&str, usize)> = Vec::new();
        for (actions, played) in games {
            let mut counts = vec![0; actions.len()];
            for turn in played.iter().flat_map(|e| &e.turns) {
                turn.action.iter().for_each(|action| counts[*action] += 1);
            }
            for (word, count) in actions.iter().zip(counts) {
                match taken.iter_mut().find(|(known, _)| known == word) {
                    Some((_, sum)) => *sum += count,
                    None => taken.push((word, count)),
                }
            }
        }
        // The first of equals, so that nothing but the game decides.
        let top = taken.iter().rev().max_by_key(|(_, count)| *count);
        let top = top.filter(|(_, count)| *count > 0);
        let unread = |why| episodes.iter().map(|e| e.unread(why)).sum();
        PlayMetrics {
            episodes: episodes.len(),
            return_mean,
            return_std,
            composite_return_mean,
            composite_return_std,
            success_rate: over(&|e| f64::from(u8::from(e.success))).0,
            truncated_rate: over(&|e| f64::from(u8::from(e.is_truncated()))).0,
            valid_action_rate: over(&|e| share(e, read(e))).0,
            episode_length_mean: over(&|e| e.turns.len() as f64).0,
            turns,
            top_action: top.map(|(word, _)| (*word).to_owned()).unwrap_or_default(),
            top_action_share: top.map_or(0.0, |(_, count)| *count as f64 / turns as f64),
            unread_no_tag: unread(Unread::NoTag),
            unread_unknown_word: unread(Unread::UnknownWord),
            unread_several_actions: unread(Unread::SeveralActions),
            unread_cut_off: unread(Unread::CutOff),
            replies: ReplyMetrics::of(&episodes),
        }
    }
}

impl ReplyMetrics {
    /// `None` if nobody here is a model of ours.
    fn of(episodes: &[&Episode]) -> Option<ReplyMetrics> {
        let replied: Vec<&Episode> = episodes
            .iter()
            .copied()
            .filter(|e| e.sampled().next().is_some())
            .collect();
        if replied.is_empty() {
            return None;
        }
        let entropies: Vec<f64> = replied
            .iter()
            .flat_map(|e| e.sampled())
            .flat_map(|reply| &reply.entropies)
            .map(|e| f64::from(*e))
            .collect();
        let per_reply = |of: &dyn Fn(&Episode) -> usize| {
            let of = |e: &&Episode| of(e) as f64 / e.sampled().count() as f64;
            mean_and_spread(&replied.iter().map(of).collect::<Vec<f64>>()).0
        };
        Some(ReplyMetrics {
            entropy: mean_and_spread(&entropies).0,
            reply_length_mean: per_reply(&Episode::reply_tokens),
            reply_cut_rate: per_reply(&|e| e.unread(Unread::CutOff)),
        })
    }
}

/// How the episodes of one of several games went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GameMetrics {
    /// The game, and the probe if it is one.
    pub game: String,
    /// Episodes played.
    pub episodes: usize,
    /// Mean of the game's own returns.
    pub return_mean: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Mean of an episode's share of replies that could be read.
    pub valid_action_rate: f64,
}

impl GameMetrics {
    /// What of these metrics is told game by game.
    pub fn of(game: &str, play: &PlayMetrics) -> GameMetrics {
        GameMetrics {
            game: game.to_owned(),
            episodes: play.episodes,
            return_mean: play.return_mean,
            success_rate: play.success_rate,
            valid_action_rate: play.valid_action_rate,
        }
    }
}

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

/// How noisy a step's gradient is; [`measure`](crate::learn::measure) has the formulas.
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

/// An examination of the policy on held-out scenes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Training steps done before it.
    pub step: usize,
    /// When it was over, in seconds since 1970 (UTC).
    pub time: f64,
    /// The game.
    pub game: String,
    /// Seconds that it took.
    pub seconds_evaluation: f64,
    /// How it went.
    #[serde(flatten)]
    pub play: PlayMetrics,
}

/// How those do on the held-out scenes who need no model: what an evaluation is to be held against.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Yardsticks {
    /// The game.
    pub game: String,
    /// The seed that the scenes follow from.
    pub seed: u64,
    /// A player who does anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<PlayMetrics>,
    /// The game's own player, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scripted: Option<PlayMetrics>,
    /// The highest mean return that any player can expect, if the game knows it exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_possible: Option<f64>,
}

/// Something that a user should look at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Training steps done by then.
    pub step: usize,
    /// When, in seconds since 1970 (UTC).
    pub time: f64,
    /// Which watchman says it; `docs/watchmen.md` has a paragraph of this name.
    pub watchman: String,
    /// The number that it goes by.
    pub value: f64,
    /// What was seen, and what may help.
    pub text: String,
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

/// Mean and standard deviation (of the whole, not of a sample).
pub(crate) fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
