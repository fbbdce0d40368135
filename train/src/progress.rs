//! Who is told what goes on right now. What was measured goes to the sinks of [`record`](crate::record) instead.

use lapwing_model::Model;

use crate::run::memory::Plan;

/// Watches the work as it is done, on a terminal for example. `()` is nobody.
pub trait Progress {
    /// Begins a phase of so many units of work, such as `rollout` of 100 `episodes`; it ends the one before.
    fn phase(&self, name: &'static str, total: usize, unit: &'static str);

    /// So many units of the phase are done by now.
    fn done(&self, done: usize);

    /// What the run will take of the device's memory.
    fn planned(&self, plan: &Plan);

    /// A model was loaded; `name` is its directory, or the built-in base's name.
    fn loaded(&self, name: &str, model: &Model);

    /// Something worth knowing happened.
    fn note(&self, text: &str);
}

impl Progress for () {
    fn phase(&self, _: &'static str, _: usize, _: &'static str) {}
    fn done(&self, _: usize) {}
    fn planned(&self, _: &Plan) {}
    fn loaded(&self, _: &str, _: &Model) {}
    fn note(&self, _: &str) {}
}
