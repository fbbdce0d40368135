//! A run that is killed at random moments and resumed ends with the same files.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapwing_tensor::random::Random;
use serde_json::Value;

use crate::support::{lapwing, lines as records, succeeds};

const SMALL: &str = "--steps 40 --set train.groups=2 --set train.group_size=6 --set train.learn=3 \
    --set eval.episodes=6 --set eval.every=7 --set checkpoint.every=3";

/// The number of kills. More take longer: `LAPWING_KILLS=100 cargo test -p lapwing killed`.
fn kills() -> usize {
    std::env::var("LAPWING_KILLS").map_or(10, |count| count.parse().expect("a number of kills"))
}

fn train(home: &Path, arguments: &str) -> Command {
    let mut command = lapwing(home, &format!("train {arguments}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns the records of a file, without times.
fn lines(path: &Path) -> Vec<Value> {
    let without_times = |mut value: Value| {
        let is_time = |key: &str| key == "time" || key.starts_with("seconds_");
        value
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !is_time(key));
        value
    };
    records(path).into_iter().map(without_times).collect()
}

/// The step of the latest checkpoint.
fn saved(run: &Path) -> Option<usize> {
    let entries = fs::read_dir(run.join("checkpoints")).ok()?;
    let step = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.unwrap().file_name();
        let name = name.to_str()?.strip_prefix("step-")?;
        name.strip_suffix(".safetensors")?.parse().ok()
    };
    entries.filter_map(step).max()
}

fn terminate(child: &Child) {
    let status = Command::new("kill").arg(child.id().to_string()).status();
    assert!(status.unwrap().success());
}

#[cfg(unix)]
#[test]
fn a_killed_run_ends_with_the_same_files() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64;
    println!("kills follow from the seed {seed}");
    let mut chance = Random::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    succeeds(home, &format!("train --out whole {SMALL}"));

    let (wanted, mut done, mut met, mut stopped) = (kills(), 0, 0, 0);
    for number in 0.. {
        let name = format!("killed-{number}");
        let place = home.join(&name);
        let mut last = None;
        loop {
            let arguments = match place.join("config.toml").exists() {
                true => format!("--resume {name}"),
                false => format!("--out {name} {SMALL}"),
            };
            let starts = || {
                fs::read(place.join("sessions.jsonl"))
                    .unwrap_or_default()
                    .len()
            };
            let before = starts();
            let mut child = train(home, &arguments).spawn().unwrap();
            if done < wanted {
                let metrics = || {
                    fs::read(place.join("metrics.jsonl"))
                        .unwrap_or_default()
                        .len()
                };
                let begun = metrics();
                // A start takes about a second, a run of 40 steps some more. Every second kill comes soon after a step.
                let most = match done % 2 {
                    0 => 4_000_000,
                    _ => {
                        while metrics() == begun && child.try_wait().unwrap().is_none() {
                            sleep(Duration::from_millis(10));
                        }
                        500_000
                    }
                };
                sleep(Duration::from_micros(chance.next_u64() % most));
                let is_gentle = chance.next_u64().is_multiple_of(2);
                match is_gentle {
                    true => terminate(&child),
                    false => child.kill().unwrap(),
                }
                let status = child.wait().unwrap();
                done += 1;
                met += usize::from(status.code() != Some(0) && metrics() > begun);
                // Before the run starts, the signal ends the program.
                if is_gentle && status.code() == Some(130) && starts() > before {
                    stopped += 1;
                    let steps = lines(&place.join("metrics.jsonl"));
                    let told = steps.iter().filter(|line| line["kind"] == "step").count();
                    assert_eq!(saved(&place), Some(told), "{name}: stopped and not saved");
                }
                let now = saved(&place);
                assert!(
                    now >= last,
                    "{name}: the checkpoint of {last:?} is gone: {now:?}"
                );
                last = now;
                if status.code() == Some(0) {
                    break;
                }
            } else {
                assert!(child.wait().unwrap().success(), "{name}");
                break;
            }
        }
        for file in ["metrics.jsonl", "episodes.jsonl"] {
            let (whole, killed) = (home.join("whole").join(file), place.join(file));
            assert_eq!(lines(&whole), lines(&killed), "{name}: {file}");
        }
        for file in ["adapter", "best"].map(|dir| format!("{dir}/adapter_model.safetensors")) {
            let bytes = |run: &str| fs::read(home.join(run).join(&file)).unwrap();
            assert!(bytes("whole") == bytes(&name), "{name}: {file} differs");
        }
        if done >= wanted {
            assert!(met > 0, "no kill met a run in progress");
            println!(
                "{done} kills, {met} of them after a step, {stopped} answered, in {} runs",
                number + 1
            );
            return;
        }
    }
}
