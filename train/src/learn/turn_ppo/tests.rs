//! What must hold of turn-level PPO, on the embedded base.

use std::collections::HashMap;

use lapwing_tensor::check::gpu;

use super::*;
use crate::learn::ms_grpo;
use crate::run::checkpoint;
use crate::run::config::Config;
use crate::run::state::Purpose;

fn state(changes: &[&str]) -> State {
    let base = [
        "credit.method=critic",
        "train.groups=2",
        "train.group_size=12",
        "eval.episodes=4",
    ];
    let changes = base
        .iter()
        .chain(changes)
        .map(|change| (*change).to_owned());
    let config = Config::load("frozen-lake", &changes.collect::<Vec<_>>()).unwrap();
    State::new(&gpu(), config, Purpose::Train, &()).unwrap()
}

fn advance(state: &mut State) -> StepMetrics {
    let (metrics, _) = step(state, &()).unwrap();
    state.step += 1;
    StepMetrics {
        time: 0.0,
        seconds_rollout: 0.0,
        seconds_update: 0.0,
        ..metrics
    }
}

fn explained(metrics: &StepMetrics) -> f64 {
    let critic = metrics.critic.expect("a critic");
    critic.explained_variance.expect("returns differ")
}

/// What the mean of what came in each state explains of what came: of all that can be said by the state, this fits the
/// turns at hand best.
fn explained_by_a_table(groups: &[Group], gamma: f64) -> f64 {
    let mut states: HashMap<&[u32], Vec<f64>> = HashMap::new();
    for episode in groups.iter().flat_map(|group| &group.episodes) {
        let mut to_come = 0.0;
        for turn in episode.turns.iter().rev() {
            to_come = turn.reward + turn.shaping + gamma * to_come;
            let sampled = turn.sampled.as_ref().expect("a model's turn");
            states.entry(&sampled.prompt).or_default().push(to_come);
        }
    }
    let square = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
    };
    let all: Vec<f64> = states.values().flatten().copied().collect();
    1.0 - states.values().map(|of| square(of)).sum::<f64>() / square(&all)
}

/// The policy stays as it is, on one map, so that there is something fixed to know, though its dice decide most. A critic that has seen twenty times as
/// many turns as the step has should know half of what the turns of the step tell about themselves.
#[test]
fn the_critic_learns_what_comes() {
    let mut state = state(&[
        "critic.warmup=30",
        "train.groups=4",
        "critic.lr=0.003",
        "credit.lambda=1",
        "game.options.map=[\"SFF\", \"FFH\", \"HFG\"]",
    ]);
    let mut told = Vec::new();
    for _ in 0..20 {
        let (metrics, groups) = step(&mut state, &()).unwrap();
        state.step += 1;
        let table = explained_by_a_table(&groups, state.config.credit.gamma);
        told.push((explained(&metrics), table));
    }
    assert_eq!(told[0].0, 0.0, "it says the same of all at first");
    let mean = |of: fn(&(f64, f64)) -> f64| told[16..].iter().map(of).sum::<f64>() / 4.0;
    let (critic, table) = (mean(|both| both.0), mean(|both| both.1));
    assert!(critic > 0.5 * table && table > 0.05, "{told:?}");
}

#[test]
fn while_the_critic_warms_up_the_policy_stays_as_it_is() {
    let mut state = state(&["critic.warmup=2"]);
    let weights = |state: &State| state.parameters.as_ref().unwrap().state().unwrap();
    let before = weights(&state);
    let critic = |state: &State| state.critic.as_ref().unwrap().parameters.state().unwrap();
    for _ in 0..2 {
        let known = critic(&state);
        let metrics = advance(&mut state);
        assert!(metrics.is_warmup());
        assert_eq!((metrics.learned, metrics.groups_skipped), (None, 0));
        assert_ne!(critic(&state), known);
    }
    // Moments and all.
    assert_eq!(weights(&state), before);
    assert_eq!(state.parameters.as_ref().unwrap().steps(), 0);
    assert_eq!(state.updates(), 20);
    let metrics = advance(&mut state);
    assert!(metrics.learned.is_some() && !metrics.is_warmup());
    assert_ne!(weights(&state), before);
    assert_eq!(state.updates(), 31);
}

/// Nothing but credit and critic is different: with equal advantages the policy learns what it would in MS-GRPO.
#[test]
fn it_learns_as_ms_grpo_does() {
    // V = 0 for all, no discount, to the end: what follows the first turn is the return of the episode.
    let settings = [
        "critic.warmup=0",
        "critic.lr=0",
        "credit.gamma=1",
        "credit.lambda=1",
        "credit.normalise=mean",
        "train.sampling=all",
    ];
    let mut ours = state(&settings);
    let (_, groups) = step(&mut ours, &()).unwrap();
    for episode in groups
        .iter()
        .flat_map(|g| g.episodes.iter().zip(&g.credits))
    {
        let (episode, credit) = episode;
        let whole = episode.composite_return();
        assert!((credit.turns[0] - whole).abs() < 1e-9);
    }
    let norm = ours.parameters.as_ref().unwrap().state().unwrap();

    // The same groups, learned from by the other's own function.
    let mut theirs = state(&settings);
    let mut played = rollout(&mut theirs, &()).unwrap().groups;
    for (own, group) in groups.iter().zip(&mut played) {
        assert_eq!(own.episodes, group.episodes);
        group.credits.clone_from(&own.credits);
        group.entropy_weight = own.entropy_weight;
    }
    choose(&mut played, &theirs.config.train, 0);
    ms_grpo::learn(&mut theirs, &played, &()).unwrap();
    assert_eq!(theirs.parameters.as_ref().unwrap().state().unwrap(), norm);
}

/// Through a file, in the middle of the run: bits of policy, critic and metrics are those of a run that was not stopped.
#[test]
fn a_run_goes_on_where_it_was() {
    let settings = ["critic.warmup=1", "train.lr=0.003", "train.steps=9"];
    let mut whole = state(&settings);
    (0..2).for_each(|_| drop(advance(&mut whole)));
    let dir = tempfile::tempdir().unwrap();
    let snapshot = whole.snapshot().unwrap();
    assert_eq!((snapshot.critic_updates, snapshot.critic.len()), (20, 6));
    checkpoint::save(
        dir.path(),
        &whole.config,
        &whole.fingerprint,
        &snapshot,
        [0, 0],
    )
    .unwrap();
    let after: Vec<StepMetrics> = (0..2).map(|_| advance(&mut whole)).collect();

    let mut other = state(&settings);
    advance(&mut other);
    let (saved, damaged) = checkpoint::latest(dir.path());
    assert!(damaged.is_empty(), "{damaged:?}");
    let names = (&*other.model_name, &*other.fingerprint);
    let parameters = other.parameters.as_ref().unwrap();
    let read = saved
        .unwrap()
        .snapshot(&other.config, names, parameters.names());
    let read = read.unwrap();
    assert_eq!(read, snapshot);
    other.restore(&read);
    let again: Vec<StepMetrics> = (0..2).map(|_| advance(&mut other)).collect();
    assert_eq!(after, again);
    assert_eq!(other.snapshot().unwrap(), whole.snapshot().unwrap());
}

/// The plan of a run with a critic counts its numbers and the states that it keeps.
#[test]
fn the_memory_of_a_critic_is_planned() {
    use std::cell::RefCell;

    use crate::run::memory::Plan;

    #[derive(Default)]
    struct Told(RefCell<Option<Plan>>);
    impl Progress for Told {
        fn planned(&self, plan: &Plan) {
            *self.0.borrow_mut() = Some(plan.clone());
        }
        fn phase(&self, _: &'static str, _: usize, _: &'static str) {}
        fn done(&self, _: usize) {}
        fn loaded(&self, _: &str, _: &lapwing_model::Model) {}
        fn note(&self, _: &str) {}
    }
    let plan = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        let config = Config::load("frozen-lake", &settings).unwrap();
        let told = Told::default();
        State::new(&gpu(), config, Purpose::Train, &told).unwrap();
        told.0.take().unwrap()
    };
    let (without, with) = (plan(&[]), plan(&["credit.method=critic"]));
    let width = state(&[]).policy.model.config().width as u64;
    let numbers = 64 * width + 64 + 64 + 1 + width + 1;
    assert_eq!(with.optimiser - without.optimiser, 4 * 5 * numbers);
    // 4 groups of 25, 20 turns and what comes after; features, and the hidden layer four times.
    let states = 100 * 21 * (width + 4 * 64);
    assert_eq!(with.activations - without.activations, 4 * states);
}
