//! What must hold of the value learners as a whole.

use std::sync::Arc;

use lapwing_env::Scenario;
use lapwing_tensor::check::gpu;
use serde_json::json;

use super::dqn::{targets, transitions};
use super::network::{Heads, Network};
use super::player::{Path, ValuePlayer, best};
use super::replay::Transition;
use super::sight::{Shape, Sight};
use super::state::State;
use super::{pqn, trainer};
use crate::Error;
use crate::play::evaluate::examine;
use crate::play::players::scripted::Scripted;
use crate::play::{Ask, Episode, Player, Referee, Reply, Seat};
use crate::record::metrics::PlayMetrics;
use crate::run::config::{Config, Value};

fn lake(options: serde_json::Value) -> Box<dyn Scenario> {
    (lapwing_env::find("frozen-lake").unwrap().configure)(&options).unwrap()
}

fn value(channels: &[usize]) -> Value {
    Value {
        channels: channels.to_vec(),
        hidden: vec![7, 5],
        ..Value::default()
    }
}

const PLAIN: Heads = Heads {
    actions: 4,
    dueling: false,
    layer_norm: false,
};

/// Some states of a lake with sides that differ, so that rows and columns cannot be mixed up.
fn sights(shape: &Shape, lake: &dyn Scenario) -> Vec<Sight> {
    let mut game = lake.start(0, 0).unwrap();
    let mut seen = Vec::new();
    for (turn, action) in [2, 1, 2].into_iter().enumerate() {
        seen.push(shape.see(&*game, 0, turn).unwrap());
        game.play(&[Some(action)]).unwrap();
    }
    seen
}

/// The network in double precision, as plain as can be: loops over cells, and a board with an edge.
struct Naive {
    weights: Vec<(String, Vec<usize>, Vec<f32>)>,
    heads: Heads,
}

impl Naive {
    fn find(&self, name: &str) -> Option<(&[usize], Vec<f64>)> {
        let found = self.weights.iter().find(|(known, _, _)| known == name);
        found.map(|(_, shape, values)| (&shape[..], values.iter().map(|v| f64::from(*v)).collect()))
    }

    /// x W + turns t + b, normalised if it is, and relu.
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

    fn q(&self, shape: &Shape, sight: &Sight) -> Vec<f64> {
        let (height, width) = (shape.height as isize, shape.width as isize);
        let mut planes = shape.names.len();
        let mut board = vec![0.0; shape.cells() * planes];
        sight.ones.iter().for_each(|one| board[*one as usize] = 1.0);
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
            planes = next.len() / shape.cells();
            board = next;
        }
        let turns = f64::from(sight.turns_left);
        let h = self.layer("dense.0", &board, turns);
        let out = self.layer("out", &self.layer("dense.1", &h, turns), turns);
        if !self.heads.dueling {
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
fn the_network_is_what_its_formula_says() {
    let lake = lake(json!({ "map": ["SFFF", "FFHF", "HFFG"], "step_limit": 5 }));
    for (channels, dueling, layer_norm) in [
        (&[][..], false, true),
        (&[], true, false),
        (&[3], true, true),
        (&[3, 2], false, false),
    ] {
        let heads = Heads {
            actions: 4,
            dueling,
            layer_norm,
        };
        let value = value(channels);
        let shape = Shape::of(&*lake, &value).unwrap();
        let (network, _) = Network::fresh(&gpu(), &shape, &value, heads, 3);
        // Shifts begin at 0 and scales at 1, where a mistake would not show.
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
        let naive = Naive { weights, heads };
        let sights = sights(&shape, &*lake);
        let q = network.forward(&network.batch(sights.iter()));
        assert_eq!(q.shape(), [3, 4]);
        let q = q.to_vec().unwrap();
        for (sight, q) in sights.iter().zip(q.chunks(4)) {
            for (got, wanted) in q.iter().zip(naive.q(&shape, sight)) {
                // Sums of some fifty products in f32, and a division by a small deviation.
                assert!(
                    (f64::from(*got) - wanted).abs() < 1e-4,
                    "{channels:?} {got} {wanted}"
                );
            }
        }
        let one = network.forward_of(&network.batch(sights.iter()), [3, 0, 2].into_iter());
        assert_eq!(one.to_vec().unwrap(), [q[3], q[4], q[10]]);
    }
}

/// Everything in it learns: each weight has a gradient, and 20 updates towards made-up targets bring it near.
#[test]
fn every_weight_learns() {
    let lake = lake(json!({ "map": ["SFFF", "FFHF", "HFFG"], "step_limit": 5 }));
    let value = value(&[3, 2]);
    let shape = Shape::of(&*lake, &value).unwrap();
    let heads = Heads {
        actions: 4,
        dueling: true,
        layer_norm: true,
    };
    let (network, _) = Network::fresh(&gpu(), &shape, &value, heads, 3);
    let sights = sights(&shape, &*lake);
    let loss = network
        .forward(&network.batch(sights.iter()))
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

/// The network chooses, the target network values: what it would choose itself is too much by its own errors.
#[test]
fn a_target_is_chosen_by_one_network_and_valued_by_the_other() {
    let lake = lake(json!({ "map": ["SFFF", "FFHF", "HFFG"], "step_limit": 5 }));
    let value = value(&[]);
    let shape = Shape::of(&*lake, &value).unwrap();
    let network = |seed| Network::fresh(&gpu(), &shape, &value, PLAIN, seed).0;
    let sights: Vec<Arc<Sight>> = sights(&shape, &*lake).into_iter().map(Arc::new).collect();
    let q = |network: &Network, sight: &Sight| {
        let q = network.forward(&network.batch([sight].into_iter()));
        q.to_vec().unwrap()
    };
    let online = network(1);
    // One that would choose otherwise after the last state, or this would show nothing.
    let choice = |network: &Network| best(&q(network, &sights[2]));
    let other = |target: &Network| choice(target) != choice(&online);
    let target = (2..50)
        .map(network)
        .find(other)
        .expect("one in four agrees");
    let transition = |next: Option<usize>| Transition {
        sight: sights[0].clone(),
        action: 1,
        reward: 2.0,
        next: next.map(|next| sights[next].clone()),
        discount: 0.25,
    };
    let all = [transition(Some(1)), transition(None), transition(Some(2))];
    let y = targets(&online, &target, &all).unwrap();
    let wanted = |next: usize| {
        let chosen = best(&q(&online, &sights[next]));
        2.0 + 0.25 * q(&target, &sights[next])[chosen]
    };
    assert_eq!(y, [wanted(1), 2.0, wanted(2)]);
}

/// A player who walks by the script, and sees what a network would.
struct Walker<'a>(Scripted, ValuePlayer<'a>);

impl Player for Walker<'_> {
    fn act(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Reply>, Error> {
        self.1.act(asks)?;
        self.0.act(asks)
    }

    fn stopped(&mut self, ask: &Ask<'_>) -> Result<(), Error> {
        self.1.stopped(ask)
    }
}

fn walked(limit: usize, turns_left: bool) -> (Vec<Episode>, Vec<Path>) {
    let lake = lake(json!({ "step_limit": limit }));
    let value = Value {
        turns_left,
        ..value(&[])
    };
    let shape = Shape::of(&*lake, &value).unwrap();
    let (network, _) = Network::fresh(&gpu(), &shape, &value, PLAIN, 1);
    let seats: Vec<Seat> = (0..5)
        .map(|seed| Seat {
            scene: seed,
            luck: seed,
            reply: seed,
        })
        .collect();
    let referee = Referee {
        step_limit: limit,
        format_penalty: 0.0,
    };
    let exploring = ValuePlayer::exploring(&network, &shape, 0.0, seats.len());
    let mut walker = Walker(Scripted::default(), exploring);
    let episodes = referee
        .play(&*lake, &seats, &mut [&mut walker], &mut |_| ())
        .unwrap();
    (episodes, walker.1.into_paths())
}

/// Six steps to the goal are six transitions, the last ones shorter, and none knows another episode.
#[test]
fn an_episode_of_six_turns_is_six_transitions() {
    let (episodes, paths) = walked(20, true);
    for (episode, path) in episodes.iter().zip(&paths) {
        assert_eq!((episode.turns.len(), episode.success), (6, true));
        let stored: Vec<Transition> = transitions(episode, path, 3, 0.5).collect();
        assert_eq!(stored.len(), 6);
        for (turn, it) in stored.iter().enumerate() {
            assert_eq!(it.sight, path.sights[turn]);
            assert_eq!(Some(it.action), episode.turns[turn].action);
            assert_eq!(it.next.as_ref(), path.sights.get(turn + 3));
            assert_eq!(it.sight.turns_left, 1.0 - turn as f32 / 20.0);
        }
        let rewards: Vec<f32> = stored.iter().map(|it| it.reward).collect();
        assert_eq!(rewards, [0.0, 0.0, 0.0, 0.25, 0.5, 1.0]);
    }
}

/// A limit that is seen coming is an end. One that is not is none: what the episode was stopped in is worth something.
#[test]
fn a_limit_that_cannot_be_seen_is_no_end() {
    for (turns_left, goes_on) in [(true, false), (false, true)] {
        let (episodes, paths) = walked(4, turns_left);
        for (episode, path) in episodes.iter().zip(&paths) {
            assert!(episode.is_truncated());
            assert_eq!(path.goes_on(), goes_on);
            let stored: Vec<Transition> = transitions(episode, path, 3, 0.5).collect();
            assert_eq!(stored.len(), 4);
            let next: Vec<bool> = stored.iter().map(|it| it.next.is_some()).collect();
            assert_eq!(next, [true, goes_on, goes_on, goes_on]);
            if goes_on {
                let last = &path.sights[4];
                assert!(stored[1..].iter().all(|it| it.next.as_ref() == Some(last)));
                assert_ne!(last, &path.sights[3]);
            }
        }
    }
    // What is over is over, seen or not.
    let (_, paths) = walked(20, false);
    assert!(
        paths
            .iter()
            .all(|path| !path.goes_on() && path.sights.len() == 6)
    );
}

fn config(learner: &str, settings: &[&str]) -> Config {
    let own = [
        "learner=\"LEARNER\"",
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
        "eval.episodes=2",
    ];
    let all = own.iter().chain(settings);
    let all: Vec<String> = all.map(|text| text.replace("LEARNER", learner)).collect();
    Config::load("frozen-lake-pqn", &all).unwrap()
}

fn step(state: &mut State) -> PlayMetrics {
    let (metrics, _) = trainer::step(state, &()).unwrap();
    state.step += 1;
    assert_eq!(metrics.updates_dropped, 0);
    metrics.play
}

/// PQN expects of the state in which a limit that it cannot see stopped an episode what its network says of it, and of
/// nothing else.
#[test]
fn pqn_goes_on_where_a_limit_stopped_it() {
    let settings = ["value.turns_left=false", "game.options.step_limit=2"];
    let mut state = State::new(&gpu(), config("pqn", &settings)).unwrap();
    let mut played = state.play(&()).unwrap();
    let network = state.network.without_gradients();
    let expected: Vec<Option<f64>> = (played.paths.iter())
        .map(|path| {
            let last = path.sights.last().filter(|_| path.goes_on())?;
            let q = network.forward(&network.batch([&**last].into_iter()));
            let best = q.to_vec().unwrap().into_iter().fold(f32::MIN, f32::max);
            Some(f64::from(best))
        })
        .collect();
    assert!(expected.iter().any(Option::is_some), "none was stopped");
    pqn::learn(&mut state, &mut played, &()).unwrap();
    for ((episode, path), expected) in played.episodes.iter().zip(&played.paths).zip(expected) {
        let behind = path.values.get(episode.turns.len());
        match (behind, expected) {
            // A batch of another size adds up in another order.
            (Some(value), Some(expected)) => assert!((value - expected).abs() < 1e-4),
            (value, expected) => assert_eq!((value, expected), (None, None)),
        }
    }
}

/// On a firm lake of nine cells the next best action is worth a tenth less (gamma 0.9, two steps longer or lost), and every
/// state is met hundreds of times: the error of a network that has learned at all is far below that, on any adapter. All
/// chance follows from the seed.
#[test]
fn both_learn_a_small_lake() {
    for learner in ["dqn", "pqn"] {
        let mut state = State::new(&gpu(), config(learner, &[])).unwrap();
        for _ in 0..60 {
            step(&mut state);
        }
        let seats = state.evaluation_seats().unwrap();
        let network = state.network.without_gradients();
        let mut player = ValuePlayer::greedy(&network, &state.shape);
        let referee = state.referee();
        let episodes = examine(&*state.scenario, &referee, &seats, &mut player, &()).unwrap();
        for episode in episodes {
            assert!(episode.success, "{learner}: {} turns", episode.turns.len());
            assert_eq!(episode.turns.len(), 4, "{learner}: there is a shorter way");
        }
    }
}

/// What is put back goes on as if nothing had happened, replay and target network included; another seed plays otherwise.
#[test]
fn a_run_that_goes_on_is_the_run_that_never_stopped() {
    for learner in ["dqn", "pqn"] {
        let fresh = |settings: &[&str]| State::new(&gpu(), config(learner, settings)).unwrap();
        let mut whole = fresh(&[]);
        (0..7).for_each(|_| drop(step(&mut whole)));
        let halfway = whole.snapshot().unwrap();
        let rest: Vec<PlayMetrics> = (0..4).map(|_| step(&mut whole)).collect();
        let wanted = whole.snapshot().unwrap();

        let mut again = fresh(&[]);
        step(&mut again);
        again.restore(&halfway);
        assert_eq!(again.snapshot().unwrap(), halfway);
        let replayed: Vec<PlayMetrics> = (0..4).map(|_| step(&mut again)).collect();
        assert_eq!(replayed, rest, "{learner}");
        assert_eq!(again.snapshot().unwrap(), wanted, "{learner}");

        let mut other = fresh(&["train.seed=2"]);
        (0..7).for_each(|_| drop(step(&mut other)));
        assert_ne!(other.snapshot().unwrap().parameters, halfway.parameters);
    }
}

/// It begins at any action, ends at the chance that was wanted, and stays there.
#[test]
fn exploration_goes_down_in_a_straight_line() {
    let mut state = State::new(&gpu(), config("pqn", &["value.anneal=10"])).unwrap();
    let mut at = |step| {
        state.step = step;
        (state.epsilon(), state.knobs(1e-8).lr)
    };
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

/// A file of another network is named for what it is.
#[test]
fn weights_are_written_and_read_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("network.safetensors");
    let state = State::new(&gpu(), config("dqn", &[])).unwrap();
    state.save_network(&path).unwrap();
    let named = format!(
        "value.network={}",
        toml::Value::from(path.to_str().unwrap())
    );
    let of = |learner: &str, more: &[&str]| {
        let settings = [&[&*named, "train.seed=5"], more].concat();
        State::new(&gpu(), config(learner, &settings))
    };
    let again = of("dqn", &[]).unwrap();
    assert_eq!(
        again.parameters.values().unwrap(),
        state.parameters.values().unwrap()
    );
    let refused = |error: Error| error.to_string().replace(path.to_str().unwrap(), "FILE");
    let wider = of("dqn", &["value.hidden=[33]"]).err().unwrap();
    insta::assert_snapshot!(refused(wider), @"the network FILE: dense.0.weight has the shape [36, 32], and this config and game want [36, 33]");
    let other = of("pqn", &[]).err().unwrap();
    insta::assert_snapshot!(refused(other), @"the network FILE: it lacks dense.0.norm; made with other layers, or another learner");
    std::fs::write(&path, "nothing").unwrap();
    insta::assert_snapshot!(refused(of("dqn", &[]).err().unwrap()), @"the network FILE: no network: header too small");
}
