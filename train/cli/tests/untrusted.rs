//! Untrusted templates and tokenizers that exhaust memory, stack or time end with an error that names the file.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Ended, run};

/// Copies a golden checkpoint to `model`.
fn model(home: &Path) -> PathBuf {
    let (from, to) = (crate::support::golden("qwen2"), home.join("model"));
    fs::create_dir(&to).unwrap();
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        fs::copy(Path::new(&from).join(file), to.join(file)).unwrap();
    }
    to
}

/// Returns the only line of an error of the input.
fn refused(ended: Ended) -> String {
    assert_eq!((ended.code, &*ended.out), (2, ""), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    ended.err
}

#[test]
fn an_untrusted_template_ends_with_an_error() {
    let home = tempfile::tempdir().unwrap();
    let model = model(home.path());
    let with = |template: &str| {
        fs::write(model.join("chat_template.jinja"), template).unwrap();
        refused(run(home.path(), "eval frozen-lake-paper --model model"))
    };
    let itself = "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}";
    assert_eq!(
        with(itself),
        "error: model/chat_template.jinja: chat template: it nests too deeply\n"
    );
    let floods = "{% for i in range(60) %}{{ 'x'*1000000 }}{% endfor %}";
    assert_eq!(
        with(floods),
        "error: model/chat_template.jinja: chat template: the text is longer than 4 MiB\n"
    );
    let doubles = "{% set ns = namespace(s='x'*1000000) %}{% for i in range(30) %}\
                   {% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}";
    assert_eq!(
        with(doubles),
        "error: model/chat_template.jinja: chat template: it takes too much memory (it may have 2048 MiB)\n"
    );
}

#[test]
fn an_untrusted_tokenizer_ends_with_an_error() {
    let home = tempfile::tempdir().unwrap();
    let path = model(home.path()).join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let doubles = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": vec![doubles; 40]});
    fs::write(&path, tokenizer.to_string()).unwrap();
    let ended = run(home.path(), "score --model model --text aaaaaaaa");
    let ends = [
        "the tokenizer takes too much memory (it may have 2048 MiB)\n",
        "the tokenizer does not come to an end (stopped after 10 s)\n",
    ];
    let error = refused(ended);
    assert!(
        error.starts_with("error: model/tokenizer.json: "),
        "{error}"
    );
    assert!(ends.iter().any(|end| error.ends_with(end)), "{error}");
}
