//! Progress on standard error: bars on a terminal, occasional plain lines elsewhere.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use console::{StyledObject, style};
use indicatif::{
    HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};
use lapwing_model::sampled_tokens;
use lapwing_play::Progress;
use lapwing_train::record::{Record, RecordError, Sink};

use crate::screen::duration;
use crate::{describe, out};

/// Minimum time between plain lines of steps.
const MIN_LINE_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time without a line: then the current phase is printed, so that one that hangs is named.
const MAX_LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Time left, in seconds, from which on a line of a step names it.
const LONG_LEFT: f64 = 60.0;

/// Shows the phases and steps of one command; nothing with `--quiet`. On a terminal a bar shows the steps, and a line the
/// phase.
#[derive(Debug)]
pub struct Terminal {
    bars: MultiProgress,
    steps: OnceLock<StepsBar>,
    phase: OnceLock<ProgressBar>,
    shared: Arc<Shared>,
    /// Without a terminal: the thread that prints a slow phase.
    watcher: Option<JoinHandle<()>>,
}

/// The bar of the steps, and what the time left is computed from.
#[derive(Debug)]
struct StepsBar {
    bar: ProgressBar,
    /// The first step shown, and when it was.
    first: (usize, Instant),
}

/// What the watching thread reads.
#[derive(Debug)]
struct Shared {
    phase: Mutex<Option<Phase>>,
    last_line: Mutex<Instant>,
    is_over: AtomicBool,
}

impl Terminal {
    /// Shows bars if standard error is a terminal, else lines.
    pub fn new() -> Terminal {
        let bars = MultiProgress::new();
        if out::is_quiet() {
            bars.set_draw_target(ProgressDrawTarget::hidden());
        }
        let shared = Arc::new(Shared {
            phase: Mutex::default(),
            last_line: Mutex::new(Instant::now()),
            is_over: AtomicBool::new(false),
        });
        let watched = shared.clone();
        // If the system allows no more threads, the device's error names that limit.
        let watch = || thread::Builder::new().spawn(move || watched.watch()).ok();
        let has_lines = !out::is_quiet() && !std::io::stderr().is_terminal();
        Terminal {
            bars,
            steps: OnceLock::new(),
            phase: OnceLock::new(),
            shared,
            watcher: has_lines.then(watch).flatten(),
        }
    }

    /// Shows step `done` of `total` with its description, `short` in a bar. Steps that follow too fast get no line.
    pub fn steps(&self, done: usize, total: usize, text: &str, short: &str) {
        let StepsBar { bar, first } = self.steps.get_or_init(|| {
            // After the last step there are evaluations.
            let left = |state: &ProgressState, to: &mut dyn fmt::Write| {
                if Some(state.pos()) != state.len() {
                    let _ = write!(to, "{:#} left  ", HumanDuration(state.eta()));
                }
            };
            let style = form(STEPS).with_key("left", left);
            let bar = ProgressBar::new(total as u64).with_style(style);
            StepsBar {
                bar: self.bars.insert(0, bar),
                first: (done, Instant::now()),
            }
        });
        bar.set_message(short.to_owned());
        bar.set_position(done as u64);
        let interval = match self.watcher {
            Some(_) => MIN_LINE_INTERVAL,
            None => MAX_LINE_INTERVAL,
        };
        if done <= 1 || done == total || self.shared.silence() >= interval {
            let step = style(format!("step {done}/{total}")).bold();
            let left = seconds_left(
                done.saturating_sub(first.0),
                total.saturating_sub(done),
                first.1.elapsed(),
            );
            // On a terminal the bar shows it.
            match left.filter(|left| self.watcher.is_some() && *left >= LONG_LEFT) {
                Some(left) => self.headed(step, &format!("{text}, about {} left", duration(left))),
                None => self.headed(step, text),
            }
        }
    }

    /// Prints a line with a styled head, such as `step 25/100`.
    pub fn headed(&self, head: StyledObject<String>, text: &str) {
        self.print(&format!("{}  {}", head.for_stderr(), out::line(text)));
    }

    fn print(&self, text: &str) {
        *held(&self.shared.last_line) = Instant::now();
        match self.watcher {
            Some(_) => self.shared.print(text),
            // An error means that standard error is closed.
            None => self.bars.println(text).unwrap_or_default(),
        }
    }

    /// Hides the bars while something else is printed.
    pub fn hidden<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bars.suspend(print)
    }

    /// Shows the phase in progress, anew with each tick.
    fn show_phase(&self) {
        if self.watcher.is_none() {
            self.phase.get_or_init(|| {
                let shared = self.shared.clone();
                let text = move |_: &ProgressState, to: &mut dyn fmt::Write| {
                    let text = held(&shared.phase).as_ref().map(Phase::text);
                    let _ = to.write_str(&text.unwrap_or_default());
                };
                let style = form("{spinner} {phase}").with_key("phase", text);
                let bar = ProgressBar::new_spinner().with_style(style);
                let bar = self.bars.add(bar);
                bar.enable_steady_tick(Duration::from_millis(100));
                bar
            });
        }
    }
}

impl Progress for Terminal {
    /// Shows a line such as `rollout 63/100 episodes, 210/s`.
    fn phase(&self, name: &'static str, total: usize, unit: &'static str) {
        *held(&self.shared.phase) = Some(Phase {
            name,
            unit,
            total,
            done: 0,
            started: Instant::now(),
            sampled_before: sampled_tokens(),
        });
        self.show_phase();
    }

    fn done(&self, done: usize) {
        if let Some(phase) = &mut *held(&self.shared.phase) {
            phase.done = done;
        }
    }

    fn line(&self, text: &str) {
        self.print(&out::line(text));
    }

    fn note(&self, text: &str) {
        self.print(&out::labelled("note", text));
    }
}

/// Shows the steps and evaluations of a run.
pub struct Steps<'a> {
    pub terminal: &'a Terminal,
    pub total: usize,
}

impl Sink for Steps<'_> {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        let Some(text) = describe::record(record) else {
            return Ok(());
        };
        let head = style(format!("step {}/{}", record.step(), self.total)).bold();
        match record {
            Record::Step(metrics) => {
                let short = describe::short_step(metrics);
                self.terminal.steps(metrics.step, self.total, &text, &short);
            }
            Record::Evaluation(_) => self.terminal.headed(head.green(), &text),
            _ => self.terminal.headed(head.yellow(), &text),
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bars.clear().unwrap_or_default();
        self.shared.is_over.store(true, Relaxed);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no panic while held")
}

/// The bar of the steps. It fits 80 columns with counts of six digits and a message of 40 characters.
const STEPS: &str = "step {pos}/{len} {bar:8} {left}{wide_msg}";

fn form(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a fixed template")
}

impl Shared {
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
    sampled_before: u64,
}

impl Phase {
    fn text(&self) -> String {
        let sampled = sampled_tokens() - self.sampled_before;
        self.text_after(self.started.elapsed(), sampled)
    }

    fn text_after(&self, elapsed: Duration, sampled: u64) -> String {
        let (name, unit, done) = (self.name, self.unit, self.done);
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let mut text = format!("{name} {done}/{} {unit}", self.total);
        if done > 0 {
            text += &format!(", {}/s", short(done as f64 / seconds));
        }
        if sampled > 0 && unit != "tokens" {
            text += &format!(", {} tokens/s", short(sampled as f64 / seconds));
        }
        if elapsed >= MAX_LINE_INTERVAL {
            text += &format!(", for {} s", elapsed.as_secs());
            if let Some(left) = seconds_left(done, self.total.saturating_sub(done), elapsed) {
                text += &format!(", about {} left", duration(left));
            }
        }
        text
    }
}

/// Returns the time that `left` more will take if `done` took this long; `None` if nothing is done or left.
fn seconds_left(done: usize, left: usize, elapsed: Duration) -> Option<f64> {
    (done > 0 && left > 0).then(|| elapsed.as_secs_f64() * left as f64 / done as f64)
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
        let after = |seconds, done, sampled| {
            let phase = Phase {
                name: "rollout",
                unit: "episodes",
                total: 100,
                done,
                started: Instant::now(),
                sampled_before: 0,
            };
            phase.text_after(Duration::from_secs(seconds), sampled)
        };
        assert_snapshot!(after(0, 0, 0), @"rollout 0/100 episodes");
        assert_snapshot!(after(3, 63, 630), @"rollout 63/100 episodes, 21/s, 210 tokens/s");
        assert_snapshot!(after(20, 0, 50), @"rollout 0/100 episodes, 2.5 tokens/s, for 20 s");
        assert_snapshot!(after(200, 25, 0), @"rollout 25/100 episodes, 0.12/s, for 200 s, about 10 min 0 s left");
    }

    #[test]
    fn rates_have_about_three_digits() {
        assert_eq!(
            [0.25, 3.12, 31.2, 8123.0, 81_234.0].map(short),
            ["0.25", "3.1", "31", "8.1k", "81k"]
        );
    }
}
