//! What the runs of a sweep say together.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::Sweep;
use super::compare::Compare;
use super::outcome::{Along, Outcome};
use super::probes::{Answer, Probed};
use crate::stats::{interval, mean_and_deviation};
use lapwing_play::probe::Verdict;

/// A number over runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// How many runs it is of, or pairs of runs.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (n - 1); 0 of a single run.
    pub std: f64,
    /// The 95 % bootstrap interval of the mean.
    pub interval: [f64; 2],
}

impl Spread {
    /// Of these values; none of none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() {
            return None;
        }
        let (mean, std) = mean_and_deviation(values);
        Some(Spread {
            count: values.len(),
            mean,
            std,
            interval: interval(values),
        })
    }
}

/// What the seeds of a setting say together. What no run tells is left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The setting.
    pub setting: String,
    /// The seeds that came to their end.
    pub seeds: Vec<u64>,
    /// Success rate of the last evaluation.
    pub success: Spread,
    /// Mean return of the last evaluation, and how far it is ahead.
    #[serde(flatten)]
    pub score: Score,
    /// Training episodes played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episodes: Option<Spread>,
    /// Seconds of training, evaluations not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Spread>,
    /// The score when [`Results::equal_episodes`] were played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_equal_episodes: Option<Score>,
    /// The score after [`Results::equal_seconds`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_equal_seconds: Option<Score>,
    /// For each score that was asked for, who reached it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<Reached>,
    /// The metrics of training steps that were asked for, each the mean over a run's steps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Spread>,
}

/// A mean return of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// Over seeds.
    #[serde(rename = "return")]
    pub mean_return: Spread,
    /// Less that of the first setting, over the seeds that both have; none for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Spread>,
}

/// How soon the runs of a setting reached a score, as the evaluations show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reached {
    /// The score.
    pub score: f64,
    /// Those who reached it, each with its first evaluation of at least that score.
    pub runs: Vec<Arrival>,
    /// Training episodes until then, over those who reached it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episodes: Option<Spread>,
    /// Seconds of training until then, over those who reached it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Spread>,
}

/// When a run reached a score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arrival {
    /// The seed of the training.
    pub seed: u64,
    /// Training episodes played by then.
    pub episodes: Option<f64>,
    /// Seconds of training by then.
    pub seconds: Option<f64>,
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

/// The results of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// The name of the sweep.
    pub name: String,
    /// The seeds that are asked for.
    pub seeds: Vec<u64>,
    /// The fewest training episodes of any run here: so far all of them came, and there their scores are compared.
    pub equal_episodes: Option<f64>,
    /// The fewest seconds of training of any run here.
    pub equal_seconds: Option<f64>,
    /// A row for each setting that has a result.
    pub rows: Vec<Row>,
    /// What came of the probes that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<Words>,
    /// Every run that came to its end.
    pub runs: Vec<Outcome>,
    /// Runs that did not: setting and seed.
    pub missing: Vec<(String, u64)>,
    /// What was asked for beside the scores.
    #[serde(skip)]
    pub compare: Compare,
}

impl Results {
    /// Of what is there by now.
    pub fn of(sweep: &Sweep, directory: &Path) -> Results {
        let (mut runs, mut missing) = (Vec::new(), Vec::new());
        for cell in &sweep.cells {
            match cell.outcome(directory) {
                Some(outcome) => runs.push(outcome),
                None => missing.push((cell.setting.clone(), cell.seed)),
            }
        }
        let least = |along| {
            let whole = runs.iter().filter_map(|run| run.whole(along));
            whole.reduce(f64::min)
        };
        let mut results = Results {
            name: sweep.name.clone(),
            seeds: sweep.seeds.clone(),
            equal_episodes: least(Along::Episodes),
            equal_seconds: least(Along::Seconds),
            rows: Vec::new(),
            words: Vec::new(),
            runs,
            missing,
            compare: sweep.compare.clone(),
        };
        let settings = sweep.settings();
        let rows = settings
            .iter()
            .map(|setting| results.row(setting, settings[0]));
        results.rows = rows.flatten().collect();
        results.words = results.of_probes();
        results
    }

    /// The runs of a setting that came to their end.
    pub fn of_setting(&self, setting: &str) -> Vec<&Outcome> {
        let runs = self.runs.iter();
        runs.filter(|run| run.setting == setting).collect()
    }

    /// Whether all runs played the same number of training episodes, so that the last evaluation is at equal episodes.
    pub fn are_episodes_equal(&self) -> bool {
        let mut whole = self.runs.iter().map(|run| run.whole(Along::Episodes));
        whole.all(|episodes| episodes == self.equal_episodes)
    }

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

    /// What the seeds of a setting say together, none if no run of it came to its end.
    fn row(&self, setting: &str, first: &str) -> Option<Row> {
        let (own, first) = (self.of_setting(setting), self.of_setting(first));
        let over = |of: &dyn Fn(&Outcome) -> Option<f64>| {
            Spread::of(&own.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
        };
        let score = |of: &dyn Fn(&Outcome) -> Option<f64>| {
            let pairs = own.iter().filter_map(|run| {
                let other = first.iter().find(|other| other.seed == run.seed)?;
                (other.setting != run.setting).then_some(of(run)? - of(other)?)
            });
            Some(Score {
                mean_return: over(of)?,
                difference: Spread::of(&pairs.collect::<Vec<_>>()),
            })
        };
        let at = |along, place: Option<f64>| {
            place.and_then(|place| score(&|run| run.score_at(along, place)))
        };
        let metric =
            |name: &String| Some((name.clone(), over(&|run| run.metrics.get(name).copied())?));
        let reach = |score: &f64| reached(*score, &own);
        Some(Row {
            setting: setting.to_owned(),
            seeds: own.iter().map(|run| run.seed).collect(),
            success: over(&|run| Some(run.after.success_rate))?,
            score: score(&|run| Some(run.after.return_mean))?,
            episodes: over(&|run| run.whole(Along::Episodes)),
            seconds: over(&|run| run.whole(Along::Seconds)),
            at_equal_episodes: at(Along::Episodes, self.equal_episodes),
            at_equal_seconds: at(Along::Seconds, self.equal_seconds),
            reached: self.compare.reach.iter().map(reach).collect(),
            metrics: self.compare.metrics.iter().filter_map(metric).collect(),
        })
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

/// Who of these runs reached a score.
fn reached(score: f64, runs: &[&Outcome]) -> Reached {
    let arrival = |run: &&Outcome| {
        let point = run.reaches(score)?;
        Some(Arrival {
            seed: run.seed,
            episodes: point.episodes,
            seconds: point.seconds,
        })
    };
    let runs: Vec<Arrival> = runs.iter().filter_map(arrival).collect();
    let over = |of: fn(&Arrival) -> Option<f64>| {
        Spread::of(&runs.iter().filter_map(of).collect::<Vec<_>>())
    };
    Reached {
        score,
        episodes: over(|run| run.episodes),
        seconds: over(|run| run.seconds),
        runs,
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::sweep::Cell;
    use lapwing_learn::metrics::StepMetrics;
    use lapwing_play::metrics::{PlayMetrics, Yardsticks};
    use lapwing_train::record::jsonl::Jsonl;
    use lapwing_train::record::metrics::Evaluation;
    use lapwing_train::record::{Record, directory};

    fn sweep(text: &str) -> Sweep {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("trial.toml");
        std::fs::write(&path, text).unwrap();
        Sweep::load(&path).unwrap()
    }

    /// Keeps a run that tells these scores, one before the first step and one after each.
    fn keep(cell: &Cell, home: &Path, step: &StepMetrics, scores: &[f64]) {
        let dir = cell.directory(home);
        std::fs::create_dir_all(&dir).unwrap();
        let mut file = Jsonl::open(&directory::metrics(&dir)).unwrap();
        let play = |score: f64| PlayMetrics {
            episodes: 50,
            success_rate: score / 2.0,
            return_mean: score,
            valid_action_rate: 1.0,
            episode_length_mean: 6.5,
            ..PlayMetrics::default()
        };
        let yardsticks = Yardsticks {
            random: Some(play(0.0625)),
            best_possible: Some(1.0),
            ..Yardsticks::default()
        };
        file.write(&Record::Baselines(yardsticks)).unwrap();
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

    /// Settings differ by 0.25 in every seed, which differ among each other by more: paired, the difference is sure. `fast`
    /// takes half of the time and is two runs short: one is at work, one came to nothing.
    fn trial(home: &Path) -> Results {
        let sweep = sweep(TRIAL);
        for cell in &sweep.cells {
            let score = 0.125 * cell.seed as f64;
            match (&*cell.setting, cell.seed) {
                ("slow", _) => keep(cell, home, &step(200, 8.0), &[0.125, 0.25, score]),
                ("fast", 1 | 2) => keep(cell, home, &step(100, 4.0), &[0.125, 0.5, score + 0.25]),
                ("fast", 3) => keep(cell, home, &step(100, 4.0), &[0.125, 0.5]),
                _ => (),
            }
        }
        Results::of(&sweep, home)
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
        // 0.125 seed + 0.25 against 0.125 seed.
        let ahead = results.rows[1].score.difference.unwrap();
        assert_eq!(
            (ahead.count, ahead.mean, ahead.interval),
            (2, 0.25, [0.25; 2])
        );
        assert_eq!(results.rows[0].score.difference, None);
        // `fast` takes 8 seconds, in which `slow` makes its first step.
        assert_eq!(results.equal_seconds, Some(8.0));
        let slow = results.rows[0].at_equal_seconds.as_ref().unwrap();
        assert_eq!((slow.mean_return.mean, slow.mean_return.std), (0.25, 0.0));
        let fast = results.rows[1].at_equal_seconds.as_ref().unwrap();
        assert_eq!(fast.mean_return, results.rows[1].score.mean_return);
        // Only the last seed of `slow` gets to 0.5; no run gets to 0.9, and nothing is said of when.
        let reached = &results.rows[0].reached;
        assert_eq!(reached[0].runs.len(), 1);
        assert_eq!(reached[0].runs[0].episodes, Some(400.0));
        assert_eq!((reached[1].runs.len(), reached[1].seconds), (0, None));
        assert_snapshot!(results.markdown() + "\n" + &results.csv());
    }

    /// What has no number is no zero: neither in a table nor in a mean.
    #[test]
    fn what_a_run_does_not_tell_is_a_dash() {
        let home = tempfile::tempdir().unwrap();
        let sweep =
            sweep("set.train.steps = 1\n[settings.a]\n[settings.b]\n[compare]\nmetrics = [\"kl\"]");
        keep(&sweep.cells[0], home.path(), &step(10, 2.0), &[0.0, 0.5]);
        let dir = sweep.cells[1].directory(home.path());
        keep(&sweep.cells[1], home.path(), &step(10, 2.0), &[0.0, 1.0]);
        let path = directory::metrics(&dir);
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, after) = text.split_once("{\"kind\":\"step\"").unwrap();
        let after = after.split_once('\n').unwrap().1;
        let other = "{\"kind\":\"step\",\"step\":1,\"kl\":0.5}\n";
        std::fs::write(&path, format!("{before}{other}{after}")).unwrap();
        let results = Results::of(&sweep, home.path());
        assert_snapshot!(results.markdown() + "\n" + &results.csv());
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["rows"][1].get("seconds"), None);
        assert_eq!(json["rows"][0].get("metrics"), None);
        assert_eq!(json["rows"][1]["metrics"]["kl"]["mean"], 0.5);
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
        let found = words("swapped", None, &answers).unwrap();
        // Not 60 of 110: a run counts as one, however long its episodes.
        assert_eq!(found.told.unwrap().mean, 0.75);
        assert_eq!(found.habit.unwrap().mean, 0.25);
        assert_eq!(found.told.unwrap().count, 2);
        assert_eq!(found.mean_return.mean, 20.0);
        assert_eq!((found.reads, found.overridden), (1, 0));
        assert_eq!(words("swapped", None, &[]), None);
    }

    #[test]
    fn the_picture_of_results_looks_so() {
        let home = tempfile::tempdir().unwrap();
        assert_snapshot!(trial(home.path()).figure());
    }

    /// Eight settings of eight seeds, whose evaluations are at other seconds in each run.
    #[test]
    fn a_picture_is_small_and_holds_all_of_its_lines() {
        let home = tempfile::tempdir().unwrap();
        let settings: String = (1..=8)
            .map(|n| format!("[settings.number-{n}]\ntrain.lr = 0.{n}\n"))
            .collect();
        let sweep = sweep(&format!("seeds = 8\nset.train.steps = 40\n{settings}"));
        let mut chance = lapwing_env::rng::Stream::new(1, "scores");
        for cell in &sweep.cells {
            let scores: Vec<f64> = (0..=40)
                .map(|_| chance.below(1000) as f64 / 1000.0)
                .collect();
            let seconds = 1.0 + chance.below(1000) as f64 / 3000.0;
            keep(cell, home.path(), &step(10, seconds), &scores);
        }
        let results = Results::of(&sweep, home.path());
        let figure = results.figure();
        assert!(figure.len() < 60_000, "{}", figure.len());
        assert_eq!(figure, results.figure());
        assert!(!figure.contains("NaN") && !figure.contains("inf") && !figure.contains("<script"));
        let paths = figure
            .split(" d=\"M")
            .skip(1)
            .filter_map(|path| path.split('"').next());
        let points = paths
            .flat_map(|path| path.split('L'))
            .filter(|point| !point.contains(['H', 'V', 'v']));
        let mut count = 0;
        for point in points {
            let (x, y) = point.trim_end_matches('Z').split_once(' ').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!(
                (0.0..900.0).contains(&x) && (40.0..305.0).contains(&y),
                "{point}"
            );
            count += 1;
        }
        // A line and a band of 41 places, and of 61, for each setting.
        assert_eq!(count, 8 * 3 * (41 + 61));
    }
}
