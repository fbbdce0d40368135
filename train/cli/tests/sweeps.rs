//! Sweeps: runs of their own, and a table.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::program::run;

const FILE: &str = r#"
base = "frozen-lake"
seeds = [1, 2]

[set]
train.steps = 2
train.groups = 1
train.group_size = 4
train.learn = 2
eval.episodes = 4

[settings.aaw]
[settings.top]
train.sampling = "top"
[settings.broken]
model.dir = "no/such/model"
"#;

#[test]
fn a_failed_run_does_not_lose_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(directory.path().join("trial.toml"), text).unwrap();
    write(FILE);
    let first = run(directory.path(), &["sweep", "trial.toml", "--jobs", "2"]);
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(
        first
            .err
            .contains("6 runs, 0 of them done; 2 at a time, kept in sweeps/trial")
    );
    assert!(
        first
            .err
            .contains("there is no model directory DIR/no/such/model"),
        "{}",
        first.err
    );
    let last = first.err.lines().last().unwrap();
    assert_snapshot!(last, @"error: 2 of 6 runs failed: sweeps/trial/broken/seed-1.log, sweeps/trial/broken/seed-2.log; the same command tries them again, and nothing else");
    let place = directory.path().join("sweeps/trial");
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert!(first.out.starts_with(&read("results.md")), "{}", first.out);
    assert!(
        first
            .out
            .contains("Without a result: broken seed 1, broken seed 2.")
    );
    let results: Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(results["rows"].as_array().unwrap().len(), 2);
    assert_eq!(results["rows"][1]["seeds"], Value::from([1, 2].as_slice()));
    assert!(results["rows"][1]["difference"]["interval"].is_array());
    assert_eq!(read("results.csv").lines().count(), 5);

    // What is done is not done again; what is asked for beyond it is.
    let metrics = read("aaw/seed-1/metrics.jsonl");
    write(&FILE.replace("[settings.broken]\nmodel.dir = \"no/such/model\"\n", ""));
    let again = run(directory.path(), &["sweep", "trial.toml"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(
        again.err.contains("4 runs, 4 of them done"),
        "{}",
        again.err
    );
    assert_eq!(read("aaw/seed-1/metrics.jsonl"), metrics);
    let longer = FILE
        .replace("[settings.broken]\nmodel.dir = \"no/such/model\"\n", "")
        .replace("seeds = [1, 2]", "seeds = [1]")
        .replace("train.steps = 2", "train.steps = 3");
    write(&longer);
    let more = run(directory.path(), &["sweep", "trial.toml"]);
    assert_eq!(more.code, 0, "{}", more.err);
    assert!(read("aaw/seed-1/metrics.jsonl").starts_with(&metrics));
    assert!(read("aaw/seed-1/metrics.jsonl").contains("\"kind\":\"step\",\"step\":3"));

    // Another sweep of that name is not mixed with it.
    write(&longer.replace("train.group_size = 4", "train.group_size = 6"));
    let other = run(directory.path(), &["sweep", "trial.toml"]);
    assert_eq!((other.code, other.out.as_str()), (1, ""));
    assert_snapshot!(other.err, @"error: sweeps/trial/aaw/seed-1 was made with another config: train.group_size was 4, is 6; change that back, or choose another place (--out, or `name` in the file)");
}
