//! The result of the bench: a table, a chart, JSON, and the comparison of two results.

use std::path::Path;

use jiff::Timestamp;
use lapwing_model::read_text;
use lapwing_tensor::Caps;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use lapwing_train::Error;

use super::Ceilings;
use super::cases::SEQUENCES;
use crate::text_table::TextTable;

/// The version of the JSON form and of the measured cases. Results of another one are not compared.
const FORMAT: u64 = 1;

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct BenchRow {
    pub name: String,
    pub shape: String,
    /// The median of the rounds, and half the difference of the slowest and the fastest relative to it.
    pub seconds: f64,
    pub spread: f64,
    /// Multiplications and additions, and bytes that are read or written at least; 0 if not known, as their share.
    pub operations: f64,
    pub bytes: f64,
    /// The time at the nearer ceiling, arithmetic or memory, relative to the measured time.
    pub share: f64,
    pub limit: String,
    pub dispatches: u64,
    /// Sizes of all buffers that the kernels were given.
    pub bound_bytes: u64,
}

/// A forecast from the measured phases. Its step is one of random actions, in which no reply stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Forecast {
    /// The work of a step.
    pub(super) step: String,
    /// Tokens per second of one reply, and of 25 replies together.
    pub(super) alone: f64,
    pub(super) together: f64,
    /// Seconds of a step's rollout, and of its update.
    pub(super) rollout: f64,
    pub(super) update: f64,
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    format: u64,
    /// The version of lapwing, the device with its driver, and the date.
    title: String,
    /// Name and backend. Results of another device are not compared.
    device: String,
    pub(super) ceilings: Ceilings,
    pub(super) rows: Vec<BenchRow>,
    /// Names of what was not measured, with the reason.
    pub(super) skipped: Vec<String>,
    pub(super) forecast: Option<Forecast>,
}

impl BenchReport {
    pub(super) fn new(caps: &Caps, ceilings: Ceilings) -> BenchReport {
        let units = "matrix units: the device lists them, and no kernel uses them".to_owned();
        let (version, device, driver) = (env!("CARGO_PKG_VERSION"), device(caps), &caps.driver);
        let date = Timestamp::now().strftime("%Y-%m-%d");
        BenchReport {
            format: FORMAT,
            title: format!("lapwing {version} on {device}, {driver}, {date}"),
            device,
            ceilings,
            rows: Vec::new(),
            skipped: Vec::from_iter((!caps.matrix_tiles.is_empty()).then_some(units)),
            forecast: None,
        }
    }

    /// Reads a result of this device that `lapwing bench --json` printed.
    ///
    /// # Errors
    /// If the file cannot be read, is no such result, or is one of another version of the bench or of another device.
    pub fn read(path: &Path, caps: &Caps) -> Result<BenchReport, Error> {
        let text = read_text(path, 16 << 20)?;
        BenchReport::parse(&text, &device(caps))
            .map_err(|problem| Error::Unusable(format!("{}: {problem}", path.display())))
    }

    fn parse(text: &str, device: &str) -> Result<BenchReport, String> {
        let wrong = |error| format!("wanted the output of `lapwing bench --json`: {error}");
        let old: Value = serde_json::from_str(text).map_err(wrong)?;
        if let Some(format) = old["format"].as_u64().filter(|format| *format != FORMAT) {
            return Err(format!(
                "a result in format {format}, and this version compares format {FORMAT}; measure both with the same version"
            ));
        }
        let old: BenchReport = serde_json::from_value(old).map_err(wrong)?;
        match old.device == device {
            true => Ok(old),
            false => Err(format!(
                "measured on {}, and this device is {device}; select the same device with --device",
                old.device
            )),
        }
    }

    /// Returns the text for a terminal.
    pub fn text(&self) -> String {
        let skipped = |row: &String| format!("skipped {row}\n");
        let sections = [
            format!("{}\n", self.title),
            self.ceilings.table(),
            self.table(),
            self.chart(),
            self.forecast.as_ref().map_or(String::new(), Forecast::text),
            self.skipped.iter().map(skipped).collect(),
        ];
        let sections = sections.into_iter().filter(|section| !section.is_empty());
        sections.collect::<Vec<_>>().join("\n")
    }

    fn table(&self) -> String {
        let row = |row: &BenchRow| {
            let known = |text: String| if row.share > 0.0 { text } else { String::new() };
            let rate = |amount: f64| known(short(amount / row.seconds / 1e9));
            vec![
                ("measurement", row.name.clone()),
                ("shape", row.shape.clone()),
                ("time", duration(row.seconds)),
                ("+-", percent(row.spread)),
                ("GFLOP/s", rate(row.operations)),
                ("GB/s", rate(row.bytes)),
                ("share", known(percent(row.share))),
                ("of", known(row.limit.clone())),
                ("dispatches", row.dispatches.to_string()),
                ("MB bound", short(row.bound_bytes as f64 / 1e6)),
            ]
        };
        TextTable::of(self.rows.iter().map(row)).text()
    }

    /// Draws how the cost of a turn and of its update grows.
    fn chart(&self) -> String {
        let is_drawn = |row: &&BenchRow| row.name.starts_with("growth/");
        let rows: Vec<&BenchRow> = self.rows.iter().filter(is_drawn).collect();
        let axis = |row: &BenchRow| row.name.trim_end_matches(char::is_numeric).to_owned();
        let mut text = String::new();
        for axis in rows.chunk_by(|a, b| axis(a) == axis(b)) {
            let longest = axis.iter().map(|row| row.seconds).fold(0.0, f64::max);
            for BenchRow { name, seconds, .. } in axis {
                let bar = "#".repeat((50.0 * seconds / longest).round() as usize);
                text += &format!("{name:<28} {bar} {}\n", duration(*seconds));
            }
        }
        text
    }

    /// Compares this result with an earlier one of the same device.
    pub fn compared(&self, old: &BenchReport) -> String {
        let mut text = format!("old: {}\nnew: {}\n", old.title, self.title);
        let mut rows = Vec::new();
        for new in &self.rows {
            let same = |row: &&BenchRow| (&row.name, &row.shape) == (&new.name, &new.shape);
            let Some(old) = old.rows.iter().find(same) else {
                text += &format!("only new: {}\n", new.name);
                continue;
            };
            let (ratio, spread) = (new.seconds / old.seconds, old.spread + new.spread);
            let dispatches = format!("{} -> {}", old.dispatches, new.dispatches);
            let beyond = match ratio {
                ratio if ratio > 1.0 + spread => "slower",
                ratio if ratio < 1.0 - spread => "faster",
                _ => "",
            };
            rows.push(vec![
                ("measurement", new.name.clone()),
                ("old", duration(old.seconds)),
                ("new", duration(new.seconds)),
                ("new/old", format!("{ratio:.2}")),
                ("+-", percent(spread)),
                ("dispatches", dispatches),
                ("beyond +-", beyond.to_owned()),
            ]);
        }
        text + "\n" + &TextTable::of(rows).text()
    }
}

fn device(caps: &Caps) -> String {
    format!("{} ({})", caps.name, caps.backend)
}

impl Ceilings {
    fn table(&self) -> String {
        let giga = |rate: f64, unit: &str| format!("{} {unit}", short(rate / 1e9));
        let product = self.product_operations_per_second;
        let rows = [
            ("copy", giga(self.copy_bytes_per_second, "GB/s")),
            ("multiply-adds", giga(self.operations_per_second, "GFLOP/s")),
            ("large product", giga(product, "GFLOP/s")),
            ("dispatch", duration(self.dispatch_seconds)),
            ("submission", duration(self.submission_seconds)),
            ("read", duration(self.read_seconds)),
        ];
        let row = |(name, value): (&str, String)| vec![("ceiling", name.to_owned()), ("", value)];
        TextTable::of(rows.map(row)).text()
    }
}

impl Forecast {
    pub(super) fn text(&self) -> String {
        let [rollout, update, all] =
            [self.rollout, self.update, self.rollout + self.update].map(duration);
        format!(
            "decoding: {:.1} tokens/s in one reply, {:.1} tokens/s in {SEQUENCES} replies\n\
             a training step: about {all} ({rollout} of rollout, {update} of update)\n  {}\n",
            self.alone, self.together, self.step
        )
    }
}

fn percent(share: f64) -> String {
    format!("{} %", short(100.0 * share))
}

/// Formats a number with about three digits.
fn short(number: f64) -> String {
    match number {
        n if n < 1.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

/// Formats a time with about three digits.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", short(1e6 * s)),
        s if s < 1.0 => format!("{} ms", short(1e3 * s)),
        s => format!("{} s", short(s)),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn row(name: &str, seconds: f64, operations: f64) -> BenchRow {
        BenchRow {
            name: name.to_owned(),
            shape: "25x192x64".to_owned(),
            seconds,
            spread: 0.05,
            operations,
            bytes: 62e3,
            share: 0.3,
            limit: "memory".to_owned(),
            dispatches: 3,
            bound_bytes: 80_000,
        }
    }

    fn report() -> BenchReport {
        let step = BenchRow {
            bytes: 0.0,
            share: 0.0,
            ..row("step/frozen-lake", 0.0015, 0.0)
        };
        BenchReport {
            format: FORMAT,
            title: "lapwing 0.1.0 on Example 9000 (vulkan), example 1.2, 2026-11-23".to_owned(),
            device: "Example 9000 (vulkan)".to_owned(),
            ceilings: Ceilings {
                copy_bytes_per_second: 12.3e9,
                operations_per_second: 456e9,
                product_operations_per_second: 400e9,
                dispatch_seconds: 3.21e-6,
                submission_seconds: 45e-6,
                read_seconds: 67.8e-6,
            },
            rows: vec![
                row("product/3B/25 rows", 145e-6, 614e3),
                step,
                row("growth/turn by group 2", 0.02, 1e6),
                row("growth/turn by group 8", 0.01, 1e6),
                row("growth/update by group 2", 0.03, 1e6),
                row("growth/update by group 8", 0.07, 1e6),
            ],
            skipped: vec!["head/3B/sample: takes at least 1.2 s and 0.3 GB".to_owned()],
            forecast: Some(Forecast {
                step: "frozen-lake with random actions: 620 turns of 100 episodes, 4120 different tokens of prompts, 256 of a reply"
                    .to_owned(),
                alone: 25.04,
                together: 310.0,
                rollout: 100.0,
                update: 23.4,
            }),
        }
    }

    #[test]
    fn a_result_is_printed() {
        assert_snapshot!(report().text());
    }

    #[test]
    fn a_result_is_read_back() {
        let report = report();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(BenchReport::parse(&text, &report.device), Ok(report));
    }

    #[test]
    fn results_are_compared() {
        let (old, mut new) = (report(), report());
        new.title = new.title.replace("0.1.0", "0.2.0");
        // Within the spread of both, beyond it in both directions, and with another shape.
        new.rows[0].seconds *= 1.09;
        new.rows[1].seconds *= 1.5;
        new.rows[2].seconds *= 0.5;
        new.rows[2].dispatches = 2;
        new.rows[3].shape = "other".to_owned();
        assert_snapshot!(new.compared(&old));
    }

    #[test]
    fn results_of_another_device_or_format_are_refused() {
        let here = report().device;
        let refused = |change: fn(&mut BenchReport)| {
            let mut old = report();
            change(&mut old);
            let text = serde_json::to_string(&old).unwrap();
            BenchReport::parse(&text, &here)
        };
        assert!(refused(|old| old.title += ".1").is_ok());
        assert_snapshot!(
            refused(|old| old.device = "Example 1 (vulkan)".to_owned()).unwrap_err(),
            @"measured on Example 1 (vulkan), and this device is Example 9000 (vulkan); select the same device with --device"
        );
        assert_snapshot!(
            refused(|old| old.format = 9).unwrap_err(),
            @"a result in format 9, and this version compares format 1; measure both with the same version"
        );
        assert_snapshot!(
            BenchReport::parse("{}", &here).unwrap_err(),
            @"wanted the output of `lapwing bench --json`: missing field `format`"
        );
    }
}
