//! `lapwing watch`: a run as it goes, from the files that it writes.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use console::Term;
use lapwing_train::record::metrics::now;
use lapwing_train::record::{Record, directory, jsonl};
use lapwing_train::{Config, Error};

use crate::args;
use crate::describe;
use crate::keys::Keys;
use crate::out::line;
use crate::picture::Picture;

/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// The narrowest picture, and the widest; wider ones are no better.
const WIDTHS: [usize; 2] = [40, 110];

static ASKED: AtomicBool = AtomicBool::new(false);

/// Shows the run until it is over or somebody has seen enough; with `--once`, as it is now.
pub fn watch(arguments: &args::Watch) -> Result<()> {
    let run = &arguments.run;
    directory::is_run(run)?;
    let config = Config::load(&directory::config(run).to_string_lossy(), &[])?;
    if arguments.once {
        let out = Term::stdout();
        let width = out.size_checked().map_or(80, |(_, width)| width.into());
        let mut followed = Followed::default();
        followed.look(run)?;
        write!(io::stdout(), "{}", followed.drawn(run, &config, width))?;
        return Ok(());
    }
    ctrlc::set_handler(|| ASKED.store(true, Relaxed))?;
    match io::stdout().is_terminal() {
        true => on_screen(run, &config),
        false => in_lines(run, &config),
    }
}

/// What was read of a run.
#[derive(Default)]
struct Followed {
    running: bool,
    bytes: u64,
    records: Vec<Record>,
}

impl Followed {
    /// Reads what there is now, if there is more or less than before.
    fn look(&mut self, run: &Path) -> Result<(), Error> {
        directory::is_run(run)?;
        // First, since who has stopped by then has written all.
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
        let [least, most] = WIDTHS;
        let picture = self.picture(run, config);
        picture.drawn(width.clamp(least, most), console::colors_enabled())
    }
}

/// A screen of its own, which the terminal puts away again.
struct Screen;

impl Screen {
    fn open() -> io::Result<Screen> {
        // The other screen, without a cursor.
        write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
        Ok(Screen)
    }

    fn show(&self, text: &str, height: usize) -> io::Result<()> {
        let mut whole = String::from("\x1b[H");
        for line in text.lines().take(height.saturating_sub(1)) {
            whole += line;
            // What was right of it before goes.
            whole += "\x1b[K\n";
        }
        whole += "\x1b[J";
        let mut out = io::stdout().lock();
        out.write_all(whole.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _ = write!(out, "\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

fn on_screen(run: &Path, config: &Config) -> Result<()> {
    let keys = Keys::listen();
    let screen = Screen::open()?;
    let out = Term::stdout();
    let mut followed = Followed::default();
    let text = loop {
        let (height, width) = out.size();
        followed.look(run)?;
        let text = followed.drawn(run, config, width.into());
        screen.show(&text, height.into())?;
        if !followed.running || keys.quit_within(INTERVAL, &ASKED) {
            break text;
        }
    };
    drop(screen);
    write!(io::stdout(), "{text}")?;
    Ok(())
}

/// A line for each record as it comes.
fn in_lines(run: &Path, config: &Config) -> Result<()> {
    let total = config.train.steps;
    let (mut told, mut followed) = (0, Followed::default());
    loop {
        followed.look(run)?;
        let records = &followed.records;
        let mut out = io::stdout().lock();
        // A run that goes on may have cut off what came after its checkpoint.
        told = told.min(records.len());
        for record in &records[told..] {
            let step = record.step();
            let text = match record {
                Record::Step(metrics) => describe::step(metrics),
                Record::Evaluation(evaluation) => describe::evaluation(&evaluation.play),
                Record::Warning(w) => {
                    format!("warning ({}): {}", line(&w.check), line(&w.text))
                }
                Record::Baselines(_) | Record::Episode(_) => continue,
            };
            writeln!(out, "step {step}/{total}  {text}")?;
        }
        told = records.len();
        if !followed.running {
            writeln!(out, "{}", followed.picture(run, config).state())?;
            return Ok(());
        }
        out.flush()?;
        drop(out);
        std::thread::sleep(INTERVAL);
        if ASKED.load(Relaxed) {
            return Ok(());
        }
    }
}
