//! Metrics as tables: comma-separated, a line a step or an evaluation, as pandas and trackio read them.

use serde::Serialize;
use serde_json::{Map, Value};

use lapwing_train::record::Record;

/// `steps.csv`: a line for each training step. What was not measured in a step (`kl` where nothing was learned) is empty.
pub fn steps(records: &[Record]) -> String {
    table(records.iter().filter_map(|record| match record {
        Record::Step(metrics) => Some(fields(metrics)),
        _ => None,
    }))
}

/// `evaluations.csv`: a line for each evaluation.
pub fn evaluations(records: &[Record]) -> String {
    table(records.iter().filter_map(|record| match record {
        Record::Evaluation(evaluation) => Some(fields(evaluation)),
        _ => None,
    }))
}

fn fields(record: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(record).expect("metrics are plain values") {
        Value::Object(fields) => fields,
        _ => unreachable!("a record has fields"),
    }
}

/// A column for each name that occurs, in the order of their coming.
fn table(rows: impl Iterator<Item = Map<String, Value>>) -> String {
    let rows: Vec<Map<String, Value>> = rows.collect();
    let mut columns: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(Map::keys) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let mut text = names.join(",") + "\n";
    for row in &rows {
        let cells: Vec<String> = columns.iter().map(|name| cell(row.get(*name))).collect();
        text += &(cells.join(",") + "\n");
    }
    text
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => quoted(text),
        Some(other) => other.to_string(),
    }
}

/// As RFC 4180 has it. An action's word may hold anything.
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
    use lapwing_learn::metrics::{Learned, StepMetrics};
    use lapwing_play::metrics::PlayMetrics;
    use lapwing_train::record::metrics::Evaluation;

    #[test]
    fn a_table_reads_so() {
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
            learned: Some(Learned {
                kl: Some(0.5),
                ..Learned::default()
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
