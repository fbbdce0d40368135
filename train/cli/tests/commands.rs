//! What the commands do, on the built-in model.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::Value;

use crate::program::{lapwing, run, said};

#[test]
fn the_games_are_listed_with_their_options() {
    let directory = tempfile::tempdir().unwrap();
    let said = run(directory.path(), &["games"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_snapshot!("games_listed", said.out);
}

#[test]
fn the_adapters_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let said = run(directory.path(), &["adapters"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(
        said.out.matches("<- will be used").count(),
        1,
        "{}",
        said.out
    );
}

/// Whoever pipes into `head` does not want to hear of it.
#[test]
fn a_closed_pipe_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = lapwing(directory.path(), &["games"])
        .stdout(writer)
        .output()
        .unwrap();
    let said = said(directory.path(), output);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn a_person_plays() {
    let directory = tempfile::tempdir().unwrap();
    let map = "game.options.map=[\"SF\", \"HG\"]";
    let mut child = lapwing(
        directory.path(),
        &["play", "frozen-lake", "--human", "--set", map],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"jump\nright\nd\n")
        .unwrap();
    let said = said(directory.path(), child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let ending =
        "over after 2 turns: success, return 1\nin 1 game of this kind: mean return 1 (kept in DIR";
    assert!(said.out.contains(ending), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'), "no colours in a pipe");
}

/// A short run leaves what it promises, and what it leaves can be examined, watched and run again.
#[test]
fn a_run_from_its_config_to_its_adapter() {
    let directory = tempfile::tempdir().unwrap();
    let small = [
        "--set",
        "train.groups=1",
        "--set",
        "train.group_size=4",
        "--set",
        "train.learn=2",
        "--set",
        "eval.episodes=5",
        "--steps",
        "2",
    ];
    let train = run(directory.path(), &[&["train"], &small[..]].concat());
    assert_eq!(train.code, 0, "{}", train.err);
    for line in [
        "random player",
        "before training",
        "after training",
        "scripted player",
        "runs/frozen-lake-1/adapter",
    ] {
        assert!(train.out.contains(line), "{}", train.out);
    }
    assert!(train.err.contains("step 2/2"), "{}", train.err);

    let runs = directory.path().join("runs/frozen-lake-1");
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(directory.path().join(name)).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let metrics = lines("runs/frozen-lake-1/metrics.jsonl");
    let steps: Vec<&Value> = metrics
        .iter()
        .filter(|line| line["kind"] == "step")
        .collect();
    assert_eq!(steps.len(), 2);
    for step in steps {
        for key in [
            "step",
            "return_mean",
            "success_rate",
            "valid_action_rate",
            "entropy",
            "time",
            "reply_length_mean",
            "reply_cut_rate",
            "tokens_played",
            "tokens_computed",
            "seconds_rollout",
            "seconds_update",
        ] {
            assert!(step[key].is_number(), "{key}: {step}");
        }
        // There is one group: it was learned from, or not.
        for key in ["kl", "clip_fraction", "grad_norm", "loss", "lr"] {
            assert_eq!(
                step[key].is_number(),
                step["groups_skipped"] == 0,
                "{key}: {step}"
            );
        }
    }
    let last = metrics.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["step"], &last["episodes"]),
        (&"evaluation".into(), &Value::from(2), &Value::from(5))
    );
    assert!(runs.join("adapter/adapter_model.safetensors").exists());

    // The adapter plays as well outside of the run as it did at its end.
    let config = "runs/frozen-lake-1/config.toml";
    let eval = run(
        directory.path(),
        &[
            "eval",
            config,
            "--adapter",
            "runs/frozen-lake-1/adapter",
            "--json",
        ],
    );
    assert_eq!(eval.code, 0, "{}", eval.err);
    let eval: Value = serde_json::from_str(&eval.out).unwrap();
    for (key, value) in last.as_object().unwrap() {
        let is_of_play = !["kind", "step", "time", "seconds_evaluation"].contains(&&**key);
        assert!(!is_of_play || eval[key] == *value, "{key}: {eval}");
    }
    let mut yardsticks = metrics[0].clone();
    yardsticks.as_object_mut().unwrap().remove("kind");
    assert_eq!(eval["yardsticks"], yardsticks);

    let play = run(
        directory.path(),
        &["play", config, "--adapter", "runs/frozen-lake-1/adapter"],
    );
    assert_eq!(play.code, 0, "{}", play.err);
    assert!(
        play.out.contains("--- turn 1") && play.out.contains("over after"),
        "{}",
        play.out
    );

    // The config makes the same run, in a directory of its own.
    let again = run(directory.path(), &["train", config]);
    assert_eq!(again.code, 0, "{}", again.err);
    let without_times = |mut line: Value| {
        line.as_object_mut()
            .unwrap()
            .retain(|key, _| !key.starts_with("seconds") && key != "time");
        line
    };
    let again = lines("runs/frozen-lake-1-2/metrics.jsonl");
    let same = |lines: Vec<Value>| -> Vec<Value> { lines.into_iter().map(without_times).collect() };
    assert_eq!(same(metrics), same(again));
}

/// A game is played as its own preset says, and not as another game's.
#[test]
fn a_game_is_played_by_its_own_preset() {
    let directory = tempfile::tempdir().unwrap();
    let rules = |arguments: &[&str]| {
        let said = run(
            directory.path(),
            &[&["play"], arguments, &["--human"]].concat(),
        );
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        said.out
    };
    // Six cells a side and twenty turns, as the preset has it; ten, as the paper has it.
    let out = rules(&["snake"]);
    // Six cells with spaces between.
    let is_row = |line: &&str| line.len() == 11 && line.contains("_ _");
    assert_eq!(out.lines().filter(is_row).count(), 6, "{out}");
    assert!(rules(&["snake-paper"]).contains("The board is 10x10"));
    assert!(rules(&["frozen-lake", "--set", "game.options.size=3"]).contains("You have 20 turns"));
}

/// A machine that runs these tests can train; what a bug report needs is there, and the colours only where they show.
#[test]
fn the_doctor_finds_this_machine_well() {
    let directory = tempfile::tempdir().unwrap();
    let said = run(directory.path(), &["doctor", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    for key in ["name", "driver", "backend", "max_binding"] {
        assert!(!report["device"][key].is_null(), "{key}: {report}");
    }
    let findings = report["findings"].as_array().unwrap();
    let names: Vec<&str> = findings
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    let wanted = [
        "adapter",
        "driver",
        "kernels",
        "memory",
        "gradients",
        "log-probs",
        "adapter moves",
        "speed",
    ];
    assert_eq!(names, wanted);
    let of = |name: &str| &findings[names.iter().position(|n| *n == name).unwrap()]["figures"];
    assert!(
        of("kernels")
            .as_array()
            .unwrap()
            .iter()
            .all(|check| check["error"].is_number())
    );
    assert!(of("log-probs")["tokens"].as_u64().unwrap() > 10);
    assert!(of("gradients")["relative_error"].as_f64().unwrap() < 0.02);
    assert!(of("adapter moves")["tensors"].as_u64().unwrap() > 10);
    assert!(of("speed")["share"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_the_doctor_cannot_open_is_bad_with_a_cure() {
    let directory = tempfile::tempdir().unwrap();
    let said = run(directory.path(), &["doctor", "--adapter-index", "99"]);
    assert_eq!(said.code, 1);
    assert!(
        said.out
            .starts_with("BAD  adapter        there is no device 99, wanted one of 0 ("),
        "{}",
        said.out
    );
    assert!(said.out.contains("-> choose one of these"), "{}", said.out);
    assert_eq!(said.err, "error: this machine cannot train as it is\n");
    let said = run(directory.path(), &["doctor", "--model", "nowhere"]);
    assert_eq!(said.code, 1);
    assert!(
        said.out
            .contains("BAD  model          there is no model directory nowhere"),
        "{}",
        said.out
    );
}
