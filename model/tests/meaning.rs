//! Configs with redundant, partial or missing fields against transformers, and the precision of weights.

use std::fs;

use lapwing_model::{Model, ModelConfig, Precision, Rope, RopeScaling};
use lapwing_tensor::check;
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn a_window_that_no_layer_uses_is_no_reason_to_refuse() {
    let unused = GoldenCopy::of("qwen3").edit("config.json", |config| {
        config["use_sliding_window"] = json!(true);
        config["sliding_window"] = json!(64);
        config["max_window_layers"] = json!(2);
    });
    assert!(ModelConfig::read(unused.0.path()).is_ok());
}

#[test]
fn values_beyond_f16_keep_their_matrix_in_bf16() {
    let gate = "model.layers.0.mlp.gate_proj.weight";
    let large = GoldenCopy::of("qwen2")
        .edit_tensor(FILE, gate, |data| data[..2].copy_from_slice(&[0x80, 0x48]));
    let model = Model::load(&check::gpu(), large.0.path(), Precision::Auto).unwrap();
    assert_eq!(model.report().out_of_f16_range, [gate]);
    assert_eq!(model.report().matrices, [0, 14, 1, 0, 0, 0]);
}

#[test]
fn ambiguous_configs_are_read_as_in_transformers() {
    let read = |name: &str, change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let copy = GoldenCopy::of(name);
        fs::remove_file(copy.path("generation_config.json")).unwrap();
        let copy = copy.edit("config.json", |config| {
            change(config.as_object_mut().unwrap())
        });
        ModelConfig::read(copy.0.path()).map_err(|e| e.to_string())
    };
    // rope_scaling takes precedence over rope_parameters, theta included; an empty one is ignored.
    let twice = read("qwen2", &|config| {
        config.remove("rope_theta");
        config.insert(
            "rope_parameters".into(),
            json!({"rope_type": "default", "rope_theta": 1e6}),
        );
        config.insert(
            "rope_scaling".into(),
            json!({"rope_type": "linear", "factor": 2.0}),
        );
    });
    let linear = Rope {
        theta: 10_000.0,
        scaling: RopeScaling::Linear { factor: 2.0 },
    };
    assert_eq!(twice.unwrap().rope, linear);
    let empty = read("qwen2", &|config| {
        config.insert("rope_theta".into(), json!(10_000.0));
        config.insert("rope_parameters".into(), json!({}));
        config.insert(
            "rope_scaling".into(),
            json!({"type": "linear", "factor": 2.0}),
        );
    });
    assert_eq!(empty.unwrap().rope, linear);
    // An enabled window without a size is one of 4096; null is none.
    let window = |value: Option<Value>| {
        read("qwen3", &move |config| {
            config.remove("layer_types");
            config.insert("use_sliding_window".into(), json!(true));
            config.insert("max_window_layers".into(), json!(1));
            config.remove("sliding_window");
            config.extend(
                value
                    .clone()
                    .map(|value| ("sliding_window".to_owned(), value)),
            );
        })
    };
    assert!(
        window(None)
            .unwrap_err()
            .contains("sliding-window attention is not supported")
    );
    assert!(window(Some(json!(64))).is_err());
    assert!(window(Some(Value::Null)).is_ok());
    let without =
        |name: &str, field: &'static str| read(name, &|config| drop(config.remove(field))).unwrap();
    assert_eq!(
        without("qwen2", "max_position_embeddings").max_positions,
        32_768
    );
    assert_eq!(
        without("llama", "max_position_embeddings").max_positions,
        2048
    );
    assert_eq!(without("llama", "eos_token_id").eos, [2]);
    assert_eq!(without("qwen2", "eos_token_id").eos, [0; 0]);
    let null = read("qwen2", &|config| {
        drop(config.insert("num_key_value_heads".into(), Value::Null))
    });
    let named = null.map(|config| config.kv_heads);
    assert_eq!(named, Ok(load("qwen2").config().heads));
}

/// transformers 5 does not tie a head that is stored with other values, whatever the config says.
#[test]
fn a_tied_head_that_is_stored_is_tied_only_if_it_is_the_same() {
    for differs in [false, true] {
        let copy = GoldenCopy::of("qwen2");
        let (mut header, mut data) = split(&copy.path(FILE));
        let table = header["model.embed_tokens.weight"].clone();
        let offsets: Vec<usize> = serde_json::from_value(table["data_offsets"].clone()).unwrap();
        let mut head = data[offsets[0]..offsets[1]].to_vec();
        if differs {
            head[1] ^= 0x80;
        }
        let place = [data.len(), data.len() + head.len()];
        data.extend(head);
        header["lm_head.weight"] =
            json!({"dtype": table["dtype"], "shape": table["shape"], "data_offsets": place});
        join(&copy.path(FILE), &header, &data);
        let model = Model::load(&check::gpu(), copy.0.path(), Precision::Auto).unwrap();
        assert_eq!(model.config().tied, !differs);
        assert_eq!(model.report().ignored, [""; 0]);
    }
}

#[test]
fn rows_too_small_for_f16_keep_their_matrix_in_bf16() {
    let gate = "model.layers.0.mlp.gate_proj.weight";
    // Row 3 becomes 2^-30 throughout: nothing in f16.
    let small = GoldenCopy::of("qwen2").edit_tensor(FILE, gate, |data| {
        let tiny = 2f32.powi(-30).to_bits() >> 16;
        for value in data[3 * 128..4 * 128].as_chunks_mut::<2>().0 {
            *value = (tiny as u16).to_le_bytes();
        }
    });
    let model = Model::load(&check::gpu(), small.0.path(), Precision::Auto).unwrap();
    assert_eq!(model.report().out_of_f16_range, [gate]);
}
