//! `lapwing sweep`: the runs of a sweep file, each in a process of its own, and a table of what came of them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lapwing_model::write_aside;
use lapwing_train::Config;
use lapwing_train::record::{directory, report};
use lapwing_train::run::checkpoint::differences;
use lapwing_train::run::sweep::{Cell, Results, Sweep};

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
        if cell.outcome(&place).is_none() {
            waiting.push(cell);
        }
    }
    let (all, wanted) = (sweep.cells.len(), waiting.len());
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
    let failed = run_all(
        waiting,
        &place,
        arguments.jobs,
        adapter_index,
        stop,
        &after_each,
    )?;

    let results = Results::of(&sweep, &place);
    if !results.runs.is_empty() {
        write_results(&results, &place)?;
        let dirs: Vec<PathBuf> = sweep
            .cells
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

/// A run at work.
struct Job<'a> {
    cell: &'a Cell,
    child: Child,
    log: PathBuf,
}

/// Runs all of these, so many at a time, and returns the logs of those that failed. `after_each` is called when one has
/// come to its end.
fn run_all(
    waiting: Vec<&Cell>,
    place: &Path,
    jobs: usize,
    adapter_index: Option<usize>,
    stop: &AtomicBool,
    after_each: &dyn Fn(),
) -> Result<Vec<PathBuf>> {
    let (mut waiting, mut at_work, mut failed) = (waiting.into_iter(), Vec::new(), Vec::new());
    let (mut told, mut asked) = (Instant::now(), false);
    loop {
        while at_work.len() < jobs && !stop.load(Relaxed) {
            match waiting.next() {
                Some(cell) => at_work.push(begin(cell, place, adapter_index)?),
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
                    out::note(&ended(&job, place, status));
                    if status.success() {
                        after_each();
                    }
                    let is_stopped = status.code() == Some(i32::from(interrupt::STATUS));
                    if !status.success() && !is_stopped {
                        failed.push(job.log);
                    }
                }
            }
        }
        at_work = still;
        if told.elapsed() >= TELL {
            told = Instant::now();
            at_work
                .iter()
                .for_each(|job| out::note(&under_way(job.cell, place)));
        }
    }
}

/// Begins a run, or goes on with it. Ctrl-C reaches this process alone, which hands it on once.
fn begin<'a>(cell: &'a Cell, place: &Path, adapter_index: Option<usize>) -> Result<Job<'a>> {
    let directory = cell.directory(place);
    let log = directory.with_extension("log");
    let folder = directory.parent().expect("a folder for each setting");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut options = File::options();
    let file = options.create(true).append(true).open(&log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("train");
    match directory::config(&directory).is_file() {
        true => {
            command.arg("--resume").arg(&directory);
            // What may differ from the run that is there, such as more steps.
            command.args(["--set", &format!("train.steps={}", cell.config.train.steps)]);
        }
        false => {
            command.arg(&cell.base).arg("--out").arg(&directory);
            for set in &cell.set {
                command.args(["--set", set]);
            }
        }
    }
    if let Some(index) = adapter_index {
        command.arg("--adapter-index").arg(index.to_string());
    }
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    out::note(&format!("{} seed {}: begins", cell.setting, cell.seed));
    let child = command.spawn().context("cannot begin a run")?;
    Ok(Job { cell, child, log })
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
        write_aside(&place.join(name), text.as_bytes())?;
    }
    Ok(())
}
