//! The results of a sweep: statistics over the seeds of each setting.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::Sweep;
use super::comparison::SweepComparison;
use super::probes::ProbeScores;
use super::run_result::{Cost, CostAxis, EPISODES, RunResult, SECONDS};
use crate::stats::{interval, mean_and_deviation};
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::probe::Verdict;

/// Statistics of a number over runs, or over pairs of runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct RunStatistics {
    pub(super) count: usize,
    pub(super) mean: f64,
    /// The standard deviation of a sample (n - 1); 0 for a single run.
    pub(super) std: f64,
    /// The 95 % confidence interval of the mean, by Student's t.
    pub(super) interval: [f64; 2],
}

impl RunStatistics {
    /// Returns `None` if there are no values.
    fn of(values: impl Iterator<Item = f64>) -> Option<RunStatistics> {
        let values: Vec<f64> = values.collect();
        (!values.is_empty()).then(|| {
            let (mean, std) = mean_and_deviation(&values);
            RunStatistics {
                count: values.len(),
                mean,
                std,
                interval: interval(&values),
            }
        })
    }
}

/// Statistics over the seeds of a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SettingResult {
    pub(super) setting: String,
    /// The seeds of the finished runs.
    pub(super) seeds: Vec<u64>,
    /// Success rate of the test, or else of the last evaluation.
    pub(super) success: RunStatistics,
    /// Success rate and mean return of the same with greedy decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) greedy: Option<[RunStatistics; 2]>,
    /// Mean return of the same.
    #[serde(flatten)]
    pub(super) score: ScoreStatistics,
    #[serde(flatten)]
    pub(super) cost: Cost<RunStatistics>,
    /// The score at [`SweepResults::equal_episodes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_equal_episodes: Option<ScoreStatistics>,
    /// The score at [`SweepResults::equal_seconds`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_equal_seconds: Option<ScoreStatistics>,
    /// The cost until each threshold of the score.
    #[serde(rename = "reached", skip_serializing_if = "Vec::is_empty")]
    pub(super) thresholds: Vec<CostToThreshold>,
    /// The compared metrics of training steps, each the mean over a run's steps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) metrics: BTreeMap<String, RunStatistics>,
}

/// Statistics of a mean return.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ScoreStatistics {
    #[serde(rename = "return")]
    pub(super) mean_return: RunStatistics,
    /// The difference from the first setting, paired by seed; `None` for the first setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<RunStatistics>,
}

/// The cost until the first evaluation with at least this score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CostToThreshold {
    pub(super) score: f64,
    /// The runs that reached it.
    pub(super) runs: Vec<ThresholdRun>,
    /// Statistics over these runs.
    #[serde(flatten)]
    pub(super) cost: Cost<RunStatistics>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ThresholdRun {
    seed: u64,
    #[serde(flatten)]
    pub(super) cost: Cost<f64>,
}

/// Statistics of a probe over the seeds of a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ProbeStatistics {
    /// The probe; `usual` is the game with the instructions of the training.
    pub(super) probe: String,
    /// The setting; `None` for the model before training, from the runs of the first setting.
    pub(super) setting: Option<String>,
    /// Mean return under the rules of the probe.
    #[serde(rename = "return")]
    pub(super) mean_return: RunStatistics,
    /// Share of turns that followed the changed instructions, among those in which usual and changed instructions have
    /// no best action in common; `None` if there are no such turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<RunStatistics>,
    /// Share of the same turns that followed the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usual: Option<RunStatistics>,
    /// What a player that draws its actions evenly expects of `changed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changed_by_chance: Option<RunStatistics>,
    /// The same of `usual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usual_by_chance: Option<RunStatistics>,
    /// Runs that follow the changed instructions.
    pub(super) reads: usize,
    /// Runs that follow the usual instructions instead.
    pub(super) overridden: usize,
}

/// The results of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepResults {
    pub(super) name: String,
    /// The seeds of the sweep file.
    pub(super) seeds: Vec<u64>,
    /// The fewest training episodes of any run here, at which scores are compared.
    pub(super) equal_episodes: Option<f64>,
    /// The fewest seconds of training of any run here, at which scores are compared.
    pub(super) equal_seconds: Option<f64>,
    /// The settings with a finished run.
    #[serde(rename = "rows")]
    pub(super) settings: Vec<SettingResult>,
    #[serde(rename = "words", skip_serializing_if = "Vec::is_empty")]
    pub(super) probes: Vec<ProbeStatistics>,
    /// All finished runs.
    pub runs: Vec<RunResult>,
    /// The setting and seed of each unfinished run.
    pub missing: Vec<(String, u64)>,
    #[serde(skip)]
    pub(super) compare: SweepComparison,
}

impl SweepResults {
    /// Computes the results of the finished runs in the directory of a sweep.
    pub fn of(sweep: &Sweep, directory: &Path) -> SweepResults {
        let (mut runs, mut missing) = (Vec::new(), Vec::new());
        for run in &sweep.runs {
            match run.outcome(directory) {
                Some(result) => runs.push(result),
                None => missing.push((run.setting.clone(), run.seed)),
            }
        }
        let least = |axis| {
            runs.iter()
                .filter_map(|run| run.total(axis))
                .reduce(f64::min)
        };
        let mut results = SweepResults {
            name: sweep.name.clone(),
            seeds: sweep.seeds.clone(),
            equal_episodes: least(EPISODES),
            equal_seconds: least(SECONDS),
            settings: Vec::new(),
            probes: Vec::new(),
            runs,
            missing,
            compare: sweep.compare.clone(),
        };
        let names = sweep.settings();
        let settings = names.iter().map(|name| results.setting(name, names[0]));
        results.settings = settings.flatten().collect();
        results.probes = results.probe_statistics();
        results
    }

    pub(super) fn of_setting(&self, setting: &str) -> Vec<&RunResult> {
        let runs = self.runs.iter();
        runs.filter(|run| run.setting == setting).collect()
    }

    /// Returns what success and return are of. Runs of old versions have no test.
    pub(super) fn scored(&self) -> &'static str {
        match self.runs.iter().filter(|run| run.tested).count() {
            0 => "last evaluation",
            all if all == self.runs.len() => "test",
            _ => "test or last evaluation",
        }
    }

    /// Returns whether all runs played the same number of training episodes.
    pub(super) fn are_episodes_equal(&self) -> bool {
        let mut totals = self.runs.iter().map(|run| run.total(EPISODES));
        totals.all(|episodes| episodes == self.equal_episodes)
    }

    /// Returns the statistics of the usual game and each compared probe: the model before training, then each setting.
    fn probe_statistics(&self) -> Vec<ProbeStatistics> {
        let mut all = Vec::new();
        let probes = &self.compare.probes;
        let usual = "usual".to_owned();
        for probe in probes.first().map(|_| &usual).into_iter().chain(probes) {
            let before = self.settings.first().map(|first| (first, None));
            let after = self.settings.iter().map(|row| (row, Some(&*row.setting)));
            for (row, setting) in before.into_iter().chain(after) {
                let runs = self.of_setting(&row.setting);
                let results = runs.iter().filter_map(|run| run.probes.get(probe));
                let scores = results.map(|result| match setting {
                    None => &result.before,
                    Some(_) => &result.after,
                });
                let scores: Vec<&ProbeScores> = scores.collect();
                all.extend(probe_statistics(probe, setting, &scores));
            }
        }
        all
    }

    /// Returns the statistics of a setting, or `None` if it has no finished run.
    fn setting(&self, setting: &str, first: &str) -> Option<SettingResult> {
        let (own, first) = (self.of_setting(setting), self.of_setting(first));
        let over = |of: &dyn Fn(&RunResult) -> Option<f64>| {
            RunStatistics::of(own.iter().filter_map(|run| of(run)))
        };
        let score = |of: &dyn Fn(&RunResult) -> Option<f64>| {
            let pairs = own.iter().filter_map(|run| {
                let other = first.iter().find(|other| other.seed == run.seed)?;
                (other.setting != run.setting).then_some(of(run)? - of(other)?)
            });
            Some(ScoreStatistics {
                mean_return: over(of)?,
                difference: RunStatistics::of(pairs),
            })
        };
        let greedy = |of: fn(&PlayMetrics) -> f64| over(&|run| run.greedy.as_ref().map(of));
        let score_at =
            |axis, cost: Option<f64>| cost.and_then(|cost| score(&|run| run.score_at(axis, cost)));
        let metric =
            |name: &String| Some((name.clone(), over(&|run| run.metrics.get(name).copied())?));
        let threshold = |score: &f64| cost_to_threshold(*score, &own);
        Some(SettingResult {
            setting: setting.to_owned(),
            seeds: own.iter().map(|run| run.seed).collect(),
            success: over(&|run| Some(run.after.success_rate))?,
            greedy: greedy(|play| play.success_rate)
                .zip(greedy(|play| play.return_mean))
                .map(<[_; 2]>::from),
            score: score(&|run| Some(run.after.return_mean))?,
            cost: Cost {
                episodes: over(&|run| run.total(EPISODES)),
                seconds: over(&|run| run.total(SECONDS)),
            },
            at_equal_episodes: score_at(EPISODES, self.equal_episodes),
            at_equal_seconds: score_at(SECONDS, self.equal_seconds),
            thresholds: self.compare.reach.iter().map(threshold).collect(),
            metrics: self.compare.metrics.iter().filter_map(metric).collect(),
        })
    }
}

fn probe_statistics(
    probe: &str,
    setting: Option<&str>,
    scores: &[&ProbeScores],
) -> Option<ProbeStatistics> {
    let share = |of: usize| {
        let shares = scores.iter().filter_map(|scores| scores.followed.shares());
        RunStatistics::of(shares.map(|shares| shares[of]))
    };
    let runs = |verdict| scores.iter().filter(|s| s.verdict == verdict).count();
    Some(ProbeStatistics {
        probe: probe.to_owned(),
        setting: setting.map(str::to_owned),
        mean_return: RunStatistics::of(scores.iter().map(|scores| scores.return_mean))?,
        changed: share(0),
        usual: share(1),
        changed_by_chance: share(2),
        usual_by_chance: share(3),
        reads: runs(Verdict::Reads),
        overridden: runs(Verdict::Overridden),
    })
}

fn cost_to_threshold(score: f64, runs: &[&RunResult]) -> CostToThreshold {
    let reaching = runs.iter().filter_map(|run| {
        let cost = run.first_reaching(score)?.cost;
        let seed = run.seed;
        Some(ThresholdRun { seed, cost })
    });
    let runs: Vec<ThresholdRun> = reaching.collect();
    let over = |axis: CostAxis| RunStatistics::of(runs.iter().filter_map(|run| axis(&run.cost)));
    CostToThreshold {
        score,
        cost: Cost {
            episodes: over(EPISODES),
            seconds: over(SECONDS),
        },
        runs,
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::sweep::SweepRun;
    use lapwing_learn::metrics::StepMetrics;
    use lapwing_play::metrics::Baselines;
    use lapwing_play::probe::ProbeCounts;
    use lapwing_train::record::jsonl::Jsonl;
    use lapwing_train::record::metrics::{Evaluation, TestResults};
    use lapwing_train::record::{Record, directory};

    fn sweep(text: &str) -> Sweep {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("trial.toml");
        std::fs::write(&path, text).unwrap();
        Sweep::load(&path).unwrap()
    }

    /// Writes the metrics of a run with these scores: one before the first step and one after each.
    fn write_run(cell: &SweepRun, home: &Path, step: &StepMetrics, scores: &[f64]) {
        let dir = cell.directory(home);
        std::fs::create_dir_all(&dir).unwrap();
        let mut file = Jsonl::create(&directory::metrics(&dir)).unwrap();
        let play = |score: f64| PlayMetrics {
            episodes: 50,
            success_rate: score / 2.0,
            return_mean: score,
            valid_action_rate: 1.0,
            episode_length_mean: 6.5,
            ..PlayMetrics::default()
        };
        let baselines = Baselines {
            random: Some(play(0.0625)),
            best_possible: Some(1.0),
            ..Baselines::default()
        };
        file.write(&Record::Baselines(baselines)).unwrap();
        for (number, score) in scores.iter().enumerate() {
            if number > 0 {
                let step = StepMetrics {
                    step: number,
                    ..step.clone()
                };
                file.write(&Record::Step(step)).unwrap();
            }
            let evaluation = Evaluation {
                step: number,
                play: play(*score),
                ..Evaluation::default()
            };
            file.write(&Record::Evaluation(evaluation)).unwrap();
        }
    }

    fn step(episodes: usize, seconds: f64) -> StepMetrics {
        StepMetrics {
            play: PlayMetrics {
                episodes,
                ..PlayMetrics::default()
            },
            seconds_rollout: 0.75 * seconds,
            seconds_update: 0.25 * seconds,
            ..StepMetrics::default()
        }
    }

    const TRIAL: &str = "seeds = 4\nset.train.steps = 2\n[settings.slow]\n[settings.fast]\ntrain.lr = 0.5\n\
                         [compare]\nreach = [0.5, 0.9, 2]\nmetrics = [\"truncated_rate\", \"entropy\"]\n";

    /// A sweep whose settings differ by 0.25 for every seed; the seeds differ by more. `fast` takes half of the time.
    /// Two of its runs are missing: one is unfinished, one has no metrics.
    fn trial(home: &Path) -> SweepResults {
        let sweep = sweep(TRIAL);
        for cell in &sweep.runs {
            let score = 0.125 * cell.seed as f64;
            match (&*cell.setting, cell.seed) {
                ("slow", _) => write_run(cell, home, &step(200, 8.0), &[0.125, 0.25, score]),
                ("fast", 1 | 2) => {
                    write_run(cell, home, &step(100, 4.0), &[0.125, 0.5, score + 0.25])
                }
                ("fast", 3) => write_run(cell, home, &step(100, 4.0), &[0.125, 0.5]),
                _ => (),
            }
        }
        SweepResults::of(&sweep, home)
    }

    #[test]
    fn results_are_means_with_intervals_and_paired_differences() {
        let home = tempfile::tempdir().unwrap();
        let results = trial(home.path());
        let runs: Vec<_> = results
            .runs
            .iter()
            .map(|run| (&*run.setting, run.seed))
            .collect();
        let slow = [1, 2, 3, 4].map(|seed| ("slow", seed));
        assert_eq!(runs, [&slow[..], &[("fast", 1), ("fast", 2)]].concat());
        assert_eq!(
            results.missing,
            [3, 4].map(|seed| ("fast".to_owned(), seed))
        );
        // 0.125 seed + 0.25 minus 0.125 seed.
        let ahead = results.settings[1].score.difference.unwrap();
        assert_eq!(
            (ahead.count, ahead.mean, ahead.interval),
            (2, 0.25, [0.25; 2])
        );
        assert_eq!(results.settings[0].score.difference, None);
        // `fast` takes 8 seconds, in which `slow` makes its first step.
        assert_eq!(results.equal_seconds, Some(8.0));
        let slow = results.settings[0].at_equal_seconds.as_ref().unwrap();
        assert_eq!((slow.mean_return.mean, slow.mean_return.std), (0.25, 0.0));
        let fast = results.settings[1].at_equal_seconds.as_ref().unwrap();
        assert_eq!(fast.mean_return, results.settings[1].score.mean_return);
        // Only the last seed of `slow` reaches 0.5, and no run reaches 0.9.
        let reached = &results.settings[0].thresholds;
        assert_eq!(reached[0].runs.len(), 1);
        assert_eq!(reached[0].runs[0].cost.episodes, Some(400.0));
        assert_eq!((reached[1].runs.len(), reached[1].cost.seconds), (0, None));
        assert_snapshot!(results.markdown() + "\n" + &results.csv());
    }

    #[test]
    fn tests_are_reported_rather_than_evaluations() {
        let home = tempfile::tempdir().unwrap();
        let sweep = sweep("seeds = 2\nset.train.steps = 2\n");
        let results = |of: &str| {
            let results = SweepResults::of(&sweep, home.path());
            assert!(results.markdown().contains(&format!("return, {of}")));
            let ends = results.runs.iter().map(|run| run.after.return_mean);
            let mean = ends.clone().sum::<f64>() / 2.0;
            assert_eq!(results.settings[0].score.mean_return.mean, mean);
            ends.collect::<Vec<f64>>()
        };
        for cell in &sweep.runs {
            write_run(cell, home.path(), &step(10, 2.0), &[0.0, 0.5, 1.0]);
        }
        assert_eq!(results("last evaluation"), [1.0, 1.0]);
        let test = |cell: &SweepRun, last, score| {
            let evaluation = |(step, return_mean)| Evaluation {
                step,
                play: PlayMetrics {
                    return_mean,
                    ..PlayMetrics::default()
                },
                ..Evaluation::default()
            };
            let results = TestResults {
                sampled: [(0, 0.0), (last, score)].map(evaluation).to_vec(),
                greedy: [(0, 0.0), (last, score / 2.0)].map(evaluation).to_vec(),
                ..TestResults::default()
            };
            let file = directory::test(&cell.directory(home.path()));
            std::fs::write(file, serde_json::to_string(&results).unwrap()).unwrap();
        };
        test(&sweep.runs[0], 2, 0.25);
        // A run of an older version has no test.
        assert_eq!(results("test or last evaluation"), [0.25, 1.0]);
        // A run that was shorter, and was stopped before its new last test.
        test(&sweep.runs[1], 1, 0.5);
        assert!(sweep.runs[1].outcome(home.path()).is_none());
        test(&sweep.runs[1], 2, 0.75);
        assert_eq!(results("test"), [0.25, 0.75]);
        let greedy = SweepResults::of(&sweep, home.path()).settings[0].greedy;
        assert_eq!(greedy.unwrap().map(|of| of.mean), [0.0, 0.25]);
    }

    /// A missing number is not a zero, neither in a table nor in a mean.
    #[test]
    fn missing_numbers_are_dashes() {
        let home = tempfile::tempdir().unwrap();
        let sweep =
            sweep("set.train.steps = 1\n[settings.a]\n[settings.b]\n[compare]\nmetrics = [\"kl\"]");
        write_run(&sweep.runs[0], home.path(), &step(10, 2.0), &[0.0, 0.5]);
        let dir = sweep.runs[1].directory(home.path());
        write_run(&sweep.runs[1], home.path(), &step(10, 2.0), &[0.0, 1.0]);
        let path = directory::metrics(&dir);
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, after) = text.split_once("{\"kind\":\"step\"").unwrap();
        let after = after.split_once('\n').unwrap().1;
        let other = "{\"kind\":\"step\",\"step\":1,\"kl\":0.5}\n";
        std::fs::write(&path, format!("{before}{other}{after}")).unwrap();
        let results = SweepResults::of(&sweep, home.path());
        assert_snapshot!(results.markdown() + "\n" + &results.csv());
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["rows"][1].get("seconds"), None);
        assert_eq!(json["rows"][0].get("metrics"), None);
        assert_eq!(json["rows"][1]["metrics"]["kl"]["mean"], 0.5);
    }

    #[test]
    fn shares_are_of_the_turns_of_a_run_and_means_over_runs() {
        let answer = |parted, changed, verdict| ProbeScores {
            return_mean: changed as f64,
            followed: ProbeCounts {
                parted,
                changed,
                usual: parted - changed,
                changed_by_chance: parted as f64 / 4.0,
                usual_by_chance: 0.0,
            },
            verdict,
        };
        let answers = [
            answer(10, 10, Verdict::Reads),
            answer(100, 50, Verdict::Unclear),
            answer(0, 0, Verdict::SameMeaning),
        ];
        let found = probe_statistics("swapped", None, &answers.each_ref()).unwrap();
        // Not 60 of 110: each run has the same weight.
        assert_eq!(found.changed.unwrap().mean, 0.75);
        assert_eq!(found.usual.unwrap().mean, 0.25);
        assert_eq!(found.changed_by_chance.unwrap().mean, 0.25);
        assert_eq!(found.changed.unwrap().count, 2);
        assert_eq!(found.mean_return.mean, 20.0);
        assert_eq!((found.reads, found.overridden), (1, 0));
        assert_eq!(probe_statistics("swapped", None, &[]), None);
    }

    #[test]
    fn without_finished_runs_the_csv_is_a_header() {
        let home = tempfile::tempdir().unwrap();
        let results = SweepResults::of(&sweep(TRIAL), home.path());
        assert_eq!(results.csv(), "setting,seed\n");
    }
}
