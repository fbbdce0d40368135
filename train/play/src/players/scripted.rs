//! Players that need no model: the baselines of every evaluation.

use std::collections::HashMap;

use lapwing_env::GameError;
use lapwing_env::rng::Stream;

use crate::PlayError;
use crate::{ActionRequest, Player, Reply};

/// A random stream for each episode in progress.
#[derive(Debug, Default)]
pub struct EpisodeStreams(HashMap<usize, Stream>);

impl EpisodeStreams {
    /// Returns the stream of this request's episode.
    pub fn of(&mut self, ask: &ActionRequest<'_>, name: &str) -> &mut Stream {
        if ask.turn == 0 {
            self.0.insert(ask.episode, Stream::new(ask.seen.seed, name));
        }
        self.0
            .get_mut(&ask.episode)
            .expect("an episode begins with its first turn")
    }
}

/// Chooses all actions with equal probability.
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

/// The game's own player: chooses among the actions that the game considers best.
#[derive(Debug, Default)]
pub struct ScriptedPlayer(EpisodeStreams);

impl Player for ScriptedPlayer {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let reply = |ask: &ActionRequest<'_>| Ok(word(ask, scripted_action(&mut self.0, ask)?));
        asks.iter().map(reply).collect()
    }
}

/// Returns the action that [`ScriptedPlayer`] takes.
pub(crate) fn scripted_action(
    streams: &mut EpisodeStreams,
    ask: &ActionRequest<'_>,
) -> Result<usize, GameError> {
    let best = ask.game.best_actions(ask.agent);
    let best = best.ok_or_else(|| GameError::new("the game", "it has no scripted player"))?;
    Ok(best[streams.of(ask, "baseline").below(best.len())])
}

/// Returns the reply that names an action and nothing else.
pub fn word(ask: &ActionRequest<'_>, action: usize) -> Reply {
    Reply {
        action: Some(action),
        text: ask.actions[action].clone(),
        ..Reply::default()
    }
}
