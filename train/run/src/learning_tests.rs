//! Runs with a critic and runs of value learners: checkpoints, the memory plan and network files named by the config.

use lapwing_learn::metrics::StepMetrics;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::metrics::PlayMetrics;
use lapwing_tensor::check::gpu;
use lapwing_tensor::{Gpu, GpuOptions};

use crate::learner::Learner;
use crate::memory::MemoryPlan;
use crate::snapshot::Snapshot;
use crate::state::{RunPurpose, State};
use crate::{Config, Error, checkpoint, trainer};

fn config(preset: &str, changes: &[&str]) -> Config {
    let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
    Config::load(preset, &changes).unwrap()
}

fn with_critic(changes: &[&str]) -> State {
    let own = [
        "credit.method=critic",
        "train.groups=2",
        "train.group_size=12",
        "eval.episodes=4",
    ];
    let config = config("frozen-lake", &[&own, changes].concat());
    State::new(&gpu(), None, config, RunPurpose::Train, &()).unwrap()
}

/// Makes a step. Returns its metrics without times.
fn advance<L: Learner>(state: &mut State<L>) -> StepMetrics {
    let stepped = Learner::step(&mut state.learner, &state.config, state.step, &());
    let (metrics, _) = stepped.unwrap();
    state.step += 1;
    StepMetrics {
        time: 0.0,
        seconds_rollout: 0.0,
        seconds_update: 0.0,
        ..metrics
    }
}

/// Writes a snapshot of a state to a checkpoint. Returns what is read, which is equal.
fn through_a_file<L: Learner>(state: &State<L>, mut snapshot: Snapshot) -> Snapshot {
    let dir = tempfile::tempdir().unwrap();
    let (config, fingerprint) = (&state.config, &state.fingerprint);
    checkpoint::save(dir.path(), config, fingerprint, &snapshot, [0, 0]).unwrap();
    let (saved, damaged) = checkpoint::latest(dir.path());
    assert!(damaged.is_empty(), "{damaged:?}");
    let mut read = trainer::snapshot_of(state, saved.unwrap()).unwrap();
    // In the file they have names and no order.
    for snapshot in [&mut read, &mut snapshot] {
        snapshot.memory.sort_by(|a, b| a.0.cmp(&b.0));
    }
    assert_eq!(read, snapshot);
    read
}

/// Policy, critic and metrics of a resumed run are bit-identical to those of an uninterrupted one.
#[test]
fn a_resumed_run_with_a_critic_continues_identically() {
    let settings = ["critic.warmup=1", "train.lr=0.003", "train.steps=9"];
    let mut whole = with_critic(&settings);
    (0..2).for_each(|_| drop(advance(&mut whole)));
    let snapshot = whole.snapshot().unwrap();
    assert_eq!((snapshot.critic_updates, snapshot.critic.len()), (20, 6));
    let read = through_a_file(&whole, snapshot);
    let after: Vec<StepMetrics> = (0..2).map(|_| advance(&mut whole)).collect();

    let mut other = with_critic(&settings);
    advance(&mut other);
    other.restore(&read);
    let again: Vec<StepMetrics> = (0..2).map(|_| advance(&mut other)).collect();
    assert_eq!(after, again);
    assert_eq!(other.snapshot().unwrap(), whole.snapshot().unwrap());
}

/// The memory plan counts the critic's weights and the states that it stores.
#[test]
fn the_memory_of_a_critic_is_planned() {
    let plan = |settings: &[&str]| -> MemoryPlan {
        let config = config("frozen-lake", settings);
        let state = State::new(&gpu(), None, config, RunPurpose::Train, &()).unwrap();
        state.plan.unwrap()
    };
    let (without, with) = (plan(&[]), plan(&["credit.method=critic"]));
    let width = with_critic(&[]).learner.policy.model.config().width as u64;
    let numbers = 64 * width + 64 + 64 + 1 + width + 1;
    assert_eq!(with.optimiser - without.optimiser, 4 * 5 * numbers);
    // 16 groups of 8, 20 turns and the state after; features, and the hidden layer four times.
    let states = 128 * 21 * (width + 4 * 64);
    assert_eq!(with.activations - without.activations, 4 * states);
}

/// What stays on the device after a step grows with the trained weights as their part of the plan, which is somewhat larger.
#[test]
fn trained_weights_take_what_is_planned() {
    let taken = |setting: &str| {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let config = config("frozen-lake", &["eval.episodes=4", setting]);
        let mut state = State::new(&gpu, None, config, RunPurpose::Train, &()).unwrap();
        advance(&mut state);
        (
            gpu.bytes_in_use() as f64,
            state.plan.unwrap().optimiser as f64,
        )
    };
    let (small, small_plan) = taken("lora.rank=1");
    for setting in ["lora.rank=64", "train.weights=all"] {
        let (large, plan) = taken(setting);
        let share = (large - small) / (plan - small_plan);
        assert!(
            (0.7..1.0).contains(&share),
            "{setting}: {share} of the plan"
        );
    }
}

fn network(learner: &str, changes: &[&str]) -> Result<State<NetworkLearner>, Error> {
    let learner = format!("learner={learner}");
    let own = [
        &*learner,
        "game.options={ map = [\"SFF\", \"FHF\", \"HFG\"], step_limit = 12 }",
        "value.hidden=[32]",
        "value.episodes=16",
        "value.batch=64",
        "dqn.start=64",
        "dqn.capacity=300",
        "dqn.target=20",
        "dqn.updates=8",
        "eval.episodes=2",
    ];
    State::network(&gpu(), config("frozen-lake-pqn", &[&own, changes].concat()))
}

/// Snapshots of value learners include the replay and the target network.
#[test]
fn a_resumed_run_of_a_value_learner_continues_identically() {
    for learner in ["dqn", "pqn"] {
        let mut whole = network(learner, &[]).unwrap();
        (0..7).for_each(|_| drop(advance(&mut whole)));
        let halfway = whole.snapshot().unwrap();
        let read = through_a_file(&whole, halfway.clone());
        let play = |state: &mut State<NetworkLearner>| advance(state).play;
        let rest: Vec<PlayMetrics> = (0..4).map(|_| play(&mut whole)).collect();

        let mut again = network(learner, &[]).unwrap();
        advance(&mut again);
        again.restore(&read);
        assert_eq!(again.snapshot().unwrap(), halfway);
        let replayed: Vec<PlayMetrics> = (0..4).map(|_| play(&mut again)).collect();
        assert_eq!(replayed, rest, "{learner}");
        assert_eq!(again.snapshot().unwrap(), whole.snapshot().unwrap());
    }
}

#[test]
fn a_config_names_the_file_of_a_network() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("network.safetensors");
    let state = network("dqn", &[]).unwrap();
    state.save(&path).unwrap();
    let name = toml::Value::from(path.to_str().unwrap());
    let named = format!("value.network={name}");
    let of = |learner: &str, more: &[&str]| {
        let own = [&*named, "train.seed=5"];
        network(learner, &[&own, more].concat())
    };
    let again = of("dqn", &[]).unwrap();
    let values = |state: &State<NetworkLearner>| state.learner.parameters.values().unwrap();
    assert_eq!(values(&again), values(&state));
    for other in [of("dqn", &["value.hidden=[33]"]), of("pqn", &[])] {
        let error = other.err().unwrap().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
