//! Advantages compared with golden numbers, by properties, and on a game small enough to compute every expectation exactly.

use lapwing_play::Turn;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::batch::EpisodeAdvantage;
use crate::config::{AdvantageEstimator, CreditConfig as How};
use crate::ms_grpo::advantages;

const EPISODE: How = How {
    method: AdvantageEstimator::Episode,
    normalise: AdvantageScale::Std,
    gamma: 0.95,
    lambda: 0.95,
    omega: 1.0,
};

/// An episode of these states and rewards.
fn episode<S: ToString>(turns: &[(S, f64)]) -> Episode {
    let turn = |(state, reward): &(S, f64)| Turn {
        key: state.to_string(),
        reward: *reward,
        ..Turn::default()
    };
    Episode {
        turns: turns.iter().map(turn).collect(),
        ..Episode::default()
    }
}

fn rewards(rewards: &[f64]) -> Episode {
    let turns: Vec<(usize, f64)> = rewards.iter().copied().enumerate().collect();
    episode(&turns)
}

fn group_of(episodes: &[Episode]) -> Group {
    Group {
        episodes: episodes.to_vec(),
        ..Group::default()
    }
}

fn of_groups(
    how: &How,
    groups: &[&[Episode]],
    values: &[&[Vec<f64>]],
) -> Vec<Vec<EpisodeAdvantage>> {
    let mut groups: Vec<Group> = groups.iter().map(|group| group_of(group)).collect();
    for (group, values) in groups.iter_mut().zip(values) {
        group.values = values.to_vec();
    }
    let of_episodes = |group: Vec<_>| group.into_iter().map(EpisodeAdvantage::new).collect();
    advantages(how, &groups)
        .into_iter()
        .map(of_episodes)
        .collect()
}

/// Of a single group.
fn with_values(how: &How, group: &[Episode], values: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let group = Group {
        values,
        ..group_of(group)
    };
    with_critic(how, &[group]).remove(0)
}

fn of_group(how: &How, group: &[Episode]) -> Vec<EpisodeAdvantage> {
    of_groups(how, &[group], &[]).remove(0)
}

fn turns(how: &How, group: &[Episode]) -> Vec<Vec<f64>> {
    let credits = of_group(how, group);
    credits.into_iter().map(|credit| credit.turns).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap();
    list.iter().map(|v| v.as_f64().unwrap()).collect()
}

fn assert_near(got: &[f64], wanted: &[f64], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (a, b) in got.iter().zip(wanted) {
        assert!((a - b).abs() < 1e-9, "{what}: {a} against {b}");
    }
}

#[test]
fn advantages_of_episodes_are_the_golden_ones() {
    let text = include_str!("../../../../fixtures/golden/advantages.json");
    let golden: Value = serde_json::from_str(text).unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let returns = numbers(&case["returns"]);
        let group: Vec<Episode> = returns.iter().map(|c| rewards(&[*c])).collect();
        let got = turns(&EPISODE, &group).concat();
        assert_near(&got, &numbers(&case["advantages"]), "episode");
    }
}

#[test]
fn advantages_of_turns_are_the_golden_ones() {
    let text = include_str!("../../../../fixtures/golden/credit.json");
    let golden: Value = serde_json::from_str(text).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 24);
    for case in cases {
        let number = |key: &str| case[key].as_f64().unwrap();
        let how = How {
            normalise: AdvantageScale::Mean,
            gamma: number("gamma"),
            lambda: number("lambda"),
            omega: number("omega"),
            ..EPISODE
        };
        let (mut group, mut values) = (Vec::new(), Vec::new());
        for one in case["episodes"].as_array().unwrap() {
            let states = numbers(&one["states"]).into_iter();
            let turns: Vec<(f64, f64)> = states.zip(numbers(&one["rewards"])).collect();
            group.push(episode(&turns));
            let after = one["value_after"].as_f64().unwrap();
            values.push([numbers(&one["values"]), vec![after]].concat());
        }
        let with = |method| How {
            method,
            ..how.clone()
        };
        let check = |got: Vec<Vec<f64>>, key: &str| {
            for (got, wanted) in got.iter().zip(case[key].as_array().unwrap()) {
                assert_near(got, &numbers(wanted), key);
            }
        };
        // Zero values and lambda 1: the return to go, plus the value after a truncation.
        let nothing = |values: &Vec<f64>| {
            let mut nothing = vec![0.0; values.len()];
            nothing[values.len() - 1] = values[values.len() - 1];
            nothing
        };
        let nothing: Vec<_> = values.iter().map(nothing).collect();
        let to_the_end = How {
            lambda: 1.0,
            ..how.clone()
        };
        check(with_values(&to_the_end, &group, nothing), "return_to_go");
        check(with_values(&how, &group, values), "gae");
        check(
            turns(&with(AdvantageEstimator::Gigpo), &group),
            "gigpo_mean",
        );
        let scaled = How {
            normalise: AdvantageScale::Std,
            ..with(AdvantageEstimator::Gigpo)
        };
        check(turns(&scaled, &group), "gigpo_mean_std");
        // RLOO compares with the mean of the others, which is n / (n - 1) times as far away.
        let n = group.len() as f64;
        let own = of_group(&with(AdvantageEstimator::Episode), &group);
        let rloo: Vec<f64> = own.iter().map(|it| n / (n - 1.0) * it.mean).collect();
        assert_near(&rloo, &numbers(&case["rloo"]), "rloo");
    }
}

/// Two episodes share the state `here`, and one of them returns more from there.
#[test]
fn gigpo_by_hand() {
    let group = [
        episode(&[("start", 0.0), ("here", 1.0)]),
        episode(&[("elsewhere", 0.0), ("here", 0.0), ("alone", 0.0)]),
    ];
    let how = How {
        method: AdvantageEstimator::Gigpo,
        normalise: AdvantageScale::Mean,
        gamma: 0.5,
        omega: 2.0,
        ..EPISODE
    };
    // C: 1 and 0. R in `here`: 1 and 0. All other states occur once.
    assert_eq!(
        turns(&how, &group),
        [
            vec![0.5, 0.5 + 2.0 * 0.5],
            vec![-0.5, -0.5 - 2.0 * 0.5, -0.5]
        ]
    );
}

/// An episode of these states, actions and rewards.
fn played(turns: &[(&str, usize, f64)]) -> Episode {
    let states: Vec<_> = turns
        .iter()
        .map(|(state, _, reward)| (*state, *reward))
        .collect();
    let mut episode = episode(&states);
    for (turn, (_, action, _)) in episode.turns.iter_mut().zip(turns) {
        turn.action = Some(*action);
    }
    episode
}

const PLANNING: How = How {
    method: AdvantageEstimator::Planning,
    normalise: AdvantageScale::Mean,
    gamma: 0.5,
    ..EPISODE
};

/// Both ways lead `here`, from where one action is worth 1, the other in one of two cases. So the ways are worth the same,
/// though one of them was followed by the better returns.
#[test]
fn planning_by_hand() {
    let group = [
        played(&[("start", 0, 0.0), ("here", 0, 1.0)]),
        played(&[("start", 0, 0.0), ("here", 1, 1.0)]),
        played(&[("start", 1, 0.0), ("here", 1, 0.0)]),
        played(&[("start", 2, 0.0), ("alone", 0, 0.25)]),
    ];
    // Q in `here`: 1, 0.5 and 0.5. Q at the start: 0.5, 0.5, 0.5 and 0.125.
    let (here, start) = (2.0 / 3.0, 0.40625);
    let wanted = [
        [0.5 - start, 1.0 - here],
        [0.5 - start, 0.5 - here],
        [0.5 - start, 0.5 - here],
        [0.125 - start, 0.0],
    ];
    for (got, wanted) in turns(&PLANNING, &group).iter().zip(&wanted) {
        assert_near(got, wanted, "planning");
    }
}

#[test]
fn returns_that_differ_by_rounding_are_equal_and_no_others_are() {
    // Two apples, eaten early or late.
    let eaten = |at: [usize; 2]| -> Vec<f64> {
        (0..20)
            .map(|turn| if at.contains(&turn) { 0.99 } else { -0.01 })
            .collect()
    };
    let (early, late) = (rewards(&eaten([0, 1])), rewards(&eaten([8, 10])));
    assert_ne!(early.composite_return(), late.composite_return());
    let credits = of_group(&EPISODE, &[early.clone(), late.clone(), early.clone()]);
    assert!(
        credits.iter().all(|credit| credit.mean == 0.0),
        "{credits:?}"
    );
    // A millionth of a point is more than rounding.
    let more = rewards(&[eaten([0, 1]), vec![1e-6]].concat());
    let credits = of_group(&EPISODE, &[early, late, more]);
    // Hardly more than the 1e-6 in the divisor, so not a full standard deviation.
    assert!(credits[2].mean > 0.1, "{credits:?}");
    assert_eq!(credits[2].turns, vec![credits[2].mean; 21]);
}

/// With `std` groups of different spread count alike; with `batch` the wider one counts more.
#[test]
fn a_batch_has_one_standard_deviation() {
    let narrow = [rewards(&[0.0]), rewards(&[1.0])];
    let wide = [rewards(&[0.0]), rewards(&[10.0])];
    let of = |normalise| {
        let how = How {
            normalise,
            ..EPISODE
        };
        let credits = of_groups(&how, &[&narrow, &wide], &[]);
        (credits[0][1].mean, credits[1][1].mean)
    };
    let (a, b) = of(AdvantageScale::Std);
    assert!((a - b).abs() < 1e-5 && a > 0.7, "{a} {b}");
    assert_eq!(of(AdvantageScale::Mean), (0.5, 5.0));
    // Deviations are -0.5, 0.5, -5 and 5.
    let spread = (2.0 * (0.25 + 25.0) / 3.0f64).sqrt() + 1e-6;
    assert_eq!(of(AdvantageScale::Batch), (0.5 / spread, 5.0 / spread));
}

fn groups() -> impl Strategy<Value = Vec<Vec<(u8, f64)>>> {
    let turn = (0u8..4, -3.0f64..3.0);
    proptest::collection::vec(proptest::collection::vec(turn, 1..8), 2..9)
}

fn built(group: &[Vec<(u8, f64)>]) -> Vec<Episode> {
    group.iter().map(|turns| episode(turns)).collect()
}

const NORMALISATIONS: [AdvantageScale; 3] = [
    AdvantageScale::Std,
    AdvantageScale::Mean,
    AdvantageScale::Batch,
];

/// The format penalty counts as a reward of its turn.
#[test]
fn a_penalty_is_part_of_its_turns_reward() {
    let (plain, mut shaped) = ([[1.0, -0.5, 2.0], [0.0, 1.0, 1.0]], Vec::new());
    for rewards_of in plain {
        let mut episode = rewards(&rewards_of);
        for (turn, shaping) in episode.turns.iter_mut().zip([-1.0, 0.0, 0.25]) {
            turn.reward -= shaping;
            turn.shaping = shaping;
        }
        shaped.push(episode);
    }
    let group = plain.map(|rewards_of| rewards(&rewards_of));
    let values: Vec<Vec<f64>> = vec![vec![0.3, 0.2, 0.1, 0.0]; 2];
    for method in [
        AdvantageEstimator::Episode,
        AdvantageEstimator::Gigpo,
        AdvantageEstimator::Planning,
        AdvantageEstimator::Critic,
    ] {
        let how = How { method, ..EPISODE };
        let of = |group: &[Episode]| -> Vec<f64> {
            let credits = of_groups(&how, &[group], &[&values]).remove(0);
            credits
                .into_iter()
                .flat_map(|credit| credit.turns)
                .collect()
        };
        assert_near(&of(&shaped), &of(&group), &format!("{method:?}"));
    }
}

proptest! {
    #[test]
    fn advantages_of_a_group_sum_to_zero_and_ignore_a_shift(
        returns in proptest::collection::vec(-4i32..4, 2..50), shift in -8i32..8,
    ) {
        // Whole numbers, so that the shift is exact.
        let of = |shift: i32| -> Vec<f64> {
            let group: Vec<Episode> = returns.iter().map(|c| rewards(&[f64::from(c + shift)])).collect();
            turns(&EPISODE, &group).concat()
        };
        let got = of(0);
        prop_assert!(got.iter().sum::<f64>().abs() < 1e-9);
        for (a, b) in got.iter().zip(of(shift)) {
            prop_assert!((a - b).abs() < 1e-9);
        }
    }

    /// The order of the rewards does not matter.
    #[test]
    fn equal_returns_have_no_advantage(
        values in proptest::collection::vec(-3.0f64..3.0, 2..60), cut in 1usize..59,
    ) {
        let mut other = values.clone();
        other.rotate_left(cut % values.len());
        let credits = of_group(&EPISODE, &[rewards(&values), rewards(&other)]);
        prop_assert!(credits.iter().all(|credit| credit.weight() == 0.0));
    }

    /// Equal episodes have no advantage with any method.
    #[test]
    fn equal_episodes_have_no_advantage(one in proptest::collection::vec(-3.0f64..3.0, 1..40), n in 2usize..6) {
        let group = vec![rewards(&one); n];
        for method in [AdvantageEstimator::Episode, AdvantageEstimator::Gigpo, AdvantageEstimator::Planning] {
            for normalise in NORMALISATIONS {
                let how = How { method, normalise, ..EPISODE };
                prop_assert!(of_group(&how, &group).iter().all(|credit| credit.weight() == 0.0), "{:?}", method);
            }
        }
    }

    /// In states that no episode meets again, the model is a graph without cycles, and Q follows from the last turn back.
    #[test]
    fn planning_is_dynamic_programming(
        walks in proptest::collection::vec(proptest::collection::vec((0usize..3, 0usize..2, -2.0f64..2.0), 1..6), 1..8),
        gamma in 0.0f64..=1.0,
    ) {
        let name = |t: usize, state: usize| format!("{t} {state}");
        let built = |walk: &Vec<(usize, usize, f64)>| {
            let names: Vec<String> = walk.iter().enumerate().map(|(t, turn)| name(t, turn.0)).collect();
            let turns: Vec<_> = walk.iter().zip(&names).map(|(turn, name)| (name.as_str(), turn.1, turn.2)).collect();
            played(&turns)
        };
        let group: Vec<Episode> = walks.iter().map(built).collect();
        let how = How { gamma, ..PLANNING };
        let got = planned(&how, &group);
        // V of the three states of the next turn.
        let mut next = [0.0; 3];
        for t in (0..5).rev() {
            let mut now = [f64::NEG_INFINITY; 3];
            for (state, action) in (0..3).flat_map(|state| (0..2).map(move |action| (state, action))) {
                let is_it = |walk: &&Vec<(usize, usize, f64)>| walk.get(t).is_some_and(|turn| (turn.0, turn.1) == (state, action));
                let taken: Vec<_> = walks.iter().filter(is_it).collect();
                if taken.is_empty() {
                    continue;
                }
                let worth = |walk: &&Vec<(usize, usize, f64)>| walk[t].2 + gamma * walk.get(t + 1).map_or(0.0, |turn| next[turn.0]);
                let q = taken.iter().map(worth).sum::<f64>() / taken.len() as f64;
                now[state] = q.max(now[state]);
                for (walk, planned) in walks.iter().zip(&got) {
                    if is_it(&walk) {
                        prop_assert!((planned[t].value - q).abs() <= planned[t].error.max(1e-12), "{:?} {}", planned[t], q);
                    }
                }
            }
            next = now;
        }
    }

    /// Bit-identical, and so are the sampling weights.
    #[test]
    fn gigpo_without_states_is_by_episode(group in groups(), gamma in 0.0f64..=1.0) {
        let group = built(&group);
        for normalise in NORMALISATIONS {
            let how = |method| How { method, normalise, omega: 0.0, gamma, ..EPISODE };
            let (state, whole) = (of_group(&how(AdvantageEstimator::Gigpo), &group), of_group(&how(AdvantageEstimator::Episode), &group));
            for (a, b) in state.iter().zip(&whole) {
                prop_assert_eq!(a.weight().to_bits(), b.weight().to_bits());
                prop_assert_eq!(a.mean.to_bits(), b.mean.to_bits());
                let bits = |c: &EpisodeAdvantage| c.turns.iter().map(|a| a.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(a), bits(b));
            }
        }
    }

    /// TD(1) without a table is the return to go.
    #[test]
    fn without_values_it_is_the_return_to_go(group in groups(), gamma in 0.0f64..=1.0) {
        let group = built(&group);
        let nothing: Vec<Vec<f64>> = group.iter().map(|e| vec![0.0; e.turns.len() + 1]).collect();
        let how = How { lambda: 1.0, gamma, normalise: AdvantageScale::Mean, ..EPISODE };
        let got = with_values(&how, &group, nothing);
        for (episode, got) in group.iter().zip(got) {
            for (a, wanted) in got.iter().zip(returns_to_go(episode, gamma)) {
                prop_assert!((a - wanted.value).abs() < 1e-9);
            }
        }
    }
}

/// A game of one or two turns. `stop` in the first turn brings 0.5; `continue` brings 0.3 and a second turn, in which `stop`
/// brings 1 and `continue` -0.4. The policy continues with a fixed probability in each turn.
mod two_turns {
    use super::*;

    /// Probabilities to continue.
    const GO: [f64; 2] = [0.6, 0.3];
    /// The possible episodes: the reward of each turn, and whether it continued.
    const PATHS: [&[(f64, bool)]; 3] = [
        &[(0.5, false)],
        &[(0.3, true), (1.0, false)],
        &[(0.3, true), (-0.4, true)],
    ];

    fn chance(path: &[(f64, bool)]) -> f64 {
        let turn = |(t, (_, went)): (usize, &(f64, bool))| if *went { GO[t] } else { 1.0 - GO[t] };
        path.iter().enumerate().map(turn).product()
    }

    /// d log probability / d logit of `continue`.
    fn score(turn: usize, went: bool) -> f64 {
        f64::from(u8::from(went)) - GO[turn]
    }

    /// The gradient of the expected return: the sum over paths of probability, return and scores.
    fn truth() -> [f64; 2] {
        let mut gradient = [0.0; 2];
        for path in PATHS {
            let value: f64 = path.iter().map(|(reward, _)| reward).sum();
            for (t, (_, went)) in path.iter().enumerate() {
                gradient[t] += chance(path) * value * score(t, *went);
            }
        }
        gradient
    }

    /// The expectation of an estimator over all groups of this size.
    fn expected(size: u32, advantages: &dyn Fn(&[Episode]) -> Vec<Vec<f64>>) -> [f64; 2] {
        let mut gradient = [0.0; 2];
        for number in 0..3usize.pow(size) {
            let paths: Vec<_> = (0..size)
                .map(|member| PATHS[number / 3usize.pow(member) % 3])
                .collect();
            let named =
                |path: &&[(f64, bool)]| rewards(&path.iter().map(|(r, _)| *r).collect::<Vec<_>>());
            let group: Vec<Episode> = paths.iter().map(named).collect();
            let weight: f64 =
                paths.iter().map(|path| chance(path)).product::<f64>() / f64::from(size);
            for (path, advantages) in paths.iter().zip(advantages(&group)) {
                for (t, (_, went)) in path.iter().enumerate() {
                    gradient[t] += weight * advantages[t] * score(t, *went);
                }
            }
        }
        gradient
    }

    fn of(
        method: AdvantageEstimator,
        normalise: AdvantageScale,
        lambda: f64,
        size: u32,
    ) -> [f64; 2] {
        let how = How {
            method,
            normalise,
            gamma: 1.0,
            lambda,
            omega: 1.0,
        };
        expected(size, &|group| turns(&how, group))
    }

    fn values(worth: [f64; 2], group: &[Episode]) -> Vec<Vec<f64>> {
        let of = |e: &Episode| [&worth[..e.turns.len()], &[0.0]].concat();
        group.iter().map(of).collect()
    }

    fn critic(worth: [f64; 2], lambda: f64) -> [f64; 2] {
        let how = How {
            normalise: AdvantageScale::Mean,
            gamma: 1.0,
            lambda,
            ..EPISODE
        };
        let advantages = |group: &[Episode]| with_values(&how, group, values(worth, group));
        expected(2, &advantages)
    }

    fn assert_is(got: [f64; 2], wanted: [f64; 2]) {
        let near = (0..2).all(|i| (got[i] - wanted[i]).abs() < 1e-12);
        assert!(near, "{got:?} against {wanted:?}");
    }

    /// Comparing with a mean that includes the episode itself only shrinks the true gradient.
    #[test]
    fn whole_episodes_have_the_right_direction() {
        let truth = truth();
        for size in [2, 3, 4] {
            let shrunk = f64::from(size - 1) / f64::from(size);
            assert_is(
                of(AdvantageEstimator::Episode, AdvantageScale::Mean, 1.0, size),
                truth.map(|g| shrunk * g),
            );
        }
    }

    /// True values are unbiased for every lambda, wrong values for lambda 1.
    #[test]
    fn a_critic_is_unbiased_if_it_is_right_or_lambda_is_1() {
        let second = GO[1] * -0.4 + (1.0 - GO[1]);
        let first = GO[0] * (0.3 + second) + (1.0 - GO[0]) * 0.5;
        for lambda in [0.0, 0.5, 1.0] {
            assert_is(critic([first, second], lambda), truth());
        }
        assert_is(critic([7.0, -3.0], 1.0), truth());
        let wrong = critic([7.0, -3.0], 0.0);
        assert!(wrong[0] < 0.0 && truth()[0] > 0.0, "{wrong:?}");
    }

    /// In a state of k of the n episodes, the advantage over the mean of those k is too small by the factor 1 - 1 / k, so the
    /// second turn has a smaller gradient. On average over k, (n p - 1 + (1 - p)^n) / n is left of p.
    #[test]
    fn states_of_few_episodes_have_too_small_gradients() {
        let (truth, p) = (truth(), GO[0]);
        for size in [2, 3, 4] {
            let n = f64::from(size);
            let first = (n - 1.0) / n;
            let second = (n * p - 1.0 + (1.0 - p).powi(size as i32)) / (n * p);
            let by_state = [first * truth[0], second * truth[1]];
            assert!(second < first);
            let whole = truth.map(|g| first * g);
            let both = [whole[0] + by_state[0], whole[1] + by_state[1]];
            assert_is(
                of(AdvantageEstimator::Gigpo, AdvantageScale::Mean, 1.0, size),
                both,
            );
        }
    }

    /// Dividing by the group's own standard deviation, which depends on each return, changes the gradient's direction.
    #[test]
    fn a_standard_deviation_of_the_group_is_biased() {
        let (truth, got) = (
            truth(),
            of(AdvantageEstimator::Episode, AdvantageScale::Std, 1.0, 3),
        );
        let ratio = |g: [f64; 2]| g[1] / g[0];
        assert!(
            (ratio(got) - ratio(truth)).abs() > 0.05 * ratio(truth).abs(),
            "{got:?} against {truth:?}"
        );
    }

    /// The bias of verl#7244: with rewards centred on the mean of the episodes that reach a turn, continuing pays by itself. No
    /// method here does that; this shows that the test would detect it.
    #[test]
    fn a_mean_over_the_turns_with_the_same_number_is_biased() {
        let naive = |group: &[Episode]| -> Vec<Vec<f64>> {
            let mean = |t: usize| {
                let there: Vec<f64> = group
                    .iter()
                    .filter_map(|e| Some(e.turns.get(t)?.reward))
                    .collect();
                there.iter().sum::<f64>() / there.len() as f64
            };
            let whole = |e: &Episode| {
                let standing: f64 = e
                    .turns
                    .iter()
                    .enumerate()
                    .map(|(t, turn)| turn.reward - mean(t))
                    .sum();
                vec![standing; e.turns.len()]
            };
            group.iter().map(whole).collect()
        };
        let (truth, got) = (truth(), expected(3, &naive));
        let fair = truth.map(|g| 2.0 / 3.0 * g);
        assert!((got[0] - fair[0]).abs() > 0.02, "{got:?} against {fair:?}");
    }
}
