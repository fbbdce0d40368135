//! Runs as arguments, and the commands that need no model.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{Ended, SMALL, json, lines, run, succeeds, with_input};

/// Trains for one step, in a directory with a space in its name.
fn small(home: &Path, more: &str) -> Ended {
    let line = format!("train --steps 1 --out 'my run' {SMALL} {more}");
    succeeds(home, &line)
}

/// Turn-level PPO: the warm-up is printed, metrics of the critic are recorded, and the critic is saved in checkpoints and
/// not in the adapter.
#[test]
fn a_critic_is_trained_and_saved() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let line = "train --steps 2 --out 'my run' --set credit.method=critic --set critic.warmup=1 \
        --set critic.passes=2 --set train.groups=2 --set eval.episodes=5 --set eval.every=1";
    let trained = succeeds(home, line);
    let told = |text: &str| trained.err.lines().any(|line| line.contains(text));
    assert!(told("critic warm-up"), "{}", trained.err);
    assert!(told("  critic "), "{}", trained.err);
    let run = home.join("my run");
    let mut lines = lines(&run.join("metrics.jsonl"));
    lines.retain(|line| line["kind"] == "step");
    assert_eq!(lines.len(), 2);
    assert!(lines[0]["kl"].is_null() && lines[1]["kl"].is_number());
    for line in &lines {
        assert!(
            line["value_loss"].is_number() && line["value_mean"].is_number(),
            "{line}"
        );
    }
    assert_eq!(lines[0]["value_mean"], 0.0);
    let holds = |file: &str| {
        let bytes = fs::read(run.join(file)).unwrap();
        bytes.windows(13).any(|w| w == b"critic.hidden")
    };
    assert!(holds("checkpoints/step-000002.safetensors"));
    assert!(!holds("adapter/adapter_model.safetensors"));

    succeeds(home, "train --resume 'my run' --steps 3");
    succeeds(home, "export 'my run' --format csv");
    let table = fs::read_to_string(run.join("csv/steps.csv")).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
    let columns: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    assert!(columns.contains(&"value_loss") && columns.contains(&"value_mean"));

    // With another method, settings of the critic have no effect, which is noted.
    let dry = succeeds(home, "train --dry-run --set critic.warmup=1");
    let note = "critic.warmup (--set) has no effect with credit.method = \"gigpo\"";
    assert!(dry.err.contains(note), "{}", dry.err);
}

/// On one map, with a warm-up of the critic that is longer than the run.
#[test]
fn what_was_tested_and_why_nothing_was_learned_are_true() {
    let home = tempfile::tempdir().unwrap();
    let settings = r#"--set 'game.options.map=["SF", "HG"]' --set credit.method=critic
        --set eval.every=1"#;
    let trained = small(home.path(), settings);
    for told in [
        "critic.warmup (the default) is 5, not below train.steps, which is 1",
        "note: of the scenes drawn, none or all are in the held-out fifth",
    ] {
        assert!(trained.err.contains(told), "{}", trained.err);
    }
    for told in [
        "test on training scenes, drawn apart from the evaluations:\n",
        "The best adapter (step 0, before training, return ",
        "Nothing was learned: critic.warmup is not below train.steps, so only the critic was trained.",
    ] {
        assert!(trained.out.contains(told), "{}", trained.out);
    }
}

/// The built-in model says one word, so that it writes no tags.
#[test]
fn a_dry_run_counts_readable_replies_and_names_a_cure() {
    let home = tempfile::tempdir().unwrap();
    let tags = "--set policy.reply=tags --set policy.max_new_tokens=14";
    let dry = |more: &str| {
        let dry = small(home.path(), &format!("{tags} --dry-run {more}"));
        // Without the prompt, and the device in the last line.
        let replies = dry.out.split("\n---\n").nth(1).unwrap().to_owned();
        let lines: Vec<&str> = replies.lines().collect();
        lines[..lines.len() - 1].join("\n")
    };
    assert_snapshot!(dry(""), @r#"
    0 of 16 sampled replies can be read, such as:
      "down" (invalid: there is no action where it was asked for)
    From such replies little can be learned: the built-in model replies with action words only (--set policy.reply=word)
    would train 93,184 parameters, of an adapter
    "#);
    assert_snapshot!(dry("--warmup"), @r#"
    0 of 16 sampled replies can be read, such as:
      "down" (invalid: there is no action where it was asked for)
    would warm up first: 12 updates on 24 episodes of the random player
    would train 93,184 parameters, of an adapter
    "#);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

    let warm = small(home.path(), &format!("{tags} --warmup=2"));
    assert!(warm.err.contains("warm-up 2/2  loss "), "{}", warm.err);
    assert!(warm.out.contains("\nafter the warm-up "), "{}", warm.out);
    assert!(warm.out.contains("\nafter training "), "{}", warm.out);
    let metrics = lines(&home.path().join("my run/metrics.jsonl"));
    let steps = metrics.iter().filter(|record| record["kind"] == "step");
    assert_eq!(steps.count(), 1);
}

#[test]
fn a_run_is_an_argument_for_its_config_and_adapter() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let dry = small(home, "--dry-run");
    assert!(dry.out.contains("--- a prompt of "), "{}", dry.out);
    assert!(
        dry.out.contains("would train frozen-lake: 1 step of")
            && dry.out.ends_with("kept in my run\n"),
        "{}",
        dry.out
    );
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);

    let trained = small(home, "--quiet");
    assert_eq!(trained.err, "");
    let best = "The best adapter (step ";
    assert!(
        trained.out.contains(best)
            && trained
                .out
                .contains(") is in my run/best. Watch it play:\n"),
        "{}",
        trained.out
    );
    assert!(trained.out.contains(" play 'my run'\n"), "{}", trained.out);

    // The commands that take a model take its trained adapter.
    for command in ["score --text a", "generate --prompt a --greedy"] {
        let of_run = succeeds(home, &format!("{command} 'my run'"));
        let of_best = succeeds(home, &format!("{command} --adapter 'my run/best'"));
        assert_eq!(of_run.out, of_best.out);
        let note = "note: uses my run/best (step ";
        assert!(of_run.err.starts_with(note), "{}", of_run.err);
    }
    let listed = json(home, "runs . --json");
    assert_eq!(listed[0]["run"], "./my run");
    assert_eq!(
        (&listed[0]["step"], &listed[0]["steps"]),
        (&1.into(), &1.into())
    );
    assert!(
        listed[0]["best_return"].is_number() && listed[1].is_null(),
        "{listed}"
    );

    assert_eq!(listed[0]["state"], "done");
    // As if it had been killed before its last evaluation.
    let metrics = home.join("my run/metrics.jsonl");
    let whole = fs::read_to_string(&metrics).unwrap();
    let (before, _) = whole.rsplit_once("{\"kind\":\"evaluation\"").unwrap();
    fs::write(&metrics, before).unwrap();
    let stopped = json(home, "runs . --json");
    assert_eq!(stopped[0]["state"], "stopped");
    fs::write(&metrics, whole).unwrap();

    // A run is evaluated with its best adapter, which is noted.
    let examined = succeeds(home, "eval 'my run' --json");
    assert!(
        examined
            .err
            .starts_with("note: plays with my run/best (step "),
        "{}",
        examined.err
    );
    let found: Value = serde_json::from_str(&examined.out).unwrap();
    assert_eq!(found["adapter"], "my run/best");
    assert_eq!(found["episodes"], 5);
    let named = json(home, "eval --adapter 'my run' --episodes 5 --json");
    assert_eq!(found["return_mean"], named["return_mean"]);
    let base = succeeds(home, "eval 'my run/config.toml' --json");
    assert!(
        base.err.starts_with("note: plays with the initial model of my run, because its config.toml is given; to play with the trained one, give the directory my run\n"),
        "{}",
        base.err
    );

    // One object per episode.
    let played = succeeds(home, "play 'my run' --episodes 3 --json");
    let scenes: Vec<String> = played
        .out
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["scene"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(scenes, ["1", "2", "3"]);
    let shown = succeeds(home, "play 'my run' --episodes 2 --set train.lr=1");
    assert!(
        shown
            .err
            .contains("train.lr (--set) has no effect on play\n"),
        "{}",
        shown.err
    );
    assert!(
        shown.out.contains("=== seed 2\n") && shown.out.contains("\n2 episodes: success "),
        "{}",
        shown.out
    );

    succeeds(home, "merge 'my run' --out merged");
    assert!(home.join("merged/model.safetensors").exists());

    // From another directory.
    let elsewhere = home.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let again = succeeds(&elsewhere, "train '../my run'");
    assert!(
        again
            .err
            .starts_with("note: repeats the run in ../my run, from its config.toml\n"),
        "{}",
        again.err
    );
    let config = |path: &str| fs::read_to_string(home.join(path)).unwrap();
    assert_eq!(
        config("my run/config.toml"),
        config("elsewhere/runs/frozen-lake-1/config.toml")
    );
}

/// Unused template variables are noted, and the path of the model is absolute in the config.
#[test]
fn a_config_keeps_absolute_paths_and_unused_variables_are_noted() {
    let home = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/qwen2");
    let own = home.path().join("model");
    fs::create_dir(&own).unwrap();
    for entry in fs::read_dir(model).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, own.join(path.file_name().unwrap())).unwrap();
        }
    }
    let more = "--set policy.max_new_tokens=3 --set policy.chat_template_kwargs.moood=1";
    let line = format!("train --model model --steps 0 --out 'my run' {SMALL} {more}");
    let trained = succeeds(home.path(), &line);
    assert!(
        trained
            .out
            .contains("Nothing was learned: train.steps is 0."),
        "{}",
        trained.out
    );
    assert!(!trained.out.contains("Watch it play"), "{}", trained.out);
    let note = "policy.chat_template_kwargs.moood has no effect: the model's chat template does not mention it\n";
    assert!(trained.err.contains(note), "{}", trained.err);
    let text = fs::read_to_string(home.path().join("my run/config.toml")).unwrap();
    let config: toml::Table = text.parse().unwrap();
    assert_eq!(config["model"]["dir"].as_str(), own.to_str());
}

#[test]
fn the_next_directory_and_the_merged_weights_are_named() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let none = "note: there is no run in runs; `lapwing train` makes runs/NAME-1\n";
    assert_eq!(succeeds(home, "runs").err, none);
    fs::create_dir_all(home.join("runs/frozen-lake-1")).unwrap();
    let dry = succeeds(home, "train --dry-run");
    let end = "kept in runs/frozen-lake-2\n";
    assert!(dry.out.ends_with(end), "{}", dry.out);
    succeeds(home, "train --steps 0 --set eval.episodes=2 --out run");
    let merged = succeeds(home, "merge run --out merged");
    let note = "note: uses run/best (step 0, before training)\n";
    assert!(merged.err.starts_with(note), "{}", merged.err);
}

#[test]
fn a_config_is_shown_and_loads_again() {
    let home = tempfile::tempdir().unwrap();
    let mine = "base = \"snake\"\n[train]\nlearn = 3\n";
    fs::write(home.path().join("mine.toml"), mine).unwrap();
    let shown = succeeds(home.path(), "config mine.toml --set train.sampling=all");
    assert_eq!(
        shown.err,
        "note: train.learn (mine.toml) has no effect with train.sampling = \"all\"\n"
    );
    for line in [
        "learn = 3  # mine.toml (default 25), no effect",
        "sampling = \"all\"  # --set (default \"aaw\")",
        "lr = 0.002  # the preset snake (default 0.00001)",
        "beta = 0.001  # default",
    ] {
        assert!(
            shown.out.lines().any(|found| found == line),
            "{line}: {}",
            shown.out
        );
    }
    fs::create_dir(home.path().join("run")).unwrap();
    fs::write(home.path().join("run/config.toml"), &shown.out).unwrap();
    let again = succeeds(home.path(), "config run");
    assert_eq!(again.err, "");
    let values = |text: &str| text.parse::<toml::Table>().unwrap();
    assert_eq!(values(&again.out), values(&shown.out));

    // Values that no run could use are shown, too.
    let line = "config --set train.group_size=200 --set train.sampling=aaw --set train.learn=201";
    let wrong = succeeds(home.path(), line);
    assert_snapshot!(wrong.err, @"warning: key `train.learn`: found 201 (--set), wanted at most train.group_size, which is 200 (--set); for example: --set train.learn=200");
    assert!(
        wrong.out.contains("\nlearn = 201  # --set (default 25)\n"),
        "{}",
        wrong.out
    );

    let explained = succeeds(home.path(), "config --explain train.learn");
    assert_snapshot!(explained.out, @r#"
    train.learn
      G', the episodes of a group that are trained on, at most `group_size`. The paper: 25. The default
      is lowered to a smaller `group_size`. No effect with `sampling = "all"`.
      values: at least 1
      default: 25
    "#);
    let explained = succeeds(home.path(), "config --explain game.options.actions");
    let wanted = "whole reply goes to the template";
    assert!(explained.out.contains(wanted), "{}", explained.out);
    let lr = json(home.path(), "config snake --explain lr --json");
    let names: Vec<&Value> = lr
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["train.lr", "warmup.lr", "critic.lr"]);
    assert_eq!(lr[0]["default"], 1e-5);
    let snake = json(home.path(), "config snake --json --set dqn.updates=3");
    assert_eq!(snake["config"]["dqn"]["updates"], 3);
    assert_eq!(snake["origins"]["dqn.updates"], "--set");
    assert_eq!(snake["origins"]["train.lr"], "the preset snake");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = succeeds(home.path(), &format!("completions {shell}")).out;
        assert!(
            script.contains("group") || script.contains("resume"),
            "{shell}"
        );
        assert!(!script.contains("of-sweep"), "{shell}");
    }
    let page = succeeds(home.path(), "man").out;
    assert!(
        page.contains(".TH lapwing 1") && page.contains("train"),
        "{page}"
    );
    let page = succeeds(home.path(), "man train").out;
    assert!(page.contains("dry\\-run"), "{page}");
    let head = page.lines().find(|line| line.starts_with(".TH")).unwrap();
    assert!(
        head.contains(concat!("\"lapwing ", env!("CARGO_PKG_VERSION"), "\"")),
        "{head}"
    );
    let wrong = run(home.path(), "man trian");
    assert_eq!(wrong.code, 2);
    assert_snapshot!(wrong.err);
}

/// An installed program has the documentation that its help and errors name.
#[test]
fn pages_of_the_documentation_are_printed() {
    let home = tempfile::tempdir().unwrap();
    let help = |topic: &str| succeeds(home.path(), &format!("help {topic}")).out;
    assert!(help("serving").starts_with("# Serving"));
    assert_eq!(help("serving"), help("docs/serving.md"));
    assert!(help("frozen-lake").starts_with("# Frozen Lake"));
    // A command and a page of one name.
    let devices = help("devices");
    assert!(
        devices.contains("Usage: lapwing devices") && devices.contains("\n# Devices\n"),
        "{devices}"
    );
    let train = succeeds(home.path(), "train --help").out;
    assert_eq!(help("train").trim_end(), train.trim_end());
    let all = succeeds(home.path(), "help").out;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for folder in [docs.clone(), docs.join("games")] {
        for file in fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().path())
        {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let is_page = file.extension().is_some_and(|end| end == "md");
            assert!(
                !is_page || all.contains(name),
                "`lapwing help` lacks {name}"
            );
        }
    }
    let wrong = run(home.path(), "help servings");
    assert_eq!(wrong.code, 2);
    assert!(
        wrong
            .err
            .contains("unknown command or page `servings` (did you mean `serving`?)"),
        "{}",
        wrong.err
    );
}

#[test]
fn standard_input_is_a_file() {
    let home = tempfile::tempdir().unwrap();
    let ended = with_input(home.path(), "score --ids - --json", "[1, 2, 3]");
    assert_eq!(ended.code, 0, "{}", ended.err);
    let scored: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(scored["ids"], serde_json::json!([1, 2, 3]));
}

/// A file size limit is an error like a full disk, and leaves no temporary files.
#[cfg(unix)]
#[test]
fn a_file_size_limit_is_named() {
    let home = tempfile::tempdir().unwrap();
    let mut limited = std::process::Command::new("sh");
    let script = format!("ulimit -f 1500; exec \"$0\" train --steps 1 --out 'my run' {SMALL}");
    limited
        .args(["-c", &script, env!("CARGO_BIN_EXE_lapwing")])
        .current_dir(home.path());
    let ended = Ended::new(home.path(), limited.output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(
        ended.err.contains("error: ") && ended.err.contains("ulimit -f"),
        "{}",
        ended.err
    );
    let left = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let mut names = left(&home.path().join("my run"));
    names.extend(left(home.path()));
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
}
