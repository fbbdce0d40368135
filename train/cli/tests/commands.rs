//! Commands with the built-in model.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{Ended, SMALL, copy, golden, json, lapwing, lines, run, succeeds};

#[test]
fn the_games_are_listed_with_their_options() {
    let directory = tempfile::tempdir().unwrap();
    let ended = run(directory.path(), "games");
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert_snapshot!("games_listed", ended.out);
    let one = run(directory.path(), "games 2048-small");
    assert_snapshot!(one.out, @r#"
    2048-small (variant of 2048): A tile of 32 within 25 moves.
      actions: up, down, left, right
      options, with their defaults:
        target = 32        the tile that ends the game, a power of two (an integer from 32 to 16384)
        goal = "high"      whether to make high tiles, or to keep them low: then each higher tile costs its share (`high` or `low`)
        up_cost = 0.0      cost of each `up` (a number from 0 to 1000)
        swapped = false    the words left and right swap their meanings (true or false)
        wording = "usual"  the words of the rules (`usual` or `other`)
        symbols = "usual"  tiles as numbers, or as letters: `A` for 2, `B` for 4, and so on (`usual` or `other`)
        step_limit = 25    moves of an episode (an integer from 1 to 100000)
        view = "board"     the picture alone, or a description above it (`board` or `full`)
      probes, for lapwing probe and game.probe:
        low        Tiles must stay low: each higher tile costs points.
        costly-up  Each up costs a tenth of a point.
        swapped    The words left and right swap their meanings.
        symbols    Tiles are letters.
        wording    The same rules in other words.

    Set an option with --set game.options.NAME=VALUE, or under [game.options] of a config file.
    "#);
    let wrong = run(directory.path(), "games poison-apple");
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("(did you mean `snake-poison-apple`?)"),
        "{}",
        wrong.err
    );
    let json = run(directory.path(), "games --json").out;
    let games: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        games.as_array().unwrap().len(),
        ended.out.matches("actions:").count()
    );
    assert_eq!(games[0]["options"][0]["name"], "size");
    assert_eq!(games[0]["variants"][0]["name"], "frozen-lake-firm");
}

#[test]
fn the_devices_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let ended = run(directory.path(), "devices");
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(
        ended.out.matches("<- will be used").count(),
        1,
        "{}",
        ended.out
    );
    let json = run(directory.path(), "devices --json").out;
    let devices: Value = serde_json::from_str(&json).unwrap();
    let devices = devices.as_array().unwrap();
    assert_eq!(
        devices
            .iter()
            .filter(|device| device["used"] == true)
            .count(),
        1
    );
    assert!(devices[0]["device"]["name"].is_string(), "{json}");
}

/// Two for each of a few processors, unless the user has set another number.
#[test]
fn the_threads_of_the_software_driver_are_set() {
    let directory = tempfile::tempdir().unwrap();
    let listed = |threads: Option<&str>| {
        let mut command = lapwing(directory.path(), "devices");
        command.env_remove("LP_NUM_THREADS");
        command.envs(threads.map(|threads| ("LP_NUM_THREADS", threads)));
        Ended::new(directory.path(), command.output().unwrap()).out
    };
    if !listed(None).contains("llvmpipe") {
        return;
    }
    let processors = std::thread::available_parallelism().unwrap().get();
    let line = |threads: usize| format!("threads    {threads} (LP_NUM_THREADS)");
    let is_set = listed(None).contains(&line(2 * processors));
    assert_eq!(is_set, (2..=4).contains(&processors), "{processors}");
    assert!(listed(Some("3")).contains(&line(3)));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in ["games", "play --player scripted"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = lapwing(directory.path(), arguments).stdout(writer).output();
        let ended = Ended::new(directory.path(), output.unwrap());
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    }
}

/// The files of a short run can be evaluated, played and trained again.
#[test]
fn a_run_trains_an_adapter() {
    let directory = tempfile::tempdir().unwrap();
    let train = run(directory.path(), &format!("train --steps 2 {SMALL}"));
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
    let lines = |name: &str| lines(&directory.path().join(name));
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
        // Either the only group is trained on, or it is skipped.
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

    // The adapter scores as in the test at the end of training.
    let test = fs::read_to_string(runs.join("test.json")).unwrap();
    let test: Value = serde_json::from_str(&test).unwrap();
    let last = &test["sampled"][1];
    let config = "runs/frozen-lake-1/config.toml";
    let line = format!("eval {config} --adapter runs/frozen-lake-1/adapter --json");
    let eval = run(directory.path(), &line);
    assert_eq!(eval.code, 0, "{}", eval.err);
    let eval: Value = serde_json::from_str(&eval.out).unwrap();
    for (key, value) in last.as_object().unwrap() {
        let is_of_play = !["kind", "step", "time", "seconds_evaluation"].contains(&&**key);
        assert!(!is_of_play || eval[key] == *value, "{key}: {eval}");
    }
    assert_eq!(eval["baselines"], test["baselines"]);

    let line = format!("play {config} --adapter runs/frozen-lake-1/adapter");
    let play = run(directory.path(), &line);
    assert_eq!(play.code, 0, "{}", play.err);
    assert!(
        play.out.contains("--- turn 1") && play.out.contains("over after"),
        "{}",
        play.out
    );

    // The config makes the same run in a new directory.
    let again = run(directory.path(), &format!("train {config}"));
    assert_eq!(again.code, 0, "{}", again.err);
    let without_times = |mut line: Value| {
        line.as_object_mut()
            .unwrap()
            .retain(|key, _| !key.starts_with("seconds") && key != "time");
        line
    };
    let again = lines("runs/frozen-lake-2/metrics.jsonl");
    let same = |lines: Vec<Value>| -> Vec<Value> { lines.into_iter().map(without_times).collect() };
    assert_eq!(same(metrics), same(again));
}

#[test]
fn a_game_is_played_by_its_own_preset() {
    let directory = tempfile::tempdir().unwrap();
    let rules = |arguments: &str| {
        let ended = run(directory.path(), &format!("play {arguments} --human"));
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
        ended.out
    };
    // The preset has six cells a side, the paper ten.
    let out = rules("snake");
    // Six cells with spaces between.
    let is_row = |line: &&str| line.len() == 11 && line.contains("_ _");
    assert_eq!(out.lines().filter(is_row).count(), 6, "{out}");
    assert!(rules("snake-paper").contains("The board is 10x10"));
    assert!(rules("frozen-lake --set game.options.size=3").contains("You have 20 turns"));
}

#[test]
fn the_doctor_finds_that_this_machine_can_train() {
    let directory = tempfile::tempdir().unwrap();
    let ended = run(directory.path(), "doctor --json");
    // A slow machine prints the check in progress on standard error.
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
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
        "device",
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
fn the_bench_measures_kernels_and_phases() {
    let directory = tempfile::tempdir().unwrap();
    let report = json(directory.path(), "bench built-in/ --json");
    for key in ["title", "device", "ceilings", "forecast"] {
        assert!(!report[key].is_null(), "{key}: {report}");
    }
    let rows = report["rows"].as_array().unwrap();
    let kinds: std::collections::BTreeSet<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap().split('/').next().unwrap())
        .collect();
    let wanted = [
        "attention",
        "decode",
        "head",
        "optimiser",
        "prefill",
        "product",
        "rows",
        "update",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), wanted);
    for row in rows {
        assert!(row["seconds"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["dispatches"].as_u64().unwrap() > 0, "{row}");
        assert!(row["share"].as_f64().unwrap() > 0.0, "{row}");
    }
    fs::write(directory.path().join("old.json"), report.to_string()).unwrap();
    let line = "bench 'product/built-in/1 row' --compare old.json";
    let compared = succeeds(directory.path(), line).out;
    assert!(compared.starts_with("old: lapwing "), "{compared}");
    let line = compared.lines().last().unwrap();
    assert!(line.starts_with("product/built-in/1 row  "), "{compared}");
    assert!(line.contains("1 -> 1"), "{compared}");

    let line = "bench 'product/built-in/1 row' --report report.txt";
    succeeds(directory.path(), line);
    let report = fs::read_to_string(directory.path().join("report.txt")).unwrap();
    for part in ["ok   kernels", "ceiling", "product/built-in/1 row  "] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

/// A small model takes every phase, and its measurements suffice for a forecast.
#[test]
fn the_bench_forecasts_a_training_step() {
    let directory = tempfile::tempdir().unwrap();
    copy(&golden("qwen2"), &directory.path().join("model"));
    let config = directory.path().join("model/config.json");
    let text = fs::read_to_string(&config).unwrap();
    // Room for the prompts of the preset.
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["max_position_embeddings"] = 2048.into();
    fs::write(&config, changed.to_string()).unwrap();
    let report = json(directory.path(), "bench model/ --model model --json");
    let forecast = &report["forecast"];
    let step = forecast["step"].as_str().unwrap();
    assert!(
        step.starts_with("frozen-lake with random actions: ") && step.ends_with(", 256 of a reply"),
        "{step}"
    );
    for key in ["alone", "together", "rollout", "update"] {
        assert!(forecast[key].as_f64().unwrap() > 0.0, "{key}: {forecast}");
    }
}

#[test]
fn the_doctor_reports_what_it_cannot_open() {
    let directory = tempfile::tempdir().unwrap();
    let ended = run(directory.path(), "doctor --device 99");
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .out
            .starts_with("BAD  device         no device is called \"99\"; devices: 0 ("),
        "{}",
        ended.out
    );
    assert!(
        ended.out.contains("-> choose one of these"),
        "{}",
        ended.out
    );
    assert_eq!(ended.err, "error: this machine cannot train as it is\n");
    let ended = run(directory.path(), "doctor --model nowhere");
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .out
            .contains("BAD  model          there is no model directory nowhere"),
        "{}",
        ended.out
    );
}

/// Started by mpirun, which a program without the feature `mpi` cannot join.
#[test]
fn several_processes_are_refused_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, cure) in [
        ("train", "cargo install --path train/cli --features mpi"),
        ("eval", "start this one alone"),
    ] {
        let mut command = lapwing(dir.path(), arguments);
        command.env("OMPI_COMM_WORLD_SIZE", "2");
        let ended = Ended::new(dir.path(), command.output().unwrap());
        assert_eq!(ended.code, 2, "{}", ended.err);
        let found = "error: 2 processes were started by mpirun or srun: ";
        assert!(
            ended.err.starts_with(found) && ended.err.contains(cure),
            "{}",
            ended.err
        );
    }
    // Commands that write nothing do the same in each process.
    let mut command = lapwing(dir.path(), "games");
    assert!(
        command
            .env("PMI_SIZE", "2")
            .output()
            .unwrap()
            .status
            .success()
    );
}
