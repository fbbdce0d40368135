//! Checks whether a machine can train: the device, its driver, every kernel, a model's gradients, memory and speed.
//!
//! [`diagnose`] runs all checks and takes tens of seconds. [`self_test`] runs some of them before any training. It
//! takes a second, once for each device, driver and kernel version.

mod drivers;
mod learning_checks;
mod self_test;

use std::time::Instant;

use lapwing_model::Hub;
use lapwing_play::Progress;
use lapwing_tensor::{Caps, Gpu, GpuError, check::checks};
use serde::Serialize;
use serde_json::{Value, json};

use lapwing_train::Error;
use lapwing_train::config::Config;
use lapwing_train::state::{RunPurpose, State};

use crate::bench::Ceilings;
use learning_checks::{all_tensors_move, gradients_are_slopes, log_probs_agree};
pub use self_test::self_test;

use FindingStatus::{Bad, Good, Warning};

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingStatus {
    /// No problem.
    Good,
    /// Training works, but could work better.
    Warning,
    /// Training does not work.
    Bad,
}

/// The result of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub name: &'static str,
    /// The outcome.
    pub outcome: FindingStatus,
    /// A description of the result.
    pub text: String,
    /// What the user can do if the outcome is not good.
    pub fix: Option<&'static str>,
    /// The measured numbers.
    pub figures: Value,
    /// The duration of the check.
    pub seconds: f64,
}

impl Finding {
    fn good(text: String, figures: Value) -> Finding {
        Finding {
            name: "",
            outcome: Good,
            text,
            fix: None,
            figures,
            seconds: 0.0,
        }
    }

    /// Makes it a problem, if it is one.
    fn or(self, is_good: bool, outcome: FindingStatus, fix: Option<&'static str>) -> Finding {
        match is_good {
            true => self,
            false => Finding {
                outcome,
                fix,
                ..self
            },
        }
    }

    /// Returns the finding that the device and its driver work, or that they do not.
    fn of_device(works: bool, text: String, figures: Value) -> Finding {
        let fix = "update the driver, or choose another device; if neither helps, report it";
        Finding::good(text, figures).or(works, Bad, Some(fix))
    }
}

/// All results, for a bug report.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorReport {
    version: &'static str,
    system: String,
    device: Option<Caps>,
    findings: Vec<Finding>,
}

impl DoctorReport {
    /// Returns whether this machine can train.
    pub fn is_good(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.all(|finding| finding.outcome != Bad)
    }
}

/// Runs checks in sequence and reports each result.
struct CheckRunner<'a> {
    findings: Vec<Finding>,
    report: &'a mut dyn FnMut(&Finding),
    progress: &'a dyn Progress,
}

impl CheckRunner<'_> {
    fn run<T>(&mut self, name: &'static str, check: impl FnOnce() -> (Finding, T)) -> T {
        let start = Instant::now();
        self.progress.phase(name, 1, "check");
        let (mut finding, value) = check();
        (finding.name, finding.seconds) = (name, start.elapsed().as_secs_f64());
        (self.report)(&finding);
        self.findings.push(finding);
        value
    }
}

/// Checks the device that `open` returns, with the built-in model and with the model of the setting `model`, such as
/// `model.dir=DIR`. Calls `report` after each check, and names the check in progress to `progress`. `hub` is required only for a
/// model of the hub.
pub fn diagnose(
    open: impl FnOnce() -> Result<Gpu, GpuError>,
    model: Option<String>,
    hub: Option<&Hub>,
    report: &mut dyn FnMut(&Finding),
    progress: &dyn Progress,
) -> DoctorReport {
    let mut checks = CheckRunner {
        findings: Vec::new(),
        report,
        progress,
    };
    let gpu = checks.run("device", || match open() {
        Ok(gpu) => (describe(gpu.caps()), Some(gpu)),
        Err(error) => {
            let is_choice = matches!(error, GpuError::NoSuchDevice { .. });
            let fix = is_choice.then_some("choose one of these devices");
            let finding = Finding::good(error.to_string(), Value::Null);
            (finding.or(false, Bad, fix), None)
        }
    });
    if let Some(gpu) = &gpu {
        checks.run("driver", || (drivers::look_up(gpu.caps()), ()));
        // With wrong kernels, the model checks would fail, too.
        if checks.run("kernels", || kernels(gpu)) {
            models(&mut checks, gpu, model, hub);
        }
        checks.run("speed", || (speed(gpu), ()));
    }
    DoctorReport {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        device: gpu.map(|gpu| gpu.caps().clone()),
        findings: checks.findings,
    }
}

fn describe(caps: &Caps) -> Finding {
    let gib = |bytes: u64| format!(", {:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
    let memory = caps.memory.map(gib).unwrap_or_default();
    let text = format!("{} ({}, {}{memory})", caps.name, caps.kind, caps.backend);
    let fix =
        "no GPU was found, so training is correct but slow; if there is a GPU, install its driver";
    Finding::good(text, Value::Null).or(!caps.is_software, Warning, Some(fix))
}

/// Checks all kernels. Returns whether all are correct.
fn kernels(gpu: &Gpu) -> (Finding, bool) {
    let (mut results, mut wrong) = (Vec::new(), Vec::new());
    let checks = checks();
    for check in &checks {
        let start = Instant::now();
        let result = check.run(gpu);
        let seconds = start.elapsed().as_secs_f64();
        if let Err(error) = &result {
            wrong.push(format!("{check:?}: {error}"));
        }
        results.push(json!({
            "kernel": check.op,
            "what": check.what,
            "is_short": check.is_short,
            "seconds": seconds,
            "error": result.as_ref().ok(),
            "wrong": result.err().map(|wrong| wrong.to_string()),
        }));
    }
    let mut ops: Vec<_> = checks.iter().map(|check| check.op).collect();
    ops.dedup();
    let (all, bad) = (checks.len(), wrong.len());
    let text = match wrong.first() {
        None => format!(
            "{all} checks of {} kernels agree with their references in double precision",
            ops.len()
        ),
        Some(first) => {
            format!("the driver computes wrong numbers in {bad} of {all} checks, first in {first}")
        }
    };
    let works = wrong.is_empty();
    let finding = Finding::of_device(works, text, Value::Array(results));
    (finding, works)
}

/// Checks the memory that models need, and whether they learn.
fn models(checks: &mut CheckRunner<'_>, gpu: &Gpu, model: Option<String>, hub: Option<&Hub>) {
    let Some(mut base) = checks.run("memory", || load(gpu, None, hub)) else {
        return;
    };
    let own = model.map(|model| checks.run("model", || load(gpu, Some(model), hub)));
    let own = own.map(|state| state.map(brief));
    let finding = |result: Result<Finding, Error>| {
        let bad = |error: Error| Finding::of_device(false, error.to_string(), Value::Null);
        (result.unwrap_or_else(bad), ())
    };
    // Finite differences of a large model take minutes without a GPU.
    checks.run("gradients", || finding(gradients_are_slopes(&mut base)));
    if let Some(mut subject) = own.unwrap_or(Some(base)) {
        checks.run("log-probs", || finding(log_probs_agree(&mut subject)));
        checks.run("adapter moves", || finding(all_tensors_move(&mut subject)));
    }
}

/// Limits what is played with a user's model, which may take a second a token: two turns of a few tokens show as much.
fn brief(mut state: State) -> State {
    let policy = &mut state.config.policy;
    policy.max_new_tokens = policy.max_new_tokens.min(8);
    state
}

/// Loads a model for training with the default settings, and checks the memory that it needs.
fn load(gpu: &Gpu, model: Option<String>, hub: Option<&Hub>) -> (Finding, Option<State>) {
    let config = match &model {
        None => Config::load("frozen-lake", &[]),
        // The preset for a user's model.
        Some(model) => Config::load("frozen-lake-paper", std::slice::from_ref(model)),
    };
    let state = config.map_err(Error::from);
    let state = state.and_then(|config| State::new(gpu, hub, config, RunPurpose::Train, &()));
    let state = match state {
        Ok(state) => state,
        Err(error) => {
            let finding = Finding::good(error.to_string(), Value::Null);
            return (finding.or(false, Bad, None), None);
        }
    };
    let plan = state.plan.as_ref().expect("a language model has a plan");
    let figures = json!({
        "weights": plan.weights,
        "keys_and_values": plan.arena,
        "activations": plan.activations,
        "adapter_and_optimiser": plan.optimiser,
        "total": plan.total(),
        "memory": plan.memory,
        "recomputes": plan.recomputes,
    });
    let name = model.map_or("the built-in model", |_| "the model");
    let text = format!("training {name} {plan}");
    (Finding::good(text, figures), Some(state))
}

/// The share of the device's arithmetic speed below which matrix products are too slow.
const MIN_PRODUCT_SHARE: f64 = 0.1;

fn speed(gpu: &Gpu) -> Finding {
    let speed = match Ceilings::measure(gpu) {
        Ok(speed) => speed,
        Err(error) => return Finding::of_device(false, error.to_string(), Value::Null),
    };
    let share = speed.product_operations_per_second / speed.operations_per_second;
    let figures = json!({
        "operations_per_second": speed.operations_per_second,
        "product_operations_per_second": speed.product_operations_per_second,
        "share": share,
        "bytes_per_second": speed.copy_bytes_per_second,
    });
    let text = format!(
        "matrix products run at {:.0} GFLOP/s, {:.0} % of the {:.0} GFLOP/s of plain multiply-adds; copies run at {:.1} GB/s",
        speed.product_operations_per_second / 1e9,
        100.0 * share,
        speed.operations_per_second / 1e9,
        speed.copy_bytes_per_second / 1e9
    );
    let fix = "stop other programs that use the device; if there are none, report it with --json";
    Finding::good(text, figures).or(share >= MIN_PRODUCT_SHARE, Warning, Some(fix))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The phases that have begun.
    struct Phases(RefCell<Vec<&'static str>>);

    impl Progress for Phases {
        fn phase(&self, name: &'static str, _: usize, _: &'static str) {
            self.0.borrow_mut().push(name);
        }
    }

    #[test]
    fn a_check_is_named_before_it_runs() {
        let phases = Phases(RefCell::default());
        let mut checks = CheckRunner {
            findings: Vec::new(),
            report: &mut |_| (),
            progress: &phases,
        };
        for name in ["driver", "kernels"] {
            let named = checks.run(name, || {
                let finding = Finding::of_device(true, String::new(), Value::Null);
                (finding, phases.0.borrow().last().copied())
            });
            assert_eq!(named, Some(name));
        }
    }
}
