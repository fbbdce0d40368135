//! Warm-ups of the built-in model, with a form of replies that it cannot write: it always says one word.

use std::cell::Cell;
use std::fs;

use super::*;
use crate::record::directory::RunDirectory;
use crate::record::{NewFile, Record, RecordError, Sink};
use crate::state::RunPurpose;
use crate::trainer::{TrainingEnd, resume, train};

const TAGS: [&str; 12] = [
    "policy.reply=tags",
    "policy.max_new_tokens=14",
    "game.options.step_limit=6",
    "train.steps=2",
    "train.groups=2",
    "train.group_size=4",
    "eval.episodes=4",
    "eval.every=1",
    "record.all_episodes=true",
    "warmup.episodes=8",
    "warmup.updates=30",
    "warmup.lr=1e-2",
];

fn state(more: &[&str]) -> State {
    let settings = [&TAGS[..], more].concat();
    let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
    let config = Config::load("frozen-lake", &settings).unwrap();
    let gpu = lapwing_tensor::check::gpu();
    State::new(&gpu, None, config, RunPurpose::Train, &()).unwrap()
}

/// Counts the updates of warm-ups, and the lines about them.
#[derive(Default)]
struct Told {
    phase: Cell<&'static str>,
    updates: Cell<usize>,
    lines: Cell<usize>,
}

impl Told {
    fn updates(&self) -> usize {
        self.updates.get()
    }
}

impl Progress for Told {
    fn phase(&self, name: &'static str, _: usize, _: &'static str) {
        self.phase.set(name);
    }
    fn done(&self, _: usize) {
        self.updates
            .set(self.updates.get() + usize::from(self.phase.get() == "warm-up"));
    }
    fn line(&self, text: &str) {
        self.lines
            .set(self.lines.get() + usize::from(text.starts_with("warm-up ")));
    }
}

/// A sink that fails at the first record, which is that of the evaluation before the first step.
struct FullDisk;

impl Sink for FullDisk {
    fn record(&mut self, _: &Record) -> Result<(), RecordError> {
        let full = std::io::Error::other("full");
        Err(crate::record::write_error("disk".as_ref())(full))
    }
}

/// Starts or resumes the run in this directory, as the program does.
fn run_in(
    dir: &Path,
    more: &[&str],
    sinks: &mut [&mut dyn Sink],
    stop: bool,
) -> (Result<TrainingEnd, Error>, Told) {
    let (mut state, told) = (state(more), Told::default());
    let mut run = match dir.exists() {
        false => RunDirectory::create(dir, &state.config).unwrap(),
        true => {
            let mut run = RunDirectory::open(dir).unwrap();
            resume(&mut state, &mut run, &()).unwrap();
            run
        }
    };
    let stop = AtomicBool::new(stop);
    let ending = train(&mut state, &mut run, sinks, &told, &stop);
    (ending, told)
}

/// Returns everything that a run leaves, except for times.
fn left(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for folder in [
        directory::warmup(dir),
        directory::adapter(dir),
        directory::best(dir),
    ] {
        for name in ["adapter_model.safetensors", "adapter_config.json"] {
            let path = folder.join(name);
            files.push((path.display().to_string(), fs::read(path).unwrap()));
        }
    }
    for path in [directory::metrics(dir), directory::episodes(dir)] {
        for line in fs::read_to_string(&path).unwrap().lines() {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            let is_time = |key: &str| key == "time" || key.starts_with("seconds_");
            line.as_object_mut().unwrap().retain(|key, _| !is_time(key));
            files.push((path.display().to_string(), line.to_string().into()));
        }
    }
    for (path, _) in &mut files {
        *path = path.replace(&dir.display().to_string(), "");
    }
    files
}

fn metrics(dir: &Path, kind: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(directory::metrics(dir)).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    records
        .filter(|it: &serde_json::Value| it["kind"] == kind)
        .collect()
}

#[test]
fn replies_become_readable_and_a_resumed_run_does_not_repeat_the_warm_up() {
    let home = tempfile::tempdir().unwrap();
    let [whole, stopped, failed] =
        ["whole", "stopped", "failed"].map(|name| home.path().join(name));

    let mut before = state(&[]);
    let mut turns = sample_turns(&mut before.learner, &before.config, &()).unwrap();
    assert_eq!(readable(&turns), "0 of 16 sampled replies can be read");
    let mut with = |read: usize| {
        turns[..read]
            .iter_mut()
            .for_each(|turn| turn.action = Some(0));
        is_unreadable(&turns)
    };
    assert_eq!([0, 7, 8].map(&mut with), [true, true, false]);

    let (ended, told) = run_in(&whole, &[], &mut [], false);
    assert_eq!(
        (ended.unwrap(), told.updates()),
        (TrainingEnd::Finished, 30)
    );
    assert_eq!(told.lines.get(), 15);
    // All of three evaluations and two steps.
    let episodes = fs::read_to_string(directory::episodes(&whole)).unwrap();
    assert_eq!(episodes.lines().count(), 3 * 4 + 2 * (2 * 4));
    let evaluations = metrics(&whole, "evaluation");
    assert_eq!(evaluations[0]["step"], 0);
    let valid = evaluations[0]["valid_action_rate"].as_f64().unwrap();
    assert!(valid > 0.5, "{valid}");
    // Updates of the warm-up are no steps, and the first step is at the reference.
    let steps = metrics(&whole, "step");
    assert_eq!([&steps[0]["step"], &steps[1]["step"]], [1, 2]);
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0]["kl"], 0.0);

    // Stopped in the warm-up, then after a step.
    let (ended, told) = run_in(&stopped, &[], &mut [], true);
    assert_eq!(
        (ended.unwrap(), told.updates()),
        (TrainingEnd::StoppedInWarmup, 1)
    );
    assert!(!directory::warmup(&stopped).exists() && !directory::checkpoints(&stopped).exists());
    let (ended, told) = run_in(&stopped, &["train.steps=1"], &mut [], false);
    assert_eq!(
        (ended.unwrap(), told.updates()),
        (TrainingEnd::Finished, 30)
    );
    let (_, told) = run_in(&stopped, &[], &mut [], false);
    assert_eq!(told.updates(), 0);
    assert!(left(&stopped) == left(&whole));

    // Ended between the warm-up and the first step.
    let (ended, told) = run_in(&failed, &[], &mut [&mut FullDisk], false);
    assert!(ended.is_err() && told.updates() == 30);
    let (ended, told) = run_in(&failed, &[], &mut [], false);
    assert_eq!((ended.unwrap(), told.updates()), (TrainingEnd::Finished, 0));
    assert!(left(&failed) == left(&whole));

    // The reference is needed for as long as the run trains.
    fs::remove_dir_all(directory::warmup(&failed)).unwrap();
    let (ended, _) = run_in(&failed, &["train.steps=3"], &mut [], false);
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("failed/warmup"), "{error}");
}

/// The same episodes give the same adapter, whether they are played or read.
#[test]
fn episodes_come_from_a_player_or_a_file() {
    let home = tempfile::tempdir().unwrap();
    let few = ["warmup.updates=2", "warmup.episodes=9", "train.steps=0"];
    let weights = |name: &str, more: &[&str]| {
        let dir = home.path().join(name);
        let (ended, _) = run_in(&dir, &[&few, more].concat(), &mut [], false);
        ended.unwrap();
        fs::read(directory::warmup(&dir).join("adapter_model.safetensors")).unwrap()
    };
    let random = weights("random", &[]);
    assert!(random != weights("scripted", &["warmup.player=scripted"]));

    let state = state(&few);
    let episodes = played(&state.learner, &state.config).unwrap();
    assert_eq!(episodes.len(), 9);
    let turn = &episodes[0].turns[0];
    let action = turn.action.as_ref().unwrap();
    assert_eq!(turn.reply, format!("<action>{action}</action>"));
    let file = home.path().join("kept.jsonl");
    let new = NewFile::at(&file, "--keep").unwrap();
    episode_file::write(&new, &episodes).unwrap();
    let player = format!("warmup.player={}", file.display());
    assert!(random == weights("file", &[&player]));
}
