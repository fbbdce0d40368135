//! Frozen Lake through the public interface.

use serde_json::json;

use crate::games::{configured, play, refusal};
use lapwing_env::{Game, Outcome, Scenario, find, find_variant, rng::Stream};

#[test]
fn a_bad_map_is_refused() {
    let refused = |rows: &[&str]| refusal("frozen-lake", json!({ "map": rows }));
    insta::assert_snapshot!(refused(&[]), @"frozen-lake: option `map` is empty, but must have at least a start `S` and a goal `G`");
    insta::assert_snapshot!(refused(&[""]), @"frozen-lake: option `map` is empty, but must have at least a start `S` and a goal `G`");
    insta::assert_snapshot!(refused(&["SFF", "FG"]), @"frozen-lake: option `map` has 2 cells in row 2, but must have 3 as in row 1");
    insta::assert_snapshot!(refused(&["FFF", "FFG"]), @"frozen-lake: option `map` has 0 cells `S`, but must have one start");
    insta::assert_snapshot!(refused(&["SFF", "FFF"]), @"frozen-lake: option `map` has 0 cells `G`, but must have one goal");
    insta::assert_snapshot!(refused(&["SFS", "FFG"]), @"frozen-lake: option `map` has 2 cells `S`, but must have one start");
    insta::assert_snapshot!(refused(&["SFG", "FFG"]), @"frozen-lake: option `map` has 2 cells `G`, but must have one goal");
    insta::assert_snapshot!(refused(&["SFx", "FFG"]), @"frozen-lake: option `map` has 'x' in row 1, but must be of the letters S, F, H and G");
    insta::assert_snapshot!(refused(&["SHF", "HFG"]), @"frozen-lake: option `map` has no path from `S` to `G`, but must have one");
    insta::assert_snapshot!(refused(&["S".repeat(65).as_str()]), @"frozen-lake: option `map` is 65 wide and 1 high, but must be at most 64 each way");
}

#[test]
fn a_bad_option_is_refused() {
    let refused = |options| refusal("frozen-lake", options);
    insta::assert_snapshot!(refused(json!({ "sise": 4 })), @"frozen-lake: unknown option `sise` (did you mean `size`?); the options are size, width, height, largest, frozen, slippery, map, step_limit, view, target, exact, red, swapped, symbols, wording");
    insta::assert_snapshot!(refused(json!({ "gravity": 4 })), @"frozen-lake: unknown option `gravity`; the options are size, width, height, largest, frozen, slippery, map, step_limit, view, target, exact, red, swapped, symbols, wording");
    insta::assert_snapshot!(refused(json!({ "size": 1 })), @"frozen-lake: option `size` is 1, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "height": 65 })), @"frozen-lake: option `height` is 65, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "size": -4 })), @"frozen-lake: option `size` is -4, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "width": "wide" })), @r#"frozen-lake: option `width` is "wide", but must be an integer from 2 to 64"#);
    insta::assert_snapshot!(refused(json!({ "width": null })), @"frozen-lake: option `width` is null, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "size": 6, "width": 5, "height": 4 })), @"frozen-lake: option `size` is 6, but must be left out beside `width` and `height`");
    insta::assert_snapshot!(refused(json!({ "largest": 3 })), @"frozen-lake: option `largest` is 3, but must be from `size` = 4 to 64");
    insta::assert_snapshot!(refused(json!({ "largest": 65 })), @"frozen-lake: option `largest` is 65, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "largest": 8, "height": 4 })), @"frozen-lake: option `height` is 4, but must be left out beside `largest`, which draws it");
    insta::assert_snapshot!(refused(json!({ "frozen": f64::NAN })), @"frozen-lake: option `frozen` is null, but must be a number above 0, at most 1");
    insta::assert_snapshot!(refused(json!({ "map": [1, 2] })), @"frozen-lake: option `map` is [1,2], but must be a list of strings in quotes");
    insta::assert_snapshot!(refused(json!({ "frozen": 0 })), @"frozen-lake: option `frozen` is 0, but must be a number above 0, at most 1");
    insta::assert_snapshot!(refused(json!({ "frozen": 1.5 })), @"frozen-lake: option `frozen` is 1.5, but must be a number above 0, at most 1");
    insta::assert_snapshot!(refused(json!({ "slippery": 1 })), @"frozen-lake: option `slippery` is 1, but must be true or false");
    insta::assert_snapshot!(refused(json!({ "map": "SFFG" })), @r#"frozen-lake: option `map` is "SFFG", but must be a list of strings in quotes"#);
    insta::assert_snapshot!(refused(json!({ "step_limit": 0 })), @"frozen-lake: option `step_limit` is 0, but must be an integer from 1 to 1000");
    insta::assert_snapshot!(refused(json!({ "exact": 21 })), @"frozen-lake: option `exact` is 21, but must be at most `step_limit` = 20");
    insta::assert_snapshot!(refused(json!({ "red": 5000 })), @"frozen-lake: option `red` is 5000, but must be an integer from 0 to 4096");
    insta::assert_snapshot!(refused(json!({ "target": "start" })), @r#"frozen-lake: option `target` is "start", but must be `goal` or `holes`"#);
    insta::assert_snapshot!(refused(json!({ "view": "above" })), @r#"frozen-lake: option `view` is "above", but must be one of `board`, `coordinates`, `relative`, `full`"#);
    insta::assert_snapshot!(refused(json!(["size", 4])), @r#"frozen-lake: the options must be a table of names and values, found ["size",4]"#);
}

/// A map determines the size and every cell, so options for drawing one would have no effect.
#[test]
fn a_map_stands_alone() {
    for (drawn, value) in [
        ("size", 4),
        ("width", 4),
        ("height", 4),
        ("largest", 8),
        ("frozen", 1),
    ] {
        let error = refusal("frozen-lake", json!({ "map": ["SG"], drawn: value }));
        let wanted = "but must be left out beside `map`, which replaces it";
        assert_eq!(
            error,
            format!("frozen-lake: option `{drawn}` is {value}, {wanted}")
        );
    }
}

#[test]
fn sides_are_drawn_evenly_from_the_scene() {
    let lake = |options| configured(find("frozen-lake").unwrap(), &options);
    let drawn = lake(json!({ "size": 6, "largest": 8 }));
    let key = |scenario: &dyn Scenario, scene| scenario.start(scene, 0).unwrap().key(0).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for scene in 0..3600 {
        let board = drawn.start(scene, 1).unwrap().observe(0).unwrap();
        let sides = (
            board.lines().next().unwrap().len().div_ceil(2),
            board.lines().count(),
        );
        *counts.entry(sides).or_insert(0) += 1;
        if scene < 50 {
            let fixed = lake(json!({ "width": sides.0, "height": sides.1 }));
            assert_eq!(key(&*drawn, scene), key(&*fixed, scene));
        }
    }
    assert_eq!(counts.len(), 9);
    // Five standard deviations of a count, which is 19.
    assert!(
        counts.values().all(|count| (305..495).contains(count)),
        "{counts:?}"
    );
}

/// The optimum falls by the steps that a detour takes.
#[test]
fn the_optimum_follows_the_episode() {
    let options = json!({ "map": ["SFF", "HFG"], "step_limit": 4 });
    let scenario = configured(find("frozen-lake").unwrap(), &options);
    let (left, down, right) = (Some(0), Some(1), Some(2));
    let optima = |actions: &[Option<usize>]| -> Vec<f64> {
        let mut game = scenario.start(0, 0).unwrap();
        let mut optima = vec![game.optimum(0).unwrap()];
        for &action in actions {
            game.play(&[action]).unwrap();
            optima.push(game.optimum(0).unwrap());
        }
        optima
    };
    assert_eq!(
        optima(&[left, right, right, down]),
        [1.0, 1.0, 1.0, 1.0, 0.0],
        "had its reward"
    );
    assert_eq!(
        optima(&[left, None]),
        [1.0, 1.0, 0.0],
        "two steps left, three to go"
    );
    assert_eq!(optima(&[down]), [1.0, 0.0], "in a hole");
    assert_eq!(
        optima(&[left; 6]),
        [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        "beyond the limit"
    );
}

/// Exactly on firm lakes, on average on slippery ones.
#[test]
fn the_scripted_player_gets_the_optimum_on_drawn_lakes() {
    for (slippery, episodes) in [(false, 1), (true, 400)] {
        let options = json!({ "size": 6, "largest": 8, "slippery": slippery, "step_limit": 60 });
        let scenario = configured(find("frozen-lake").unwrap(), &options);
        let (mut difference, mut variance) = (0.0, 0.0);
        for scene in 0..20 {
            let optimum = scenario.start(scene, 0).unwrap().optimum(0).unwrap();
            assert!(optimum > 0.0, "60 steps are enough to cross any of them");
            for luck in 0..episodes {
                let mut game = scenario.start(scene, luck).unwrap();
                let scripted = |game: &dyn Game, agent| Some(game.best_actions(agent).unwrap()[0]);
                let rounds = play(&*scenario, &mut *game, scripted);
                let reward: f64 = rounds.iter().map(|round| round.outcomes[0].reward).sum();
                difference += reward - optimum;
                variance += optimum * (1.0 - optimum);
            }
        }
        // Four standard deviations of the sum, which is 0 on firm ice.
        assert!(difference.abs() <= 4.0 * variance.sqrt(), "{difference}");
    }
}

#[test]
fn an_unread_action_leaves_the_player_where_it_is() {
    for slippery in [false, true] {
        let scenario = configured(
            find("frozen-lake").unwrap(),
            &json!({ "slippery": slippery }),
        );
        for seed in 0..50 {
            let mut game = scenario.start(seed, seed).unwrap();
            let before = game.observe(0).unwrap();
            assert!(!game.play(&[None]).unwrap()[0].over);
            assert_eq!(game.observe(0).unwrap(), before);
        }
    }
}

/// The exact probability is that of the first map in `fixtures/golden/frozen_lake.json`. Slips do not change it.
#[test]
fn the_random_player_succeeds_as_often_as_it_should() {
    const EPISODES: u64 = 20_000;
    for slippery in [false, true] {
        let map = ["SFFF", "FFHF", "FFFF", "FFFG"];
        let scenario = configured(
            find("frozen-lake").unwrap(),
            &json!({ "map": map, "slippery": slippery }),
        );
        let mut stream = Stream::new(1, "player");
        let mut successes = 0;
        for luck in 0..EPISODES {
            let mut game = scenario.start(0, luck).unwrap();
            play(&*scenario, &mut *game, |_, _| Some(stream.below(4)));
            successes += u64::from(game.succeeded(0));
        }
        // Four standard deviations of the frequency, which is 0.0021.
        let frequency = successes as f64 / EPISODES as f64;
        assert!((frequency - 0.09367).abs() < 0.0083, "{frequency}");
    }
}

/// A group shares its scene, so scenes must differ, and a seed always gives the same map.
#[test]
fn every_scene_draws_its_own_map() {
    let scenario = configured(find("frozen-lake").unwrap(), &json!({}));
    let boards: std::collections::HashSet<String> = (0..100)
        .map(|scene| scenario.start(scene, 0).unwrap().observe(0).unwrap())
        .collect();
    assert!(boards.len() > 80, "{}", boards.len());
    insta::assert_snapshot!(scenario.start(0, 0).unwrap().observe(0).unwrap(), @r"
    P _ _ _
    _ _ _ _
    _ _ _ O
    _ _ _ G
    ");
}

/// The published optima of Gymnasium's standard map, slippery, which are on the page.
#[test]
fn the_standard_map_has_its_published_optima() {
    let (kind, mut options) = find_variant("frozen-lake-fixed").unwrap();
    for (step_limit, published) in [
        (15, 0.1158),
        (20, 0.1991),
        (50, 0.5459),
        (100, 0.7442),
        (200, 0.8167),
        (1000, 0.8235),
    ] {
        options["step_limit"] = json!(step_limit);
        let game = configured(kind, &options).start(0, 0).unwrap();
        let optimum = game.optimum(0).unwrap();
        assert!((optimum - published).abs() < 0.000_05, "{optimum}");
    }
}

/// The mean optima of a thousand scenes, which are on the page.
#[test]
fn the_optima_of_the_variants_are_those_on_the_page() {
    let mut table = Vec::new();
    for variant in find("frozen-lake").unwrap().variants {
        let (kind, options) = find_variant(variant.name).unwrap();
        let scenario = configured(kind, &options);
        let optimum = |scene| scenario.start(scene, 0).unwrap().optimum(0).unwrap();
        let mean = (0..1000).map(optimum).sum::<f64>() / 1000.0;
        table.push(format!("{} {mean:.3}", variant.name));
    }
    insta::assert_snapshot!(table.join("\n"), @r"
    frozen-lake-firm 1.000
    frozen-lake-slippery 0.759
    frozen-lake-large 1.000
    frozen-lake-big-slippery 0.837
    frozen-lake-fixed 0.744
    frozen-lake-author-firm 1.000
    frozen-lake-author-slippery 0.387
    ");
}

fn rewards(options: serde_json::Value, actions: &[usize]) -> (Vec<Outcome>, bool) {
    let scenario = configured(find("frozen-lake").unwrap(), &options);
    let mut game = scenario.start(0, 0).unwrap();
    let outcomes = actions
        .iter()
        .map(|&action| game.play(&[Some(action)]).unwrap()[0]);
    (outcomes.collect(), game.succeeded(0))
}

const LEFT: usize = 0;
const DOWN: usize = 1;
const RIGHT: usize = 2;

fn outcome(reward: f64, over: bool) -> Outcome {
    Outcome { reward, over }
}

#[test]
fn only_arriving_at_the_exact_step_counts() {
    let options = json!({ "map": ["SF", "FG"], "exact": 3 });
    let (on, end) = (outcome(0.0, false), outcome(0.0, true));
    let play = |actions: &[usize]| rewards(options.clone(), actions);
    assert_eq!(
        play(&[LEFT, RIGHT, DOWN]),
        (vec![on, on, outcome(1.0, true)], true)
    );
    assert_eq!(play(&[RIGHT, DOWN]), (vec![on, end], false));
    assert_eq!(
        play(&[LEFT, LEFT, RIGHT, DOWN]),
        (vec![on, on, on, end], false)
    );
}

#[test]
fn where_holes_are_wanted_the_goal_is_worth_nothing() {
    let options = json!({ "map": ["SF", "HG"], "target": "holes" });
    let play = |actions: &[usize]| rewards(options.clone(), actions);
    assert_eq!(play(&[DOWN]), (vec![outcome(1.0, true)], true));
    let lost = vec![outcome(0.0, false), outcome(0.0, true)];
    assert_eq!(play(&[RIGHT, DOWN]), (lost, false));
}

/// Each step that ends on the red cell costs a point and prevents success.
#[test]
fn red_ice_costs_a_point_a_step() {
    let options = json!({ "map": ["SFG", "FHH"], "red": 1 });
    let play = |actions: &[usize]| rewards(options.clone(), actions);
    let (on, red, won) = (
        outcome(0.0, false),
        outcome(-1.0, false),
        outcome(1.0, true),
    );
    assert_eq!(play(&[RIGHT, RIGHT]), (vec![on, won], true));
    const UP: usize = 3;
    assert_eq!(
        play(&[DOWN, LEFT, UP, RIGHT, RIGHT]),
        (vec![red, red, on, on, won], false)
    );
}

#[test]
fn swapped_words_swap_the_moves_and_the_habit_does_not() {
    let options = json!({ "map": ["SFG"], "swapped": true });
    let scenario = configured(find("frozen-lake").unwrap(), &options);
    let mut game = scenario.start(0, 0).unwrap();
    assert_eq!(game.best_actions(0), Some(vec![LEFT]));
    assert_eq!(game.habit(0), Some(vec![RIGHT]));
    game.play(&[Some(LEFT)]).unwrap();
    assert_eq!(game.observe(0).unwrap(), "_ P G");
    assert_eq!(
        game.play(&[Some(LEFT)]).unwrap(),
        [outcome(1.0, true)],
        "left is right"
    );
}

/// A lake that is smaller than the largest lies at the top left, with zeros beyond it.
#[test]
fn planes_show_the_lake_and_nothing_beyond_it() {
    let lake = find("frozen-lake").unwrap();
    let options = json!({ "map": ["SFH", "FFG"] });
    let planes = |scenario: &dyn Scenario, seed| {
        let game = scenario.start(seed, 0).unwrap();
        game.planes(0).unwrap().unwrap()
    };
    let shown = planes(&*configured(lake, &options), 0);
    assert_eq!(shown.names, ["player", "ice", "hole", "goal"]);
    assert_eq!((shown.height, shown.width, shown.at), (2, 3, Some((0, 0))));
    assert_eq!(shown.ones, [0, 6, 7, 9, 10, 14, 23]);

    let drawn = configured(lake, &json!({ "size": 2, "largest": 4, "red": 1 }));
    let mut sizes = std::collections::HashSet::new();
    for seed in 0..60 {
        let shown = planes(&*drawn, seed);
        assert_eq!((shown.names.len(), shown.height, shown.width), (5, 4, 4));
        let cells: Vec<usize> = shown
            .ones
            .iter()
            .filter(|one| **one >= 16)
            .map(|one| one % 16)
            .collect();
        let rows = drawn.start(seed, 0).unwrap().observe(0).unwrap();
        let (height, width) = (
            rows.lines().count(),
            rows.lines().next().unwrap().split_whitespace().count(),
        );
        let mut wanted: Vec<usize> = (0..height)
            .flat_map(|row| (0..width).map(move |column| 4 * row + column))
            .collect();
        // Each cell of the lake is on exactly one plane, cells beyond it on none.
        let mut once = cells.clone();
        once.sort();
        wanted.sort();
        assert_eq!(once, wanted);
        sizes.insert((height, width));
    }
    assert_eq!(sizes.len(), 9);
}
