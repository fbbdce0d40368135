//! Runs on several ranks, which are threads here: they end with the bytes of a run on one.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lapwing_learn::communicator::{Alone, Communicator};
use lapwing_learn::ranks::assist;
use lapwing_tensor::check::gpu;
use serde_json::Value;

use super::*;
use crate::Config;
use crate::record::directory::RunDirectory;
use crate::state::RunPurpose;
use crate::trainer::{resume, tests::left, train};

/// The connections of a thread: to and from each other rank, of which rank 0 uses all, and the others only that of rank 0.
struct Thread {
    rank: usize,
    /// Damages the weights that it receives.
    is_faulty: bool,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

impl Communicator for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        match self.rank {
            0 => {
                let others = self.to.iter().skip(1);
                others.for_each(|to| to.send(bytes.clone()).unwrap());
            }
            _ => {
                *bytes = self.from[0].recv().unwrap();
                // No other message of a run without a warm-up has as many bytes.
                if self.is_faulty && bytes.len() > 100_000 {
                    *bytes.last_mut().unwrap() ^= 1;
                }
            }
        }
    }

    fn gather(&self, own: &[u8], each: &mut dyn FnMut(&[u8])) {
        match self.rank {
            0 => {
                let others = self.from.iter().skip(1);
                others.for_each(|from| each(&from.recv().unwrap()));
            }
            _ => self.to[0].send(own.to_vec()).unwrap(),
        }
    }
}

fn connected(size: usize) -> Vec<Thread> {
    let threads = (0..size).map(|rank| Thread {
        rank,
        is_faulty: false,
        to: Vec::new(),
        from: Vec::new(),
    });
    let mut threads: Vec<Thread> = threads.collect();
    for a in 0..size {
        for b in 0..size {
            let (to, from) = channel();
            threads[a].to.push(to);
            threads[b].from.push(from);
        }
    }
    threads
}

/// Starts or resumes the run in this directory on `size` ranks.
fn train_on(size: usize, settings: &[&str], dir: &Path) {
    train_with(connected(size), settings, dir).unwrap();
}

fn train_with(mut ranks: Vec<Thread>, settings: &[&str], dir: &Path) -> Result<(), Error> {
    let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    let config = Config::load("frozen-lake", &settings).unwrap();
    let stop = AtomicBool::new(false);
    let state = || State::new(&gpu(), None, config.clone(), RunPurpose::Train, &()).unwrap();
    thread::scope(|scope| {
        for own in ranks.drain(1..) {
            let (state, config, stop) = (&state, &config, &stop);
            scope.spawn(move || {
                let mut state = state();
                state.learner.ranks = Box::new(own);
                assist(&mut state.learner, &config.language(), stop).unwrap();
            });
        }
        let mut state = state();
        let own = ranks.remove(0);
        state.learner.ranks = match own.size() {
            1 => Box::new(Alone),
            _ => Box::new(own),
        };
        let mut run = match dir.exists() {
            false => RunDirectory::create(dir, &config).unwrap(),
            true => {
                let mut run = RunDirectory::open(dir).unwrap();
                resume(&mut state, &mut run, &()).unwrap();
                run
            }
        };
        let trained = train(&mut state, &mut run, &mut [], &(), &stop);
        dismiss(&mut state)?;
        trained.map(drop)
    })
}

/// Entropy is below the band, so each step learns, also if all returns are equal.
const SMALL: [&str; 7] = [
    // The rate of a step does not depend on the number of steps.
    "train.lr_end=1",
    "train.entropy_band=[1.5,100.0]",
    "train.groups=2",
    "train.group_size=8",
    "game.options.step_limit=8",
    "eval.episodes=3",
    "eval.every=1",
];

#[test]
fn the_number_of_ranks_does_not_change_a_bit() {
    // Several batches, updates and games; turn-level credit, ratios of episodes, and a reference from the warm-up.
    let rich = [
        "train.group_size=4",
        "train.tokens_per_batch=300",
        "train.minibatches=2",
        "train.ratio=\"episode\"",
        "train.beta=0.1",
        "warmup.updates=1",
        "warmup.episodes=4",
        "policy.constrain=true",
        "mix=[{name=\"snake\",share=0.5}]",
    ];
    let home = tempfile::tempdir().unwrap();
    for (name, more, size) in [("plain", &[][..], 4), ("rich", &rich, 3)] {
        let settings = [&SMALL[..], &["train.steps=2"], more].concat();
        let dir = |size| home.path().join(format!("{name}-{size}"));
        train_on(1, &settings, &dir(1));
        let wanted = left(&dir(1));
        let learned = |line: &Value| line["grad_norm"].as_f64() > Some(0.0);
        assert!(wanted.1.iter().any(learned));
        train_on(size, &settings, &dir(size));
        assert!(left(&dir(size)) == wanted, "{name}, {size} ranks");
    }
}

#[test]
fn a_run_resumes_with_another_number_of_ranks() {
    let home = tempfile::tempdir().unwrap();
    let [whole, parts] = ["whole", "parts"].map(|name| home.path().join(name));
    let settings = [&SMALL[..], &["warmup.updates=1", "warmup.episodes=4"]].concat();
    let until = |steps: &'static str| [&settings[..], &[steps]].concat();
    train_on(1, &until("train.steps=3"), &whole);
    train_on(3, &until("train.steps=1"), &parts);
    train_on(1, &until("train.steps=2"), &parts);
    train_on(2, &until("train.steps=3"), &parts);
    assert!(left(&parts) == left(&whole));
}

#[test]
fn ranks_that_differ_are_refused() {
    let identity = |arguments: &str| RankIdentity {
        host: "node7".to_owned(),
        number: Some(1),
        device: "Example 9000".to_owned(),
        program: 1,
        arguments: arguments.to_owned(),
        model: "ab".to_owned(),
    };
    let compared = |other: Result<RankIdentity, String>| {
        thread::scope(|scope| {
            let mut ranks = connected(2);
            let last = ranks.remove(1);
            scope.spawn(move || compare(&last, other).map(drop));
            compare(&ranks[0], Ok(identity("train"))).map_err(|error| error.to_string())
        })
    };
    assert_eq!(compared(Ok(identity("train"))).unwrap().len(), 2);
    assert_eq!(
        compared(Ok(identity("train --steps 3"))).unwrap_err(),
        "rank 1 on node7 has other arguments than rank 0 on node7: all ranks need the same"
    );
    let lost = "rank 1 on node7: no GPU found";
    assert_eq!(compared(Err(lost.to_owned())).unwrap_err(), lost);
}

#[test]
fn a_rank_with_other_weights_ends_the_run() {
    let home = tempfile::tempdir().unwrap();
    let mut ranks = connected(3);
    ranks[2].is_faulty = true;
    let settings = [&SMALL[..], &["train.steps=1"]].concat();
    let error = train_with(ranks, &settings, &home.path().join("run")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 2 has other trained weights than rank 0 at step 0: its device or its memory is faulty"
    );
}
