//! The time of a training step of the default preset, and of its parts: `cargo bench -p lapwing-train`.
//!
//! `step` is a whole training step: 100 episodes, packed and merged. `dialects` also measures it with only what WebGPU
//! guarantees, and with the kernels for GPUs.

use criterion::{Criterion, criterion_group, criterion_main};
use lapwing_learn::batch;
use lapwing_learn::batch::Group;
use lapwing_learn::batch::{SelectedEpisode, pack};
use lapwing_learn::config::Aggregation;
use lapwing_learn::metrics::StepMetrics;
use lapwing_learn::ms_grpo;
use lapwing_model::{PackedTree, TokenTree, Tokens};
use lapwing_play::seeds;
use lapwing_play::{Episode, Seat};
use lapwing_tensor::{Gpu, GpuOptions, Indices};
use lapwing_train::Config;
use lapwing_train::health::HealthChecks;
use lapwing_train::record::directory;
use lapwing_train::record::directory::RunDirectory;
use lapwing_train::record::{Record, Sink};
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::{checkpoint, samples};

fn state() -> State {
    state_on(Gpu::open(GpuOptions::default()).expect("an adapter"))
}

fn state_on(gpu: Gpu) -> State {
    let config = Config::load("frozen-lake", &["eval.episodes=1".to_owned()]).expect("a preset");
    State::new(&gpu, None, config, RunPurpose::Train, &()).expect("the embedded base")
}

/// Returns the episodes that the first step plays.
fn episodes(state: &mut State) -> Vec<Episode> {
    let train = &state.config.train;
    let seat = |i| {
        let draw = |attempt| seeds::derive(1, "scene", &[i / train.group_size, attempt]);
        Seat {
            scene: state
                .world()
                .scenes
                .training(&*state.world().scenario, draw)
                .expect("the lake"),
            luck: seeds::derive(1, "luck", &[i]),
            reply: seeds::derive(1, "reply", &[i]),
        }
    };
    let seats: Vec<Seat> = (0..train.groups * train.group_size).map(seat).collect();
    state.play(0, &seats, 1.0, &()).expect("the device")
}

fn train_step(state: &mut State) -> (StepMetrics, Vec<Group>) {
    let (config, step) = (&state.config, state.step);
    let stepped = ms_grpo::step(&mut state.learner, &config.language(), step, &());
    stepped.expect("the device")
}

/// Always the first step of a new adapter, so that every round does the same work.
fn step(criterion: &mut Criterion) {
    let mut state = state();
    let fresh = state.snapshot().expect("the device");
    let mut group = criterion.benchmark_group("training");
    group.sample_size(10);
    group.bench_function("a step", |bencher| {
        bencher.iter(|| {
            state.restore(&fresh);
            train_step(&mut state)
        });
    });
    group.bench_function("rollout of 100 episodes", |bencher| {
        bencher.iter(|| episodes(&mut state))
    });
}

/// The same step in the dialects and with the kernels of other devices, in turn.
fn dialects(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dialects");
    group.sample_size(10);
    for (name, webgpu, like_a_gpu) in [
        ("a step as it is", false, false),
        ("a step as WebGPU", true, false),
        ("a step with a GPU's kernels", false, true),
        ("a step with a GPU's kernels as WebGPU", true, true),
    ] {
        let options = GpuOptions {
            webgpu,
            ..GpuOptions::default()
        };
        let gpu = Gpu::open(options).expect("an adapter");
        let mut state = state_on(gpu.with_caps(|caps| caps.is_software &= !like_a_gpu));
        let fresh = state.snapshot().expect("the device");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                state.restore(&fresh);
                train_step(&mut state)
            });
        });
    }
}

/// One tree in comparison with a sequence for every turn of every episode: the gain of packing and merging.
fn packing(criterion: &mut Criterion) {
    let mut state = state();
    let played = episodes(&mut state);
    let ones = vec![1.0; state.world().scenario.step_limit()];
    // A tenth of the episodes: separate sequences of all of them would take minutes.
    let chosen: Vec<SelectedEpisode<'_>> = played
        .iter()
        .step_by(10)
        .map(|episode| SelectedEpisode {
            episode,
            advantages: &ones,
            importance: 1.0,
            entropy_weight: 0.0,
        })
        .collect();
    let gpu = state.learner.policy.model.gpu().clone();
    let (model, adapter) = (
        &state.learner.policy.model,
        state.learner.policy.adapter.as_ref(),
    );
    let gradients = |tree: &PackedTree, rows: &[u32], targets: &[u32]| {
        let hidden = model.forward(&Tokens::new(&gpu, tree), adapter);
        let (rows, targets) = (Indices::new(&gpu, rows), Indices::new(&gpu, targets));
        let log_probs = hidden
            .log_probs(&model.head(adapter), &rows, &targets, 1.0)
            .log_probs;
        let _gradients = log_probs.sum().backward();
        gpu.finish().expect("the device");
    };
    let over = batch::count(chosen.iter().map(|c| c.episode), Aggregation::Token);
    let mut group = criterion.benchmark_group("log-probs and gradients of ten episodes");
    group.sample_size(10);
    group.bench_function("one merged tree", |bencher| {
        bencher.iter(|| {
            for batch in pack(&chosen, Aggregation::Token, over, 8192) {
                gradients(&batch.tree, &batch.rows, &batch.targets);
            }
        });
    });
    group.bench_function("a sequence for every step", |bencher| {
        bencher.iter(|| {
            for reply in chosen.iter().flat_map(|c| c.episode.sampled()) {
                let mut tree = TokenTree::new();
                tree.insert(&reply.prompt);
                gradients(
                    &tree.pack(),
                    &[reply.prompt.len() as u32 - 1],
                    &reply.ids[..1],
                );
            }
        });
    });
}

/// The cost of records with health checks, of sample episodes, and of saving. A run of the default preset does the first
/// in each of its 100 steps, and the others at each of its five evaluations, saving twice.
fn keeping(criterion: &mut Criterion) {
    let mut state = state();
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut run = RunDirectory::create(home.path(), &state.config).expect("a new directory");
    let (metrics, groups) = train_step(&mut state);
    state.step += 1;
    let mut checks = HealthChecks::default();
    let mut group = criterion.benchmark_group("beside a training step");
    group.sample_size(20);
    group.bench_function("a line of metrics, and the health checks", |bencher| {
        bencher.iter(|| {
            checks.look(&metrics, &groups, &state.config);
            run.record(&Record::Step(metrics.clone()))
                .expect("the disk");
        });
    });
    group.bench_function("sample episodes", |bencher| {
        bencher.iter(|| {
            let samples = samples::of_step(&state.learner, state.step, &groups, 4);
            let samples = samples.expect("the template");
            let mut records = samples.iter();
            records
                .try_for_each(|sample| run.record(sample))
                .expect("the disk");
        });
    });
    group.bench_function("a checkpoint and the adapter", |bencher| {
        bencher.iter(|| {
            let (snapshot, bytes) = (state.snapshot().expect("the device"), run.bytes());
            let (config, bytes) = (&state.config, bytes.expect("the disk"));
            checkpoint::save(run.path(), config, "model", &snapshot, bytes).expect("the disk");
            state
                .save(&directory::adapter(run.path()))
                .expect("the disk");
        });
    });
}

criterion_group!(benches, step, dialects, packing, keeping);
criterion_main!(benches);
