//! What the runs of a sweep make of probes: who still reads what it is told, after training, and who did before.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use lapwing_play::probe::Verdict;

/// What `lapwing probe --json` printed of a run.
#[derive(Deserialize)]
struct Printed {
    probes: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    probe: String,
    players: Vec<Answer>,
}

/// How one player did by the instructions of one probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Mean return by the rules of the probe.
    pub return_mean: f64,
    /// Turns in which usual and changed instructions have no action in common.
    pub parted: usize,
    /// Of these, those that went with what was told.
    pub told: usize,
    /// Of these, those that went with habit.
    pub habit: usize,
    /// What that says.
    pub verdict: Verdict,
}

/// A probe, before training and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probed {
    /// The model as training found it.
    pub before: Answer,
    /// What training made of it.
    pub after: Answer,
}

/// The answers that are kept in this file, by the names of the probes; none if it is not there or not whole.
pub(super) fn read(path: &Path) -> BTreeMap<String, Probed> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let printed = serde_json::from_str(&text).unwrap_or(Printed { probes: Vec::new() });
    let both = |asked: Asked| match <[Answer; 2]>::try_from(asked.players) {
        Ok([before, after]) => Some((asked.probe, Probed { before, after })),
        // Nobody could say what it was before.
        Err(_) => None,
    };
    printed.probes.into_iter().filter_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{"version":"1","probes":[
        {"probe":"usual","random":0.1,"players":[
            {"player":"model","return_mean":0.25,"parted":0,"told":0,"habit":0,"verdict":"same_meaning"},
            {"player":"model and adapter","return_mean":1.0,"parted":0,"told":0,"habit":0,"verdict":"same_meaning"}]},
        {"probe":"swapped","random":0.1,"players":[
            {"player":"model","return_mean":0.25,"parted":10,"told":9,"habit":1,"verdict":"reads"},
            {"player":"model and adapter","return_mean":0.5,"parted":20,"told":5,"habit":15,"verdict":"overridden"}]}]}"#;

    #[test]
    fn answers_are_read_if_the_file_is_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("probes.json");
        assert!(read(&path).is_empty());
        std::fs::write(&path, PRINTED).unwrap();
        let found = read(&path);
        let told =
            ["usual", "swapped"].map(|name| (found[name].before.told, found[name].after.told));
        assert_eq!(told, [(0, 0), (9, 5)]);
        // The program was killed while it wrote.
        std::fs::write(&path, &PRINTED[..PRINTED.len() - 3]).unwrap();
        assert!(read(&path).is_empty());
    }
}
