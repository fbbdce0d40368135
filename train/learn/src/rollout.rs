//! What a training step plays.

use crate::LearnError;
use crate::group::{Group, grouped};
use crate::language::{LanguageLearner, Options};
use lapwing_play::Progress;
use lapwing_play::metrics::{GameMetrics, PlayMetrics};
use lapwing_play::seeds;
use lapwing_play::world::World;
use lapwing_play::{Episode, Seat};

/// What was played in a step.
pub struct Rollout {
    /// the episodes, those of a scene together
    pub groups: Vec<Group>,
    /// how they went
    pub play: PlayMetrics,
    /// the same by game, where others are mixed in
    pub games: Vec<GameMetrics>,
    /// positions that separate sequences would have run
    pub tokens_played: u64,
}

/// Plays what the next step of training plays, with the policy as it stands.
///
/// # Errors
/// If a game, the model or the device fails.
pub fn rollout(
    learner: &mut LanguageLearner,
    options: &Options<'_>,
    step: usize,
    progress: &dyn Progress,
) -> Result<Rollout, LearnError> {
    let games = games(learner, options, step)?;
    let temperature = learner.temperature;
    let mut played = Vec::with_capacity(games.len());
    for (world, seats) in &games {
        let agents = learner.worlds[*world].scenario.agents();
        progress.phase("rollout", seats.len() * agents, "episodes");
        played.push(learner.play(options.policy, *world, seats, temperature, progress)?);
    }
    let (play, by_game) = measured(learner, &games, &played);
    let tokens_played = played.iter().flatten().map(|e| e.tokens() as u64).sum();
    let mut groups = Vec::new();
    for ((world, seats), episodes) in games.iter().zip(played) {
        let agents = learner.worlds[*world].scenario.agents();
        let size = options.train.group_size;
        groups.extend(grouped(*world, seats, episodes, size, agents));
    }
    Ok(Rollout {
        groups,
        play,
        games: by_game,
        tokens_played,
    })
}

/// What is played in this step: `group_size` games on each of `groups` fresh scenes; by game, in the order of the worlds.
fn games(
    learner: &LanguageLearner,
    options: &Options<'_>,
    step: usize,
) -> Result<Vec<(usize, Vec<Seat>)>, LearnError> {
    let train = options.train;
    let mut games: Vec<(usize, Vec<Seat>)> = Vec::new();
    for number in 0..learner.worlds.len() {
        games.push((number, Vec::new()));
    }
    for group in 0..train.groups {
        let number = World::drawn(&learner.worlds, train.seed, step, group);
        let (world, seats) = (&learner.worlds[number], &mut games[number].1);
        let draw = |attempt| seeds::derive(train.seed, "scene", &[step, group, attempt]);
        let scene = world.scenes.training(&*world.scenario, draw)?;
        for episode in 0..train.group_size {
            let member = if train.shared_luck { 0 } else { episode };
            seats.push(Seat {
                scene,
                luck: seeds::derive(train.seed, "luck", &[step, group, member]),
                reply: seeds::derive(train.seed, "reply", &[step, group, episode]),
            });
        }
    }
    games.retain(|(_, seats)| !seats.is_empty());
    Ok(games)
}

/// How the episodes went: in all, and by game where others are mixed in.
fn measured(
    learner: &LanguageLearner,
    games: &[(usize, Vec<Seat>)],
    played: &[Vec<Episode>],
) -> (PlayMetrics, Vec<GameMetrics>) {
    let words = |world: usize| learner.worlds[world].scenario.actions();
    let parts = games.iter().zip(played);
    let parts: Vec<_> = parts
        .map(|((world, _), e)| (words(*world), &e[..]))
        .collect();
    let mut by_game = Vec::new();
    if learner.worlds.len() > 1 {
        for ((world, _), (words, episodes)) in games.iter().zip(&parts) {
            let name = &learner.worlds[*world].name;
            by_game.push(GameMetrics::of(name, &PlayMetrics::of(words, episodes)));
        }
    }
    (PlayMetrics::of_all(&parts), by_game)
}
