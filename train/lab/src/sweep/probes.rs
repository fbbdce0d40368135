//! Results of probes: whether a model follows changed instructions before and after training.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use lapwing_play::probe::{ProbeCounts, Verdict};

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
    /// Which instructions its actions followed.
    #[serde(flatten)]
    pub followed: ProbeCounts,
    /// The verdict.
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

/// Reads the results in a file, by the names of the probes. A missing or incomplete file, or one of an older version, has
/// none.
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
            {"player":"model","return_mean":0.25,"parted":0,"changed":0,"usual":0,"changed_by_chance":0,"usual_by_chance":0,"verdict":"same_meaning"},
            {"player":"model and adapter","return_mean":1.0,"parted":0,"changed":0,"usual":0,"changed_by_chance":0,"usual_by_chance":0,"verdict":"same_meaning"}]},
        {"probe":"swapped","random":0.1,"players":[
            {"player":"model","return_mean":0.25,"parted":10,"changed":9,"usual":1,"changed_by_chance":2.5,"usual_by_chance":2.5,"verdict":"reads"},
            {"player":"model and adapter","return_mean":0.5,"parted":20,"changed":5,"usual":15,"changed_by_chance":5.5,"usual_by_chance":5.0,"verdict":"overridden"}]}]}"#;

    #[test]
    fn only_complete_files_are_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("probes.json");
        assert!(read(&path).is_empty());
        std::fs::write(&path, PRINTED).unwrap();
        let found = read(&path);
        let changed = |scores: &ProbeScores| scores.followed.changed;
        let counts = ["usual", "swapped"].map(|name| &found[name]);
        let counts = counts.map(|of| (changed(&of.before), changed(&of.after)));
        assert_eq!(counts, [(0, 0), (9, 5)]);
        // Older files were counted without regard to chance.
        std::fs::write(&path, PRINTED.replace("changed", "told")).unwrap();
        assert!(read(&path).is_empty());
        // The program was killed while writing.
        std::fs::write(&path, &PRINTED[..PRINTED.len() - 3]).unwrap();
        assert!(read(&path).is_empty());
    }
}
