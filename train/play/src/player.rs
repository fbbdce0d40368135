//! The interface between the referee and all players.

use lapwing_env::Game;

use crate::AgentView;
use crate::PlayError;
use crate::episode::Sampled;
use crate::reply::UnreadReason;

/// A request for the action of one agent.
pub struct ActionRequest<'a> {
    /// Index of the episode among those played together; constant over its rounds.
    pub episode: usize,
    /// Index of the turn.
    pub turn: usize,
    /// The observation, the earlier turns and the seed.
    pub seen: AgentView<'a>,
    /// The words for the actions.
    pub actions: &'a [String],
    /// The game, for players that are part of it. Players under evaluation use only the observation.
    pub game: &'a dyn Game,
    /// Index of the agent in its game.
    pub agent: usize,
}

/// A player's answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// Index of the action; `None` if the reply was unreadable.
    pub action: Option<usize>,
    /// Why the reply was unreadable.
    pub unread: Option<UnreadReason>,
    /// The message for a game that takes any text.
    pub said: Option<String>,
    /// The reply.
    pub text: String,
    /// The sampled tokens, if one of our models replied: training needs them.
    pub sampled: Option<Sampled>,
}

/// A player: a model, a script, or a person.
pub trait Player {
    /// Returns one reply for each request, in order. All living agents of a round are in one call, so a player can
    /// answer them as a batch.
    ///
    /// # Errors
    /// If the player cannot answer. An unreadable reply is not an error. [`PlayError::Left`] ends play, and the episodes
    /// stay as they are.
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError>;

    /// Receives the observation after the step limit truncated an episode, for players that learn from transitions. No
    /// answer is expected.
    ///
    /// # Errors
    /// If the player fails.
    fn stopped(&mut self, ask: &ActionRequest<'_>) -> Result<(), PlayError> {
        let _ = ask;
        Ok(())
    }
}
