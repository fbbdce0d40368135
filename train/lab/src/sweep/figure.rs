//! The results of a sweep as a picture: scores against training episodes and against seconds of training.

use std::fmt::Write;

use super::outcome::{Along, Outcome};
use super::results::{Results, Row};
use crate::stats::interval;

/// Colours that people tell apart however they see colours (Okabe and Ito 2008, *Color Universal Design*), without their
/// yellow, which is faint on white.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// When all colours are used, they come again with other strokes.
const STROKES: [&str; 3] = ["none", "8 3", "2 2"];

/// The bootstrap of fewer seeds says little; then the band is all that they did.
const SEEDS_FOR_AN_INTERVAL: usize = 5;
/// Places of a line, at most: one in seven pixels.
const MOST_PLACES: usize = 61;

// Pixels.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 770.0;
const BETWEEN: f64 = 34.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 302.0;
const LEGEND: f64 = 364.0;
const LINE: f64 = 19.0;
/// Of a letter, about: fonts differ.
const LETTER: f64 = 6.8;

/// A place, the mean score of the seeds there, and the ends of their band.
type Place = (f64, f64, [f64; 2]);

/// A half of the picture.
struct Panel {
    /// What its places are.
    name: &'static str,
    /// Where its left end is; it is as wide as the other.
    left: f64,
    /// The place at its right end; that at its left end is 0.
    end: f64,
    /// The scores at its bottom and its top.
    scores: [f64; 2],
    /// Where the scores are compared.
    equal: f64,
    /// A line for each setting that tells its places.
    lines: Vec<Option<Vec<Place>>>,
}

impl Results {
    /// The picture: SVG that needs no other file, on white, the same for the same results.
    pub fn figure(&self) -> String {
        let fewest = self.rows.iter().map(|row| row.seeds.len()).min();
        let is_interval = fewest >= Some(SEEDS_FOR_AN_INTERVAL);
        let band = if is_interval { interval } else { ends };
        let lines = |along| -> Vec<Option<Vec<Place>>> {
            let line = |row: &Row| line(&self.of_setting(&row.setting), along, band);
            self.rows.iter().map(line).collect()
        };
        let yardsticks = self.yardsticks();
        let levels = yardsticks.iter().flatten().map(|(_, score)| *score);
        let halves = [Along::Episodes, Along::Seconds].map(lines);
        let places = halves.iter().flatten().flatten().flatten();
        let drawn = places.flat_map(|(_, mean, [low, high])| [*mean, *low, *high]);
        let scores = range(drawn.chain(levels));
        let panel = |(number, lines): (usize, Vec<Option<Vec<Place>>>)| {
            let of_line = |line: &Vec<Place>| line.last().map(|(place, ..)| *place);
            let end = lines
                .iter()
                .flatten()
                .filter_map(of_line)
                .reduce(f64::max)?;
            let (name, equal) = match number {
                0 => ("training episodes", self.equal_episodes?),
                _ => ("seconds of training", self.equal_seconds?),
            };
            let left = LEFT + number as f64 * (width() + BETWEEN);
            Some(Panel {
                name,
                left,
                end,
                scores,
                equal,
                lines,
            })
        };
        let panels: Vec<Panel> = halves.into_iter().enumerate().filter_map(panel).collect();

        let mut body = format!(
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
            self.name
        );
        body += &format!(
            "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">mean return of evaluations</text>\n",
            (TOP + BOTTOM) / 2.0
        );
        panels
            .iter()
            .for_each(|panel| body += &panel.drawn(yardsticks.as_deref()));
        body += &names_of(yardsticks.as_deref().unwrap_or_default(), scores);
        let (legend, mut bottom) = self.legend();
        body += &legend;
        for note in self.captions(is_interval, &panels, yardsticks.is_none()) {
            body += &format!(
                "<text x=\"{LEFT}\" y=\"{bottom}\" font-size=\"11\" fill=\"#666\">{note}</text>\n"
            );
            bottom += 16.0;
        }
        let name = &self.name;
        let words = self.in_words();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {bottom}\" width=\"{WIDTH}\" height=\"{bottom}\" role=\"img\" \
             font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#333\">\n\
             <title>{name}: mean return of evaluations</title>\n<desc>{words}</desc>\n\
             <rect width=\"{WIDTH}\" height=\"{bottom}\" rx=\"6\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }

    /// What all runs are held against, by name; none if it is not the same for all.
    fn yardsticks(&self) -> Option<Vec<(&'static str, f64)>> {
        let of = |run: &Outcome| -> Vec<(&'static str, f64)> {
            let Some(found) = &run.yardsticks else {
                return Vec::new();
            };
            let score = |play: &Option<_>| play.as_ref().map(mean_return);
            let all = [
                ("random", score(&found.random)),
                ("scripted", score(&found.scripted)),
                ("best possible", found.best_possible),
            ];
            all.into_iter()
                .filter_map(|(name, score)| Some((name, score?)))
                .collect()
        };
        let mut all = self.runs.iter().map(of);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// The names of the settings with their strokes, and where what is below begins.
    fn legend(&self) -> (String, f64) {
        let (mut x, mut y, mut text) = (LEFT, LEGEND, String::new());
        let is_whole = self
            .rows
            .iter()
            .all(|row| row.seeds.len() == self.rows[0].seeds.len());
        for (number, row) in self.rows.iter().enumerate() {
            let name = match (is_whole, row.seeds.len()) {
                (true, _) => row.setting.clone(),
                (false, 1) => format!("{}, 1 seed", row.setting),
                (false, seeds) => format!("{}, {seeds} seeds", row.setting),
            };
            let wide = 50.0 + LETTER * name.chars().count() as f64;
            if x + wide > WIDTH && x > LEFT {
                (x, y) = (LEFT, y + LINE);
            }
            let (from, middle, stroke) = (x + 30.0, y - 4.0, stroke(number));
            _ = writeln!(
                text,
                "<path d=\"M{x:.1} {middle}H{:.1}\" {stroke}/>",
                x + 24.0
            );
            _ = writeln!(text, "<text x=\"{from:.1}\" y=\"{y}\">{name}</text>");
            x += wide;
        }
        (text, y + LINE + 6.0)
    }

    /// How to read it.
    fn captions(&self, is_interval: bool, panels: &[Panel], differ: bool) -> Vec<String> {
        let seeds: Vec<usize> = self.rows.iter().map(|row| row.seeds.len()).collect();
        let most = seeds.iter().copied().max().unwrap_or(0);
        let of = match (seeds.iter().all(|count| *count == most), most) {
            (true, 1) => "One seed".to_owned(),
            (true, count) => format!("Mean of {count} seeds"),
            (false, _) => "Mean of the seeds that are done".to_owned(),
        };
        let bands = match (is_interval, most) {
            (_, ..=1) => "",
            (true, _) => "; bands are the 95 % bootstrap interval of the mean",
            (false, _) => "; bands go from the lowest seed to the highest",
        };
        let mut notes = vec![format!("{of}, straight between evaluations{bands}.")];
        let early = panels
            .iter()
            .filter(|panel| panel.compares_before_the_end());
        let early: Vec<String> = early
            .map(|panel| format!("{:.0} {}", panel.equal, panel.name))
            .collect();
        if !early.is_empty() {
            let early = early.join(" and ");
            notes.push(format!(
                "Dotted: where the settings are compared, at {early}."
            ));
        }
        if differ {
            notes.push("The settings have different yardsticks, which are not drawn.".to_owned());
        }
        notes
    }

    /// For those who do not see it.
    fn in_words(&self) -> String {
        let row = |row: &Row| {
            let (score, seeds) = (&row.score.mean_return, row.seeds.len());
            format!(
                "{}: {:.3} at the end, seeds: {seeds}",
                row.setting, score.mean
            )
        };
        self.rows.iter().map(row).collect::<Vec<_>>().join("; ")
    }
}

impl Panel {
    fn x(&self, place: f64) -> f64 {
        self.left + place / self.end.max(f64::MIN_POSITIVE) * width()
    }

    /// Whether some of the runs went on beyond the place where the scores are compared.
    fn compares_before_the_end(&self) -> bool {
        self.equal < 0.99 * self.end
    }

    fn drawn(&self, yardsticks: Option<&[(&'static str, f64)]>) -> String {
        let (left, right) = (self.left, self.left + width());
        let mut text = String::new();
        let scores = ticks(self.scores, 6.0);
        for score in &scores {
            let y = height(self.scores, *score);
            _ = writeln!(
                text,
                "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#e6e6e6\"/>"
            );
            if self.left == LEFT {
                let name = tick(*score, &scores);
                _ = writeln!(
                    text,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                    left - 6.0,
                    y + 4.0
                );
            }
        }
        let places = ticks([0.0, self.end], 5.0);
        for place in &places {
            let (x, name) = (self.x(*place), tick(*place, &places));
            _ = writeln!(text, "<path d=\"M{x:.1} {BOTTOM}v4\" stroke=\"#999\"/>");
            _ = writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                BOTTOM + 17.0
            );
        }
        _ = writeln!(
            text,
            "<path d=\"M{left:.1} {BOTTOM}H{right:.1}\" stroke=\"#999\"/>"
        );
        let middle = (left + right) / 2.0;
        _ = writeln!(
            text,
            "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 34.0,
            self.name
        );
        if self.compares_before_the_end() {
            let x = self.x(self.equal);
            _ = writeln!(
                text,
                "<path d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"#555\" stroke-dasharray=\"1 3\"/>"
            );
        }
        for (_, score) in yardsticks.unwrap_or_default() {
            let y = height(self.scores, *score);
            _ = writeln!(
                text,
                "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#777\" stroke-dasharray=\"5 4\"/>"
            );
        }
        let lines = || {
            self.lines
                .iter()
                .enumerate()
                .filter_map(|(number, line)| Some((number, line.as_ref()?)))
        };
        for (number, line) in lines() {
            let there = line.iter().map(|(place, _, [_, high])| (*place, *high));
            let back = line.iter().rev().map(|(place, _, [low, _])| (*place, *low));
            let colour = COLOURS[number % COLOURS.len()];
            let path = self.path(there.chain(back));
            _ = writeln!(
                text,
                "<path d=\"{path}Z\" fill=\"{colour}\" fill-opacity=\"0.13\"/>"
            );
        }
        for (number, line) in lines() {
            let path = self.path(line.iter().map(|(place, mean, _)| (*place, *mean)));
            let stroke = stroke(number);
            _ = writeln!(text, "<path d=\"{path}\" {stroke}/>");
        }
        text
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let point =
            |(place, score)| format!("{:.1} {:.1}", self.x(place), height(self.scores, score));
        format!("M{}", points.map(point).collect::<Vec<_>>().join("L"))
    }
}

/// The scores of some seeds, from where all of them begin to where the first of them ends.
fn line(runs: &[&Outcome], along: Along, band: fn(&[f64]) -> [f64; 2]) -> Option<Vec<Place>> {
    let places = |run: &Outcome| run.course.iter().map(|point| point.place(along)).collect();
    let places: Vec<Vec<f64>> = runs.iter().map(|run| places(run)).collect::<Option<_>>()?;
    let begin = places.iter().map(|own| own[0]).reduce(f64::max)?;
    let end = places
        .iter()
        .map(|own| own[own.len() - 1])
        .reduce(f64::min)?;
    let mut places: Vec<f64> = places.concat();
    places.retain(|place| (begin..=end).contains(place));
    places.sort_by(f64::total_cmp);
    places.dedup();
    if places.len() > MOST_PLACES {
        let steps = (MOST_PLACES - 1) as f64;
        let part = |number| begin + (end - begin) * number as f64 / steps;
        places = (0..MOST_PLACES - 1).map(part).chain([end]).collect();
    }
    let at = |place: &f64| {
        let scores = runs.iter().filter_map(|run| run.score_at(along, *place));
        let scores: Vec<f64> = scores.collect();
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        (*place, mean, band(&scores))
    };
    Some(places.iter().map(at).collect())
}

fn ends(values: &[f64]) -> [f64; 2] {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(0.0);
    [fold(f64::min), fold(f64::max)]
}

fn mean_return(play: &lapwing_play::metrics::PlayMetrics) -> f64 {
    play.return_mean
}

/// The names of the yardsticks right of the panels, none over another.
fn names_of(yardsticks: &[(&'static str, f64)], scores: [f64; 2]) -> String {
    let mut names: Vec<(f64, String)> = yardsticks
        .iter()
        .map(|(name, score)| (height(scores, *score) + 4.0, format!("{name} {score:.3}")))
        .collect();
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::MIN;
    let mut text = String::new();
    for (y, name) in names {
        let y = y.max(free);
        free = y + 14.0;
        _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{y:.1}\" font-size=\"11\" fill=\"#555\">{name}</text>",
            RIGHT + 6.0
        );
    }
    text
}

fn stroke(number: usize) -> String {
    let colour = COLOURS[number % COLOURS.len()];
    let dashes = match STROKES[number / COLOURS.len() % STROKES.len()] {
        "none" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    };
    format!(
        "fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dashes}"
    )
}

/// How wide a panel is.
fn width() -> f64 {
    (RIGHT - LEFT - BETWEEN) / 2.0
}

/// Where a score is, from the top of the picture.
fn height([low, high]: [f64; 2], score: f64) -> f64 {
    BOTTOM - (score - low) / (high - low) * (BOTTOM - TOP)
}

/// The range of some scores with a margin, of which there is one even if all are equal.
fn range(scores: impl Iterator<Item = f64>) -> [f64; 2] {
    let [low, high] = ends(&scores.collect::<Vec<_>>());
    let margin = match high - low {
        0.0 => 0.5,
        size => 0.05 * size,
    };
    [low - margin, high + margin]
}

/// Round values in a range, about so many.
fn ticks([low, high]: [f64; 2], wanted: f64) -> Vec<f64> {
    let rough = (high - low) / wanted;
    let mut power = 1.0;
    while power > rough && power > 1e-12 {
        power /= 10.0;
    }
    while power * 10.0 <= rough {
        power *= 10.0;
    }
    let steps = [1.0, 2.0, 5.0, 10.0].map(|round| round * power);
    let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(1.0);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

/// A tick with as many digits as tell it from its neighbours; thousands as k.
fn tick(value: f64, all: &[f64]) -> String {
    let step = all.get(1).map_or(1.0, |second| second - all[0]);
    let decimals = |step: f64| {
        (0..9)
            .find(|digits| step * 10f64.powi(*digits) > 0.99)
            .unwrap_or(9) as usize
    };
    let largest = all.last().copied().unwrap_or(0.0);
    match largest >= 10_000.0 && value != 0.0 {
        true => format!("{:.*}k", decimals(step / 1000.0), value / 1000.0),
        false => format!("{value:.*}", decimals(step)),
    }
}
