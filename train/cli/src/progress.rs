//! Progress on standard error: bars on a terminal, occasional plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use console::{StyledObject, style};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use lapwing_play::Progress;
use lapwing_train::record::metrics::Evaluation;
use lapwing_train::record::{Record, RecordError, Sink};

use crate::{describe, out};

/// Minimum time between plain lines of steps.
const MIN_LINE_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time without a line: then the current phase is printed, so that one that hangs is named.
const MAX_LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the phases and steps of one command; nothing with `--quiet`.
#[derive(Debug)]
pub struct Terminal {
    display: Display,
}

#[derive(Debug)]
enum Display {
    /// A bar for the steps and a line for the phase.
    Bars(Bars),
    /// Plain lines, and the thread that prints a slow phase.
    Lines(Arc<Lines>, Option<JoinHandle<()>>),
}

impl Terminal {
    /// Shows bars if standard error is a terminal, else lines.
    pub fn new() -> Terminal {
        let is_terminal = std::io::stderr().is_terminal();
        if out::is_quiet() || is_terminal {
            let bars = Bars::default();
            if out::is_quiet() {
                bars.all.set_draw_target(ProgressDrawTarget::hidden());
            }
            return Terminal {
                display: Display::Bars(bars),
            };
        }
        let lines = Arc::new(Lines::new());
        let watched = lines.clone();
        let watcher = thread::spawn(move || watched.watch());
        Terminal {
            display: Display::Lines(lines, Some(watcher)),
        }
    }

    /// Shows step `done` of `total` with its description, `short` in a bar. Steps that follow too fast get no line.
    pub fn steps(&self, done: usize, total: usize, text: &str, short: &str) {
        let is_due = match &self.display {
            Display::Bars(bars) => {
                bars.steps(done, total, short);
                bars.is_line_due(done, total)
            }
            Display::Lines(lines, _) => {
                done <= 1 || done == total || lines.silence() >= MIN_LINE_INTERVAL
            }
        };
        if is_due {
            let step = style(format!("step {done}/{total}")).bold();
            self.headed(step, text);
        }
    }

    /// Prints a line.
    pub fn line(&self, text: &str) {
        self.print(&out::line(text));
    }

    /// Prints a line with a styled head, such as `step 25/100`.
    pub fn headed(&self, head: StyledObject<String>, text: &str) {
        self.print(&format!("{}  {}", head.for_stderr(), out::line(text)));
    }

    fn print(&self, text: &str) {
        match &self.display {
            // An error means that standard error is closed.
            Display::Bars(bars) => bars.all.println(text).unwrap_or_default(),
            Display::Lines(lines, _) => lines.print(text),
        }
    }
}

impl Progress for Terminal {
    /// Shows a line such as `rollout 63/100 episodes, 210/s`.
    fn phase(&self, name: &'static str, total: usize, unit: &'static str) {
        let phase = Phase {
            name,
            unit,
            total,
            done: 0,
            started: Instant::now(),
        };
        match &self.display {
            Display::Bars(bars) => bars.set_phase(phase),
            Display::Lines(lines, _) => *held(&lines.phase) = Some(phase),
        }
    }

    fn done(&self, done: usize) {
        match &self.display {
            Display::Bars(bars) => bars.progress(done),
            Display::Lines(lines, _) => {
                if let Some(phase) = &mut *held(&lines.phase) {
                    phase.done = done;
                }
            }
        }
    }

    fn note(&self, text: &str) {
        self.line(text);
    }
}

/// Shows the steps and evaluations of a run.
pub struct Steps<'a> {
    pub terminal: &'a Terminal,
    pub total: usize,
}

impl Sink for Steps<'_> {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        let head = |step| style(format!("step {step}/{}", self.total)).bold();
        match record {
            Record::Step(metrics) => {
                let (text, short) = (describe::step(metrics), describe::short_step(metrics));
                self.terminal.steps(metrics.step, self.total, &text, &short);
            }
            Record::Evaluation(Evaluation { step, play, .. }) => {
                let text = describe::evaluation(play);
                self.terminal.headed(head(*step).green(), &text);
            }
            Record::Warning(warning) => {
                let text = format!("warning ({}): {}", warning.check, warning.text);
                self.terminal.headed(head(warning.step).yellow(), &text);
            }
            Record::Baselines(_) | Record::Episode(_) => (),
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        match &mut self.display {
            Display::Bars(bars) => bars.all.clear().unwrap_or_default(),
            Display::Lines(lines, watcher) => {
                lines.is_over.store(true, Relaxed);
                if let Some(watcher) = watcher.take() {
                    watcher.thread().unpark();
                    let _ = watcher.join();
                }
            }
        }
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no panic while held")
}

#[derive(Debug, Default)]
struct Bars {
    all: MultiProgress,
    steps: OnceLock<ProgressBar>,
    phase: OnceLock<ProgressBar>,
    current: Mutex<Option<Phase>>,
    last_line: Mutex<Option<Instant>>,
}

impl Bars {
    /// Whether to print a step above the bars: the first, the last, and others now and then.
    fn is_line_due(&self, done: usize, total: usize) -> bool {
        let mut last = held(&self.last_line);
        let is_due = done <= 1
            || done == total
            || last.is_none_or(|last| last.elapsed() >= MAX_LINE_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    fn set_phase(&self, phase: Phase) {
        self.phase_bar().set_message(phase.text());
        *held(&self.current) = Some(phase);
    }

    fn progress(&self, done: usize) {
        if let Some(phase) = &mut *held(&self.current) {
            phase.done = done;
            self.phase_bar().set_message(phase.text());
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

/// The bar of the steps. It fits 80 columns with counts of six digits and a message of 40 characters.
const STEPS: &str = "step {pos}/{len} {bar:8} {eta} left  {wide_msg}";

fn form(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a fixed template")
}

#[derive(Debug)]
struct Lines {
    phase: Mutex<Option<Phase>>,
    last_line: Mutex<Instant>,
    is_over: AtomicBool,
}

impl Lines {
    fn new() -> Lines {
        Lines {
            phase: Mutex::default(),
            last_line: Mutex::new(Instant::now()),
            is_over: AtomicBool::new(false),
        }
    }

    fn print(&self, text: &str) {
        *held(&self.last_line) = Instant::now();
        // Not eprintln, which panics if standard error is closed.
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn silence(&self) -> Duration {
        held(&self.last_line).elapsed()
    }

    fn watch(&self) {
        while !self.is_over.load(Relaxed) {
            thread::park_timeout(Duration::from_millis(500));
            let text = held(&self.phase).as_ref().map(Phase::text);
            if let Some(text) = text
                && self.silence() >= MAX_LINE_INTERVAL
            {
                self.print(&text);
            }
        }
    }
}

/// A phase in progress.
#[derive(Debug)]
struct Phase {
    name: &'static str,
    unit: &'static str,
    total: usize,
    done: usize,
    started: Instant,
}

impl Phase {
    fn text(&self) -> String {
        self.text_after(self.started.elapsed())
    }

    fn text_after(&self, elapsed: Duration) -> String {
        let Phase {
            name,
            unit,
            total,
            done,
            ..
        } = self;
        let mut text = format!("{name} {done}/{total} {unit}");
        if *done > 0 {
            let rate = *done as f64 / elapsed.as_secs_f64().max(1e-3);
            text += &format!(", {}/s", short(rate));
        }
        if elapsed >= MAX_LINE_INTERVAL {
            text += &format!(", for {} s", elapsed.as_secs());
        }
        text
    }
}

/// Formats a number with about three digits: 0.25, 31, 8.1k.
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
    fn a_phase_has_a_count_and_a_rate() {
        let after = |seconds, done| {
            let phase = Phase {
                name: "rollout",
                unit: "episodes",
                total: 100,
                done,
                started: Instant::now(),
            };
            phase.text_after(Duration::from_secs(seconds))
        };
        assert_snapshot!(after(0, 0), @"rollout 0/100 episodes");
        assert_snapshot!(after(3, 63), @"rollout 63/100 episodes, 21/s");
        assert_snapshot!(after(200, 3), @"rollout 3/100 episodes, 0.01/s, for 200 s");
    }

    #[test]
    fn rates_have_about_three_digits() {
        assert_eq!(
            [0.25, 3.12, 31.2, 8123.0, 81_234.0].map(short),
            ["0.25", "3.1", "31", "8.1k", "81k"]
        );
    }
}
