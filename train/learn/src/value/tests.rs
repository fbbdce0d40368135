//! Networks, targets and training of the value learners.

use std::path::Path;
use std::sync::Arc;

use lapwing_env::Scenario;
use lapwing_play::evaluate::play_against;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::players::scripted::ScriptedPlayer;
use lapwing_play::{ActionRequest, Episode, PlayError, Player, Referee, Reply, Seat};
use lapwing_tensor::check::gpu;
use serde_json::json;

use super::dqn::{targets, transitions};
use super::encoder::{EncodedState, PlaneEncoder};
use super::learner::NetworkLearner;
use super::network::{Network, QHead, read_weights};
use super::player::{Trajectory, ValuePlayer, argmax};
use super::pqn;
use super::replay::Transition;
use crate::config::ValueConfig;
use crate::testing::TestSettings;

fn lake(options: serde_json::Value) -> Box<dyn Scenario> {
    (lapwing_env::find("frozen-lake").unwrap().configure)(&options).unwrap()
}

fn value(channels: &[usize]) -> ValueConfig {
    ValueConfig {
        channels: channels.to_vec(),
        hidden: vec![7, 5],
        ..ValueConfig::default()
    }
}

#[test]
#[should_panic(expected = "ms-grpo trains a language model, not a network")]
fn only_value_learners_have_networks() {
    TestSettings::load("frozen-lake-dqn", &["learner=ms-grpo"]).network();
}

const PLAIN: QHead = QHead {
    actions: 4,
    dueling: false,
    layer_norm: false,
};

/// Some states of a lake whose sides differ, so that mixed-up rows and columns would show.
fn states(encoder: &PlaneEncoder, lake: &dyn Scenario) -> Vec<EncodedState> {
    let mut game = lake.start(0, 0).unwrap();
    let mut seen = Vec::new();
    for (turn, action) in [2, 1, 2].into_iter().enumerate() {
        seen.push(encoder.encode(&*game, 0, turn).unwrap());
        game.play(&[Some(action)]).unwrap();
    }
    seen
}

/// The network in f64, as plain loops over cells.
struct Naive {
    weights: Vec<(String, Vec<usize>, Vec<f32>)>,
    head: QHead,
}

impl Naive {
    fn find(&self, name: &str) -> Option<(&[usize], Vec<f64>)> {
        let found = self.weights.iter().find(|(known, _, _)| known == name);
        found.map(|(_, shape, values)| (&shape[..], values.iter().map(|v| f64::from(*v)).collect()))
    }

    /// relu(norm(x W + turns t + b))
    fn layer(&self, name: &str, x: &[f64], turns: f64) -> Vec<f64> {
        let (shape, weight) = self.find(&format!("{name}.weight")).unwrap();
        let (inputs, outputs) = (shape[0], shape[1]);
        assert_eq!(inputs, x.len());
        let column = |o: usize| (0..inputs).map(|i| x[i] * weight[i * outputs + o]).sum();
        let mut y: Vec<f64> = (0..outputs).map(column).collect();
        if let Some((_, along)) = self.find(&format!("{name}.turns")) {
            y.iter_mut().zip(along).for_each(|(y, t)| *y += turns * t);
        }
        if let Some((_, norm)) = self.find(&format!("{name}.norm")) {
            let mean = y.iter().sum::<f64>() / outputs as f64;
            let variance = y.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / outputs as f64;
            for (v, w) in y.iter_mut().zip(norm) {
                *v = (*v - mean) / (variance + 1e-5).sqrt() * w;
            }
        }
        let (_, bias) = self.find(&format!("{name}.bias")).unwrap();
        y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        if name != "out" {
            y.iter_mut().for_each(|v| *v = v.max(0.0));
        }
        y
    }

    fn q(&self, encoder: &PlaneEncoder, state: &EncodedState) -> Vec<f64> {
        let (height, width) = (encoder.height as isize, encoder.width as isize);
        let mut planes = encoder.names.len();
        let mut board = vec![0.0; encoder.cells() * planes];
        state.ones.iter().for_each(|one| board[*one as usize] = 1.0);
        for number in 0.. {
            let name = format!("conv.{number}");
            if self.find(&format!("{name}.bias")).is_none() {
                break;
            }
            let mut next = Vec::new();
            for (row, column) in (0..height).flat_map(|row| (0..width).map(move |c| (row, c))) {
                let mut patch = Vec::new();
                for (down, right) in (-1..=1).flat_map(|down| (-1..=1).map(move |r| (down, r))) {
                    let (row, column) = (row + down, column + right);
                    let inside = (0..height).contains(&row) && (0..width).contains(&column);
                    let cell = (row * width + column) as usize;
                    patch.extend((0..planes).map(|p| match inside {
                        true => board[cell * planes + p],
                        false => 0.0,
                    }));
                }
                next.extend(self.layer(&name, &patch, 0.0));
            }
            planes = next.len() / encoder.cells();
            board = next;
        }
        let turns = f64::from(state.turns_left);
        let h = self.layer("dense.0", &board, turns);
        let out = self.layer("out", &self.layer("dense.1", &h, turns), turns);
        if !self.head.dueling {
            return out;
        }
        let mean = out[1..].iter().sum::<f64>() / 4.0;
        out[1..]
            .iter()
            .map(|advantage| out[0] + advantage - mean)
            .collect()
    }
}

#[test]
fn the_network_matches_its_formula() {
    let lake = lake(json!({ "map": ["SFFF", "FFHF", "HFFG"], "step_limit": 5 }));
    for (channels, dueling, layer_norm) in [
        (&[][..], false, true),
        (&[], true, false),
        (&[3], true, true),
        (&[3, 2], false, false),
    ] {
        let head = QHead {
            actions: 4,
            dueling,
            layer_norm,
        };
        let value = value(channels);
        let encoder = PlaneEncoder::new(&*lake, &value).unwrap();
        let (network, _) = Network::fresh(&gpu(), &encoder, &value, head, 3);
        // Initial shifts are 0 and scales 1, where a mistake would not show.
        let mut weights = network.values().unwrap();
        for (number, (name, _, values)) in weights.iter_mut().enumerate() {
            for (place, v) in values.iter_mut().enumerate() {
                *v += match name.ends_with("weight") {
                    true => 0.0,
                    false => 0.3 * ((number + 3 * place) as f32).sin(),
                };
            }
        }
        network.write_all(&weights);
        let naive = Naive { weights, head };
        let states = states(&encoder, &*lake);
        let q = network.forward(&network.batch(states.iter()));
        assert_eq!(q.shape(), [3, 4]);
        let q = q.to_vec().unwrap();
        for (state, q) in states.iter().zip(q.chunks(4)) {
            for (got, wanted) in q.iter().zip(naive.q(&encoder, state)) {
                // Sums of some fifty products in f32, and a division by a small deviation.
                assert!(
                    (f64::from(*got) - wanted).abs() < 1e-4,
                    "{channels:?} {got} {wanted}"
                );
            }
        }
        let one = network.forward_of(&network.batch(states.iter()), [3, 0, 2].into_iter());
        assert_eq!(one.to_vec().unwrap(), [q[3], q[4], q[10]]);
    }
}

#[test]
fn every_weight_has_a_gradient() {
    let lake = lake(json!({ "map": ["SFFF", "FFHF", "HFFG"], "step_limit": 5 }));
    let value = value(&[3, 2]);
    let encoder = PlaneEncoder::new(&*lake, &value).unwrap();
    let head = QHead {
        actions: 4,
        dueling: true,
        layer_norm: true,
    };
    let (network, _) = Network::fresh(&gpu(), &encoder, &value, head, 3);
    let states = states(&encoder, &*lake);
    let loss = network
        .forward(&network.batch(states.iter()))
        .square()
        .sum();
    let gradients = loss.backward();
    for (name, _) in network.shapes() {
        let gradient = gradients.get(network.tensor(&name));
        let gradient = gradient
            .unwrap_or_else(|| panic!("{name}"))
            .to_vec()
            .unwrap();
        assert!(gradient.iter().any(|g| *g != 0.0), "{name}");
    }
}

/// The network selects the action, and the target network gives its value.
#[test]
fn targets_are_double() {
    let lake = lake(json!({ "map": ["SFFF", "FFHF", "HFFG"], "step_limit": 5 }));
    let value = value(&[]);
    let encoder = PlaneEncoder::new(&*lake, &value).unwrap();
    let network = |seed| Network::fresh(&gpu(), &encoder, &value, PLAIN, seed).0;
    let states: Vec<Arc<EncodedState>> =
        states(&encoder, &*lake).into_iter().map(Arc::new).collect();
    let q = |network: &Network, state: &EncodedState| {
        let q = network.forward(&network.batch([state].into_iter()));
        q.to_vec().unwrap()
    };
    let online = network(1);
    // A target network that would select another action in the last state.
    let choice = |network: &Network| argmax(&q(network, &states[2]));
    let other = |target: &Network| choice(target) != choice(&online);
    let target = (2..50)
        .map(network)
        .find(other)
        .expect("one in four agrees");
    let transition = |next: Option<usize>| Transition {
        state: states[0].clone(),
        action: 1,
        reward: 2.0,
        next: next.map(|next| states[next].clone()),
        discount: 0.25,
    };
    let all = [transition(Some(1)), transition(None), transition(Some(2))];
    let y = targets(&online, &target, &all).unwrap();
    let wanted = |next: usize| {
        let selected = argmax(&q(&online, &states[next]));
        2.0 + 0.25 * q(&target, &states[next])[selected]
    };
    assert_eq!(y, [wanted(1), 2.0, wanted(2)]);
}

/// Plays like the scripted player and records the states of a network.
struct Walker<'a>(ScriptedPlayer, ValuePlayer<'a>);

impl Player for Walker<'_> {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        self.1.act(asks)?;
        self.0.act(asks)
    }

    fn stopped(&mut self, ask: &ActionRequest<'_>) -> Result<(), PlayError> {
        self.1.stopped(ask)
    }
}

fn walked(limit: usize, turns_left: bool) -> (Vec<Episode>, Vec<Trajectory>) {
    let lake = lake(json!({ "step_limit": limit }));
    let value = ValueConfig {
        turns_left,
        ..value(&[])
    };
    let encoder = PlaneEncoder::new(&*lake, &value).unwrap();
    let (network, _) = Network::fresh(&gpu(), &encoder, &value, PLAIN, 1);
    let seats: Vec<Seat> = (0..5).map(Seat::of).collect();
    let referee = Referee {
        step_limit: limit,
        format_penalty: 0.0,
    };
    let exploring = ValuePlayer::exploring(&network, &encoder, 0.0, seats.len());
    let mut walker = Walker(ScriptedPlayer::default(), exploring);
    let episodes = referee
        .play(&*lake, &seats, &mut [&mut walker], &mut |_| ())
        .unwrap();
    (episodes, walker.1.trajectories.unwrap())
}

/// Six steps to the goal are six transitions. The last ones are shorter.
#[test]
fn an_episode_of_six_turns_is_six_transitions() {
    let (episodes, trajectories) = walked(20, true);
    for (episode, trajectory) in episodes.iter().zip(&trajectories) {
        assert_eq!((episode.turns.len(), episode.success), (6, true));
        let stored: Vec<Transition> = transitions(episode, trajectory, 3, 0.5).collect();
        assert_eq!(stored.len(), 6);
        for (turn, it) in stored.iter().enumerate() {
            assert_eq!(it.state, trajectory.states[turn]);
            assert_eq!(Some(it.action), episode.turns[turn].action);
            assert_eq!(it.next.as_ref(), trajectory.states.get(turn + 3));
            assert_eq!(it.state.turns_left, 1.0 - turn as f32 / 20.0);
        }
        let rewards: Vec<f32> = stored.iter().map(|it| it.reward).collect();
        assert_eq!(rewards, [0.0, 0.0, 0.0, 0.25, 0.5, 1.0]);
    }
}

/// A step limit that is an input is terminal. Otherwise the value of the last state is bootstrapped.
#[test]
fn a_limit_that_is_no_input_is_bootstrapped() {
    for (turns_left, bootstraps) in [(true, false), (false, true)] {
        let (episodes, trajectories) = walked(4, turns_left);
        for (episode, trajectory) in episodes.iter().zip(&trajectories) {
            assert!(episode.is_truncated());
            assert_eq!(trajectory.bootstraps, bootstraps);
            let stored: Vec<Transition> = transitions(episode, trajectory, 3, 0.5).collect();
            assert_eq!(stored.len(), 4);
            let next: Vec<bool> = stored.iter().map(|it| it.next.is_some()).collect();
            assert_eq!(next, [true, bootstraps, bootstraps, bootstraps]);
            if bootstraps {
                let last = &trajectory.states[4];
                assert!(stored[1..].iter().all(|it| it.next.as_ref() == Some(last)));
                assert_ne!(last, &trajectory.states[3]);
            }
        }
    }
    // A terminated episode is terminal either way.
    let (_, trajectories) = walked(20, false);
    for trajectory in &trajectories {
        assert!(!trajectory.bootstraps && trajectory.states.len() == 6);
    }
}

fn settings(learner: &str, changes: &[&str]) -> TestSettings {
    let learner = format!("learner={learner}");
    let own = [
        &*learner,
        "game.options={ map = [\"SFF\", \"FHF\", \"HFG\"], step_limit = 12 }",
        "value.hidden=[32]",
        "value.episodes=16",
        "value.gamma=0.9",
        "value.exploration=25",
        "value.epsilon=0.2",
        "value.batch=64",
        "dqn.start=64",
        "dqn.capacity=300",
        "dqn.target=20",
        "dqn.updates=8",
        "train.lr=3e-3",
        "train.max_grad_norm=10.0",
    ];
    TestSettings::load("frozen-lake-pqn", &[&own, changes].concat())
}

struct Run {
    learner: NetworkLearner,
    settings: TestSettings,
    step: usize,
}

fn run(learner: &str, changes: &[&str]) -> Run {
    let settings = settings(learner, changes);
    Run {
        learner: settings.network(),
        settings,
        step: 0,
    }
}

impl Run {
    fn advance(&mut self) -> PlayMetrics {
        let options = self.settings.network_options();
        let (metrics, _) = self.learner.step(&options, self.step, &()).unwrap();
        self.step += 1;
        assert_eq!(metrics.updates_dropped, 0);
        metrics.play
    }
}

/// PQN values the state after a truncation with the network, if the limit is not an input.
#[test]
fn pqn_bootstraps_after_a_truncation() {
    let changes = ["value.turns_left=false", "game.options.step_limit=2"];
    let mut run = run("pqn", &changes);
    let options = run.settings.network_options();
    let mut played = run.learner.play(&options, 0, &()).unwrap();
    let network = run.learner.network.without_gradients();
    let expected: Vec<Option<f64>> = (played.trajectories.iter())
        .map(|trajectory| {
            let last = trajectory.states.last();
            let last = last.filter(|_| trajectory.bootstraps)?;
            let q = network.forward(&network.batch([&**last].into_iter()));
            let best = q.to_vec().unwrap().into_iter().fold(f32::MIN, f32::max);
            Some(f64::from(best))
        })
        .collect();
    assert!(expected.iter().any(Option::is_some), "none was truncated");
    pqn::train(&mut run.learner, &options, 0, &mut played, &()).unwrap();
    let played = played.episodes.iter().zip(&played.trajectories);
    for ((episode, trajectory), expected) in played.zip(expected) {
        let value = trajectory.values.get(episode.turns.len());
        match (value, expected) {
            // A batch of another size adds up in another order.
            (Some(value), Some(expected)) => assert!((value - expected).abs() < 1e-4),
            (value, expected) => assert_eq!((value, expected), (None, None)),
        }
    }
}

/// On a firm lake of nine cells the second best action has a value lower by a tenth (gamma 0.9, two steps longer or lost), and
/// every state occurs hundreds of times: the error of a trained network is far below that on any device. All randomness
/// follows from the seed.
#[test]
fn both_learn_a_small_lake() {
    for learner in ["dqn", "pqn"] {
        let mut run = run(learner, &[]);
        for _ in 0..60 {
            run.advance();
        }
        let learned = &run.learner;
        let seats = learned.scenes.evaluation(&*learned.scenario, 1, 2).unwrap();
        let (mut player, referee) = (learned.greedy_player(), learned.referee());
        let episodes = play_against(
            &*learned.scenario,
            &referee,
            &seats,
            &mut player,
            &mut [],
            &(),
        )
        .unwrap();
        for episode in episodes {
            assert!(episode.success, "{learner}: {} turns", episode.turns.len());
            assert_eq!(episode.turns.len(), 4, "{learner}: there is a shorter way");
        }
    }
}

#[test]
fn another_seed_plays_differently() {
    for learner in ["dqn", "pqn"] {
        let [one, other] = ["train.seed=1", "train.seed=2"].map(|seed| {
            let mut run = run(learner, &[seed]);
            (0..7).map(|_| run.advance()).collect::<Vec<PlayMetrics>>()
        });
        assert_ne!(one, other);
    }
}

#[test]
fn exploration_and_learning_rate_fall_linearly() {
    let settings = settings("pqn", &["value.anneal=10"]);
    let options = settings.network_options();
    let at = |step| (options.epsilon(step), options.optimiser(step, 1e-8).lr);
    let near = |a: (f64, f64), b: (f64, f64)| {
        assert!(
            (a.0 - b.0).abs() < 1e-12 && (a.1 - b.1).abs() < 1e-12,
            "{a:?} {b:?}"
        );
    };
    near(at(0), (1.0, 3e-3));
    near(at(5), (0.84, 3e-3 * 0.55));
    near(at(25), (0.2, 3e-4));
    near(at(1000), (0.2, 3e-4));
}

/// A file of another network is refused with the difference.
#[test]
fn weights_are_written_and_read_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("network.safetensors");
    let written = run("dqn", &[]).learner;
    written.save_network(&path).unwrap();
    let named = format!(
        "value.network={}",
        toml::Value::from(path.to_str().unwrap())
    );
    let again = run("dqn", &[&named, "train.seed=5"]).learner;
    let values = |learner: &NetworkLearner| learner.parameters.values().unwrap();
    assert_eq!(values(&again), values(&written));
    let refused = |path: &Path, other: &NetworkLearner| {
        let error = read_weights(path, &other.network.shapes()).unwrap_err();
        error.to_string().replace(path.to_str().unwrap(), "FILE")
    };
    let wider = run("dqn", &["value.hidden=[33]"]).learner;
    insta::assert_snapshot!(refused(&path, &wider), @"the network FILE: dense.0.weight has the shape [36, 32], wanted [36, 33] for this config and game");
    let other = run("pqn", &[]).learner;
    insta::assert_snapshot!(refused(&path, &other), @"the network FILE: dense.0.norm is missing; it has other layers, or is of another learner");
    std::fs::write(&path, "nothing").unwrap();
    insta::assert_snapshot!(refused(&path, &written), @"the network FILE: not a safetensors file: header too small");
}
