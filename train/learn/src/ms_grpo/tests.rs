//! Selection, minibatches and the entropy band.

use std::collections::HashSet;

use lapwing_play::Seat;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::testing::TestSettings;

proptest! {
    /// For example, nine episodes in eight minibatches are eight updates.
    #[test]
    fn there_are_as_many_minibatches_as_configured(episodes in 0usize..60, wanted in 1usize..12) {
        let order: Vec<usize> = (0..episodes).collect();
        let parts: Vec<&[usize]> = parts(&order, wanted).collect();
        prop_assert_eq!(parts.len(), wanted.min(episodes));
        prop_assert_eq!(parts.concat(), &order[..]);
        let lengths = || parts.iter().map(|part| part.len());
        prop_assert!(lengths().max().unwrap_or(0) <= lengths().min().unwrap_or(0) + 1);
    }
}

#[test]
fn minibatches_of_two_groups_or_more_keep_their_episodes_together() {
    let group = |scene| {
        let mut group = Group {
            episodes: vec![Episode::default(); 4],
            ..Group::default()
        };
        (group.scene, group.selected) = (scene, vec![0, 1, 3]);
        let equal = || EpisodeAdvantage::new(vec![scene as f64]);
        group.advantages = (0..4).map(|_| equal()).collect();
        group
    };
    let groups: Vec<Group> = (0..6).map(group).collect();
    let order = |minibatches, step| -> Vec<f64> {
        let train = TrainConfig {
            minibatches,
            ..TrainConfig::default()
        };
        let ordered = ordered(&groups, &train, [step, 0]);
        ordered.iter().map(|one| one.advantages[0]).collect()
    };
    let by_number: Vec<f64> = (0..18).map(|i| f64::from(i / 3)).collect();
    assert_eq!(order(1, 0), by_number);
    let runs = |order: &[f64]| order.chunk_by(|a, b| a == b).count();
    let two_groups_each = order(3, 0);
    assert_eq!(runs(&two_groups_each), 6, "{two_groups_each:?}");
    let fewer_groups = order(4, 0);
    assert!(runs(&fewer_groups) > 6, "{fewer_groups:?}");
    for mut shuffled in [two_groups_each, fewer_groups] {
        assert_ne!(shuffled, by_number);
        shuffled.sort_by(f64::total_cmp);
        assert_eq!(shuffled, by_number);
    }
    assert_ne!(order(3, 0), order(3, 1));
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect()
}

#[test]
fn frequencies_match_the_golden_probabilities() {
    const DRAWS: usize = 20_000;
    let golden = include_str!("../../../../fixtures/golden/aaw.json");
    let golden: Value = serde_json::from_str(golden).unwrap();
    for (number, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let temperature = case["temperature"].as_f64().unwrap();
        let advantages = numbers(&case["advantages"]).into_iter();
        // The weights are softmax(|A| / temperature) there.
        let advantages: Vec<f64> = advantages.map(|a| a / temperature).collect();
        let train = TrainConfig {
            learn: case["sample"].as_u64().unwrap() as usize,
            ..TrainConfig::default()
        };
        let mut counts = vec![0usize; advantages.len()];
        let mut chance = Stream::new(number as u64, "frequencies");
        for _ in 0..DRAWS {
            for i in sampled(&train, &advantages, &mut chance) {
                counts[i] += 1;
            }
        }
        for (count, wanted) in counts.iter().zip(numbers(&case["inclusion"])) {
            // Five standard deviations of a frequency are at most 5 * 0.5 / sqrt(20,000).
            assert!(
                (*count as f64 / DRAWS as f64 - wanted).abs() < 0.018,
                "{counts:?} in {case}"
            );
        }
    }
}

proptest! {
    #[test]
    fn a_draw_is_distinct_complete_and_repeatable(
        advantages in proptest::collection::vec(-5.0f64..5.0, 1..60), share in 0.0f64..1.0, seed: u64,
    ) {
        let count = (share * advantages.len() as f64) as usize;
        let draw = || draw(advantages.iter().map(|a| a.abs()), count, &mut Stream::new(seed, "draw"));
        let drawn = draw();
        prop_assert_eq!(drawn.len(), count);
        prop_assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(drawn.iter().all(|i| *i < advantages.len()));
        prop_assert_eq!(drawn, draw());
    }

    /// With the same random numbers, an episode that is drawn is also drawn with a larger absolute advantage.
    #[test]
    fn a_larger_absolute_advantage_is_never_less_likely(
        advantages in proptest::collection::vec(-3.0f64..3.0, 2..12), more in 0.0f64..3.0, seed: u64,
    ) {
        let train = TrainConfig { learn: advantages.len() / 2, ..TrainConfig::default() };
        let drawn = |advantages: &[f64]| sampled(&train, advantages, &mut Stream::new(seed, "choose"));
        for i in drawn(&advantages) {
            let mut larger = advantages.clone();
            larger[i] += more.copysign(larger[i]);
            prop_assert!(drawn(&larger).contains(&i), "{:?}", larger);
        }
    }
}

/// Selects among episodes whose returns are their advantages.
fn sampled(train: &TrainConfig, advantages: &[f64], random: &mut Stream) -> Vec<usize> {
    let returns = advantages.iter().map(|value| Return {
        value: *value,
        error: 0.0,
    });
    sample(train, advantages, &returns.collect::<Vec<_>>(), random)
}

proptest! {
    #[test]
    fn every_sampling_selects_distinct_episodes(
        advantages in proptest::collection::vec(-3.0f64..3.0, 1..40), learn in 1usize..50, seed: u64,
        scale in -2.0f64..4.0,
    ) {
        let advantages: Vec<f64> = advantages.iter().map(|a| a * 10f64.powf(scale)).collect();
        for sampling in [Sampling::All, Sampling::Top, Sampling::Variance, Sampling::Uniform, Sampling::Aaw] {
            let train = TrainConfig { learn, sampling, ..TrainConfig::default() };
            let mut chosen = sampled(&train, &advantages, &mut Stream::new(seed, "choose"));
            let wanted = if sampling == Sampling::All { advantages.len() } else { learn.min(advantages.len()) };
            prop_assert!(chosen.iter().all(|i| *i < advantages.len()));
            // Only neighbours are compared.
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), wanted);
        }
    }
}

/// Of these advantages all weights but the first are below what f64 can hold. They must still decide the second draw; the third
/// is random.
#[test]
fn very_small_weights_still_count() {
    let advantages = [500.0, -3000.0, 1500.0, 500.0, 500.0];
    let train = TrainConfig {
        learn: 3,
        ..TrainConfig::default()
    };
    let mut thirds = [0; 5];
    for seed in 0..3000 {
        let chosen = sampled(&train, &advantages, &mut Stream::new(seed, "choose"));
        assert!(chosen.contains(&1) && chosen.contains(&2), "{chosen:?}");
        chosen.into_iter().for_each(|i| thirds[i] += 1);
    }
    // A third of 3000 each, with a standard deviation of 26; five of them.
    for third in [0, 3, 4] {
        assert!((870..1130).contains(&thirds[third]), "{thirds:?}");
    }
}

#[test]
fn the_learning_rate_rises_and_falls() {
    let train = TrainConfig {
        lr: 1.0,
        lr_end: 0.2,
        warmup: 1,
        steps: 4,
        ..TrainConfig::default()
    };
    // Past the last step it stays.
    for (step, wanted) in [(0, 0.5), (1, 0.8), (2, 0.6), (3, 0.4), (9, 0.2)] {
        let lr = train.lr_at(step);
        assert!((lr - wanted).abs() < 1e-12, "{lr} in step {step}");
    }
}

#[test]
fn top_takes_the_largest_absolute_advantages() {
    let train = TrainConfig {
        learn: 2,
        sampling: Sampling::Top,
        ..TrainConfig::default()
    };
    let chosen = sampled(
        &train,
        &[0.5, -2.0, 1.0, -0.1],
        &mut Stream::new(0, "choose"),
    );
    assert_eq!(chosen, [1, 2]);
}

/// Compared with all subsets.
#[test]
fn the_variance_of_the_selected_returns_is_the_largest() {
    let mut random = Stream::new(1, "returns");
    for _ in 0..200 {
        let values: Vec<f64> = (0..7).map(|_| random.below(5) as f64).collect();
        let learn = 1 + random.below(7);
        let train = TrainConfig {
            learn,
            sampling: Sampling::Variance,
            ..TrainConfig::default()
        };
        let spread = |places: &[usize]| {
            let mean = places.iter().map(|i| values[*i]).sum::<f64>() / places.len() as f64;
            let squares = places.iter().map(|i| (values[*i] - mean).powi(2));
            squares.sum::<f64>()
        };
        let chosen = sampled(&train, &values, &mut random);
        let subsets = (0u32..1 << 7).filter(|set| set.count_ones() as usize == learn);
        let best = subsets.map(|set| {
            let places: Vec<usize> = (0..7).filter(|i| set >> i & 1 == 1).collect();
            spread(&places)
        });
        let best = best.fold(0.0, f64::max);
        assert!(
            (spread(&chosen) - best).abs() < 1e-9,
            "{values:?}: {chosen:?}"
        );
    }
}

/// With `retry = 1` all unsolved scenes of a world are retried before new ones are played, until all episodes of a retry are
/// alike.
#[test]
fn unsolved_scenes_are_retried() {
    let changes = ["train.groups=3", "train.group_size=2", "train.retry=1.0"];
    let settings = TestSettings::load("frozen-lake", &changes);
    let mut learner = settings.language();
    learner.unsolved = vec![(0, 11), (1, 12), (0, 13)];
    let seats = learner.seats(&settings.train, 0).unwrap();
    let scenes: Vec<u64> = seats[0].1.iter().map(|seat| seat.scene).collect();
    let [a, b, new] = [0, 2, 4].map(|first| {
        assert_eq!(scenes[first], scenes[first + 1]);
        scenes[first]
    });
    assert_eq!((a.min(b), a.max(b)), (11, 13));
    assert!(![11, 12, 13].contains(&new));

    let group = |scene, success, advantage| Group {
        scene,
        episodes: [true, success]
            .map(|success| Episode {
                success,
                ..Episode::default()
            })
            .into(),
        advantages: vec![EpisodeAdvantage::new(vec![advantage])],
        ..Group::default()
    };
    // 11 is solved now; 13 is not, and neither is the new scene 7, whose episodes are alike. Two agents play 6.
    let remember = |learner: &mut LanguageLearner, played: &[(u64, bool, f64)]| {
        let played = played.iter();
        let groups: Vec<Group> = played
            .map(|&(scene, success, advantage)| group(scene, success, advantage))
            .collect();
        learner.remember_unsolved(&groups);
    };
    let played = [
        (11, true, 1.0),
        (13, false, 1.0),
        (5, true, 1.0),
        (6, false, 1.0),
        (6, false, -1.0),
        (7, false, 0.0),
    ];
    remember(&mut learner, &played);
    assert_eq!(learner.unsolved, [(1, 12), (0, 13), (0, 6), (0, 7)]);
    // In a retry, the episodes of 7 are alike again.
    remember(&mut learner, &[(7, false, 0.0), (13, false, 1.0)]);
    assert_eq!(learner.unsolved, [(1, 12), (0, 6), (0, 13)]);
    let many: Vec<_> = (100..4200).map(|scene| (scene, false, 1.0)).collect();
    remember(&mut learner, &many);
    assert_eq!(
        (learner.unsolved.len(), learner.unsolved[0]),
        (4096, (0, 104))
    );

    // A step remembers them only if it retries: one turn cannot reach the goal, in no episode of the next step either.
    for (retry, left) in [("train.retry=0.0", [0, 0]), ("train.retry=1.0", [3, 0])] {
        let changes = [&changes[..2], &[retry, "game.options.step_limit=1"]].concat();
        let settings = TestSettings::load("frozen-lake", &changes);
        let mut learner = settings.language();
        let unsolved = [0, 1].map(|number| {
            step(&mut learner, &settings.options(), number, &()).unwrap();
            learner.unsolved.len()
        });
        assert_eq!(unsolved, left);
    }
}

#[test]
fn the_episodes_of_a_group_have_luck_of_their_own_unless_it_is_shared() {
    for (shared, wanted) in [(false, 3), (true, 1)] {
        let shared = format!("train.shared_luck={shared}");
        let changes = ["train.groups=1", "train.group_size=3", &shared];
        let settings = TestSettings::load("frozen-lake", &changes);
        let seats = settings.language().seats(&settings.train, 0).unwrap();
        let of =
            |field: fn(&Seat) -> u64| seats[0].1.iter().map(field).collect::<HashSet<_>>().len();
        assert_eq!([of(|seat| seat.luck), of(|seat| seat.reply)], [wanted, 3]);
    }
}

/// One turn does not reach the goal, so all returns are equal.
#[test]
fn the_entropy_band_acts_on_groups_of_equal_returns() {
    let stepped = |band: &str| {
        let band = format!("train.entropy_band={band}");
        let changes = [
            "game.options.step_limit=1",
            "policy.format_penalty=0",
            "train.groups=2",
            "train.group_size=8",
            &band,
        ];
        let settings = TestSettings::load("frozen-lake", &changes);
        let mut learner = settings.language();
        step(&mut learner, &settings.options(), 0, &()).unwrap().0
    };
    let low = stepped("[2, 3]");
    assert_eq!(low.groups_skipped, Some(0));
    assert!(low.entropy_weight.unwrap() > 0.0);
    assert!(low.learned.unwrap().grad_norm > 0.0);
    let within = stepped("[0, 100]");
    assert_eq!((within.groups_skipped, within.learned), (Some(2), None));
    assert_eq!(within.entropy_weight, None);
}

/// Replies of several tokens, in conversations and without.
#[test]
fn the_tokens_of_a_step_are_those_that_one_process_computes() {
    for turns in ["policy.history=0", "policy.history=2"] {
        let changes = [turns, "policy.max_new_tokens=3", "train.groups=2"];
        let settings = TestSettings::load("frozen-lake", &changes);
        let mut learner = settings.language();
        let played = rollout(&mut learner, &settings.options(), 0, &()).unwrap();
        assert_eq!(played.tokens_computed, learner.policy.arena.computed());
    }
}
