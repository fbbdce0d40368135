//! `lapwing watch`: the progress of a run or of a sweep, from the files that it writes.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use console::Term;
use lapwing_lab::sweep;
use lapwing_lab::text_table::TextTable;
use lapwing_play::metrics::PlayMetrics;
use lapwing_train::record::metrics::now;
use lapwing_train::record::{Record, directory, jsonl};
use lapwing_train::{Config, Error};

use crate::args::WatchArgs;
use crate::keys::QuitKey;
use crate::out::line;
use crate::picture::Picture;
use crate::{describe, records};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

static STOP: AtomicBool = AtomicBool::new(false);

/// Shows the run, or the runs of the sweep, until all end or the user quits; with `--once`, only the current state.
pub fn watch(arguments: &WatchArgs) -> Result<()> {
    let mut watched = Watched::default();
    watched.update(&arguments.run)?;
    if arguments.once {
        let width = Term::stdout().size_checked().map_or(80, |size| size.1);
        write!(
            io::stdout(),
            "{}",
            watched.drawn(&arguments.run, width.into())
        )?;
        return Ok(());
    }
    ctrlc::set_handler(|| STOP.store(true, Relaxed))?;
    match io::stdout().is_terminal() {
        true => on_screen(&arguments.run, watched),
        false => in_lines(&arguments.run, watched),
    }
}

/// Describes the state of a run in one line; `None` if it cannot be read yet.
pub fn progress(run: &Path) -> Option<String> {
    let mut files = RunFiles::open(run).ok()?;
    files.update().ok()?;
    let [step, success, mean, state] = files.cells();
    Some(format!(
        "step {step}  success {success}  return {mean}  {state}"
    ))
}

/// A run, or the runs that a sweep has started.
#[derive(Default)]
struct Watched {
    is_sweep: bool,
    running: bool,
    runs: Vec<RunFiles>,
}

impl Watched {
    fn update(&mut self, path: &Path) -> Result<(), Error> {
        let mut runs = sweep::runs_in(path);
        // A run that is being created has no metrics yet, and perhaps half a config.
        runs.retain(|run| directory::metrics(run).exists());
        self.is_sweep = !runs.is_empty();
        if !self.is_sweep {
            directory::is_run(path)?;
            runs.push(path.to_owned());
        }
        // Before the metrics, which are complete if the run has ended.
        self.running = directory::is_in_use(path);
        for run in runs {
            if !self.runs.iter().any(|known| known.run == run) {
                self.runs.push(RunFiles::open(&run)?);
            }
        }
        self.runs.iter_mut().try_for_each(RunFiles::update)
    }

    fn drawn(&self, path: &Path, width: usize) -> String {
        if !self.is_sweep {
            let picture = self.runs[0].picture();
            return picture.drawn(width.clamp(40, 110), console::colors_enabled());
        }
        let mut table = TextTable::new(&["run", "step", "success", "return", "state"]);
        let (running, others): (Vec<_>, Vec<_>) = self.runs.iter().partition(|run| run.running);
        for run in running.iter().chain(&others) {
            table.row([&[line(&run.name()).into_owned()], &run.cells()[..]].concat());
        }
        let text = format!(
            "{}: {}\n\n{}",
            line(&path.to_string_lossy()),
            self.state(),
            table.text()
        );
        let cut = |row| format!("{}\n", console::truncate_str(row, width, "…"));
        text.lines().map(cut).collect()
    }

    fn state(&self) -> String {
        let not = if self.running { "" } else { "not " };
        match self.is_sweep {
            true => format!("a sweep, {not}running; {} runs started", self.runs.len()),
            false => self.runs[0].picture().state(),
        }
    }
}

/// The content of a run's files.
struct RunFiles {
    run: PathBuf,
    config: Config,
    running: bool,
    bytes: u64,
    records: Vec<Record>,
    /// The number of records that were printed.
    printed: usize,
}

impl RunFiles {
    fn open(run: &Path) -> Result<RunFiles, Error> {
        Ok(RunFiles {
            run: run.to_owned(),
            config: Config::load(&directory::config(run).to_string_lossy(), &[])?,
            running: false,
            bytes: 0,
            records: Vec::new(),
            printed: 0,
        })
    }

    /// Reads the metrics again if their size has changed.
    fn update(&mut self) -> Result<(), Error> {
        directory::is_run(&self.run)?;
        // Before the metrics, which are complete if the run has ended.
        self.running = directory::is_in_use(&self.run);
        let metrics = directory::metrics(&self.run);
        let bytes = metrics.metadata().map_or(0, |metadata| metadata.len());
        if bytes != self.bytes {
            self.records = jsonl::read(&metrics)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    fn picture(&self) -> Picture<'_> {
        Picture {
            run: &self.run,
            config: &self.config,
            records: &self.records,
            running: self.running,
            now: now(),
        }
    }

    /// Returns setting and seed of a run of a sweep.
    fn name(&self) -> String {
        let setting = sweep::setting_of(&self.run).unwrap_or_default();
        format!("{setting} seed {}", self.config.train.seed)
    }

    /// Returns the steps, success and return of the last evaluation, and the state.
    fn cells(&self) -> [String; 4] {
        let done = records::steps(&self.records)
            .last()
            .map_or(0, |step| step.step);
        let last = records::evaluations(&self.records).last();
        let score = |of: fn(&PlayMetrics) -> f64| {
            last.map_or("-".to_owned(), |last| format!("{:.3}", of(&last.play)))
        };
        let state = self.picture().state();
        [
            format!("{done}/{}", self.config.train.steps),
            score(|play| play.success_rate),
            score(|play| play.return_mean),
            state.split(';').next().unwrap_or_default().to_owned(),
        ]
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

fn on_screen(path: &Path, mut watched: Watched) -> Result<()> {
    let keys = QuitKey::listen();
    let screen = AlternateScreen::open()?;
    let text = loop {
        let (height, width) = Term::stdout().size();
        watched.update(path)?;
        let text = watched.drawn(path, width.into());
        screen.show(&text, height.into())?;
        if !watched.running || keys.quit_within(POLL_INTERVAL, &STOP) {
            break text;
        }
    };
    drop(screen);
    write!(io::stdout(), "{text}")?;
    Ok(())
}

/// Prints a line for each new record.
fn in_lines(path: &Path, mut watched: Watched) -> Result<()> {
    loop {
        watched.update(path)?;
        let mut out = io::stdout().lock();
        for files in &mut watched.runs {
            let total = files.config.train.steps;
            let head = match watched.is_sweep {
                true => format!("{}: ", line(&files.name())),
                false => String::new(),
            };
            // A resumed run removes the records after its checkpoint.
            files.printed = files.printed.min(files.records.len());
            for record in &files.records[files.printed..] {
                if let Some(text) = describe::record(record) {
                    writeln!(out, "{head}step {}/{total}  {}", record.step(), line(&text))?;
                }
            }
            files.printed = files.records.len();
        }
        if !watched.running {
            writeln!(out, "{}", watched.state())?;
            return Ok(());
        }
        out.flush()?;
        drop(out);
        std::thread::sleep(POLL_INTERVAL);
        if STOP.load(Relaxed) {
            return Ok(());
        }
    }
}
