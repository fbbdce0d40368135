//! Scores of the scripted players and of random ones.

use lapwing_env::{Game, Scenario};

use crate::games::{named, play, random};

/// Returns mean return, share of successes and mean length over scenes from 0, with luck as the scene.
fn measured(
    scenario: &dyn Scenario,
    episodes: u64,
    mut player: impl FnMut(&dyn Game, usize) -> Option<usize>,
) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for scene in 0..episodes {
        let mut game = scenario.start(scene, scene).unwrap();
        let rounds = play(scenario, &mut *game, &mut player);
        let rewards = rounds.iter().map(|round| round.outcomes[0].reward);
        sums[0] += rewards.sum::<f64>();
        sums[1] += f64::from(u8::from(game.succeeded(0)));
        sums[2] += rounds.len() as f64;
    }
    sums.map(|sum| sum / episodes as f64)
}

/// With `LAPWING_EPISODES=500` and `-- --nocapture` it prints the figures on the pages of Sokoban, rooms and 2048.
#[test]
fn the_scripted_player_is_no_worse_than_chance() {
    let given = std::env::var("LAPWING_EPISODES").ok();
    let episodes: Option<u64> = given.map(|given| given.parse().expect("a number of episodes"));
    for (name, _, scenario) in named() {
        if name == "2048-standard" && episodes.is_none() {
            // A thousand moves an episode, each with a search: half a minute.
            println!("SKIPPED: {name} (set LAPWING_EPISODES)");
            continue;
        }
        let first = scenario.start(0, 0).unwrap();
        if first.best_actions(0).is_none() {
            continue;
        }
        let episodes = episodes.unwrap_or(20);
        let best = |game: &dyn Game, agent| Some(game.best_actions(agent).unwrap()[0]);
        let scripted = measured(&*scenario, episodes, best);
        let chance = measured(&*scenario, episodes, random(&*scenario, 1));
        println!("{name}: scripted {scripted:.3?}, random {chance:.3?} (return, success, steps)");
        assert!(
            scripted[0] >= chance[0],
            "{name}: {scripted:?} against {chance:?}"
        );
    }
}
