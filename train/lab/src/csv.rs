//! Comma-separated values.

use serde::Serialize;
use serde_json::{Map, Value};

use lapwing_train::record::Record;

/// Returns `steps.csv`: a line for each training step. Metrics that a step lacks (`kl` without an update) are empty.
pub(crate) fn steps(records: &[Record]) -> String {
    metrics(records.iter().filter_map(|record| match record {
        Record::Step(metrics) => Some(fields(metrics)),
        _ => None,
    }))
}

/// Returns `evaluations.csv`: a line for each evaluation.
pub(crate) fn evaluations(records: &[Record]) -> String {
    metrics(records.iter().filter_map(|record| match record {
        Record::Evaluation(evaluation) => Some(fields(evaluation)),
        _ => None,
    }))
}

/// Returns a document with a header and a line for each row. Cells are quoted where RFC 4180 requires it.
pub(crate) fn document(header: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
        cells.join(",") + "\n"
    };
    let rows = rows.into_iter().map(|row| line(&row));
    std::iter::once(line(header)).chain(rows).collect()
}

fn fields(record: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(record).expect("metrics are plain values") {
        Value::Object(fields) => fields,
        _ => unreachable!("a record has fields"),
    }
}

/// The columns are all names that occur, in the order of their first occurrence.
fn metrics(rows: impl Iterator<Item = Map<String, Value>>) -> String {
    let rows: Vec<Map<String, Value>> = rows.collect();
    let mut columns: Vec<String> = Vec::new();
    for name in rows.iter().flat_map(Map::keys) {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    let cell = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let rows = rows.iter();
    let rows = rows.map(|row| columns.iter().map(|name| cell(row.get(name))).collect());
    document(&columns, rows)
}

fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use lapwing_learn::metrics::{StepMetrics, UpdateMetrics};
    use lapwing_play::metrics::PlayMetrics;
    use lapwing_train::record::metrics::Evaluation;

    #[test]
    fn metrics_are_a_line_each_and_cells_are_quoted() {
        let equal = StepMetrics {
            step: 1,
            play: PlayMetrics {
                top_action: "turn \"left\", then go".to_owned(),
                ..PlayMetrics::default()
            },
            ..StepMetrics::default()
        };
        let learned = StepMetrics {
            step: 2,
            learned: Some(UpdateMetrics {
                kl: Some(0.5),
                ..UpdateMetrics::default()
            }),
            ..StepMetrics::default()
        };
        let evaluation = Evaluation {
            step: 2,
            game: "frozen-lake".to_owned(),
            ..Evaluation::default()
        };
        let records = [
            Record::Step(equal),
            Record::Evaluation(evaluation),
            Record::Step(learned),
        ];
        assert_snapshot!(format!("{}\n{}", steps(&records), evaluations(&records)));
        assert_eq!(steps(&[]), "\n");
    }
}
