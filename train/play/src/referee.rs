//! The referee: plays many episodes at once, with any player.
//!
//! All living agents of all games act in the same round. The referee, not the game, handles step limits and unreadable
//! replies.

use lapwing_env::{Game, GameError, Outcome, Scenario};

use crate::episode::{Episode, EpisodeEnd, Turn};
use crate::player::{ActionRequest, Player, Reply};
use crate::seeds;
use crate::{AgentView, PlayError, Seat};

/// The rules of the referee.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Referee {
    /// An episode with this many turns is truncated.
    pub step_limit: usize,
    /// Subtracted from the return for an unreadable reply.
    pub format_penalty: f64,
}

type FailedSeat = (usize, GameError);

impl Referee {
    /// Returns the rules of this game with this penalty.
    pub fn of(scenario: &dyn Scenario, format_penalty: f64) -> Referee {
        Referee {
            step_limit: scenario.step_limit(),
            format_penalty,
        }
    }

    /// Plays one game for each seat, all at once. A game of n agents makes n adjacent episodes; those of the first seat
    /// come first. Agent a is played by `players[a % players.len()]`, so one player can take all sides, and two can
    /// meet. `watch` sees all episodes after each round.
    ///
    /// A game that fails ends only its own episodes, and is played again from its start, once. External environments
    /// may fail, and hours of play should not be lost with them.
    ///
    /// If a player leaves, the episodes so far are returned. Those in progress have no ending.
    ///
    /// # Errors
    /// If a player fails, or a game fails twice.
    ///
    /// # Panics
    /// If there are no players, or one returns the wrong number of replies.
    pub fn play(
        &self,
        scenario: &dyn Scenario,
        seats: &[Seat],
        players: &mut [&mut dyn Player],
        watch: &mut dyn FnMut(&[Episode]),
    ) -> Result<Vec<Episode>, PlayError> {
        let agents = scenario.agents();
        let (mut episodes, failed) = self.attempt(scenario, seats, players, watch)?;
        let again: Vec<Seat> = failed.iter().map(|(number, _)| seats[*number]).collect();
        let (played, twice) = self.attempt(scenario, &again, players, &mut |_| ())?;
        if let Some((_, error)) = twice.into_iter().next() {
            return Err(error.into());
        }
        for ((number, error), played) in failed.iter().zip(played.chunks(agents)) {
            let own = &mut episodes[number * agents..(number + 1) * agents];
            own.clone_from_slice(played);
            own.iter_mut()
                .for_each(|e| e.failure = Some(error.to_string()));
        }
        Ok(episodes)
    }

    /// Plays each game until it ends or fails. Returns the seats and errors of the games that failed.
    fn attempt(
        &self,
        scenario: &dyn Scenario,
        seats: &[Seat],
        players: &mut [&mut dyn Player],
        watch: &mut dyn FnMut(&[Episode]),
    ) -> Result<(Vec<Episode>, Vec<FailedSeat>), PlayError> {
        let agents = scenario.agents();
        let start = |seat: &Seat| scenario.start(seat.scene, seat.luck);
        // A game that does not even start is misconfigured, so it is not played again.
        let mut games: Vec<Box<dyn Game>> = seats.iter().map(start).collect::<Result<_, _>>()?;
        let mut failed: Vec<FailedSeat> = Vec::new();
        let episode = |e: usize| Episode {
            // Agents of one game have different seeds; the first has the seat's.
            seed: match (seats[e / agents].reply, e % agents) {
                (seed, 0) => seed,
                (seed, agent) => seeds::derive(seed, "agent", &[agent]),
            },
            ..Episode::default()
        };
        let mut episodes: Vec<Episode> = (0..seats.len() * agents).map(episode).collect();
        for round in 0..self.step_limit {
            let lives = |e: &usize| episodes[*e].ending.is_none();
            let living: Vec<usize> = (0..episodes.len()).filter(lives).collect();
            if living.is_empty() {
                break;
            }
            for &e in &living {
                let (game, agent) = (&games[e / agents], e % agents);
                episodes[e].turns.push(Turn {
                    observation: game.observe(agent)?,
                    key: game.key(agent)?,
                    ..Turn::default()
                });
            }
            let replies = match ask_all(scenario, &games, &episodes, &living, round, players) {
                Err(PlayError::Left) => {
                    living.iter().for_each(|e| drop(episodes[*e].turns.pop()));
                    return Ok((episodes, failed));
                }
                replies => replies?,
            };
            for (&e, reply) in living.iter().zip(replies) {
                let turn = episodes[e].turns.last_mut().expect("pushed above");
                turn.shaping = reply.action.map_or(-self.format_penalty, |_| 0.0);
                (turn.action, turn.unread) = (reply.action, reply.unread);
                (turn.text, turn.sampled) = (reply.text, reply.sampled);
                if let Some(said) = &reply.said {
                    games[e / agents].hear(e % agents, said);
                }
            }
            let own = episodes.chunks_mut(agents);
            for (number, (game, own)) in games.iter_mut().zip(own).enumerate() {
                if own.iter().all(|episode| episode.ending.is_some()) {
                    continue;
                }
                if let Err(error) = self.round(scenario, &mut **game, own, round) {
                    own.iter_mut()
                        .for_each(|e| e.ending = Some(EpisodeEnd::Failed));
                    failed.push((number, error));
                }
            }
            watch(&episodes);
        }
        for (e, episode) in episodes.iter().enumerate() {
            if episode.is_truncated() {
                let last = ask(scenario, &games, &episodes, e, episode.turns.len());
                players[e % agents % players.len()].stopped(&last)?;
            }
        }
        Ok((episodes, failed))
    }

    /// Plays one round of one game, with the latest actions of its agents.
    fn round(
        &self,
        scenario: &dyn Scenario,
        game: &mut dyn Game,
        own: &mut [Episode],
        round: usize,
    ) -> Result<(), GameError> {
        let last = |episode: &Episode| episode.turns.last().and_then(|turn| turn.action);
        let actions: Vec<Option<usize>> = own.iter().map(last).collect();
        let outcomes = game.play(&actions)?;
        check(scenario, &outcomes)?;
        for (agent, (episode, outcome)) in own.iter_mut().zip(outcomes).enumerate() {
            if episode.ending.is_some() {
                continue;
            }
            episode.turns.last_mut().expect("it lives").reward = outcome.reward;
            episode.success = game.succeeded(agent);
            episode.ending = match outcome.over {
                true if game.is_truncated() => Some(EpisodeEnd::Truncated),
                true => Some(EpisodeEnd::Terminated),
                false if round + 1 == self.step_limit => Some(EpisodeEnd::Truncated),
                false => None,
            };
            if episode.ending.is_some() {
                episode.reason = game.ending(agent).map(Into::into);
                episode.last = game.observe(agent)?;
            }
        }
        Ok(())
    }
}

/// Returns what an agent observes in a turn or after its last.
fn ask<'a>(
    scenario: &'a dyn Scenario,
    games: &'a [Box<dyn Game>],
    episodes: &'a [Episode],
    number: usize,
    turn: usize,
) -> ActionRequest<'a> {
    let (agents, episode) = (scenario.agents(), &episodes[number]);
    ActionRequest {
        episode: number,
        turn,
        seen: AgentView::turn(episode, turn),
        actions: scenario.actions(),
        game: &*games[number / agents],
        agent: number % agents,
    }
}

/// Asks each agent's player for a reply, for all living episodes.
fn ask_all(
    scenario: &dyn Scenario,
    games: &[Box<dyn Game>],
    episodes: &[Episode],
    living: &[usize],
    round: usize,
    players: &mut [&mut dyn Player],
) -> Result<Vec<Reply>, PlayError> {
    let (agents, sides) = (scenario.agents(), players.len());
    let mut replies = vec![Reply::default(); living.len()];
    for (side, player) in players.iter_mut().enumerate() {
        let is_own = |i: &usize| living[*i] % agents % sides == side;
        let own: Vec<usize> = (0..living.len()).filter(is_own).collect();
        if own.is_empty() {
            continue;
        }
        let ask = |&i: &usize| ask(scenario, games, episodes, living[i], round);
        let asks: Vec<ActionRequest<'_>> = own.iter().map(ask).collect();
        let given = player.act(&asks)?;
        assert_eq!(given.len(), asks.len(), "one reply for each request");
        let put = |(i, reply): (usize, Reply)| replies[i] = reply;
        own.into_iter().zip(given).for_each(put);
    }
    Ok(replies)
}

/// The largest reward. Sums over the longest episode and their squares stay finite, in f32 too.
const MAX_REWARD: f64 = 1e9;

/// An external game may return anything.
fn check(scenario: &dyn Scenario, outcomes: &[Outcome]) -> Result<(), GameError> {
    let (agents, given) = (scenario.agents(), outcomes.len());
    let problem = if given != agents {
        format!("it has {agents} agents, and gave {given} outcomes")
    } else {
        let mut rewards = outcomes.iter().map(|outcome| outcome.reward);
        let Some(bad) = rewards.find(|r| !(-MAX_REWARD..=MAX_REWARD).contains(r)) else {
            return Ok(());
        };
        format!("a reward is {bad:e}, and must be a number from -{MAX_REWARD:e} to {MAX_REWARD:e}")
    };
    Err(GameError::new(scenario.name(), problem))
}

#[cfg(test)]
mod tests;
