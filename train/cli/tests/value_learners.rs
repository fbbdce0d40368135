//! Runs of the value learners DQN and PQN.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{Ended, fails, json, lines, run};

/// Trains a small network for two steps, in the directory `net`.
fn trained(home: &Path, learner: &str) -> Ended {
    let preset = format!("frozen-lake-{learner}");
    // Without settings that would be noted as unused.
    let more = match learner {
        "dqn" => "--set dqn.start=1 --set dqn.updates=2",
        _ => "",
    };
    let small = "--set value.hidden=[8] --set value.episodes=4 --set eval.episodes=5";
    let line = format!("train {preset} --steps 2 --out net {small} {more} --tensorboard");
    run(home, &line)
}

#[test]
fn a_network_is_trained_evaluated_and_played() {
    for learner in ["dqn", "pqn"] {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let ended = trained(home, learner);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(
            ended
                .out
                .contains("The network is in net/network.safetensors.\n")
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

        let lines = lines(&net.join("metrics.jsonl"));
        let kinds: Vec<&str> = lines
            .iter()
            .map(|line| line["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            ["baselines", "evaluation", "step", "step", "evaluation"]
        );
        let step = &lines[3];
        assert_eq!(step["episodes"], 4);
        let turns = step["episode_length_mean"].as_f64().unwrap() * 4.0;
        assert_eq!(step["turns"].as_u64().unwrap(), turns.round() as u64);
        assert!(step["td_loss"].as_f64().unwrap() > 0.0 && step.get("kl").is_none());

        let examined = run(home, "eval net --json");
        assert_eq!(examined.err, "note: plays with net/best.safetensors\n");
        let examined: Value = serde_json::from_str(&examined.out).unwrap();
        // The test scenes of the run, and not those of its evaluations.
        let test = fs::read(net.join("test.json")).unwrap();
        let test: Value = serde_json::from_slice(&test).unwrap();
        let best = [1, 4].map(|line| lines[line]["return_mean"].as_f64().unwrap());
        let tested = &test["sampled"][usize::from(best[1] > best[0])];
        assert_eq!(examined["return_mean"], tested["return_mean"]);
        // A network always takes the best action.
        assert_eq!(test["greedy"], serde_json::json!([]));
        assert_eq!(examined["model"], learner);
        // The scenes are those of other players.
        let line = "eval frozen-lake --player scripted --episodes 5 --json";
        let other = json(home, line);
        assert_ne!(other["baselines"]["random"], lines[0]["random"]);
        for baselines in [&examined["baselines"], &test["baselines"]] {
            assert_eq!(other["baselines"]["random"], baselines["random"]);
        }

        let played = run(home, "play net --quiet");
        assert!(played.out.starts_with("--- turn 1\n"), "{}", played.out);

        let on = run(home, "train --resume net --steps 3 --quiet");
        assert_eq!(on.code, 0, "{}", on.err);
        let again = crate::support::lines(&net.join("metrics.jsonl"));
        assert_eq!(again[..4], lines[..4]);
        assert_eq!(again.last().unwrap()["step"], 3);
        let watched = run(home, "watch net --once");
        assert!(watched.out.contains("td error"), "{}", watched.out);
        // Networks make no invalid replies.
        let table = run(home, "eval net --episodes 2").out;
        for told in [&ended.out, &on.out, &table, &watched.out] {
            let has = |word: &str| told.contains(word);
            assert!(has("length") && !has("valid") && !has("penalty"), "{told}");
        }
    }
}

#[test]
fn commands_for_language_models_refuse_a_network() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(trained(home, "pqn").code, 0);
    let refused = |line: &str| fails(home, line);
    assert_snapshot!(refused("merge net --out merged"), @r#"error: net holds a network that reads no words (learner = "dqn" or "pqn"), and no adapter: only train, play and `eval RUN` can use it"#);
    assert_snapshot!(refused("probe net"), @r#"error: learner = "pqn" has no language model: only train, play and `eval RUN` can use its network"#);
    // No note on a network that is not probed.
    assert_eq!(run(home, "probe net").err.lines().count(), 1);
    assert_snapshot!(refused("eval frozen-lake --adapter net"), @r#"error: net holds a network that reads no words (learner = "dqn" or "pqn"), and no adapter: only train, play and `eval RUN` can use it"#);
    assert_snapshot!(refused("eval net --against net"), @"error: --against: takes adapters of language models, and pqn has none: leave it out");
    assert_snapshot!(refused("eval net --games frozen-lake,snake"), @"error: the network net/best.safetensors: dense.0.weight has the shape [64, 8], wanted [180, 8] for this config and game");
    let mut left: Vec<String> = fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["net"]);
}
