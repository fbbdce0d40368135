//! Drawing and reading levels, steps and their inverse, and the search compared with brute force.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::draw::DrawnLevel;
use super::*;

fn drawn(width: usize, height: usize, boxes: usize, effort: usize, scene: u64) -> DrawnLevel {
    draw::draw(
        width,
        height,
        boxes,
        effort,
        &mut Stream::new(scene, "sokoban level"),
    )
}

/// Returns the position after these moves, which must all be possible.
fn played(level: &Level, start: &Position, ways: &[usize]) -> Position {
    ways.iter().fold(*start, |state, &way| {
        level.step(&state, way).expect("the way is free")
    })
}

#[test]
fn every_level_is_solved_by_its_record() {
    for (width, height, boxes, effort) in [
        (6, 6, 1, 100),
        (6, 6, 3, 300),
        (5, 9, 3, 60),
        (10, 10, 4, 1000),
        (15, 15, 8, 500),
    ] {
        for scene in 0..100 {
            let DrawnLevel {
                level,
                start,
                solution,
            } = drawn(width, height, boxes, effort, scene);
            assert_eq!((level.width, level.floor.len()), (width, width * height));
            assert_eq!(start.boxes().count(), boxes);
            assert_eq!(
                level.targets.iter().filter(|&&target| target).count(),
                boxes
            );
            assert!(!level.solved(&start));
            assert!(level.solved(&played(&level, &start, &solution)));
            let border = |cell: &usize| {
                (cell % width).is_multiple_of(width - 1)
                    || (cell / width).is_multiple_of(height - 1)
            };
            assert!(
                (0..level.floor.len())
                    .filter(border)
                    .all(|cell| !level.floor[cell])
            );
        }
    }
}

/// Few options need the plain level, but it must work for all.
#[test]
fn the_plain_level_is_solved_by_its_record() {
    for (width, height) in [(5, 5), (10, 5), (5, 12), (15, 15)] {
        for boxes in 1..=(width - 2).min(level::MOST_BOXES) {
            let DrawnLevel {
                level,
                start,
                solution,
            } = draw::plain(width, height, boxes);
            assert!(!level.solved(&start));
            assert!(level.solved(&played(&level, &start, &solution)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn steps_keep_boxes_and_go_through_nothing(scene: u64, player: u64) {
        let DrawnLevel { level, start, .. } = drawn(8, 7, 3, 200, scene);
        let mut random = Stream::new(player, "random player");
        let mut state = start;
        for _ in 0..100 {
            let way = random.below(4);
            let Some(after) = level.step(&state, way) else { continue };
            let cells: Vec<usize> = after.boxes().collect();
            prop_assert_eq!(cells.len(), 3);
            prop_assert!(cells.is_sorted_by(|one, next| one < next), "no two in one cell");
            prop_assert!(cells.iter().all(|&cell| level.floor[cell]));
            let player = usize::from(after.player);
            prop_assert!(level.floor[player] && !after.has_box(player));
            let pushed = after.boxes().collect::<Vec<_>>() != state.boxes().collect::<Vec<_>>();
            prop_assert_eq!(level.back(&after, level::opposite(way), pushed), Some(state));
            state = after;
        }
    }
}

/// Returns the steps of a shortest solution, by breadth-first search.
fn shortest(level: &Level, start: &Position) -> Option<usize> {
    let mut steps = HashMap::from([(*start, 0)]);
    let mut open = VecDeque::from([*start]);
    while let Some(state) = open.pop_front() {
        if level.solved(&state) {
            return Some(steps[&state]);
        }
        for after in (0..4).filter_map(|way| level.step(&state, way)) {
            if !steps.contains_key(&after) {
                steps.insert(after, steps[&state] + 1);
                open.push_back(after);
            }
        }
    }
    None
}

#[test]
fn the_search_finds_shortest_solutions_and_hopeless_states() {
    let (mut solved, mut hopeless) = (0, 0);
    for scene in 0..150 {
        let DrawnLevel { level, start, .. } = drawn(6, 6, 2, 200, scene);
        let mut random = Stream::new(scene, "random player");
        let mut state = start;
        for _ in 0..4 {
            for _ in 0..4 {
                state = level.step(&state, random.below(4)).unwrap_or(state);
            }
            match (plan::solve(&level, &state), shortest(&level, &state)) {
                (Solution::Shortest(ways), Some(steps)) => {
                    assert_eq!(ways.len(), steps);
                    assert!(level.solved(&played(&level, &state, &ways)));
                    solved += 1;
                }
                (Solution::Impossible, None) => hopeless += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(solved > 100 && hopeless > 30, "{solved} {hopeless}");
}

/// Returns the highest return in `left` steps by trying everything.
fn highest(
    level: &Level,
    options: &SokobanOptions,
    state: &Position,
    left: usize,
    known: &mut HashMap<(Position, usize), f64>,
) -> f64 {
    if left == 0 || level.solved(state) {
        return 0.0;
    }
    if let Some(&value) = known.get(&(*state, left)) {
        return value;
    }
    let mut best = f64::NEG_INFINITY;
    for way in 0..4 {
        let after = level.step(state, way).unwrap_or(*state);
        let on = level.on_targets(&after) as f64 - level.on_targets(state) as f64;
        let done = if level.solved(&after) {
            options.done_reward
        } else {
            0.0
        };
        let reward = options.step_reward + on * options.box_reward + done;
        best = best.max(reward + highest(level, options, &after, left - 1, known));
    }
    known.insert((*state, left), best);
    best
}

/// Tolerance: rounding of sums in another order.
#[test]
fn the_optimum_is_what_trying_everything_finds() {
    let mut checked = 0;
    for options in [
        serde_json::json!({ "boxes": 2, "step_limit": 14 }),
        serde_json::json!({ "step_limit": 10, "step_reward": 0, "box_reward": 20, "done_reward": 1 }),
    ] {
        let scenario = Sokoban::new(&options).unwrap();
        let options = &scenario.options;
        for scene in 0..40 {
            let DrawnLevel { level, start, .. } = drawn(6, 6, options.boxes, options.effort, scene);
            let mut game = scenario.start(scene, 0).unwrap();
            let mut random = Stream::new(scene, "random player");
            let (mut state, mut known) = (start, HashMap::new());
            for steps in 0..options.step_limit {
                if let Some(optimum) = game.optimum(0) {
                    let found = highest(
                        &level,
                        options,
                        &state,
                        options.step_limit - steps,
                        &mut known,
                    );
                    assert!(
                        (optimum - found).abs() < 1e-9,
                        "scene {scene}: {optimum} against {found}"
                    );
                    checked += 1;
                }
                let way = random.below(4);
                game.play(&[Some(way)]).unwrap();
                if !level.solved(&state) {
                    state = level.step(&state, way).unwrap_or(state);
                }
            }
        }
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn files_are_read_and_errors_name_the_line() {
    let refused = |text: &str| file::parse(text).unwrap_err();
    let row = "#".repeat(16);
    let errors = [
        refused(""),
        refused("; 0\n\n; 1\n"),
        refused("; 7\n####\n#@$x\n####"),
        refused("####\n#@$.#\n####"),
        refused("; 3\n#####\n# $.#\n#####\n"),
        refused("#####\n#@@ #\n#####\n"),
        refused("; 0\n######\n#@$. #\n######\n\n; 1\n######\n#@$$.#\n######\n"),
        refused("; a\n#####\n#@  #\n#####\n"),
        refused("; b\n#####\n#@* #\n#####\n"),
        refused(&format!("; c\n{row}\n")),
    ];
    insta::assert_snapshot!(errors.join("\n"));
    // Windows line ends, no empty line between levels, no name, no new line at the end.
    let levels = file::parse("######\r\n#+$ *#\r\n######\r\n; 1\n######\n#@$ .#\n######").unwrap();
    let boards: Vec<String> = levels
        .iter()
        .map(|(level, state)| text::key(level, state))
        .collect();
    assert_eq!(boards, ["######/#SX_V#/######", "######/#PX_O#/######"]);
}
