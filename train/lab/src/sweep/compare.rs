//! `[compare]` of a sweep file: what its results tell beside the scores.

use toml::{Table, Value};

use lapwing_learn::metrics::StepMetrics;

/// What the results of a sweep tell beside the scores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compare {
    /// Scores of which it is told when each run reached them.
    pub reach: Vec<f64>,
    /// Metrics of the training steps, by their names in `metrics.jsonl`.
    pub metrics: Vec<String>,
    /// Probes of the run's game that what was trained is to be asked.
    pub probes: Vec<String>,
}

const KEYS: [&str; 3] = ["reach", "metrics", "probes"];

impl Compare {
    /// Reads the table; where it is not as it should be, the key and what is wrong with it.
    pub(super) fn read(table: &Table) -> Result<Compare, (String, String)> {
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&&***key)) {
            let problem = format!("no key of [compare]; they are {}", KEYS.join(", "));
            return Err((format!("compare.{key}"), problem));
        }
        let number = |value: &Value| match value {
            Value::Integer(whole) => Some(*whole as f64),
            other => other.as_float().filter(|number| number.is_finite()),
        };
        let reach = list(table, "reach", "scores, such as [0.8, 0.9]", number)?;
        let name = |value: &Value| value.as_str().map(str::to_owned);
        let metrics = list(table, "metrics", "names, such as [\"entropy\"]", name)?;
        let probes = list(table, "probes", "names, such as [\"swapped\"]", name)?;
        let known = StepMetrics::names();
        if let Some(name) = metrics.iter().find(|name| !known.contains(name)) {
            let nearest = lapwing_env::suggestion(name, &known);
            let known = known.join(", ");
            let problem =
                format!("no metric of a step is called `{name}`{nearest}; they are {known}");
            return Err(("compare.metrics".to_owned(), problem));
        }
        Ok(Compare {
            reach,
            metrics,
            probes,
        })
    }
}

/// A list of different things; nothing if it is not there.
fn list<T: PartialEq>(
    table: &Table,
    key: &str,
    wanted: &str,
    item: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, (String, String)> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let items = value.as_array().into_iter().flatten().map(item);
    let items: Vec<T> = items.collect::<Option<_>>().unwrap_or_default();
    let is_new = |at: usize| !items[..at].contains(&items[at]);
    match !items.is_empty() && (0..items.len()).all(is_new) {
        true => Ok(items),
        false => {
            let problem = format!("wanted a list of different {wanted}");
            Err((format!("compare.{key}"), problem))
        }
    }
}
