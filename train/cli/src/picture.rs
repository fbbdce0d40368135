//! The state of a run on one screen.

use std::path::Path;

use console::{Style, measure_text_width};
use lapwing_lab::stats::range;
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::metrics::PlayMetrics;
use lapwing_train::Config;
use lapwing_train::record::Record;

use crate::out::{line, quoted};
use crate::screen::{counted, duration};
use crate::{describe, records};

/// A run at one moment.
pub struct Picture<'a> {
    pub run: &'a Path,
    pub config: &'a Config,
    pub records: &'a [Record],
    /// Whether a process trains it.
    pub running: bool,
    /// Seconds since 1970.
    pub now: f64,
}

/// Maximum number of evaluations: the first and the last ones.
const MAX_EVALUATIONS: usize = 6;
/// Maximum number of warnings: the last ones.
const MAX_WARNINGS: usize = 3;
/// Number of steps from which the time left is estimated.
const RECENT_STEPS: usize = 20;
/// Seconds without a record after which that is shown.
const MAX_SILENCE: f64 = 30.0;

const PLAIN: Style = Style::new();
const FAINT: Style = Style::new().dim();

impl Picture<'_> {
    /// Draws lines of at most `width` characters.
    pub fn drawn(&self, width: usize, colours: bool) -> String {
        let mut lines = Screenful {
            text: String::new(),
            width,
            colours,
        };
        let (game, seed) = (&self.config.game.name, self.config.train.seed);
        let title = format!("{}: {game}, seed {seed}", self.run.display());
        lines.add(&line(&title), &Style::new().bold());
        let style = match self.running {
            true => PLAIN,
            false => Style::new().green(),
        };
        lines.add(&self.state(), &style);
        if let Some(last) = records::steps(self.records).last() {
            lines.add(&self.progress(last.step, width), &PLAIN);
            lines.add("", &PLAIN);
            let words = describe::step_words(last);
            lines.flow(words.iter().map(String::as_str), "", "  ", &PLAIN);
            self.curves(&mut lines);
        }
        self.evaluations(&mut lines);
        let hidden = records::warnings(self.records).count();
        let hidden = hidden.saturating_sub(MAX_WARNINGS);
        for warning in records::warnings(self.records).skip(hidden) {
            let text = format!("step {}, {}: {}", warning.step, warning.check, warning.text);
            let text = line(&text);
            lines.flow(text.split_whitespace(), "!", " ", &Style::new().yellow());
        }
        if hidden > 0 {
            lines.add(&format!("{hidden} earlier warnings"), &FAINT);
        }
        lines.text
    }

    /// Describes whether it runs, and the time left.
    pub fn state(&self) -> String {
        let total = self.config.train.steps;
        let steps: Vec<&StepMetrics> = records::steps(self.records).collect();
        let done = steps.last().map_or(0, |last| last.step);
        let last_evaluation = records::evaluations(self.records).last();
        let is_evaluated = last_evaluation.is_some_and(|e| e.step >= total);
        match (self.running, self.records.is_empty()) {
            (true, true) => {
                "running; the first record comes after the warm-up and an evaluation".to_owned()
            }
            (true, false) if done >= total && is_evaluated => "running: about to end".to_owned(),
            (true, false) if done >= total => "running: the last evaluation".to_owned(),
            (true, false) => {
                let silent = self.now - self.last_time();
                let mut text = "running".to_owned();
                if let Some(seconds) = seconds_per_step(&steps) {
                    let left = (total - done) as f64 * seconds;
                    text += &format!(", about {} left", duration(left));
                }
                if silent > MAX_SILENCE {
                    text += &format!("; the last record was written {} ago", duration(silent));
                }
                text
            }
            (false, true) => "not running; no records yet".to_owned(),
            (false, false) if is_evaluated => format!("done: {}", counted(total, "step")),
            (false, false) => format!(
                "stopped at step {done} of {total}; resume with lapwing train --resume {}",
                quoted(&self.run.to_string_lossy())
            ),
        }
    }

    /// Returns the time of the last record.
    fn last_time(&self) -> f64 {
        let mut times = self.records.iter().rev().filter_map(|record| match record {
            Record::Step(metrics) => Some(metrics.time),
            Record::Evaluation(evaluation) => Some(evaluation.time),
            _ => None,
        });
        times.next().unwrap_or(self.now)
    }

    /// Returns a bar such as `step 42/100 [#########-----]`.
    fn progress(&self, done: usize, width: usize) -> String {
        let total = self.config.train.steps.max(1);
        let text = format!("step {done}/{total} ");
        let room = width.saturating_sub(text.len() + 2).min(60);
        let full = room * done.min(total) / total;
        format!("{text}[{}{}]", "#".repeat(full), "-".repeat(room - full))
    }

    fn curves(&self, lines: &mut Screenful) {
        if records::steps(self.records).nth(1).is_none() {
            return;
        }
        lines.add("", &PLAIN);
        let mut curve = |name: &str, of: fn(&StepMetrics) -> f64| {
            let values: Vec<f64> = records::steps(self.records).map(of).collect();
            let [low, high] = range(&values).unwrap_or_default();
            let ends = format!("{low:7.3} to {high:.3}");
            let room = lines.width.saturating_sub(9 + ends.len() + 2).min(60);
            let drawn = sparkline(&values, room);
            lines.add(&format!("{name:8} {drawn:room$} {ends}"), &PLAIN);
        };
        curve("return", |step| step.play.return_mean);
        curve("success", |step| step.play.success_rate);
    }

    /// Draws the evaluations between the baselines.
    fn evaluations(&self, lines: &mut Screenful) {
        let baselines = records::baselines(self.records);
        let count = records::evaluations(self.records).count();
        if count == 0 && baselines.is_none() {
            return;
        }
        lines.add("", &PLAIN);
        // A network makes no invalid reply.
        let has_words = self.config.learner.has_language();
        let if_words = |text: String| if has_words { text } else { String::new() };
        let valid = if_words("  valid".to_owned());
        let head = format!("held-out scenes   success   return{valid}  length");
        lines.add(&head, &FAINT);
        let mut row = |name: &str, play: &PlayMetrics, style: &Style| {
            let [success, mean] = [play.success_rate, play.return_mean];
            let valid = if_words(format!("{:7.2}", play.valid_action_rate));
            let length = play.episode_length_mean;
            let text = format!("{name:16} {success:8.3} {mean:8.3}{valid} {length:7.1}");
            lines.add(&text, style);
        };
        if let Some(random) = baselines.and_then(|baselines| baselines.random.as_ref()) {
            row("random", random, &FAINT);
        }
        let hidden = count.saturating_sub(MAX_EVALUATIONS);
        for (at, evaluation) in records::evaluations(self.records).enumerate() {
            if at == 0 || at > hidden {
                row(
                    &format!("step {}", evaluation.step),
                    &evaluation.play,
                    &PLAIN,
                );
            }
        }
        if let Some(scripted) = baselines.and_then(|baselines| baselines.scripted.as_ref()) {
            row("scripted", scripted, &FAINT);
        }
        if let Some(best) = baselines.and_then(|baselines| baselines.best_possible) {
            let text = format!("{:16} {:8} {best:8.3}", "best possible", "");
            lines.add(&text, &FAINT);
        }
    }
}

/// Returns the mean time of the latest steps, including evaluations between them.
fn seconds_per_step(steps: &[&StepMetrics]) -> Option<f64> {
    let latest = &steps[steps.len().saturating_sub(RECENT_STEPS + 1)..];
    match latest {
        [] => None,
        [one] => Some(one.seconds_rollout + one.seconds_update),
        [first, .., last] => {
            // The median limits the effect of a pause between two sessions.
            let pairs = latest.windows(2).map(|pair| pair[1].time - pair[0].time);
            let mut between: Vec<f64> = pairs.collect();
            between.sort_by(f64::total_cmp);
            let middle = between[between.len() / 2];
            let whole = (last.time - first.time) / between.len() as f64;
            Some(whole.min(4.0 * middle))
        }
    }
}

/// Draws a curve of at most `room` characters, each of which is the mean of its values.
fn sparkline(values: &[f64], room: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let count = values.len().min(room.max(1));
    let mean = |place: usize| {
        let part = &values[place * values.len() / count..(place + 1) * values.len() / count];
        part.iter().sum::<f64>() / part.len() as f64
    };
    let [low, high] = range(values).unwrap_or_default();
    let level = |value: f64| match high > low {
        true => LEVELS[((value - low) / (high - low) * 7.0).round() as usize],
        false => LEVELS[0],
    };
    (0..count).map(|place| level(mean(place))).collect()
}

/// Lines of limited width.
struct Screenful {
    text: String,
    width: usize,
    colours: bool,
}

impl Screenful {
    /// Adds a line, cut off at the width.
    fn add(&mut self, text: &str, style: &Style) {
        let fitting = console::truncate_str(text.trim_end(), self.width, "…");
        let style = style.clone().force_styling(self.colours);
        self.text += &format!("{}\n", style.apply_to(fitting));
    }

    /// Adds lines with as many words each as fit. The first one begins with `mark`, and the others are indented as much.
    fn flow<'a>(
        &mut self,
        words: impl Iterator<Item = &'a str>,
        mark: &str,
        gap: &str,
        style: &Style,
    ) {
        let mut line = mark.to_owned();
        for word in words {
            let width = measure_text_width(&line) + gap.len() + measure_text_width(word);
            if width > self.width && line.len() > mark.len() {
                self.add(&line, style);
                line = " ".repeat(mark.len());
            }
            if !line.is_empty() {
                line += gap;
            }
            line += word;
        }
        self.add(&line, style);
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use lapwing_learn::metrics::UpdateMetrics;
    use lapwing_play::metrics::{Baselines, ReplyMetrics};
    use lapwing_train::record::metrics::{Evaluation, Warning};

    use super::*;

    fn play(success_rate: f64) -> PlayMetrics {
        PlayMetrics {
            episodes: 50,
            return_mean: success_rate - 0.05,
            success_rate,
            valid_action_rate: 0.98,
            episode_length_mean: 7.25,
            replies: Some(ReplyMetrics {
                entropy: 1.25,
                ..ReplyMetrics::default()
            }),
            ..PlayMetrics::default()
        }
    }

    fn step(number: usize) -> Record {
        Record::Step(StepMetrics {
            step: number,
            time: 1000.0 + 2.0 * number as f64,
            play: play(number as f64 / 100.0),
            seconds_rollout: 0.5,
            seconds_update: 0.75,
            learned: Some(UpdateMetrics {
                kl: Some(0.0123),
                grad_norm: 1.5,
                ..UpdateMetrics::default()
            }),
            ..StepMetrics::default()
        })
    }

    fn evaluation(step: usize) -> Record {
        Record::Evaluation(Evaluation {
            step,
            time: 1000.0 + 2.0 * step as f64,
            play: play(0.1 + step as f64 / 200.0),
            ..Evaluation::default()
        })
    }

    fn records(until: usize) -> Vec<Record> {
        let baselines = Baselines {
            random: Some(play(0.08)),
            scripted: Some(play(1.0)),
            best_possible: Some(1.0),
            ..Baselines::default()
        };
        let mut records = vec![Record::Baselines(baselines), evaluation(0)];
        for number in 1..=until {
            records.push(step(number));
            if number % 10 == 0 {
                records.push(evaluation(number));
            }
        }
        records
    }

    fn drawn(records: &[Record], running: bool, width: usize) -> String {
        let config = Config::load("frozen-lake", &["train.steps=100".to_owned()]).unwrap();
        let picture = Picture {
            run: Path::new("runs/frozen-lake-1"),
            config: &config,
            records,
            running,
            now: 1150.0,
        };
        let drawn = picture.drawn(width, false);
        for line in drawn.lines() {
            assert!(line.chars().count() <= width, "{line}");
        }
        drawn
    }

    #[test]
    fn a_run_in_progress_is_drawn() {
        let mut records = records(73);
        records.push(Record::Warning(Warning {
            step: 60,
            check: "kl-spike".to_owned(),
            text: "KL leaps\nerror: \x1b[31mforged, and so on for longer than a line of the terminal has room for".to_owned(),
            ..Warning::default()
        }));
        assert_snapshot!("under_way_80", drawn(&records, true, 80));
        assert_snapshot!("under_way_60", drawn(&records, true, 60));
        assert_snapshot!("under_way_40", drawn(&records, true, 40));
    }

    #[test]
    fn states_are_described() {
        let all = records(100);
        let state = |records: &[Record], running, now| {
            let config = Config::load("frozen-lake", &["train.steps=100".to_owned()]).unwrap();
            let picture = Picture {
                run: Path::new("my run"),
                config: &config,
                records,
                running,
                now,
            };
            picture.state()
        };
        assert_snapshot!(state(&[], true, 0.0), @"running; the first record comes after the warm-up and an evaluation");
        assert_snapshot!(state(&[], false, 0.0), @"not running; no records yet");
        assert_snapshot!(state(&all[..2], true, 1001.0), @"running");
        // 27 steps of 2 seconds.
        assert_snapshot!(state(&records(73), true, 1146.0), @"running, about 54 s left");
        assert_snapshot!(state(&records(73), true, 1246.0), @"running, about 54 s left; the last record was written 1 min 40 s ago");
        assert_snapshot!(state(&records(73), false, 1146.0), @"stopped at step 73 of 100; resume with lapwing train --resume 'my run'");
        assert_snapshot!(state(&all[..all.len() - 1], true, 1200.0), @"running: the last evaluation");
        assert_snapshot!(state(&all, false, 9999.0), @"done: 100 steps");
        drawn(&[], true, 60);
        drawn(&all[..1], false, 60);
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let config = Config::default();
        let picture = Picture {
            run: Path::new("run"),
            config: &config,
            records: &records(3),
            running: true,
            now: 0.0,
        };
        assert!(picture.drawn(60, true).contains("\x1b[1m"));
        assert!(!picture.drawn(60, false).contains('\x1b'));
    }

    #[test]
    fn curves_keep_their_shape() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 7.0], 10), "▁▂▃█");
        assert_eq!(sparkline(&[0.0, 0.0, 7.0, 7.0], 2), "▁█");
        assert_eq!(sparkline(&[1.0, 1.0], 10), "▁▁");
    }
}
