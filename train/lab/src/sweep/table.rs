//! The results of a sweep as tables, in Markdown and as comma-separated values.

use super::outcome::Along;
use super::results::{Results, Row, Score, Spread, Words};

impl Results {
    /// Tables in Markdown, with how to read them.
    pub fn markdown(&self) -> String {
        let mut tables = vec![self.scores(), self.costs()];
        if !self.compare.reach.is_empty() {
            tables.push(self.reached());
        }
        if !self.compare.metrics.is_empty() {
            tables.push(self.metrics());
        }
        if !self.compare.probes.is_empty() {
            tables.push(self.probes());
        }
        let tables: Vec<String> = tables.iter().map(|rows| table(rows)).collect();
        let notes = self.notes().into_iter().map(|note| format!("- {note}\n"));
        tables.join("\n") + "\n" + &notes.collect::<String>()
    }

    fn scores(&self) -> Vec<Vec<String>> {
        let columns = [
            "setting",
            "seeds",
            "success",
            "return",
            "return less the first's",
        ];
        let row = |row: &Row| {
            let seeds = match (row.seeds.len(), self.seeds.len()) {
                (all, wanted) if all == wanted => all.to_string(),
                (some, wanted) => format!("{some} of {wanted}"),
            };
            let mut cells = vec![
                row.setting.clone(),
                seeds,
                told(Some(&row.success), row.seeds.len(), score),
            ];
            cells.extend(both(Some(&row.score), row.seeds.len()));
            cells
        };
        self.rows_under(&columns.map(str::to_owned), row)
    }

    fn costs(&self) -> Vec<Vec<String>> {
        let mut columns = ["setting", "episodes", "seconds"]
            .map(str::to_owned)
            .to_vec();
        let less = "less the first's".to_owned();
        let episodes = self.equal_episodes.filter(|_| !self.are_episodes_equal());
        if let Some(episodes) = episodes {
            columns.extend([
                format!("return at {} episodes", whole(episodes)),
                less.clone(),
            ]);
        }
        if let Some(seconds) = self.equal_seconds {
            columns.extend([format!("return at {} s", tenths(seconds)), less]);
        }
        let row = |row: &Row| {
            let cost = [
                told(row.episodes.as_ref(), row.seeds.len(), whole),
                told(row.seconds.as_ref(), row.seeds.len(), tenths),
            ];
            let mut cells = [std::slice::from_ref(&row.setting), &cost[..]].concat();
            if episodes.is_some() {
                cells.extend(both(row.at_equal_episodes.as_ref(), row.seeds.len()));
            }
            if self.equal_seconds.is_some() {
                cells.extend(both(row.at_equal_seconds.as_ref(), row.seeds.len()));
            }
            cells
        };
        self.rows_under(&columns, row)
    }

    fn reached(&self) -> Vec<Vec<String>> {
        let columns = [
            "return of",
            "setting",
            "reached by",
            "after episodes",
            "after seconds",
        ];
        let mut rows = vec![columns.map(str::to_owned).to_vec()];
        for at in 0..self.compare.reach.len() {
            for row in &self.rows {
                let found = &row.reached[at];
                let runs = found.runs.len();
                rows.push(vec![
                    found.score.to_string(),
                    row.setting.clone(),
                    format!("{runs} of {}", row.seeds.len()),
                    told(found.episodes.as_ref(), runs, whole),
                    told(found.seconds.as_ref(), runs, tenths),
                ]);
            }
        }
        rows
    }

    fn metrics(&self) -> Vec<Vec<String>> {
        let names = &self.compare.metrics;
        let columns = [&["setting".to_owned()], &names[..]].concat();
        self.rows_under(&columns, |row| {
            let cells = names
                .iter()
                .map(|name| told(row.metrics.get(name), row.seeds.len(), figures));
            [row.setting.clone()].into_iter().chain(cells).collect()
        })
    }

    fn probes(&self) -> Vec<Vec<String>> {
        let columns = [
            "probe",
            "setting",
            "return",
            "told",
            "habit",
            "read by",
            "overridden in",
        ];
        let row = |words: &Words| {
            let seeds = words.mean_return.count;
            let of = |count: usize| match words.told {
                Some(_) => format!("{count} of {seeds}"),
                None => "-".to_owned(),
            };
            vec![
                words.probe.clone(),
                words
                    .setting
                    .clone()
                    .unwrap_or("(before training)".to_owned()),
                told(Some(&words.mean_return), seeds, score),
                told(words.told.as_ref(), seeds, score),
                told(words.habit.as_ref(), seeds, score),
                of(words.reads),
                of(words.overridden),
            ]
        };
        let rows = self.words.iter().map(row);
        [columns.map(str::to_owned).to_vec()]
            .into_iter()
            .chain(rows)
            .collect()
    }

    fn rows_under(
        &self,
        columns: &[String],
        row: impl Fn(&Row) -> Vec<String>,
    ) -> Vec<Vec<String>> {
        let rows = self.rows.iter().map(row);
        [columns.to_vec()].into_iter().chain(rows).collect()
    }

    /// How to read the tables, and what is not in them.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Mean over seeds ± standard deviation [95 % bootstrap interval of the mean over seeds]; differences are paired by seed. \
             Success and return are those of the last evaluation."
                .to_owned(),
        ];
        match (self.equal_episodes, self.are_episodes_equal()) {
            (Some(episodes), true) => notes.push(format!(
                "All runs played {} training episodes: the return of the last evaluation is that at equal episodes.",
                whole(episodes)
            )),
            (Some(episodes), false) => notes.push(format!(
                "{} training episodes are the fewest that a run here played; the return there is on the straight line between the \
                 evaluations before and after.",
                whole(episodes)
            )),
            _ => (),
        }
        if let Some(seconds) = self.equal_seconds {
            notes.push(format!(
                "Seconds are of training (rollout and update); evaluations do not count. {} s are the fewest of any run here; the \
                 return there is on the straight line between the evaluations before and after.",
                tenths(seconds)
            ));
        }
        if !self.compare.reach.is_empty() {
            notes.push(
                "A return is reached at the first evaluation of at least as much. The means are over the runs that reached it, and \
                 flatter a setting some of whose runs did not."
                    .to_owned(),
            );
        }
        if !self.compare.metrics.is_empty() {
            let names = self.compare.metrics.join(", ");
            notes.push(format!(
                "{names}: the mean over the training steps of a run that tell it."
            ));
        }
        if !self.compare.probes.is_empty() {
            notes.push(
                "Probes are asked of a run's best adapter, and of the model before training as the runs of the first setting had it. told, habit: of the turns in which the \
                 changed instructions and the usual ones have no action in common, the share that went by either; read by, \
                 overridden in: runs in which one leads the other by more than two standard errors."
                    .to_owned(),
            );
        }
        let untold = |name: &&String| self.runs.iter().all(|run| !run.metrics.contains_key(*name));
        for name in self.compare.metrics.iter().filter(untold) {
            notes.push(format!("No step of any run here tells `{name}`."));
        }
        notes.extend(self.unfinished());
        notes
    }

    /// Which seeds the settings do not have.
    fn unfinished(&self) -> Option<String> {
        let mut settings: Vec<&str> = self.missing.iter().map(|(setting, _)| &**setting).collect();
        settings.dedup();
        let one = |setting: &&str| {
            let of = self.missing.iter().filter(|(other, _)| other == setting);
            let seeds: Vec<String> = of.map(|(_, seed)| seed.to_string()).collect();
            let done = self.seeds.len() - seeds.len();
            let all = self.seeds.len();
            format!(
                "{setting} has {done} of {all} seeds (not {})",
                seeds.join(", ")
            )
        };
        let told: Vec<String> = settings.iter().map(one).collect();
        (!told.is_empty()).then(|| {
            format!(
                "Not finished: {}. Settings with different seeds are compared by the differences alone.",
                told.join("; ")
            )
        })
    }

    /// A line for each run. What it does not tell is empty.
    pub fn csv(&self) -> String {
        let mut columns: Vec<String> = [
            "setting",
            "seed",
            "success_before",
            "return_before",
            "success",
            "return",
            "valid_action_rate",
            "episode_length",
            "episodes",
            "seconds",
            "return_at_equal_episodes",
            "return_at_equal_seconds",
        ]
        .map(str::to_owned)
        .to_vec();
        let reach = self.compare.reach.iter();
        columns.extend(reach.flat_map(|score| {
            [
                format!("episodes_to_{score}"),
                format!("seconds_to_{score}"),
            ]
        }));
        columns.extend(
            self.compare
                .metrics
                .iter()
                .map(|name| format!("mean_{name}")),
        );
        let mut text = columns.join(",") + "\n";
        for run in &self.runs {
            let (before, after) = (&run.before, &run.after);
            let at = |along, place: Option<f64>| run.score_at(along, place?);
            let mut numbers = vec![
                Some(before.success_rate),
                Some(before.return_mean),
                Some(after.success_rate),
                Some(after.return_mean),
                Some(after.valid_action_rate),
                Some(after.episode_length_mean),
                run.whole(Along::Episodes),
                run.whole(Along::Seconds),
                at(Along::Episodes, self.equal_episodes),
                at(Along::Seconds, self.equal_seconds),
            ];
            for score in &self.compare.reach {
                let point = run.reaches(*score);
                numbers.extend([Along::Episodes, Along::Seconds].map(|along| point?.place(along)));
            }
            numbers.extend(
                self.compare
                    .metrics
                    .iter()
                    .map(|name| run.metrics.get(name).copied()),
            );
            let cells = numbers
                .iter()
                .map(|number| number.map_or(String::new(), |number| number.to_string()));
            let cells: Vec<String> = cells.collect();
            text += &format!("{},{},{}\n", run.setting, run.seed, cells.join(","));
        }
        text
    }
}

/// A return, and how far it is ahead.
fn both(found: Option<&Score>, seeds: usize) -> [String; 2] {
    let ahead = found.and_then(|found| found.difference.as_ref());
    let ahead = told(ahead, seeds, score);
    let sign = if ahead.starts_with('-') { "" } else { "+" };
    let found = found.map(|found| &found.mean_return);
    [told(found, seeds, score), format!("{sign}{ahead}")]
}

/// A number over so many seeds: a dash if none of them tells it, and how many do if not all of them.
fn told(spread: Option<&Spread>, seeds: usize, write: fn(f64) -> String) -> String {
    let Some(spread) = spread else {
        return "-".to_owned();
    };
    let mut text = write(spread.mean);
    if spread.count > 1 {
        let [low, high] = spread.interval.map(write);
        text += &format!(" ± {} [{low}, {high}]", write(spread.std));
    }
    if spread.count < seeds {
        text += &format!(" ({} of {seeds})", spread.count);
    }
    text
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

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Four figures of whatever size.
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

/// A table in Markdown whose columns stand below each other; the first row is its head.
fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths);
        let padded = cells.map(|(cell, width)| format!(" {cell:width$} "));
        format!("|{}|\n", padded.collect::<Vec<_>>().join("|"))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let body: String = rows[1..].iter().map(|row| line(row)).collect();
    line(&rows[0]) + &line(&rule) + &body
}
