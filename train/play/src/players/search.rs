//! A baseline for games whose optimum is unknown: the scripted player with a rollout search of fixed budget.

use lapwing_env::rng::Stream;
use lapwing_env::{Game, GameError, Scenario};

use crate::PlayError;
use crate::players::scripted::word;
use crate::seeds;
use crate::{ActionRequest, Player, Reply};

/// Tries each action in copies of the game with other luck, finishes each copy with the scripted player, and takes the
/// action with the best mean return (a rollout algorithm: Tesauro & Galperin 1996, "On-line policy improvement using
/// Monte-Carlo search").
#[derive(Debug, Clone, Copy)]
pub struct SearchPlayer {
    /// The number of copies for each action of each turn: the budget.
    pub(crate) tries: usize,
    agents: usize,
    step_limit: usize,
}

impl SearchPlayer {
    /// Makes a search player with this many tries for each action. `None` if the game cannot be copied or has no
    /// scripted player.
    ///
    /// # Errors
    /// If the game fails.
    pub fn new(scenario: &dyn Scenario, tries: usize) -> Result<Option<SearchPlayer>, GameError> {
        let game = scenario.start(0, 0)?;
        let possible = game.fork(0).is_some() && game.best_actions(0).is_some();
        Ok(possible.then(|| SearchPlayer {
            tries,
            agents: scenario.agents(),
            step_limit: scenario.step_limit(),
        }))
    }

    fn choose(&self, ask: &ActionRequest<'_>) -> Result<usize, GameError> {
        let mut best = (0, f64::NEG_INFINITY);
        for action in 0..ask.actions.len() {
            let mut sum = 0.0;
            for number in 0..self.tries {
                // All actions are tried with the same luck, so only the action makes the difference.
                let luck = seeds::derive(ask.seed, "search", &[ask.turn, number]);
                sum += self.tried(ask, action, luck)?;
            }
            if sum > best.1 {
                best = (action, sum);
            }
        }
        Ok(best.0)
    }

    /// Returns the return of one try.
    fn tried(&self, ask: &ActionRequest<'_>, first: usize, luck: u64) -> Result<f64, GameError> {
        let missing = || GameError::new("the game", "it cannot be copied any more");
        let mut game = ask.game.fork(luck).ok_or_else(missing)?;
        let mut chance = Stream::new(luck, "search players");
        let mut sum = 0.0;
        for turn in ask.turn..self.step_limit {
            let mut actions = vec![None; self.agents];
            for (agent, action) in actions.iter_mut().enumerate() {
                *action = match (turn == ask.turn, agent == ask.agent) {
                    (true, true) => Some(first),
                    _ => scripted(&*game, agent, &mut chance),
                };
            }
            let outcome = game.play(&actions)?[ask.agent];
            sum += outcome.reward;
            if outcome.over {
                break;
            }
        }
        Ok(sum)
    }
}

fn scripted(game: &dyn Game, agent: usize, chance: &mut Stream) -> Option<usize> {
    let best = game.best_actions(agent)?;
    Some(best[chance.below(best.len())])
}

impl Player for SearchPlayer {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        asks.iter()
            .map(|ask| Ok(word(ask, self.choose(ask)?)))
            .collect()
    }
}
