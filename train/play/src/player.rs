//! The seam between the referee and everything that can play.

use lapwing_env::Game;

use crate::PlayError;
use crate::episode::{Sampled, Turn};
use crate::reply::UnreadReason;

/// An agent of a running game wants an action.
pub struct ActionRequest<'a> {
    /// Which of the episodes that are played together, from 0: the same in all rounds.
    pub episode: usize,
    /// Which turn of it, from 0.
    pub turn: usize,
    /// Whatever the player leaves to chance in this episode follows from it.
    pub seed: u64,
    /// The words for the actions.
    pub actions: &'a [String],
    /// What the agent gets to see.
    pub observation: &'a str,
    /// Its turns before this one.
    pub past: &'a [Turn],
    /// The game, for players that are part of it. Whoever is to be judged goes by the observation.
    pub game: &'a dyn Game,
    /// Which of the game's agents.
    pub agent: usize,
}

/// What a player answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// A place in the actions; `None`: what it said could not be read.
    pub action: Option<usize>,
    /// Why it could not be read.
    pub unread: Option<UnreadReason>,
    /// What is to be told to a game that takes any text.
    pub said: Option<String>,
    /// What it said.
    pub text: String,
    /// How that was sampled, if from a model of ours: what learning needs.
    pub sampled: Option<Sampled>,
}

/// Somebody who plays: a model, a script, a person.
pub trait Player {
    /// One reply for each ask, in their order. All that live in a round ask together, so that a player who gains by it
    /// can answer them at once.
    ///
    /// # Errors
    /// Whatever keeps the player from answering. What can be answered but not read is no error.
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError>;

    /// What the agent sees when the step limit has stopped its episode, for players who learn from where their actions led.
    /// Nothing is to be answered.
    ///
    /// # Errors
    /// Whatever keeps the player from looking.
    fn stopped(&mut self, ask: &ActionRequest<'_>) -> Result<(), PlayError> {
        let _ = ask;
        Ok(())
    }
}
