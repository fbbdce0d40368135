//! How one run of a sweep went, as its `metrics.jsonl` tells it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::probes::Probed;
use lapwing_play::metrics::{PlayMetrics, Yardsticks};
use lapwing_train::record::jsonl;
use lapwing_train::record::metrics::Evaluation;

/// How a run of a sweep ended, and how it came there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The name of its setting.
    pub setting: String,
    /// The seed of the training.
    pub seed: u64,
    /// The first evaluation.
    pub before: PlayMetrics,
    /// The last evaluation.
    pub after: PlayMetrics,
    /// What they are held against.
    pub yardsticks: Option<Yardsticks>,
    /// All evaluations, in their order.
    pub course: Vec<Point>,
    /// The mean of each number that training steps tell, over the steps of the run that have it. What no step told is
    /// not there.
    pub metrics: BTreeMap<String, f64>,
    /// What it made of the probes that it was asked, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, Probed>,
}

/// An evaluation, and what training had cost by then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Training steps done.
    pub step: usize,
    /// Training episodes played, if the steps tell.
    pub episodes: Option<f64>,
    /// Seconds of training, if the steps tell: of rollout and update, and not of evaluating, loading and saving.
    pub seconds: Option<f64>,
    /// Share of the evaluation's episodes that succeeded.
    pub success_rate: f64,
    /// Mean of their returns: the score that runs are compared by.
    pub return_mean: f64,
}

/// By what the progress of runs is made equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Training episodes played.
    Episodes,
    /// Seconds of training.
    Seconds,
}

/// What training cost so far; nothing until a step tells.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    episodes: Option<f64>,
    seconds: Option<f64>,
}

impl Point {
    /// How far training had come.
    pub fn place(&self, along: Along) -> Option<f64> {
        match along {
            Along::Episodes => self.episodes,
            Along::Seconds => self.seconds,
        }
    }
}

impl Outcome {
    /// Of the run that is kept here, if it was examined after its last step. Steps of training are read by what they
    /// have: which numbers they tell depends on how the run learns.
    pub(super) fn read(
        metrics: &Path,
        setting: &str,
        seed: u64,
        last_step: usize,
    ) -> Option<Outcome> {
        let mut yardsticks = None;
        let mut evaluations: Vec<(Evaluation, Cost)> = Vec::new();
        let mut cost = Cost::default();
        // For each name the sum and how many steps it is of.
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for record in jsonl::values(metrics).ok()? {
            match kind(&record) {
                "baselines" | "yardsticks" => yardsticks = Yardsticks::deserialize(record).ok(),
                "evaluation" => evaluations.push((Evaluation::deserialize(record).ok()?, cost)),
                "step" => {
                    let number = |name: &str| record.get(name).and_then(Value::as_f64);
                    let seconds = [number("seconds_rollout"), number("seconds_update")];
                    for seconds in seconds.into_iter().flatten() {
                        *cost.seconds.get_or_insert(0.0) += seconds;
                    }
                    if let Some(episodes) = number("episodes") {
                        *cost.episodes.get_or_insert(0.0) += episodes;
                    }
                    for (name, value) in record.as_object().into_iter().flatten() {
                        if let Some(value) = value.as_f64() {
                            let (sum, steps) = sums.entry(name.clone()).or_default();
                            (*sum, *steps) = (*sum + value, *steps + 1.0);
                        }
                    }
                }
                _ => (),
            }
        }
        sums.retain(|name, _| name != "step" && name != "time");
        let (first, last) = (evaluations.first()?, evaluations.last()?);
        if last.0.step != last_step {
            return None;
        }
        // Before the first step nothing was spent, if it is told at all what steps cost.
        let by_then = |then: Option<f64>, at_all: Option<f64>| then.or(at_all.map(|_| 0.0));
        let point = |(evaluation, then): &(Evaluation, Cost)| Point {
            step: evaluation.step,
            episodes: by_then(then.episodes, cost.episodes),
            seconds: by_then(then.seconds, cost.seconds),
            success_rate: evaluation.play.success_rate,
            return_mean: evaluation.play.return_mean,
        };
        Some(Outcome {
            setting: setting.to_owned(),
            seed,
            before: first.0.play.clone(),
            after: last.0.play.clone(),
            yardsticks,
            course: evaluations.iter().map(point).collect(),
            metrics: sums
                .into_iter()
                .map(|(name, (sum, steps))| (name, sum / steps))
                .collect(),
            probes: BTreeMap::new(),
        })
    }

    /// What the whole training took, if it is known.
    pub fn whole(&self, along: Along) -> Option<f64> {
        self.course.last()?.place(along)
    }

    /// The score when training had come so far: that of the evaluation which was made there, or else on the straight line
    /// between the evaluations before and after. None beyond the last evaluation and before the first.
    pub fn score_at(&self, along: Along, place: f64) -> Option<f64> {
        let mut before: Option<(f64, f64)> = None;
        for point in &self.course {
            let (at, score) = (point.place(along)?, point.return_mean);
            if at == place {
                return Some(score);
            }
            if at > place {
                let (from, low) = before?;
                return Some(low + (score - low) * (place - from) / (at - from));
            }
            before = Some((at, score));
        }
        None
    }

    /// The first evaluation whose score is at least this. What lies between evaluations nobody saw.
    pub fn reaches(&self, score: f64) -> Option<&Point> {
        self.course.iter().find(|point| point.return_mean >= score)
    }
}

/// The last training step that a run told of; 0 if none.
pub(super) fn last_step(metrics: &Path) -> usize {
    let records = jsonl::values(metrics).unwrap_or_default();
    let mut steps = records.iter().rev();
    let step = steps.find(|record| kind(record) == "step");
    let step = step.and_then(|record| record.get("step")?.as_u64());
    step.and_then(|step| usize::try_from(step).ok())
        .unwrap_or(0)
}

fn kind(record: &Value) -> &str {
    record
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A run of these evaluations: how long after the one before, and the score.
    fn run(evaluations: &[(f64, f64)]) -> Outcome {
        let mut seconds = 0.0;
        let point = |(step, (later, score)): (usize, &(f64, f64))| {
            seconds += if step > 0 { later } else { &0.0 };
            Point {
                step,
                episodes: Some(step as f64),
                seconds: Some(seconds),
                success_rate: 0.0,
                return_mean: *score,
            }
        };
        Outcome {
            setting: String::new(),
            seed: 1,
            before: PlayMetrics::default(),
            after: PlayMetrics::default(),
            yardsticks: None,
            course: evaluations.iter().enumerate().map(point).collect(),
            metrics: BTreeMap::new(),
            probes: BTreeMap::new(),
        }
    }

    proptest! {
        #[test]
        fn scores_are_those_of_evaluations_and_straight_between_them(
            evaluations in prop::collection::vec((0.1f64..9.0, -3.0f64..3.0), 1..9),
            part in 0.0f64..1.0,
        ) {
            let run = run(&evaluations);
            for pair in run.course.windows(2) {
                let [from, to] = [0, 1].map(|end| pair[end].seconds.unwrap());
                let [low, high] = [0, 1].map(|end| pair[end].return_mean);
                prop_assert_eq!(run.score_at(Along::Seconds, from), Some(low));
                prop_assert_eq!(run.score_at(Along::Seconds, to), Some(high));
                let found = run.score_at(Along::Seconds, from + part * (to - from)).unwrap();
                prop_assert!((found - (low + part * (high - low))).abs() < 1e-12 / (to - from));
            }
            // Nobody knows how it would have gone on.
            let end = run.whole(Along::Seconds).unwrap();
            prop_assert_eq!(run.score_at(Along::Seconds, end), Some(evaluations.last().unwrap().1));
            prop_assert_eq!(run.score_at(Along::Seconds, end + 1e-9), None);
            prop_assert_eq!(run.score_at(Along::Seconds, -1e-9), None);
        }

        #[test]
        fn a_score_is_reached_by_the_first_evaluation_of_as_much(
            evaluations in prop::collection::vec((0.1f64..9.0, -3.0f64..3.0), 1..9),
            score in -3.0f64..3.0,
            more in 0.0f64..3.0,
        ) {
            let run = run(&evaluations);
            let found = run.reaches(score).map(|point| point.step);
            for point in &run.course[..found.unwrap_or(run.course.len())] {
                prop_assert!(point.return_mean < score);
            }
            if let Some(step) = found {
                prop_assert!(run.course[step].return_mean >= score);
            }
            // More is reached no sooner, and not by who does not reach less.
            if let Some(later) = run.reaches(score + more) {
                prop_assert!(later.step >= found.unwrap());
            }
        }
    }

    /// Another way to learn tells other things of its steps.
    #[test]
    fn steps_are_read_by_what_they_have() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        let evaluation = |step: usize| {
            let play = PlayMetrics {
                return_mean: step as f64,
                ..PlayMetrics::default()
            };
            let evaluation = Evaluation {
                step,
                play,
                seconds_evaluation: 100.0,
                ..Evaluation::default()
            };
            serde_json::to_string(&lapwing_train::record::Record::Evaluation(evaluation)).unwrap()
        };
        let read = |lines: &[&str]| {
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
            Outcome::read(&path, "a", 1, 2)
        };
        let [first, last] = [evaluation(0), evaluation(2)];
        let steps = [
            r#"{"kind":"step","step":1,"episodes":10,"seconds_rollout":2,"seconds_update":1,"entropy":0.5,"kl":3}"#,
            r#"{"kind":"warning","step":1,"value":7,"episodes":1000,"seconds_update":1000}"#,
            r#"{"kind":"step","step":2,"episodes":20,"seconds_rollout":4,"seconds_update":1,"entropy":1.5,"top_action":"up"}"#,
        ];
        let found = read(&[&first, steps[0], steps[1], steps[2], &last]).unwrap();
        let course: Vec<_> = found
            .course
            .iter()
            .map(|p| (p.episodes, p.seconds))
            .collect();
        assert_eq!(course, [(Some(0.0), Some(0.0)), (Some(30.0), Some(8.0))]);
        let metric = |name: &str| found.metrics.get(name).copied();
        assert_eq!(metric("entropy"), Some(1.0));
        assert_eq!(metric("kl"), Some(3.0));
        assert_eq!(
            ["step", "time", "value", "clip_fraction"].map(metric),
            [None; 4]
        );

        let other = [
            r#"{"kind":"step","step":1,"seconds_update":1}"#,
            r#"{"kind":"step","step":2,"seconds_update":2}"#,
        ];
        let found = read(&[&first, other[0], other[1], &last]).unwrap();
        assert_eq!(found.whole(Along::Episodes), None);
        assert_eq!(found.whole(Along::Seconds), Some(3.0));
        assert_eq!(found.score_at(Along::Episodes, 0.0), None);
        assert_eq!(last_step(&path), 2);
        // Not at its end.
        assert_eq!(read(&[&first, other[0]]), None);
        assert_eq!(last_step(&path), 1);
        assert_eq!(read(&[]), None);
        assert_eq!(last_step(&path), 0);
    }
}
