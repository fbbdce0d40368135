//! What is going on right now: bars on a terminal, now and then a plain line elsewhere. All of it goes to standard error.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// No plain line of progress sooner than this after the one before.
const SHORTEST_SILENCE: Duration = Duration::from_secs(2);

/// After this long without a line, the phase at work says how far it is, so that a stuck one is named.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Shows the work of one command.
#[derive(Debug)]
pub struct Progress {
    display: Display,
}

#[derive(Debug)]
enum Display {
    /// Shows nothing.
    Hidden,
    /// A bar for the whole and a line for the phase.
    Bars {
        bars: MultiProgress,
        whole: Mutex<Option<ProgressBar>>,
    },
    /// Lines, and a thread that breaks the silence.
    Lines {
        state: Arc<Lines>,
        watcher: Option<JoinHandle<()>>,
    },
}

#[derive(Debug)]
struct Lines {
    phase: Mutex<Option<Arc<Work>>>,
    last_line: Mutex<Instant>,
    over: AtomicBool,
}

impl Lines {
    fn print(&self, text: &str) {
        *self.last_line.lock().expect("no panic while held") = Instant::now();
        eprintln!("{text}");
    }

    fn silence(&self) -> Duration {
        self.last_line
            .lock()
            .expect("no panic while held")
            .elapsed()
    }

    fn watch(&self) {
        while !self.over.load(Relaxed) {
            thread::park_timeout(Duration::from_millis(500));
            let phase = self.phase.lock().expect("no panic while held").clone();
            if let Some(work) = phase
                && self.silence() >= LONGEST_SILENCE
            {
                self.print(&work.text());
            }
        }
    }
}

impl Progress {
    /// Bars if standard error is a terminal, lines if it is not.
    pub fn new() -> Progress {
        if std::io::stderr().is_terminal() {
            return Progress {
                display: Display::Bars {
                    bars: MultiProgress::new(),
                    whole: Mutex::default(),
                },
            };
        }
        let state = Arc::new(Lines {
            phase: Mutex::default(),
            last_line: Mutex::new(Instant::now()),
            over: AtomicBool::new(false),
        });
        let watched = state.clone();
        let watcher = thread::spawn(move || watched.watch());
        Progress {
            display: Display::Lines {
                state,
                watcher: Some(watcher),
            },
        }
    }

    /// Shows nothing, for tests.
    pub fn hidden() -> Progress {
        Progress {
            display: Display::Hidden,
        }
    }

    /// Begins a phase: `rollout 63/100 episodes, 210/s` while it lasts, which is until it is dropped.
    pub fn phase(&self, name: &'static str, unit: &'static str, total: usize) -> Phase<'_> {
        let work = Arc::new(Work {
            name,
            unit,
            total,
            done: AtomicUsize::new(0),
            tokens: AtomicU64::new(0),
            started: Instant::now(),
        });
        let bar = match &self.display {
            Display::Bars { bars, .. } => {
                let bar = bars.add(ProgressBar::new(total as u64));
                bar.set_style(ProgressStyle::with_template("  {msg}").expect("a fixed template"));
                bar.set_message(work.text());
                Some(bar)
            }
            Display::Lines { state, .. } => {
                *state.phase.lock().expect("no panic while held") = Some(work.clone());
                None
            }
            Display::Hidden => None,
        };
        Phase {
            progress: self,
            work,
            bar,
        }
    }

    /// `done` of `total` steps are done; `text` says what they brought. Shown if the last line is not too fresh.
    pub fn steps(&self, done: usize, total: usize, text: &str) {
        match &self.display {
            Display::Bars { bars, whole } => {
                let mut whole = whole.lock().expect("no panic while held");
                let bar = whole.get_or_insert_with(|| {
                    let template = "step {pos}/{len} {bar:24} {eta} left  {msg}";
                    let style = ProgressStyle::with_template(template).expect("a fixed template");
                    bars.insert(0, ProgressBar::new(total as u64).with_style(style))
                });
                bar.set_message(text.to_owned());
                bar.set_position(done as u64);
            }
            Display::Lines { state, .. } => {
                if done <= 1 || done == total || state.silence() >= SHORTEST_SILENCE {
                    state.print(&format!("step {done}/{total}  {text}"));
                }
            }
            Display::Hidden => (),
        }
    }

    /// Prints a line that stays.
    pub fn line(&self, text: &str) {
        match &self.display {
            // Printing fails only where there is nobody to read it.
            Display::Bars { bars, .. } => bars.println(text).unwrap_or_default(),
            Display::Lines { state, .. } => state.print(text),
            Display::Hidden => (),
        }
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        match &mut self.display {
            Display::Bars { bars, .. } => bars.clear().unwrap_or_default(),
            Display::Lines { state, watcher } => {
                state.over.store(true, Relaxed);
                if let Some(watcher) = watcher.take() {
                    watcher.thread().unpark();
                    let _ = watcher.join();
                }
            }
            Display::Hidden => (),
        }
    }
}

/// A piece of work under way.
#[derive(Debug)]
pub struct Phase<'a> {
    progress: &'a Progress,
    work: Arc<Work>,
    bar: Option<ProgressBar>,
}

#[derive(Debug)]
struct Work {
    name: &'static str,
    unit: &'static str,
    total: usize,
    done: AtomicUsize,
    tokens: AtomicU64,
    started: Instant,
}

impl Phase<'_> {
    /// So many units are done by now.
    pub fn set(&self, done: usize) {
        self.work.done.store(done, Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_message(self.work.text());
        }
    }

    /// So many more tokens went through the model.
    pub fn add_tokens(&self, tokens: usize) {
        self.work.tokens.fetch_add(tokens as u64, Relaxed);
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Display::Lines { state, .. } = &self.progress.display {
            *state.phase.lock().expect("no panic while held") = None;
        }
    }
}

impl Work {
    fn text(&self) -> String {
        let (done, tokens) = (self.done.load(Relaxed), self.tokens.load(Relaxed));
        describe(
            self.name,
            self.unit,
            done,
            self.total,
            tokens,
            self.started.elapsed(),
        )
    }
}

fn describe(
    name: &str,
    unit: &str,
    done: usize,
    total: usize,
    tokens: u64,
    elapsed: Duration,
) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let mut text = format!("{name} {done}/{total} {unit}");
    if done > 0 {
        text += &format!(", {}/s", short(done as f64 / seconds));
    }
    if tokens > 0 {
        text += &format!(", {} tokens/s", short(tokens as f64 / seconds));
    }
    if elapsed >= LONGEST_SILENCE {
        text += &format!(", for {} s", elapsed.as_secs());
    }
    text
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
        let after = |seconds, done, tokens| {
            describe(
                "rollout",
                "episodes",
                done,
                100,
                tokens,
                Duration::from_secs(seconds),
            )
        };
        assert_snapshot!(after(0, 0, 0), @"rollout 0/100 episodes");
        assert_snapshot!(after(3, 63, 24_300), @"rollout 63/100 episodes, 21/s, 8.1k tokens/s");
        assert_snapshot!(after(200, 3, 4_000_000), @"rollout 3/100 episodes, 0.01/s, 20k tokens/s, for 200 s");
    }

    #[test]
    fn a_phase_that_is_over_is_no_longer_named() {
        let state = Arc::new(Lines {
            phase: Mutex::default(),
            last_line: Mutex::new(Instant::now()),
            over: AtomicBool::new(true),
        });
        let progress = Progress {
            display: Display::Lines {
                state: state.clone(),
                watcher: None,
            },
        };
        let phase = progress.phase("update", "batches", 7);
        phase.set(3);
        assert_eq!(
            state
                .phase
                .lock()
                .unwrap()
                .as_ref()
                .unwrap()
                .done
                .load(Relaxed),
            3
        );
        drop(phase);
        assert!(state.phase.lock().unwrap().is_none());
    }
}
