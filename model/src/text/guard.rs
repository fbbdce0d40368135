//! Panics of libraries that read what strangers wrote: caught, so that they can be told as what they are.
//!
//! A panic is told by the process's hook before anybody can catch it. That hook is the program's and not ours, so the
//! program may ask here whether one is about to be caught.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread would be caught now and told as an error: some damaged `tokenizer.json` make their
/// library panic. A program whose users should see the error alone asks this in its hook:
///
/// ```
/// use std::panic;
///
/// let tell = panic::take_hook();
/// panic::set_hook(Box::new(move |panic| {
///     if !lapwing_model::panic_is_caught() {
///         tell(panic);
///     }
/// }));
/// ```
pub fn panic_is_caught() -> bool {
    GUARDED.get()
}

/// Does some work; `None` if it panicked. What it changes must be of no use to anybody after a panic.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = GUARDED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_only_within() {
        assert!(!panic_is_caught());
        assert_eq!(guarded(panic_is_caught), Some(true));
        // Resumed and not raised: no hook tells it, and the test's output stays clean.
        let panicked: Option<()> = guarded(|| {
            assert_eq!(guarded(|| 1), Some(1));
            assert!(panic_is_caught());
            panic::resume_unwind(Box::new("the library"))
        });
        assert_eq!(panicked, None);
        assert!(!panic_is_caught());
    }
}
