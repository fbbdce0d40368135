//! Metrics of played episodes. Means are over episodes unless a field says otherwise.

use serde::{Deserialize, Serialize};

use crate::{Episode, UnreadReason};

/// Statistics of episodes: those of a training step or of an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlayMetrics {
    /// Number of episodes.
    pub episodes: usize,
    /// Mean of the game's own returns, without shaping.
    pub return_mean: f64,
    /// Their standard deviation (population).
    pub return_std: f64,
    /// Mean of the composite returns, which include the penalty for unreadable replies. Training uses these. Without
    /// the penalty a player whose replies are all unreadable could look good by standing still.
    pub composite_return_mean: f64,
    /// Their standard deviation.
    pub composite_return_std: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Share of the episodes that the step limit ended.
    pub truncated_rate: f64,
    /// Mean of an episode's share of readable replies.
    pub valid_action_rate: f64,
    /// Mean number of turns.
    pub episode_length_mean: f64,
    /// Sum of turns, also called environment steps.
    #[serde(default)]
    pub turns: usize,
    /// The most frequent action; empty if no reply was readable.
    pub top_action: String,
    /// Its share of all turns.
    pub top_action_share: f64,
    /// Replies without an action in the required place.
    #[serde(default)]
    pub unread_no_tag: usize,
    /// Replies whose word is not an action.
    #[serde(default)]
    pub unread_unknown_word: usize,
    /// Replies that name several actions.
    #[serde(default)]
    pub unread_several_actions: usize,
    /// Replies that the token limit cut off.
    #[serde(default)]
    pub unread_cut_off: usize,
    /// Statistics of the replies, if one of our models generated them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub replies: Option<ReplyMetrics>,
}

/// Statistics of a model's replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplyMetrics {
    /// Mean entropy of the distributions that tokens were sampled from, in nats.
    pub entropy: f64,
    /// Mean of an episode's mean reply length in tokens.
    pub reply_length_mean: f64,
    /// Mean of an episode's share of replies that the token limit cut off before they could be read.
    pub reply_cut_rate: f64,
}

impl PlayMetrics {
    /// Returns the statistics of these episodes; `actions` are the words of the game.
    pub fn of(actions: &[String], episodes: &[Episode]) -> PlayMetrics {
        PlayMetrics::of_all(&[(actions, episodes)])
    }

    /// Returns the joint statistics of the episodes of several games, each with the words of its game.
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
        // The first of equals, so the result depends on the game only.
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
            unread_no_tag: unread(UnreadReason::NoTag),
            unread_unknown_word: unread(UnreadReason::UnknownWord),
            unread_several_actions: unread(UnreadReason::SeveralActions),
            unread_cut_off: unread(UnreadReason::CutOff),
            replies: ReplyMetrics::of(&episodes),
        }
    }
}

impl ReplyMetrics {
    /// Returns `None` if no reply is of our models.
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
            reply_cut_rate: per_reply(&|e| e.unread(UnreadReason::CutOff)),
        })
    }
}

/// Statistics of the episodes of one of several games.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GameMetrics {
    /// The game, and the probe if there is one.
    pub game: String,
    /// Number of episodes.
    pub episodes: usize,
    /// Mean of the game's own returns.
    pub return_mean: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Mean of an episode's share of readable replies.
    pub valid_action_rate: f64,
}

impl GameMetrics {
    /// Returns the part of these metrics that is recorded for each game.
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

/// Results of players without a model on the held-out scenes, as reference scores of an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Baselines {
    /// The game.
    pub game: String,
    /// The seed of the scenes.
    pub seed: u64,
    /// The random player.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<PlayMetrics>,
    /// The game's own player, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scripted: Option<PlayMetrics>,
    /// The highest mean return that any player can expect, if the game can compute it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_possible: Option<f64>,
}

/// A sum of differences, which are 0 on average if there is only chance.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lead {
    sum: f64,
    squares: f64,
}

impl Lead {
    pub(crate) fn add(&mut self, difference: f64) {
        self.sum += difference;
        self.squares += difference * difference;
    }

    /// Returns the sum in its standard errors; 0 if all differences are 0. Of wins and losses it is the sign test's
    /// statistic, and of n equal differences the root of n.
    pub(crate) fn standard_errors(self) -> f64 {
        match self.squares {
            0.0 => 0.0,
            squares => self.sum / squares.sqrt(),
        }
    }
}

/// Returns the mean and the standard deviation (population).
pub fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}
