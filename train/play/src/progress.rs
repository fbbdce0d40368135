//! Progress of long operations.

/// Receives the progress of long operations, for example to draw it on a terminal. What a type does not
/// implement is ignored; `()` ignores all.
pub trait Progress {
    /// Begins a phase of `total` units of work, such as `rollout` of 100 `episodes`, and ends the phase before.
    fn phase(&self, _name: &'static str, _total: usize, _unit: &'static str) {}

    /// Reports how many units of the phase are done.
    fn done(&self, _done: usize) {}

    /// Reports the state of the work.
    fn line(&self, _text: &str) {}

    /// Reports something that the user may not expect.
    fn note(&self, _text: &str) {}
}

impl Progress for () {}
