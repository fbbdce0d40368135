//! The time of sampling and scoring at the size of the embedded default: `cargo bench -p lapwing-model`.

use criterion::{Criterion, criterion_group, criterion_main};
use lapwing_model::{
    Adapter, GenerationRequest, KvArena, LoraConfig, Model, ModelConfig, ModelShape,
    SamplingOptions, Targets, TokenTree, Tokens, generate, initial_weights,
};
use lapwing_tensor::{Gpu, GpuOptions, Indices, Parameters};

const RULES: usize = 60;
const OBSERVATION: usize = 24;
const EPISODES: u64 = 100;
/// Distinct observations among those of all living episodes.
const STATES: u64 = 16;

fn model() -> (Model, Adapter) {
    let gpu = Gpu::open(GpuOptions::default()).expect("a device");
    let config = ModelConfig::qwen2(ModelShape {
        vocab: 64,
        width: 96,
        layers: 3,
        heads: 4,
        kv_heads: 4,
        mlp_width: 256,
    });
    let parameters = Parameters::new(&gpu, &initial_weights(&config, 1));
    let model = Model::over(&gpu, config, &parameters).without_gradients();
    let targets = Targets::Pattern(".*".into());
    let lora = LoraConfig {
        rank: 32,
        targets,
        ..LoraConfig::default()
    };
    let (adapter, _) = Adapter::new(&model, lora, 2).expect("layers of these names");
    (model, adapter)
}

/// The rules, and one of the observations of a round.
fn prompt(round: u64, state: u64) -> Vec<u32> {
    let rules = (0..RULES as u64).map(|i| (i * i % 61) as u32);
    let board = (0..OBSERVATION as u64)
        .map(|i| ((i * 7 + state * 13 + round * 29 + i * state) % 59) as u32);
    rules.chain(board).collect()
}

fn requests(round: u64) -> Vec<GenerationRequest> {
    let request = |i| GenerationRequest {
        prompt: prompt(round, i % STATES),
        key: round << 32 | i,
    };
    (0..EPISODES).map(request).collect()
}

fn sampling(criterion: &mut Criterion) {
    let (model, adapter) = model();
    let mut arena = KvArena::new(&model, 1 << 14, 1 << 16);
    for length in [1, 8] {
        let sampling = SamplingOptions {
            temperature: 1.0,
            max_new_tokens: length,
            ..SamplingOptions::default()
        };
        let mut round = 0;
        criterion.bench_function(
            &format!("one round, 100 episodes, replies of {length}"),
            |bencher| {
                bencher.iter(|| {
                    round += 1;
                    if round % 16 == 0 {
                        arena.clear();
                    }
                    generate(
                        &model,
                        Some(&adapter),
                        &mut arena,
                        &requests(round),
                        &sampling,
                        &mut |_, _| true,
                    )
                    .expect("replies")
                })
            },
        );
    }
}

fn learning(criterion: &mut Criterion) {
    let (model, adapter) = model();
    let mut tree = TokenTree::new();
    let mut nodes = Vec::new();
    for round in 0..10 {
        nodes.extend((0..STATES).map(|state| tree.insert(&prompt(round, state))));
    }
    let packed = tree.pack();
    let rows: Vec<u32> = nodes.iter().map(|&node| packed.last(node)).collect();
    let targets: Vec<u32> = rows.iter().map(|row| row % 50).collect();
    let gpu = model.gpu();
    let (rows, targets) = (Indices::new(gpu, &rows), Indices::new(gpu, &targets));
    let score = |adapter: Option<&Adapter>| {
        let hidden = model.forward(&Tokens::new(gpu, &packed), adapter);
        hidden
            .log_probs(&model.head(adapter), &rows, &targets, 1.0)
            .log_probs
    };
    let tokens = packed.len();
    criterion.bench_function(
        &format!("reference log-probs, {tokens} tokens"),
        |bencher| bencher.iter(|| score(None).to_vec().expect("values")),
    );
    criterion.bench_function(
        &format!("log-probs and gradients, {tokens} tokens"),
        |bencher| {
            bencher.iter(|| {
                let gradients = score(Some(&adapter)).sum().backward();
                gpu.finish().expect("gradients");
                gradients
            })
        },
    );
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = sampling, learning
}
criterion_main!(benches);
