//! The memory formulas against the peak of the memory in use.

use lapwing_model::{
    Adapter, KvArena, LoraConfig, Model, ModelConfig, ModelShape, PackedTree, TokenTree, Tokens,
    initial_weights,
};
use lapwing_tensor::{Gpu, GpuOptions, Indices, Parameters, Tensor};

/// Shapes in which different terms are the largest: blocks, the MLP, the head.
fn shapes() -> [ModelConfig; 3] {
    let blocks = ModelShape {
        vocab: 500,
        width: 256,
        layers: 3,
        heads: 8,
        kv_heads: 2,
        mlp_width: 256,
    };
    let mlp = ModelShape {
        vocab: 300,
        layers: 1,
        heads: 4,
        kv_heads: 4,
        mlp_width: 1024,
        ..blocks
    };
    let head = ModelShape {
        vocab: 5000,
        mlp_width: 256,
        ..mlp
    };
    [blocks, mlp, head].map(ModelConfig::qwen2)
}

/// Enough for tensors above the size below which buffer sizes are powers of two.
const TOKENS: usize = 1100;
const RANK: usize = 8;

const DRAWS: usize = 200;

/// Tokens in short sequences without shared prefixes: attention over long ones would take too long.
fn sequences() -> Vec<Vec<u32>> {
    const LENGTH: usize = 50;
    let sequence = |first| {
        (0..LENGTH)
            .map(|i| ((first + i * i) % 293) as u32)
            .collect()
    };
    (0..TOKENS / LENGTH).map(sequence).collect()
}

struct Bench {
    gpu: Gpu,
    model: Model,
    adapter: Adapter,
    _parameters: (Parameters, Parameters),
}

impl Bench {
    /// Uses its own device, so that no other test's memory is counted.
    fn new(config: ModelConfig) -> Bench {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let weights = Parameters::new(&gpu, &initial_weights(&config, 1));
        let model = Model::over(&gpu, config, &weights).without_gradients();
        let lora = LoraConfig {
            rank: RANK,
            ..LoraConfig::default()
        };
        let (adapter, parameters) = Adapter::new(&model, lora, 2).unwrap();
        Bench {
            gpu,
            model,
            adapter,
            _parameters: (weights, parameters),
        }
    }

    /// Returns the peak of the bytes that `work` takes.
    fn taken(&self, work: impl FnOnce()) -> u64 {
        self.gpu.finish().unwrap();
        let before = self.gpu.bytes_in_use();
        self.gpu.reset_peak();
        work();
        self.gpu.finish().unwrap();
        self.gpu.peak_in_use() - before
    }

    fn update(&self, adapter: Option<&Adapter>, recomputes: bool) {
        let model = self.model.clone().with_recomputation(recomputes);
        self.gradients(adapter, |tokens| model.forward(tokens, adapter));
    }

    fn gradients(&self, adapter: Option<&Adapter>, forward: impl FnOnce(&Tokens) -> Tensor) {
        let packed = tree();
        let rows: Vec<u32> = (0..TOKENS as u32).collect();
        let rows = Indices::new(&self.gpu, &rows);
        let hidden = forward(&Tokens::new(&self.gpu, &packed));
        let head = self.model.head(adapter);
        let targets = Indices::new(&self.gpu, &packed.ids);
        let log_probs = hidden.log_probs(&head, &rows, &targets, &[], 1.0).log_probs;
        drop(hidden);
        drop(log_probs.sum().backward());
    }
}

fn tree() -> PackedTree {
    let mut tree = TokenTree::default();
    for ids in sequences() {
        tree.insert(&ids);
    }
    tree.pack()
}

/// Bytes of the gradients of an adapter: four for each number.
fn adapter_bytes(config: &ModelConfig) -> u64 {
    let lora = LoraConfig {
        rank: RANK,
        ..LoraConfig::default()
    };
    4 * lora.parameters(config).unwrap()
}

/// An estimate that is too small is worse than one that is too large.
fn assert_estimate(what: &str, estimate: u64, taken: u64) {
    let ratio = estimate as f64 / taken as f64;
    println!("{what}: estimated {estimate}, taken {taken}: {ratio:.2}");
    assert!(
        (0.95..1.4).contains(&ratio),
        "{what}: {estimate} for {taken}"
    );
}

#[test]
fn updates_take_the_estimated_memory() {
    for config in shapes() {
        let bench = Bench::new(config.clone());
        for recomputes in [false, true] {
            let taken = bench.taken(|| bench.update(Some(&bench.adapter), recomputes));
            let estimate = config.update_bytes(TOKENS, RANK, recomputes) + adapter_bytes(&config);
            let what = format!("{} {}, recomputes {recomputes}", config.width, config.vocab);
            assert_estimate(&what, estimate, taken);
        }
    }
}

/// Sampling, and the update from what it kept.
#[test]
fn known_updates_take_the_estimated_memory() {
    for config in shapes() {
        let bench = Bench::new(config.clone());
        let taken = bench.taken(|| {
            let (model, adapter) = (&bench.model, Some(&bench.adapter));
            let mut arena = KvArena::new(model, TOKENS, TOKENS);
            arena.keep_results(model, TOKENS);
            let sequences = sequences();
            let sequences: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
            let untracked = bench.adapter.without_gradients();
            arena.prefill(model, Some(&untracked), &sequences).unwrap();
            let kept = arena.kept(&tree()).unwrap();
            bench.gradients(adapter, |tokens| {
                model.forward_known(tokens, adapter, &kept)
            });
        });
        let arena = TOKENS as u64 * config.arena_row_bytes();
        let estimate = config.known_update_bytes(TOKENS, RANK) + arena + adapter_bytes(&config);
        assert_estimate(
            &format!("known {} {}", config.width, config.vocab),
            estimate,
            taken,
        );
    }
}

/// Where all weights are trained, their gradients take four bytes for each of them.
#[test]
fn updates_of_all_weights_take_the_estimated_memory() {
    for config in shapes() {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let parameters = Parameters::new(&gpu, &initial_weights(&config, 1));
        let model = Model::over(&gpu, config.clone(), &parameters);
        let lora = LoraConfig {
            rank: 1,
            ..LoraConfig::default()
        };
        let (adapter, of_adapter) = Adapter::new(&model, lora, 2).unwrap();
        let bench = Bench {
            gpu,
            model,
            adapter,
            _parameters: (parameters, of_adapter),
        };
        for recomputes in [false, true] {
            let taken = bench.taken(|| bench.update(None, recomputes));
            let gradients = 4 * bench._parameters.0.count();
            let estimate = config.update_bytes(TOKENS, 0, recomputes) + gradients;
            let what = format!(
                "all of {} {}, recomputes {recomputes}",
                config.width, config.vocab
            );
            assert_estimate(&what, estimate, taken);
        }
    }
}

#[test]
fn playing_takes_the_estimated_memory() {
    for config in shapes() {
        let bench = Bench::new(config.clone());
        let mut arena = None;
        let taken = bench.taken(|| {
            let mut made = KvArena::new(&bench.model, TOKENS, TOKENS);
            let sequences = sequences();
            let sequences: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
            let adapter = bench.adapter.without_gradients();
            made.prefill(&bench.model, Some(&adapter), &sequences)
                .unwrap();
            let rows = Indices::new(&bench.gpu, &(0..DRAWS as u32).collect::<Vec<u32>>());
            let keys = [[1, 2]; DRAWS];
            drop(
                made.hidden()
                    .draw(&bench.model.head(None), &rows, &keys, 1.0),
            );
            arena = Some(made);
        });
        let arena_bytes = TOKENS as u64 * config.arena_row_bytes();
        let estimate = config.forward_bytes(TOKENS, DRAWS) + arena_bytes;
        assert_estimate(&format!("playing {}", config.width), estimate, taken);
        let held: u64 = bench.taken(|| drop(Tensor::zeros(&bench.gpu, &[1])));
        assert!(held < 1 << 20, "{held}");
    }
}

#[test]
fn an_arena_that_grows_keeps_no_old_tables() {
    let held = |rows: usize| {
        let bench = Bench::new(shapes()[0].clone());
        let mut arena = KvArena::new(&bench.model, rows, 40 * TOKENS);
        for part in [&sequences()[..11], &sequences()[11..]] {
            let part: Vec<&[u32]> = part.iter().map(Vec::as_slice).collect();
            arena.prefill(&bench.model, None, &part).unwrap();
        }
        bench.gpu.finish().unwrap();
        bench.gpu.bytes_held() as f64
    };
    // 550 tokens, and then the rest.
    let (made, grown) = (held(TOKENS), held(TOKENS / 2));
    assert!(grown < 1.02 * made, "{grown} {made}");
}

#[test]
fn no_tensor_of_the_most_tokens_exceeds_a_binding() {
    for config in shapes() {
        let most = config.most_tokens(1 << 20, RANK);
        let widest = config
            .mlp_width
            .max(config.width)
            .max(config.vocab.min(2048));
        assert!(most * widest * 4 <= 1 << 20 && (most + 1) * widest * 4 > 1 << 20);
    }
    // With a narrow MLP the gradients of keys and values are the widest: two, in up to two parts.
    let [mut narrow, ..] = shapes();
    (narrow.kv_heads, narrow.mlp_width) = (narrow.heads, narrow.width);
    let keys = narrow.kv_heads * narrow.head_size;
    assert!(4 * keys > narrow.vocab.min(2048));
    assert_eq!(
        narrow.most_tokens(1 << 20, RANK),
        (1 << 20) / 4 / (4 * keys)
    );
}
