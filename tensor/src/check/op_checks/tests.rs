//! Tests that the checks run every kernel, and that they pass in every dialect, with any split, and at large sizes.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::GpuOptions;
use crate::check::assert_listed;

type Kernels = BTreeSet<(String, String)>;

/// Every entry point of every shader, from the texts.
fn entry_points() -> Kernels {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shaders");
    let mut found = Kernels::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "wgsl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("@compute").skip(1) {
            let entry = part.split_once("fn ").unwrap().1.split_once('(').unwrap().0;
            let shader = path.file_stem().unwrap().to_str().unwrap();
            found.insert((shader.to_owned(), entry.to_owned()));
        }
    }
    found
}

fn used(gpu: &Gpu) -> Kernels {
    let kernels = gpu.kernels_used().into_iter();
    kernels
        .map(|(shader, entry)| (shader.to_owned(), entry.to_owned()))
        .collect()
}

fn shaders(kernels: &Kernels) -> BTreeSet<&str> {
    kernels.iter().map(|(shader, _)| &**shader).collect()
}

/// Runs the kernels for this device and those for a GPU, each also with only the features of WebGPU. Together the checks
/// run every kernel, and the short ones every shader.
#[test]
fn every_kernel_is_checked_and_right() {
    let mut met = Kernels::new();
    for (software, webgpu) in [(true, false), (false, false), (true, true), (false, true)] {
        let options = || GpuOptions {
            poison: true,
            webgpu,
            on_compile: Some(assert_listed),
            ..GpuOptions::default()
        };
        let open = || {
            let gpu = Gpu::open(options()).unwrap();
            gpu.with_caps(|caps| caps.is_software = software)
        };
        let (all, short) = (open(), open());
        for check in checks() {
            let gpus = [Some(&all), Some(&short).filter(|_| check.is_short)];
            for gpu in gpus.into_iter().flatten() {
                check
                    .run(gpu)
                    .unwrap_or_else(|wrong| panic!("{check:?}: {wrong}"));
            }
        }
        let (all, short) = (used(&all), used(&short));
        let missing: Vec<_> = shaders(&all)
            .difference(&shaders(&short))
            .copied()
            // With attention_lanes, `attention` is used only for gradients.
            .filter(|shader| *shader != "attention")
            .collect();
        assert!(
            missing.is_empty(),
            "set is_short of a check that runs {missing:?}"
        );
        met.extend(all);
    }
    let forgotten: Vec<_> = entry_points().difference(&met).cloned().collect();
    assert!(
        forgotten.is_empty(),
        "no check in check/op_checks.rs runs {forgotten:?}"
    );
}

/// Runs the kernels for processors and for GPUs at the shapes of real models: many tiles and groups, long walks, and sums
/// in slices.
#[test]
fn large_shapes_are_right() {
    type OpFn<'a> = &'a dyn Fn(&[Tensor]) -> Tensor;
    type ReferenceFn<'a> = &'a dyn Fn(&[Array]) -> Array;
    for software in [true, false] {
        let options = GpuOptions {
            poison: true,
            on_compile: Some(assert_listed),
            ..GpuOptions::default()
        };
        let gpu = Gpu::open(options).unwrap();
        let gpu = gpu.with_caps(|caps| caps.is_software = software);
        let right =
            |what: &str, tolerance, inputs: &[Array], op: OpFn<'_>, reference: ReferenceFn<'_>| {
                let case = OpCase {
                    op,
                    reference,
                    inputs,
                    tolerance,
                };
                case.run(&gpu, Compared::Slope)
                    .unwrap_or_else(|wrong| panic!("{what}, software: {software}: {wrong}"));
            };
        let random = |shape: [usize; 2], seed| random(&shape, seed, -1.0..1.0);

        let (x, w) = (random([330, 260], 1), random([500, 260], 2));
        right(
            "x wT",
            reference::MATMUL,
            &[x.clone(), w.clone()],
            &|t| t[0].matmul_nt(&t[1]),
            &|a| reference::matmul(&a[0], &reference::transposed(&a[1])),
        );
        right(
            "x w",
            reference::MATMUL,
            &[x, reference::transposed(&w)],
            &|t| t[0].matmul(&t[1]),
            &|a| reference::matmul(&a[0], &a[1]),
        );
        right(
            "xT w, a sum of 3001 terms",
            reference::MATMUL,
            &[random([3001, 70], 3), random([3001, 130], 4)],
            &|t| t[0].matmul_tn(&t[1]),
            &|a| reference::matmul(&reference::transposed(&a[0]), &a[1]),
        );
        let w = random([324, 256], 5).map(|v| (64.0 * v).floor() / 64.0);
        let values = w.to_f32();
        for format in WeightFormat::ALL {
            let weight = Matrix::Frozen(Weight::from_f32(&gpu, &values, 324, 256, format));
            let held = reference::held(&w, format);
            right(
                "a linear layer",
                reference::MATMUL,
                &reference::linear_inputs(300, 324, 256, 16, 6),
                &|t| reference::linear_op(t, &weight),
                &|a| reference::linear(a, &held),
            );
        }
        for (rows, heads) in [
            (400, AttentionHeads(8, 2, 64)),
            (200, AttentionHeads(2, 1, 128)),
        ] {
            let until = reference::forest(rows, 7);
            let visible = Visibility::tree(&gpu, &until);
            right(
                "attention",
                reference::ATTENTION,
                &reference::attention_inputs(rows, heads, 8),
                &|t| reference::attend(t, &visible, heads),
                &|a| reference::attention(a, &until, heads),
            );
        }
        let (rows, cols) = (1000, 896);
        let inputs = [
            random([rows, cols], 9),
            super::random(&[cols], 10, 0.5..1.5),
            super::random(&[cols], 11, -1.0..1.0),
        ];
        right(
            "rms_norm",
            reference::RMS_NORM,
            &inputs[..2],
            &|t| t[0].rms_norm(&t[1], reference::EPS),
            &|a| reference::norm(&a[0], &a[1], None),
        );
        right(
            "layer_norm",
            reference::LAYER_NORM,
            &inputs,
            &|t| t[0].layer_norm(&t[1], &t[2], reference::EPS),
            &|a| reference::norm(&a[0], &a[1], Some(&a[2])),
        );
        right(
            "the sum of columns",
            reference::REDUCE,
            &inputs[..1],
            &|t| t[0].sum_to(&[cols]),
            &|a| reference::columns(&a[0]),
        );
        let (rows, vocabulary) = (150, 5000);
        let arrays = reference::log_prob_inputs(rows, vocabulary, 32, 4, 12);
        let question = TokenQuery::random(2 * rows, rows, vocabulary, 0.8, 13);
        let cut = reference::cut(rows, 30);
        right(
            "log_prob",
            reference::LOG_PROB,
            &arrays,
            &|t| {
                let head = question.head(Matrix::Trained(t[1].clone()), Some((&t[2], &t[3])));
                question.log_probs(&t[0], &head, cut).log_probs
            },
            &|a| reference::log_prob(a, &question)[0].clone(),
        );
    }
}

/// Runs launches in parts, also those of kernels that change values in place.
#[test]
fn every_kernel_is_right_in_parts() {
    let options = |max_work| GpuOptions {
        poison: true,
        max_work,
        on_compile: Some(assert_listed),
        ..GpuOptions::default()
    };
    let (whole, parts) = (
        Gpu::open(options(None)).unwrap(),
        Gpu::open(options(Some(20_000))).unwrap(),
    );
    for check in checks() {
        for gpu in [&whole, &parts] {
            check
                .run(gpu)
                .unwrap_or_else(|wrong| panic!("{check:?}: {wrong}"));
        }
    }
    let (whole, parts) = (whole.counts().submissions, parts.counts().submissions);
    assert!(
        parts > 2 * whole,
        "{parts} submissions, {whole} without a limit"
    );
}

/// Replaces a part of a shader by a wrong one.
#[test]
fn a_wrong_kernel_is_found() {
    let mistakes = [
        ("rms_norm", "norm", "params.eps", "0.0"),
        ("swiglu", "swiglu", "1.0 + exp(", "1.5 + exp("),
        (
            "sample",
            "log_prob",
            "sum += scale * part.y",
            "sum += part.z",
        ),
        ("adamw", "adamw", "params.decay", "1.0"),
        ("muon", "muon", "= params.momentum * m + g", "= m"),
        ("muon", "muon", "params.linear", "1.001 * params.linear"),
        ("muon", "muon", "f32(m.rows) / f32(m.columns)", "1.0"),
        ("rope", "rope", "params.sign", "1.0"),
    ];
    for (op, shader, right, wrong) in mistakes {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        gpu.miscompile(shader, right, wrong);
        let ours = checks()
            .into_iter()
            .filter(|check| check.is_short && check.op == op);
        let results: Vec<_> = ours.map(|check| check.run(&gpu)).collect();
        assert!(
            !results.is_empty() && results.iter().all(Result::is_err),
            "{right} was {wrong}: {results:?}"
        );
    }
}
