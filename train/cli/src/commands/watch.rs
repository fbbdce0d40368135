//! `lapwing watch`: the progress of a run or of a sweep, from the files that it writes.

use std::io::{self, IsTerminal, Write};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use console::{Term, truncate_str};
use lapwing_lab::sweep::setting_of;
use lapwing_lab::text_table::TextTable;
use lapwing_model::read_text;
use lapwing_train::record::metrics::now;
use lapwing_train::record::{Record, directory, jsonl};
use lapwing_train::runs::runs_in;
use lapwing_train::{Config, Error};
use serde_json::Value;

use crate::args::WatchArgs;
use crate::out::{self, line};
use crate::picture::Picture;
use crate::{describe, records};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Between tables of a sweep, without a terminal.
const TABLE_INTERVAL: Duration = Duration::from_secs(10);

static STOP: AtomicBool = AtomicBool::new(false);

/// Shows the run or sweep until it ends or the user quits; with `--once`, only its current state.
pub fn watch(arguments: &WatchArgs) -> Result<()> {
    let run = &*newest(&arguments.run);
    let is_sweep = run.join("lock").is_file() && directory::is_run(run).is_err();
    let config = match is_sweep {
        true => Config::default(),
        false => Config::of_run(run)?,
    };
    let mut files = RunFiles::default();
    let mut draw = |width: usize| {
        if is_sweep {
            return drawn_sweep(run, width);
        }
        files.update(run)?;
        Ok((files.drawn(run, &config, width), files.running))
    };
    let is_terminal = io::stdout().is_terminal();
    if arguments.once || is_sweep && !is_terminal {
        loop {
            let width = Term::stdout().size_checked().map_or(80, |size| size.1);
            let (text, running) = draw(width.into())?;
            write!(io::stdout(), "{text}")?;
            if arguments.once || !running {
                return Ok(());
            }
            std::thread::sleep(TABLE_INTERVAL);
        }
    }
    ctrlc::set_handler(|| STOP.store(true, Relaxed))?;
    match is_terminal {
        true => on_screen(draw),
        false => in_lines(run, &config),
    }
}

/// Returns the run or sweep in a directory of them that was started last, if possible one in progress.
fn newest(path: &Path) -> PathBuf {
    let started = |run: &PathBuf| directory::sessions(run).metadata()?.modified();
    let last = |run: &PathBuf| (directory::is_in_use(run), started(run).ok());
    let newest = runs_in(path).into_iter().max_by_key(last);
    let newest = newest.unwrap_or(path.to_owned());
    let mut above = newest.ancestors().skip(1);
    let sweep = above.find(|at| at.starts_with(path) && at.join("lock").is_file());
    let newest = sweep.unwrap_or(&newest);
    if newest != path {
        out::note(&format!("follows {}", newest.display()));
    }
    newest.to_owned()
}

/// Returns the step of a run, success and return of its last evaluation, and its state.
pub fn progress(run: &Path) -> Result<[String; 4], Error> {
    let (config, mut files) = (Config::of_run(run)?, RunFiles::default());
    files.update(run)?;
    let done = records::steps(&files.records).last();
    let last = records::evaluations(&files.records).last();
    let scores = last.map(|last| [last.play.success_rate, last.play.return_mean]);
    let [success, mean] = scores.map_or(["-", "-"].map(str::to_owned), |scores| {
        scores.map(|score| format!("{score:.3}"))
    });
    let state = files.picture(run, &config).state();
    let state = state.split(';').next().unwrap_or_default().to_owned();
    let step = format!(
        "{}/{}",
        done.map_or(0, |step| step.step),
        config.train.steps
    );
    Ok([step, success, mean, state])
}

/// Draws a table of the runs that a sweep has started. Returns it, and whether the sweep is running.
fn drawn_sweep(path: &Path, width: usize) -> Result<(String, bool)> {
    // Before the runs, which are complete if the sweep has ended.
    let running = directory::is_in_use(path);
    let row = |run: &PathBuf| {
        let (setting, seed) = (setting_of(run), run.file_name().unwrap_or_default());
        let name = format!("{} {}", setting.unwrap_or_default(), seed.display());
        let columns = ["run", "step", "success", "return", "state"];
        let cells = iter::once(line(&name).into_owned()).chain(progress(run)?);
        Ok(columns.into_iter().zip(cells).collect())
    };
    let runs = runs_in(path);
    let rows = runs.iter().map(row).collect::<Result<Vec<_>, Error>>()?;
    // Written after each run.
    let results = read_text(&path.join("results.json"), 1 << 30).unwrap_or_default();
    let results: Value = serde_json::from_str(&results).unwrap_or_default();
    let count = |list: &str| results[list].as_array().map_or(0, Vec::len);
    let done = count("runs");
    let all = runs.len().max(done + count("missing"));
    let state = match running {
        true => "running".to_owned(),
        false if done == all => format!("done: {done} of {all} runs"),
        false => format!("stopped with {done} runs done; the same command continues the sweep"),
    };
    let text = format!(
        "{}: {state}\n\n{}",
        line(&path.to_string_lossy()),
        TextTable::of(rows).text()
    );
    let cut = |row| truncate_str(row, width, "…").into_owned() + "\n";
    Ok((text.lines().map(cut).collect(), running))
}

/// The content of a run's files.
#[derive(Default)]
struct RunFiles {
    running: bool,
    bytes: u64,
    records: Vec<Record>,
}

impl RunFiles {
    /// Reads the metrics again if their size has changed.
    fn update(&mut self, run: &Path) -> Result<(), Error> {
        directory::is_run(run)?;
        // Before the metrics, which are complete if the run has ended.
        self.running = directory::is_in_use(run);
        let metrics = directory::metrics(run);
        let bytes = metrics.metadata().map_or(0, |metadata| metadata.len());
        if bytes != self.bytes {
            self.records = jsonl::read(&metrics)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    fn picture<'a>(&'a self, run: &'a Path, config: &'a Config) -> Picture<'a> {
        Picture {
            run,
            config,
            records: &self.records,
            running: self.running,
            now: now(),
        }
    }

    fn drawn(&self, run: &Path, config: &Config, width: usize) -> String {
        let picture = self.picture(run, config);
        picture.drawn(width.clamp(40, 110), console::colors_enabled())
    }
}

/// The alternate screen of the terminal, without a cursor.
struct AlternateScreen;

impl AlternateScreen {
    fn open() -> io::Result<AlternateScreen> {
        write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
        Ok(AlternateScreen)
    }

    fn show(&self, text: &str, height: usize) -> io::Result<()> {
        let mut frame = String::from("\x1b[H");
        for line in text.lines().take(height.saturating_sub(1)) {
            frame += line;
            // Clears the rest of the old line.
            frame += "\x1b[K\n";
        }
        frame += "\x1b[J";
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _ = write!(out, "\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

fn on_screen(mut draw: impl FnMut(usize) -> Result<(String, bool)>) -> Result<()> {
    let screen = AlternateScreen::open()?;
    let text = loop {
        let (height, width) = Term::stdout().size();
        let (text, running) = draw(width.into())?;
        screen.show(&text, height.into())?;
        if !running || stopped_after_a_pause() {
            break text;
        }
    };
    drop(screen);
    write!(io::stdout(), "{text}")?;
    Ok(())
}

/// Waits, and returns whether Ctrl-C was pressed.
fn stopped_after_a_pause() -> bool {
    let pauses = (0..10).map(|_| std::thread::sleep(POLL_INTERVAL / 10));
    pauses.into_iter().any(|()| STOP.load(Relaxed))
}

/// Prints a line for each new record.
fn in_lines(run: &Path, config: &Config) -> Result<()> {
    let total = config.train.steps;
    let (mut printed, mut files) = (0, RunFiles::default());
    loop {
        files.update(run)?;
        let records = &files.records;
        let mut out = io::stdout().lock();
        // A resumed run removes the records after its checkpoint.
        printed = printed.min(records.len());
        for record in &records[printed..] {
            if let Some(text) = describe::record(record) {
                writeln!(out, "step {}/{total}  {}", record.step(), line(&text))?;
            }
        }
        printed = records.len();
        if !files.running {
            writeln!(out, "{}", files.picture(run, config).state())?;
            return Ok(());
        }
        out.flush()?;
        drop(out);
        if stopped_after_a_pause() {
            return Ok(());
        }
    }
}
