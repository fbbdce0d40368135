//! The result of one run of a sweep, read from its `metrics.jsonl`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::probes::ProbeResult;
use lapwing_play::metrics::{Baselines, PlayMetrics};
use lapwing_train::record::jsonl;
use lapwing_train::record::metrics::Evaluation;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResult {
    /// The name of its setting.
    pub setting: String,
    /// The seed of the training.
    pub seed: u64,
    /// The test before training, or else the first evaluation.
    pub before: PlayMetrics,
    /// The test after training, or else the last evaluation.
    pub after: PlayMetrics,
    /// The test after training with greedy decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub greedy: Option<PlayMetrics>,
    /// Whether `before` and `after` are of tests.
    pub(super) tested: bool,
    pub(super) baselines: Option<Baselines>,
    /// All evaluations, in order.
    #[serde(rename = "course")]
    pub(super) curve: Vec<CurvePoint>,
    /// The mean of each numeric metric over the training steps that have it.
    pub(super) metrics: BTreeMap<String, f64>,
    /// The results of probes, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, ProbeResult>,
}

/// The score of an evaluation, and the cost of the training before it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct CurvePoint {
    /// Training steps done.
    pub(super) step: usize,
    #[serde(flatten)]
    pub(super) cost: Cost<f64>,
    /// Share of the evaluation's episodes that succeeded.
    pub(super) success_rate: f64,
    /// Mean return of the evaluation's episodes: the score that runs are compared by.
    pub(super) return_mean: f64,
}

/// The cost of training, or a statistic of it. A part is `None` if no step records it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Cost<T> {
    /// Training episodes played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) episodes: Option<T>,
    /// Seconds of rollout and update, without evaluation, loading and saving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<T>,
}

/// Selects a part of the cost: the horizontal axis of a curve.
pub(super) type CostAxis = fn(&Cost<f64>) -> Option<f64>;
pub(super) const EPISODES: CostAxis = |cost| cost.episodes;
pub(super) const SECONDS: CostAxis = |cost| cost.seconds;

impl RunResult {
    /// Reads the metrics of a run; `None` if it has no evaluation. The steps are read as plain values, because their
    /// metrics depend on the learner.
    pub(super) fn read(metrics: &Path, setting: &str, seed: u64) -> Option<RunResult> {
        let mut baselines = None;
        let (mut before, mut after) = (None, None);
        let mut curve = Vec::new();
        let mut cost = Cost::default();
        // The sum of each metric, and the number of steps that have it.
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for record in jsonl::read::<Value>(metrics).ok()? {
            match record["kind"].as_str().unwrap_or_default() {
                "baselines" | "yardsticks" => baselines = Baselines::deserialize(record).ok(),
                "evaluation" => {
                    let Evaluation { step, play, .. } = Evaluation::deserialize(record).ok()?;
                    curve.push(CurvePoint {
                        step,
                        cost,
                        success_rate: play.success_rate,
                        return_mean: play.return_mean,
                    });
                    before.get_or_insert_with(|| play.clone());
                    after = Some(play);
                }
                "step" => {
                    let fields = record.as_object().into_iter().flatten();
                    for (name, value) in fields.filter_map(|(name, v)| Some((name, v.as_f64()?))) {
                        let (sum, steps) = sums.entry(name.clone()).or_default();
                        (*sum, *steps) = (*sum + value, *steps + 1.0);
                        match &**name {
                            "episodes" => *cost.episodes.get_or_insert(0.0) += value,
                            "seconds_rollout" | "seconds_update" => {
                                *cost.seconds.get_or_insert(0.0) += value;
                            }
                            _ => (),
                        }
                    }
                }
                _ => (),
            }
        }
        sums.retain(|name, _| name != "step" && name != "time");
        // The cost before the first step is 0 if any step records it.
        for CurvePoint { cost: then, .. } in &mut curve {
            then.episodes = then.episodes.or(cost.episodes.map(|_| 0.0));
            then.seconds = then.seconds.or(cost.seconds.map(|_| 0.0));
        }
        let means = sums.into_iter();
        let means = means.map(|(name, (sum, steps))| (name, sum / steps));
        Some(RunResult {
            setting: setting.to_owned(),
            seed,
            before: before?,
            after: after?,
            greedy: None,
            tested: false,
            baselines,
            curve,
            metrics: means.collect(),
            probes: BTreeMap::new(),
        })
    }

    /// Returns the cost of all training, if it is recorded.
    pub(super) fn total(&self, axis: CostAxis) -> Option<f64> {
        axis(&self.curve.last()?.cost)
    }

    /// Returns the score at this cost: that of the evaluation there, or a linear interpolation between the evaluations
    /// before and after. Returns `None` before the first evaluation and after the last.
    pub(super) fn score_at(&self, axis: CostAxis, cost: f64) -> Option<f64> {
        let mut before: Option<(f64, f64)> = None;
        for point in &self.curve {
            let (at, score) = (axis(&point.cost)?, point.return_mean);
            if at == cost {
                return Some(score);
            }
            if at > cost {
                let (from, low) = before?;
                return Some(low + (score - low) * (cost - from) / (at - from));
            }
            before = Some((at, score));
        }
        None
    }

    /// Returns the first evaluation with at least this score, if any.
    pub(super) fn first_reaching(&self, score: f64) -> Option<&CurvePoint> {
        self.curve.iter().find(|point| point.return_mean >= score)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a run with these evaluations: seconds since the previous one, and score.
    fn run(evaluations: &[(f64, f64)]) -> RunResult {
        let mut seconds = 0.0;
        let point = |(step, (later, score)): (usize, &(f64, f64))| {
            seconds += if step > 0 { later } else { &0.0 };
            CurvePoint {
                step,
                cost: Cost {
                    episodes: Some(step as f64),
                    seconds: Some(seconds),
                },
                success_rate: 0.0,
                return_mean: *score,
            }
        };
        RunResult {
            setting: String::new(),
            seed: 1,
            before: PlayMetrics::default(),
            after: PlayMetrics::default(),
            greedy: None,
            tested: false,
            baselines: None,
            curve: evaluations.iter().enumerate().map(point).collect(),
            metrics: BTreeMap::new(),
            probes: BTreeMap::new(),
        }
    }

    proptest! {
        #[test]
        fn scores_are_interpolated_between_evaluations(
            evaluations in prop::collection::vec((0.1f64..9.0, -3.0f64..3.0), 1..9),
            part in 0.0f64..1.0,
        ) {
            let run = run(&evaluations);
            for pair in run.curve.windows(2) {
                let [from, to] = [0, 1].map(|end| pair[end].cost.seconds.unwrap());
                let [low, high] = [0, 1].map(|end| pair[end].return_mean);
                prop_assert_eq!(run.score_at(SECONDS, from), Some(low));
                prop_assert_eq!(run.score_at(SECONDS, to), Some(high));
                let found = run.score_at(SECONDS, from + part * (to - from)).unwrap();
                prop_assert!((found - (low + part * (high - low))).abs() < 1e-12 / (to - from));
            }
            // There is no extrapolation.
            let end = run.total(SECONDS).unwrap();
            prop_assert_eq!(run.score_at(SECONDS, end), Some(evaluations.last().unwrap().1));
            prop_assert_eq!(run.score_at(SECONDS, end + 1e-9), None);
            prop_assert_eq!(run.score_at(SECONDS, -1e-9), None);
        }

        #[test]
        fn a_threshold_is_reached_by_the_first_evaluation_at_or_above_it(
            evaluations in prop::collection::vec((0.1f64..9.0, -3.0f64..3.0), 1..9),
            score in -3.0f64..3.0,
            more in 0.0f64..3.0,
        ) {
            let run = run(&evaluations);
            let found = run.first_reaching(score).map(|point| point.step);
            for point in &run.curve[..found.unwrap_or(run.curve.len())] {
                prop_assert!(point.return_mean < score);
            }
            if let Some(step) = found {
                prop_assert!(run.curve[step].return_mean >= score);
            }
            // A higher score is not reached sooner, and only by runs that reach the lower one.
            if let Some(later) = run.first_reaching(score + more) {
                prop_assert!(later.step >= found.unwrap());
            }
        }
    }

    /// Learners record different metrics.
    #[test]
    fn steps_may_have_different_metrics() {
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
            RunResult::read(&path, "a", 1)
        };
        let [first, last] = [evaluation(0), evaluation(2)];
        let steps = [
            r#"{"kind":"step","step":1,"episodes":10,"seconds_rollout":2,"seconds_update":1,"entropy":0.5,"kl":3}"#,
            r#"{"kind":"warning","step":1,"value":7,"episodes":1000,"seconds_update":1000}"#,
            r#"{"kind":"step","step":2,"episodes":20,"seconds_rollout":4,"seconds_update":1,"entropy":1.5,"top_action":"up"}"#,
        ];
        let found = read(&[&first, steps[0], steps[1], steps[2], &last]).unwrap();
        let costs = found.curve.iter().map(|point| point.cost);
        let costs: Vec<_> = costs.map(|cost| (cost.episodes, cost.seconds)).collect();
        assert_eq!(costs, [(Some(0.0), Some(0.0)), (Some(30.0), Some(8.0))]);
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
        assert_eq!(found.total(EPISODES), None);
        assert_eq!(found.total(SECONDS), Some(3.0));
        assert_eq!(found.score_at(EPISODES, 0.0), None);
        // Unfinished.
        let unfinished = read(&[&first, other[0]]).unwrap();
        assert_eq!(unfinished.curve.last().unwrap().step, 0);
        assert_eq!(read(&[]), None);
    }
}
