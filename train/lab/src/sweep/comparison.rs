//! The section `[compare]` of a sweep file.

use toml::{Table, Value};

use super::check_keys;
use lapwing_learn::metrics::StepMetrics;

/// The additional contents of a sweep's results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepComparison {
    /// Thresholds of the score. The results contain each run's cost until it reaches them.
    pub reach: Vec<f64>,
    /// Metrics of the training steps, by their names in `metrics.jsonl`.
    pub metrics: Vec<String>,
    /// Probes of the game that trained models are evaluated on.
    pub probes: Vec<String>,
}

impl SweepComparison {
    pub(super) fn read(table: &Table) -> Result<SweepComparison, String> {
        let keys = ["reach", "metrics", "probes"];
        check_keys(table, "compare.", &keys, "[compare]")?;
        let number = |value: &Value| match value {
            Value::Integer(integer) => Some(*integer as f64),
            other => other.as_float().filter(|number| number.is_finite()),
        };
        let name = |value: &Value| value.as_str().map(str::to_owned);
        let compare = SweepComparison {
            reach: list(table, "reach", "scores, such as [0.8, 0.9]", number)?,
            metrics: list(table, "metrics", "names, such as [\"entropy\"]", name)?,
            probes: list(table, "probes", "names, such as [\"swapped\"]", name)?,
        };
        let known = StepMetrics::names();
        match compare.metrics.iter().find(|name| !known.contains(name)) {
            None => Ok(compare),
            Some(name) => Err(format!(
                "`compare.metrics`: no metric of a step is called `{name}`{}; the metrics are {}",
                lapwing_env::suggestion(name, &known),
                known.join(", ")
            )),
        }
    }
}

/// Returns a list of distinct items, or an empty list if the key is missing.
fn list<T: PartialEq>(
    table: &Table,
    key: &str,
    wanted: &str,
    item: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, String> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let items = value.as_array().into_iter().flatten().map(item);
    let items: Vec<T> = items.collect::<Option<_>>().unwrap_or_default();
    let is_new = |at: usize| !items[..at].contains(&items[at]);
    match !items.is_empty() && (0..items.len()).all(is_new) {
        true => Ok(items),
        false => Err(format!(
            "`compare.{key}`: wanted a list of different {wanted}"
        )),
    }
}
