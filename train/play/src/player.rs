//! The interface between the referee and its players.

use lapwing_env::Game;

use crate::PlayError;
use crate::episode::{Sampled, Turn};
use crate::reply::UnreadReason;

/// A request for an action of one agent in a running game.
pub struct ActionRequest<'a> {
    /// The index of the episode among those played together; the same in all rounds.
    pub episode: usize,
    /// The index of the turn.
    pub turn: usize,
    /// The seed of the player's random choices in this episode.
    pub seed: u64,
    /// The action words.
    pub actions: &'a [String],
    /// The agent's observation.
    pub observation: &'a str,
    /// The agent's earlier turns.
    pub past: &'a [Turn],
    /// The game, for scripted players and search. Players that are evaluated must use the observation only.
    pub game: &'a dyn Game,
    /// The index of the agent in its game.
    pub agent: usize,
}

/// A player's reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The index of the action; `None` if the reply is unreadable.
    pub action: Option<usize>,
    /// Why the reply is unreadable.
    pub unread: Option<UnreadReason>,
    /// The text to pass to a game that takes free text.
    pub said: Option<String>,
    /// The complete reply.
    pub text: String,
    /// The sampled tokens, which training needs, if a local model replied.
    pub sampled: Option<Sampled>,
}

/// A player: a model, a script or a person.
pub trait Player {
    /// Returns a reply to each request, in order. A round passes the requests of all living agents at once, so that a
    /// player can batch them.
    ///
    /// # Errors
    /// If the player cannot reply. An unreadable reply is not an error.
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError>;

    /// Shows the player the final observation of an episode that the step limit ended, for value learners that
    /// bootstrap from it. No reply is expected.
    ///
    /// # Errors
    /// If the player cannot use the observation.
    fn stopped(&mut self, ask: &ActionRequest<'_>) -> Result<(), PlayError> {
        let _ = ask;
        Ok(())
    }
}
