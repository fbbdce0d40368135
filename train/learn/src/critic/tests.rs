//! Values and loss computed by hand, on the base model.

use lapwing_play::{EpisodeEnd, Seat, Turn};
use lapwing_tensor::ParameterState;
use lapwing_tensor::check::gpu;
use proptest::prelude::*;

use super::*;
use crate::batch::EpisodeAdvantage;
use crate::config::{AdvantageEstimator, CreditConfig};
use crate::language::LanguageLearner;
use crate::ms_grpo::{advantages, rollout};
use crate::testing::TestSettings;

fn learner(changes: &[&str]) -> (LanguageLearner, TestSettings) {
    let own = [
        "credit.method=critic",
        "credit.normalise=mean",
        "critic.hidden=8",
        "train.groups=2",
        "train.group_size=8",
        "game.options.step_limit=5",
    ];
    let settings = TestSettings::load("frozen-lake", &[&own, changes].concat());
    (settings.language(), settings)
}

fn played(learner: &mut LanguageLearner, settings: &TestSettings) -> Vec<Group> {
    rollout(learner, &settings.options(), 0, &())
        .unwrap()
        .groups
}

/// Sets the numbers of a critic.
fn set(critic: &mut Head, mut number: impl FnMut(&str) -> f32) {
    let mut all: Vec<ParameterState> = critic.parameters.state().unwrap();
    for one in &mut all {
        one.values.iter_mut().for_each(|v| *v = number(&one.name));
    }
    critic.parameters.restore(&all, 0);
}

fn states(learner: &mut LanguageLearner, groups: &[Group], limit: usize) -> States {
    let (worlds, policy) = (&mut learner.worlds, &learner.policy);
    States::compute(groups, worlds, policy, limit, &()).unwrap()
}

/// The value of a state in f64, from the hidden states of the prompt alone.
fn by_hand(learner: &LanguageLearner, prompt: &[u32]) -> f64 {
    let (model, adapter) = (&learner.policy.model, learner.policy.adapter.as_ref());
    let all = model.forward(&Tokens::sequence(&gpu(), prompt), adapter);
    let width = model.config().width;
    let all = all.to_vec().unwrap();
    let h = &all[all.len() - width..];
    let critic = learner.critic.as_ref().unwrap();
    let head = critic.parameters.state().unwrap();
    let [w1, b1, w2, b2, center, scale] = [0, 1, 2, 3, 4, 5].map(|i| &head[i].values);
    let centered = h
        .iter()
        .zip(center)
        .map(|(h, c)| f64::from(*h) - f64::from(*c));
    let h: Vec<f64> = centered.map(|h| h / f64::from(scale[0])).collect();
    let mut value = f64::from(b2[0]);
    for unit in 0..b1.len() {
        let row = &w1[unit * width..(unit + 1) * width];
        let products = row.iter().zip(&h).map(|(w, h)| f64::from(*w) * h);
        let x = products.sum::<f64>() + f64::from(b1[unit]);
        value += f64::from(w2[unit]) * x / (1.0 + (-x).exp());
    }
    value
}

#[test]
fn values_are_those_of_the_last_token_of_each_prompt() {
    let (mut learner, settings) = learner(&[]);
    let groups = played(&mut learner, &settings);
    let mut random = Random::new(3);
    set(learner.critic.as_mut().unwrap(), |_| {
        random.normal() as f32 / 4.0
    });
    let whole = states(&mut learner, &groups, 8192);
    let critic = learner.critic.as_ref().unwrap();
    let worth = values(critic, &whole).unwrap();
    // Bit-identical for every batch size. Equal prompts are computed once.
    let parts = states(&mut learner, &groups, 100);
    let critic = learner.critic.as_ref().unwrap();
    assert_eq!(worth, values(critic, &parts).unwrap());
    assert!(whole.tokens_computed < parts.tokens_computed);
    let turns: usize = groups
        .iter()
        .flat_map(|g| &g.episodes)
        .map(|e| e.turns.len())
        .sum();
    assert!(
        whole.hidden.rows() < turns,
        "{} of {turns}",
        whole.hidden.rows()
    );

    let (mut seen, mut truncated) = (Vec::new(), 0);
    for (group, values) in groups.iter().zip(&worth) {
        for (episode, values) in group.episodes.iter().zip(values) {
            let after = AgentView::turn(episode, episode.turns.len());
            let mut wanted: Vec<f64> = episode
                .sampled()
                .map(|s| by_hand(&learner, &s.prompt))
                .collect();
            wanted.push(match episode.ending {
                Some(EpisodeEnd::Truncated) => {
                    truncated += 1;
                    let after = learner.worlds[0].prompts.ids(&after).unwrap();
                    by_hand(&learner, &after)
                }
                _ => 0.0,
            });
            assert_eq!(values.len(), wanted.len());
            for (value, wanted) in values.iter().zip(&wanted) {
                // A few hundred f32 terms.
                assert!((value - wanted).abs() < 1e-4, "{value} against {wanted}");
            }
            seen.extend(wanted);
        }
    }
    let spread =
        seen.iter().fold(f64::MIN, |a, b| a.max(*b)) - seen.iter().fold(f64::MAX, |a, b| a.min(*b));
    assert!(spread > 0.1 && truncated > 0, "{seen:?}");
}

/// The prompt after a truncation is that of the next turn of a longer game, with the history and the wording of the episode.
#[test]
fn a_truncated_game_is_valued_by_its_next_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().replace('\\', "/")
    };
    let usual = file("usual.jinja", "{% extends \"usual\" %}");
    let other = file(
        "other.jinja",
        "{% extends \"usual\" %}{% block format %}Say a word, and no more.{% endblock %}",
    );
    let templates = format!("policy.templates=[\"{usual}\", \"{other}\"]");
    let (mut learner, settings) = learner(&["policy.history=1", &templates]);
    let seats: Vec<Seat> = (0..40).map(Seat::of).collect();
    let mut play = |turns: usize| {
        let (scenario, referee, mut player) = learner.seated(&settings.policy, 0, 1.0);
        let referee = lapwing_play::Referee {
            step_limit: turns,
            ..referee
        };
        referee
            .play(scenario, &seats, &mut [&mut player], &mut |_| ())
            .unwrap()
    };
    let (short, long) = (play(3), play(4));
    let mut wordings = std::collections::BTreeSet::new();
    for (short, long) in short
        .iter()
        .zip(&long)
        .filter(|(short, _)| short.is_truncated())
    {
        let prompts = prompts_of(short, &mut learner.worlds[0]).unwrap();
        let next = long.turns[3].sampled.as_ref().unwrap();
        assert_eq!(prompts.len(), 4);
        assert_eq!(prompts[3].as_ref(), Some(&next.prompt));
        let text = learner.worlds[0].prompts.tokenizer().decode(&next.prompt);
        wordings.insert(text.unwrap().contains("Say a word, and no more."));
    }
    assert_eq!(wordings.len(), 2);
    let over = short
        .iter()
        .find(|e| e.ending == Some(EpisodeEnd::Terminated))
        .unwrap();
    let prompts = prompts_of(over, &mut learner.worlds[0]).unwrap();
    assert_eq!(
        (prompts.len(), prompts.last().unwrap()),
        (over.turns.len() + 1, &None)
    );
}

/// With a value of 1 for every state: it counts after a truncation, and not after the end.
#[test]
fn truncation_bootstraps_and_termination_does_not() {
    let (mut learner, settings) = learner(&["credit.gamma=0.5", "credit.lambda=0.25"]);
    let mut groups = played(&mut learner, &settings);
    set(learner.critic.as_mut().unwrap(), |name| match name {
        "critic.value.bias" => 1.0,
        _ => 0.0,
    });
    let states = states(&mut learner, &groups, 8192);
    let worth = values(learner.critic.as_ref().unwrap(), &states).unwrap();
    for (group, values) in groups.iter_mut().zip(worth) {
        group.values = values;
    }
    let mut met = [0, 0];
    for (group, advantages) in groups.iter().zip(advantages(&settings.credit, &groups)) {
        let each = advantages.into_iter().map(EpisodeAdvantage::new);
        for (episode, credit) in group.episodes.iter().zip(each) {
            let after = f64::from(u8::from(episode.is_truncated()));
            met[after as usize] += 1;
            let mut next = after;
            let mut later = 0.0;
            for (turn, advantage) in episode.turns.iter().zip(&credit.turns).rev() {
                later = turn.reward + turn.shaping + 0.5 * next - 1.0 + 0.5 * 0.25 * later;
                next = 1.0;
                assert!(
                    (advantage - later).abs() < 1e-12,
                    "{advantage} against {later}"
                );
            }
        }
    }
    assert!(met[0] > 0 && met[1] > 0, "{met:?}");
}

fn loss_in_f64(values: &[f64], old: &[f64], targets: &[f64], clip: f64) -> f64 {
    let one = |((v, old), r): ((&f64, &f64), &f64)| {
        let near = old + (v - old).clamp(-clip, clip);
        (v - r).powi(2).max((near - r).powi(2))
    };
    let sum: f64 = values.iter().zip(old).zip(targets).map(one).sum();
    0.5 * sum / values.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Compared with f64, and its gradient with finite differences. Eighths are exact in f32, also at the bounds.
    #[test]
    fn the_loss_is_that_of_ppo(
        numbers in proptest::collection::vec((-16i32..16, -16i32..16, -16i32..16), 1..30), eighths in 1i32..12,
    ) {
        let part = |of: fn(&(i32, i32, i32)) -> i32| -> Vec<f64> {
            numbers.iter().map(|n| f64::from(of(n)) / 8.0).collect()
        };
        let (values, old, targets) = (part(|n| n.0), part(|n| n.1), part(|n| n.2));
        let clip = f64::from(eighths) / 8.0;
        let column = |numbers: &[f64]| {
            let numbers: Vec<f32> = numbers.iter().map(|n| *n as f32).collect();
            Tensor::from_slice(&gpu(), &numbers, &[numbers.len(), 1])
        };
        let tracked = column(&values).tracked();
        let loss = value_loss(&tracked, &column(&old), &column(&targets), clip as f32);
        let wanted = loss_in_f64(&values, &old, &targets, clip);
        let got = f64::from(loss.to_vec().unwrap()[0]);
        prop_assert!((got - wanted).abs() < 1e-6 * (1.0 + wanted), "{} against {}", got, wanted);
        let gradient = loss.backward().get(&tracked).unwrap().to_vec().unwrap();
        for (i, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut moved = values.clone();
                moved[i] += by;
                loss_in_f64(&moved, &old, &targets, clip)
            };
            let [below, at, above] = [-1e-4, 0.0, 1e-4].map(moved);
            let (left, right) = ((at - below) / 1e-4, (above - at) / 1e-4);
            // Where the loss has a corner, between the slopes on both sides; each is off by half its curve.
            let (low, high) = (left.min(right) - 1e-4, left.max(right) + 1e-4);
            let slope = f64::from(*slope);
            prop_assert!(low <= slope && slope <= high, "{} is not in {}..{}", slope, low, high);
        }
    }
}

#[test]
fn metrics_of_a_critic() {
    let right = CriticMetrics::of(&[1.0, 3.0], &[1.0, 3.0]);
    assert_eq!(
        (right.value_loss, right.value_mean, right.explained_variance),
        (0.0, 2.0, Some(1.0))
    );
    // A constant explains nothing, and a constant error does not count as unexplained.
    let mean = CriticMetrics::of(&[2.0, 2.0], &[1.0, 3.0]);
    assert_eq!((mean.value_loss, mean.explained_variance), (0.5, Some(0.0)));
    assert_eq!(
        CriticMetrics::of(&[0.0, 2.0], &[1.0, 3.0]).explained_variance,
        Some(1.0)
    );
    assert_eq!(
        CriticMetrics::of(&[3.0, 1.0], &[1.0, 3.0]).explained_variance,
        Some(-3.0)
    );
    assert_eq!(
        CriticMetrics::of(&[0.0, 1.0], &[2.0, 2.0]).explained_variance,
        None
    );
}

/// Weights depend on the seed.
#[test]
fn a_new_critic_has_values_of_0() {
    let (a, b) = (Head::new(&gpu(), 6, 4, 1), Head::new(&gpu(), 6, 4, 2));
    let drawn = |critic: &Head| critic.parameters.get(NAMES[0]).to_vec().unwrap();
    assert_ne!(drawn(&a), drawn(&b));
    assert_eq!(drawn(&a), drawn(&Head::new(&gpu(), 6, 4, 1)));
    assert!(drawn(&a).iter().all(|w| w.abs() <= 1.0 / 6f32.sqrt()));
    let features = Tensor::full(&gpu(), &[3, 6], 1.5);
    assert_eq!(a.values(&features).to_vec().unwrap(), [0.0; 3]);
    let numbers: usize = a
        .parameters
        .values()
        .unwrap()
        .iter()
        .map(|(_, _, v)| v.len())
        .sum();
    assert_eq!(Head::numbers(6, 4), numbers as u64);
}

#[test]
fn a_value_that_is_not_finite_is_an_error() {
    let (mut learner, settings) = learner(&[]);
    let groups = played(&mut learner, &settings);
    set(learner.critic.as_mut().unwrap(), |_| f32::MAX);
    let states = states(&mut learner, &groups, 8192);
    let error = values(learner.critic.as_ref().unwrap(), &states).unwrap_err();
    assert!(matches!(error, LearnError::Critic));
    insta::assert_snapshot!(error, @"training has diverged: a value of the critic is not finite; continue from an earlier adapter (--adapter; --model if all weights were trained) with a smaller critic.lr");
}

#[test]
#[should_panic(expected = "episodes and their values")]
fn advantages_by_a_critic_need_values() {
    let credit = CreditConfig {
        method: AdvantageEstimator::Critic,
        ..CreditConfig::default()
    };
    let episode = Episode {
        turns: vec![Turn::default()],
        ..Episode::default()
    };
    let group = Group {
        episodes: vec![episode],
        ..Group::default()
    };
    advantages(&credit, &[group]);
}

/// Features are centered and scaled by those of the first step, and updates leave that alone.
#[test]
fn center_and_scale_are_those_of_the_first_states() {
    let (mut learner, settings) = learner(&[]);
    let mut groups = played(&mut learner, &settings);
    let states = states(&mut learner, &groups, 8192);
    let critic = learner.critic.as_mut().unwrap();
    let worth = values(critic, &states).unwrap();
    assert!(worth.iter().flatten().flatten().all(|value| *value == 0.0));
    for (group, values) in groups.iter_mut().zip(worth) {
        group.values = values;
    }
    let settled = |critic: &Head| {
        let [center, scale] = [NAMES[4], NAMES[5]].map(|name| critic.parameters.get(name));
        (center.to_vec().unwrap(), scale.to_vec().unwrap()[0])
    };
    let (center, scale) = settled(critic);
    let hidden = states.hidden.to_vec().unwrap();
    let (mut sum, mut squares) = (vec![0.0; center.len()], 0.0);
    for (at, h) in hidden.iter().enumerate() {
        let x = (f64::from(*h) - f64::from(center[at % center.len()])) / f64::from(scale);
        sum[at % center.len()] += x;
        squares += x * x;
    }
    assert!(
        (squares / hidden.len() as f64 - 1.0).abs() < 1e-4,
        "{squares}"
    );
    // f32 centers of numbers that are many times their spread.
    assert!(
        sum.iter()
            .all(|sum| (sum / states.hidden.rows() as f64).abs() < 1e-3),
        "{sum:?}"
    );
    train(critic, &groups, &states, &settings.options());
    assert_eq!(settled(critic), (center.clone(), scale));
    values(critic, &states).unwrap();
    assert_eq!(settled(critic), (center, scale));
}
