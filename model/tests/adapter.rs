//! Saving, loading and training of adapters.

use lapwing_model::{Adapter, Linear, LoraConfig, Targets, Tokens};
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
        let (again, parameters_again) = read_adapter(name, &model, &dir).unwrap();
        assert_eq!(again.config(), adapter.config());
        assert_eq!(values(&parameters_again), values(&parameters), "{name}");
    }
}

#[test]
fn every_target_and_the_head_survive_a_round_trip() {
    let home = tempfile::tempdir().unwrap();
    let model = load("llama");
    let targets = [Linear::Q, Linear::Down, Linear::Head].into();
    let config = LoraConfig {
        rank: 3,
        alpha: 4.5,
        rslora: true,
        targets,
    };
    let (adapter, parameters) = Adapter::new(&model, config.clone(), 11).unwrap();
    adapter.save(&home.path().join("a"), "llama").unwrap();
    let (again, parameters_again) = read_adapter("llama", &model, &home.path().join("a")).unwrap();
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
    let targets = Targets::Pattern(".*".into());
    let config = LoraConfig {
        rank: 4,
        targets,
        ..LoraConfig::default()
    };
    let (adapter, mut parameters) = Adapter::new(&model, config, 3).unwrap();
    let ids = Expected::of("qwen2").ids("ids3");
    let frozen = adapter.without_gradients();
    let read = |adapter| log_probs(&model, adapter, &ids).to_vec().unwrap();
    let before = read(None);
    // The low-rank term is exactly zero, but it may be added in another order.
    assert_near("fresh", &read(Some(&frozen)), &before, 1e-6);
    let loss = log_probs(&model, Some(&adapter), &ids).sum();
    parameters.accumulate(&loss.backward());
    let options = AdamW {
        lr: 0.01,
        ..AdamW::default()
    };
    parameters.step(options);
    let after = read(Some(&frozen));
    // AdamW minimises, so the log-probs have fallen; the model without the adapter has not moved.
    assert!(after.iter().sum::<f32>() < before.iter().sum::<f32>() - 1.0);
    assert_eq!(read(None), before);
}

#[test]
fn an_adapter_that_is_not_finite_is_not_saved_and_the_one_before_stays() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("adapter");
    let (_, adapter, mut parameters) = load_adapted("llama");
    adapter.save(&dir, "llama").unwrap();
    let contents = || {
        let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
        ["adapter_config.json", "adapter_model.safetensors"].map(read)
    };
    let before = contents();
    let mut state = parameters.state().unwrap();
    for value in [f32::NAN, f32::INFINITY] {
        *state[3].values.last_mut().unwrap() = value;
        parameters.restore(&state, 0);
        let error = adapter.save(&dir, "llama").unwrap_err().to_string();
        let tensor = &state[3].name;
        let problem = format!("tensor {tensor}: holds values that are not finite; not saved");
        assert!(error.ends_with(&problem), "{error}");
        assert!(error.contains("adapter_model.safetensors"), "{error}");
    }
    assert_eq!(contents(), before);
    // No temporary file is left.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn seeds_make_adapters() {
    let model = load("qwen2");
    let draw = |seed| values(&Adapter::new(&model, LoraConfig::default(), seed).unwrap().1);
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

/// PEFT's `rank_pattern` and `alpha_pattern`.
#[test]
fn layers_may_differ_in_rank_and_alpha() {
    let home = tempfile::tempdir().unwrap();
    let model = load("qwen3");
    let save = |targets: Targets, rank, alpha, name: &str| {
        let config = LoraConfig {
            rank,
            alpha,
            rslora: false,
            targets,
        };
        let (adapter, _) = Adapter::new(&model, config, 7).unwrap();
        adapter.save(&home.path().join(name), "qwen3").unwrap();
    };
    save(Targets::Names(vec!["q_proj".into()]), 2, 8.0, "narrow");
    save(
        Targets::Names(vec!["layers.1.mlp.up_proj".into()]),
        5,
        1.0,
        "wide",
    );

    // One file with the layers of both.
    let both = home.path().join("both");
    std::fs::create_dir(&both).unwrap();
    let files = ["narrow", "wide"].map(|name| {
        std::fs::read(home.path().join(name).join("adapter_model.safetensors")).unwrap()
    });
    let tensors: Vec<_> = files
        .iter()
        .flat_map(|bytes| {
            safetensors::SafeTensors::deserialize(bytes)
                .unwrap()
                .tensors()
        })
        .collect();
    let bytes = safetensors::serialize(tensors, None).unwrap();
    std::fs::write(both.join("adapter_model.safetensors"), bytes).unwrap();
    let config = serde_json::json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ".*q_proj|.*up_proj",
        "rank_pattern": {"mlp.up_proj": 5}, "alpha_pattern": {"layers\\.[0-9]+\\.mlp.*": 1},
    });
    std::fs::write(both.join("adapter_config.json"), config.to_string()).unwrap();

    let (adapter, parameters) = read_adapter("qwen3", &model, &both).unwrap();
    assert_eq!((adapter.config().rank, adapter.config().alpha), (2, 8.0));
    let up = "base_model.model.model.layers.1.mlp.up_proj";
    assert_eq!(parameters.get(&format!("{up}.lora_A.weight")).shape()[0], 5);

    // It is saved as it was loaded, every layer by its full name.
    let again = home.path().join("again");
    adapter.save(&again, "qwen3").unwrap();
    let text = std::fs::read_to_string(again.join("adapter_config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        config["rank_pattern"],
        serde_json::json!({"model.layers.1.mlp.up_proj": 5})
    );
    assert_eq!(
        config["alpha_pattern"],
        serde_json::json!({"model.layers.1.mlp.up_proj": 1})
    );
    assert!(
        config["target_modules"]
            .as_array()
            .unwrap()
            .contains(&"model.layers.1.mlp.up_proj".into())
    );
    let (again, _) = read_adapter("qwen3", &model, &again).unwrap();
    let ids = Expected::of("qwen3").ids("ids3");
    let read = |adapter| log_probs(&model, Some(adapter), &ids).to_vec().unwrap();
    assert_eq!(read(&again), read(&adapter));
}

/// PEFT stores the tables of the base with an adapter of the head.
#[test]
fn copies_of_the_base_are_accepted_and_other_tables_are_not() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("adapter");
    let model = load("qwen2");
    let config = LoraConfig {
        rank: 2,
        targets: Targets::Names(vec!["lm_head".into()]),
        ..LoraConfig::default()
    };
    let (adapter, _) = Adapter::new(&model, config, 7).unwrap();
    adapter.save(&dir, "qwen2").unwrap();
    let path = dir.join("adapter_model.safetensors");
    let (terms, base) = (
        std::fs::read(&path).unwrap(),
        std::fs::read(golden("qwen2").join("model.safetensors")).unwrap(),
    );
    let (terms, base) = (
        safetensors::SafeTensors::deserialize(&terms).unwrap(),
        safetensors::SafeTensors::deserialize(&base).unwrap(),
    );
    let table = base.tensor("model.embed_tokens.weight").unwrap();
    let with = |table: safetensors::tensor::TensorView| {
        let mut tensors = terms.tensors();
        for name in ["lm_head.base_layer.weight", "model.embed_tokens.weight"] {
            tensors.push((format!("base_model.model.{name}"), table.clone()));
        }
        std::fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
        read_adapter("qwen2", &model, &dir).map(|_| ())
    };
    with(table.clone()).unwrap();
    let mut other = table.data().to_vec();
    other[64 * 2 * 5 + 1] ^= 0x80; // the sign of the first number of row 5
    let other = safetensors::tensor::TensorView::new(table.dtype(), table.shape().to_vec(), &other);
    let error = with(other.unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("row 5 is not that of the base model"),
        "{error}"
    );
}
