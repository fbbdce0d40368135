//! The measured kernels: products, attention, row operations, head and optimiser at the shapes of a model.

use std::borrow::Cow;
use std::ops::Range;

use lapwing_model::{ModelConfig, ModelShape};
use lapwing_tensor::rl::LmHead;
use lapwing_tensor::{
    AdamW, Gpu, Indices, Lora, Matrix, OutOfRange, Parameters, Rotations, Tensor, Visibility,
    Weight, WeightFormat,
};

use lapwing_train::Error;

/// The shape of a run, its multiplications and additions, and the bytes that it reads or writes at least: each operand once.
type CaseCost = (String, [usize; 2]);

/// Work to measure.
pub(super) struct Case {
    /// What is measured, the model, if there are several, and the variant, with slashes between.
    pub name: String,
    pub cost: CaseCost,
    /// What a run does this many times, and a row once.
    pub units: usize,
    /// Makes the operands, and returns the run.
    pub prepare: Prepare,
}

type CaseRun = Box<dyn FnMut() -> Result<(), Error>>;
type Prepare = Box<dyn FnOnce(&Gpu) -> Result<CaseRun, Error>>;

impl Case {
    pub(super) fn new<R: FnMut() -> Result<(), Error> + 'static>(
        name: impl Into<String>,
        cost: CaseCost,
        prepare: impl FnOnce(&Gpu) -> Result<R, Error> + 'static,
    ) -> Case {
        Case {
            name: name.into(),
            cost,
            units: 1,
            prepare: Box::new(|gpu| Ok(Box::new(prepare(gpu)?))),
        }
    }

    /// A case of an op, whose result is dropped.
    fn op<T, L: FnMut() -> T + 'static>(
        name: &str,
        cost: CaseCost,
        prepare: impl FnOnce(&Gpu) -> L + 'static,
    ) -> Case {
        Case::new(name, cost, |gpu| {
            let mut launch = prepare(gpu);
            Ok(move || {
                drop(launch());
                Ok(())
            })
        })
    }
}

/// The models whose shapes are measured: the built-in one, SmolLM2-135M, Qwen2.5-0.5B and Qwen2.5-3B.
#[rustfmt::skip]
pub(super) const MODELS: [(&str, ModelShape); 4] = [
    ("built-in", ModelShape { vocab: 640, width: 64, layers: 4, heads: 4, kv_heads: 4, mlp_width: 192 }),
    ("135M", ModelShape { vocab: 49_152, width: 576, layers: 30, heads: 9, kv_heads: 3, mlp_width: 1536 }),
    ("0.5B", ModelShape { vocab: 151_936, width: 896, layers: 24, heads: 14, kv_heads: 2, mlp_width: 4864 }),
    ("3B", ModelShape { vocab: 151_936, width: 2048, layers: 36, heads: 16, kv_heads: 2, mlp_width: 11_008 }),
];

/// The rank of a LoRA adapter.
const RANK: usize = 16;
/// Sequences that are decoded together.
pub(super) const SEQUENCES: usize = 25;
/// Tokens of a prompt: that of Frozen Lake for a chat model. All sequences share the first ones, the rules of the game.
pub(super) const PROMPT: usize = 216;
pub(super) const SHARED: usize = 200;
/// Tokens of a training batch, and those of them that are scored.
const TOKENS: usize = 512;
const SCORED: usize = 64;

pub(super) const ADAMW: AdamW = AdamW {
    lr: 1e-5,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.0,
    max_norm: 1.0,
};

/// Returns how many numbers are in the matrices of all blocks, in an adapter of them, and in the output layer.
pub(super) fn numbers_of(config: &ModelConfig) -> [usize; 3] {
    let tensors = config.tensors().into_iter();
    let matrices = tensors.filter(|(name, _)| name.ends_with("_proj.weight"));
    let shapes: Vec<_> = matrices.map(|(_, shape)| (shape[0], shape[1])).collect();
    let blocks = shapes.iter().map(|(n, k)| n * k).sum();
    let adapter = shapes.iter().map(|(n, k)| RANK * (n + k)).sum();
    [blocks, adapter, config.vocab * config.width]
}

/// Returns the kernels of a model; their names lack it.
pub(super) fn kernels(config: &ModelConfig) -> Vec<Case> {
    let mut cases = products(config);
    cases.extend(attention(config));
    cases.extend(rows(config));
    cases.extend(head(config));
    let [_, count, _] = numbers_of(config);
    // Values, gradients and two moments are read and written, and gradients read once more for their norm.
    let cost = (count.to_string(), [15 * count, 36 * count]);
    cases.push(Case::op("optimiser/AdamW", cost, move |gpu| {
        let zeros = ("p".to_owned(), vec![count], vec![0.0; count]);
        let mut parameters = Parameters::new(gpu, &[zeros]);
        move || parameters.step(ADAMW)
    }));
    cases
}

/// Varied values, since some devices are faster with constant ones.
fn values(range: Range<usize>) -> Vec<f32> {
    range.map(|i| (i * 7919 % 31) as f32 / 31.0 - 0.5).collect()
}

fn matrix(gpu: &Gpu, shape: [usize; 2]) -> Tensor {
    Tensor::from_slice(gpu, &values(0..shape[0] * shape[1]), &shape)
}

fn frozen(gpu: &Gpu, rows: usize, cols: usize) -> Matrix {
    let read = |r: Range<usize>| Ok(Cow::Owned(values(r.start * cols..r.end * cols)));
    let weight: Result<_, OutOfRange> = Weight::upload(gpu, rows, cols, WeightFormat::F16, read);
    Matrix::Frozen(weight.expect("small values"))
}

fn numbers(gpu: &Gpu, count: usize) -> Indices {
    Indices::new(gpu, &(0..count as u32).collect::<Vec<_>>())
}

/// X (M, K), W (N, K) and Y (M, N), with W of the gate.
fn products(config: &ModelConfig) -> Vec<Case> {
    type Product = fn(&Tensor, &Tensor) -> Tensor;
    let (n, k) = (config.mlp_width, config.width);
    let cost = |m: usize, number_bytes: usize, rank: usize| {
        let (low, moved) = (rank * (n + k), m * (n + k));
        let bytes = number_bytes * n * k + 4 * (low + moved);
        (format!("{m}x{n}x{k}"), [2 * m * (n * k + low), bytes])
    };
    let by_frozen = |(name, m, rank)| {
        Case::op(name, cost(m, 2, rank), move |gpu| {
            let (x, w) = (matrix(gpu, [m, k]), frozen(gpu, n, k));
            let [a, b] = [[RANK, k], [n, RANK]].map(|shape| matrix(gpu, shape));
            let lora = (rank > 0).then_some(Lora { a, b, scale: 1.0 });
            move || x.linear(&w, None, lora.as_ref(), None)
        })
    };
    // A trained matrix in f32: forward, and the gradients of X and W.
    let by_trained = |(name, left, right, product): (_, _, _, Product)| {
        Case::op(name, cost(TOKENS, 4, 0), move |gpu| {
            let (left, right) = (matrix(gpu, left), matrix(gpu, right));
            move || product(&left, &right)
        })
    };
    let (x, y, w) = ([TOKENS, k], [TOKENS, n], [n, k]);
    let frozen = [
        ("product/1 row", 1, 0),
        ("product/25 rows", SEQUENCES, 0),
        ("product/prefill", PROMPT, 0),
        ("product/low rank", PROMPT, RANK),
    ];
    let trained: [(_, _, _, Product); 3] = [
        ("product/forward", x, w, Tensor::matmul_nt),
        ("product/to input", y, w, Tensor::matmul),
        ("product/to weight", y, x, Tensor::matmul_tn),
    ];
    let frozen = frozen.into_iter().map(by_frozen);
    frozen.chain(trained.map(by_trained)).collect()
}

fn attention(config: &ModelConfig) -> Vec<Case> {
    let (heads, kv_heads, size) = (config.heads, config.kv_heads, config.head_size);
    let (queries, keys) = (heads * size, kv_heads * size);
    let shape = |rows: usize, seen: usize| format!("{rows}x{seen} {heads}/{kv_heads}x{size}");
    let bytes = |rows: usize, cached: usize| 8 * (rows * queries + cached * keys);
    // Scores and the weighted sum are two products for each pair of a query and a key; the gradients take five more.
    let full = |name, products: usize, passes: usize| {
        let pairs = TOKENS * (TOKENS + 1) / 2;
        let bytes = passes * bytes(TOKENS, TOKENS);
        let work = [2 * products * pairs * queries, bytes];
        Case::op(name, (shape(TOKENS, TOKENS), work), move |gpu| {
            let visible = Visibility::tree(gpu, &[TOKENS as u32; TOKENS]);
            let tracked = products > 2;
            let [q, k, v] = [queries, keys, keys].map(|width| {
                let x = matrix(gpu, [TOKENS, width]);
                if tracked { x.tracked() } else { x }
            });
            move || {
                let y = q.attention(&k, &v, &visible, heads, kv_heads);
                tracked.then(|| y.sum().backward())
            }
        })
    };
    let own = PROMPT - SHARED;
    let cached = SHARED + SEQUENCES * own;
    let work = [4 * SEQUENCES * PROMPT * queries, bytes(SEQUENCES, cached)];
    let cost = (shape(SEQUENCES, PROMPT), work);
    let decode = Case::op("attention/decode", cost, move |gpu| {
        let seen = |i: usize| {
            let start = (SHARED + i * own) as u32;
            vec![(0, SHARED as u32), (start, start + own as u32)]
        };
        let visible = Visibility::ranges(gpu, &(0..SEQUENCES).map(seen).collect::<Vec<_>>());
        let q = matrix(gpu, [SEQUENCES, queries]);
        let [k, v] = [(); 2].map(|()| matrix(gpu, [cached, keys]));
        move || q.attention(&k, &v, &visible, heads, kv_heads)
    });
    let forward = full("attention/forward", 2, 1);
    vec![forward, full("attention/with gradients", 7, 3), decode]
}

/// Operations on rows, which the memory limits.
fn rows(config: &ModelConfig) -> [Case; 3] {
    let (width, f, heads) = (config.width, config.mlp_width, config.heads);
    let queries = heads * config.head_size;
    let cost = |cols: usize, per_number: usize, operands: usize| {
        let work = [per_number, 4 * operands].map(|amount| amount * TOKENS * cols);
        (format!("{TOKENS}x{cols}"), work)
    };
    [
        Case::op("rows/norm", cost(width, 4, 2), move |gpu| {
            let weight = Tensor::full(gpu, &[width], 1.0);
            let x = matrix(gpu, [TOKENS, width]);
            move || x.rms_norm(&weight, 1e-6)
        }),
        Case::op("rows/swiglu", cost(f, 5, 3), move |gpu| {
            let [gate, up] = [(); 2].map(|()| matrix(gpu, [TOKENS, f]));
            move || gate.swiglu(&up)
        }),
        Case::op("rows/rope", cost(queries, 3, 2), move |gpu| {
            let (x, positions) = (matrix(gpu, [TOKENS, queries]), numbers(gpu, TOKENS));
            let rotations = Rotations::new(gpu, &vec![0.1; queries / heads / 2]);
            move || x.rope(&positions, &rotations, heads)
        }),
    ]
}

/// Sampling, and log-probs of given tokens with and without gradients.
fn head(config: &ModelConfig) -> [Case; 3] {
    let (vocab, width) = (config.vocab, config.width);
    let cost = |rows: usize, passes: usize| {
        let (numbers, moved) = (vocab * width, 4 * rows * width);
        let work = [2 * rows * numbers, 2 * numbers + moved].map(|once| passes * once);
        (format!("{rows}x{vocab}x{width}"), work)
    };
    let operands = move |gpu: &Gpu, rows: usize| {
        let (weight, lora) = (frozen(gpu, vocab, width), None);
        let hidden = matrix(gpu, [rows, width]);
        (LmHead { weight, lora }, hidden, numbers(gpu, rows))
    };
    [
        Case::op("head/sample", cost(SEQUENCES, 1), move |gpu| {
            let (head, hidden, rows) = operands(gpu, SEQUENCES);
            let keys: Vec<[u32; 2]> = (0..SEQUENCES as u32).map(|i| [i, 0]).collect();
            move || hidden.draw(&head, &rows, &keys, 1.0)
        }),
        Case::op("head/log-probs", cost(SCORED, 1), move |gpu| {
            let (head, hidden, rows) = operands(gpu, SCORED);
            move || hidden.log_probs(&head, &rows, &rows, &[], 1.0)
        }),
        // The logits are computed again for the gradient of the hidden rows.
        Case::op("head/with gradients", cost(SCORED, 3), move |gpu| {
            let (head, hidden, rows) = operands(gpu, SCORED);
            let hidden = hidden.tracked();
            let scored = move || hidden.log_probs(&head, &rows, &rows, &[], 1.0);
            move || scored().log_probs.sum().backward()
        }),
    ]
}
