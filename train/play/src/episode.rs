//! What one agent of a game lived through.

use std::sync::Arc;

use crate::reply::UnreadReason;

/// A reply as a model gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The prompt.
    pub prompt: Arc<[u32]>,
    /// Token ids as sampled, the stop token included; never encoded again from text.
    pub ids: Vec<u32>,
    /// Log-probability of each when it was sampled, at the sampling temperature.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution that each was drawn from, in nats.
    pub entropies: Vec<f32>,
    /// Whether the limit of tokens ended it, and not the model.
    pub cut: bool,
}

/// One action of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// what the agent saw
    pub observation: String,
    /// what it said
    pub text: String,
    /// `None`: that could not be read
    pub action: Option<usize>,
    /// why it could not be read
    pub unread: Option<UnreadReason>,
    /// how a model of ours came to say it
    pub sampled: Option<Sampled>,
    /// what the game gave
    pub reward: f64,
    /// what the referee added: minus the format penalty, or zero
    pub shaping: f64,
}

/// Why an episode is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeEnd {
    /// By the game's rules.
    Terminated,
    /// By the step limit.
    Truncated,
    /// By a game that could not go on.
    Failed,
}

/// What one agent of a game lived through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Episode {
    /// what its player leaves to chance follows from it
    pub seed: u64,
    /// from the first to the last
    pub turns: Vec<Turn>,
    /// whether the game counts it as won
    pub success: bool,
    /// `None` while it is played
    pub ending: Option<EpisodeEnd>,
    /// what the agent sees after the last turn; empty while it is played
    pub last: String,
    /// why the game could not go on when it was first played: this is what came when it was played again
    pub failure: Option<String>,
}

impl Episode {
    /// How many of these are over.
    pub fn over(episodes: &[Episode]) -> usize {
        episodes
            .iter()
            .filter(|episode| episode.ending.is_some())
            .count()
    }

    /// What to tell of those that were played a second time because the game failed; `None` if there are none.
    pub fn accidents(episodes: &[Episode]) -> Option<String> {
        let failures = episodes.iter().filter_map(|e| e.failure.as_ref());
        let (count, all) = (failures.clone().count(), episodes.len());
        let first = failures.clone().next()?;
        Some(format!(
            "{count} of {all} episodes were played a second time: {first}"
        ))
    }

    /// C: the sum over the turns of reward and shaping.
    pub fn composite_return(&self) -> f64 {
        self.turns
            .iter()
            .map(|turn| turn.reward + turn.shaping)
            .sum()
    }

    /// What the game gave, without the shaping.
    pub fn game_return(&self) -> f64 {
        self.turns.iter().map(|turn| turn.reward).sum()
    }

    /// Whether the step limit ended it.
    pub fn is_truncated(&self) -> bool {
        self.ending == Some(EpisodeEnd::Truncated)
    }

    /// The replies that a model of ours sampled.
    pub fn sampled(&self) -> impl Iterator<Item = &Sampled> {
        self.turns.iter().filter_map(|turn| turn.sampled.as_ref())
    }

    /// Tokens of its replies.
    pub fn reply_tokens(&self) -> usize {
        self.sampled().map(|reply| reply.ids.len()).sum()
    }

    /// Replies that could not be read for this reason.
    pub(crate) fn unread(&self, why: UnreadReason) -> usize {
        let turns = self.turns.iter();
        turns.filter(|turn| turn.unread == Some(why)).count()
    }

    /// Tokens that it would take as separate sequences: a prompt and a reply for every turn.
    pub fn tokens(&self) -> usize {
        self.sampled()
            .map(|reply| reply.prompt.len() + reply.ids.len())
            .sum()
    }
}
