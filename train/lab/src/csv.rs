//! Comma-separated values.

use serde_json::{Map, Value};

use lapwing_train::record::Record;

/// Returns a document with a line for each record of this kind. The columns are all names that occur, in the order of their
/// first occurrence; metrics that a record lacks (`kl` without an update) are empty.
pub(crate) fn metrics(records: &[Record], kind: &str) -> String {
    let fields = |record: &Record| match serde_json::to_value(record) {
        Ok(Value::Object(mut fields)) => {
            let is_kind = fields.shift_remove("kind") == Some(kind.into());
            is_kind.then_some(fields)
        }
        other => unreachable!("a record has fields, not {other:?}"),
    };
    let rows: Vec<Map<String, Value>> = records.iter().filter_map(fields).collect();
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
    let row = |fields: &Map<String, Value>| {
        let cells = columns.iter().map(|name| cell(fields.get(name)));
        cells.collect::<Vec<String>>()
    };
    let mut table: Vec<Vec<String>> = rows.iter().map(row).collect();
    table.insert(0, columns);
    document(&table)
}

/// Returns a document with a line for each row. Cells are quoted where RFC 4180 requires it.
pub(crate) fn document(rows: &[Vec<String>]) -> String {
    let quoted = |cell: &String| match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
    rows.iter().map(line).collect()
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
        assert_snapshot!(format!(
            "{}\n{}",
            metrics(&records, "step"),
            metrics(&records, "evaluation")
        ));
        assert_eq!(metrics(&[], "step"), "\n");
    }
}
