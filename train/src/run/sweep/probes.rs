//! What the runs of a sweep make of probes: who still reads what it is told, after training, and who did before.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use super::results::{Results, Row, Spread};
use crate::play::probe::Verdict;

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

/// What the seeds of a setting make of a probe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Words {
    /// The probe; `usual` is the game as it was trained.
    pub probe: String,
    /// The setting; none for the model as the runs of the first setting found it.
    pub setting: Option<String>,
    /// Mean return by the rules of the probe.
    #[serde(rename = "return")]
    pub mean_return: Spread,
    /// Where the two sorts of instructions part, the share of turns that went with what was told; none if they never do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<Spread>,
    /// And that with habit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub habit: Option<Spread>,
    /// Runs that read what they are told.
    pub reads: usize,
    /// Runs whose habit overrides it.
    pub overridden: usize,
}

impl Results {
    /// For each probe that was asked for, the game as it was trained before them: the model before training, as the first
    /// setting has it, then each setting.
    pub(super) fn of_probes(&self) -> Vec<Words> {
        let mut all = Vec::new();
        let asked = &self.compare.probes;
        let usual = "usual".to_owned();
        for probe in asked.first().map(|_| &usual).into_iter().chain(asked) {
            let answers = |runs: &[&Outcome], of: fn(&Probed) -> &Answer| -> Vec<Answer> {
                let probed = runs.iter().filter_map(|run| run.probes.get(probe));
                probed.map(of).cloned().collect()
            };
            // A setting may begin elsewhere, or ask in other words: one line is what the first of them began with.
            let first = self.rows.first().map(|row| self.of_setting(&row.setting));
            let before = answers(&first.unwrap_or_default(), |probed| &probed.before);
            all.extend(words(probe, None, &before));
            for Row { setting, .. } in &self.rows {
                let after = answers(&self.of_setting(setting), |probed| &probed.after);
                all.extend(words(probe, Some(setting), &after));
            }
        }
        all
    }
}

fn words(probe: &str, setting: Option<&str>, answers: &[Answer]) -> Option<Words> {
    let share = |count: fn(&Answer) -> usize| {
        let parted = answers.iter().filter(|answer| answer.parted > 0);
        let shares = parted.map(|answer| count(answer) as f64 / answer.parted as f64);
        Spread::of(&shares.collect::<Vec<_>>())
    };
    let who = |verdict| answers.iter().filter(|a| a.verdict == verdict).count();
    let returns: Vec<f64> = answers.iter().map(|answer| answer.return_mean).collect();
    Some(Words {
        probe: probe.to_owned(),
        setting: setting.map(str::to_owned),
        mean_return: Spread::of(&returns)?,
        told: share(|answer| answer.told),
        habit: share(|answer| answer.habit),
        reads: who(Verdict::Reads),
        overridden: who(Verdict::Overridden),
    })
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

    #[test]
    fn shares_are_of_the_turns_of_a_run_and_means_over_runs() {
        let answer = |parted, told, verdict| Answer {
            return_mean: told as f64,
            parted,
            told,
            habit: parted - told,
            verdict,
        };
        let answers = [
            answer(10, 10, Verdict::Reads),
            answer(100, 50, Verdict::Unclear),
            answer(0, 0, Verdict::SameMeaning),
        ];
        let words = words("swapped", None, &answers).unwrap();
        // Not 60 of 110: a run counts as one, however long its episodes.
        assert_eq!(words.told.unwrap().mean, 0.75);
        assert_eq!(words.habit.unwrap().mean, 0.25);
        assert_eq!(words.told.unwrap().count, 2);
        assert_eq!(words.mean_return.mean, 20.0);
        assert_eq!((words.reads, words.overridden), (1, 0));
        assert_eq!(super::words("swapped", None, &[]), None);
    }
}
