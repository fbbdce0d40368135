//! score, generate and merge on golden checkpoints.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::{Ended, copy, golden, json as json_of, run};

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

/// Writes the tokens `ids3` of a golden checkpoint to a file, and returns them with PEFT's log-probabilities with an adapter.
fn expected(directory: &Path, name: &str) -> (Vec<u32>, Vec<f32>) {
    let bytes = fs::read(Path::new(&golden(name)).join("expected.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let words = |tensor: &str| {
        file.tensor(tensor)
            .unwrap()
            .data()
            .as_chunks::<4>()
            .0
            .to_vec()
    };
    let ids: Vec<u32> = words("ids3").into_iter().map(u32::from_le_bytes).collect();
    fs::write(directory.join("ids.json"), json!(ids).to_string()).unwrap();
    (
        ids,
        words("lora.logprobs")
            .into_iter()
            .map(f32::from_le_bytes)
            .collect(),
    )
}

#[test]
fn tokens_are_scored_as_their_library_scores_them() {
    let home = tempfile::tempdir().unwrap();
    for name in ["qwen2", "qwen2-sharded", "qwen3", "llama"] {
        let (ids, wanted) = expected(home.path(), name);
        let (model, adapter) = (golden(name), golden(&format!("{name}/adapter")));
        let line = format!("score --model '{model}' --adapter '{adapter}' --ids ids.json --json");
        let scored = json_of(home.path(), &line);
        assert_eq!(scored["ids"], json!(ids));
        let got = numbers(&scored["logprobs"]);
        assert_eq!(got.len(), ids.len() - 1);
        for (got, wanted) in got.iter().zip(wanted) {
            assert!(
                (got - f64::from(wanted)).abs() <= 1e-3,
                "{name}: {got} for {wanted}"
            );
        }
    }
}

#[test]
fn a_text_is_scored_token_by_token() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), "score --text 'go left or right'");
    assert_eq!(ended.code, 0);
    // The memory is ample.
    assert_eq!(
        ended.err,
        "model lapwing-base-2: qwen2, 255,296 parameters, 29 matrices in f16\n"
    );
    // The numbers depend on the device, and are those of --json.
    let scored = json_of(home.path(), "score --text 'go left or right' --json");
    let mut told = ended.out.clone();
    for number in numbers(&scored["logprobs"]) {
        let shown = format!("{number:.4}");
        assert!(told.contains(&shown), "{shown} in {}", ended.out);
        told = told.replacen(&format!("{shown:>9}"), "   NUMBER", 1);
    }
    let (table, sum) = told.split_once("sum ").unwrap();
    assert_snapshot!(table);
    let scores = numbers(&scored["logprobs"]);
    let count = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let words: Vec<&str> = sum
        .trim_end()
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let [sum, "mean", told_mean, "perplexity", perplexity] = words[..] else {
        panic!("{sum}")
    };
    for (told, wanted) in [
        (sum, count * mean),
        (told_mean, mean),
        (perplexity, (-mean).exp()),
    ] {
        // Four decimals of numbers with seven digits.
        let told: f64 = told.parse().unwrap();
        assert!(
            (told - wanted).abs() < 1e-4 + 1e-6 * wanted.abs(),
            "{told} for {wanted}"
        );
    }
    // More rows than are computed at once.
    let ids: Vec<u32> = (0..1500).map(|i| i % 300).collect();
    fs::write(home.path().join("ids.json"), json!(ids).to_string()).unwrap();
    let long = json_of(home.path(), "score --ids ids.json --json");
    fs::write(home.path().join("ids.json"), json!(ids[..40]).to_string()).unwrap();
    let short = json_of(home.path(), "score --ids ids.json --json");
    let (long, short) = (numbers(&long["logprobs"]), numbers(&short["logprobs"]));
    assert_eq!(long.len(), 1499);
    assert_eq!(long[..39], short[..]);
}

#[test]
fn a_text_is_continued() {
    let home = tempfile::tempdir().unwrap();
    let model = golden("qwen2");
    let generate = |more: &str| {
        let line = format!("generate --model '{model}' --max-new-tokens 12 {more}");
        run(home.path(), &line)
    };
    let ids = |ended: Ended| -> Value {
        assert_eq!(ended.code, 0, "{}", ended.err);
        serde_json::from_str::<Value>(&ended.out).unwrap()["ids"].clone()
    };
    let greedy = ids(generate("--prompt go --greedy --json"));
    assert_eq!(greedy.as_array().unwrap().len(), 12);
    // One likely token, a tiny probability, temperature 0: all are greedy.
    for cut in ["--top-k 1", "--top-p 0.0001", "--temperature 0"] {
        let line = format!("--prompt go --json {cut}");
        assert_eq!(ids(generate(&line)), greedy, "{cut}");
    }
    let drawn = |seed: u32| {
        let line = format!("--prompt go --json --temperature 2 --seed {seed}");
        ids(generate(&line))
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));

    // A conversation is continued like the text of its template.
    let messages =
        json!([{"role": "system", "content": "Play."}, {"role": "user", "content": "go"}]);
    fs::write(home.path().join("chat.json"), messages.to_string()).unwrap();
    let replied = ids(generate("--chat chat.json --greedy --json"));
    let text = "<|im_start|>system\nPlay.<|im_end|>\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(
        ids(generate(&format!("--prompt '{text}' --greedy --json"))),
        replied
    );
    let object = json!({"messages": messages, "enable_thinking": false});
    fs::write(home.path().join("chat.json"), object.to_string()).unwrap();
    assert_eq!(ids(generate("--chat chat.json --greedy --json")), replied);
}

#[test]
fn a_merged_model_scores_as_model_and_adapter() {
    let home = tempfile::tempdir().unwrap();
    let (model, adapter) = (golden("qwen2-sharded"), golden("qwen2-sharded/adapter"));
    let line = format!("merge --model '{model}' --adapter '{adapter}' --out merged");
    let ended = run(home.path(), &line);
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (0, "The model is in merged.\n"),
        "{}",
        ended.err
    );
    let (_, wanted) = expected(home.path(), "qwen2-sharded");
    let scored = json_of(home.path(), "score --model merged --ids ids.json --json");
    for (got, wanted) in numbers(&scored["logprobs"]).iter().zip(wanted) {
        assert!(
            (got - f64::from(wanted)).abs() <= 1e-3,
            "{got} for {wanted}"
        );
    }
    let again = run(home.path(), &line);
    assert_eq!(again.code, 2);
    assert_snapshot!(again.err, @"error: merged exists and is not empty: choose another place with --out");
}

#[test]
fn a_model_merged_to_a_gguf_file_scores_as_model_and_adapter() {
    let home = tempfile::tempdir().unwrap();
    let (model, adapter) = (golden("qwen3"), golden("qwen3/adapter"));
    let (_, wanted) = expected(home.path(), "qwen3");
    let merge = format!("merge --model '{model}' --adapter '{adapter}' --format gguf");
    for (kind, out, tolerance) in [("f16", "half.gguf", 1e-2), ("q8_0", "small.gguf", 0.1)] {
        let ended = run(home.path(), &format!("{merge} --type {kind} --out {out}"));
        assert_eq!(ended.code, 0, "{}", ended.err);
        let line = format!("score --model {out} --ids ids.json --json");
        let scored = json_of(home.path(), &line);
        for (got, wanted) in numbers(&scored["logprobs"]).iter().zip(&wanted) {
            let wanted = f64::from(*wanted);
            assert!(
                (got - wanted).abs() <= tolerance * wanted.abs().max(1.0),
                "{got} for {wanted}"
            );
        }
    }
    let size = |name: &str| fs::metadata(home.path().join(name)).unwrap().len();
    assert!(size("small.gguf") < size("half.gguf"));
    // With a small vocabulary it gets the preset's replies of one word, as a model of `lapwing pretrain` does.
    let values = run(home.path(), "config frozen-lake --model small.gguf");
    assert!(values.out.contains("reply = \"word\""), "{}", values.out);
    let again = run(home.path(), &format!("{merge} --out half.gguf"));
    assert_eq!(again.code, 2);
    assert_snapshot!(again.err, @"error: half.gguf exists: choose another place with --out");
}

/// The tokenizer of one directory with the weights of another, which has none; and both in the merged model.
#[test]
fn another_tokenizer_is_used_and_merged() {
    let home = tempfile::tempdir().unwrap();
    let (bare, other) = (home.path().join("bare"), golden("qwen2"));
    fs::create_dir(&bare).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(Path::new(&other).join(name), bare.join(name)).unwrap();
    }
    let ids = |model: &str| {
        let line = format!("score --text 'a b c' --json --model {model}");
        json_of(home.path(), &line)["ids"].clone()
    };
    let failed = run(home.path(), "score --text a --model bare");
    assert!(failed.err.contains("tokenizer.json"), "{}", failed.err);
    let wanted = ids(&format!("'{other}'"));
    assert!(wanted.as_array().unwrap().len() > 2, "{wanted}");
    assert_eq!(ids(&format!("bare --tokenizer '{other}'")), wanted);
    let adapter = golden("qwen2/adapter");
    let merge = format!("merge --model bare --tokenizer '{other}' --adapter '{adapter}'");
    for (format, out) in [("hf", "merged"), ("gguf", "merged.gguf")] {
        let line = format!("{merge} --format {format} --out {out}");
        let ended = run(home.path(), &line);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert_eq!(ids(out), wanted);
    }
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let refused = |content: &str, line: &str| {
        fs::write(home.path().join("in.json"), content).unwrap();
        let ended = run(home.path(), line);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{}", ended.err);
        ended.err
    };
    // Even if only token ids are needed.
    let foreign = home.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(Path::new(&golden("llama")).join(file), foreign.join(file)).unwrap();
    }
    fs::write(home.path().join("in.json"), "[1, 2]").unwrap();
    let score = "score --model foreign --ids in.json --json";
    assert_eq!(run(home.path(), score).code, 0, "without a tokenizer");
    let tokenizer = fs::read(Path::new(&golden("qwen3")).join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&tokenizer).unwrap();
    tokenizer["model"]["vocab"]["hello"] = json!(151_645);
    fs::write(foreign.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    assert_snapshot!(refused("[1, 2]", score), @r#"error: foreign/tokenizer.json: token "hello" has id 151645, but the model's vocab_size is 384; is it the tokenizer of another model?"#);
}

/// They come from the file of a conversation, or from the config of a run.
#[test]
fn variables_reach_the_template() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("model");
    copy(&golden("qwen2"), &model);
    let template = "{{ raise_exception('mood is ' ~ mood) if mood is defined else 'go' }}";
    fs::write(model.join("chat_template.jinja"), template).unwrap();
    let messages = json!([{"role": "user", "content": "go"}]);
    let generate = |conversation: Value| {
        fs::write(home.path().join("chat.json"), conversation.to_string()).unwrap();
        let line = "generate --model model --chat chat.json --max-new-tokens 1";
        run(home.path(), line)
    };
    assert_eq!(generate(messages.clone()).code, 0);
    let told = generate(json!({"messages": messages, "mood": "good"})).err;
    assert!(
        told.ends_with("invalid operation: mood is good\n"),
        "{told}"
    );
    let line = "eval --model model --set policy.chat_template_kwargs.mood=bad";
    let told = run(home.path(), line).err;
    assert!(told.ends_with("invalid operation: mood is bad\n"), "{told}");
}
