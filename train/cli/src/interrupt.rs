//! Ctrl-C, SIGTERM and the closing of the terminal.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use lapwing_play::external::{self, GameName};

use crate::out;

static ASKED: AtomicBool = AtomicBool::new(false);

/// While it is set, the first signal ends the program: there is no work to save, and loading may wait for a network.
pub static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// The exit status of an interrupted program, as in shells.
pub const STATUS: u8 = 130;

/// The usual reason is that the system allows no more threads.
const NO_HANDLER: &str =
    "Ctrl-C cannot be handled (if the limit of threads is reached, raise `ulimit -u`)";

/// Returns a flag that the first signal sets, after printing what is done about it. The second signal ends the program.
/// Without a text, as on a rank whose run prints elsewhere, nothing is printed.
pub fn listen(what_is_done: &'static str) -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(move || {
        if IS_LOADING.load(Relaxed) || ASKED.swap(true, Relaxed) {
            end();
        }
        if !what_is_done.is_empty() {
            out::print_always(&format!("stopping: {what_is_done}; again to stop at once"));
        }
    })
    .context(NO_HANDLER)?;
    Ok(&ASKED)
}

/// Whether a signal has set the flag of [`listen`].
pub fn is_asked() -> bool {
    ASKED.load(Relaxed)
}

/// The answer of a training run to the first signal.
pub const STEP_IS_SAVED: &str = "the step, evaluation or test in progress is finished, then the run is saved; an unfinished warm-up starts again";

/// Makes a signal end the program together with the child processes of external environments among these games. Without
/// it, a child only sees the end of its standard input, which one that hangs ignores.
pub fn end_with_children(games: &[&GameName]) -> anyhow::Result<()> {
    if games.iter().any(|game| game.is_external()) {
        ctrlc::set_handler(|| end()).context(NO_HANDLER)?;
    }
    Ok(())
}

/// The variable that `lapwing sweep` sets for its runs.
pub const OF_SWEEP: &str = "LAPWING_OF_SWEEP";

/// If a sweep started this program, does as after Ctrl-C when the sweep writes a line to its standard input, and again when the
/// input ends: the sweep was killed, or stopped at once.
pub fn end_with_sweep() {
    if std::env::var_os(OF_SWEEP).is_none() {
        return;
    }
    std::thread::spawn(|| {
        let raise = || {
            #[cfg(unix)]
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM);
        };
        // A scheduler may have sent its signal to all processes already.
        while matches!(io::stdin().read(&mut [0]), Ok(1)) {
            if !is_asked() {
                raise();
            }
        }
        raise();
        #[cfg(not(unix))]
        end();
    });
}

fn end() -> ! {
    external::end_all();
    // Safety: it runs no code of this process. `exit` would tear down the GPU driver while other threads use it.
    #[cfg(unix)]
    unsafe {
        nix::libc::_exit(i32::from(STATUS))
    }
    #[cfg(not(unix))]
    std::process::exit(i32::from(STATUS))
}

/// The program stopped because of a signal; all work is saved.
#[derive(Debug, thiserror::Error)]
#[error("stopped{0}")]
pub struct Stopped(pub String);
