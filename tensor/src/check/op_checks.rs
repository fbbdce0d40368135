//! The table of checks: every kernel against its f64 reference at a few shapes, on any device.

use super::compare::{Array, Case, Tolerance, Wrong, compare, same_bits};
use super::reference::{self, AdamWReference, Heads, Knobs, Question};
use crate::ops::rl::{Head, Kl, PolicyLoss};
use crate::ops::{AdamW, Format, Matrix, Parameters, Rotations, Visibility, Weight, chains};
use crate::{Gpu, Indices, Tensor};

/// A number relative to which no result here is small.
const LEAST: f64 = 1e-6;

type Run = Box<dyn Fn(&Gpu) -> Result<f64, Wrong>>;

/// One op at one shape.
pub struct Check {
    /// The op.
    pub op: &'static str,
    /// Its shape, and what of it is checked.
    pub what: String,
    /// Whether it belongs to the short self-test: each shader is met there, gradients only where they cost little.
    pub is_short: bool,
    run: Run,
}

impl Check {
    /// Compares with the reference. Gives the largest relative error.
    ///
    /// # Errors
    /// The first number that is off by more than rounding explains, or what the device reported.
    pub fn run(&self, gpu: &Gpu) -> Result<f64, Wrong> {
        (self.run)(gpu)
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.op, self.what)
    }
}

/// What the table is made with.
struct Table(Vec<Check>);

impl Table {
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

    /// Value and gradient.
    fn gradient(
        &mut self,
        op: &'static str,
        what: impl Into<String>,
        tolerance: Tolerance,
        inputs: Vec<Array>,
        run: impl Fn(&[Tensor]) -> Tensor + 'static,
        reference: impl Fn(&[Array]) -> Array + 'static,
    ) -> &mut Check {
        self.add(op, what, move |gpu| {
            let case = Case {
                op: &run,
                reference: &reference,
                inputs: &inputs,
                tolerance,
                least: LEAST,
            };
            case.value_and_gradient(gpu)
        })
    }

    /// The value of what has no gradient.
    fn value(
        &mut self,
        op: &'static str,
        what: impl Into<String>,
        tolerance: Tolerance,
        inputs: Vec<Array>,
        run: impl Fn(&[Tensor]) -> Tensor + 'static,
        reference: impl Fn(&[Array]) -> Array + 'static,
    ) -> &mut Check {
        self.add(op, what, move |gpu| {
            let case = Case {
                op: &run,
                reference: &reference,
                inputs: &inputs,
                tolerance,
                least: LEAST,
            };
            case.value(gpu)
        })
    }
}

/// Every op with a kernel at a few shapes: at those of a model, and across the edges of tiles and groups. A new kernel that
/// no check of these runs fails a test.
pub fn checks() -> Vec<Check> {
    let mut table = Table(Vec::new());
    elements(&mut table);
    reductions(&mut table);
    rows(&mut table);
    products(&mut table);
    attention(&mut table);
    vocabulary(&mut table);
    learning(&mut table);
    table.0
}

fn random(shape: &[usize], seed: u64, range: std::ops::Range<f64>) -> Array {
    Array::random(shape, seed, range)
}

/// Numbers that do not meet the bounds and ties at which there is no slope.
fn off_grid(array: Array, by: f64) -> Array {
    array.map(|v| (64.0 * v).floor() / 64.0 + by)
}

fn elements(table: &mut Table) {
    type One = (&'static str, fn(&Tensor) -> Tensor, fn(f64) -> f64, f64);
    let ones: [One; 6] = [
        ("neg", |x| x.neg(), |v| -v, -4.0),
        ("exp", |x| x.exp(), f64::exp, -4.0),
        ("log", |x| x.log(), f64::ln, 0.1),
        ("silu", |x| x.silu(), |v| v / (1.0 + (-v).exp()), -4.0),
        ("square", |x| x.square(), |v| v * v, -4.0),
        ("sqrt", |x| x.sqrt(), f64::sqrt, 0.1),
    ];
    for (name, op, f, low) in ones {
        let x = vec![random(&[3, 67], 1, low..4.0)];
        table
            .gradient(
                "unary",
                format!("{name} of 3x67"),
                reference::UNARY,
                x,
                move |t| op(&t[0]),
                move |a| a[0].map(f),
            )
            .is_short = name == "exp";
    }
    let x = vec![off_grid(random(&[3, 67], 2, -4.0..4.0), 1.0 / 128.0)];
    table.gradient(
        "unary",
        "clamp of 3x67",
        reference::UNARY,
        x,
        |t| t[0].clamp(-1.5, 2.5),
        |a| a[0].map(|v| v.clamp(-1.5, 2.5)),
    );

    let kinks = || vec![off_grid(random(&[3, 67], 2, -4.0..4.0), 1.0 / 128.0)];
    table.gradient(
        "unary",
        "relu of 3x67",
        reference::UNARY,
        kinks(),
        |t| t[0].relu(),
        |a| a[0].map(|v| v.max(0.0)),
    );
    table.gradient(
        "unary",
        "huber of 3x67",
        reference::UNARY,
        kinks(),
        |t| t[0].huber(1.5),
        |a| a[0].map(|v| reference::huber(v, 1.5)),
    );

    type Two = (
        &'static str,
        fn(&Tensor, &Tensor) -> Tensor,
        fn(f64, f64) -> f64,
    );
    let smooth: [Two; 6] = [
        ("add", |a, b| a.add(b), |a, b| a + b),
        ("sub", |a, b| a.sub(b), |a, b| a - b),
        ("mul", |a, b| a.mul(b), |a, b| a * b),
        ("div", |a, b| a.div(b), |a, b| a / b),
        ("min", |a, b| a.min(b), f64::min),
        ("max", |a, b| a.max(b), f64::max),
    ];
    let steps: [Two; 3] = [
        ("less", |a, b| a.less(b), |a, b| f64::from(u8::from(a < b))),
        (
            "greater",
            |a, b| a.greater(b),
            |a, b| f64::from(u8::from(a > b)),
        ),
        (
            "at_least",
            |a, b| a.at_least(b),
            |a, b| f64::from(u8::from(a >= b)),
        ),
    ];
    for (name, op, f) in smooth {
        for (shape, what) in [
            ([3, 67], "3x67 and 3x67"),
            ([1, 67], "3x67 and a row, repeated"),
        ] {
            let a = off_grid(random(&[3, 67], 3, -2.0..2.0), 0.0);
            let b = off_grid(random(&shape, 4, 0.5..2.0), 1.0 / 128.0);
            table
                .gradient(
                    "binary",
                    format!("{name} of {what}"),
                    reference::BINARY,
                    vec![a, b],
                    move |t| op(&t[0], &t[1]),
                    move |a| reference::binary(f, &a[0], &a[1]),
                )
                .is_short = name == "mul";
        }
    }
    for (name, op, f) in steps {
        let inputs = vec![
            off_grid(random(&[3, 67], 3, -2.0..2.0), 0.0),
            off_grid(random(&[67], 4, -2.0..2.0), 1.0 / 128.0),
        ];
        table.value(
            "binary",
            format!("{name} of 3x67 and a row, repeated"),
            reference::BINARY,
            inputs,
            move |t| op(&t[0], &t[1]),
            move |a| reference::binary(f, &a[0], &a[1]),
        );
    }
    let mask = random(&[3, 67], 5, -1.0..1.0).map(|v| f64::from(u8::from(v > 0.3)));
    let rest = mask.map(|v| 1.0 - v);
    let on_device = mask.clone();
    table.gradient(
        "binary",
        "select of 3x67",
        reference::BINARY,
        vec![
            random(&[3, 67], 6, -2.0..2.0),
            random(&[3, 67], 7, -2.0..2.0),
        ],
        move |t| Tensor::select(&on_device.tensor(t[0].gpu()), &t[0], &t[1]),
        move |a| {
            let product = |x: &Array, y: &Array| reference::binary(|x, y| x * y, x, y);
            reference::binary(|x, y| x + y, &product(&mask, &a[0]), &product(&rest, &a[1]))
        },
    );
    for shape in [[1, 5], [5, 131]] {
        let inputs = vec![random(&shape, 8, -8.0..8.0), random(&shape, 9, -8.0..8.0)];
        table
            .gradient(
                "swiglu",
                format!("{}x{}", shape[0], shape[1]),
                reference::SWIGLU,
                inputs,
                |t| t[0].swiglu(&t[1]),
                |a| reference::swiglu(&a[0], &a[1]),
            )
            .is_short = shape[0] == 5;
    }
    // Nothing is rounded: what was filled is what is read. More than one group, and no whole fours.
    table.add("probe", "100 threads, 9 rounds", halved).is_short = true;
    table
        .add("fill", "5003 numbers", |gpu| {
            let got = Tensor::full(gpu, &[5003], -1.5).to_vec()?;
            compare("value", &got, &vec![-1.5; 5003], 0.0, LEAST)
        })
        .is_short = true;
}

/// The kernel that measures speed does what it is believed to do. It forgets its rounding: each step halves it.
fn halved(gpu: &Gpu) -> Result<f64, Wrong> {
    let got = chains(gpu, 100, 9, 0.5, 0.25).to_vec()?;
    let chain = |x: usize| (0..18).fold(x as f64, |x, _| x * 0.5 + 0.25);
    let wanted: Vec<f64> = (0..100)
        .map(|i| (0..8).map(|j| chain(i % 16 + j)).sum())
        .collect();
    compare("value", &got, &wanted, 1e-6, LEAST)
}

fn reductions(table: &mut Table) {
    for (m, n) in [(3, 67), (33, 130)] {
        let x = || vec![random(&[m, n], 10, 0.1..1.0)];
        let all = |a: &Array| Array {
            shape: vec![],
            values: vec![a.values.iter().sum()],
        };
        let (tolerance, short) = (reference::REDUCE, m == 33);
        table
            .gradient(
                "reduce",
                format!("sum of {m}x{n}"),
                tolerance,
                x(),
                |t| t[0].sum(),
                move |a| all(&a[0]),
            )
            .is_short = short;
        table.gradient(
            "reduce",
            format!("sum of the columns of {m}x{n}"),
            tolerance,
            x(),
            move |t| t[0].sum_to(&[n]),
            |a| reference::columns(&a[0]),
        );
        table.gradient(
            "reduce",
            format!("sum of the rows of {m}x{n}"),
            tolerance,
            x(),
            |t| t[0].sum_last(),
            |a| reference::of_rows(&a[0], |row| row.iter().sum()),
        );
        table.value(
            "reduce",
            format!("largest of the rows of {m}x{n}"),
            tolerance,
            x(),
            |t| t[0].max_last(),
            |a| reference::of_rows(&a[0], |row| row.iter().copied().fold(f64::MIN, f64::max)),
        );
    }
    for (rows, cols) in [(1, 8), (33, 65), (20, 256)] {
        let inputs = vec![
            random(&[rows, cols], 11, -2.0..2.0),
            random(&[cols], 12, 0.5..1.5),
        ];
        table
            .gradient(
                "rms_norm",
                format!("{rows}x{cols}"),
                reference::RMS_NORM,
                inputs,
                |t| t[0].rms_norm(&t[1], reference::RMS_EPS),
                |a| reference::rms_norm(&a[0], &a[1]),
            )
            .is_short = rows == 33;
        let inputs = vec![
            random(&[rows, cols], 11, -2.0..2.0),
            random(&[cols], 12, 0.5..1.5),
            random(&[cols], 13, -1.0..1.0),
        ];
        table
            .gradient(
                "layer_norm",
                format!("{rows}x{cols}"),
                reference::LAYER_NORM,
                inputs,
                |t| t[0].layer_norm(&t[1], &t[2], reference::LAYER_EPS),
                |a| reference::layer_norm(&a[0], &a[1], &a[2]),
            )
            .is_short = rows == 33;
    }
}

fn rows(table: &mut Table) {
    let picks: Vec<u32> = (0..20).map(|i| i * 7 % 13).collect();
    let on_device = picks.clone();
    table
        .gradient(
            "rows",
            "20 rows of 13x17, some twice",
            reference::ROWS,
            vec![random(&[13, 17], 13, -1.0..1.0)],
            move |t| t[0].gather_rows(&Indices::new(t[0].gpu(), &on_device)),
            move |a| reference::gather(&a[0], &picks),
        )
        .is_short = true;
    // A copy is exact.
    table
        .add("rows", "3 rows written into 13x17", |gpu| {
            let (mut all, new) = (
                random(&[13, 17], 14, -1.0..1.0),
                random(&[3, 17], 15, -1.0..1.0),
            );
            let x = all.tensor(gpu);
            x.write_rows(&Indices::new(gpu, &[12, 0, 5]), &new.tensor(gpu));
            for (from, to) in [12, 0, 5].into_iter().enumerate() {
                all.values[17 * to..][..17].copy_from_slice(&new.values[17 * from..][..17]);
            }
            compare("value", &x.to_vec()?, &all.values, 0.0, LEAST)
        })
        .is_short = true;
    let ids: Vec<u32> = (0..30).map(|i| i * 5 % 19).collect();
    for format in [Format::F32, Format::F16, Format::Bf16] {
        let ids = ids.clone();
        // Numbers of seven bits, which every format holds.
        let numbers = random(&[19, 33], 16, -64.0..64.0).map(f64::floor);
        table
            .add(
                "embedding",
                format!("30 tokens of 19x33 in {format:?}"),
                move |gpu| {
                    let values: Vec<f32> = numbers.values.iter().map(|v| *v as f32).collect();
                    let weight = Weight::from_f32(gpu, &values, 19, 33, format);
                    let y = Tensor::embedding(&Matrix::Frozen(weight), &Indices::new(gpu, &ids));
                    let wanted = reference::gather(&numbers, &ids);
                    compare("value", &y.to_vec()?, &wanted.values, 0.0, LEAST)
                },
            )
            .is_short = format == Format::F16;
    }
    let on_device = ids.clone();
    table.gradient(
        "embedding",
        "30 tokens of a trained 19x33",
        reference::EMBEDDING,
        vec![random(&[19, 33], 17, -1.0..1.0)],
        move |t| {
            let ids = Indices::new(t[0].gpu(), &on_device);
            Tensor::embedding(&Matrix::Trained(t[0].clone()), &ids)
        },
        move |a| reference::gather(&a[0], &ids),
    );
    for (half, heads) in [(8, 2), (32, 3)] {
        let positions = [0u32, 1, 2, 300, 4095, 7];
        table
            .gradient(
                "rope",
                format!("6 tokens of {heads} heads of {}", 2 * half),
                reference::ROPE,
                vec![random(&[6, heads * 2 * half], 18, -2.0..2.0)],
                move |t| {
                    let gpu = t[0].gpu();
                    let rotations = Rotations::new(gpu, &reference::frequencies(half));
                    t[0].rope(&Indices::new(gpu, &positions), &rotations, heads)
                },
                move |a| reference::rope(&a[0], &positions, &reference::frequencies(half), heads),
            )
            .is_short = heads == 2;
    }
}

fn products(table: &mut Table) {
    for (m, n, k) in [(1, 36, 20), (70, 68, 52)] {
        let (a, b) = (
            random(&[m, k], 20, -1.0..1.0),
            random(&[k, n], 21, -1.0..1.0),
        );
        let (left, right) = (reference::transposed(&a), reference::transposed(&b));
        let what = |kind: &str| format!("{kind}, {m}x{k} by {k}x{n}");
        table.gradient(
            "matmul",
            what("x w"),
            reference::MATMUL,
            vec![a.clone(), b.clone()],
            |t| t[0].matmul(&t[1]),
            |x| reference::matmul(&x[0], &x[1]),
        );
        table.gradient(
            "matmul",
            what("x wT"),
            reference::MATMUL,
            vec![a, right],
            |t| t[0].matmul_nt(&t[1]),
            |x| reference::matmul(&x[0], &reference::transposed(&x[1])),
        );
        table.gradient(
            "matmul",
            what("xT w"),
            reference::MATMUL,
            vec![left, b],
            |t| t[0].matmul_tn(&t[1]),
            |x| reference::matmul(&reference::transposed(&x[0]), &x[1]),
        );
    }
    // Lengths that are no whole fours: another kernel, and the value is enough of it.
    table.value(
        "matmul",
        "x wT, 17x7 by 7x33",
        reference::MATMUL,
        vec![
            random(&[17, 7], 18, -1.0..1.0),
            random(&[33, 7], 19, -1.0..1.0),
        ],
        |t| t[0].matmul_nt(&t[1]),
        |x| reference::matmul(&x[0], &reference::transposed(&x[1])),
    );
    // Sums of 1100 terms, cut into slices: sqrt(1100) 6e-8 = 2e-6.
    table
        .value(
            "matmul",
            "xT w, a sum of 1100 terms",
            reference::MATMUL,
            vec![
                random(&[1100, 8], 22, -1.0..1.0),
                random(&[1100, 12], 23, -1.0..1.0),
            ],
            |t| t[0].matmul_tn(&t[1]),
            |x| reference::matmul(&reference::transposed(&x[0]), &x[1]),
        )
        .is_short = true;
    for (m, format) in [(5, Format::F32), (33, Format::Bf16), (70, Format::F16)] {
        let (n, k, r) = (36, 52, 8);
        // Numbers that every format holds.
        let w = random(&[n, k], 24, -64.0..64.0).map(|v| v.floor() / 64.0);
        let stored = w.clone();
        let what = format!("{m} rows through {n}x{k} in {format:?} with bias and LoRA");
        let inputs = reference::linear_inputs(m, n, k, r, 25);
        let run = move |t: &[Tensor]| {
            let values: Vec<f32> = w.values.iter().map(|v| *v as f32).collect();
            let weight = Weight::from_f32(t[0].gpu(), &values, n, k, format);
            reference::linear_op(t, &Matrix::Frozen(weight))
        };
        let wanted = move |x: &[Array]| reference::linear(x, &stored);
        // Formats differ in how a weight is read, which the value shows.
        match format {
            Format::F16 => table.gradient("linear", what, reference::MATMUL, inputs, run, wanted),
            _ => table.value("linear", what, reference::MATMUL, inputs, run, wanted),
        };
    }
}

fn attention(table: &mut Table) {
    for (rows, heads) in [
        (10, Heads(4, 2, 16)),
        (9, Heads(4, 2, 16)),
        (40, Heads(2, 2, 64)),
        (33, Heads(7, 1, 8)),
        (600, Heads(1, 1, 4)),
    ] {
        let until = match rows {
            // A chain, long enough for the walks to be cut.
            600 => vec![600; 600],
            _ => reference::forest(rows, 26),
        };
        let on_device = until.clone();
        let inputs = reference::attention_inputs(rows, heads, 27).to_vec();
        let what = format!(
            "{rows} tokens in {} heads of {} on {}",
            heads.0, heads.2, heads.1
        );
        let run = move |t: &[Tensor]| {
            reference::attend(t, &Visibility::tree(t[0].gpu(), &on_device), heads)
        };
        let wanted = move |a: &[Array]| reference::attention(a, &until, heads);
        if rows == 600 {
            // Its reference is too slow for slopes of each input.
            let tolerance = reference::ATTENTION;
            table.add("attention", what, move |gpu| {
                let case = Case {
                    op: &run,
                    reference: &wanted,
                    inputs: &inputs,
                    tolerance,
                    least: LEAST,
                };
                case.value_and_slope(gpu)
            });
            continue;
        }
        match rows {
            // For the short test: its gradient is met with the others.
            10 => {
                table
                    .value("attention", what, reference::ATTENTION, inputs, run, wanted)
                    .is_short = true;
            }
            _ => {
                table.gradient("attention", what, reference::ATTENTION, inputs, run, wanted);
            }
        }
    }
}

fn vocabulary(table: &mut Table) {
    for (rows, vocabulary, width) in [(2, 65, 8), (7, 300, 16)] {
        let arrays = reference::arrays(rows, vocabulary, width, 4, 30);
        let question = Question::random(3 * rows, rows, vocabulary, 0.8, 31);
        let cut = reference::cut(rows, 2);
        let asked = question.clone();
        let op = move |t: &[Tensor]| {
            let head = asked.head(Matrix::Trained(t[1].clone()), Some((&t[2], &t[3])));
            asked.ask(&t[0], &head, cut)
        };
        let (inputs, again, entropy_op) = (arrays.to_vec(), arrays.to_vec(), op.clone());
        let (wanted, wanted_entropy) = (question.clone(), question);
        table.add(
            "log_prob",
            format!("{rows} rows over {vocabulary} tokens"),
            move |gpu| {
                let case = Case {
                    op: &|t| op(t).log_probs,
                    reference: &|a| reference::log_prob(a, &wanted)[0].clone(),
                    inputs: &inputs,
                    tolerance: reference::LOG_PROB,
                    least: reference::LEAST,
                };
                case.value_and_gradient(gpu)
            },
        );
        table.add(
            "log_prob",
            format!("entropy of {rows} rows over {vocabulary} tokens"),
            move |gpu| {
                let case = Case {
                    op: &|t| entropy_op(t).entropy,
                    reference: &|a| reference::log_prob(a, &wanted_entropy)[1].clone(),
                    inputs: &again,
                    tolerance: reference::LOG_PROB,
                    least: reference::LEAST,
                };
                case.value(gpu)
            },
        );
    }
    for vocabulary in [64, 2500] {
        table
            .add(
                "sample",
                format!("40 draws of {vocabulary} tokens"),
                move |gpu| drawn(gpu, vocabulary),
            )
            .is_short = vocabulary == 64;
    }
}

/// Each draw is the token whose logit and noise are the largest; its log-prob has the bits that the trainer computes.
fn drawn(gpu: &Gpu, vocabulary: usize) -> Result<f64, Wrong> {
    let (logits, temperature) = (random(&[vocabulary, 1], 32, -2.0..2.0), 0.7);
    let keys: Vec<[u32; 2]> = (0..40).map(|i| [i, 0x1a9]).collect();
    let head = Head {
        weight: Matrix::Trained(logits.tensor(gpu)),
        lora: None,
    };
    let one = Tensor::from_slice(gpu, &[1.0], &[1, 1]);
    let rows = Indices::new(gpu, &[0; 40]);
    let drawn = one.draw(&head, &rows, &keys, temperature);
    let tokens = drawn.tokens.to_vec()?;
    for (key, token) in keys.iter().zip(&tokens) {
        let score =
            |v: usize| logits.values[v] / f64::from(temperature) + reference::gumbel(*key, v);
        let best = (0..vocabulary).map(score).fold(f64::MIN, f64::max);
        let got = match logits.values.get(*token as usize) {
            Some(_) => score(*token as usize),
            None => f64::MIN,
        };
        // f32 noise errs by some 1e-6, by 1e-4 at most where WGSL's logarithm does; another token is off by about 1.
        if best - got > 1e-3 {
            return Err(Wrong::Other(format!(
                "the key {key:?} drew the token {token}, which is not the likeliest with its noise"
            )));
        }
    }
    let targets = Indices::new(gpu, &tokens);
    let again = one.log_probs(&head, &rows, &targets, temperature);
    let (sampled, trained) = (drawn.log_probs.to_vec()?, again.log_probs.to_vec()?);
    if !same_bits(&sampled, &trained) {
        return Err(Wrong::Bits {
            what: "log-prob of the sampler and of the trainer".to_owned(),
        });
    }
    let question = Question {
        rows: vec![0; 40],
        targets: tokens,
        temperature,
        scale: 1.0,
    };
    let hidden = Array {
        shape: vec![1, 1],
        values: vec![1.0],
    };
    let wanted = reference::log_prob(&[hidden, logits], &question);
    let tolerance = reference::LOG_PROB.value;
    compare(
        "log-prob",
        &sampled,
        &wanted[0].values,
        tolerance,
        reference::LEAST,
    )
}

fn learning(table: &mut Table) {
    for kl in [Kl::K2, Kl::K3] {
        let knobs = Knobs {
            clip: (0.2, 0.28),
            beta: 0.05,
            kl,
        };
        table
            .add(
                "policy_loss",
                format!("150 tokens of 65 pairs, {kl:?}"),
                move |gpu| {
                    let log_probs = random(&[65], 33, -3.0..-0.01);
                    let tokens = reference::loss_tokens(&log_probs, 150, 34, knobs.clip);
                    let inputs = [log_probs];
                    // Tokens of both signs cancel to a hundredth at the worst.
                    let tolerance = Tolerance {
                        value: 100.0 * reference::POLICY_LOSS,
                        gradient: 100.0 * reference::POLICY_LOSS,
                    };
                    let parts: [fn(PolicyLoss) -> Tensor; 3] =
                        [|l| l.loss, |l| l.kl, |l| l.clip_fraction];
                    let mut worst: f64 = 0.0;
                    for (which, part) in parts.into_iter().enumerate() {
                        let case = Case {
                            op: &|t| {
                                part(t[0].policy_loss(&tokens, knobs.clip, knobs.beta, knobs.kl))
                            },
                            reference: &|a| Array {
                                shape: vec![],
                                values: vec![reference::policy_loss(&a[0], &tokens, knobs)[which]],
                            },
                            inputs: &inputs,
                            tolerance,
                            least: LEAST,
                        };
                        worst = worst.max(match which {
                            0 => case.value_and_gradient(gpu)?,
                            _ => case.value(gpu)?,
                        });
                    }
                    Ok(worst)
                },
            )
            .is_short = kl == Kl::K2;
    }
    table
        .add("adamw", "3 steps of 9 tensors", three_steps)
        .is_short = true;
}

/// Three updates, the gradients clipped, and what was learned after them.
fn three_steps(gpu: &Gpu) -> Result<f64, Wrong> {
    let lengths = [1, 7, 63, 64, 65, 129, 5000, 2, 3];
    let draw = |which: u64| -> Vec<Array> {
        let one = |(i, n): (u64, &usize)| random(&[*n], which << 40 ^ i, -1.0..1.0);
        (0..).zip(lengths.iter()).map(one).collect()
    };
    let knobs = AdamW {
        lr: 0.03,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-8,
        weight_decay: 0.05,
        max_norm: 2.0,
    };
    let flat =
        |arrays: &[Array]| -> Vec<f64> { arrays.iter().flat_map(|a| a.values.clone()).collect() };
    let start = draw(35);
    let named = start.iter().enumerate().map(|(i, a)| {
        let values = a.values.iter().map(|v| *v as f32).collect();
        (i.to_string(), a.shape.clone(), values)
    });
    let mut parameters = Parameters::new(gpu, &named.collect::<Vec<_>>());
    let mut wanted = AdamWReference::new(flat(&start));
    // A dozen roundings of 6e-8 a step, three steps; and a norm of 5,000 squares in two levels of sums.
    const TOLERANCE: f64 = 3e-6;
    let mut worst: f64 = 0.0;
    for step in 36..39 {
        let slopes = draw(step);
        let mut loss = Tensor::zeros(gpu, &[]);
        for (i, slope) in slopes.iter().enumerate() {
            let leaf = parameters.get(&i.to_string());
            loss = loss.add(&leaf.mul(&slope.tensor(gpu)).sum());
        }
        parameters.accumulate(&loss.backward());
        let norm = parameters.step(knobs).to_vec()?;
        let wanted = wanted.step(&flat(&slopes), knobs);
        worst = worst.max(compare("norm", &norm, &[wanted], TOLERANCE, LEAST)?);
    }
    let values = parameters.values()?;
    let values: Vec<f32> = values.into_iter().flat_map(|(_, _, v)| v).collect();
    Ok(worst.max(compare(
        "values",
        &values,
        &wanted.values,
        TOLERANCE,
        LEAST,
    )?))
}

#[cfg(test)]
mod tests;
