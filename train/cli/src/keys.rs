//! Whether somebody at the terminal has seen enough: q, or Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Keys come as they are pressed, and are not shown, as long as this lives. Only on Unix; elsewhere there is Ctrl-C.
pub struct Keys {
    #[cfg(unix)]
    before: Option<nix::sys::termios::Termios>,
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
        use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut modes = before.clone();
            // Not ISIG: Ctrl-C stays a signal.
            modes.local_flags -= LocalFlags::ICANON | LocalFlags::ECHO;
            let _ = tcsetattr(&stdin, SetArg::TCSANOW, &modes);
        }
        Keys { before }
    }

    /// Waits a little for a key; tells whether it was q.
    fn is_quit(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let stdin = std::io::stdin();
        let mut wanted = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let time = PollTimeout::from(SHORT.as_millis() as u8);
        let mut keys = [0; 16];
        let count = match self.before.is_some() && poll(&mut wanted, time).is_ok() {
            // Unlike a read through the standard library, this one takes no more than there is.
            true if wanted[0].any() == Some(true) => {
                nix::unistd::read(&stdin, &mut keys).unwrap_or(0)
            }
            true => return false,
            false => 0,
        };
        if count == 0 {
            // Nobody is there to press a key.
            std::thread::sleep(SHORT);
        }
        keys[..count].iter().any(|key| b"qQ".contains(key))
    }
}

#[cfg(unix)]
impl Drop for Keys {
    fn drop(&mut self) {
        use nix::sys::termios::{SetArg, tcsetattr};
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, before);
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
