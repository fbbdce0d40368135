//! Ctrl-C, SIGTERM, and the closing of the terminal: the first asks to stop, the second does.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lapwing_play::external::{self, GameName};

use crate::out;

static ASKED: AtomicBool = AtomicBool::new(false);

/// The exit status of a program that was asked to stop, as shells have it for Ctrl-C.
pub const STATUS: u8 = 130;

/// From now on the first signal sets what is returned, and says what is done about it; the second ends the program.
pub fn listen(done: &'static str) -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(move || {
        if ASKED.swap(true, Relaxed) {
            end();
        }
        out::say(&format!("stopping: {done}; again to stop at once"));
    })?;
    Ok(&ASKED)
}

/// What a run says it does about it.
pub const STEP_IS_SAVED: &str = "the step that is under way is finished and saved";

/// From now on a signal ends the program, and with it the child processes in which games of these names live. Without
/// this, a child would only see its standard input end, which one that hangs does not.
pub fn end_with_children(games: &[&GameName]) -> anyhow::Result<()> {
    if games.iter().any(|game| game.is_external()) {
        ctrlc::set_handler(|| end())?;
    }
    Ok(())
}

fn end() -> ! {
    external::end_all();
    std::process::exit(i32::from(STATUS))
}

/// Stopped as asked; what a run has done is saved.
#[derive(Debug, thiserror::Error)]
#[error("stopped{0}")]
pub struct Stopped(String);

impl Stopped {
    /// A run, which goes on with this command.
    pub fn run(step: usize, steps: usize, go_on: &str) -> Stopped {
        Stopped(format!(" at step {step} of {steps}, and saved; {go_on}"))
    }

    /// A sweep.
    pub fn sweep(done: usize, all: usize) -> Stopped {
        let go_on = "the same command goes on with the rest";
        Stopped(format!(" at {done} of {all} runs; {go_on}"))
    }

    /// A server, of which nothing is left.
    pub fn server() -> Stopped {
        Stopped(String::new())
    }
}
