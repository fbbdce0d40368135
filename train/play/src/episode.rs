//! The episode of one agent.

use std::borrow::Cow;
use std::sync::Arc;

use lapwing_model::AllowedReplies;
use serde::{Deserialize, Serialize};

use crate::reply::UnreadReason;

/// A reply that a language model sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The prompt.
    pub prompt: Arc<[u32]>,
    /// Token ids as sampled, including a stop token; never encoded again from text.
    pub ids: Vec<u32>,
    /// Log-probability of each token when it was sampled, at the sampling temperature.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution that each token was drawn from, in nats.
    pub entropies: Vec<f32>,
    /// Whether the token limit ended the reply.
    pub cut: bool,
    /// The replies to which sampling was restricted (`policy.constrain`). They follow from the game, and other processes
    /// have them.
    #[serde(skip)]
    pub allowed: Option<Arc<AllowedReplies>>,
}

/// One action of one agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// the observation
    pub observation: String,
    /// the key of the state ([`lapwing_env::Game::key`])
    pub key: String,
    /// the reply
    pub text: String,
    /// `None`: the reply was unreadable
    pub action: Option<usize>,
    /// why it was unreadable
    pub unread: Option<UnreadReason>,
    /// the sampled tokens, if one of our models replied
    pub sampled: Option<Sampled>,
    /// the game's reward
    pub reward: f64,
    /// the referee's reward: minus the format penalty, or zero
    pub shaping: f64,
}

/// Why an episode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EpisodeEnd {
    /// The game's rules ended it.
    Terminated,
    /// The step limit ended it, or a time limit of an external environment.
    Truncated,
    /// The game failed.
    Failed,
}

/// The episode of one agent of a game.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// the seed of the player's random choices
    pub seed: u64,
    /// the turns in order
    pub turns: Vec<Turn>,
    /// whether the game counts it as won
    pub success: bool,
    /// `None` while it is in progress
    pub ending: Option<EpisodeEnd>,
    /// why the rules ended it, if the game tells
    pub reason: Option<Cow<'static, str>>,
    /// the observation after the last turn; empty while it is in progress
    pub last: String,
    /// why the game failed the first time, if this is the second attempt
    pub failure: Option<String>,
}

impl Episode {
    /// Returns how many of these episodes have been played, for a progress display. One in progress counts by its turns: all
    /// are played at once, and most end late, so the number of those that have ended says little about the time left.
    pub fn played(episodes: &[Episode], step_limit: usize) -> usize {
        let turns = |episode: &Episode| match episode.ending {
            Some(_) => step_limit,
            None => episode.turns.len(),
        };
        episodes.iter().map(turns).sum::<usize>() / step_limit.max(1)
    }

    /// Returns a note about episodes that were played again because the game failed; `None` if there are none.
    pub fn accidents(episodes: &[Episode]) -> Option<String> {
        let failures = episodes.iter().filter_map(|e| e.failure.as_ref());
        let (count, all) = (failures.clone().count(), episodes.len());
        let first = failures.clone().next()?;
        Some(format!(
            "{count} of {all} episodes were played a second time: {first}"
        ))
    }

    /// Returns C, the sum of rewards and shaping over all turns.
    pub fn composite_return(&self) -> f64 {
        self.turns
            .iter()
            .map(|turn| turn.reward + turn.shaping)
            .sum()
    }

    /// Returns the sum of the game's rewards, without shaping.
    pub fn game_return(&self) -> f64 {
        self.turns.iter().map(|turn| turn.reward).sum()
    }

    /// Returns whether a limit ended it, and not the rules.
    pub fn is_truncated(&self) -> bool {
        self.ending == Some(EpisodeEnd::Truncated)
    }

    /// Returns the replies that our models sampled.
    pub fn sampled(&self) -> impl Iterator<Item = &Sampled> {
        self.turns.iter().filter_map(|turn| turn.sampled.as_ref())
    }

    /// Returns the number of tokens of its replies.
    pub fn reply_tokens(&self) -> usize {
        self.sampled().map(|reply| reply.ids.len()).sum()
    }

    /// Returns the number of replies that were unreadable for this reason.
    pub(crate) fn unread(&self, why: UnreadReason) -> usize {
        let turns = self.turns.iter();
        turns.filter(|turn| turn.unread == Some(why)).count()
    }
}
