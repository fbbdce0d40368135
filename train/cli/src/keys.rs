//! Whether somebody at the terminal has seen enough: q, or Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Keys come as they are pressed, and are not shown, as long as this lives. Only on Unix; elsewhere there is Ctrl-C.
pub struct Keys {
    #[cfg(unix)]
    before: Option<rustix::termios::Termios>,
}

/// Between two looks at the flag.
const SHORT: Duration = Duration::from_millis(100);

impl Keys {
    /// Waits so long, or less if q is pressed or the flag is set; tells whether that was so.
    pub fn quit_within(&self, time: Duration, asked: &AtomicBool) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if asked.load(Relaxed) || self.is_quit() {
                return true;
            }
        }
        false
    }
}

#[cfg(unix)]
impl Keys {
    /// Begins, if standard input is a terminal.
    pub fn listen() -> Keys {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut modes = before.clone();
            // Not ISIG: Ctrl-C stays a signal.
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            let _ = tcsetattr(&stdin, OptionalActions::Now, &modes);
        }
        Keys { before }
    }

    /// Waits a little for a key; tells whether it was q.
    fn is_quit(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        if self.before.is_none() {
            std::thread::sleep(SHORT);
            return false;
        }
        let stdin = std::io::stdin();
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: SHORT.as_nanos() as i64,
        };
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
        if !poll(&mut wanted, Some(&time)).is_ok_and(|ready| ready > 0) {
            return false;
        }
        let mut keys = [0; 16];
        match rustix::io::read(&stdin, &mut keys) {
            Ok(0) | Err(_) => {
                std::thread::sleep(SHORT);
                false
            }
            Ok(count) => keys[..count].iter().any(|key| b"qQ".contains(key)),
        }
    }
}

#[cfg(unix)]
impl Drop for Keys {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(not(unix))]
impl Keys {
    /// Nothing to begin.
    pub fn listen() -> Keys {
        Keys {}
    }

    fn is_quit(&self) -> bool {
        std::thread::sleep(SHORT);
        false
    }
}
