//! Untrusted files: an error that names file and field or tensor comes at once, before a large allocation.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use lapwing_model::{
    GenerationRequest, KvArena, Model, ModelConfig, Precision, SamplingOptions, StoredAdapter,
    TextFiles,
};
use lapwing_tensor::check;
use lapwing_tensor::random::Random;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn damaged_weight_files_are_named() {
    let copy = GoldenCopy::of("qwen2");
    let whole = fs::read(copy.path(FILE)).unwrap();
    for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(copy.path(FILE), &whole[..length]).unwrap();
        assert!(
            copy.complaint().starts_with("model.safetensors: "),
            "{}",
            copy.complaint()
        );
    }
    let mut lying = whole.clone();
    lying[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(copy.path(FILE), lying).unwrap();
    assert!(
        copy.complaint()
            .starts_with("model.safetensors: not a safetensors file")
    );
    fs::write(
        copy.path(FILE),
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    )
    .unwrap();
    assert!(copy.complaint().contains("git lfs pull"));
    fs::remove_file(copy.path(FILE)).unwrap();
    assert_eq!(
        copy.complaint(),
        "DIR: no weights: neither model.safetensors nor model.safetensors.index.json"
    );
}

#[test]
fn tensors_that_are_missing_misshapen_or_not_numbers_are_named() {
    let norm = "model.layers.1.input_layernorm.weight";
    let missing = GoldenCopy::of("qwen2").edit_header(FILE, |header| {
        let tensor = header.as_object_mut().unwrap().remove(norm).unwrap();
        header["other"] = tensor;
    });
    assert_eq!(
        missing.complaint(),
        format!("model.safetensors: tensor {norm}: missing")
    );
    let misshapen =
        GoldenCopy::of("qwen2").edit_header(FILE, |header| header[norm]["shape"] = json!([8, 8]));
    let wanted = format!("model.safetensors: tensor {norm}: the shape is [8, 8], wanted [64]");
    assert_eq!(misshapen.complaint(), wanted);
    let integers =
        GoldenCopy::of("qwen2").edit_header(FILE, |header| header[norm]["dtype"] = json!("I16"));
    assert!(integers.complaint().contains("stored as I16"));
    let gate = "model.layers.0.mlp.gate_proj.weight";
    for (bytes, shown) in [([0xc0, 0x7f], "NaN"), ([0x80, 0x7f], "inf")] {
        let spoilt = GoldenCopy::of("qwen2")
            .edit_tensor(FILE, gate, |data| data[640..642].copy_from_slice(&bytes));
        let wanted = format!(
            "model.safetensors: tensor {gate}: holds {shown} in row 5; the checkpoint is damaged"
        );
        assert_eq!(spoilt.complaint(), wanted);
    }
}

#[test]
fn an_index_that_lies_is_named() {
    let index = "model.safetensors.index.json";
    let norm = "model.norm.weight";
    let map = |file: &'static str| {
        GoldenCopy::of("qwen2-sharded")
            .edit(index, |value| value["weight_map"][norm] = json!(file))
            .complaint()
    };
    for outside in [
        "../model-00005-of-00006.safetensors",
        "/etc/hostname",
        "sub/x.safetensors",
    ] {
        let wanted = format!(
            "{index}: weight_map.{norm}: \"{outside}\" is not the name of a file in this directory"
        );
        assert_eq!(map(outside), wanted);
    }
    assert!(map("gone.safetensors").starts_with("gone.safetensors: "));
    let elsewhere = map("model-00001-of-00006.safetensors");
    assert!(
        elsewhere.starts_with(&format!(
            "model-00001-of-00006.safetensors: tensor {norm}: "
        )),
        "{elsewhere}"
    );
    let unlisted = GoldenCopy::of("qwen2-sharded").edit(index, |value| {
        value["weight_map"].as_object_mut().unwrap().remove(norm);
    });
    assert_eq!(unlisted.complaint(), format!("DIR: tensor {norm}: missing"));
    let none = GoldenCopy::of("qwen2-sharded").edit(index, |value| *value = json!({}));
    assert_eq!(
        none.complaint(),
        format!("{index}: weight_map: missing, or not an object")
    );
}

#[test]
fn unsupported_features_are_named() {
    let cases: [(&str, Value, &str); 14] = [
        (
            "model_type",
            json!("mamba"),
            "\"mamba\" is not supported; supported are qwen2, qwen3 and llama",
        ),
        ("model_type", json!(null), "missing"),
        (
            "num_experts",
            json!(8),
            "mixtures of experts are not supported",
        ),
        (
            "quantization_config",
            json!({"bits": 4}),
            "quantised weights are not supported",
        ),
        (
            "hidden_act",
            json!("gelu"),
            "\"gelu\" is not supported, only silu",
        ),
        (
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "\"sliding_attention\" is not supported",
        ),
        (
            "hidden_size",
            json!(1e18),
            "is not an integer from 1 to 131072",
        ),
        ("hidden_size", json!(-64), "-64 is not an integer"),
        (
            "num_hidden_layers",
            json!(4_000_000_000u64),
            "4000000000 is not an integer from 1 to 1024",
        ),
        ("vocab_size", json!("many"), "\"many\" is not an integer"),
        ("num_attention_heads", json!(0), "0 is not an integer"),
        (
            "num_key_value_heads",
            json!(3),
            "3 does not divide num_attention_heads 4",
        ),
        (
            "head_dim",
            json!(15),
            "4 heads of 15; supported: a multiple of 4",
        ),
        ("rms_norm_eps", json!(0), "0 is not a number above 0"),
    ];
    for (field, value, problem) in cases {
        let complaint = GoldenCopy::of("qwen2")
            .edit("config.json", |config| config[field] = value)
            .complaint();
        assert!(
            complaint.starts_with(&format!("config.json: {field}: ")),
            "{complaint}"
        );
        assert!(complaint.contains(problem), "{complaint}");
    }
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6});
    let complaint = GoldenCopy::of("qwen2")
        .edit("config.json", |config| config["rope_parameters"] = yarn)
        .complaint();
    let wanted = "config.json: rope_parameters.rope_type: rope type \"yarn\" is not supported; \
                  supported are default, linear and llama3";
    assert_eq!(complaint, wanted);
    let windows = GoldenCopy::of("qwen3").edit("config.json", |config| {
        config["use_sliding_window"] = json!(true);
        config["sliding_window"] = json!(64);
        config["max_window_layers"] = json!(1);
    });
    assert_eq!(
        windows.complaint(),
        "config.json: use_sliding_window: sliding-window attention is not supported"
    );
}

#[test]
fn sizes_that_disagree_with_the_weights_are_found_before_anything_is_allocated() {
    let before = check::gpu().bytes_in_use();
    let lying = GoldenCopy::of("qwen2").edit("config.json", |config| {
        config["vocab_size"] = json!(4_000_000)
    });
    let wanted = "model.safetensors: tensor model.embed_tokens.weight: the shape is [384, 64], wanted [4000000, 64]";
    assert_eq!(lying.complaint(), wanted);
    // Other tests run at the same time; 4,000,000 rows would be a gigabyte.
    assert!(check::gpu().bytes_in_use() < before + (256 << 20));
}

#[test]
fn adapters_of_other_models_and_damaged_ones_are_named() {
    let model = load("qwen2");
    let complaint = |dir: &Path| match read_adapter("qwen2", &model, dir) {
        Ok(_) => panic!("loaded"),
        Err(error) => error
            .to_string()
            .replace(&format!("{}/", dir.display()), ""),
    };
    // The same names, but other sizes; one block more.
    let wider = complaint(&golden("llama").join("adapter"));
    let (file, module) = (
        "adapter_model.safetensors",
        "base_model.model.model.layers.0.mlp",
    );
    let wanted = format!(
        "{file}: tensor {module}.gate_proj.lora_B.weight: the shape is [96, 4], wanted [160, 4]"
    );
    assert_eq!(wider, wanted);
    let deeper = complaint(&golden("qwen2-sharded").join("adapter"));
    assert!(
        deeper.contains("layers.2.") && deeper.contains("adapter of another model?"),
        "{deeper}"
    );
    let changed = |change: &dyn Fn(&mut Value)| {
        let copy = GoldenCopy(tempfile::tempdir().unwrap());
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            fs::copy(golden("qwen2").join("adapter").join(file), copy.path(file)).unwrap();
        }
        let copy = copy.edit("adapter_config.json", change);
        complaint(copy.0.path())
    };
    let field =
        |field: &'static str, value: Value| changed(&move |config| config[field] = value.clone());
    assert!(
        field("peft_type", json!("IA3")).starts_with("adapter_config.json: peft_type: \"IA3\"")
    );
    assert!(field("use_dora", json!(true)).starts_with("adapter_config.json: use_dora: "));
    assert!(
        field("rank_pattern", json!({"q_proj": 2}))
            .contains("q_proj.lora_A.weight: the shape is [4, 64], wanted [2, 64]")
    );
    assert!(
        field("alpha_pattern", json!({"(": 2})).contains("alpha_pattern: target modules \"(\"")
    );
    for init in [
        "pissa",
        "PiSSA_niter_4",
        "olora",
        "corda",
        "loftq",
        "lora_ga",
        "next",
    ] {
        let wanted = format!("adapter_config.json: init_lora_weights: \"{init}\" is not supported");
        assert!(field("init_lora_weights", json!(init)).starts_with(&wanted));
    }
    assert!(field("init_lora_weights", json!(1)).contains("init_lora_weights: 1 is not supported"));
    // Initialisations that do not change the base are accepted: the next error is about another field.
    for init in [
        json!("gaussian"),
        json!("Eva"),
        json!("orthogonal"),
        json!(false),
        json!(null),
    ] {
        let other = changed(&|config| {
            config["init_lora_weights"] = init.clone();
            config["bias"] = json!("all");
        });
        assert!(other.contains("bias: only"), "{other}");
    }
    assert!(
        field("modules_to_save", json!(["lm_head"]))
            .starts_with("adapter_config.json: modules_to_save: not supported")
    );
    assert!(field("r", json!(0)).starts_with("adapter_config.json: r: 0 is not an integer"));
    assert!(field("r", json!(8)).contains("lora_A.weight: the shape is [4, "));
}

#[test]
fn text_files_of_other_models_are_named() {
    let copy = GoldenCopy::of("qwen2");
    let config = ModelConfig::read(copy.0.path()).unwrap();
    let mut small = config.clone();
    small.vocab = 100;
    let foreign = TextFiles::trusted(copy.0.path())
        .tokenizer(&small)
        .err()
        .unwrap()
        .to_string();
    assert!(foreign.contains(
        "tokenizer.json: token \"<|im_end|>\" has id 366, but the model's vocab_size is 100"
    ));
    let mut ends = config.clone();
    ends.eos = vec![383];
    let foreign = TextFiles::trusted(copy.0.path())
        .tokenizer(&ends)
        .err()
        .unwrap()
        .to_string();
    assert!(
        foreign.ends_with("config.json: eos_token_id: 383 is not a token of tokenizer.json; is it the tokenizer of another model?"),
        "{foreign}"
    );
    fs::write(copy.path("tokenizer.json"), "{}").unwrap();
    let empty = TextFiles::trusted(copy.0.path())
        .tokenizer(&config)
        .err()
        .unwrap()
        .to_string();
    assert!(empty.contains("tokenizer.json: not a tokenizer"), "{empty}");
    // Cut off anywhere, also in the last part, where the library would panic.
    let whole = fs::read_to_string(golden("qwen2").join("tokenizer.json")).unwrap();
    let decoder = whole.find("\"decoder\"").unwrap();
    for end in [1, 100, decoder + 20, whole.len() / 2, whole.len() - 2] {
        fs::write(copy.path("tokenizer.json"), &whole[..end]).unwrap();
        let cut = TextFiles::trusted(copy.0.path())
            .tokenizer(&config)
            .err()
            .unwrap()
            .to_string();
        assert!(cut.contains("tokenizer.json: not a tokenizer: "), "{cut}");
    }
    // The library panics at these normalisers, when it reads them or at the first use.
    for odd in [
        json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
    ] {
        let mut tokenizer: Value = serde_json::from_str(&whole).unwrap();
        tokenizer["normalizer"] = odd;
        fs::write(copy.path("tokenizer.json"), tokenizer.to_string()).unwrap();
        let read = TextFiles::trusted(copy.0.path()).tokenizer(&config);
        let error = read
            .and_then(|t| t.encode("hello"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("tokenizer.json: "), "{error}");
    }
    // With dropout a text has several encodings.
    let mut tokenizer: Value = serde_json::from_str(&whole).unwrap();
    for (dropout, refused) in [
        (json!(0.1), true),
        (json!(0.0), false),
        (json!(null), false),
    ] {
        tokenizer["model"]["dropout"] = dropout;
        fs::write(copy.path("tokenizer.json"), tokenizer.to_string()).unwrap();
        let read = TextFiles::trusted(copy.0.path()).tokenizer(&config);
        let told = read
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        let wanted = "tokenizer.json: model.dropout: 0.1 is not supported, only null";
        assert_eq!(told.contains(wanted), refused, "{told}");
    }
    fs::write(copy.path("tokenizer.json"), &whole).unwrap();
    let tokenizer = TextFiles::trusted(copy.0.path())
        .tokenizer(&config)
        .unwrap();
    let long = "go ".repeat((4 << 20) / 3 + 1);
    let error = tokenizer.encode(&long).unwrap_err().to_string();
    assert!(
        error.ends_with("tokenizer.json: cannot encode a text of 4194306 bytes; at most 4 MiB"),
        "{error}"
    );
    fs::write(copy.path("chat_template.jinja"), "{% for %}").unwrap();
    let broken = TextFiles::trusted(copy.0.path())
        .template()
        .err()
        .unwrap()
        .to_string();
    assert!(
        broken.contains("chat_template.jinja: chat template: line 1: syntax error"),
        "{broken}"
    );
    fs::remove_file(copy.path("chat_template.jinja")).unwrap();
    let none = TextFiles::trusted(copy.0.path())
        .template()
        .err()
        .unwrap()
        .to_string();
    assert!(none.contains("no chat template"), "{none}");
}

/// Every weight is finite, but the logits are not.
#[test]
fn logits_that_are_not_numbers_are_an_error() {
    let norm = "model.norm.weight";
    let huge = GoldenCopy::of("qwen2").edit_tensor(FILE, norm, |data| {
        for value in data[..128].as_chunks_mut::<2>().0 {
            *value = [0x7f, 0x7f];
        }
    });
    let model = Model::load(&check::gpu(), huge.0.path(), Precision::Auto).unwrap();
    let requests = [GenerationRequest {
        prompt: vec![1, 2, 3],
        key: 1,
    }];
    for top_k in [0, 5] {
        let sampling = SamplingOptions {
            top_k,
            max_new_tokens: 3,
            ..SamplingOptions::default()
        };
        let mut arena = KvArena::new(&model, 8, 1024);
        let drawn = replies_of(&model, None, &mut arena, &requests, &sampling);
        let error = drawn.unwrap_err().to_string();
        assert!(
            error.starts_with("the model's logits are not numbers"),
            "{error}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_waited_for() {
    let copy = GoldenCopy::of("qwen2");
    fs::remove_file(copy.path(FILE)).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(copy.path(FILE))
        .status();
    assert!(made.unwrap().success());
    assert_eq!(copy.complaint(), "model.safetensors: not a file");
}

/// Untrusted files, and the length of their headers.
const READ: [(&str, &str, usize); 6] = [
    ("llama", "config.json", usize::MAX),
    ("llama", "generation_config.json", usize::MAX),
    ("llama", FILE, 1500),
    ("qwen2-sharded", "model.safetensors.index.json", usize::MAX),
    ("llama/adapter", "adapter_config.json", usize::MAX),
    ("llama/adapter", "adapter_model.safetensors", 1500),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// With a few changed bytes in a header or a configuration, reading ends with a value or an error that names a file of
    /// this directory.
    #[test]
    fn mutated_headers_and_configs_never_crash(seed: u64, which in 0..READ.len()) {
        let (name, file, header) = READ[which];
        let copy = GoldenCopy::of(name);
        let mut bytes = fs::read(copy.path(file)).unwrap();
        let end = header.min(bytes.len());
        let mut random = Random::new(seed);
        for _ in 0..1 + seed % 4 {
            bytes[(random.next_u64() % end as u64) as usize] = random.next_u64() as u8;
        }
        fs::write(copy.path(file), bytes).unwrap();
        let start = Instant::now();
        let read = match name.ends_with("adapter") {
            true => {
                let config = ModelConfig::read(&golden("llama")).unwrap();
                StoredAdapter::read(&config, copy.0.path()).map(|_| ())
            }
            false => Model::load(&check::gpu(), copy.0.path(), Precision::Auto).map(|_| ()),
        };
        if let Err(error) = read {
            let here = copy.0.path().to_str().unwrap();
            prop_assert!(error.to_string().contains(here), "{}", error);
        }
        prop_assert!(start.elapsed() < Duration::from_secs(1));
    }
}
