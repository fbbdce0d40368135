//! Sokoban through the public interface.

use serde_json::json;

use crate::games::{configured, play, random, refusal};
use lapwing_env::{Game, find};

const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../fixtures/boxoban/sample.txt"
);

#[test]
fn a_bad_option_is_refused() {
    let refused = [
        json!({ "boxs": 2 }),
        json!({ "size": 4 }),
        json!({ "width": 16 }),
        json!({ "size": 6, "width": 7, "height": 8 }),
        json!({ "boxes": 5 }),
        json!({ "boxes": 0 }),
        json!({ "effort": 1 }),
        json!({ "effort": 10_001 }),
        json!({ "step_reward": 1 }),
        json!({ "box_reward": -1 }),
        json!({ "done_reward": 1e9 }),
        json!({ "levels": 3 }),
        json!({ "levels": "no/such/file.txt" }),
        json!({ "levels": "src" }),
        json!({ "levels": "src", "boxes": 2 }),
        json!({ "goal": "in" }),
    ];
    let refused = refused.map(|options| refusal("sokoban", options));
    insta::assert_snapshot!(refused.join("\n"));
}

#[test]
fn a_file_gives_its_levels_in_turn() {
    let scenario = configured(
        find("sokoban").unwrap(),
        &json!({ "levels": SAMPLE, "step_limit": 60 }),
    );
    let again = configured(find("sokoban").unwrap(), &scenario.options());
    assert_eq!(again.options(), scenario.options());
    let key = |scene| scenario.start(scene, 0).unwrap().key(0).unwrap();
    assert_eq!(key(0), key(3));
    assert_eq!(key(u64::MAX), key(u64::MAX % 3));
    for scene in 0..3 {
        assert_ne!(key(scene), key(scene + 1));
        let mut game = scenario.start(scene, 0).unwrap();
        let optimum = game.optimum(0).unwrap();
        let scripted = |game: &dyn Game, agent| Some(game.best_actions(agent).unwrap()[0]);
        let rounds = play(&*scenario, &mut *game, scripted);
        let total: f64 = rounds.iter().map(|round| round.outcomes[0].reward).sum();
        assert!(
            game.succeeded(0) && (total - optimum).abs() < 1e-9,
            "{total} against {optimum}"
        );
    }
}

/// The numbers of walls, targets, boxes and players stay the same.
#[test]
fn nothing_is_lost_whatever_is_played() {
    let scenario = configured(
        find("sokoban").unwrap(),
        &json!({ "size": 7, "boxes": 3, "step_limit": 60 }),
    );
    let counts = |board: &str| {
        let count = |signs: &str| board.chars().filter(|&sign| signs.contains(sign)).count();
        [count("#"), count("OVS"), count("XV"), count("PS")]
    };
    for seed in 0..100 {
        let mut game = scenario.start(seed, seed).unwrap();
        let first = counts(&game.observe(0).unwrap());
        assert_eq!(first[1..], [3, 3, 1]);
        for round in play(&*scenario, &mut *game, random(&*scenario, seed)) {
            assert_eq!(counts(&round.seen[0]), first);
        }
    }
}
