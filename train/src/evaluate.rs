//! Examining a policy: sampled play on scenes that training never sees, beside the random and the scripted player.

use lapwing_env::Scenario;
use lapwing_env::rng::Stream;

use crate::error::Error;
use crate::progress::Progress;
use crate::report::EvalMetrics;
use crate::rollout::Seat;
use crate::run::Run;
use crate::seeds;

/// The scenes of an evaluation: the same for every run with this seed.
pub fn seats(seed: u64, episodes: usize) -> Vec<Seat> {
    let seat = |i| Seat {
        scene: seeds::derive(seed, "evaluation scene", &[i]),
        luck: seeds::derive(seed, "evaluation luck", &[i]),
        reply: seeds::derive(seed, "evaluation reply", &[i]),
    };
    (0..episodes).map(seat).collect()
}

/// Plays the evaluation's episodes with the policy as it stands.
///
/// # Errors
/// If the device, the model or its tokenizer fails.
pub fn evaluate(run: &mut Run, progress: &Progress) -> Result<EvalMetrics, Error> {
    let seats = seats(run.config.eval.seed, run.config.eval.episodes);
    progress.phase("evaluation", seats.len(), "episodes");
    let temperature = run.config.eval.temperature;
    let episodes = run.play(&seats, temperature, |finished| progress.progress(finished))?;
    Ok(EvalMetrics::of_episodes(&run.config.game.name, &episodes))
}

/// A player that needs no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Player {
    /// every action alike
    Random,
    /// the game's own scripted player
    Scripted,
}

/// How a player without a model does on these scenes.
pub fn baseline(
    scenario: &dyn Scenario,
    name: &str,
    seats: &[Seat],
    player: Player,
) -> EvalMetrics {
    let (mut total, mut won, mut turns) = (0.0, 0, 0);
    for seat in seats {
        let mut game = scenario.start(seat.scene, seat.luck);
        let mut chance = Stream::new(seat.reply, "baseline");
        for _ in 0..scenario.step_limit() {
            let action = match player {
                Player::Random => chance.below(scenario.actions().len()),
                Player::Scripted => {
                    let best = game.best_actions();
                    best[chance.below(best.len())]
                }
            };
            let turn = game.play(Some(action));
            total += turn.reward;
            turns += 1;
            if turn.over {
                break;
            }
        }
        won += usize::from(game.succeeded());
    }
    let count = seats.len() as f64;
    EvalMetrics {
        game: name.to_owned(),
        episodes: seats.len(),
        return_mean: total / count,
        success_rate: won as f64 / count,
        valid_action_rate: 1.0,
        episode_length_mean: turns as f64 / count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripted_player_crosses_firm_ice_and_the_random_one_hardly_does() {
        let lake =
            (lapwing_env::find("frozen-lake").unwrap().configure)(&serde_json::json!({})).unwrap();
        let seats = seats(1, 200);
        let play = |player| baseline(&*lake, "frozen-lake", &seats, player);
        let (scripted, random) = (play(Player::Scripted), play(Player::Random));
        assert_eq!((scripted.success_rate, scripted.return_mean), (1.0, 1.0));
        // About 0.06, with a standard error of 0.017.
        assert!(random.success_rate < 0.15, "{random:?}");
        assert_eq!(random.return_mean, random.success_rate);
        assert!(random.episode_length_mean <= lake.step_limit() as f64);
        assert_eq!(play(Player::Random), random);
    }

    #[test]
    fn fewer_episodes_are_the_first_of_more() {
        let scenes = |seed, count| -> Vec<u64> {
            seats(seed, count).iter().map(|seat| seat.scene).collect()
        };
        assert_eq!(scenes(1, 3), scenes(1, 5)[..3]);
        assert_ne!(scenes(1, 3), scenes(2, 3));
    }
}
