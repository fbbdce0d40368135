//! Whole models: loading in every precision, saving, training.

use std::fs;

use lapwing_model::{
    Model, ModelConfig, ModelDirectory, ModelShape, Precision, Tokens, initial_weights,
};
use lapwing_tensor::{AdamW, NamedValues, Parameters, WeightFormat, check};

use crate::support::*;

fn logits(model: &Model, ids: &[u32]) -> Vec<f32> {
    let hidden = model.forward(&Tokens::sequence(model.gpu(), ids), None);
    hidden.logits(&model.head(None)).to_vec().unwrap()
}

#[test]
fn every_precision_gives_the_same_numbers_within_its_own() {
    let ids = Expected::of("qwen3").ids("ids2");
    let wanted = Expected::of("qwen3").floats("ids2.logits");
    // In f16 and, as the checkpoint, in bf16.
    for (precision, index) in [(Precision::Auto, 1), (Precision::Stored, 2)] {
        let model = Model::load(&check::gpu(), &golden("qwen3"), precision).unwrap();
        assert_eq!(model.report().matrices[index], 15, "{:?}", model.report());
        // Both hold the checkpoint's bf16 values; f16 loses a little near zero.
        assert_near(
            &format!("{precision:?}"),
            &logits(&model, &ids),
            &wanted,
            1e-3,
        );
    }
}

#[test]
fn the_report_counts_and_names() {
    let model = load("llama");
    let report = model.report();
    let numbers = 2 * 384 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64 + 2 * 64) + 64;
    assert_eq!(report.parameters, numbers);
    assert!(report.ignored.is_empty() && report.out_of_f16_range.is_empty());
}

#[test]
fn a_saved_model_is_loaded_again() {
    for name in CHECKPOINTS {
        let home = tempfile::tempdir().unwrap();
        let model = load(name);
        model.save(home.path(), WeightFormat::F32).unwrap();
        let again = Model::load(model.gpu(), home.path(), Precision::Auto).unwrap();
        assert_eq!(again.config(), model.config());
        let ids = Expected::of(name).ids("ids2");
        // The first is in f16 or f32, the second in f32: the same numbers, possibly summed by another kernel.
        assert_near(name, &logits(&again, &ids), &logits(&model, &ids), 1e-5);
    }
}

fn small() -> ModelConfig {
    ModelConfig::qwen2(ModelShape {
        vocab: 48,
        width: 32,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        mlp_width: 64,
    })
}

#[test]
fn a_new_model_learns_and_is_saved() {
    let gpu = check::gpu();
    let mut config = small();
    config.eos = vec![5];
    let mut parameters = Parameters::new(&gpu, &initial_weights(&config, 1));
    let model = Model::over(&gpu, config, &parameters);
    let ids: Vec<u32> = (0..24).map(|i| i * i % 47).collect();
    let loss = |model: &Model| log_probs(model, None, &ids).mean().neg();
    let before = loss(&model).to_vec().unwrap()[0];
    // At first the loss is about the logarithm of the vocabulary size.
    assert!((before - 48f32.ln()).abs() < 1.0, "{before}");
    let options = AdamW {
        lr: 0.01,
        beta2: 0.99,
        max_norm: 1.0,
        ..AdamW::default()
    };
    for _ in 0..30 {
        parameters.accumulate(&loss(&model).backward());
        parameters.step(options);
    }
    let after = loss(&model).to_vec().unwrap()[0];
    assert!(after < 0.5, "{before} -> {after}");

    let home = tempfile::tempdir().unwrap();
    model.save(home.path(), WeightFormat::F16).unwrap();
    let again = Model::load(&gpu, home.path(), Precision::Auto).unwrap();
    assert_eq!(again.config(), model.config());
    // f16 keeps eleven bits of every weight.
    assert_near(
        "saved in f16",
        &logits(&again, &ids),
        &logits(&model.without_gradients(), &ids),
        1e-2,
    );
}

#[test]
fn starting_values_come_from_the_seed() {
    let config = small();
    assert_eq!(initial_weights(&config, 1), initial_weights(&config, 1));
    assert_ne!(initial_weights(&config, 1), initial_weights(&config, 2));
}

/// The trained weights and the reference are bit-identical to the files, and a saved update is a model with the companion files of the
/// original.
#[test]
fn a_published_model_is_trained_whole() {
    let gpu = check::gpu();
    for name in CHECKPOINTS {
        let dir = golden(name);
        let checkpoint = ModelDirectory::open(&dir).unwrap();
        let mut told = 0;
        let mut progress = |done, total| {
            assert!(told < done && done <= total);
            told = done;
        };
        let (model, mut parameters) = checkpoint.load_trained(&gpu, &mut progress).unwrap();
        assert_eq!(parameters.count(), told);
        let (report, frozen) = (model.report(), load(name));
        assert_eq!(report.parameters, told);
        assert_eq!(report.parameters, frozen.report().parameters);
        assert_eq!(report.ignored, frozen.report().ignored);

        let stored = Precision::Stored;
        let reference = checkpoint.load(&gpu, stored, &mut |_, _| ()).unwrap();
        let values = |model: &Model| -> Vec<NamedValues> {
            let home = tempfile::tempdir().unwrap();
            model.save(home.path(), WeightFormat::F32).unwrap();
            let saved = ModelDirectory::open(home.path()).unwrap();
            let (_, parameters) = saved.load_trained(&gpu, &mut |_, _| ()).unwrap();
            parameters.values().unwrap()
        };
        let stored = parameters.values().unwrap();
        assert!(
            stored == values(&reference) && stored == values(&model),
            "{name}"
        );

        let ids = Expected::of(name).ids("ids2");
        assert_near(name, &logits(&model, &ids), &logits(&reference, &ids), 1e-5);
        let loss = log_probs(&model, None, &ids).mean().neg();
        parameters.accumulate(&loss.backward());
        parameters.step(AdamW::default());
        let less = log_probs(&model, None, &ids).mean().neg();
        assert!(less.to_vec().unwrap()[0] < loss.to_vec().unwrap()[0]);
        assert!(values(&reference) == stored, "the reference has moved");

        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("out");
        let companions = checkpoint.companions().unwrap();
        // The older directory is replaced.
        fs::create_dir(&out).unwrap();
        fs::write(out.join("old"), "").unwrap();
        model.save_whole(&out, &companions).unwrap();
        let names = |dir: &std::path::Path| -> Vec<String> {
            let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
            let files = entries.filter(|entry| entry.path().is_file());
            let mut names: Vec<String> = files
                .map(|entry| entry.file_name().into_string().unwrap())
                .filter(|name| !name.contains("safetensors"))
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&out), names(&dir));
        for name in names(&dir).iter().filter(|name| *name != "config.json") {
            assert!(fs::read(out.join(name)).unwrap() == fs::read(dir.join(name)).unwrap());
        }
        let again = Model::load(&gpu, &out, Precision::Auto).unwrap();
        assert_eq!(again.config(), model.config());
        assert!(
            logits(&again, &ids) == logits(&model.without_gradients(), &ids),
            "{name}"
        );
    }
}
