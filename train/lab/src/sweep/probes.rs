//! Results of probes: whether a model follows changed instructions before and after training.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use lapwing_play::probe::Verdict;

/// The output of `lapwing probe --json`.
#[derive(Default, Deserialize)]
struct ProbeFile {
    probes: Vec<ProbeEntry>,
}

#[derive(Deserialize)]
struct ProbeEntry {
    probe: String,
    /// The model without the adapter, then with it.
    players: ProbeResult,
}

/// One player's scores on one probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeScores {
    /// Mean return under the rules of the probe.
    pub return_mean: f64,
    /// Turns in which the usual and the changed instructions have no best action in common.
    pub parted: usize,
    /// Of these, turns with an action of the changed instructions.
    pub told: usize,
    /// Of these, turns with an action of the usual instructions.
    pub habit: usize,
    /// The verdict from these counts.
    pub verdict: Verdict,
}

/// The scores on one probe, before training and after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// The model before training.
    pub before: ProbeScores,
    /// The trained model.
    pub after: ProbeScores,
}

/// Reads the results in a file, by the names of the probes. A missing or incomplete file has none.
pub(super) fn read(path: &Path) -> BTreeMap<String, ProbeResult> {
    let text = lapwing_model::read_text(path, 1 << 24).unwrap_or_default();
    let file: ProbeFile = serde_json::from_str(&text).unwrap_or_default();
    let probes = file.probes.into_iter();
    probes.map(|entry| (entry.probe, entry.players)).collect()
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
    fn only_complete_files_are_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("probes.json");
        assert!(read(&path).is_empty());
        std::fs::write(&path, PRINTED).unwrap();
        let found = read(&path);
        let counts =
            ["usual", "swapped"].map(|name| (found[name].before.told, found[name].after.told));
        assert_eq!(counts, [(0, 0), (9, 5)]);
        // The program was killed while writing.
        std::fs::write(&path, &PRINTED[..PRINTED.len() - 3]).unwrap();
        assert!(read(&path).is_empty());
    }
}
