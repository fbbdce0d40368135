//! The results of a sweep as tables: Markdown and comma-separated values.

use super::results::{
    CostToThreshold, RunStatistics, ScoreStatistics, SettingResult, SweepResults,
};
use super::run_result::{Cost, EPISODES, RunResult, SECONDS};
use crate::text_table::TextTable;

impl SweepResults {
    /// Returns tables in Markdown, with notes.
    pub fn markdown(&self) -> String {
        let mut tables = vec![self.score_table(), self.cost_table()];
        let mut notes = vec![
            "Mean over seeds ± standard deviation [95 % confidence interval of the mean over seeds, by Student's t]; differences are paired by seed. \
             A number alone is the same for all seeds. Tests draw scenes anew; tests and evaluations play held-out scenes if the game's scenes can be divided."
                .to_owned(),
        ];
        if let Some(episodes) = self.equal_episodes.map(integer) {
            notes.push(match self.are_episodes_equal() {
                true => format!(
                    "All runs played {episodes} training episodes: the last evaluation is at equal episodes."
                ),
                false => format!(
                    "{episodes} is the smallest number of training episodes of a run; returns there are interpolated linearly between evaluations."
                ),
            });
        }
        if let Some(seconds) = self.equal_seconds.map(tenths) {
            notes.push(format!(
                "Seconds are of training (rollout and update), without evaluations. {seconds} s is the shortest training of a run; \
                 returns there are interpolated linearly between evaluations."
            ));
        }
        let metrics = &self.compare.metrics;
        if !self.compare.reach.is_empty() {
            tables.push(self.threshold_table());
            notes.push(
                "A return is reached at the first evaluation with at least that return. The means are over the runs that reached it, \
                 which favours a setting with runs that did not."
                    .to_owned(),
            );
        }
        if !metrics.is_empty() {
            tables.push(self.metric_table());
            let names = metrics.join(", ");
            notes.push(format!(
                "{names}: the mean over the training steps of a run that have it."
            ));
        }
        if !self.compare.probes.is_empty() {
            tables.push(self.probe_table());
            notes.push(
                "Probes are played with a run's best adapter, and with the model before training of the first setting's runs. \
                 changed rules, usual rules: of the turns in which the two have no good action in common, the share that followed \
                 either; by chance: the same of random actions; read by, overridden in: runs that follow the one or the other \
                 more often than by chance, by more than three standard errors over episodes."
                    .to_owned(),
            );
        }
        let has = |name: &String| self.runs.iter().any(|run| run.metrics.contains_key(name));
        let unknown = metrics.iter().filter(|name| !has(name));
        notes.extend(unknown.map(|name| format!("No step of any run has `{name}`.")));
        // They are grouped by setting.
        let settings = self.missing.chunk_by(|one, next| one.0 == next.0);
        let unfinished = settings.map(|missing| {
            let seeds: Vec<String> = missing.iter().map(|(_, seed)| seed.to_string()).collect();
            let (all, done) = (self.seeds.len(), self.seeds.len() - seeds.len());
            let (setting, seeds) = (&missing[0].0, seeds.join(", "));
            format!("{setting} has {done} of {all} seeds (not {seeds})")
        });
        let unfinished = unfinished.collect::<Vec<_>>().join("; ");
        if !unfinished.is_empty() {
            notes.push(format!(
                "Not finished: {unfinished}. If settings have different seeds, compare the differences only."
            ));
        }
        let tables: Vec<String> = tables.iter().map(TextTable::markdown).collect();
        let notes = notes.into_iter().map(|note| format!("- {note}\n"));
        tables.join("\n") + "\n" + &notes.collect::<String>()
    }

    fn score_table(&self) -> TextTable {
        let of = self.scored();
        let [success, mean_return] = ["success", "return"].map(|name| format!("{name}, {of}"));
        TextTable::of(self.settings.iter().map(|row| {
            let seeds = match (row.seeds.len(), self.seeds.len()) {
                (all, wanted) if all == wanted => all.to_string(),
                (some, wanted) => format!("{some} of {wanted}"),
            };
            let [mean, difference] = row.score_cells(Some(row.score));
            let mut cells = vec![
                ("setting", row.setting.clone()),
                ("seeds", seeds),
                (&*success, row.cell(Some(row.success), score)),
                (&*mean_return, mean),
                ("difference to the first", difference),
            ];
            if self.settings.iter().any(|row| row.greedy.is_some()) {
                let greedy = ["success, greedy", "return, greedy"]
                    .into_iter()
                    .enumerate();
                cells.extend(
                    greedy.map(|(i, name)| (name, row.cell(row.greedy.map(|of| of[i]), score))),
                );
            }
            cells
        }))
    }

    fn cost_table(&self) -> TextTable {
        let episodes = self.equal_episodes.filter(|_| !self.are_episodes_equal());
        let episodes = episodes.map(|episodes| format!("return at {episodes:.0} episodes"));
        let seconds = self.equal_seconds;
        let seconds = seconds.map(|seconds| format!("return at {seconds:.1} s"));
        TextTable::of(self.settings.iter().map(|row| {
            let mut cells = vec![
                ("setting", row.setting.clone()),
                ("episodes", row.cell(row.cost.episodes, integer)),
                ("seconds", seconds_cell(row.cost.seconds, row.seeds.len())),
            ];
            for (name, found) in [
                (&episodes, row.at_equal_episodes),
                (&seconds, row.at_equal_seconds),
            ] {
                let [mean, difference] = row.score_cells(found);
                if let Some(name) = name {
                    cells.push((name, mean));
                    cells.push(("difference to the first", difference));
                }
            }
            cells
        }))
    }

    fn threshold_table(&self) -> TextTable {
        let thresholds = 0..self.compare.reach.len();
        let rows = thresholds.flat_map(|at| self.settings.iter().map(move |row| (at, row)));
        TextTable::of(rows.map(|(at, row)| {
            let CostToThreshold { score, runs, cost } = &row.thresholds[at];
            let runs = runs.len();
            let (episodes, seconds) = (cost.episodes, cost.seconds);
            vec![
                ("return of", score.to_string()),
                ("setting", row.setting.clone()),
                ("reached by", format!("{runs} of {}", row.seeds.len())),
                ("after episodes", statistics(episodes, runs, integer)),
                ("after seconds", seconds_cell(seconds, runs)),
            ]
        }))
    }

    fn metric_table(&self) -> TextTable {
        TextTable::of(self.settings.iter().map(|row| {
            let cell = |name: &String| row.cell(row.metrics.get(name).copied(), figures);
            let metrics = self.compare.metrics.iter();
            let metrics = metrics.map(|name| (&**name, cell(name)));
            let setting = ("setting", row.setting.clone());
            [setting].into_iter().chain(metrics).collect()
        }))
    }

    fn probe_table(&self) -> TextTable {
        TextTable::of(self.probes.iter().map(|probe| {
            let seeds = probe.mean_return.count;
            let of_seeds = |count: usize| match probe.changed {
                Some(_) => format!("{count} of {seeds}"),
                None => "-".to_owned(),
            };
            let chance = probe.changed_by_chance.zip(probe.usual_by_chance);
            let by_chance = chance.map_or("-".to_owned(), |(changed, usual)| {
                format!("{:.2}, {:.2}", changed.mean, usual.mean)
            });
            let setting = probe.setting.as_deref().unwrap_or("(before training)");
            vec![
                ("probe", probe.probe.clone()),
                ("setting", setting.to_owned()),
                ("return", statistics(Some(probe.mean_return), seeds, score)),
                ("changed rules", statistics(probe.changed, seeds, score)),
                ("usual rules", statistics(probe.usual, seeds, score)),
                ("by chance", by_chance),
                ("read by", of_seeds(probe.reads)),
                ("overridden in", of_seeds(probe.overridden)),
            ]
        }))
    }

    /// Returns a CSV document with a line for each run. Missing numbers are empty. Without runs, the header names only the first
    /// two columns.
    pub fn csv(&self) -> String {
        if self.runs.is_empty() {
            return "setting,seed\n".to_owned();
        }
        TextTable::of(self.runs.iter().map(|run| self.csv_cells(run))).csv()
    }

    fn csv_cells(&self, run: &RunResult) -> Vec<(String, String)> {
        let (before, after) = (&run.before, &run.after);
        let score_at = |axis, cost: Option<f64>| run.score_at(axis, cost?);
        let mut cells = vec![
            ("setting".to_owned(), run.setting.clone()),
            ("seed".to_owned(), run.seed.to_string()),
        ];
        let mut add = |name: &str, number: Option<f64>| {
            let number = number.map_or(String::new(), |number| number.to_string());
            cells.push((name.to_owned(), number));
        };
        add("success_before", Some(before.success_rate));
        add("return_before", Some(before.return_mean));
        add("success", Some(after.success_rate));
        add("return", Some(after.return_mean));
        let greedy = run.greedy.as_ref();
        add("success_greedy", greedy.map(|of| of.success_rate));
        add("return_greedy", greedy.map(|of| of.return_mean));
        add("valid_action_rate", Some(after.valid_action_rate));
        add("episode_length", Some(after.episode_length_mean));
        add("episodes", run.total(EPISODES));
        add("seconds", run.total(SECONDS));
        let at_episodes = score_at(EPISODES, self.equal_episodes);
        add("return_at_equal_episodes", at_episodes);
        add(
            "return_at_equal_seconds",
            score_at(SECONDS, self.equal_seconds),
        );
        for score in &self.compare.reach {
            let cost = run.first_reaching(*score).map(|point| point.cost);
            let Cost { episodes, seconds } = cost.unwrap_or_default();
            add(&format!("episodes_to_{score}"), episodes);
            add(&format!("seconds_to_{score}"), seconds);
        }
        for name in &self.compare.metrics {
            add(&format!("mean_{name}"), run.metrics.get(name).copied());
        }
        cells
    }
}

impl SettingResult {
    fn cell(&self, found: Option<RunStatistics>, format: fn(f64) -> String) -> String {
        statistics(found, self.seeds.len(), format)
    }

    /// Formats a return and its signed difference from the first setting.
    fn score_cells(&self, found: Option<ScoreStatistics>) -> [String; 2] {
        let difference = self.cell(found.and_then(|found| found.difference), score);
        let sign = if difference.starts_with('-') { "" } else { "+" };
        let mean = self.cell(found.map(|found| found.mean_return), score);
        [mean, format!("{sign}{difference}")]
    }
}

/// Formats a mean over seeds: a dash if no run has it, with the number of runs if some lack it.
fn statistics(found: Option<RunStatistics>, seeds: usize, format: fn(f64) -> String) -> String {
    let Some(found) = found else {
        return "-".to_owned();
    };
    let mut text = format(found.mean);
    if found.std > 0.0 {
        let [low, high] = found.interval.map(format);
        text += &format!(" ± {} [{low}, {high}]", format(found.std));
    }
    if found.count < seeds {
        text += &format!(" ({} of {seeds})", found.count);
    }
    text
}

/// Formats seconds, of which an interval says nothing.
fn seconds_cell(found: Option<RunStatistics>, seeds: usize) -> String {
    let text = statistics(found, seeds, tenths);
    let parts = text.split_once(" [").zip(text.split_once(']'));
    parts.map_or(text.clone(), |((mean, _), (_, count))| {
        format!("{mean}{count}")
    })
}

fn score(value: f64) -> String {
    match format!("{value:.3}") {
        text if text == "-0.000" => "0.000".to_owned(),
        text => text,
    }
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn integer(value: f64) -> String {
    format!("{value:.0}")
}

/// Formats a number of any size with about four digits.
fn figures(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.3e}"),
        size if size >= 1e3 => format!("{value:.0}"),
        size if size >= 1e1 => format!("{value:.2}"),
        size if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}
