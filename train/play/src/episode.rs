//! Records of played episodes.

use std::sync::Arc;

use crate::reply::UnreadReason;

/// A reply that a local model sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The prompt.
    pub prompt: Arc<[u32]>,
    /// Token ids as sampled, with the stop token. They are never encoded again from text.
    pub ids: Vec<u32>,
    /// Log-probability of each token when it was sampled, at the sampling temperature.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution of each token, in nats.
    pub entropies: Vec<f32>,
    /// Whether the token limit ended the reply.
    pub cut: bool,
}

/// One action of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// What the agent observed.
    pub observation: String,
    /// The reply.
    pub text: String,
    /// The index of the action; `None` if the reply is unreadable.
    pub action: Option<usize>,
    /// Why the reply is unreadable.
    pub unread: Option<UnreadReason>,
    /// The sampled tokens, if a local model replied.
    pub sampled: Option<Sampled>,
    /// The game's reward.
    pub reward: f64,
    /// The referee's shaping: minus the format penalty, or zero.
    pub shaping: f64,
}

/// Why an episode is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeEnd {
    /// The game's rules ended it.
    Terminated,
    /// The step limit ended it.
    Truncated,
    /// The game failed.
    Failed,
}

/// One agent's record of one game.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Episode {
    /// The seed of its player's random choices.
    pub seed: u64,
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// Whether the game counts it as a success.
    pub success: bool,
    /// Why it ended; `None` while it is played.
    pub ending: Option<EpisodeEnd>,
    /// The observation after the last turn; empty while the episode is played.
    pub last: String,
    /// Why the game failed the first time, if it was played again. This record is of the second time.
    pub failure: Option<String>,
}

impl Episode {
    /// Returns how many of these episodes have ended.
    pub fn over(episodes: &[Episode]) -> usize {
        episodes
            .iter()
            .filter(|episode| episode.ending.is_some())
            .count()
    }

    /// Summarises the episodes that were played again because their game failed; `None` if there are none.
    pub fn accidents(episodes: &[Episode]) -> Option<String> {
        let failures = episodes.iter().filter_map(|e| e.failure.as_ref());
        let (count, all) = (failures.clone().count(), episodes.len());
        let first = failures.clone().next()?;
        Some(format!(
            "{count} of {all} episodes were played a second time: {first}"
        ))
    }

    /// Returns C, the sum of rewards and shaping over the turns.
    pub fn composite_return(&self) -> f64 {
        self.turns
            .iter()
            .map(|turn| turn.reward + turn.shaping)
            .sum()
    }

    /// Returns the sum of rewards, without shaping.
    pub fn game_return(&self) -> f64 {
        self.turns.iter().map(|turn| turn.reward).sum()
    }

    /// Returns whether the step limit ended it.
    pub fn is_truncated(&self) -> bool {
        self.ending == Some(EpisodeEnd::Truncated)
    }

    /// Returns the replies that a local model sampled.
    pub fn sampled(&self) -> impl Iterator<Item = &Sampled> {
        self.turns.iter().filter_map(|turn| turn.sampled.as_ref())
    }

    /// Returns the number of reply tokens.
    pub fn reply_tokens(&self) -> usize {
        self.sampled().map(|reply| reply.ids.len()).sum()
    }

    /// Returns the number of replies that are unreadable for this reason.
    pub fn unread(&self, why: UnreadReason) -> usize {
        let turns = self.turns.iter();
        turns.filter(|turn| turn.unread == Some(why)).count()
    }

    /// Returns the number of tokens that separate sequences would take: a prompt and a reply for each turn.
    pub fn tokens(&self) -> usize {
        self.sampled()
            .map(|reply| reply.prompt.len() + reply.ids.len())
            .sum()
    }
}
