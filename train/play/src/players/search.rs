//! A baseline for games whose optimum is unknown: the scripted player with a rollout search of fixed budget.

use lapwing_env::rng::Stream;
use lapwing_env::{Game, GameError, Scenario};

use crate::PlayError;
use crate::metrics::Lead;
use crate::players::scripted::{EpisodeStreams, scripted_action, word};
use crate::seeds;
use crate::{ActionRequest, Player, Reply};

/// Tries each action in copies of the game with other luck, and finishes each copy with the scripted player (a rollout
/// algorithm: Tesauro & Galperin 1996, "On-line policy improvement using Monte-Carlo search"). It takes the action of the
/// scripted player, unless another one is clearly better: with few tries in many turns, taking the best mean loses more by
/// chance than it gains.
#[derive(Debug)]
pub struct SearchPlayer {
    /// The mean number of copies for each action of a turn: the budget.
    pub(crate) tries: usize,
    agents: usize,
    step_limit: usize,
    streams: EpisodeStreams,
}

/// The number of standard errors of a clear difference.
const CLEAR: f64 = 2.0;

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
            streams: EpisodeStreams::default(),
        }))
    }

    /// Returns `kept`, unless another action is clearly better.
    fn choose(&self, ask: &ActionRequest<'_>, kept: usize) -> Result<usize, GameError> {
        let mut leads = vec![Lead::default(); ask.actions.len()];
        let mut close: Vec<usize> = (0..leads.len()).filter(|&a| a != kept).collect();
        let mut left = self.tries * leads.len();
        for number in 0.. {
            if close.is_empty() || left <= close.len() {
                break;
            }
            left -= close.len() + 1;
            // All actions are tried with the same luck, so only the action makes the difference.
            let luck = seeds::derive(ask.seen.seed, "search", &[ask.turn, number]);
            let own = self.tried(ask, kept, luck)?;
            for &action in &close {
                leads[action].add(self.tried(ask, action, luck)? - own);
            }
            // The tries of an action that falls behind go to the others.
            close.retain(|&action| leads[action].standard_errors() > -CLEAR);
        }
        let ahead = |action: &usize| leads[*action].standard_errors();
        let best = close
            .into_iter()
            .max_by(|one, other| ahead(one).total_cmp(&ahead(other)));
        Ok(best.filter(|best| ahead(best) > CLEAR).unwrap_or(kept))
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
        let reply = |ask: &ActionRequest<'_>| {
            let kept = scripted_action(&mut self.streams, ask)?;
            Ok(word(ask, self.choose(ask, kept)?))
        };
        asks.iter().map(reply).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Referee;
    use crate::evaluate::play_against;
    use crate::metrics::PlayMetrics;
    use crate::players::scripted::ScriptedPlayer;
    use crate::scenes::Scenes;

    /// Returns the mean returns of the scripted player and of the search.
    fn returns(game: &str, tries: usize, episodes: usize) -> [f64; 2] {
        let (kind, options) = lapwing_env::find_variant(game).unwrap();
        let scenario = (kind.configure)(&options).unwrap();
        let scenes = Scenes::of(&*scenario).unwrap();
        let seats = scenes.evaluation(&*scenario, 1, episodes).unwrap();
        let referee = Referee::of(&*scenario, 1.0);
        let mut search = SearchPlayer::new(&*scenario, tries).unwrap().unwrap();
        let players: [&mut dyn Player; 2] = [&mut ScriptedPlayer::default(), &mut search];
        players.map(|player| {
            let episodes = play_against(&*scenario, &referee, &seats, player, &mut [], &());
            PlayMetrics::of(scenario.actions(), &episodes.unwrap()).return_mean
        })
    }

    #[test]
    fn a_search_is_not_worse_than_the_player_that_it_rolls_out() {
        let [scripted, search] = returns("frozen-lake-slippery", 1, 100);
        assert_eq!(scripted, search, "too few tries to change an action");
        let [scripted, search] = returns("frozen-lake-slippery", 10, 100);
        assert!(search > scripted - 0.05, "{search} against {scripted}");
    }

    #[test]
    fn a_search_improves_a_player_that_does_not_look_ahead() {
        let [scripted, search] = returns("snake-greedy-enemy", 10, 60);
        assert!(search > scripted + 0.2, "{search} against {scripted}");
    }
}
