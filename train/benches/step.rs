//! What a training step of the default preset takes, and how that splits: `cargo bench -p lapwing`.
//!
//! `step` is play, weigh, choose and learn together: 100 episodes, packed and merged.

use criterion::{Criterion, criterion_group, criterion_main};
use lapwing::batch::{Chosen, pack};
use lapwing::config::Aggregation;
use lapwing::ms_grpo::train;
use lapwing::progress::Progress;
use lapwing::report::Report;
use lapwing::rollout::{Episode, Seat};
use lapwing::run::{Purpose, Run};
use lapwing::run_dir::RunDir;
use lapwing::{Config, seeds};
use lapwing_model::{TokenTree, Tokens};
use lapwing_tensor::{Gpu, GpuOptions, Indices};

fn run(steps: usize) -> Run {
    let changes = [
        format!("train.steps={steps}"),
        "eval.episodes=1".to_owned(),
        "eval.every=0".to_owned(),
    ];
    let config = Config::load("frozen-lake", &changes).expect("a preset");
    let gpu = Gpu::open(GpuOptions::default()).expect("an adapter");
    Run::new(&gpu, config, Purpose::Train, &Progress::hidden()).expect("the embedded base")
}

/// The episodes that the first step plays.
fn episodes(run: &mut Run) -> Vec<Episode> {
    let train = &run.config.train;
    let seats: Vec<Seat> = (0..train.groups * train.group_size)
        .map(|i| Seat {
            scene: run.training_scene(0, i / train.group_size),
            luck: seeds::derive(1, "luck", &[i]),
            reply: seeds::derive(1, "reply", &[i]),
        })
        .collect();
    run.play(&seats, 1.0, |_| ()).expect("the device")
}

/// Ten steps, so that the two evaluations of one episode weigh little.
fn step(criterion: &mut Criterion) {
    const STEPS: usize = 10;
    let mut run = run(STEPS);
    criterion
        .benchmark_group("training")
        .sample_size(10)
        .bench_function("ten steps", |bencher| {
            bencher.iter(|| {
                let dir = tempfile::tempdir().expect("a temporary directory");
                let place = RunDir::place(Some(dir.path()), &run.config).expect("a free place");
                let directory = RunDir::create(&place, &run.config).expect("a run directory");
                train(
                    &mut run,
                    &mut Report::new(directory, Progress::hidden(), STEPS),
                )
                .expect("a run");
            });
        });
    criterion
        .benchmark_group("training")
        .sample_size(10)
        .bench_function("rollout of 100 episodes", |bencher| {
            bencher.iter(|| episodes(&mut run))
        });
}

/// One tree against a sequence for every step of every episode, in one run: what packing and merging bring.
fn packing(criterion: &mut Criterion) {
    let mut run = run(1);
    let played = episodes(&mut run);
    // A tenth of the episodes: separate sequences of all of them would take minutes.
    let chosen: Vec<Chosen<'_>> = played
        .iter()
        .step_by(10)
        .map(|episode| Chosen {
            episode,
            advantage: 1.0,
            importance: 1.0,
        })
        .collect();
    let gpu = run.agent.model.gpu().clone();
    let (model, adapter) = (&run.agent.model, run.agent.adapter.as_ref());
    let gradients = |tree: &lapwing_model::PackedTree, rows: &[u32], targets: &[u32]| {
        let hidden = model.forward(&Tokens::new(&gpu, tree), adapter);
        let (rows, targets) = (Indices::new(&gpu, rows), Indices::new(&gpu, targets));
        let log_probs = hidden
            .log_probs(&model.head(adapter), &rows, &targets, 1.0)
            .log_probs;
        let _gradients = log_probs.sum().backward();
        gpu.finish().expect("the device");
    };
    let mut group = criterion.benchmark_group("log-probs and gradients of ten episodes");
    group.sample_size(10);
    group.bench_function("one merged tree", |bencher| {
        bencher.iter(|| {
            for batch in pack(&chosen, Aggregation::Token, 8192) {
                gradients(&batch.tree, &batch.rows, &batch.targets);
            }
        });
    });
    group.bench_function("a sequence for every step", |bencher| {
        bencher.iter(|| {
            for step in chosen.iter().flat_map(|c| &c.episode.steps) {
                let mut tree = TokenTree::new();
                tree.insert(&step.prompt);
                gradients(
                    &tree.pack(),
                    &[step.prompt.len() as u32 - 1],
                    &step.reply[..1],
                );
            }
        });
    });
}

criterion_group!(benches, step, packing);
criterion_main!(benches);
