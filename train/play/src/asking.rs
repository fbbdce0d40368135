//! What the referee asks players, and what it tells them.

use lapwing_env::{Game, Scenario};

use crate::PlayError;
use crate::episode::Episode;
use crate::player::{Ask, Player, Reply};

/// A reply for each living episode, from the player of its agent.
pub(super) fn ask_all(
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
        let (mut places, mut asks) = (Vec::new(), Vec::new());
        for (place, &e) in living.iter().enumerate() {
            let (seat, agent) = (e / agents, e % agents);
            if agent % sides != side {
                continue;
            }
            places.push(place);
            asks.push(Ask {
                episode: e,
                turn: round,
                seed: episodes[e].seed,
                actions: scenario.actions(),
                observation: &episodes[e].turns[round].observation,
                past: &episodes[e].turns[..round],
                game: &*games[seat],
                agent,
            });
        }
        if asks.is_empty() {
            continue;
        }
        let given = player.act(&asks)?;
        assert_eq!(
            given.len(),
            asks.len(),
            "a player's replies, and what it was asked for"
        );
        for (place, reply) in places.into_iter().zip(given) {
            replies[place] = reply;
        }
    }
    Ok(replies)
}

/// Shows the players where the step limit has stopped them.
pub(super) fn tell_stopped(
    scenario: &dyn Scenario,
    games: &[Box<dyn Game>],
    episodes: &[Episode],
    players: &mut [&mut dyn Player],
) -> Result<(), PlayError> {
    let (agents, sides) = (scenario.agents(), players.len());
    for (e, episode) in episodes.iter().enumerate() {
        if episode.is_truncated() {
            players[e % agents % sides].stopped(&Ask {
                episode: e,
                turn: episode.turns.len(),
                seed: episode.seed,
                actions: scenario.actions(),
                observation: &episode.last,
                past: &episode.turns,
                game: &*games[e / agents],
                agent: e % agents,
            })?;
        }
    }
    Ok(())
}
