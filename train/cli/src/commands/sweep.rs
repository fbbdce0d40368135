//! `lapwing sweep`: the runs of a sweep file, each in its own process, and a table of the results.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lapwing_lab::report;
use lapwing_lab::sweep::{Sweep, SweepResults, SweepRun};
use lapwing_model::{read_text, write_atomically};
use lapwing_play::probe::Verdict;
use lapwing_train::Config;
use lapwing_train::base::files;
use lapwing_train::checkpoint::differences;
use lapwing_train::record::directory;

use super::loaded_model::InputError;
use super::watch;
use crate::args::{DeviceArgs, Part, SweepArgs};
use crate::interrupt::{self, Stopped};
use crate::screen::counted;
use crate::{launch, out};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
const NO_RESULTS: &str =
    "no run of this sweep is completed here: start the sweep, or name its directory with --out";

/// Runs what is not done yet, and prints and writes the results.
pub fn sweep(device: DeviceArgs, arguments: &SweepArgs) -> Result<()> {
    let sweep = Sweep::load(&arguments.file)?;
    let place = arguments.out.clone();
    let place = &place.unwrap_or_else(|| Path::new("sweeps").join(&sweep.name));
    // Also those of other parts, because the results include them.
    let complete = completed(&sweep, place);
    for cell in &complete {
        check_config(cell, place)?;
    }
    if arguments.results && complete.is_empty() && directory::is_in_use(place) {
        let all = counted(sweep.runs.len(), "run");
        out::status(&format!("{}: in progress, 0 of {all} done", sweep.name));
        return Ok(());
    }
    if arguments.results && complete.is_empty() {
        return Err(InputError::new(place.display(), NO_RESULTS).into());
    }
    if arguments.results {
        return show_results(&sweep, place);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let (part, origin) = match arguments.part {
        None => (Part::of_slurm(variable)?, " (from SLURM_ARRAY_TASK_ID)"),
        part => (part, ""),
    };
    let Part(number, count) = part.unwrap_or(Part(1, 1));
    let share = Part(number, count).share(sweep.in_order());
    let is_done = |cell: &&SweepRun| cell.is_done(place, &sweep.compare);
    for cell in share.iter().filter(|cell| !is_done(cell)) {
        if let Some(dir) = &cell.config.model.dir {
            files::check_exists(dir)?;
        }
    }
    if arguments.dry_run {
        for cell in &share {
            let done = if is_done(cell) { ", done" } else { "" };
            let (name, set) = (name(cell), cell.set.join(" "));
            writeln!(out::shown(), "{name}: {} with {set}{done}", cell.base)?;
        }
        return Ok(());
    }
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let _locks = directory::lock_part(place, number, count)?;
    let stop = interrupt::listen(interrupt::STEP_IS_SAVED)?;
    for cell in &share {
        check_config(cell, place)?;
        wait_for(cell, place, stop);
    }
    let (done, waiting): (Vec<_>, Vec<_>) = share.iter().partition(|cell| is_done(cell));
    let (all, own) = (sweep.runs.len(), counted(share.len(), "run"));
    let share_of_all = part.map(|part| format!("{part}{origin}, {own} of {all}"));
    out::status(&format!(
        "{}: {}, {} of them done; {} at a time, kept in {}",
        sweep.name,
        share_of_all.as_ref().unwrap_or(&own),
        done.len(),
        arguments.jobs,
        place.display()
    ));
    if share.is_empty() {
        out::note("this part has nothing to do: there are more parts than runs");
    }
    let failed = run_all(waiting, &sweep, place, device, arguments.jobs, stop)?;

    show_results(&sweep, place)?;
    let done = share.iter().copied().filter(is_done).count();
    if let Some(part) = part {
        let in_all = sweep.runs.iter().filter(is_done).count();
        let whole = format!("the whole sweep: {in_all} of {all}");
        out::status(&format!("{part}: {done} of {own} done; {whole}"));
    }
    if stop.load(Relaxed) {
        let text = format!(" at {done} of {own}; the same command continues the sweep");
        return Err(Stopped(text).into());
    }
    if !failed.is_empty() {
        let logs: Vec<String> = failed.iter().map(|log| log.display().to_string()).collect();
        bail!(
            "{} of {own} failed: {}; the same command repeats only these runs",
            failed.len(),
            logs.join(", ")
        );
    }
    Ok(())
}

/// Returns the runs that have a result.
fn completed<'a>(sweep: &'a Sweep, place: &Path) -> Vec<&'a SweepRun> {
    let runs = sweep.runs.iter();
    runs.filter(|cell| cell.outcome(place).is_some()).collect()
}

/// Checks that an existing run was made with the config of this cell.
fn check_config(cell: &SweepRun, place: &Path) -> Result<()> {
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
    if !differences.is_empty() {
        let problem = format!(
            "it was made with another config: {}; change that back, or choose another directory (--out, or `name` in the file)",
            differences.join("; ")
        );
        return Err(InputError::new(path.display(), problem).into());
    }
    Ok(())
}

/// Waits while another process trains this run, such as one whose sweep was killed: it ends after its step.
fn wait_for(cell: &SweepRun, place: &Path, stop: &AtomicBool) {
    let run = cell.directory(place);
    if directory::is_in_use(&run) {
        out::note(&format!("{}: waiting for another lapwing", name(cell)));
    }
    while directory::is_in_use(&run) && !stop.load(Relaxed) {
        sleep(POLL_INTERVAL);
    }
}

/// A process that trains or probes a run.
struct Job<'a> {
    cell: &'a SweepRun,
    child: Child,
    log: PathBuf,
    is_probe: bool,
}

/// Runs `jobs` processes at a time until all runs are done, and returns the logs of those that failed.
fn run_all(
    waiting: Vec<&SweepRun>,
    sweep: &Sweep,
    place: &Path,
    device: DeviceArgs,
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Vec<PathBuf>> {
    let start = |cell| start(cell, &sweep.compare.probes, place, device);
    let (mut waiting, mut running, mut failed) = (waiting.into_iter(), Vec::new(), Vec::new());
    let (mut printed, mut is_stopping) = (Instant::now(), false);
    loop {
        while running.len() < jobs && !stop.load(Relaxed) {
            match waiting.next() {
                Some(cell) => running.push(start(cell)?),
                None => break,
            }
        }
        if running.is_empty() {
            return Ok(failed);
        }
        if stop.load(Relaxed) && !is_stopping {
            is_stopping = true;
            for Job { child, .. } in &mut running {
                // An error means that the run has just ended.
                let _ = child.stdin.as_mut().map(|input| input.write_all(b"\n"));
            }
        }
        sleep(POLL_INTERVAL);
        for mut job in std::mem::take(&mut running) {
            let Some(status) = job.child.try_wait()? else {
                running.push(job);
                continue;
            };
            let (cell, is_success) = (job.cell, status.success());
            if is_success && job.is_probe {
                let answers = cell.probes(place);
                fs::rename(unfinished(&answers), &answers)
                    .with_context(|| format!("cannot write {}", answers.display()))?;
            }
            out::status(&outcome(&job, place, status));
            let is_trained = !job.is_probe && cell.outcome(place).is_some();
            if is_success {
                // After every run, in case this program is killed.
                if let Err(error) = write_results(sweep, place) {
                    out::warning(&format!("the results so far cannot be written: {error:#}"));
                }
                if cell.is_done(place, &sweep.compare) {
                    continue;
                }
            }
            if is_success && is_trained {
                if !stop.load(Relaxed) {
                    running.push(start(cell)?);
                }
            } else if status.code() != Some(i32::from(interrupt::STATUS)) {
                // Also one that succeeded without the expected results.
                failed.push(job.log);
            }
        }
        if printed.elapsed() >= PROGRESS_INTERVAL {
            printed = Instant::now();
            for Job { cell, .. } in running.iter().filter(|job| !job.is_probe) {
                // Before its first record, it is loading.
                if let Ok([step, success, mean, state]) = watch::progress(&cell.directory(place)) {
                    let scores = format!("success {success}  return {mean}");
                    out::status(&format!("{}: step {step}  {scores}  {state}", name(cell)));
                }
            }
        }
    }
}

/// Starts, resumes or probes a run. Ctrl-C reaches only this process, which passes it on once.
fn start<'a>(
    cell: &'a SweepRun,
    probes: &[String],
    place: &Path,
    device: DeviceArgs,
) -> Result<Job<'a>> {
    let run = cell.directory(place);
    let log = run.with_extension("log");
    let folder = run.parent().expect("a folder for each setting");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = File::options().create(true).append(true).open(&log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    launch::run_alone(&mut command);
    let is_probe = cell.outcome(place).is_some();
    let answers = cell.probes(place);
    if is_probe {
        let probes = probes.join(",");
        command.arg("probe").arg(&run);
        command.args(["--json", "--probes", &probes]);
        let unfinished = File::create(unfinished(&answers));
        command.stdout(unfinished.context("cannot write the results of probes")?);
    } else {
        // Probes of the run before these steps are out of date.
        let _ = fs::remove_file(&answers);
        command.arg("train").stdout(file.try_clone()?);
        if directory::config(&run).is_file() {
            command.arg("--resume").arg(&run);
            // The number of steps may differ from that of the existing run.
            command.args(["--set", &format!("train.steps={}", cell.config.train.steps)]);
        } else {
            command.arg(&cell.base).arg("--out").arg(&run);
            command.args(cell.set.iter().flat_map(|set| ["--set", set]));
        }
    }
    if let Some(index) = device.index {
        command.arg("--device").arg(index.to_string());
    }
    // Ends when this program does, even if it is killed.
    command.env(interrupt::OF_SWEEP, "1");
    command.stdin(Stdio::piped()).stderr(file);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let verb = if is_probe { "probing" } else { "starts" };
    out::status(&format!("{}: {verb}", name(cell)));
    Ok(Job {
        cell,
        child: command.spawn().context("cannot start a run")?,
        log,
        is_probe,
    })
}

/// Returns the file of a probe in progress. The old results stay until it is done.
fn unfinished(answers: &Path) -> PathBuf {
    answers.with_extension("part")
}

fn name(cell: &SweepRun) -> String {
    format!("{} seed {}", cell.setting, cell.seed)
}

fn outcome(job: &Job<'_>, place: &Path, status: ExitStatus) -> String {
    let outcome = job.cell.outcome(place).filter(|_| status.success());
    let how = match outcome {
        Some(outcome) if job.is_probe => {
            let probes = outcome.probes.values();
            let read = probes.filter(|p| p.after.verdict == Verdict::Reads).count();
            let all = outcome.probes.len().saturating_sub(1);
            format!("done: reads {read} of {all} probes")
        }
        Some(outcome) => {
            let (success, mean) = (outcome.after.success_rate, outcome.after.return_mean);
            format!("done: success {success:.3}, return {mean:.3}")
        }
        _ if status.code() == Some(i32::from(interrupt::STATUS)) => "stopped and saved".to_owned(),
        _ => {
            let text = read_text(&job.log, 1 << 30).unwrap_or_default();
            let error = text.lines().rfind(|line| line.starts_with("error"));
            format!("failed ({status}): {}", error.unwrap_or("no error message"))
        }
    };
    format!("{}: {how}", name(job.cell))
}

/// Writes and prints the results of the completed runs, and writes their report.
fn show_results(sweep: &Sweep, place: &Path) -> Result<()> {
    let (results, lock) = write_results(sweep, place)?;
    if results.runs.is_empty() {
        return Ok(());
    }
    let runs = completed(sweep, place).into_iter();
    let runs: Vec<PathBuf> = runs.map(|cell| cell.directory(place)).collect();
    let notes = report::write(&runs, &place.join("report.html"))?;
    // Before printing, which may wait for a reader.
    drop(lock);
    notes.iter().for_each(|note| out::note(note));
    writeln!(
        out::shown(),
        "{}\nIn {}: results.md, results.csv, results.json, report.html and the runs.",
        results.markdown(),
        place.display()
    )?;
    Ok(())
}

/// Writes the results of the completed runs. Under the returned lock, so that they do not replace newer ones of another part.
fn write_results(sweep: &Sweep, place: &Path) -> Result<(SweepResults, File)> {
    let lock = File::create(place.join(".lock-results"));
    let lock = lock.and_then(|file| file.lock().map(|()| file));
    let lock = lock.with_context(|| format!("cannot lock the results in {}", place.display()))?;
    let results = SweepResults::of(sweep, place);
    let json = serde_json::to_string_pretty(&results).expect("results are plain values") + "\n";
    let files = [
        ("results.md", results.markdown()),
        ("results.csv", results.csv()),
        ("results.json", json),
    ];
    for (name, text) in files.iter().filter(|_| !results.runs.is_empty()) {
        write_atomically(&place.join(name), text.as_bytes())?;
    }
    Ok((results, lock))
}
