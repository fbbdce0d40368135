//! Players that need no model: the yardsticks of every evaluation.

use std::collections::HashMap;

use lapwing_env::GameError;
use lapwing_env::rng::Stream;

use crate::PlayError;
use crate::{ActionRequest, Player, Reply};

/// A stream of chance for each episode that is being played.
#[derive(Debug, Default)]
pub struct EpisodeStreams(HashMap<usize, Stream>);

impl EpisodeStreams {
    /// The one of the episode that asks.
    pub fn of(&mut self, ask: &ActionRequest<'_>, name: &str) -> &mut Stream {
        if ask.turn == 0 {
            self.0.insert(ask.episode, Stream::new(ask.seed, name));
        }
        self.0
            .get_mut(&ask.episode)
            .expect("an episode begins with its first turn")
    }
}

/// Takes every action alike.
#[derive(Debug, Default)]
pub struct RandomPlayer(EpisodeStreams);

impl Player for RandomPlayer {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let reply = |ask: &ActionRequest<'_>| {
            word(ask, self.0.of(ask, "baseline").below(ask.actions.len()))
        };
        Ok(asks.iter().map(reply).collect())
    }
}

/// The game's own player: one of the actions that the game calls best.
#[derive(Debug, Default)]
pub struct ScriptedPlayer(EpisodeStreams);

impl Player for ScriptedPlayer {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let reply = |ask: &ActionRequest<'_>| {
            let best = best_actions(ask)?;
            Ok(word(
                ask,
                best[self.0.of(ask, "baseline").below(best.len())],
            ))
        };
        asks.iter().map(reply).collect()
    }
}

/// What the game's own player would choose from.
///
/// # Errors
/// If the game has none.
pub fn best_actions(ask: &ActionRequest<'_>) -> Result<Vec<usize>, GameError> {
    ask.game
        .best_actions(ask.agent)
        .ok_or_else(|| GameError::new("the game", "it has no scripted player"))
}

/// The reply of a player that says an action and nothing else.
pub fn word(ask: &ActionRequest<'_>, action: usize) -> Reply {
    Reply {
        action: Some(action),
        text: ask.actions[action].clone(),
        ..Reply::default()
    }
}
