//! `lapwing sweep`: the runs of a sweep file, each in a process of its own, and a table of what came of them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lapwing_lab::report;
use lapwing_lab::sweep::{Cell, Compare, Results, Sweep};
use lapwing_model::write_atomically;
use lapwing_play::probe::Verdict;
use lapwing_train::Config;
use lapwing_train::checkpoint::differences;
use lapwing_train::record::directory;

use crate::args;
use crate::interrupt::{self, Stopped};
use crate::out;

/// How often the runs are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is told how far they are.
const TELL: Duration = Duration::from_secs(30);

/// Runs that came to nothing; the rest has its table.
#[derive(Debug, thiserror::Error)]
#[error(
    "{failed} of {all} runs failed: {logs}; the same command tries them again, and nothing else"
)]
pub struct Failed {
    failed: usize,
    all: usize,
    logs: String,
}

/// A run of an earlier sweep is in the way.
#[derive(Debug, thiserror::Error)]
#[error("{} was made with another config: {}; change that back, or choose another place (--out, or `name` in the file)",
    .path.display(), .differences.join("; "))]
struct Other {
    path: PathBuf,
    differences: Vec<String>,
}

/// Runs what is not there yet, and prints and writes the results.
pub fn sweep(adapter_index: Option<usize>, arguments: &args::Sweep) -> Result<()> {
    let sweep = Sweep::load(&arguments.file)?;
    let place = match &arguments.out {
        Some(out) => out.clone(),
        None => Path::new("sweeps").join(&sweep.name),
    };
    let mut waiting: Vec<&Cell> = Vec::new();
    for cell in sweep.in_order() {
        check_same(cell, &place)?;
        if !cell.is_done(&place, &sweep.compare) {
            waiting.push(cell);
        }
    }
    let (all, wanted) = (sweep.runs.len(), waiting.len());
    out::note(&format!(
        "{}: {all} runs, {} of them done; {} at a time, kept in {}",
        sweep.name,
        all - wanted,
        arguments.jobs,
        place.display()
    ));
    let stop = interrupt::listen(interrupt::STEP_IS_SAVED)?;
    // What is there is written after every run, for whoever looks at it meanwhile, and if this program is killed.
    let after_each = || match write_results(&Results::of(&sweep, &place), &place) {
        Ok(()) => (),
        Err(error) => out::note(&format!("no results by now: {error:#}")),
    };
    let how = How {
        place: &place,
        compare: &sweep.compare,
        adapter_index,
    };
    let failed = run_all(waiting, &how, arguments.jobs, stop, &after_each)?;

    let results = Results::of(&sweep, &place);
    if !results.runs.is_empty() {
        write_results(&results, &place)?;
        let dirs: Vec<PathBuf> = sweep
            .runs
            .iter()
            .filter(|cell| cell.outcome(&place).is_some())
            .map(|cell| cell.directory(&place))
            .collect();
        report::write(&dirs, &place.join("report.html"))?;
        let mut out = out::shown();
        write!(out, "{}", results.markdown())?;
        let shown = place.display();
        writeln!(
            out,
            "\nIn {shown}: results.md, results.csv, results.json, results.svg, report.html and the runs."
        )?;
    }
    if stop.load(Relaxed) {
        return Err(Stopped::sweep(all - results.missing.len(), all).into());
    }
    if !failed.is_empty() {
        let logs: Vec<String> = failed.iter().map(|log| log.display().to_string()).collect();
        return Err(Failed {
            failed: failed.len(),
            all,
            logs: logs.join(", "),
        }
        .into());
    }
    Ok(())
}

/// A run that is there must be the one that is asked for.
fn check_same(cell: &Cell, place: &Path) -> Result<()> {
    let path = cell.directory(place);
    let config = directory::config(&path);
    if !config.is_file() {
        return Ok(());
    }
    let was = Config::load(&config.to_string_lossy(), &[])
        .with_context(|| format!("the run in {}", path.display()))?;
    let mut differences = differences(&was, &cell.config);
    let steps = [was.train.steps, cell.config.train.steps];
    if steps[0] > steps[1] {
        differences.push(format!("train.steps was {}, is {}", steps[0], steps[1]));
    }
    match differences.is_empty() {
        true => Ok(()),
        false => Err(Other { path, differences }.into()),
    }
}

/// What all runs have in common.
struct How<'a> {
    place: &'a Path,
    compare: &'a Compare,
    adapter_index: Option<usize>,
}

/// A run at work.
struct Job<'a> {
    cell: &'a Cell,
    child: Child,
    log: PathBuf,
    /// that which was trained is asked to follow probes
    is_probed: bool,
}

/// Runs all of these, so many at a time, and returns the logs of those that failed. `after_each` is called when one has
/// come to its end.
fn run_all(
    waiting: Vec<&Cell>,
    how: &How<'_>,
    jobs: usize,
    stop: &AtomicBool,
    after_each: &dyn Fn(),
) -> Result<Vec<PathBuf>> {
    let (mut waiting, mut at_work, mut failed) = (waiting.into_iter(), Vec::new(), Vec::new());
    let (mut told, mut asked) = (Instant::now(), false);
    loop {
        while at_work.len() < jobs && !stop.load(Relaxed) {
            match waiting.next() {
                Some(cell) => at_work.push(begin(cell, how)?),
                None => break,
            }
        }
        if at_work.is_empty() {
            return Ok(failed);
        }
        if stop.load(Relaxed) && !asked {
            asked = true;
            at_work.iter().for_each(ask_to_stop);
        }
        sleep(LOOK);
        let mut still = Vec::new();
        for mut job in at_work {
            match job.child.try_wait()? {
                None => still.push(job),
                Some(status) => {
                    if status.success() && job.is_probed {
                        let answers = job.cell.probes(how.place);
                        fs::rename(unfinished(&answers), &answers)
                            .with_context(|| format!("cannot write {}", answers.display()))?;
                    }
                    out::note(&ended(&job, how.place, status));
                    let is_stopped = status.code() == Some(i32::from(interrupt::STATUS));
                    let cell = job.cell;
                    let is_done = cell.is_done(how.place, how.compare);
                    let is_trained = !job.is_probed && cell.outcome(how.place).is_some();
                    if status.success() {
                        after_each();
                    }
                    match status.success() {
                        true if is_done => (),
                        true if is_trained && stop.load(Relaxed) => (),
                        true if is_trained => still.push(begin(cell, how)?),
                        // One that ended well and says nothing of what was asked has failed too.
                        _ if is_stopped => (),
                        _ => failed.push(job.log),
                    }
                }
            }
        }
        at_work = still;
        if told.elapsed() >= TELL {
            told = Instant::now();
            let trained = at_work.iter().filter(|job| !job.is_probed);
            trained.for_each(|job| out::note(&under_way(job.cell, how.place)));
        }
    }
}

/// Begins a run, goes on with it, or asks what it has learned. Ctrl-C reaches this process alone, which hands it on once.
fn begin<'a>(cell: &'a Cell, how: &How<'_>) -> Result<Job<'a>> {
    let directory = cell.directory(how.place);
    let log = directory.with_extension("log");
    let folder = directory.parent().expect("a folder for each setting");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut options = File::options();
    let file = options.create(true).append(true).open(&log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    let is_probed = cell.outcome(how.place).is_some();
    let answers = cell.probes(how.place);
    if is_probed {
        let probes = how.compare.probes.join(",");
        command.arg("probe").arg(&directory);
        command.args(["--json", "--probes", &probes]);
        let unfinished = File::create(unfinished(&answers));
        command.stdout(unfinished.context("cannot write what comes of probes")?);
    } else {
        // What an earlier end of it was asked says nothing of the next.
        let _ = fs::remove_file(&answers);
        train(&mut command, cell, &directory);
        command.stdout(file.try_clone()?);
    }
    if let Some(index) = how.adapter_index {
        command.arg("--adapter-index").arg(index.to_string());
    }
    command.stdin(Stdio::null()).stderr(file);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let begins = if is_probed { "is probed" } else { "begins" };
    out::note(&format!("{} seed {}: {begins}", cell.setting, cell.seed));
    let child = command.spawn().context("cannot begin a run")?;
    Ok(Job {
        cell,
        child,
        log,
        is_probed,
    })
}

/// What is being asked: what was answered before stays until it is done.
fn unfinished(answers: &Path) -> PathBuf {
    answers.with_extension("part")
}

/// Trains this run from its beginning, or from where it was left.
fn train(command: &mut Command, cell: &Cell, directory: &Path) {
    command.arg("train");
    match directory::config(directory).is_file() {
        true => {
            command.arg("--resume").arg(directory);
            // What may differ from the run that is there, such as more steps.
            command.args(["--set", &format!("train.steps={}", cell.config.train.steps)]);
        }
        false => {
            command.arg(&cell.base).arg("--out").arg(directory);
            for set in &cell.set {
                command.args(["--set", set]);
            }
        }
    }
}

/// The run finishes its step and saves.
#[cfg(unix)]
fn ask_to_stop(job: &Job<'_>) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    // One that has just ended needs no asking.
    let _ = kill(Pid::from_raw(job.child.id() as i32), Signal::SIGTERM);
}

/// Elsewhere Ctrl-C reaches all programs of a terminal.
#[cfg(not(unix))]
fn ask_to_stop(_: &Job<'_>) {}

fn ended(job: &Job<'_>, place: &Path, status: ExitStatus) -> String {
    let Job { cell, log, .. } = job;
    let how = match cell.outcome(place) {
        Some(outcome) if status.success() && job.is_probed => {
            let count = outcome
                .probes
                .values()
                .filter(|p| p.after.verdict == Verdict::Reads);
            format!(
                "done: reads {} of {} probes",
                count.count(),
                outcome.probes.len().saturating_sub(1)
            )
        }
        Some(outcome) if status.success() => {
            let after = &outcome.after;
            format!(
                "done: success {:.3}, return {:.3}",
                after.success_rate, after.return_mean
            )
        }
        _ if status.code() == Some(i32::from(interrupt::STATUS)) => "stopped and saved".to_owned(),
        _ => {
            let text = fs::read_to_string(log).unwrap_or_default();
            let last = text
                .lines()
                .rfind(|line| line.starts_with("error"))
                .unwrap_or("no word");
            format!("failed ({status}): {last}")
        }
    };
    format!("{} seed {}: {how}", cell.setting, cell.seed)
}

fn under_way(cell: &Cell, place: &Path) -> String {
    let (step, steps) = (cell.steps_done(place), cell.config.train.steps);
    format!("{} seed {}: step {step}/{steps}", cell.setting, cell.seed)
}

fn write_results(results: &Results, place: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(results).expect("results are plain values") + "\n";
    let files = [
        ("results.md", results.markdown()),
        ("results.csv", results.csv()),
        ("results.json", json),
        ("results.svg", results.figure()),
    ];
    for (name, text) in files {
        write_atomically(&place.join(name), text.as_bytes())?;
    }
    Ok(())
}
