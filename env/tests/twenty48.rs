//! 2048 through the public interface.

use serde_json::json;

use crate::games::{configured, play, random, refusal};
use lapwing_env::find;

#[test]
fn a_bad_option_is_refused() {
    let refused = [
        json!({ "targt": 64 }),
        json!({ "target": 48 }),
        json!({ "target": 16 }),
        json!({ "target": 32768 }),
        json!({ "goal": "wide" }),
        json!({ "up_cost": -1 }),
        json!({ "symbols": "letters" }),
        json!({ "step_limit": 0 }),
    ];
    let refused = refused.map(|options| refusal("2048", options));
    insta::assert_snapshot!(refused.join("\n"));
}

/// The return is the number of doublings made, as shares of those from 2 to the target.
#[test]
fn the_return_is_the_share_of_doublings() {
    for target in [32, 256, 16384] {
        let options = json!({ "target": target, "step_limit": 100_000 });
        let scenario = configured(find("2048").unwrap(), &options);
        for seed in 0..30 {
            let mut game = scenario.start(seed, seed).unwrap();
            let rounds = play(&*scenario, &mut *game, random(&*scenario, seed));
            let total: f64 = rounds.iter().map(|round| round.outcomes[0].reward).sum();
            let last = game.observe(0).unwrap();
            let numbers = last
                .split_whitespace()
                .filter_map(|tile| tile.parse::<u32>().ok());
            let made = numbers.max().unwrap().ilog2() - 1;
            let shares = f64::from(made) / f64::from(u32::ilog2(target) - 1);
            // A 4 that appeared on a board of 2s was not made by a merge.
            let share = 1.0 / f64::from(u32::ilog2(target) - 1);
            assert!((-1e-9..=1.0 + 1e-9).contains(&total));
            assert!(
                [0.0, share]
                    .iter()
                    .any(|given| (shares - given - total).abs() < 1e-9),
                "{total} {shares}"
            );
            assert!(rounds.last().unwrap().outcomes[0].over, "it ends by itself");
            assert_eq!(
                game.succeeded(0),
                total > 1.0 - 1.5 * share && last.contains(&target.to_string())
            );
        }
    }
}

/// A move that moves nothing and an unreadable one do not change the board.
#[test]
fn what_moves_nothing_leaves_the_board() {
    let scenario = configured(find("2048").unwrap(), &json!({}));
    let mut idle = 0;
    for seed in 0..50 {
        let mut game = scenario.start(seed, seed).unwrap();
        for step in 0..scenario.step_limit() {
            let before = game.observe(0).unwrap();
            assert_eq!(game.play(&[None]).unwrap()[0].reward, 0.0);
            assert_eq!(game.observe(0).unwrap(), before);
            let outcome = game.play(&[Some(step % 2 * 3)]).unwrap()[0];
            let empty = |board: &str| board.matches('_').count();
            let after = game.observe(0).unwrap();
            if after == before {
                idle += 1;
                assert_eq!(outcome.reward, 0.0);
            } else if outcome.reward == 0.0 {
                assert!(empty(&after) + 1 >= empty(&before));
            }
        }
    }
    assert!(idle > 100, "{idle}");
}

#[test]
fn swapped_words_are_told_and_do_the_other_thing() {
    let kind = find("2048").unwrap();
    let (usual, swapped) = (
        configured(kind, &json!({})),
        configured(kind, &json!({ "swapped": true })),
    );
    assert!(swapped.rules().contains("left slides to the right"));
    for seed in 0..50 {
        let mut one = usual.start(seed, seed).unwrap();
        let mut other = swapped.start(seed, seed).unwrap();
        let mut player = random(&*usual, seed);
        for _ in 0..40 {
            let habit: Vec<usize> = one.best_actions(0).unwrap();
            assert_eq!(other.habit(0), Some(habit));
            let action = player(&*one, 0);
            let mirrored = action.map(|action| [0, 1, 3, 2][action]);
            assert_eq!(one.play(&[action]), other.play(&[mirrored]));
            assert_eq!(one.observe(0), other.observe(0));
        }
    }
}
