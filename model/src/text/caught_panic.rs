//! Panics of libraries that read damaged files, caught and returned as errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a panic of this thread would be caught and returned as an error. Some damaged `tokenizer.json` files make
/// the tokenizers library panic. The panic hook belongs to the program; one that should print the error only can check this:
///
/// ```
/// use std::panic;
///
/// let print = panic::take_hook();
/// panic::set_hook(Box::new(move |panic| {
///     if !lapwing_model::panic_becomes_error() {
///         print(panic);
///     }
/// }));
/// ```
pub fn panic_becomes_error() -> bool {
    CATCHES.get()
}

/// Runs some work and returns `None` if it panics. Values that the work changes must not be used after a panic.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = CATCHES.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(before);
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_only_within() {
        assert!(!panic_becomes_error());
        assert_eq!(catch_panic(panic_becomes_error), Some(true));
        // Resumed instead of raised: no hook prints it.
        let panicked: Option<()> = catch_panic(|| {
            assert_eq!(catch_panic(|| 1), Some(1));
            assert!(panic_becomes_error());
            panic::resume_unwind(Box::new("the library"))
        });
        assert_eq!(panicked, None);
        assert!(!panic_becomes_error());
    }
}
