//! The table of checks: every kernel against its f64 reference at a few shapes, on any device.

use super::compare::{Array, Compared, LEAST, OpCase, Tolerance, Wrong, compare, same_bits};
use super::reference::{
    self, ADAMW, AdamWReference, AttentionHeads, LossSettings, TokenQuery, all_values, flat,
    gradients, held, huber, named,
};
use crate::ops::rl::{Kl, LmHead, PolicyLoss};
use crate::ops::{
    AdamW, LinearLayer, Lora, Matrix, Muon, Parameters, Rotations, Unrotated, Visibility, Weight,
    WeightFormat,
};
use crate::{Gpu, Indices, Tensor};

type CheckFn = Box<dyn Fn(&Gpu) -> Result<f64, Wrong>>;

/// One op at one shape.
pub struct Check {
    /// The name of the op.
    pub op: &'static str,
    /// The shape, and which result is checked.
    pub what: String,
    /// Whether the short self-test runs it. Together the short checks run each shader; they check gradients only where
    /// that takes little time.
    pub is_short: bool,
    run: CheckFn,
}

impl Check {
    /// Compares the op with its reference. Returns the largest relative error.
    ///
    /// # Errors
    /// The first number that is further off than rounding explains, or an error of the device.
    pub fn run(&self, gpu: &Gpu) -> Result<f64, Wrong> {
        (self.run)(gpu)
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.op, self.what)
    }
}

struct CheckTable(Vec<Check>);

impl CheckTable {
    fn add(
        &mut self,
        op: &'static str,
        what: impl Into<String>,
        run: impl Fn(&Gpu) -> Result<f64, Wrong> + 'static,
    ) -> &mut Check {
        self.0.push(Check {
            op,
            what: what.into(),
            is_short: false,
            run: Box::new(run),
        });
        self.0.last_mut().expect("the one just added")
    }

    fn compare(
        &mut self,
        (op, compared, tolerance): (&'static str, Compared, Tolerance),
        what: impl Into<String>,
        inputs: impl Into<Vec<Array>>,
        run: impl Fn(&[Tensor]) -> Tensor + 'static,
        reference: impl Fn(&[Array]) -> Array + 'static,
    ) -> &mut Check {
        let inputs = inputs.into();
        self.add(op, what, move |gpu| {
            let case = OpCase {
                op: &run,
                reference: &reference,
                inputs: &inputs,
                tolerance,
            };
            case.run(gpu, compared)
        })
    }
}

/// Returns checks of every op with a kernel at a few shapes: those of a model, and some across the edges of tiles and
/// groups. A test fails if no check runs a kernel.
pub fn checks() -> Vec<Check> {
    let mut table = CheckTable(Vec::new());
    elements(&mut table);
    rows_and_reductions(&mut table);
    lookups(&mut table);
    products(&mut table);
    stacks(&mut table);
    rotations_in_place(&mut table);
    attention(&mut table);
    vocabulary(&mut table);
    learning(&mut table);
    table.0
}

fn random(shape: &[usize], seed: u64, range: std::ops::Range<f64>) -> Array {
    Array::random(shape, seed, range)
}

/// Moves values away from bounds and ties, at which there is no slope.
fn off_grid(array: Array, by: f64) -> Array {
    array.map(|v| (64.0 * v).floor() / 64.0 + by)
}

fn elements(table: &mut CheckTable) {
    type Unary = (&'static str, fn(&Tensor) -> Tensor, fn(f64) -> f64, f64);
    let unary: [Unary; 8] = [
        ("neg", |x| x.neg(), |v| -v, -4.0),
        ("exp", |x| x.exp(), f64::exp, -4.0),
        ("silu", |x| x.silu(), |v| v / (1.0 + (-v).exp()), -4.0),
        ("square", |x| x.square(), |v| v * v, -4.0),
        (
            "clamp",
            |x| x.clamp(-1.5, 2.5),
            |v| v.clamp(-1.5, 2.5),
            -4.0,
        ),
        ("relu", |x| x.relu(), |v| v.max(0.0), -4.0),
        ("huber", |x| x.huber(1.5), |v| huber(v, 1.5), -4.0),
        ("mul_scalar", |x| x.mul_scalar(-0.75), |v| v * -0.75, -4.0),
    ];
    let subject = ("unary", Compared::Gradient, reference::UNARY);
    for (name, op, f, low) in unary {
        let x = off_grid(random(&[3, 67], 1, low..4.0), 1.0 / 128.0);
        let run = move |t: &[Tensor]| op(&t[0]);
        let wanted = move |a: &[Array]| a[0].map(f);
        let check = table.compare(subject, format!("{name} of 3x67"), [x], run, wanted);
        check.is_short = name == "exp";
    }

    type BinaryFn = fn(&Tensor, &Tensor) -> Tensor;
    type NumberFn = fn(f64, f64) -> f64;
    let binary: [(_, BinaryFn, NumberFn); 6] = [
        ("add", |a, b| a.add(b), |a, b| a + b),
        ("sub", |a, b| a.sub(b), |a, b| a - b),
        ("mul", |a, b| a.mul(b), |a, b| a * b),
        ("div", |a, b| a.div(b), |a, b| a / b),
        ("min", |a, b| a.min(b), f64::min),
        ("max", |a, b| a.max(b), f64::max),
    ];
    let subject = ("binary", Compared::Gradient, reference::BINARY);
    let shapes = [
        ([3, 67], "3x67 and 3x67"),
        ([1, 67], "3x67 and a row, repeated"),
    ];
    for (name, op, f) in binary {
        for (shape, what) in shapes {
            let a = off_grid(random(&[3, 67], 3, -2.0..2.0), 0.0);
            let b = off_grid(random(&shape, 4, 0.5..2.0), 1.0 / 128.0);
            let run = move |t: &[Tensor]| op(&t[0], &t[1]);
            let wanted = move |a: &[Array]| reference::binary(f, &a[0], &a[1]);
            let check = table.compare(subject, format!("{name} of {what}"), [a, b], run, wanted);
            check.is_short = name == "mul";
        }
    }

    let subject = ("swiglu", Compared::Gradient, reference::SWIGLU);
    for shape in [[1, 5], [5, 131]] {
        let inputs = [8, 9].map(|seed| random(&shape, seed, -8.0..8.0));
        let run = |t: &[Tensor]| t[0].swiglu(&t[1]);
        let wanted = |a: &[Array]| reference::swiglu(&a[0], &a[1]);
        let what = format!("{}x{}", shape[0], shape[1]);
        let check = table.compare(subject, what, inputs, run, wanted);
        check.is_short = shape[0] == 5;
    }
    table.add("probe", "100 threads, 4 rounds", halved).is_short = true;
    let check = table.add("copy", "5004 numbers", |gpu| {
        let x = random(&[5004], 10, -1.0..1.0);
        compare(
            "value",
            &x.tensor(gpu).copied().to_vec()?,
            &x.values,
            0.0,
            LEAST,
        )
    });
    check.is_short = true;
    // Exact; more than one group, and not a multiple of four.
    let check = table.add("fill", "5003 numbers", |gpu| {
        let got = Tensor::full(gpu, &[5003], -1.5).to_vec()?;
        compare("value", &got, &vec![-1.5; 5003], 0.0, LEAST)
    });
    check.is_short = true;
}

/// Checks the kernel that measures speed. Each step halves its rounding error.
fn halved(gpu: &Gpu) -> Result<f64, Wrong> {
    let got = gpu.multiply_adds(100, 4).0.to_vec()?;
    let chain = |x: usize| (0..16).fold(x as f64, |x, _| x * 0.5 + 0.25);
    let wanted: Vec<f64> = (0..100)
        .map(|i| (0..16).map(|j| chain(i % 16 + j)).sum())
        .collect();
    compare("value", &got, &wanted, 1e-6, LEAST)
}

fn rows_and_reductions(table: &mut CheckTable) {
    let subject = ("reduce", Compared::Gradient, reference::REDUCE);
    for (m, n) in [(3, 67), (33, 130)] {
        let x = [random(&[m, n], 10, 0.1..1.0)];
        let what = |sum: &str| format!("{sum} of {m}x{n}");
        let all = |a: &[Array]| Array {
            shape: vec![],
            values: vec![a[0].values.iter().sum()],
        };
        let check = table.compare(subject, what("sum"), x.clone(), |t| t[0].sum(), all);
        check.is_short = m == 33;
        let columns = |a: &[Array]| reference::columns(&a[0]);
        let what_columns = what("sum of the columns");
        let sum_columns = move |t: &[Tensor]| t[0].sum_to(&[n]);
        table.compare(subject, what_columns, x.clone(), sum_columns, columns);
        let rows = |a: &[Array]| reference::of_rows(&a[0], |row| row.iter().sum());
        let what_rows = what("sum of the rows");
        table.compare(subject, what_rows, x, |t| t[0].sum_last(), rows);
    }
    for (rows, cols) in [(1, 8), (33, 65), (20, 256)] {
        let x = random(&[rows, cols], 11, -2.0..2.0);
        let w = random(&[cols], 12, 0.5..1.5);
        let b = random(&[cols], 13, -1.0..1.0);
        let what = format!("{rows}x{cols}");
        let subject = ("rms_norm", Compared::Gradient, reference::RMS_NORM);
        let run = |t: &[Tensor]| t[0].rms_norm(&t[1], reference::EPS);
        let wanted = |a: &[Array]| reference::norm(&a[0], &a[1], None);
        let inputs = [x.clone(), w.clone()];
        let check = table.compare(subject, what.clone(), inputs, run, wanted);
        check.is_short = rows == 33;
        let subject = ("layer_norm", Compared::Gradient, reference::LAYER_NORM);
        let run = |t: &[Tensor]| t[0].layer_norm(&t[1], &t[2], reference::EPS);
        let wanted = |a: &[Array]| reference::norm(&a[0], &a[1], Some(&a[2]));
        let check = table.compare(subject, what, [x, w, b], run, wanted);
        check.is_short = rows == 33;
    }
}

fn lookups(table: &mut CheckTable) {
    let picks: Vec<u32> = (0..20).map(|i| i * 7 % 13).collect();
    let on_device = picks.clone();
    let subject = ("rows", Compared::Gradient, reference::ROWS);
    let run = move |t: &[Tensor]| t[0].gather_rows(&Indices::new(t[0].gpu(), &on_device));
    let wanted = move |a: &[Array]| reference::gather(&a[0], &picks);
    let x = [random(&[13, 17], 13, -1.0..1.0)];
    let check = table.compare(subject, "20 rows of 13x17, some twice", x, run, wanted);
    check.is_short = true;
    let check = table.add("rows", "3 rows written into 13x17", |gpu| {
        let mut all = random(&[13, 17], 14, -1.0..1.0);
        let new = random(&[3, 17], 15, -1.0..1.0);
        let x = all.tensor(gpu);
        x.write_rows(&Indices::new(gpu, &[12, 0, 5]), &new.tensor(gpu));
        for (row, to) in new.values.chunks(17).zip([12, 0, 5]) {
            all.values[17 * to..][..17].copy_from_slice(row);
        }
        compare("value", &x.to_vec()?, &all.values, 0.0, LEAST)
    });
    check.is_short = true;
    let ids: Vec<u32> = (0..30).map(|i| i * 5 % 19).collect();
    for format in WeightFormat::ALL {
        let ids = ids.clone();
        let cols = if format.group().is_some() { 544 } else { 33 };
        let numbers = random(&[19, cols], 16, -64.0..64.0);
        let what = format!("30 tokens of 19x{cols} in {format:?}");
        let check = table.add("embedding", what, move |gpu| {
            let weight = Weight::from_f32(gpu, &numbers.to_f32(), 19, cols, format);
            let y = Tensor::embedding(&Matrix::Frozen(weight), &Indices::new(gpu, &ids));
            let wanted = reference::gather(&held(&numbers, format), &ids);
            compare("value", &y.to_vec()?, &wanted.values, 0.0, LEAST)
        });
        check.is_short = [WeightFormat::F16, WeightFormat::Q4].contains(&format);
    }
    let on_device = ids.clone();
    let subject = ("embedding", Compared::Gradient, reference::EMBEDDING);
    let run = move |t: &[Tensor]| {
        let ids = Indices::new(t[0].gpu(), &on_device);
        Tensor::embedding(&Matrix::Trained(t[0].clone()), &ids)
    };
    let wanted = move |a: &[Array]| reference::gather(&a[0], &ids);
    let x = [random(&[19, 33], 17, -1.0..1.0)];
    table.compare(subject, "30 tokens of a trained 19x33", x, run, wanted);
    let subject = ("rope", Compared::Gradient, reference::ROPE);
    for (half, heads) in [(8, 2), (32, 3)] {
        let positions = [0u32, 1, 2, 300, 4095, 7];
        let frequencies = reference::frequencies(half);
        let on_device = frequencies.clone();
        let run = move |t: &[Tensor]| {
            let gpu = t[0].gpu();
            let rotations = Rotations::new(gpu, &on_device);
            t[0].rope(&Indices::new(gpu, &positions), &rotations, heads)
        };
        let wanted = move |a: &[Array]| reference::rope(&a[0], &positions, &frequencies, heads);
        let what = format!("6 tokens of {heads} heads of {}", 2 * half);
        let x = [random(&[6, heads * 2 * half], 18, -2.0..2.0)];
        let check = table.compare(subject, what, x, run, wanted);
        check.is_short = heads == 2;
    }
}

/// Queries, keys and values of one buffer, and the cache of keys and values.
fn rotations_in_place(table: &mut CheckTable) {
    let (frequencies, positions) = (reference::frequencies(4), [0, 3, 900]);
    let heads = [3, 2];
    for which in 0..5 {
        let (on_device, frequencies) = (frequencies.clone(), frequencies.clone());
        let shape = |x: usize| [3, 8 * heads[usize::from(x > 0)]];
        let x = [0, 1, 2].map(|x| random(&shape(x), 50 + x as u64, -2.0..2.0));
        let run = move |t: &[Tensor]| {
            let gpu = t[0].gpu();
            let (positions, rows) = (Indices::new(gpu, &positions), Indices::new(gpu, &[2, 0, 1]));
            let rotations = Rotations::new(gpu, &on_device);
            let [q, k, v] = &Tensor::together(t)[..] else {
                panic!("three inputs")
            };
            let [q, k, v] = [q, k, v].map(Tensor::clone);
            let [keys, values] = [(); 2].map(|()| Tensor::zeros(gpu, k.shape()));
            let qkv = Unrotated { q, k, v };
            if which < 2 {
                return qkv.rope(&positions, &rotations, heads)[which].clone();
            }
            let q = qkv.store(&positions, &rotations, heads, &rows, [&keys, &values]);
            let of_rows = |table: Tensor| table.gather_rows(&rows);
            [q, of_rows(keys), of_rows(values)][which - 2].clone()
        };
        let wanted = move |x: &[Array]| match which {
            0 | 2 => reference::rope(&x[0], &positions, &frequencies, heads[0]),
            1 | 3 => reference::rope(&x[1], &positions, &frequencies, heads[1]),
            _ => x[2].clone(),
        };
        let part = ["q", "k", "q beside a cache", "keys of a cache", "values"][which];
        let what = format!("3 tokens in one buffer: {part}");
        let subject = ("rope", Compared::Value, reference::ROPE);
        table.compare(subject, what, x, run, wanted);
    }
}

fn products(table: &mut CheckTable) {
    use reference::{matmul, transposed};
    type ProductFn = fn(&Tensor, &Tensor) -> Tensor;
    type ReferenceFn = fn(&Array, &Array) -> Array;
    let nn: (_, ProductFn, ReferenceFn) = ("x w", |x, w| x.matmul(w), matmul);
    let nt: (_, ProductFn, ReferenceFn) = (
        "x wT",
        |x, w| x.matmul_nt(w),
        |x, w| matmul(x, &transposed(w)),
    );
    let tn: (_, ProductFn, ReferenceFn) = (
        "xT w",
        |x, w| x.matmul_tn(w),
        |x, w| matmul(&transposed(x), w),
    );
    let (value, gradient) = (Compared::Value, Compared::Gradient);
    for ((kind, run, wanted), compared, [m, n, k], is_short) in [
        (nn, gradient, [1, 36, 20], false),
        (nt, gradient, [1, 36, 20], false),
        (tn, gradient, [1, 36, 20], false),
        (nn, gradient, [70, 68, 52], false),
        (nt, gradient, [70, 68, 52], false),
        (tn, gradient, [70, 68, 52], false),
        // Not multiples of four: another kernel, of which the value is enough.
        (nt, value, [17, 33, 7], false),
        // The large tile of GPUs.
        (nn, value, [1000, 528, 20], false),
        (nt, value, [1000, 528, 20], true),
        (tn, value, [1000, 528, 20], false),
        // Sums of 1100 terms, cut into slices: √1100 · 6e-8 = 2e-6.
        (tn, value, [8, 12, 1100], true),
    ] {
        let x = random(&[m, k], 20, -1.0..1.0);
        let w = random(&[k, n], 21, -1.0..1.0);
        let inputs = match kind {
            "x wT" => [x, transposed(&w)],
            "xT w" => [transposed(&x), w],
            _ => [x, w],
        };
        let subject = ("matmul", compared, reference::MATMUL);
        let what = format!("{kind}, {m}x{k} by {k}x{n}");
        let run = move |t: &[Tensor]| run(&t[0], &t[1]);
        let wanted = move |a: &[Array]| wanted(&a[0], &a[1]);
        let check = table.compare(subject, what, inputs, run, wanted);
        check.is_short = is_short;
    }
    // How a weight is read depends on the format, which shows in the value. The kernels for large weights depend on the
    // number of rows, too.
    for ([m, n, k], format, compared) in [
        ([5, 36, 52], WeightFormat::F32, value),
        ([33, 36, 52], WeightFormat::Bf16, value),
        ([70, 36, 52], WeightFormat::F16, gradient),
        ([2, 1028, 512], WeightFormat::F16, value),
        ([3, 1028, 256], WeightFormat::F32, value),
        ([13, 1028, 256], WeightFormat::Bf16, value),
        ([20, 1088, 256], WeightFormat::F16, value),
        ([5, 36, 64], WeightFormat::Q4, value),
        ([70, 36, 96], WeightFormat::Q8, gradient),
        ([1, 1028, 320], WeightFormat::Q4, value),
        ([2, 1028, 320], WeightFormat::Q8, value),
        ([3, 1028, 320], WeightFormat::Q8Short, value),
        ([20, 1088, 544], WeightFormat::Q4, gradient),
        ([20, 36, 512], WeightFormat::F16, gradient),
        ([20, 1088, 288], WeightFormat::Q8Short, gradient),
    ] {
        let r = 8;
        let w = random(&[n, k], 24, -1.0..1.0);
        let stored = held(&w, format);
        let run = move |t: &[Tensor]| {
            let weight = Weight::from_f32(t[0].gpu(), &w.to_f32(), n, k, format);
            reference::linear_op(t, &Matrix::Frozen(weight))
        };
        let subject = ("linear", compared, reference::MATMUL);
        let what = format!("{m} rows through {n}x{k} in {format:?} with bias and LoRA");
        let inputs = reference::linear_inputs(m, n, k, r, 25);
        let wanted = move |x: &[Array]| reference::linear(x, &stored);
        let check = table.compare(subject, what, inputs, run, wanted);
        check.is_short = k == 512;
    }
}

/// Layers of one input: the result of each of three, and that of the gated unit of the first two.
fn stacks(table: &mut CheckTable) {
    for (m, rows, k, compared) in [
        (5, [36, 36, 20], 52, Compared::Gradient),
        (3, [544, 544, 32], 256, Compared::Value),
        (20, [576, 576, 64], 256, Compared::Value),
    ] {
        for which in 0..4 {
            let is_gated = which == 3;
            // W, A, B and the bias of each layer.
            let layer = |n: usize| {
                let exact = random(&[n, k], 41, -64.0..64.0).map(|v| v.floor() / 64.0);
                let bias = match is_gated {
                    true => random(&[n], 44, 0.0..0.0),
                    false => random(&[n], 44, -1.0..1.0),
                };
                let [a, b] = [[8, k], [n, 8]].map(|shape| random(&shape, 42, -1.0..1.0));
                [exact, a, b, bias]
            };
            let layers = rows.map(layer);
            let wanted = {
                let layers = layers.clone();
                move |x: &[Array]| {
                    let linear = |i: usize| {
                        let [w, a, b, bias] = &layers[i];
                        let none = random(&[m, w.shape[0]], 0, 0.0..0.0);
                        let inputs = [&x[0], bias, &none, a, b].map(Array::clone);
                        reference::linear(&inputs, w)
                    };
                    match is_gated {
                        true => reference::swiglu(&linear(0), &linear(1)),
                        false => linear(which),
                    }
                }
            };
            let run = move |t: &[Tensor]| {
                let gpu = t[0].gpu();
                let frozen = |[w, ..]: &[Array; 4]| {
                    let (values, n) = (w.to_f32(), w.shape[0]);
                    Matrix::Frozen(Weight::from_f32(gpu, &values, n, k, WeightFormat::F16))
                };
                let weights = Matrix::together(layers.iter().map(frozen).collect());
                let weights = weights.expect("a binding holds them");
                let [a, b, bias] = [1, 2, 3].map(|part| {
                    let tensors = layers.iter().map(|layer| layer[part].tensor(gpu));
                    Tensor::together(&tensors.collect::<Vec<_>>())
                });
                let lora = |i: usize| Lora {
                    a: a[i].clone(),
                    b: b[i].clone(),
                    scale: reference::LORA_SCALE,
                };
                let loras = [0, 1, 2].map(lora);
                let layer = |i: usize| LinearLayer {
                    weight: &weights[i],
                    bias: (!is_gated).then_some(&bias[i]),
                    lora: Some(&loras[i]),
                    residual: None,
                };
                match is_gated {
                    true => t[0].gated_linear(layer(0), layer(1)),
                    false => t[0].linears([0, 1, 2].map(layer))[which].clone(),
                }
            };
            // What is tracked is not gated in one launch. A gated result is a product of two sums.
            let (compared, tolerance) = match is_gated {
                true => (Compared::Value, reference::GATED),
                false => (compared, reference::MATMUL),
            };
            let part = ["first of three", "second", "third", "gated unit"][which];
            let what = format!("{m} rows through {} x{k}, {part}", rows[which % 3]);
            let x = [random(&[m, k], 40, -1.0..1.0)];
            table.compare(("linears", compared, tolerance), what, x, run, wanted);
        }
    }
}

fn attention(table: &mut CheckTable) {
    for (rows, heads, compared) in [
        (10, AttentionHeads(4, 2, 16), Compared::Value),
        (9, AttentionHeads(4, 2, 16), Compared::Gradient),
        (40, AttentionHeads(2, 2, 64), Compared::Gradient),
        (33, AttentionHeads(7, 1, 8), Compared::Gradient),
        (600, AttentionHeads(1, 1, 8), Compared::Slope),
    ] {
        let until = match rows {
            // A chain, long enough for the walks to be cut.
            600 => vec![600; 600],
            _ => reference::forest(rows, 26),
        };
        let on_device = until.clone();
        let run = move |t: &[Tensor]| {
            reference::attend(t, &Visibility::tree(t[0].gpu(), &on_device), heads)
        };
        let AttentionHeads(count, kv_heads, size) = heads;
        let subject = ("attention", compared, reference::ATTENTION);
        let what = format!("{rows} tokens in {count} heads of {size} on {kv_heads}");
        let inputs = reference::attention_inputs(rows, heads, 27);
        let wanted = move |a: &[Array]| reference::attention(a, &until, heads);
        let check = table.compare(subject, what, inputs, run, wanted);
        check.is_short = rows == 10;
    }
    // As in decoding: of 80 tokens in eight sequences, queries that follow each other see different keys.
    let token_of = |row: usize| row % 8 * 10 + row / 8;
    let row_of = |token: usize| token % 10 * 8 + token / 10;
    let rearranged = |a: &Array, from: fn(usize) -> usize| Array {
        shape: a.shape.clone(),
        values: (0..80)
            .flat_map(|row| (0..a.shape[1]).map(move |column| a.at(from(row), column)))
            .collect(),
    };
    let heads = AttentionHeads(4, 2, 16);
    let run = move |t: &[Tensor]| {
        let seen = |row: usize| vec![(row as u32 % 8 * 10, token_of(row) as u32 + 1)];
        let seen: Vec<_> = (0..80).map(seen).collect();
        reference::attend(t, &Visibility::ranges(t[0].gpu(), &seen), heads)
    };
    let wanted = move |a: &[Array]| {
        let until: Vec<u32> = (0..80).map(|token| (token / 10 + 1) * 10).collect();
        let inputs = [rearranged(&a[0], row_of), a[1].clone(), a[2].clone()];
        rearranged(&reference::attention(&inputs, &until, heads), token_of)
    };
    let subject = ("attention", Compared::Value, reference::ATTENTION);
    let what = "80 tokens of eight sequences, one after the other of each".to_owned();
    let inputs = reference::attention_inputs(80, heads, 28);
    table.compare(subject, what, inputs, run, wanted).is_short = true;
}

fn vocabulary(table: &mut CheckTable) {
    for (rows, vocabulary, width, is_free) in
        [(2, 65, 8, true), (7, 300, 16, true), (7, 300, 16, false)]
    {
        for (which, what) in [(0, ""), (1, "entropy of ")] {
            let inputs = reference::log_prob_inputs(rows, vocabulary, width, 4, 30);
            let query = TokenQuery::random(3 * rows, rows, vocabulary, 0.8, 31);
            let (query, some) = match is_free {
                true => (query, ""),
                false => (query.restricted(vocabulary, 35), "some of "),
            };
            let cut = reference::cut(rows, 2);
            let what = format!("{what}{rows} rows over {some}{vocabulary} tokens");
            table.add("log_prob", what, move |gpu| {
                let run = |t: &[Tensor]| {
                    let head = query.head(Matrix::Trained(t[1].clone()), Some((&t[2], &t[3])));
                    let found = query.log_probs(&t[0], &head, cut);
                    [found.log_probs, found.entropy][which].clone()
                };
                let case = OpCase {
                    op: &run,
                    reference: &|a| reference::log_prob(a, &query)[which].clone(),
                    inputs: &inputs,
                    tolerance: reference::LOG_PROB,
                };
                case.run(gpu, [Compared::Gradient, Compared::Value][which])
            });
        }
    }
    for (vocabulary, every) in [(64, 1), (2500, 1), (2500, 900)] {
        let what = format!("40 draws of {} tokens", vocabulary / every);
        let check = table.add("sample", what, move |gpu| drawn(gpu, vocabulary, every));
        check.is_short = vocabulary == 64;
    }
}

/// Checks that each draw is the token with the largest sum of logit and noise, and that its log-prob has the bits that
/// training computes. Only the multiples of `every` are allowed.
fn drawn(gpu: &Gpu, vocabulary: usize, every: usize) -> Result<f64, Wrong> {
    let (logits, temperature) = (random(&[vocabulary, 1], 32, -2.0..2.0), 0.7);
    let keys: Vec<[u32; 2]> = (0..40).map(|i| [i, 0x1a9]).collect();
    let head = LmHead {
        weight: Matrix::Trained(logits.tensor(gpu)),
        lora: None,
    };
    let one = Tensor::from_slice(gpu, &[1.0], &[1, 1]);
    let rows = Indices::new(gpu, &[0; 40]);
    let set: Vec<u32> = (0..vocabulary as u32).step_by(every).collect();
    let (allowed, drawn) = match every {
        1 => (vec![], one.draw(&head, &rows, &keys, temperature)),
        _ => {
            let head = head.only(&Indices::new(gpu, &set));
            let drawn = one.draw(&head, &rows, &keys, temperature);
            (vec![set.clone().into(); keys.len()], drawn)
        }
    };
    let places = drawn.tokens.to_vec()?;
    for (key, place) in keys.iter().zip(&places) {
        let score = |(place, token): (usize, &u32)| {
            let logit = logits.values[*token as usize];
            logit / f64::from(temperature) + reference::gumbel(*key, place)
        };
        let scores: Vec<f64> = set.iter().enumerate().map(score).collect();
        let best = scores.iter().copied().fold(f64::MIN, f64::max);
        let got = scores.get(*place as usize).copied().unwrap_or(f64::MIN);
        // f32 noise errs by some 1e-6, by 1e-4 at most where WGSL's logarithm does; another token is off by about 1.
        if best - got > 1e-3 {
            return Err(Wrong::Numbers(format!(
                "the key {key:?} drew the token {place} of {}, which does not have the largest sum of logit and noise",
                set.len()
            )));
        }
    }
    let tokens: Vec<u32> = places.iter().map(|place| set[*place as usize]).collect();
    let targets = Indices::new(gpu, &tokens);
    let again = one.log_probs(&head, &rows, &targets, &allowed, temperature);
    let (sampled, trained) = (drawn.log_probs.to_vec()?, again.log_probs.to_vec()?);
    same_bits("log-prob in sampling and in training", &sampled, &trained)?;
    let query = TokenQuery {
        rows: vec![0; 40],
        targets: tokens,
        allowed,
        temperature,
        scale: 1.0,
    };
    let hidden = Array {
        shape: vec![1, 1],
        values: vec![1.0],
    };
    let wanted = &reference::log_prob(&[hidden, logits], &query)[0].values;
    let Tolerance { value, least, .. } = reference::LOG_PROB;
    compare("log-prob", &sampled, wanted, value, least)
}

fn learning(table: &mut CheckTable) {
    for kl in [Kl::K2, Kl::K3] {
        let what = format!("150 tokens of 65 pairs, {kl:?}");
        let check = table.add("policy_loss", what, move |gpu| losses(gpu, kl));
        check.is_short = kl == Kl::K2;
    }
    let check = table.add(
        "muon",
        "3 steps of 7 matrices and 2 vectors",
        three_muon_steps,
    );
    check.is_short = true;
    let check = table.add("adamw", "3 steps of 9 tensors", three_steps);
    check.is_short = true;
}

fn losses(gpu: &Gpu, kl: Kl) -> Result<f64, Wrong> {
    let settings = LossSettings {
        clip: (0.2, 0.28),
        beta: 0.05,
        kl,
    };
    let log_probs = random(&[65], 33, -3.0..-0.01);
    let tokens = reference::loss_tokens(&log_probs, 150, 34, settings.clip);
    let inputs = [log_probs];
    // Tokens of both signs cancel to a hundredth at the worst.
    let tolerance = Tolerance {
        value: 100.0 * reference::POLICY_LOSS,
        gradient: 100.0 * reference::POLICY_LOSS,
        least: LEAST,
    };
    let parts: [fn(PolicyLoss) -> Tensor; 3] = [|l| l.loss, |l| l.kl, |l| l.clip_fraction];
    let mut worst: f64 = 0.0;
    for (which, part) in parts.into_iter().enumerate() {
        let case = OpCase {
            op: &|t| part(t[0].policy_loss(&tokens, settings.clip, settings.beta, kl)),
            reference: &|a| Array {
                shape: vec![],
                values: vec![reference::policy_loss(&a[0], &tokens, settings)[which]],
            },
            inputs: &inputs,
            tolerance,
        };
        let compared = [Compared::Gradient, Compared::Value, Compared::Value][which];
        worst = worst.max(case.run(gpu, compared)?);
    }
    Ok(worst)
}

/// Checks the values after three updates with clipped gradients.
fn three_steps(gpu: &Gpu) -> Result<f64, Wrong> {
    let lengths = [1, 7, 63, 64, 65, 129, 5000, 2, 3];
    let draw = |which: u64| -> Vec<Array> {
        let one = |(i, n): (u64, &usize)| random(&[*n], which << 40 ^ i, -1.0..1.0);
        (0..).zip(lengths.iter()).map(one).collect()
    };
    let start = draw(35);
    let mut parameters = Parameters::new(gpu, &named(&start));
    let mut wanted = AdamWReference::new(flat(&start));
    // A dozen roundings of 6e-8 a step, three steps; and a norm of 5,000 squares in two levels of sums.
    const TOLERANCE: f64 = 3e-6;
    let mut worst: f64 = 0.0;
    for step in 36..39 {
        let slopes = draw(step);
        parameters.accumulate(&gradients(&parameters, &slopes));
        let norm = parameters.step(ADAMW).to_vec()?;
        let wanted = wanted.step(&flat(&slopes), ADAMW);
        worst = worst.max(compare("norm", &norm, &[wanted], TOLERANCE, LEAST)?);
    }
    let values = all_values(&parameters)?;
    let error = compare("values", &values, &wanted.values, TOLERANCE, LEAST)?;
    Ok(worst.max(error))
}

/// Checks the values after three updates of matrices with Muon and of vectors with AdamW, with clipped gradients.
fn three_muon_steps(gpu: &Gpu) -> Result<f64, Wrong> {
    let shapes: [&[usize]; 9] = [
        &[16, 64],
        &[70],
        &[64, 16],
        &[3, 9],
        &[7, 1],
        &[33, 70],
        &[5],
        &[64, 192],
        &[130, 62],
    ];
    let draw = |which: u64| -> Vec<Array> {
        let one = |(i, shape): (u64, &&[usize])| random(shape, which << 40 ^ i, -1.0..1.0);
        (0..).zip(shapes.iter()).map(one).collect()
    };
    let muon = Muon {
        lr: 0.05,
        momentum: 0.9,
    };
    let mut wanted = draw(41);
    let mut parameters = Parameters::new(gpu, &named(&wanted));
    let is_matrix = |name: &str| !["tensor 1", "tensor 6"].contains(&name);
    let zeros = |a: &Array| Array {
        shape: a.shape.clone(),
        values: vec![0.0; a.values.len()],
    };
    let mut momentum: Vec<Array> = wanted.iter().map(zeros).collect();
    let vectors = wanted.iter().map(|a| AdamWReference::new(a.values.clone()));
    let mut vectors: Vec<AdamWReference> = vectors.collect();
    for step in 42..45 {
        let mut slopes = draw(step);
        parameters.accumulate(&gradients(&parameters, &slopes));
        let norm = parameters.step_muon(muon, ADAMW, is_matrix).to_vec()?[0];
        let wanted_norm = flat(&slopes).iter().map(|g| g * g).sum::<f64>().sqrt();
        compare("norm", &[norm], &[wanted_norm], 3e-6, LEAST)?;
        let clip = ADAMW.max_norm / (wanted_norm + 1e-6);
        for (i, slope) in slopes.iter_mut().enumerate() {
            slope.values.iter_mut().for_each(|g| *g *= clip);
            if slope.shape.len() == 2 {
                let decay = 1.0 - muon.lr * ADAMW.weight_decay;
                wanted[i] = reference::muon_step(&wanted[i], &mut momentum[i], slope, muon, decay);
            } else {
                let unclipped = AdamW {
                    max_norm: f64::INFINITY,
                    ..ADAMW
                };
                vectors[i].step(&slope.values, unclipped);
                wanted[i].values = vectors[i].values.clone();
            }
        }
    }
    let mut worst: f64 = 0.0;
    for (i, (_, _, values)) in parameters.values()?.into_iter().enumerate() {
        // A singular value s is found through its square, with a rounding of some 1e-7 / (2 s^2). Long random matrices have
        // none below a thirtieth of their norm. Three steps of length 0.05 (times two for 64 x 16).
        let tolerance = if shapes[i].len() == 2 { 3e-5 } else { 3e-6 };
        let name = format!("values of {i}");
        worst = worst.max(compare(&name, &values, &wanted[i].values, tolerance, 1.0)?);
    }
    Ok(worst)
}

#[cfg(test)]
mod tests;
