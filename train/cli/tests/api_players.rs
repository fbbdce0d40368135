//! Playing with a model behind an API, keeping the episodes, and imitating them.

use std::fs;
use std::path::Path;

use crate::stub::{Stub, StubResponse};
use crate::support::{Ended, json, lapwing, lines, succeeds};

const SECRET: &str = "sk-a-secret-that-nobody-sees";

/// `lapwing play`, by a model behind this address.
fn by_api(directory: &Path, stub: &Stub, more: &str) -> Ended {
    let player = format!("openai:{}", stub.url);
    let line = format!("play frozen-lake --player {player} --player-cache cache {more}");
    let mut command = lapwing(directory, &line);
    command.env("OPENAI_API_KEY", SECRET);
    let ended = Ended::new(directory, command.output().unwrap());
    assert!(
        !ended.out.contains(SECRET) && !ended.err.contains(SECRET),
        "{ended:?}"
    );
    ended
}

#[test]
fn replies_of_an_api_are_cached() {
    let directory = tempfile::tempdir().unwrap();
    let busy = StubResponse::Status(429, "Retry-After: 0\r\n", "busy".to_owned());
    let stub = Stub::new(&[busy], StubResponse::Says("<action>right</action>", false));
    let named = "--player-model some-model --episodes 2";
    let first = by_api(directory.path(), &stub, named);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.out.contains("user: "), "{}", first.out);
    assert!(
        first
            .out
            .contains("\n> <action>right</action>\nright: reward"),
        "{}",
        first.out
    );
    assert!(first.err.contains("1 retries"), "{}", first.err);
    assert!(
        first.err.contains("failed: status 429 x 1"),
        "{}",
        first.err
    );
    assert!(
        first
            .err
            .contains("the preset frozen-lake is for the built-in model"),
        "{}",
        first.err
    );
    let asked = stub.asked();
    assert_eq!(asked[0].authorization, Some(format!("Bearer {SECRET}")));
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert_eq!(asked[0].body["model"], "some-model");

    let second = by_api(directory.path(), &stub, named);
    assert_eq!((second.code, &second.out), (0, &first.out));
    assert_eq!(stub.asked().len(), 0);
    assert!(second.err.contains("API: 0 requests"), "{}", second.err);
}

/// Two requests at a time, with several kinds of failure.
#[test]
fn failed_requests_are_retried() {
    let directory = tempfile::tempdir().unwrap();
    let bad = [
        StubResponse::HalfABody,
        StubResponse::Closes,
        StubResponse::Hangs,
    ];
    let stub = Stub::new(&bad, StubResponse::Says("right", false));
    // A busy machine answers within this time-out.
    let more = "--player-model m --player-concurrency 2 --player-timeout 4 --episodes 4";
    let ended = by_api(directory.path(), &stub, more);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("3 retries"), "{}", ended.err);
    assert!(ended.err.contains("failed: timed out x 1"), "{}", ended.err);
    // One that timed out may still be in progress.
    assert!((2..=3).contains(&stub.most_at_once()));
}

#[test]
fn an_error_of_an_api_comes_with_its_cost() {
    let directory = tempfile::tempdir().unwrap();
    let refused = StubResponse::Status(401, "", format!("wrong key {SECRET}"));
    let stub = Stub::new(&[], refused);
    let ended = by_api(directory.path(), &stub, "--player-model m");
    assert_eq!((ended.code, &*ended.out), (1, ""));
    assert!(
        ended.err.contains("is OPENAI_API_KEY right?"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("API: 1 requests"), "{}", ended.err);

    let stub = Stub::new(&[], StubResponse::Says("left", false));
    let more = "--player-model m --player-budget 150 --keep kept.jsonl";
    let ended = by_api(directory.path(), &stub, more);
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .err
            .contains("the budget of 150 tokens is used up (200 used)"),
        "{}",
        ended.err
    );
    assert!(
        ended
            .err
            .contains("180 prompt tokens, 20 completion tokens"),
        "{}",
        ended.err
    );
    assert!(!directory.path().join("kept.jsonl").exists());
}

/// The adapter plays better than the base.
#[test]
fn kept_episodes_are_imitated() {
    let directory = tempfile::tempdir().unwrap();
    let keep = "play frozen-lake --player scripted --episodes 80 --keep kept.jsonl";
    let ended = succeeds(directory.path(), keep);
    assert!(
        ended.out.contains("Kept 80 episodes in kept.jsonl."),
        "{}",
        ended.out
    );
    let kept = lines(&directory.path().join("kept.jsonl"));
    assert_eq!(kept.len(), 80);
    let turn = &kept[0]["turns"][0];
    assert_eq!(turn["messages"][0]["role"], "system");
    assert_eq!(turn["reply"], turn["action"]);
    assert_eq!(kept[0]["purpose"], "training");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = fs::metadata(directory.path().join("kept.jsonl")).unwrap();
        let made = directory.path().join("made");
        fs::write(&made, "").unwrap();
        let usual = fs::metadata(made).unwrap().permissions().mode();
        assert_eq!(file.permissions().mode(), usual);
    }

    let imitate = "pretrain --from kept.jsonl --out adapter --only-success";
    let ended = succeeds(directory.path(), imitate);
    assert!(
        ended.out.contains("held-out loss, nats a token: "),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("step 27/27"), "{}", ended.err);
    let success = |more: &str| {
        let line = format!("eval frozen-lake --episodes 60 --json {more}");
        let scores = json(directory.path(), &line);
        scores["success_rate"].as_f64().unwrap()
    };
    let (before, after) = (success(""), success("--adapter adapter"));
    assert!(after > before + 0.2, "{before} to {after}");
}

#[test]
fn scripted_replies_are_kept_in_the_form_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let keep = "play snake --player scripted --set policy.reply=think --keep kept.jsonl";
    succeeds(directory.path(), keep);
    let turn = lines(&directory.path().join("kept.jsonl"))[0]["turns"][0].clone();
    let (reply, action) = (
        turn["reply"].as_str().unwrap(),
        turn["action"].as_str().unwrap(),
    );
    assert_eq!(reply, format!("<think></think><action>{action}</action>"));
}
