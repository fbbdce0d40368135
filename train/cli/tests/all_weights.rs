//! Runs that train all weights of a model, with every command.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{fails, files, json, succeeds};

const WHOLE: &str = "--set train.weights=all --set train.lr=0.0003 --set train.groups=8 \
    --set train.group_size=6 --set train.learn=3 --set eval.episodes=5 --quiet";

#[test]
fn a_run_keeps_a_model_that_every_command_takes() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let dry = succeeds(home, &format!("train {WHOLE} --dry-run"));
    let would: Vec<&str> = dry.out.lines().rev().take(2).collect();
    let would = format!("{}\n{}", would[1], would[0].split("; on ").next().unwrap());
    assert_snapshot!(would, @"
    would train 255,296 parameters, all of the model's
    would train frozen-lake: 150 steps of 8 x 6 episodes, training on all of them, with all weights of the model
    ");
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);

    let begin = |steps, out| format!("train {WHOLE} --steps {steps} --out {out}");
    let trained = succeeds(home, &begin("2", "run"));
    assert!(
        trained.out.contains("\nThe model is in run/model.\n"),
        "{}",
        trained.out
    );

    // A resumed run gives the same weights.
    succeeds(home, &begin("1", "other"));
    succeeds(home, "train --resume other --steps 2");
    let kept = files(&home.join("run/model"));
    let contents = |files: &[(String, Vec<u8>)]| -> Vec<Vec<u8>> {
        files.iter().map(|(_, bytes)| bytes.clone()).collect()
    };
    assert!(contents(&kept) == contents(&files(&home.join("other/model"))));
    let (name, weights) = &kept[3];
    assert!(name.ends_with("model.safetensors"), "{name}");
    // Four bytes for each, and a header.
    assert!((0..8192).contains(&(weights.len() - 4 * 255_296)));

    // It is compared with the initial model.
    let examined = succeeds(home, "eval run --json");
    assert!(
        examined.err.starts_with("note: plays with run/best (step "),
        "{}",
        examined.err
    );
    let found: Value = serde_json::from_str(&examined.out).unwrap();
    assert_eq!(
        (&found["model"], &found["adapter"]),
        (&"run/best".into(), &"".into())
    );
    let players = found["games"][0]["players"].as_array().unwrap();
    let players: Vec<&Value> = players.iter().map(|player| &player["player"]).collect();
    assert_eq!(players, ["trained model", "model"]);
    // The base's row is that of the base by itself, on the same scenes.
    let base = json(home, "eval --json --set eval.episodes=5");
    assert_eq!(
        found["games"][0]["players"][1]["return_mean"],
        base["games"][0]["players"][0]["return_mean"]
    );

    // And with the other run, whose model is the same, and with an adapter of the base.
    let line = "train --quiet --steps 0 --out lora --set eval.episodes=5";
    succeeds(home, line);
    let found = json(home, "eval run --json --against other/model --against lora");
    let player = |i: usize| &found["games"][0]["players"][i];
    assert_eq!(player(2)["player"], "lora");
    // A new adapter changes nothing.
    for key in ["return_mean", "success_rate", "episode_length_mean"] {
        assert_eq!(player(2)[key], player(3)[key], "{key}");
    }

    succeeds(home, "play run --quiet");
    succeeds(home, "probe run --quiet");
    let score = |model: &str| json(home, &format!("score --text 'left right' --json {model}"));
    assert_eq!(score("--model run"), score("--model run/best"));
    assert_ne!(score("--model run/model"), score(""));
    let line = "generate --model run --prompt left --max-new-tokens 2";
    succeeds(home, line);
    for format in ["csv", "tensorboard"] {
        succeeds(home, &format!("export run --format {format}"));
    }
    succeeds(home, "report run");
    succeeds(home, "watch run --once");
    // It can be the base of an adapter.
    let line = "train --model run --steps 0 --out on --quiet --set eval.episodes=5";
    succeeds(home, line);
    assert!(home.join("on/adapter/adapter_config.json").exists());
    let on = json(home, "eval on --json");
    let player = |i: usize| &on["games"][0]["players"][i];
    assert_eq!(player(1)["player"], "model");
    assert_eq!(
        player(1)["return_mean"],
        found["games"][0]["players"][0]["return_mean"]
    );

    // Commands that need an adapter refuse it.
    assert_snapshot!(fails(home, "eval --adapter run"), @"error: run holds a whole model and no adapter: --model run/best takes it");
    assert_snapshot!(fails(home, "score --adapter run/model --text x"), @"error: run/model holds a whole model and no adapter: --model run/model takes it");
    assert_snapshot!(fails(home, "merge run --out merged"), @"error: run/best: there is no adapter to merge: name one with --adapter, or a run that trained one; to convert the model, add --format gguf");
    assert_snapshot!(fails(home, "merge --adapter run --out merged"), @"error: run holds a whole model and no adapter: --model run/best takes it");
    assert_snapshot!(fails(home, &format!("train {WHOLE} --adapter lora")), @r#"error: key `train.weights`: found "all", wanted "lora" beside model.adapter; to train all weights from there on, work the adapter into them first (`lapwing merge --adapter DIR/lora/best --out MODEL`) and name that (--model MODEL)"#);
    let idle = "config --set train.weights=all --set lora.rank=4";
    assert_snapshot!(succeeds(home, idle).err, @r#"
    note: train.lr = 0.003 (the preset frozen-lake) was chosen for an adapter; all weights want a rate of their own, in large models about a tenth
    note: lora.rank (--set) has no effect with train.weights = "all", which trains no adapter
    "#);
}

/// In a game of two, the opponent can be the base or a whole model.
#[test]
fn a_model_plays_against_its_base() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let duel = "snake-duel --steps 0 --out run --set policy.reply=word";
    let few = "--set policy.max_new_tokens=1 --set game.options.step_limit=3";
    succeeds(home, &format!("train {duel} {few} {WHOLE}"));
    let eval = |who: &str| {
        let line = format!("eval run --json --episodes 3 --opponent {who}");
        let found = json(home, &line);
        found["games"][0]["players"][0]["return_mean"].clone()
    };
    // After no steps, both are the same.
    assert_eq!(eval("base"), eval("run"));
}

/// Imitation can train all weights, too.
#[test]
fn imitation_writes_a_model() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let play = "play --player scripted --episodes 4 --keep new/kept.jsonl --quiet";
    succeeds(home, play);
    let imitate = "pretrain --from new/kept.jsonl --steps 6 --out model";
    let line = format!("{imitate} --set train.weights=all --set train.lr=1");
    let ended = succeeds(home, &line);
    let note = "note: train.lr (--set) has no effect on pretrain: use --lr\n";
    assert!(ended.err.contains(note), "{}", ended.err);
    let mut lines = ended.out.lines();
    let loss = lines.next().unwrap();
    let numbers: Vec<f64> = loss
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(numbers[1] < numbers[0], "{loss}");
    assert_eq!(
        lines.next().unwrap(),
        "The model is in model (--model takes it)."
    );
    succeeds(home, "eval --model model --episodes 3 --quiet");
}
