//! What the runs of a sweep say together.

use std::path::Path;

use serde::Serialize;

use super::Sweep;
use crate::record::metrics::{PlayMetrics, Yardsticks};
use crate::record::stats::{interval, mean_and_deviation};

/// How a run of a sweep ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The name of its setting.
    pub setting: String,
    /// The seed of the training.
    pub seed: u64,
    /// The first evaluation.
    pub before: PlayMetrics,
    /// The last evaluation.
    pub after: PlayMetrics,
    /// What they are held against.
    pub yardsticks: Option<Yardsticks>,
}

/// A number over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (n - 1); 0 of one seed.
    pub std: f64,
    /// The 95 % bootstrap interval of the mean over seeds.
    pub interval: [f64; 2],
}

impl Spread {
    /// Of these values.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(values: &[f64]) -> Spread {
        let (mean, std) = mean_and_deviation(values);
        Spread {
            mean,
            std,
            interval: interval(values),
        }
    }
}

/// What the seeds of a setting say together, of their last evaluations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The setting.
    pub setting: String,
    /// The seeds that came to their end.
    pub seeds: Vec<u64>,
    /// Success rate.
    pub success: Spread,
    /// Mean return.
    #[serde(rename = "return")]
    pub mean_return: Spread,
    /// Mean return less that of the first setting, over the seeds that both have; none for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Spread>,
}

/// The results of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// A row for each setting that has a result.
    pub rows: Vec<Row>,
    /// Every run that came to its end.
    pub runs: Vec<Outcome>,
    /// Runs that did not: setting and seed.
    pub missing: Vec<(String, u64)>,
}

impl Results {
    /// Of what is there by now.
    pub fn of(sweep: &Sweep, directory: &Path) -> Results {
        let (mut runs, mut missing) = (Vec::new(), Vec::new());
        for cell in &sweep.cells {
            match cell.outcome(directory) {
                Some(outcome) => runs.push(outcome),
                None => missing.push((cell.setting.clone(), cell.seed)),
            }
        }
        let mut settings: Vec<&str> = sweep.cells.iter().map(|cell| &*cell.setting).collect();
        settings.dedup();
        let of = |setting: &str| -> Vec<&Outcome> {
            runs.iter().filter(|run| run.setting == setting).collect()
        };
        let first = of(settings[0]);
        let mut rows = Vec::new();
        for setting in &settings {
            let own = of(setting);
            if own.is_empty() {
                continue;
            }
            let over = |value: fn(&PlayMetrics) -> f64| {
                Spread::of(&own.iter().map(|run| value(&run.after)).collect::<Vec<_>>())
            };
            let pairs: Vec<f64> = own
                .iter()
                .filter_map(|run| {
                    let other = first.iter().find(|other| other.seed == run.seed)?;
                    Some(run.after.return_mean - other.after.return_mean)
                })
                .collect();
            let is_first = *setting == settings[0];
            rows.push(Row {
                setting: (*setting).to_owned(),
                seeds: own.iter().map(|run| run.seed).collect(),
                success: over(|play| play.success_rate),
                mean_return: over(|play| play.return_mean),
                difference: (!is_first && !pairs.is_empty()).then(|| Spread::of(&pairs)),
            });
        }
        Results {
            rows,
            runs,
            missing,
        }
    }

    /// As a table in Markdown, with a line on how to read it.
    pub fn markdown(&self) -> String {
        let spread = |s: &Spread, sign: bool| {
            let [low, high] = s.interval;
            let mean = if sign {
                format!("{:+.3}", s.mean)
            } else {
                format!("{:.3}", s.mean)
            };
            format!("{mean} ± {:.3} [{low:.3}, {high:.3}]", s.std)
        };
        let mut table = vec![
            [
                "setting",
                "seeds",
                "success",
                "return",
                "return less the first's",
            ]
            .map(str::to_owned),
        ];
        for row in &self.rows {
            let difference = row.difference.as_ref();
            table.push([
                row.setting.clone(),
                row.seeds.len().to_string(),
                spread(&row.success, false),
                spread(&row.mean_return, false),
                difference.map_or("-".to_owned(), |difference| spread(difference, true)),
            ]);
        }
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
        let line = |cells: &[String]| {
            let padded = cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!(" {cell:width$} "));
            format!("|{}|\n", padded.collect::<Vec<_>>().join("|"))
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut text = line(&table[0]) + &line(&rule);
        table[1..].iter().for_each(|row| text += &line(row));
        text += "\nOf the last evaluation: mean over seeds ± standard deviation [95 % bootstrap interval of the mean over \
                 seeds]; differences are paired by seed.\n";
        if !self.missing.is_empty() {
            let missing = self
                .missing
                .iter()
                .map(|(setting, seed)| format!("{setting} seed {seed}"));
            text += &format!(
                "\nWithout a result: {}.\n",
                missing.collect::<Vec<_>>().join(", ")
            );
        }
        text
    }

    /// A line for each run.
    pub fn csv(&self) -> String {
        let mut text = "setting,seed,success_before,return_before,success,return,valid_action_rate,episode_length\n".to_owned();
        for run in &self.runs {
            let (before, after) = (&run.before, &run.after);
            let numbers = [
                before.success_rate,
                before.return_mean,
                after.success_rate,
                after.return_mean,
                after.valid_action_rate,
                after.episode_length_mean,
            ];
            let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
            text += &format!("{},{},{}\n", run.setting, run.seed, numbers.join(","));
        }
        text
    }
}
