//! The results of a sweep as an SVG figure: scores over training episodes and over seconds of training.

use super::results::{SettingResult, SweepResults};
use super::run_result::{CostAxis, EPISODES, RunResult, SECONDS};
use crate::stats::{interval, mean, range};

/// Colours that people with any kind of colour vision can distinguish (Okabe and Ito 2008, *Color Universal Design*),
/// without yellow, which is faint on white.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// Dash patterns. Each is used with all colours before the next.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"8 3\"", " stroke-dasharray=\"2 2\""];
/// With fewer seeds, the band is the range over the seeds.
const MIN_SEEDS_FOR_INTERVAL: usize = 5;
const MAX_CURVE_POINTS: usize = 61;

// Pixels.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 770.0;
const GAP: f64 = 34.0;
const PANEL_WIDTH: f64 = (RIGHT - LEFT - GAP) / 2.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 302.0;
const LEGEND: f64 = 364.0;
const LINE_HEIGHT: f64 = 19.0;

/// The mean score of the seeds at a cost, and the limits of the band.
struct BandPoint {
    cost: f64,
    mean: f64,
    band: [f64; 2],
}

/// The curves along one axis, each with the index of its setting.
struct Panel {
    axis: &'static str,
    left: f64,
    /// The scores at the bottom and the top.
    scores: [f64; 2],
    /// The largest cost.
    end: f64,
    /// The cost at which the scores are compared, if it is before the end.
    equal: Option<f64>,
    curves: Vec<(usize, Vec<BandPoint>)>,
}

impl SweepResults {
    /// Returns the figure as self-contained SVG on white. Equal results give equal text.
    pub fn figure(&self) -> String {
        let is_interval = |row: &SettingResult| row.seeds.len() >= MIN_SEEDS_FOR_INTERVAL;
        let is_interval = self.settings.iter().all(is_interval);
        let panel = |name, axis, equal: Option<f64>| {
            let curve = |(number, row): (usize, &SettingResult)| {
                let curve = mean_curve(&self.of_setting(&row.setting), axis, is_interval)?;
                Some((number, curve))
            };
            let curves: Vec<_> = self.settings.iter().enumerate().filter_map(curve).collect();
            let points = curves.iter().flat_map(|(_, curve)| curve);
            let end = points.map(|point| point.cost).reduce(f64::max)?;
            Some(Panel {
                axis: name,
                left: LEFT,
                scores: [0.0; 2],
                end,
                equal: equal.filter(|equal| *equal < 0.99 * end),
                curves,
            })
        };
        let panels = [
            panel("training episodes", EPISODES, self.equal_episodes),
            panel("seconds of training", SECONDS, self.equal_seconds),
        ];
        let mut panels: Vec<Panel> = panels.into_iter().flatten().collect();
        let shared_baselines = self.shared_baselines();
        let baselines = shared_baselines.as_deref().unwrap_or_default();
        let curves = panels.iter().flat_map(|panel| &panel.curves);
        let points = curves.flat_map(|(_, curve)| curve);
        let scores = points.flat_map(|point| [point.mean, point.band[0], point.band[1]]);
        let scores = scores.chain(baselines.iter().map(|(_, score)| *score));
        let [low, high] = range(&scores.collect::<Vec<_>>()).unwrap_or_default();
        let margin = match low == high {
            true => 0.5,
            false => 0.05 * (high - low),
        };

        let name = &self.name;
        let mut svg = text([LEFT, 24.0], " font-size=\"14\" font-weight=\"bold\"", name);
        let middle = (TOP + BOTTOM) / 2.0;
        let vertical = format!(" transform=\"rotate(-90 16 {middle})\" text-anchor=\"middle\"");
        svg += &text([16.0, middle], &vertical, "mean return of evaluations");
        for (number, panel) in panels.iter_mut().enumerate() {
            panel.left = LEFT + number as f64 * (PANEL_WIDTH + GAP);
            panel.scores = [low - margin, high + margin];
            svg += &panel.draw(baselines);
        }
        let mut free = f64::MIN;
        for (name, score) in baselines.iter().filter(|_| !panels.is_empty()) {
            let y = (panels[0].y(*score) + 4.0).max(free);
            free = y + 14.0;
            let small = " font-size=\"11\" fill=\"#555\"";
            svg += &text([RIGHT + 6.0, y], small, &format!("{name} {score:.3}"));
        }
        let mut bottom = LEGEND;
        let mut labels = Vec::new();
        for (number, row) in self.settings.iter().enumerate() {
            let (mean, seeds) = (row.score.mean_return.mean, row.seeds.len());
            let (name, of) = (&row.setting, self.scored());
            let label = format!("{name}: {mean:.3} ({of}), seeds: {seeds}");
            let y = bottom - 4.0;
            svg += &line([LEFT, y], [LEFT + 24.0, y], &stroke(number));
            svg += &text([LEFT + 30.0, bottom], "", &label);
            bottom += LINE_HEIGHT;
            labels.push(label);
        }
        let bands = match is_interval {
            true => "the 95 % confidence interval of the mean",
            false => "the range of the seeds",
        };
        let mut captions = vec![format!(
            "Mean over seeds, linear between evaluations; bands: {bands}."
        )];
        if panels.iter().any(|panel| panel.equal.is_some()) {
            captions.push("Dotted lines: the cost at which the settings are compared.".to_owned());
        }
        if shared_baselines.is_none() {
            captions.push("The settings have different baselines, which are not drawn.".to_owned());
        }
        for caption in captions {
            svg += &text([LEFT, bottom], " font-size=\"11\" fill=\"#666\"", &caption);
            bottom += LINE_HEIGHT;
        }
        let description = labels.join("; ");
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {bottom}\" width=\"{WIDTH}\" height=\"{bottom}\" role=\"img\" \
             font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#333\">\n\
             <title>{name}: mean return of evaluations</title>\n<desc>{description}</desc>\n\
             <rect width=\"{WIDTH}\" height=\"{bottom}\" rx=\"6\" fill=\"#fff\"/>\n{svg}</svg>\n"
        )
    }

    /// Returns the baselines in descending order, or `None` if the runs have different ones.
    fn shared_baselines(&self) -> Option<Vec<(&'static str, f64)>> {
        let mut of_runs = self.runs.iter().map(|run| {
            let baselines = run.baselines.clone().unwrap_or_default();
            let scores = [
                ("random", baselines.random.map(|play| play.return_mean)),
                ("scripted", baselines.scripted.map(|play| play.return_mean)),
                ("best possible", baselines.best_possible),
            ];
            let known = scores.map(|(name, score)| Some((name, score?)));
            known.into_iter().flatten().collect::<Vec<_>>()
        });
        let mut first = of_runs.next()?;
        let are_shared = of_runs.all(|other| other == first);
        first.sort_by(|a, b| b.1.total_cmp(&a.1));
        are_shared.then_some(first)
    }
}

impl Panel {
    fn draw(&self, baselines: &[(&str, f64)]) -> String {
        let mut svg = String::new();
        let (left, right) = (self.left, self.left + PANEL_WIDTH);
        let ticks = round_values(self.scores, 6.0);
        for score in &ticks {
            let y = self.y(*score);
            svg += &line([left, y], [right, y], "stroke=\"#e6e6e6\"");
            if left == LEFT {
                let name = tick_name(*score, &ticks);
                svg += &text([left - 6.0, y + 4.0], " text-anchor=\"end\"", &name);
            }
        }
        let axis = "stroke=\"#999\"";
        svg += &line([left, BOTTOM], [right, BOTTOM], axis);
        let centred = " text-anchor=\"middle\"";
        let middle = (left + right) / 2.0;
        svg += &text([middle, BOTTOM + 34.0], centred, self.axis);
        let ticks = round_values([0.0, self.end], 5.0);
        for cost in &ticks {
            let x = self.x(*cost);
            svg += &line([x, BOTTOM], [x, BOTTOM + 4.0], axis);
            svg += &text([x, BOTTOM + 17.0], centred, &tick_name(*cost, &ticks));
        }
        if let Some(equal) = self.equal {
            let x = self.x(equal);
            let dotted = "stroke=\"#555\" stroke-dasharray=\"1 3\"";
            svg += &line([x, TOP], [x, BOTTOM], dotted);
        }
        for (_, score) in baselines {
            let y = self.y(*score);
            let dashed = "stroke=\"#777\" stroke-dasharray=\"5 4\"";
            svg += &line([left, y], [right, y], dashed);
        }
        for (number, curve) in &self.curves {
            let upper = curve.iter().map(|point| (point.cost, point.band[1]));
            let lower = curve.iter().rev().map(|point| (point.cost, point.band[0]));
            let path = self.path(upper.chain(lower));
            let colour = COLOURS[number % COLOURS.len()];
            svg += &format!("<path d=\"{path}Z\" fill=\"{colour}\" fill-opacity=\"0.13\"/>\n");
        }
        for (number, curve) in &self.curves {
            let path = self.path(curve.iter().map(|point| (point.cost, point.mean)));
            svg += &format!("<path d=\"{path}\" {}/>\n", stroke(*number));
        }
        svg
    }

    fn x(&self, cost: f64) -> f64 {
        self.left + cost / self.end.max(f64::MIN_POSITIVE) * PANEL_WIDTH
    }

    fn y(&self, score: f64) -> f64 {
        let [low, high] = self.scores;
        BOTTOM - (score - low) / (high - low) * (BOTTOM - TOP)
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let points =
            points.map(|(cost, score)| format!("{:.1} {:.1}", self.x(cost), self.y(score)));
        format!("M{}", points.collect::<Vec<_>>().join("L"))
    }
}

/// Returns the mean curve of some seeds, from the latest first evaluation to the earliest last one.
fn mean_curve(runs: &[&RunResult], axis: CostAxis, is_interval: bool) -> Option<Vec<BandPoint>> {
    let costs = |run: &&RunResult| run.curve.iter().map(|point| axis(&point.cost)).collect();
    let costs: Vec<Vec<f64>> = runs.iter().map(costs).collect::<Option<_>>()?;
    let begin = costs.iter().map(|own| own[0]).reduce(f64::max)?;
    let ends = costs.iter().map(|own| own[own.len() - 1]);
    let end = ends.reduce(f64::min)?;
    let mut costs = costs.concat();
    costs.retain(|cost| (begin..=end).contains(cost));
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    if costs.len() > MAX_CURVE_POINTS {
        let steps = (MAX_CURVE_POINTS - 1) as f64;
        let step = |number| begin + (end - begin) * number as f64 / steps;
        costs = (0..MAX_CURVE_POINTS - 1).map(step).chain([end]).collect();
    }
    let point = |cost: f64| {
        let scores = runs.iter().filter_map(|run| run.score_at(axis, cost));
        let scores: Vec<f64> = scores.collect();
        let band = match is_interval {
            true => interval(&scores),
            false => range(&scores).unwrap_or_default(),
        };
        let mean = mean(&scores);
        BandPoint { cost, mean, band }
    };
    Some(costs.into_iter().map(point).collect())
}

fn line([x, y]: [f64; 2], [to_x, to_y]: [f64; 2], style: &str) -> String {
    format!("<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" {style}/>\n")
}

fn text([x, y]: [f64; 2], style: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{style}>{text}</text>\n")
}

fn stroke(number: usize) -> String {
    let colour = COLOURS[number % COLOURS.len()];
    let dashes = DASHES[number / COLOURS.len() % DASHES.len()];
    format!(
        "fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dashes}"
    )
}

/// Returns about `wanted` round values in a range.
fn round_values([low, high]: [f64; 2], wanted: f64) -> Vec<f64> {
    let rough = ((high - low) / wanted).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    let mut steps = [1.0, 2.0, 5.0].map(|round| round * power).into_iter();
    let step = steps.find(|step| *step >= rough).unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

/// Formats a tick with enough digits to differ from its neighbours.
fn tick_name(value: f64, all: &[f64]) -> String {
    let step = all.get(1).map_or(1.0, |second| second - all[0]);
    let decimals = (-(step.log10() + 0.01).floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}
