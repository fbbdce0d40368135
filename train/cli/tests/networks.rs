//! Runs of learners that read no words, from the command line.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::program::{Said, run};

/// Two steps of a small network, in a directory called net.
fn trained(home: &Path, learner: &str) -> Said {
    let preset = format!("frozen-lake-{learner}");
    let small = [
        "train",
        &*preset,
        "--steps",
        "2",
        "--out",
        "net",
        "--set",
        "value.hidden=[8]",
        "--set",
        "value.episodes=4",
        "--set",
        "dqn.start=1",
        "--set",
        "dqn.updates=2",
        "--set",
        "eval.episodes=5",
        "--tensorboard",
    ];
    let small: Vec<&str> = match learner {
        // What it does not read is told, and this test wants nothing told.
        "pqn" => small[..10].iter().chain(&small[14..]).copied().collect(),
        _ => small.to_vec(),
    };
    run(home, &small)
}

fn lines(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_network_is_trained_examined_and_played_like_an_adapter() {
    for learner in ["dqn", "pqn"] {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let said = trained(home, learner);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(
            said.out
                .contains("The network is in net/network.safetensors. Watch it play:")
        );
        let net = home.join("net");
        for file in [
            "config.toml",
            "network.safetensors",
            "best.safetensors",
            "report.html",
            "tensorboard",
        ] {
            assert!(net.join(file).exists(), "{file}");
        }
        assert!(!net.join("adapter").exists());

        let lines = lines(&net);
        let kinds: Vec<&str> = lines
            .iter()
            .map(|line| line["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            ["baselines", "evaluation", "step", "step", "evaluation"]
        );
        // What it costs to get somewhere can be counted.
        let step = &lines[3];
        assert_eq!(step["episodes"], 4);
        let turns = step["episode_length_mean"].as_f64().unwrap() * 4.0;
        assert_eq!(step["turns"].as_u64().unwrap(), turns.round() as u64);
        assert!(step["td_loss"].as_f64().unwrap() > 0.0 && step.get("kl").is_none());

        let examined = run(home, &["eval", "net", "--json"]);
        assert_eq!(examined.err, "plays with net/best.safetensors\n");
        let examined: Value = serde_json::from_str(&examined.out).unwrap();
        let best = [1, 4].map(|line| lines[line]["return_mean"].as_f64().unwrap());
        assert_eq!(
            examined["return_mean"].as_f64().unwrap(),
            best[0].max(best[1])
        );
        assert_eq!(examined["model"], learner);
        // The scenes are those of everybody else.
        let other = [
            "eval",
            "frozen-lake",
            "--player",
            "scripted",
            "--episodes",
            "5",
            "--json",
        ];
        let other: Value = serde_json::from_str(&run(home, &other).out).unwrap();
        assert_eq!(other["yardsticks"]["random"], lines[0]["random"]);
        assert_eq!(
            other["yardsticks"]["random"],
            examined["yardsticks"]["random"]
        );

        let played = run(home, &["play", "net", "--quiet"]);
        assert!(played.out.starts_with("--- turn 1\n"), "{}", played.out);

        let on = run(
            home,
            &["train", "--resume", "net", "--steps", "3", "--quiet"],
        );
        assert_eq!(on.code, 0, "{}", on.err);
        let again = self::lines(&net);
        assert_eq!(again[..4], lines[..4]);
        assert_eq!(again.last().unwrap()["step"], 3);
        let watched = run(home, &["watch", "net", "--once"]);
        assert!(watched.out.contains("td error"), "{}", watched.out);
    }
}

/// Each says what is wrong in a sentence, and leaves nothing behind.
#[test]
fn what_a_network_cannot_do_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(trained(home, "pqn").code, 0);
    let refused = |arguments: &[&str]| {
        let said = run(home, arguments);
        assert_ne!(said.code, 0, "{arguments:?}");
        let told = said.err.lines().rfind(|line| line.starts_with("error"));
        told.unwrap_or(&said.err).to_owned()
    };
    assert_snapshot!(refused(&["train", "rooms", "--set", "learner=dqn"]), @r#"error: rooms has no board as numbers, which dqn and pqn learn from (frozen-lake and snake have one): choose another game, or learner = "ms-grpo""#);
    assert_snapshot!(refused(&["eval", "frozen-lake-pqn"]), @"error: a network of pqn is to play, and value.network names none: name the directory of the run that trained it");
    assert_snapshot!(refused(&["merge", "net", "--out", "merged"]), @r#"error: net holds a network that reads no words (learner = "dqn" or "pqn"), and no adapter: train, eval and play take such a run, and nothing else does"#);
    assert_snapshot!(refused(&["probe", "net"]), @r#"error: learner = "pqn" has no language model: train, eval and play take such a run, and nothing else does"#);
    assert_snapshot!(refused(&["eval", "frozen-lake", "--adapter", "net"]), @r#"error: net holds a network that reads no words (learner = "dqn" or "pqn"), and no adapter: train, eval and play take such a run, and nothing else does"#);
    assert_snapshot!(refused(&["eval", "net", "--against", "net"]), @"error: --against: takes adapters of language models, and pqn has none: leave it out");
    assert_snapshot!(refused(&["eval", "net", "--games", "frozen-lake,snake"]), @"error: the network net/best.safetensors: dense.0.weight has the shape [64, 8], and this config and game want [180, 8]");
    let mut left: Vec<String> = fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["net"]);
}
