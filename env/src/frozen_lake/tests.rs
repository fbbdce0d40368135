//! Frozen Lake compared with Gymnasium's tables (`fixtures/golden/frozen_lake.json`, `fixtures/golden/lake_optima.json`).

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};

use serde_json::json;

use super::map::LakeCell;
use super::*;
use crate::options::LONGEST_SIDE;

#[derive(Deserialize)]
struct GoldenLakes {
    maps: Vec<GoldenMap>,
}

/// The outcomes by state and action: probability, next state, reward, over.
type TransitionTable = Vec<[Vec<(f64, usize, f64, bool)>; 4]>;

#[derive(Deserialize)]
struct GoldenMap {
    map: Vec<String>,
    firm: TransitionTable,
    slippery: TransitionTable,
    within_20_steps_firm: GoldenChances,
    within_20_steps_slippery: GoldenChances,
}

#[derive(Deserialize)]
struct GoldenChances {
    best: f64,
    random: f64,
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/golden");
    let text = std::fs::read_to_string(format!("{golden}/{name}")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns every golden map, firm and slippery, with its table and chances.
fn golden() -> Vec<(Arc<Lake>, TransitionTable, GoldenChances)> {
    let golden: GoldenLakes = read("frozen_lake.json");
    let lake = |rows: &[String], slippery| lake(rows, slippery, 20);
    let both = golden.maps.into_iter().flat_map(|golden| {
        [
            (
                lake(&golden.map, false),
                golden.firm,
                golden.within_20_steps_firm,
            ),
            (
                lake(&golden.map, true),
                golden.slippery,
                golden.within_20_steps_slippery,
            ),
        ]
    });
    both.collect()
}

fn lake(rows: &[String], slippery: bool, step_limit: usize) -> Arc<Lake> {
    let options = json!({ "slippery": slippery, "step_limit": step_limit });
    let (options, _) = LakeOptions::checked(&options).unwrap();
    let map = LakeMap::parse(rows, LONGEST_SIDE).unwrap();
    Arc::new(Lake::new(map, Arc::new(options)))
}

fn distances(map: &LakeMap) -> Vec<Option<usize>> {
    map.distances_to(LakeCell::Goal, LakeCell::is_ice)
}

fn walk(lake: &Arc<Lake>, player: usize, luck: u64) -> LakeEpisode {
    LakeEpisode {
        lake: lake.clone(),
        player,
        steps: 0,
        won: false,
        paid: false,
        luck: Stream::new(luck, SLIPS),
    }
}

/// Plays every action in every state, on slippery ice many times, and compares the frequencies of next states.
#[test]
fn playing_follows_the_golden_transition_tables() {
    for (lake, table, _) in golden() {
        let tries = if lake.options.slippery { 1000 } else { 1 };
        let on_ice = |state: &usize| lake.map.cells[*state] == LakeCell::Ice;
        for state in (0..lake.map.cells.len()).filter(on_ice) {
            for (action, outcomes) in table[state].iter().enumerate() {
                let mut expected = vec![0.0; lake.map.cells.len()];
                let mut seen = vec![0.0; lake.map.cells.len()];
                for &(probability, next, ..) in outcomes {
                    expected[next] += probability;
                }
                for luck in 0..tries {
                    let mut walk = walk(&lake, state, luck);
                    let outcome = walk.play(&[Some(action)]).unwrap()[0];
                    seen[walk.player] += 1.0 / tries as f64;
                    let same = |&&(_, next, reward, over): &&_| {
                        (walk.player, outcome) == (next, Outcome { reward, over })
                    };
                    assert!(
                        outcomes.iter().any(|golden| same(&golden)),
                        "{state} {action}: {outcome:?}"
                    );
                }
                for (seen, expected) in seen.iter().zip(&expected) {
                    // The standard deviation of a frequency near 1/3 over 1000 tries is 0.015; firm ice is exact.
                    let tolerance = if lake.options.slippery { 0.075 } else { 0.0 };
                    assert!(
                        (seen - expected).abs() <= tolerance,
                        "{state} {action}: {seen} against {expected}"
                    );
                }
            }
        }
    }
}

/// Returns the probability to reach the goal within 20 steps for a player that draws evenly from `choices`.
fn chance_within_20(lake: &Arc<Lake>, choices: impl Fn(usize, usize) -> Vec<usize>) -> f64 {
    let map = &lake.map;
    let mut chances: Vec<f64> = (0..map.cells.len())
        .map(|cell| f64::from(u8::from(map.cells[cell] == LakeCell::Goal)))
        .collect();
    for left in 1..=20 {
        let chance = |cell| {
            if map.cells[cell] != LakeCell::Ice {
                return chances[cell];
            }
            let ways = |action| {
                if lake.options.slippery {
                    map::slips(action).to_vec()
                } else {
                    vec![action]
                }
            };
            let through = |action| {
                mean(
                    ways(action)
                        .into_iter()
                        .map(|way| chances[map.neighbour(cell, way)]),
                )
            };
            mean(choices(cell, left).into_iter().map(through))
        };
        chances = (0..map.cells.len()).map(chance).collect();
    }
    chances[map.start]
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Tolerance: rounding of sums in another order.
#[test]
fn the_random_and_the_scripted_player_have_the_golden_chances() {
    for (lake, _, chances) in golden() {
        let random = chance_within_20(&lake, |_, _| vec![0, 1, 2, 3]);
        let scripted = chance_within_20(&lake, |cell, left| {
            let mut walk = walk(&lake, cell, 0);
            walk.steps = 20 - left;
            walk.best_actions(0).unwrap()
        });
        assert!(
            (random - chances.random).abs() < 1e-12,
            "random: {random} against {}",
            chances.random
        );
        assert!(
            (scripted - chances.best).abs() < 1e-9,
            "scripted: {scripted} against {}",
            chances.best
        );
    }
}

#[derive(Deserialize)]
struct Optima {
    cases: Vec<OptimaOfMap>,
}

#[derive(Deserialize)]
struct OptimaOfMap {
    map: Vec<String>,
    slippery: bool,
    optimum_by_horizon: BTreeMap<usize, f64>,
}

/// Both for a step limit of the horizon, and for a longer one with as many steps left. Tolerance: as above.
#[test]
fn the_optima_are_the_golden_ones() {
    let optima: Optima = read("lake_optima.json");
    assert_eq!(optima.cases.len(), 16);
    for case in &optima.cases {
        for (&horizon, golden) in &case.optimum_by_horizon {
            for step_limit in [horizon, 200] {
                let lake = lake(&case.map, case.slippery, step_limit);
                let mut walk = walk(&lake, lake.map.start, 0);
                walk.steps = step_limit - horizon;
                let optimum = walk.optimum(0).unwrap();
                assert!(
                    (optimum - golden).abs() < 1e-12,
                    "{:?} within {horizon}: {optimum} against {golden}",
                    case.map
                );
            }
        }
    }
}

#[test]
fn drawn_maps_can_be_solved_and_are_frozen_as_asked() {
    let mut ice = 0;
    for seed in 0..2000 {
        let map = LakeMap::draw(8, 6, 0.9, &mut Stream::new(seed, "test"));
        assert!(distances(&map)[map.start].is_some(), "{:?}", map.rows());
        assert_eq!((map.start, map.cells[47]), (0, LakeCell::Goal));
        ice += (1..47)
            .filter(|&cell| map.cells[cell] == LakeCell::Ice)
            .count();
    }
    // Slightly above 0.9, because maps with many holes are drawn again.
    let frozen = ice as f64 / (2000.0 * 46.0);
    assert!((0.897..0.912).contains(&frozen), "{frozen}");
}

/// With this little ice no draw succeeds, and a path is cleared.
#[test]
fn a_hopeless_map_gets_a_path() {
    let map = LakeMap::draw(20, 10, 0.01, &mut Stream::new(5, "test"));
    assert_eq!(distances(&map)[map.start], Some(28));
}

#[test]
fn rows_read_back_as_the_same_map() {
    let map = LakeMap::draw(5, 7, 0.8, &mut Stream::new(5, "test"));
    assert_eq!(
        LakeMap::parse(&map.rows(), LONGEST_SIDE).unwrap().rows(),
        map.rows()
    );
}

/// Returns the highest expected return by trying everything.
fn by_trying(lake: &Lake, cell: usize, step: usize) -> f64 {
    if !lake.map.cells[cell].is_ice() || step > lake.options.step_limit {
        return 0.0;
    }
    let after = |way| {
        let there = lake.map.neighbour(cell, way);
        lake.options.reward(lake.map.cells[there], step) + by_trying(lake, there, step + 1)
    };
    let ways = |action| match lake.options.slippery {
        true => map::slips(action).to_vec(),
        false => vec![action],
    };
    let returns = (0..4).map(|action| mean(ways(action).into_iter().map(after)));
    returns.fold(f64::NEG_INFINITY, f64::max)
}

/// Checks for every task, slippery and firm, the optimum in each state and the worth of each best action.
#[test]
fn plans_are_exact_for_every_task() {
    for task in [
        json!({}),
        json!({ "red": 2 }),
        json!({ "exact": 4 }),
        json!({ "exact": 3, "red": 1 }),
        json!({ "target": "holes" }),
        json!({ "target": "holes", "red": 1 }),
    ] {
        for slippery in [false, true] {
            let mut options = task.clone();
            options["slippery"] = json!(slippery);
            options["step_limit"] = json!(5);
            let (options, _) = LakeOptions::checked(&options).unwrap();
            let rows = ["SFF", "FFH", "FFG"].map(str::to_owned);
            let mut map = LakeMap::parse(&rows, LONGEST_SIDE).unwrap();
            map.redden(options.red, &mut Stream::new(1, "test"));
            let lake = Arc::new(Lake::new(map, Arc::new(options)));
            for cell in (0..9).filter(|&cell| lake.map.cells[cell].is_ice()) {
                for steps in 0..5 {
                    let mut walk = walk(&lake, cell, 0);
                    walk.steps = steps;
                    let optimum = walk.optimum(0).unwrap();
                    let reference = by_trying(&lake, cell, steps + 1);
                    assert!((optimum - reference).abs() < 1e-9, "{task} {cell} {steps}");
                    for action in walk.best_actions(0).unwrap() {
                        let ways = if slippery {
                            map::slips(action).to_vec()
                        } else {
                            vec![action]
                        };
                        let after = |way| {
                            let there = lake.map.neighbour(cell, way);
                            lake.options.reward(lake.map.cells[there], steps + 1)
                                + by_trying(&lake, there, steps + 2)
                        };
                        let worth = mean(ways.into_iter().map(after));
                        assert!((worth - optimum).abs() < 1e-9, "{task} {cell} {steps}");
                    }
                }
            }
        }
    }
}

#[test]
fn red_ice_leaves_a_way_and_is_as_much_as_was_asked_for() {
    for seed in 0..200 {
        let mut map = LakeMap::draw(4, 4, 0.8, &mut Stream::new(seed, "test"));
        let before = map.clone();
        map.redden(4, &mut Stream::new(seed, "red"));
        let red = map.cells_of(LakeCell::Red).count();
        let white = map.distances_to(LakeCell::Goal, |cell| cell == LakeCell::Ice);
        assert!(white[map.start].is_some(), "{:?}", map.rows());
        assert!(
            red == 4 || before.cells_of(LakeCell::Ice).count() < 12,
            "{red} in {:?}",
            map.rows()
        );
        assert_eq!(
            map.rows().concat().replace('R', "F"),
            before.rows().concat()
        );
    }
}
