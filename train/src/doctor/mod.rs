//! Whether a machine can train: the device, its driver, every kernel, a model's gradients, memory and speed.
//!
//! [`examine`] looks at all of it and takes tens of seconds. [`self_test`] is the part of it that stands before any
//! training: a second, once for each device, driver and version of lapwing.

mod drivers;
mod self_test;
mod training;

use std::time::Instant;

use lapwing_tensor::{Caps, Gpu, GpuError, check::checks};
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::source::Source;
use crate::run::config::Config;
use crate::run::memory::Plan;
use crate::run::state::{Purpose, State};
use crate::{Error, Progress};

pub use self_test::{SelfTest, self_test};

/// How a part of the examination ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Good,
    /// It works, but not as well as it could.
    Warning,
    /// Nothing can be trained so.
    Bad,
}

/// One line of the examination.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub outcome: Outcome,
    /// What was seen.
    pub text: String,
    /// What to do, if it is not good.
    pub cure: Option<String>,
    /// The numbers behind it.
    pub figures: Value,
    /// How long it took.
    pub seconds: f64,
}

/// All of it, for a bug report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Of lapwing.
    pub version: &'static str,
    /// The operating system and the processor's kind.
    pub system: String,
    /// What the device is and can do; nothing if there is none.
    pub device: Value,
    /// In the order in which they were looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether this machine can train.
    pub fn is_good(&self) -> bool {
        let bad = |finding: &Finding| finding.outcome == Outcome::Bad;
        !self.findings.iter().any(bad)
    }
}

/// What a part of the examination came to: what was seen and the numbers behind it, or what is wrong and its cure.
enum Seen {
    Good(String, Value),
    Warning(String, String, Value),
    Bad(String, String, Value),
}

/// Looks at one thing after the other.
struct Examination<'a> {
    findings: Vec<Finding>,
    each: &'a mut dyn FnMut(&Finding),
}

impl Examination<'_> {
    fn look<T>(&mut self, name: &'static str, at: impl FnOnce() -> (Seen, T)) -> T {
        let start = Instant::now();
        let (seen, found) = at();
        let (outcome, text, cure, figures) = match seen {
            Seen::Good(text, figures) => (Outcome::Good, text, None, figures),
            Seen::Warning(text, cure, figures) => (Outcome::Warning, text, Some(cure), figures),
            Seen::Bad(text, cure, figures) => (Outcome::Bad, text, Some(cure), figures),
        };
        let seconds = start.elapsed().as_secs_f64();
        let finding = Finding {
            name,
            outcome,
            text,
            cure,
            figures,
            seconds,
        };
        (self.each)(&finding);
        self.findings.push(finding);
        found
    }
}

/// What is wrong where the device does not do as it is told.
const OTHER_DRIVER: &str =
    "update the driver, or choose another adapter; if neither helps, report it";

/// Looks at the device that `open` gives, and at what it makes of a model: that in the directory `model`, and the built-in
/// base. Tells each finding as it comes.
pub fn examine(
    open: impl FnOnce() -> Result<Gpu, GpuError>,
    model: Option<&str>,
    each: &mut dyn FnMut(&Finding),
) -> Report {
    let mut examination = Examination {
        findings: Vec::new(),
        each,
    };
    let gpu = examination.look("adapter", || match open() {
        Ok(gpu) => (adapter(gpu.caps()), Some(gpu)),
        Err(error) => {
            let otherwise = match error {
                GpuError::NoSuchDevice { .. } => "choose one of these",
                _ => "install a driver for the GPU, or update it",
            };
            let (text, cure) = halves(error.to_string(), otherwise);
            (Seen::Bad(text, cure, Value::Null), None)
        }
    });
    if let Some(gpu) = &gpu {
        examination.look("driver", || (drivers::look(gpu.caps()), ()));
        let right = examination.look("kernels", || kernels(gpu));
        // With wrong kernels the rest would only say so again, at length.
        if right {
            models(&mut examination, gpu, model);
        }
        examination.look("speed", || (speed(gpu), ()));
    }
    Report {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        device: gpu.map_or(Value::Null, |gpu| device(gpu.caps())),
        findings: examination.findings,
    }
}

/// What was found, and the cure: what follows the last semicolon of an error's text, or what is said otherwise.
fn halves(text: String, otherwise: &str) -> (String, String) {
    match text.rsplit_once("; ") {
        Some((text, cure)) => (text.to_owned(), cure.to_owned()),
        None => (text, otherwise.to_owned()),
    }
}

fn device(caps: &Caps) -> Value {
    json!({
        "name": caps.name,
        "backend": caps.backend,
        "driver": caps.driver,
        "kind": caps.kind,
        "memory": caps.memory,
        "max_buffer": caps.max_buffer,
        "max_binding": caps.max_binding,
        "max_workgroup_memory": caps.max_workgroup_memory,
        "max_workgroup_threads": caps.max_workgroup_threads,
        "subgroup": [caps.subgroup.0, caps.subgroup.1],
        "immediates": caps.immediates,
        "f16": caps.f16,
        "matrix_tiles": caps.matrix_tiles,
    })
}

fn adapter(caps: &Caps) -> Seen {
    let memory = match caps.memory {
        Some(bytes) => format!(", {:.1} GiB", gib(bytes)),
        None => String::new(),
    };
    let text = format!("{} ({}, {}{memory})", caps.name, caps.kind, caps.backend);
    match caps.is_software {
        false => Seen::Good(text, Value::Null),
        true => Seen::Warning(
            text,
            "no GPU was found, the processor does the work: right but slow; if there is a GPU, install its driver"
                .to_owned(),
            Value::Null,
        ),
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Whether all are right.
fn kernels(gpu: &Gpu) -> (Seen, bool) {
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
    let figures = Value::Array(results);
    let Some(first) = wrong.first() else {
        let text = format!(
            "{} checks of {} kernels agree with their references in double precision",
            checks.len(),
            ops.len()
        );
        return (Seen::Good(text, figures), true);
    };
    let (bad, of) = (wrong.len(), checks.len());
    let text =
        format!("the driver computes wrong numbers in {bad} of {of} checks, first in {first}");
    (Seen::Bad(text, OTHER_DRIVER.to_owned(), figures), false)
}

/// Keeps the plan.
#[derive(Default)]
struct Planned(std::cell::RefCell<Option<Plan>>);

impl Progress for Planned {
    fn phase(&self, _: &'static str, _: usize, _: &'static str) {}
    fn done(&self, _: usize) {}
    fn planned(&self, plan: &Plan) {
        *self.0.borrow_mut() = Some(plan.clone());
    }
    fn loaded(&self, _: &str, _: &lapwing_model::Model) {}
    fn note(&self, _: &str) {}
}

/// What a model needs, and whether it learns.
fn models(examination: &mut Examination<'_>, gpu: &Gpu, model: Option<&str>) {
    let base = examination.look("memory", || load(gpu, None));
    let Some(mut base) = base else {
        return;
    };
    let own = model.map(|dir| examination.look("model", || load(gpu, Some(dir))));
    // Differences are taken of the small one: a large one would take minutes where there is no GPU.
    examination.look("gradients", || (training::differences(&mut base), ()));
    let subject = match own {
        None => Some(&mut base),
        Some(Some(own)) => Some(&mut { own }),
        Some(None) => None,
    };
    if let Some(subject) = subject {
        examination.look("log-probs", || (training::same_log_probs(subject), ()));
        examination.look("adapter moves", || (training::all_move(subject), ()));
    }
}

/// What a run of the default settings takes of the device, and the state to begin it with.
fn load(gpu: &Gpu, model: Option<&str>) -> (Seen, Option<State>) {
    let planned = Planned::default();
    let config = match model {
        None => Config::load("frozen-lake", &[]),
        // The preset for models of one's own.
        Some(text) => {
            let key = match Source::typed(text) {
                Source::Repository(_) => "model.repo",
                _ => "model.dir",
            };
            let model = format!("{key}={}", toml::Value::from(text));
            Config::load("frozen-lake-paper", &[model])
        }
    };
    let state = config
        .map_err(Error::from)
        .and_then(|config| State::new(gpu, config, Purpose::Train, &planned));
    let state = match state {
        Ok(state) => state,
        Err(error) => {
            let (text, cure) = halves(
                error.to_string(),
                "give the directory of a model that can be read",
            );
            return (Seen::Bad(text, cure, Value::Null), None);
        }
    };
    let plan = planned
        .0
        .take()
        .expect("a state is planned before it is loaded");
    let figures = json!({
        "weights": plan.weights,
        "keys_and_values": plan.arena,
        "activations": plan.activations,
        "adapter_and_optimiser": plan.optimiser,
        "total": plan.total(),
        "memory": plan.memory,
        "recomputes": plan.recomputes,
    });
    let of = match plan.memory {
        Some(memory) => format!(" of the device's {:.1}", gib(memory)),
        None => ", what the device has is not known".to_owned(),
    };
    let whose = model.map_or("the built-in base", |_| "the model");
    let text = format!(
        "to train {whose} takes up to {:.2} GiB{of}",
        gib(plan.total())
    );
    (Seen::Good(text, figures), Some(state))
}

/// Of what the device can do, below so much something is amiss.
const LITTLE: f64 = 0.1;

fn speed(gpu: &Gpu) -> Seen {
    let speed = match gpu.speed() {
        Ok(speed) => speed,
        Err(error) => return Seen::Bad(error.to_string(), OTHER_DRIVER.to_owned(), Value::Null),
    };
    let share = speed.product / speed.operations;
    let figures = json!({
        "operations_per_second": speed.operations,
        "product_operations_per_second": speed.product,
        "share": share,
        "bytes_per_second": speed.bytes,
    });
    let text = format!(
        "products of matrices run at {:.0} GFLOP/s, {:.0} % of the {:.0} that plain multiply-adds reach here; copies at {:.1} GB/s",
        speed.product / 1e9,
        100.0 * share,
        speed.operations / 1e9,
        speed.bytes / 1e9
    );
    match share < LITTLE {
        true => Seen::Warning(
            text,
            "is something else using the device? If not, report it with --json".to_owned(),
            figures,
        ),
        false => Seen::Good(text, figures),
    }
}
