//! Adapters leave and come back as they were.

use lapwing_model::{Adapter, Linear, LoraConfig, Tokens};
use lapwing_tensor::{AdamW, Parameters};
use serde_json::Value;

use crate::support::*;

fn values(parameters: &Parameters) -> Vec<(String, Vec<f32>)> {
    let read = |name: &str| (name.to_owned(), parameters.get(name).to_vec().unwrap());
    parameters.names().map(read).collect()
}

#[test]
fn a_saved_adapter_is_loaded_again_to_the_bit() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("adapter");
    for name in CHECKPOINTS {
        let (model, adapter, parameters) = load_adapted(name);
        adapter.save(&dir, name).unwrap();
        let (again, parameters_again) = Adapter::load(&model, &dir).unwrap();
        assert_eq!(again.config(), adapter.config());
        assert_eq!(values(&parameters_again), values(&parameters), "{name}");
    }
}

#[test]
fn every_target_and_the_head_survive_a_round_trip() {
    let home = tempfile::tempdir().unwrap();
    let model = load("llama");
    let targets = vec![Linear::Q, Linear::Down, Linear::Head];
    let config = LoraConfig {
        rank: 3,
        alpha: 4.5,
        rslora: true,
        targets,
    };
    let (adapter, parameters) = Adapter::new(&model, config.clone(), 11);
    adapter.save(&home.path().join("a"), "llama").unwrap();
    let (again, parameters_again) = Adapter::load(&model, &home.path().join("a")).unwrap();
    assert_eq!(again.config(), &config);
    assert_eq!(values(&parameters_again), values(&parameters));
}

#[test]
fn the_configuration_is_the_one_that_peft_writes() {
    let home = tempfile::tempdir().unwrap();
    let (_, adapter, _) = load_adapted("qwen2");
    adapter.save(&home.path().join("a"), "qwen2").unwrap();
    let read = |path: std::path::PathBuf| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path.join("adapter_config.json")).unwrap())
            .unwrap()
    };
    let (ours, theirs) = (
        read(home.path().join("a")),
        read(golden("qwen2").join("adapter")),
    );
    for (field, value) in ours.as_object().unwrap() {
        // PEFT listed the full path of every module, we name their kinds; it reads both.
        if field != "target_modules" {
            assert_eq!(Some(value), theirs.get(field), "{field}");
        }
    }
    let kinds = [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    ];
    assert_eq!(ours["target_modules"], serde_json::json!(kinds));
}

#[test]
fn a_fresh_adapter_changes_nothing_and_a_step_changes_it_in_place() {
    let model = load("qwen2");
    let targets = Linear::BLOCK.into_iter().chain([Linear::Head]).collect();
    let config = LoraConfig {
        rank: 4,
        targets,
        ..LoraConfig::default()
    };
    let (adapter, mut parameters) = Adapter::new(&model, config, 3);
    let ids = Expected::of("qwen2").ids("ids3");
    let frozen = adapter.without_gradients();
    let read = |adapter| log_probs(&model, adapter, &ids).to_vec().unwrap();
    let before = read(None);
    // The low-rank term is exactly zero, but it may be added in another order.
    assert_near("fresh", &read(Some(&frozen)), &before, 1e-6);
    let loss = log_probs(&model, Some(&adapter), &ids).sum();
    parameters.accumulate(&loss.backward());
    let knobs = AdamW {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        max_norm: f64::INFINITY,
    };
    parameters.step(knobs);
    let after = read(Some(&frozen));
    // AdamW minimises, so the log-probs have fallen; the model without the adapter has not moved.
    assert!(after.iter().sum::<f32>() < before.iter().sum::<f32>() - 1.0);
    assert_eq!(read(None), before);
}

#[test]
fn seeds_make_adapters() {
    let model = load("qwen2");
    let draw = |seed| values(&Adapter::new(&model, LoraConfig::default(), seed).1);
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    for (name, values) in draw(1) {
        let bound = if name.contains("down_proj") {
            1.0 / 160f32.sqrt()
        } else {
            1.0 / 8.0
        };
        match name.contains("lora_B") {
            true => assert!(values.iter().all(|&x| x == 0.0)),
            false => assert!(
                magnitude(&values) <= bound && magnitude(&values) > 0.9 * bound,
                "{name}"
            ),
        }
    }
}

#[test]
fn without_gradients_means_without_a_tape() {
    let (model, adapter, _) = load_adapted("qwen2");
    let tokens = Tokens::sequence(model.gpu(), &[1, 2, 3]);
    assert!(model.forward(&tokens, Some(&adapter)).is_tracked());
    assert!(
        !model
            .forward(&tokens, Some(&adapter.without_gradients()))
            .is_tracked()
    );
    assert!(!model.forward(&tokens, None).is_tracked());
}
