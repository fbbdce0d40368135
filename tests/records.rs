//! Compares `docs/records.md` with the records of runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lapwing_lab::export;
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::UnreadReason;
use lapwing_play::metrics::{Baselines, PlayMetrics, ReplyMetrics};
use lapwing_play::sample::{EpisodePurpose, KeptEpisode, KeptTurn};
use lapwing_train::record::Record;
use lapwing_train::record::directory;
use lapwing_train::record::directory::Session;
use lapwing_train::record::metrics::{Evaluation, Warning};
use serde::Serialize;
use serde_json::Value;

/// A record of each kind, with every field.
fn records() -> Vec<Record> {
    let play = PlayMetrics {
        replies: Some(ReplyMetrics::default()),
        ..PlayMetrics::default()
    };
    let turn = KeptTurn {
        observation: String::new(),
        messages: Vec::new(),
        prompt: String::new(),
        reply: String::new(),
        action: None,
        unread: Some(UnreadReason::NoTag),
        reward: 0.0,
        shaping: 0.0,
        advantage: Some(0.0),
    };
    vec![
        Record::Baselines(Baselines {
            random: Some(play.clone()),
            scripted: Some(play.clone()),
            best_possible: Some(1.0),
            ..Baselines::default()
        }),
        Record::Evaluation(Evaluation {
            play,
            ..Evaluation::default()
        }),
        Record::Step(StepMetrics::whole()),
        Record::Warning(Warning::default()),
        Record::Episode(KeptEpisode {
            step: 0,
            purpose: EpisodePurpose::Training,
            game: Some(String::new()),
            scene: String::new(),
            agent: 0,
            game_return: 0.0,
            composite_return: 0.0,
            advantage: Some(0.0),
            chosen: Some(true),
            success: true,
            truncated: true,
            turns: vec![turn],
            last: String::new(),
        }),
    ]
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => (),
    }
}

fn keys_of(records: &impl Serialize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    keys(&serde_json::to_value(records).unwrap(), &mut found);
    found
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/records.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn every_key_of_a_run_is_documented() {
    let records = records();
    for record in &records {
        // A new kind of record belongs into the list above, too.
        match record {
            Record::Baselines(_)
            | Record::Evaluation(_)
            | Record::Step(_)
            | Record::Warning(_)
            | Record::Episode(_) => (),
        }
    }
    let mut known = keys_of(&records);
    known.extend(keys_of(&Session::default()));
    assert!(known.len() > 50, "{known:?}");
    let page = page();
    for key in &known {
        assert!(
            page.contains(&format!("`{key}`")),
            "docs/records.md does not name {key}"
        );
    }
    // And it names no key that does not exist.
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let name = row.split('`').next().unwrap();
        let is_file = name.contains(['.', '/']) || name == "lock";
        assert!(is_file || known.contains(name), "no record has {name}");
    }
    for record in &records {
        let value = serde_json::to_value(record).unwrap();
        let kind = value["kind"].as_str().unwrap();
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[test]
fn every_file_of_a_run_is_documented() {
    let page = page();
    let run = Path::new("");
    let files = [
        directory::config,
        directory::metrics,
        directory::episodes,
        directory::sessions,
        directory::network,
        directory::best_network,
    ];
    let folders = [
        directory::adapter,
        directory::best,
        directory::checkpoints,
        directory::tensorboard,
    ];
    let names = files.map(|of| of(run).display().to_string()).into_iter();
    let names = names.chain(folders.map(|of| format!("{}/", of(run).display())));
    for name in names.chain(["lock", "csv/", "report.html"].map(str::to_owned)) {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}

/// The columns of the tables are the documented keys.
#[test]
fn tables_have_the_documented_columns() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    let config = lapwing_train::Config::default();
    let mut directory = directory::RunDirectory::create(&run, &config).unwrap();
    for record in records() {
        lapwing_train::record::Sink::record(&mut directory, &record).unwrap();
    }
    drop(directory);
    let files = export::export(&run, export::Format::Csv, None).unwrap();
    let page = page();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        let columns: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        assert_eq!(columns[0], "step");
        for column in columns {
            assert!(page.contains(&format!("`{column}`")), "{column}");
        }
    }
}
