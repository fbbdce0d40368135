//! Playing with a model behind an API, keeping the episodes, and imitating them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Said, lapwing, run, said};
use crate::stub::{Manner, Stub};

const SECRET: &str = "sk-a-secret-that-nobody-sees";

/// `lapwing play`, by a model behind this address.
fn by_api(directory: &Path, stub: &Stub, more: &[&str]) -> Said {
    let player = format!("openai:{}", stub.url);
    let arguments = [
        "play",
        "frozen-lake",
        "--player",
        &player,
        "--player-cache",
        "cache",
    ];
    let mut command = lapwing(directory, &[&arguments[..], more].concat());
    command.env("OPENAI_API_KEY", SECRET);
    let said = said(directory, command.output().unwrap());
    assert!(
        !said.out.contains(SECRET) && !said.err.contains(SECRET),
        "{said:?}"
    );
    said
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_model_behind_an_api_plays_and_is_paid_once() {
    let directory = tempfile::tempdir().unwrap();
    let busy = Manner::Status(429, "Retry-After: 0\r\n", "busy".to_owned());
    let stub = Stub::new(&[busy], Manner::Says("right", false));
    let named = ["--player-model", "some-model", "--episodes", "2"];
    let first = by_api(directory.path(), &stub, &named);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.out.contains("user: "), "{}", first.out);
    assert!(
        first.out.contains("\n> right\nright: reward"),
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

    let second = by_api(directory.path(), &stub, &named);
    assert_eq!((second.code, &second.out), (0, &first.out));
    assert_eq!(stub.asked().len(), 0);
    assert!(second.err.contains("API: 0 requests"), "{}", second.err);
}

/// Two at a time, and whatever can go wrong on the way.
#[test]
fn a_bad_line_is_lived_with() {
    let directory = tempfile::tempdir().unwrap();
    let bad = [Manner::HalfABody, Manner::Closes, Manner::Hangs];
    let stub = Stub::new(&bad, Manner::Says("right", false));
    let more = [
        "--player-model",
        "m",
        "--player-concurrency",
        "2",
        "--player-timeout",
        // More than a busy machine takes to answer.
        "4",
        "--episodes",
        "4",
    ];
    let said = by_api(directory.path(), &stub, &more);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("3 retries"), "{}", said.err);
    assert!(said.err.contains("failed: timed out x 1"), "{}", said.err);
    // One that was given up may still be at work.
    assert!((2..=3).contains(&stub.most_at_once()));
}

#[test]
fn what_an_api_cannot_do_is_told_with_what_it_cost() {
    let directory = tempfile::tempdir().unwrap();
    let refused = Manner::Status(401, "", format!("wrong key {SECRET}"));
    let stub = Stub::new(&[], refused);
    let said = by_api(directory.path(), &stub, &["--player-model", "m"]);
    assert_eq!((said.code, &*said.out), (1, ""));
    assert!(
        said.err.contains("is OPENAI_API_KEY right?"),
        "{}",
        said.err
    );
    assert!(said.err.contains("API: 1 requests"), "{}", said.err);

    let stub = Stub::new(&[], Manner::Says("left", false));
    let more = [
        "--player-model",
        "m",
        "--player-budget",
        "150",
        "--keep",
        "kept.jsonl",
    ];
    let said = by_api(directory.path(), &stub, &more);
    assert_eq!(said.code, 1);
    assert!(
        said.err
            .contains("the budget of 150 tokens is used up (200 used)"),
        "{}",
        said.err
    );
    assert!(
        said.err.contains("180 prompt tokens, 20 completion tokens"),
        "{}",
        said.err
    );
    assert!(!directory.path().join("kept.jsonl").exists());

    let unnamed = by_api(directory.path(), &stub, &[]);
    assert!(
        unnamed.err.contains("needs --player-model NAME"),
        "{}",
        unnamed.err
    );
    let nobody = run(directory.path(), &["play", "--player", "me"]);
    assert_eq!(nobody.code, 2);
    assert!(
        nobody.err.contains("wanted openai:URL, scripted or random"),
        "{}",
        nobody.err
    );
}

/// From the game's own player to an adapter that plays better than the base.
#[test]
fn kept_episodes_are_imitated() {
    let directory = tempfile::tempdir().unwrap();
    let keep = [
        "play",
        "frozen-lake",
        "--player",
        "scripted",
        "--episodes",
        "80",
        "--keep",
        "kept.jsonl",
    ];
    let said = run(directory.path(), &keep);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("80 episodes are kept in kept.jsonl."),
        "{}",
        said.out
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
    let again = run(directory.path(), &keep);
    assert_eq!(again.code, 1);
    assert!(
        again.err.contains("kept.jsonl is there already"),
        "{}",
        again.err
    );

    let imitate = [
        "pretrain",
        "--from",
        "kept.jsonl",
        "--out",
        "adapter",
        "--only-success",
    ];
    let said = run(directory.path(), &imitate);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.contains("held-out loss, nats a token: "),
        "{}",
        said.out
    );
    assert!(said.err.contains("step 27/27"), "{}", said.err);
    let success = |more: &[&str]| {
        let eval = ["eval", "frozen-lake", "--episodes", "60", "--json"];
        let said = run(directory.path(), &[&eval[..], more].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        let examined: Value = serde_json::from_str(&said.out).unwrap();
        examined["success_rate"].as_f64().unwrap()
    };
    let (before, after) = (success(&[]), success(&["--adapter", "adapter"]));
    assert!(after > before + 0.2, "{before} to {after}");

    let again = run(directory.path(), &imitate);
    assert!(
        again.err.contains("exists and is not empty"),
        "{}",
        again.err
    );
    fs::write(directory.path().join("none.jsonl"), "{\"step\": 1}\n").unwrap();
    let wrong = run(
        directory.path(),
        &["pretrain", "--from", "none.jsonl", "--out", "other"],
    );
    assert_eq!(wrong.code, 1);
    assert!(
        wrong.err.contains("none.jsonl: line 1 is no episode"),
        "{}",
        wrong.err
    );
    assert!(!directory.path().join("other").exists());
}

/// In whatever form the replies are asked for.
#[test]
fn scripted_replies_are_kept_in_the_form_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let keep = [
        "play",
        "snake",
        "--player",
        "scripted",
        "--set",
        "policy.reply=think",
        "--keep",
        "kept.jsonl",
    ];
    let said = run(directory.path(), &keep);
    assert_eq!(said.code, 0, "{}", said.err);
    let turn = lines(&directory.path().join("kept.jsonl"))[0]["turns"][0].clone();
    let (reply, action) = (
        turn["reply"].as_str().unwrap(),
        turn["action"].as_str().unwrap(),
    );
    assert_eq!(reply, format!("<think></think><action>{action}</action>"));
}
