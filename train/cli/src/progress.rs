//! What is going on right now: bars on a terminal, now and then a plain line elsewhere. All of it goes to standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use console::{StyledObject, style};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use lapwing_play::Progress;
use lapwing_train::record::metrics::Evaluation;
use lapwing_train::record::{Record, RecordError, Sink};

use crate::{describe, out};

/// No plain line of progress sooner than this after the one before.
const SHORTEST_SILENCE: Duration = Duration::from_secs(2);

/// After this long without a line, the phase at work says how far it is, so that a stuck one is named.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Shows the work of one command: a phase after the other, and the steps that they make up. Nothing if `--quiet` is asked
/// for.
#[derive(Debug)]
pub struct Terminal {
    display: Display,
}

#[derive(Debug)]
enum Display {
    /// A bar for the whole and a line for the phase.
    Bars(Bars),
    /// Lines, and a thread that breaks the silence.
    Lines(Arc<Lines>, Option<JoinHandle<()>>),
    /// Only results and errors are wanted.
    Nothing,
}

impl Terminal {
    /// Bars if standard error is a terminal, lines if it is not.
    pub fn new() -> Terminal {
        if out::is_quiet() {
            return Terminal {
                display: Display::Nothing,
            };
        }
        if std::io::stderr().is_terminal() {
            return Terminal {
                display: Display::Bars(Bars::default()),
            };
        }
        let lines = Arc::new(Lines::new());
        let watched = lines.clone();
        let watcher = thread::spawn(move || watched.watch());
        Terminal {
            display: Display::Lines(lines, Some(watcher)),
        }
    }

    /// `done` of `total` steps are done; `text` says what the last brought, and `short` the most of it. Lines leave out
    /// what comes too fast.
    pub fn steps(&self, done: usize, total: usize, text: &str, short: &str) {
        let full = || {
            let step = style(format!("step {done}/{total}")).for_stderr().bold();
            format!("{step}  {}", out::line(text))
        };
        match &self.display {
            Display::Bars(bars) => {
                bars.steps(done, total, short);
                if bars.line_is_due(done, total) {
                    bars.print(&full());
                }
            }
            Display::Lines(lines, _) => {
                if done <= 1 || done == total || lines.silence() >= SHORTEST_SILENCE {
                    lines.print(&full());
                }
            }
            Display::Nothing => (),
        }
    }

    /// Prints a line that stays.
    pub fn line(&self, text: &str) {
        self.print(&out::line(text));
    }

    /// The same with its beginning set off: `step 25/100`, or a warning.
    pub fn headed(&self, head: StyledObject<String>, text: &str) {
        self.print(&format!("{}  {}", head.for_stderr(), out::line(text)));
    }

    /// Prints what is fit for a terminal.
    fn print(&self, text: &str) {
        match &self.display {
            Display::Bars(bars) => bars.print(text),
            Display::Lines(lines, _) => lines.print(text),
            Display::Nothing => (),
        }
    }
}

impl Progress for Terminal {
    /// `rollout 63/100 episodes, 210/s`.
    fn phase(&self, name: &'static str, total: usize, unit: &'static str) {
        let work = Work {
            name,
            unit,
            total,
            done: 0,
            started: Instant::now(),
        };
        match &self.display {
            Display::Bars(bars) => bars.phase(work),
            Display::Lines(lines, _) => *held(&lines.work) = Some(work),
            Display::Nothing => (),
        }
    }

    fn done(&self, done: usize) {
        match &self.display {
            Display::Bars(bars) => bars.progress(done),
            Display::Lines(lines, _) => {
                if let Some(work) = &mut *held(&lines.work) {
                    work.done = done;
                }
            }
            Display::Nothing => (),
        }
    }

    fn note(&self, text: &str) {
        self.line(text);
    }
}

/// Shows the steps and evaluations of a run.
pub struct Steps<'a> {
    /// where
    pub terminal: &'a Terminal,
    /// how many there will be
    pub total: usize,
}

impl Sink for Steps<'_> {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        match record {
            Record::Step(metrics) => {
                let (text, short) = (describe::step(metrics), describe::short_step(metrics));
                self.terminal.steps(metrics.step, self.total, &text, &short);
            }
            Record::Evaluation(Evaluation { step, play, .. }) => {
                let head = style(format!("step {step}/{}", self.total)).green().bold();
                self.terminal.headed(head, &describe::evaluation(play));
            }
            Record::Warning(warning) => {
                let (step, text) = (warning.step, &warning.text);
                let head = style(format!("step {step}/{}", self.total)).yellow().bold();
                let text = format!("warning ({}): {text}", warning.check);
                self.terminal.headed(head, &text);
            }
            Record::Baselines(_) | Record::Episode(_) => (),
        }
        Ok(())
    }
}

impl Default for Terminal {
    fn default() -> Terminal {
        Terminal::new()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        match &mut self.display {
            Display::Bars(bars) => bars.all.clear().unwrap_or_default(),
            Display::Lines(lines, watcher) => {
                lines.over.store(true, Relaxed);
                if let Some(watcher) = watcher.take() {
                    watcher.thread().unpark();
                    let _ = watcher.join();
                }
            }
            Display::Nothing => (),
        }
    }
}

/// Nothing panics while it holds one of these locks.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no panic while held")
}

#[derive(Debug, Default)]
struct Bars {
    all: MultiProgress,
    steps: OnceLock<ProgressBar>,
    phase: OnceLock<ProgressBar>,
    work: Mutex<Option<Work>>,
    last_line: Mutex<Option<Instant>>,
}

impl Bars {
    /// Prints a line above the bars.
    fn print(&self, text: &str) {
        // Printing fails only where there is nobody to read it.
        self.all.println(text).unwrap_or_default();
    }

    /// Whether a step should stay as a line above the bars: the first, the last, and one every so often.
    fn line_is_due(&self, done: usize, total: usize) -> bool {
        let mut last = held(&self.last_line);
        let is_due =
            done <= 1 || done == total || last.is_none_or(|last| last.elapsed() >= LONGEST_SILENCE);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    fn phase(&self, work: Work) {
        self.phase_bar().set_message(work.text());
        *held(&self.work) = Some(work);
    }

    fn progress(&self, done: usize) {
        if let Some(work) = &mut *held(&self.work) {
            work.done = done;
            self.phase_bar().set_message(work.text());
        }
    }

    fn steps(&self, done: usize, total: usize, text: &str) {
        let bar = self.steps.get_or_init(|| {
            let style = form(STEPS);
            self.all
                .insert(0, ProgressBar::new(total as u64).with_style(style))
        });
        bar.set_message(text.to_owned());
        bar.set_position(done as u64);
    }

    fn phase_bar(&self) -> &ProgressBar {
        self.phase.get_or_init(|| {
            let bar = self
                .all
                .add(ProgressBar::new_spinner().with_style(form("{spinner} {wide_msg}")));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        })
    }
}

/// The bar of the steps. With counts of six figures and a message of 40 it fits 80 columns.
const STEPS: &str = "step {pos}/{len} {bar:8} {eta} left  {wide_msg}";

fn form(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a fixed template")
}

#[derive(Debug)]
struct Lines {
    work: Mutex<Option<Work>>,
    last_line: Mutex<Instant>,
    over: AtomicBool,
}

impl Lines {
    fn new() -> Lines {
        Lines {
            work: Mutex::default(),
            last_line: Mutex::new(Instant::now()),
            over: AtomicBool::new(false),
        }
    }

    fn print(&self, text: &str) {
        *held(&self.last_line) = Instant::now();
        // Not eprintln, which panics where nobody reads.
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn silence(&self) -> Duration {
        held(&self.last_line).elapsed()
    }

    fn watch(&self) {
        while !self.over.load(Relaxed) {
            thread::park_timeout(Duration::from_millis(500));
            let text = held(&self.work).as_ref().map(Work::text);
            if let Some(text) = text
                && self.silence() >= LONGEST_SILENCE
            {
                self.print(&text);
            }
        }
    }
}

/// A piece of work under way.
#[derive(Debug)]
struct Work {
    name: &'static str,
    unit: &'static str,
    total: usize,
    done: usize,
    started: Instant,
}

impl Work {
    fn text(&self) -> String {
        self.text_after(self.started.elapsed())
    }

    fn text_after(&self, elapsed: Duration) -> String {
        let Work {
            name,
            unit,
            total,
            done,
            ..
        } = self;
        let mut text = format!("{name} {done}/{total} {unit}");
        if *done > 0 {
            text += &format!(
                ", {}/s",
                short(*done as f64 / elapsed.as_secs_f64().max(1e-3))
            );
        }
        if elapsed >= LONGEST_SILENCE {
            text += &format!(", for {} s", elapsed.as_secs());
        }
        text
    }
}

/// A number in about three figures: 0.25, 31, 8.1k.
fn short(number: f64) -> String {
    match number {
        n if n < 1.0 => format!("{n:.2}"),
        n if n < 10.0 => format!("{n:.1}"),
        n if n < 1000.0 => format!("{n:.0}"),
        n if n < 10_000.0 => format!("{:.1}k", n / 1000.0),
        n => format!("{:.0}k", n / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_phase_says_how_far_it_is_and_how_fast() {
        let after = |seconds, done| {
            let work = Work {
                name: "rollout",
                unit: "episodes",
                total: 100,
                done,
                started: Instant::now(),
            };
            work.text_after(Duration::from_secs(seconds))
        };
        assert_snapshot!(after(0, 0), @"rollout 0/100 episodes");
        assert_snapshot!(after(3, 63), @"rollout 63/100 episodes, 21/s");
        assert_snapshot!(after(200, 3), @"rollout 3/100 episodes, 0.01/s, for 200 s");
    }

    #[test]
    fn rates_have_about_three_figures() {
        assert_eq!(
            [0.25, 3.12, 31.2, 8123.0, 81_234.0].map(short),
            ["0.25", "3.1", "31", "8.1k", "81k"]
        );
    }
}
