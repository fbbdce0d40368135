//! `lapwing watch`: the progress of a run, from the files that it writes.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use console::Term;
use lapwing_train::record::metrics::now;
use lapwing_train::record::{Record, directory, jsonl};
use lapwing_train::{Config, Error};

use crate::args::WatchArgs;
use crate::describe;
use crate::keys::QuitKey;
use crate::out::line;
use crate::picture::Picture;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

static STOP: AtomicBool = AtomicBool::new(false);

/// Shows the run until it ends or the user quits; with `--once`, only its current state.
pub fn watch(arguments: &WatchArgs) -> Result<()> {
    let run = &arguments.run;
    directory::is_run(run)?;
    let config = Config::load(&directory::config(run).to_string_lossy(), &[])?;
    if arguments.once {
        let width = Term::stdout().size_checked().map_or(80, |size| size.1);
        let mut files = RunFiles::default();
        files.update(run)?;
        write!(io::stdout(), "{}", files.drawn(run, &config, width.into()))?;
        return Ok(());
    }
    ctrlc::set_handler(|| STOP.store(true, Relaxed))?;
    match io::stdout().is_terminal() {
        true => on_screen(run, &config),
        false => in_lines(run, &config),
    }
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

fn on_screen(run: &Path, config: &Config) -> Result<()> {
    let keys = QuitKey::listen();
    let screen = AlternateScreen::open()?;
    let mut files = RunFiles::default();
    let text = loop {
        let (height, width) = Term::stdout().size();
        files.update(run)?;
        let text = files.drawn(run, config, width.into());
        screen.show(&text, height.into())?;
        if !files.running || keys.quit_within(POLL_INTERVAL, &STOP) {
            break text;
        }
    };
    drop(screen);
    write!(io::stdout(), "{text}")?;
    Ok(())
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
        std::thread::sleep(POLL_INTERVAL);
        if STOP.load(Relaxed) {
            return Ok(());
        }
    }
}
