//! Progress of long operations.

/// Receives the progress of long operations, for example to draw it on a terminal. `()` ignores it.
pub trait Progress {
    /// Begins a phase of `total` units of work, such as `rollout` of 100 `episodes`, and ends the phase before.
    fn phase(&self, name: &'static str, total: usize, unit: &'static str);

    /// Reports how many units of the phase are done.
    fn done(&self, done: usize);

    /// Reports the state of the work.
    fn line(&self, text: &str);

    /// Reports something that the user may not expect.
    fn note(&self, text: &str);
}

impl Progress for () {
    fn phase(&self, _: &'static str, _: usize, _: &'static str) {}
    fn done(&self, _: usize) {}
    fn line(&self, _: &str) {}
    fn note(&self, _: &str) {}
}
