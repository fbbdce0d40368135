//! Values and loss by hand, on the embedded base.

use lapwing_tensor::ParameterState;
use lapwing_tensor::check::gpu;
use lapwing_tensor::random::Random;
use proptest::prelude::*;

use super::*;
use crate::learn::credit::{Credit, weigh};
use crate::learn::head::NAMES;
use crate::learn::rollout::rollout;
use crate::play::{Ending, Seat, Turn};
use crate::run::state::{Purpose, State};

fn state(changes: &[&str]) -> State {
    let base = [
        "credit.method=critic",
        "credit.normalise=mean",
        "critic.hidden=8",
        "train.groups=2",
        "train.group_size=8",
        "game.options.step_limit=5",
    ];
    let changes = base
        .iter()
        .chain(changes)
        .map(|change| (*change).to_owned());
    let config = Config::load("frozen-lake", &changes.collect::<Vec<_>>()).unwrap();
    State::new(&gpu(), config, Purpose::Train, &()).unwrap()
}

/// A head of these numbers.
fn set(critic: &mut Head, mut number: impl FnMut(&str) -> f32) {
    let mut all: Vec<ParameterState> = critic.parameters.state().unwrap();
    for one in &mut all {
        one.values.iter_mut().for_each(|v| *v = number(&one.name));
    }
    critic.parameters.restore(&all, 0);
}

fn states(state: &mut State, groups: &[Group], limit: usize) -> States {
    States::of(groups, &mut state.worlds, &state.policy, limit, &()).unwrap()
}

/// What the head says of a state, in f64, from the hidden states of the prompt alone.
fn by_hand(state: &State, prompt: &[u32]) -> f64 {
    let (model, adapter) = (&state.policy.model, state.policy.adapter.as_ref());
    let all = model.forward(&Tokens::sequence(&gpu(), prompt), adapter);
    let width = model.config().width;
    let all = all.to_vec().unwrap();
    let h = &all[all.len() - width..];
    let head = state.critic.as_ref().unwrap().parameters.state().unwrap();
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
    let mut state = state(&[]);
    let groups = rollout(&mut state, &()).unwrap().groups;
    let mut random = Random::new(3);
    set(state.critic.as_mut().unwrap(), |_| {
        random.normal() as f32 / 4.0
    });
    let whole = states(&mut state, &groups, 8192);
    let critic = state.critic.as_ref().unwrap();
    let worth = values(critic, &whole).unwrap();
    // However the prompts are cut into batches, to the bit; and equal ones were computed once.
    let parts = states(&mut state, &groups, 300);
    let critic = state.critic.as_ref().unwrap();
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
            let after = Seen::after(episode);
            let mut wanted: Vec<f64> = episode
                .sampled()
                .map(|s| by_hand(&state, &s.prompt))
                .collect();
            wanted.push(match episode.ending {
                Some(Ending::Truncated) => {
                    truncated += 1;
                    let after = state.worlds[0].prompts.ids(&after).unwrap();
                    by_hand(&state, &after)
                }
                _ => 0.0,
            });
            assert_eq!(values.len(), wanted.len());
            for (value, wanted) in values.iter().zip(&wanted) {
                // a few hundred f32 terms
                assert!((value - wanted).abs() < 1e-4, "{value} against {wanted}");
            }
            seen.extend(wanted);
        }
    }
    let spread =
        seen.iter().fold(f64::MIN, |a, b| a.max(*b)) - seen.iter().fold(f64::MAX, |a, b| a.min(*b));
    assert!(spread > 0.1 && truncated > 0, "{seen:?}");
}

/// The prompt after a truncation is the one of the turn that a longer game has next, with the history and in the wording of
/// the episode.
#[test]
fn a_truncated_game_is_valued_as_one_that_goes_on() {
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
    let mut state = state(&["policy.history=1", &templates]);
    let seat = |i| Seat {
        scene: i,
        luck: i,
        reply: i,
    };
    let seats: Vec<Seat> = (0..12).map(seat).collect();
    let mut play = |turns: usize| {
        let (scenario, referee, mut player) = state.seated(0, 1.0);
        let referee = crate::play::Referee {
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
        let prompts = prompts_of(short, &mut state.worlds[0]).unwrap();
        let next = long.turns[3].sampled.as_ref().unwrap();
        assert_eq!(prompts.len(), 4);
        assert_eq!(prompts[3].as_ref(), Some(&next.prompt));
        wordings.insert(state.worlds[0].prompts.framing.wording(short.seed));
    }
    assert_eq!(wordings.len(), 2);
    let over = short
        .iter()
        .find(|e| e.ending == Some(Ending::Terminated))
        .unwrap();
    let prompts = prompts_of(over, &mut state.worlds[0]).unwrap();
    assert_eq!(
        (prompts.len(), prompts.last().unwrap()),
        (over.turns.len() + 1, &None)
    );
}

/// A critic that says 1 of every state: it is used after a truncation, and not after the end.
#[test]
fn truncation_bootstraps_and_termination_does_not() {
    let mut state = state(&["credit.gamma=0.5", "credit.lambda=0.25"]);
    let mut groups = rollout(&mut state, &()).unwrap().groups;
    set(state.critic.as_mut().unwrap(), |name| match name {
        "critic.value.bias" => 1.0,
        _ => 0.0,
    });
    let states = states(&mut state, &groups, 8192);
    let worth = values(state.critic.as_ref().unwrap(), &states).unwrap();
    for (group, values) in groups.iter_mut().zip(worth) {
        group.values = values;
    }
    let mut met = [0, 0];
    for group in &groups {
        let credits: Vec<Credit> =
            weigh(&state.config.credit, &[&group.episodes], &[&group.values]).remove(0);
        for (episode, credit) in group.episodes.iter().zip(&credits) {
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

    /// Against f64, and its gradient against differences. Eighths, so that bounds are met exactly and f32 holds all of them.
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
fn a_critic_is_measured_by_what_it_knew() {
    let right = CriticMetrics::of(&[1.0, 3.0], &[1.0, 3.0]);
    assert_eq!(
        (right.value_loss, right.value_mean, right.explained_variance),
        (0.0, 2.0, Some(1.0))
    );
    // The mean of what came knows nothing; 1 beside it is as wrong as 1 beside the truth.
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

/// A new head knows nothing, and says 0 of all; another seed draws another one.
#[test]
fn a_new_critic_says_0() {
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
fn a_value_that_is_no_number_is_an_error() {
    let mut state = state(&[]);
    let groups = rollout(&mut state, &()).unwrap().groups;
    set(state.critic.as_mut().unwrap(), |_| f32::MAX);
    let states = states(&mut state, &groups, 8192);
    let error = values(state.critic.as_ref().unwrap(), &states).unwrap_err();
    assert!(error.is_divergence());
    insta::assert_snapshot!(error, @"training has diverged: what the critic says of a state is no finite number; go on from an earlier state (--adapter) with a smaller critic.lr");
}

/// Credits by a critic are refused where nobody valued the states.
#[test]
#[should_panic(expected = "groups, and those valued")]
fn a_critic_without_values_is_a_mistake() {
    let config = Config::load("frozen-lake", &["credit.method=critic".to_owned()]).unwrap();
    let episode = Episode {
        turns: vec![Turn::default()],
        ..Episode::default()
    };
    weigh(&config.credit, &[&[episode]], &[]);
}

/// Features are centered and scaled by those of the first step, and no update moves that.
#[test]
fn center_and_scale_are_those_of_the_first_states() {
    let mut state = state(&[]);
    let mut groups = rollout(&mut state, &()).unwrap().groups;
    let states = states(&mut state, &groups, 8192);
    let config = state.config.clone();
    let critic = state.critic.as_mut().unwrap();
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
    // f32 centers of numbers that are many times their spread
    assert!(
        sum.iter()
            .all(|sum| (sum / states.hidden.rows() as f64).abs() < 1e-3),
        "{sum:?}"
    );
    learn(critic, &groups, &states, &config);
    assert_eq!(settled(critic), (center.clone(), scale));
    values(critic, &states).unwrap();
    assert_eq!(settled(critic), (center, scale));
}
