//! Benchmarks of the ops at the shapes of training: `cargo bench -p lapwing-tensor -- matmul/nt`.
//!
//! Each measurement has many launches and one wait, as a training step. The throughput of products is in floating-point
//! operations, so "Gelem/s" means GFLOP/s; that of the head is in rows.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use lapwing_tensor::rl::LmHead;
use lapwing_tensor::{
    Gpu, GpuOptions, Indices, Lora, Matrix, Tensor, Visibility, Weight, WeightFormat,
};

/// Tokens of a small, a typical and a large batch.
const ROWS: [usize; 3] = [64, 512, 1024];

/// (N, K) of the matrices of small models, and one of a large model.
const MATRICES: [(usize, usize); 5] = [(64, 64), (192, 64), (64, 192), (256, 256), (1024, 1024)];

const RANK: usize = 32;

/// Launches between two waits.
const BATCH: u64 = 32;

fn values(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| (i * 7919 % 31) as f32 / 31.0 - 0.5)
        .collect()
}

fn matrix(gpu: &Gpu, rows: usize, cols: usize) -> Tensor {
    Tensor::from_slice(gpu, &values(rows * cols), &[rows, cols])
}

/// The time of `launches` calls, including the work of the device.
fn timed(gpu: &Gpu, launches: u64, launch: &dyn Fn() -> Tensor) -> Duration {
    let start = Instant::now();
    for i in 1..=launches {
        black_box(launch());
        if i % BATCH == 0 || i == launches {
            gpu.finish().expect("the device");
        }
    }
    start.elapsed()
}

fn short_group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    group
}

fn matmul(c: &mut Criterion) {
    let gpu = Gpu::open(GpuOptions::default()).expect("a device");
    for name in ["nt", "nn", "tn", "f16", "lora"] {
        let mut group = short_group(c, &format!("matmul/{name}"));
        for m in ROWS {
            for (n, k) in MATRICES {
                let (x, w, dy) = (matrix(&gpu, m, k), matrix(&gpu, n, k), matrix(&gpu, m, n));
                let frozen = Matrix::Frozen(Weight::from_f32(
                    &gpu,
                    &values(n * k),
                    n,
                    k,
                    WeightFormat::F16,
                ));
                let lora = Lora {
                    a: matrix(&gpu, RANK, k),
                    b: matrix(&gpu, n, RANK),
                    scale: 1.0,
                };
                let low_rank = if name == "lora" { RANK * (n + k) } else { 0 };
                let launch = || match name {
                    "nt" => x.matmul_nt(&w),
                    "nn" => dy.matmul(&w),
                    "tn" => dy.matmul_tn(&x),
                    "f16" => x.linear(&frozen, None, None, None),
                    _ => x.linear(&frozen, None, Some(&lora), Some(&dy)),
                };
                group.throughput(Throughput::Elements(2 * (m * (n * k + low_rank)) as u64));
                group.bench_function(BenchmarkId::from_parameter(format!("{m}x{n}x{k}")), |b| {
                    b.iter_custom(|launches| timed(&gpu, launches, &launch));
                });
            }
        }
        group.finish();
    }
}

/// (vocabulary, width, rows): the heads of a small model and of two language models, in updates and in decode steps.
const HEADS: [(usize, usize, usize); 5] = [
    (100, 64, 1024),
    (100, 64, 100),
    (32_768, 256, 64),
    (32_768, 256, 8),
    (151_936, 896, 16),
];

/// Log-probs with and without their gradient, and one draw per row.
fn head(c: &mut Criterion) {
    let gpu = Gpu::open(GpuOptions::default()).expect("a device");
    for name in ["log_probs", "log_probs_backward", "draw"] {
        let mut group = short_group(c, &format!("head/{name}"));
        for (v, c, rows) in HEADS {
            let weight = Weight::from_f32(&gpu, &values(v * c), v, c, WeightFormat::F16);
            let lora = Lora {
                a: matrix(&gpu, RANK, c).tracked(),
                b: matrix(&gpu, v, RANK).tracked(),
                scale: 1.0,
            };
            let head = LmHead {
                weight: Matrix::Frozen(weight),
                lora: Some(lora),
            };
            let hidden = matrix(&gpu, rows, c);
            let tracked = hidden.tracked();
            let numbers: Vec<u32> = (0..rows as u32).collect();
            let targets: Vec<u32> = numbers.iter().map(|i| i * 37 % v as u32).collect();
            let keys: Vec<[u32; 2]> = numbers.iter().map(|i| [*i, 0]).collect();
            let (numbers, targets) = (Indices::new(&gpu, &numbers), Indices::new(&gpu, &targets));
            let launch = || match name {
                "log_probs" => hidden.log_probs(&head, &numbers, &targets, 1.0).log_probs,
                "draw" => hidden.draw(&head, &numbers, &keys, 1.0).log_probs,
                _ => {
                    let loss = tracked
                        .log_probs(&head, &numbers, &targets, 1.0)
                        .log_probs
                        .sum();
                    let gradients = loss.backward();
                    gradients.get(&tracked).expect("a gradient").clone()
                }
            };
            group.throughput(Throughput::Elements(rows as u64));
            group.bench_function(
                BenchmarkId::from_parameter(format!("{rows}x{v}x{c}")),
                |b| {
                    b.iter_custom(|launches| timed(&gpu, launches, &launch));
                },
            );
        }
        group.finish();
    }
}

/// (heads, key heads, head size)
const TREES: [(usize, usize, usize); 2] = [(4, 4, 16), (4, 2, 64)];
const RULES: u32 = 60;
const OBSERVATIONS: u32 = 40;
const OBSERVATION: u32 = 22;

/// Attention over a packed tree of rules with observations below them, and causal attention over as many tokens.
fn attention(c: &mut Criterion) {
    let gpu = Gpu::open(GpuOptions::default()).expect("a device");
    let tokens = RULES + OBSERVATIONS * OBSERVATION;
    let mut tree = vec![tokens; RULES as usize];
    for observation in 1..=OBSERVATIONS {
        tree.extend([RULES + observation * OBSERVATION; OBSERVATION as usize]);
    }
    let masks = [("tree", tree), ("causal", vec![tokens; tokens as usize])];
    for (name, visible_until) in masks {
        let visible = Visibility::tree(&gpu, &visible_until);
        let mut group = short_group(c, &format!("attention/{name}"));
        for (heads, kv_heads, size) in TREES {
            let q = matrix(&gpu, tokens as usize, heads * size);
            let k = matrix(&gpu, tokens as usize, kv_heads * size);
            let v = matrix(&gpu, tokens as usize, kv_heads * size);
            let leaves = [q.tracked(), k.tracked(), v.tracked()];
            group.throughput(Throughput::Elements(u64::from(tokens)));
            let shape = format!("{heads}on{kv_heads}x{size}");
            group.bench_function(format!("forward/{shape}"), |b| {
                let launch = || q.attention(&k, &v, &visible, heads, kv_heads);
                b.iter_custom(|launches| timed(&gpu, launches, &launch));
            });
            group.bench_function(format!("forward and backward/{shape}"), |b| {
                let launch = || {
                    let [q, k, v] = &leaves;
                    let loss = q.attention(k, v, &visible, heads, kv_heads).sum();
                    loss.backward().get(q).expect("a gradient").clone()
                };
                b.iter_custom(|launches| timed(&gpu, launches, &launch));
            });
        }
        group.finish();
    }
}

criterion_group!(ops, matmul, attention, head);
criterion_main!(ops);
