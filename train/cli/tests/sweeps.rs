//! Sweeps.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{Ended, lapwing, run, succeeds};

const FILE: &str = r#"
base = "frozen-lake"
seeds = [1, 2]

[set]
train.steps = 2
train.groups = 1
train.group_size = 4
train.learn = 2
eval.episodes = 4

[settings.aaw]
[settings.top]
train.sampling = "top"
[settings.broken]
model.dir = "empty"

[compare]
reach = [-1, 2]
metrics = ["entropy", "kl"]
"#;

fn until(what: &str, is_so: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_failed_run_does_not_lose_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(directory.path().join("trial.toml"), text).unwrap();
    fs::create_dir(directory.path().join("empty")).unwrap();
    write(FILE);
    let planned = succeeds(directory.path(), "sweep trial.toml --dry-run").out;
    assert_eq!(planned.lines().count(), 6, "{planned}");
    assert!(planned.contains("\nbroken seed 2: "), "{planned}");
    assert!(!directory.path().join("sweeps").exists());
    let first = run(directory.path(), "sweep trial.toml --jobs 2");
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(
        first
            .err
            .contains("6 runs, 0 of them done; 2 at a time, kept in sweeps/trial")
    );
    assert!(first.err.contains("DIR/empty/config.json"), "{}", first.err);
    let last = first.err.lines().last().unwrap();
    assert_snapshot!(last, @"error: 2 of 6 runs failed: sweeps/trial/broken/seed-1.log, sweeps/trial/broken/seed-2.log; the same command repeats only these runs");
    let place = directory.path().join("sweeps/trial");
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert!(first.out.starts_with(&read("results.md")), "{}", first.out);
    assert!(
        first
            .out
            .contains("Not finished: broken has 0 of 2 seeds (not 1, 2).")
    );
    assert!(first.out.contains(" success, test |"), "{}", first.out);
    let watched = || succeeds(directory.path(), "watch sweeps/trial --once").out;
    let stopped = "sweeps/trial: stopped with 4 runs done; the same command continues the sweep\n";
    assert!(watched().starts_with(stopped), "{}", watched());
    let results: Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(results["rows"].as_array().unwrap().len(), 2);
    assert_eq!(results["rows"][1]["seeds"], Value::from([1, 2].as_slice()));
    assert!(results["rows"][1]["difference"]["interval"].is_array());
    let test: Value = serde_json::from_str(&read("aaw/seed-2/test.json")).unwrap();
    assert_eq!(test["sampled"][1]["step"], 2);
    let after = &results["runs"][1]["after"];
    assert_eq!(after["return_mean"], test["sampled"][1]["return_mean"]);
    assert_eq!(results["rows"][0]["episodes"]["mean"], 8.0);
    assert_eq!(results["equal_episodes"], 8.0);
    assert_eq!(results["runs"][0]["course"].as_array().unwrap().len(), 2);
    let seconds = |run: usize| {
        results["runs"][run]["course"][1]["seconds"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(
        results["equal_seconds"].as_f64().unwrap(),
        (0..4).map(seconds).reduce(f64::min).unwrap()
    );
    // All returns of frozen-lake are at least -1 and below 2.
    let reached = &results["rows"][1]["reached"];
    assert_eq!(reached[0]["seconds"]["mean"], 0.0);
    assert_eq!(reached[1]["runs"], Value::from([0; 0].as_slice()));
    assert!(results["rows"][0]["metrics"]["entropy"]["mean"].as_f64() > Some(0.0));
    let begun = first.err.lines().filter(|line| line.ends_with(": starts"));
    let begun: Vec<&str> = begun.collect();
    assert_snapshot!(begun.join("\n"), @"
    aaw seed 1: starts
    top seed 1: starts
    broken seed 1: starts
    aaw seed 2: starts
    top seed 2: starts
    broken seed 2: starts
    ");
    assert_eq!(read("results.csv").lines().count(), 5);

    // Finished runs are kept; additional steps are made.
    let metrics = read("aaw/seed-1/metrics.jsonl");
    // Other comparisons need no new run.
    let without = FILE.replace("[settings.broken]\nmodel.dir = \"empty\"\n", "");
    write(&without.replace("reach = [-1, 2]\n", ""));
    let again = run(directory.path(), "sweep trial.toml");
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(
        again.err.contains("4 runs, 4 of them done"),
        "{}",
        again.err
    );
    assert_eq!(read("aaw/seed-1/metrics.jsonl"), metrics);
    assert!(watched().starts_with("sweeps/trial: done: 4 of 4 runs\n"));
    assert!(!read("results.csv").contains("seconds_to_"));
    let longer = without
        .replace("seeds = [1, 2]", "seeds = [1]")
        .replace("train.steps = 2", "train.steps = 3");
    write(&longer);
    let more = run(directory.path(), "sweep trial.toml");
    assert_eq!(more.code, 0, "{}", more.err);
    assert!(read("aaw/seed-1/metrics.jsonl").starts_with(&metrics));
    assert!(read("aaw/seed-1/metrics.jsonl").contains("\"kind\":\"step\",\"step\":3"));

    // A sweep with another config and the same name is refused.
    write(&longer.replace("train.group_size = 4", "train.group_size = 6"));
    let other = run(directory.path(), "sweep trial.toml");
    assert_eq!((other.code, other.out.as_str()), (2, ""));
    assert_snapshot!(other.err, @"error: sweeps/trial/aaw/seed-1: it was made with another config: train.group_size was 4, is 6; change that back, or choose another directory (--out, or `name` in the file)");
}

/// The base is beside the sweep file; the runs are below the current directory.
#[test]
fn a_base_beside_the_sweep_file_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("train/experiments");
    fs::create_dir_all(&folder).unwrap();
    let base = "[train]\nsteps = 1\ngroups = 1\ngroup_size = 4\nlearn = 2\n[eval]\nepisodes = 4\n";
    fs::write(folder.join("small.toml"), base).unwrap();
    fs::write(folder.join("credit.toml"), "base = \"small.toml\"\n").unwrap();
    let told = run(directory.path(), "sweep train/experiments/credit.toml");
    assert_eq!(told.code, 0, "{}", told.err);
    let place = directory.path().join("sweeps/credit");
    let config = fs::read_to_string(place.join("base/seed-1/config.toml")).unwrap();
    assert!(config.contains("group_size = 4"), "{config}");
    assert!(place.join("results.json").is_file());
}

/// A run is probed once, and again after more steps.
#[test]
fn runs_are_probed() {
    let directory = tempfile::tempdir().unwrap();
    let file = FILE.split("[settings.top]").next().unwrap();
    let probes = |names: &str| format!("{file}\n[compare]\nprobes = [{names}]\n");
    let write = |text: &str| fs::write(directory.path().join("trial.toml"), text).unwrap();
    let sweep = || succeeds(directory.path(), "sweep trial.toml");
    write(file);
    assert!(!sweep().out.contains("probe"));
    write(&probes("\"swapped\""));
    let told = sweep();
    let place = directory.path().join("sweeps/trial");
    let answers = || fs::read_to_string(place.join("aaw/seed-1.probes.json")).unwrap();
    let first = answers();
    let rows = ["usual", "swapped"].map(|probe| {
        ["(before training)", "aaw"].map(|setting| {
            let row = told.out.lines().find(|line| {
                let mut cells = line.split('|').skip(1).map(str::trim);
                cells.next() == Some(probe) && cells.next() == Some(setting)
            });
            row.unwrap_or_else(|| panic!("{probe}, {setting}: {}", told.out))
        })
    });
    assert!(
        rows[0][1]
            .trim_end()
            .ends_with("|       - |             - |"),
        "{}",
        rows[0][1]
    );
    assert!(rows[1][1].contains(" of 2 "), "{}", rows[1][1]);
    let results = fs::read_to_string(place.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    assert!(
        results["words"][3]["changed"]["mean"].is_number(),
        "{}",
        results["words"]
    );
    // Finished probes are kept.
    assert!(sweep().err.contains("2 runs, 2 of them done"));
    assert_eq!(answers(), first);
    // More probes need no new run; after more steps, all probes are repeated.
    write(&probes("\"swapped\", \"symbols\""));
    let again = sweep();
    assert!(!again.err.contains("starts"), "{}", again.err);
    assert!(again.out.contains("| symbols "));
    write(&probes("\"swapped\"").replace("train.steps = 2", "train.steps = 3"));
    let longer = sweep();
    assert!(
        longer.err.contains("aaw seed 1: starts") && longer.err.contains("aaw seed 1: probing")
    );
    assert!(!answers().contains("symbols"));

    write(&probes("\"swaped\""));
    let typo = run(directory.path(), "sweep trial.toml");
    assert_snapshot!(typo.err);
    write(&probes("\"swapped\"").replace("frozen-lake", "frozen-lake-pqn"));
    let network = run(directory.path(), "sweep trial.toml");
    assert_snapshot!(network.err);
}

/// Results of a sweep in progress name the missing runs.
#[cfg(unix)]
#[test]
fn results_are_written_after_each_run() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let directory = tempfile::tempdir().unwrap();
    let file = FILE.split("[settings.broken]").next().unwrap();
    let endless = file.replace("[settings.top]", "[settings.top]\ntrain.steps = 100000");
    fs::write(directory.path().join("trial.toml"), endless).unwrap();
    let mut command = lapwing(directory.path(), "sweep trial.toml");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.spawn().unwrap();
    let results = directory.path().join("sweeps/trial/results.md");
    until("no results", &|| results.is_file());
    kill(Pid::from_raw(program.id() as i32), Signal::SIGTERM).unwrap();
    let told = Ended::new(directory.path(), program.wait_with_output().unwrap());
    assert_eq!(told.code, 130, "{}", told.err);
    let results = fs::read_to_string(results).unwrap();
    let table = results.lines().nth(2).unwrap();
    assert!(table.starts_with("| aaw     | 1 of 2 |"), "{results}");
    let note = "Not finished: aaw has 1 of 2 seeds (not 2); top has 0 of 2 seeds (not 1, 2).";
    assert!(results.contains(note), "{results}");
}

/// The runs of a killed sweep end, and the next sweep resumes them. Only one sweep works in a directory.
#[cfg(unix)]
#[test]
fn a_killed_sweep_is_continued() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use std::io::{BufRead, BufReader};

    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let file = FILE.split("[settings.top]").next().unwrap();
    let endless = file.replace("train.steps = 2", "train.steps = 100000");
    fs::write(home.join("trial.toml"), endless).unwrap();
    let start = || {
        let mut command = lapwing(home, "sweep trial.toml");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let metrics = home.join("sweeps/trial/aaw/seed-1/metrics.jsonl");
    let records = || fs::read_to_string(&metrics).unwrap_or_default();
    let mut first = start();
    until("no step", &|| records().contains("\"kind\":\"step\""));
    let second = run(home, "sweep trial.toml");
    assert_eq!(second.code, 1);
    assert_snapshot!(second.err, @"error: sweeps/trial is in use by another lapwing: wait until it is done");
    let watched = succeeds(home, "watch sweeps --once").out;
    assert!(watched.starts_with("sweeps/trial: running\n"), "{watched}");
    assert!(
        watched.contains("\naaw seed-1  ") && watched.contains("/100000  "),
        "{watched}"
    );

    // Nothing is left to its handlers.
    first.kill().unwrap();
    first.wait().unwrap();
    let mut next = start();
    let mut lines = BufReader::new(next.stderr.take().unwrap()).lines();
    let is_start = |line: &String| line.ends_with("aaw seed 1: starts");
    let start = lines.by_ref().map(Result::unwrap).find(is_start);
    assert!(start.is_some(), "the next sweep starts the run again");
    let before = records().len();
    until("not resumed", &|| records().len() > before);
    kill(Pid::from_raw(next.id() as i32), Signal::SIGTERM).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(
        rest.iter()
            .any(|line| line == "aaw seed 1: stopped and saved"),
        "{rest:?}"
    );
    assert_eq!(next.wait().unwrap().code(), Some(130));
    let watched = succeeds(home, "watch sweeps/trial").out;
    assert!(
        watched.starts_with("sweeps/trial: stopped with 0 runs done; "),
        "{watched}"
    );
}

/// Removes the times from results.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.contains("seconds"));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(values) => values.iter_mut().for_each(without_times),
        _ => (),
    }
}

/// Parts that run at the same time complete a sweep, and the results are those of one process.
#[test]
fn parts_are_the_whole_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let file = FILE.split("[settings.broken]").next().unwrap();
    fs::write(home.join("trial.toml"), file).unwrap();
    let spawn = |part| {
        let mut command = lapwing(home, &format!("sweep trial.toml --part {part}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let parts = ["1/3", "2/3", "3/3"].map(spawn);
    let told = parts.map(|part| Ended::new(home, part.wait_with_output().unwrap()));
    for (part, runs) in told.iter().zip([2, 1, 1]) {
        assert_eq!(part.code, 0, "{}", part.err);
        let runs = counted_runs(runs);
        assert!(
            part.err
                .contains(&format!(", {runs} of 4, 0 of them done; 1 at a time")),
            "{}",
            part.err
        );
        assert!(
            part.err
                .contains(&format!(" of {runs} done; the whole sweep: ")),
            "{}",
            part.err
        );
        assert!(
            part.out.contains("report.html and the runs."),
            "{}",
            part.out
        );
    }
    let begun = told[0]
        .err
        .lines()
        .filter(|line| line.ends_with(": starts"));
    assert_eq!(
        begun.collect::<Vec<_>>(),
        ["aaw seed 1: starts", "top seed 2: starts"]
    );
    let last = told
        .iter()
        .filter(|part| part.last().ends_with("the whole sweep: 4 of 4"));
    assert!(last.count() >= 1, "{}", told[0].err);

    let results = |place: &str| {
        let text = fs::read_to_string(home.join(place).join("results.json")).unwrap();
        let mut results = serde_json::from_str(&text).unwrap();
        without_times(&mut results);
        results
    };
    let divided = results("sweeps/trial");
    assert_eq!(divided["runs"].as_array().unwrap().len(), 4);
    succeeds(home, "sweep trial.toml --out whole");
    assert_eq!(divided, results("whole"));

    // More parts than runs.
    let idle = succeeds(home, "sweep trial.toml --part 5/5");
    assert_snapshot!(idle.err, @"
    trial: part 5/5, 0 runs of 4, 0 of them done; 1 at a time, kept in sweeps/trial
    note: this part has nothing to do: there are more parts than runs
    part 5/5: 0 of 0 runs done; the whole sweep: 4 of 4
    ");
    // The tables alone, after those that another process writes.
    fs::remove_file(home.join("sweeps/trial/results.json")).unwrap();
    let other = fs::File::open(home.join("sweeps/trial/.lock-results")).unwrap();
    other.lock().unwrap();
    let mut command = lapwing(home, "sweep trial.toml --results");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shown = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(shown.try_wait().unwrap().is_none());
    drop(other);
    let shown = Ended::new(home, shown.wait_with_output().unwrap());
    assert_eq!((shown.code, &*shown.err, &shown.out), (0, "", &idle.out));
    assert_eq!(divided, results("sweeps/trial"));

    // The runs of other parts are checked, too, because they are in the tables.
    let longer = file.replace("train.group_size = 4", "train.group_size = 6");
    fs::write(home.join("trial.toml"), longer).unwrap();
    for arguments in ["--part 5/5", "--results"] {
        let refused = run(home, &format!("sweep trial.toml {arguments}"));
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(
            refused.err.contains("made with another config"),
            "{}",
            refused.err
        );
    }
}

fn counted_runs(runs: usize) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

/// A SLURM job array is a division.
#[test]
fn a_task_of_slurm_runs_its_part() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    fs::write(home.join("trial.toml"), "[settings.a]\n[settings.b]\n").unwrap();
    let array = |values: [&str; 5], arguments: &str| {
        let mut command = lapwing(home, &format!("sweep trial.toml {arguments}"));
        for (name, value) in ["ID", "MIN", "MAX", "COUNT", "STEP"].iter().zip(values) {
            command.env(format!("SLURM_ARRAY_TASK_{name}"), value);
        }
        Ended::new(home, command.output().unwrap())
    };
    // Both have nothing to do.
    let [from_0, from_1] = [["7", "0", "7", "8", "1"], ["8", "1", "8", "8", "1"]].map(|values| {
        let task = array(values, "");
        assert_eq!(task.code, 0, "{}", task.err);
        task.err
    });
    assert_snapshot!(from_0, @"
    trial: part 8/8 (from SLURM_ARRAY_TASK_ID), 0 runs of 2, 0 of them done; 1 at a time, kept in sweeps/trial
    note: this part has nothing to do: there are more parts than runs
    part 8/8: 0 of 0 runs done; the whole sweep: 0 of 2
    ");
    assert_eq!(from_0, from_1);
    let other = array(["0", "0", "7", "8", "1"], "--part 4/4");
    assert!(
        other.err.starts_with("trial: part 4/4, 0 runs of 2, "),
        "{}",
        other.err
    );
    let sparse = array(["2", "1", "9", "3", "1"], "");
    assert_eq!(sparse.code, 2);
    assert_snapshot!(sparse.err, @"error: SLURM_ARRAY_TASK_ID, _MIN, _MAX, _COUNT, _STEP: found 2, 1, 9, 3, 1; wanted a range of task ids, as of --array=0-7 or 0-14:2; otherwise give --part K/N (1/1 is all)");
    assert!(!home.join("sweeps/trial/a").exists());
}

/// A part that was killed is run again, beside the other part. Nothing else runs meanwhile.
#[cfg(unix)]
#[test]
fn a_killed_part_is_continued() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let file = FILE.split("[settings.broken]").next().unwrap();
    let endless = file.replace(
        "[settings.top]",
        "[settings.top]\ntrain.steps = 100000\ntrain.group_size = 100",
    );
    fs::write(home.join("trial.toml"), endless.replace("[1, 2]", "[1]")).unwrap();
    let start = |part| {
        let mut command = lapwing(home, &format!("sweep trial.toml --part {part}"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let steps = || {
        let metrics = home.join("sweeps/trial/top/seed-1/metrics.jsonl");
        let metrics = fs::read_to_string(metrics).unwrap_or_default();
        metrics.matches("\"kind\":\"step\"").count()
    };
    let mut killed = start("2/2");
    until("no step", &|| steps() > 0);
    for (arguments, problem) in [
        ("", "sweeps/trial"),
        ("--part 2/2", "sweeps/trial/.lock-2-of-2"),
        ("--part 1/3", "sweeps/trial/.lock-2-of-2"),
    ] {
        let refused = run(home, &format!("sweep trial.toml {arguments}"));
        let problem =
            format!("error: {problem} is in use by another lapwing: wait until it is done\n");
        assert_eq!((refused.code, refused.err), (1, problem));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let again = start("2/2");
    let other = succeeds(home, "sweep trial.toml --part 1/2");
    assert!(
        other
            .err
            .contains("part 1/2: 1 of 1 run done; the whole sweep: 1 of 2"),
        "{}",
        other.err
    );
    assert!(
        other.out.contains("top has 0 of 1 seeds (not 1)"),
        "{}",
        other.out
    );
    let shown = succeeds(home, "sweep trial.toml --results");
    assert_eq!(shown.out, other.out);
    let before = steps();
    until("not resumed", &|| steps() > before);
    // A scheduler signals all processes.
    let children = format!("/proc/{0}/task/{0}/children", again.id());
    let children = fs::read_to_string(children).unwrap_or_default();
    let ids = children.split_whitespace().map(|id| id.parse().unwrap());
    for id in ids.chain([again.id() as i32]) {
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
    }
    let again = Ended::new(home, again.wait_with_output().unwrap());
    assert_eq!(again.code, 130);
    let end = "\npart 2/2: 0 of 1 run done; the whole sweep: 1 of 2\nstopped at 0 of 1 run; the same command continues the sweep\n";
    assert!(again.err.ends_with(end), "{}", again.err);
    assert!(
        again.err.contains("\ntop seed 1: starts\n"),
        "{}",
        again.err
    );
    let log = fs::read_to_string(home.join("sweeps/trial/top/seed-1.log")).unwrap();
    assert!(
        log.lines().last().unwrap().contains(", and saved; "),
        "{log}"
    );
}
