//! Models of the Hugging Face hub, by name. The tests of lapwing-model cover downloads.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use insta::assert_snapshot;

use crate::support::{Ended, copy, fails, golden, lapwing};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Makes a cache with one model, in the layout of Hugging Face's libraries.
fn fill(cache: &Path) {
    let repository = cache.join("models--owner--name");
    let snapshot = repository.join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), COMMIT).unwrap();
    copy(&golden("qwen2"), &snapshot);
}

#[test]
fn a_model_of_the_cache_is_used_by_its_name() {
    let home = tempfile::tempdir().unwrap();
    fill(&home.path().join("hf/hub"));
    fs::write(home.path().join("ids.json"), "[1, 2, 3, 4]").unwrap();
    let score = |model: &str| {
        let line = format!("score --json --ids ids.json --model '{model}'");
        let mut command = lapwing(home.path(), &line);
        let ended = Ended::new(home.path(), command.env("HF_HOME", "hf").output().unwrap());
        assert_eq!(ended.code, 0, "{}", ended.err);
        (ended.out, ended.err)
    };
    let (named, told) = score("owner/name");
    assert!(
        told.contains(&format!("model owner/name@{COMMIT}: qwen2")),
        "{told}"
    );
    assert_eq!(named, score(&golden("qwen2")).0);
    assert_eq!(named, score(&format!("owner/name@{COMMIT}")).0);
    // A directory of that name comes first.
    fs::create_dir_all(home.path().join("owner/name")).unwrap();
    assert_snapshot!(fails(home.path(), "score --ids ids.json --model owner/name"), @"error: owner/name/config.json: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn a_run_notes_the_commit() {
    let home = tempfile::tempdir().unwrap();
    fill(&home.path().join("cache"));
    let train = |config: &str, more: &str| {
        let few = "--steps 0 --set eval.episodes=1 --set policy.max_new_tokens=4 \
            --set train.group_size=2 --set train.learn=2";
        let mut command = lapwing(home.path(), &format!("train {config} {few} {more}"));
        let output = command.env("HF_HUB_CACHE", "cache").output().unwrap();
        let ended = Ended::new(home.path(), output);
        assert_eq!(ended.code, 0, "{}", ended.err);
    };
    let repo = |run: &str| {
        let text = fs::read_to_string(home.path().join(run).join("config.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        table["model"]["repo"].as_str().unwrap().to_owned()
    };
    train("frozen-lake", "--model owner/name --out one");
    assert_eq!(repo("one"), format!("owner/name@{COMMIT}"));
    let adapter = fs::read_to_string(home.path().join("one/adapter/adapter_config.json"));
    let adapter: serde_json::Value = serde_json::from_str(&adapter.unwrap()).unwrap();
    assert_eq!(adapter["base_model_name_or_path"], "owner/name");
    // The branch moves to a commit that is not in the cache.
    let moved = home.path().join("cache/models--owner--name/refs/main");
    fs::write(moved, "f".repeat(40)).unwrap();
    train("one/config.toml", "--out two");
    assert_eq!(repo("two"), repo("one"));
}

#[test]
fn an_unavailable_model_is_named_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let told = |arguments: &str| {
        let mut command = lapwing(home.path(), arguments);
        let output = command.env("HF_HUB_CACHE", "cache").output().unwrap();
        let Ended { code, out, err } = Ended::new(home.path(), output);
        assert_eq!(out, "");
        // A note about the preset comes before.
        (code, err.lines().last().unwrap_or_default().to_owned())
    };
    let (code, error) = told("score --text a --model owner/name");
    assert_eq!(code, 1);
    assert_snapshot!(error, @"error: owner/name: it is not in the cache cache, and HF_HUB_OFFLINE is set: unset it once, or name a directory");
    let (code, error) = told("eval --model name");
    assert_eq!(code, 2);
    assert_snapshot!(error, @"error: there is no model directory name: wanted one with config.json, *.safetensors and tokenizer.json, or a GGUF file (--model, model.dir); a repository of the Hugging Face hub is named OWNER/name");
    let (code, error) = told("eval --set model.dir=owner/name");
    assert_eq!(code, 2);
    assert_snapshot!(error, @"error: there is no model directory owner/name: wanted one with config.json, *.safetensors and tokenizer.json, or a GGUF file (--model, model.dir); as a repository of the Hugging Face hub: --model owner/name@main");
    let (code, error) = told("eval --set model.repo=a/b --set model.dir=b");
    assert_eq!(code, 2);
    assert_snapshot!(error, @r#"error: key `model.repo`: found "a/b" (--set), wanted none beside model.dir, which is "b" (--set); for example: --set model.repo="#);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_download_that_stalls() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = lapwing(home.path(), "train frozen-lake --model owner/name");
    command
        .env(
            "HF_ENDPOINT",
            format!("http://{}", listener.local_addr().unwrap()),
        )
        .env("HF_HOME", "hf")
        .env("HF_HUB_OFFLINE", "0")
        .stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let _stalled = listener.accept().unwrap();
    let mut kill = std::process::Command::new("kill");
    kill.args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!home.path().join("runs").exists());
}

#[test]
fn the_environment_sets_the_hub_and_the_token() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let hub = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines
            .map(Result::unwrap)
            .take_while(|line| !line.is_empty())
            .collect();
        let answer = "HTTP/1.1 401 X\r\nConnection: close\r\nContent-Length: 0\r\nX-Error-Code: RepoNotFound\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        head
    });
    let mut command = lapwing(home.path(), "score --text a --model owner/name@v1");
    command
        .env("HF_ENDPOINT", &endpoint)
        .env("HF_HOME", "hf")
        .env("HF_TOKEN", "hf_secret")
        .env("HF_HUB_OFFLINE", "0");
    let ended = Ended::new(home.path(), command.output().unwrap());
    let head = hub.join().unwrap();
    assert_eq!(
        head[0],
        "GET /api/models/owner/name/revision/v1?blobs=true HTTP/1.1"
    );
    let token = "authorization: bearer hf_secret";
    assert!(
        head.iter().any(|line| line.to_lowercase() == token),
        "{head:?}"
    );
    assert_eq!(ended.code, 1);
    assert_snapshot!(ended.err.replace(&endpoint, "HUB"), @"error: owner/name@v1: there is no directory of that name, and no repository at HUB that may be read: check the name, or set HF_TOKEN if it is private");
}
