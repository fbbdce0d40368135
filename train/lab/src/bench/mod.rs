//! Measures how fast lapwing is on this device: its ceilings, and each kernel and phase as a share of them.
//!
//! [`run`] measures the cases that `cases` (kernels) and `phases` (decoding, updates) declare. [`BenchReport`] is the result:
//! a table, JSON, and the comparison with an earlier one.

mod cases;
mod ceilings;
mod forecast;
mod phases;
mod report;
mod timing;

use std::collections::BTreeSet;

use lapwing_model::{Hub, ModelConfig};
use lapwing_play::Progress;
use lapwing_tensor::Gpu;
use lapwing_train::Error;
use lapwing_train::config::Config;
use lapwing_train::state::{RunPurpose, State};

use cases::{Case, MODELS};
pub(crate) use ceilings::Ceilings;
pub use report::BenchReport;
use report::{BenchRow, duration};
use timing::measure;

/// Seconds at the ceilings that a case may take: one that a forecast may need, and any other.
const LONGEST: [f64; 2] = [15.0, 0.5];

/// Measures all rows whose names contain `filter`, in about a minute without a GPU. They are those of the model and preset
/// of `config`; if `None`, of several models and the preset `frozen-lake`. Only a model of the hub needs `hub`.
///
/// # Errors
/// If no row has a name with the filter, the model cannot be loaded, or the device fails.
pub fn run(
    gpu: &Gpu,
    filter: &str,
    config: Option<Config>,
    hub: Option<&Hub>,
    progress: &dyn Progress,
) -> Result<BenchReport, Error> {
    let is_own = config.is_some();
    let (config, loading): (_, &dyn Progress) = match config {
        Some(config) => (config, progress),
        None => (Config::load("frozen-lake", &[])?, &()),
    };
    let mut state = State::new(gpu, hub, config, RunPurpose::Train, loading)?;
    let model = state.learner.policy.model.clone();
    // The last part of a path or of the name of a repository.
    let own = state.model_name.rsplit('/').next().unwrap_or_default();
    let name = if is_own { own } else { MODELS[0].0 }.to_owned();
    let forecast = forecast::forecast(&mut state, name.clone(), progress)?;
    // Frees the adapter, and the cache of keys and values.
    drop(state);

    let mut cases = match is_own {
        true => named(&name, cases::kernels(model.config())),
        false => {
            let of = |(name, shape)| named(name, cases::kernels(&ModelConfig::qwen2(shape)));
            let mut cases: Vec<Case> = MODELS.into_iter().flat_map(of).collect();
            cases.push(phases::step());
            cases
        }
    };
    cases.extend(named(&name, phases::phases(&model).into()));
    cases.extend(phases::growth(&model));
    let kind = |case: &Case| case.name.split('/').next().map(str::to_owned);
    let kinds: BTreeSet<String> = cases.iter().filter_map(kind).collect();
    cases.retain(|case| case.name.contains(filter));
    if cases.is_empty() {
        return Err(Error::Unusable(format!(
            "no measurement has {filter:?} in its name; there are {}, and names of models, such as product/{name}",
            Vec::from_iter(kinds).join(", ")
        )));
    }
    progress.phase("ceilings", 1, "device");
    let mut report = BenchReport::new(gpu.caps(), Ceilings::measure(gpu)?);
    progress.phase("bench", cases.len(), "rows");
    for (done, case) in cases.into_iter().enumerate() {
        let is_short = !is_own || case.name.starts_with("growth/");
        report.add(gpu, case, LONGEST[usize::from(is_short)])?;
        progress.done(done + 1);
    }
    report.forecast = forecast(&report);
    Ok(report)
}

/// Adds the name of a model to names that lack it.
fn named(model: &str, mut cases: Vec<Case>) -> Vec<Case> {
    for case in &mut cases {
        case.name = case.name.replacen('/', &format!("/{model}/"), 1);
    }
    cases
}

impl BenchReport {
    /// Measures a case, unless it takes longer than `longest` even at the ceilings, or its operands do not fit.
    fn add(&mut self, gpu: &Gpu, case: Case, longest: f64) -> Result<(), Error> {
        let (name, units, (shape, work)) = (case.name, case.units, case.cost);
        let [operations, bytes] = work.map(|amount| amount as f64 / units as f64);
        let (least, limit) = self.ceilings.least(operations, bytes);
        let memory = gpu.caps().memory.unwrap_or(u64::MAX) as f64;
        if least > longest || bytes > memory / 4.0 {
            let reason = format!(
                "takes at least {} and {:.1} GB",
                duration(least),
                bytes / 1e9
            );
            self.skipped.push(format!("{name}: {reason}"));
            return Ok(());
        }
        let (seconds, spread, counts) = measure(gpu, (case.prepare)(gpu)?)?;
        let seconds = seconds / units as f64;
        // Operands of another case have other sizes.
        gpu.drop_unused();
        self.rows.push(BenchRow {
            name,
            shape,
            seconds,
            spread,
            operations,
            bytes,
            share: least / seconds,
            limit: limit.to_owned(),
            dispatches: counts.dispatches / units as u64,
            bound_bytes: counts.bytes / units as u64,
        });
        Ok(())
    }
}
