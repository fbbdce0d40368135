//! One visit of the page: a run, a game by hand, and files to look at.

use std::path::{Path, PathBuf};

use lapwing_lab::report;
use lapwing_model::{MEMORY, entries, is_file, write_file};
use lapwing_play::Progress;
use lapwing_tensor::{Caps, Gpu, GpuError, GpuOptions};
use lapwing_train::health::HealthChecks;
use lapwing_train::learner::Learner;
use lapwing_train::record::Record;
use lapwing_train::record::directory::{self, Session};
use lapwing_train::record::metrics::{TestResults, now};
use lapwing_train::snapshot::Snapshot;
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::{Config, trainer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::by_hand::ByHand;
use crate::words::words;

/// The presets that the page offers, with their titles. Others need another model, or too long.
const PRESETS: [(&str, &str); 4] = [
    ("frozen-lake", "Frozen Lake, 4x4"),
    ("frozen-lake-slippery", "Frozen Lake, slippery"),
    ("frozen-lake-large", "Frozen Lake, 8x8"),
    ("snake", "Snake, 6x6"),
];

/// Recorded by `lapwing train` on lavapipe; `fixtures/README.md` has the command.
const TRAJECTORY: &str = include_str!("../../../fixtures/trajectory.json");

/// Steps of the self-test.
const STEPS: usize = 5;

/// The largest relative difference of gradient norms from the recorded ones. They are sums of some thousand f32 products,
/// which drivers fuse or not.
const NORM: f64 = 1e-5;

/// A request of the page. `page/worker.js` makes them.
#[derive(Debug, Deserialize)]
#[serde(tag = "call", rename_all = "lowercase", deny_unknown_fields)]
enum PageRequest {
    /// The device, and the presets to choose from.
    Open,
    /// Begins a run, without a step.
    Start(Choice),
    /// Makes the next part of the run: an evaluation, a test, or a step.
    Advance,
    /// The data of the run's report.
    Report,
    /// The files of the run.
    Files,
    /// The data of a report about the files of a run that were put into this folder.
    Look { folder: String, preset: String },
    /// Uses the adapter that was put into this folder.
    Adapter { folder: String },
    /// The probabilities of the next word after a prompt.
    Words { prompt: String, trained: bool },
    /// Begins a game by hand.
    Play {
        preset: String,
        seed: String,
        human: Vec<usize>,
    },
    /// Plays a turn of it.
    Move { action: Option<String> },
    /// Compares the first steps of the default run with recorded ones.
    Selftest,
}

/// The settings of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    preset: String,
    /// Text, because JavaScript rounds large numbers.
    seed: String,
    group_size: usize,
    /// `aaw` or `all`
    sampling: String,
    steps: usize,
}

/// A device, and what the visitor does with it.
pub struct PageSession {
    gpu: Gpu,
    checked: bool,
    run: Option<PageRun>,
    hand: Option<ByHand>,
    /// The directory of the adapter that the visitor brought.
    adapter: Option<PathBuf>,
}

/// A run whose files are in memory.
struct PageRun {
    state: State,
    checks: HealthChecks,
    test: TestResults,
    metrics: Lines,
    episodes: Lines,
    /// To continue from if the device is lost.
    kept: Snapshot,
}

/// A file of records.
struct Lines {
    path: PathBuf,
    text: String,
    /// The length at the last snapshot.
    kept: usize,
}

/// Steps between two snapshots.
const KEPT_EVERY: usize = 10;

fn run_directory() -> PathBuf {
    Path::new(MEMORY).join("run")
}

fn sentence(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn config(preset: &str, settings: &[String]) -> Result<Config, String> {
    match PRESETS.iter().any(|(name, _)| *name == preset) {
        true => Config::load(preset, settings).map_err(sentence),
        false => Err(format!("{preset} is none of the presets of this page")),
    }
}

fn device(checked: bool) -> Result<Gpu, String> {
    let options = GpuOptions {
        webgpu: true,
        checked,
        ..GpuOptions::default()
    };
    Gpu::open(options).map_err(sentence)
}

impl PageSession {
    /// Opens the device. With `checked`, kernels are compiled with bounds checks, for tests.
    ///
    /// # Errors
    /// If there is none, or it lacks a feature.
    pub fn open(checked: bool) -> Result<PageSession, String> {
        Ok(PageSession {
            gpu: device(checked)?,
            checked,
            run: None,
            hand: None,
            adapter: None,
        })
    }

    /// Answers a request of the page; request and answer are JSON.
    ///
    /// # Errors
    /// With a sentence for the visitor.
    pub fn answer(&mut self, request: &str, progress: &dyn Progress) -> Result<String, String> {
        let request = serde_json::from_str(request).map_err(sentence)?;
        let answer = self.carry_out(request, progress);
        // An error of the device may come later than the call that caused it.
        match self.gpu.finish() {
            Err(GpuError::Lost(why)) => Err(self.reopen(&why, progress)?),
            Err(error) => Err(sentence(error)),
            Ok(()) => answer,
        }
    }

    fn carry_out(
        &mut self,
        request: PageRequest,
        progress: &dyn Progress,
    ) -> Result<String, String> {
        let answer = match request {
            PageRequest::Open => Ok(self.offer()),
            PageRequest::Start(choice) => self.start(&choice, progress),
            PageRequest::Advance => self.run()?.advance(progress),
            PageRequest::Report => return report::data(&[run_directory()]).map_err(sentence),
            PageRequest::Files => self.files(),
            PageRequest::Look { folder, preset } => return look(&folder, &preset),
            PageRequest::Adapter { folder } => self.bring_adapter(&folder, progress),
            PageRequest::Words { prompt, trained } => {
                let learner = match &mut self.run {
                    Some(run) => &mut run.state.learner,
                    None => &mut self.player(PRESETS[0].0, &[], progress)?.learner,
                };
                let tokenizer = learner.worlds[0].prompts.tokenizer();
                words(&mut learner.policy, tokenizer, &prompt, trained).map(|words| json!(words))
            }
            PageRequest::Play {
                preset,
                seed,
                human,
            } => self.play(&preset, &seed, human, progress),
            PageRequest::Move { action } => {
                let hand = self.hand.as_mut().ok_or("no game was started")?;
                hand.play(action.as_deref()).map(|view| json!(view))
            }
            PageRequest::Selftest => self.self_test(progress),
        };
        answer.map(|value| value.to_string())
    }

    /// Opens the device again after its loss, and restores the last snapshot of the run. Returns the sentence for the visitor.
    fn reopen(&mut self, why: &str, progress: &dyn Progress) -> Result<String, String> {
        let again = |error: String| {
            format!(
                "the GPU was lost ({why}), and could not be opened again: {error}; reload the page"
            )
        };
        self.gpu = device(self.checked).map_err(again)?;
        self.hand = None;
        let Some(run) = self.run.take() else {
            return Ok(format!(
                "the GPU was lost ({why}) and was opened again; try once more"
            ));
        };
        let run = run.again(&self.gpu, progress).map_err(again)?;
        let step = run.state.step;
        self.run = Some(run);
        Ok(format!(
            "the GPU was lost ({why}) and was opened again; Continue trains on from step {step}"
        ))
    }

    fn run(&mut self) -> Result<&mut PageRun, String> {
        self.run.as_mut().ok_or("no run was started".to_owned())
    }

    fn offer(&self) -> Value {
        let Caps {
            name, is_software, ..
        } = self.gpu.caps();
        let preset = |(preset, title): &(&str, &str)| {
            let config = Config::load(preset, &[]).expect("a preset is valid");
            json!({
                "preset": preset,
                "title": title,
                "group_size": config.train.group_size,
                "steps": config.train.steps,
                "players": if *preset == "snake" { 2 } else { 1 },
            })
        };
        json!({
            "device": {"name": name, "software": is_software},
            "presets": PRESETS.iter().map(preset).collect::<Vec<_>>(),
        })
    }

    fn start(&mut self, choice: &Choice, progress: &dyn Progress) -> Result<Value, String> {
        let mut settings = vec![
            format!("train.seed={}", choice.seed.trim()),
            format!("train.group_size={}", choice.group_size),
            format!("train.steps={}", choice.steps),
            format!("train.sampling={:?}", choice.sampling),
        ];
        if choice.sampling == "aaw" {
            // The paper's share: 7 of 25.
            let learn = (choice.group_size * 7).div_ceil(25);
            settings.push(format!("train.learn={learn}"));
        }
        settings.extend(self.adapter_setting());
        let config = config(&choice.preset, &settings)?;
        // The old ones free their memory first.
        (self.run, self.hand) = (None, None);
        let run = PageRun::new(&self.gpu, config, progress)?;
        run.begin(self.gpu.caps(), &choice.preset)?;
        let steps = run.state.config.train.steps;
        self.run = Some(run);
        Ok(json!({ "steps": steps }))
    }

    /// Returns the model for playing, with the adapter that the visitor brought.
    fn player(
        &self,
        preset: &str,
        settings: &[&str],
        progress: &dyn Progress,
    ) -> Result<State, String> {
        let mut settings: Vec<String> = settings.iter().map(|it| (*it).to_owned()).collect();
        settings.extend(self.adapter_setting());
        let config = config(preset, &settings)?;
        State::new(&self.gpu, None, config, RunPurpose::Play, progress).map_err(sentence)
    }

    fn adapter_setting(&self) -> Option<String> {
        let dir = self.adapter.as_ref()?;
        Some(format!("model.adapter={:?}", dir.display().to_string()))
    }

    fn bring_adapter(&mut self, folder: &str, progress: &dyn Progress) -> Result<Value, String> {
        let before = self.adapter.replace(Path::new(MEMORY).join(folder));
        let state = self.player(PRESETS[0].0, &[], progress);
        let state = state.inspect_err(|_| self.adapter = before)?;
        // The run and the game have other weights.
        (self.run, self.hand) = (None, None);
        let adapter = state.learner.policy.adapter.as_ref();
        let rank = adapter.map_or(0, |adapter| adapter.config().rank);
        let text = format!("adapter of rank {rank}, for the built-in model");
        Ok(json!({ "text": text }))
    }

    fn play(
        &mut self,
        preset: &str,
        seed: &str,
        human: Vec<usize>,
        progress: &dyn Progress,
    ) -> Result<Value, String> {
        let seed = seed.trim().parse();
        let seed = seed.map_err(|_| "the seed of a game is an integer".to_owned())?;
        let settings: &[&str] = match preset {
            // The person and the model.
            "snake" => &["game.options.agents=2", "game.options.enemies=0"],
            _ => &[],
        };
        let mut state = self.player(preset, settings, progress)?;
        let agents = state.world().scenario.agents();
        if human.iter().any(|agent| *agent >= agents) {
            return Err(format!("the game has {agents} players"));
        }
        if let Some(run) = &self.run {
            // A view of the trained weights, which shows each update.
            state.learner.policy.adapter = run.state.learner.policy.adapter.clone();
        }
        let mut hand = ByHand::new(state, seed, human);
        let view = hand.view()?;
        self.hand = Some(hand);
        Ok(json!(view))
    }

    /// Returns the paths of the run's files, below `<memory>`.
    fn files(&mut self) -> Result<Value, String> {
        let dir = run_directory();
        let run = self.run()?;
        run.state
            .save(&directory::adapter(&dir))
            .map_err(sentence)?;
        let paths = entries(&dir).map_err(sentence)?;
        let below = |path: &PathBuf| path.strip_prefix(MEMORY).expect("in memory").to_owned();
        Ok(json!(paths.iter().map(below).collect::<Vec<_>>()))
    }

    fn self_test(&mut self, progress: &dyn Progress) -> Result<Value, String> {
        let known: Value = serde_json::from_str(TRAJECTORY).expect("a fixture");
        let settings: Vec<String> =
            serde_json::from_value(known["settings"].clone()).expect("a fixture");
        let known: Vec<[f64; 2]> =
            serde_json::from_value(known["return_and_norm"].clone()).expect("a fixture");
        let mut run = PageRun::new(&self.gpu, config(PRESETS[0].0, &settings)?, progress)?;
        let (mut rows, mut furthest, mut is_equal) = (Vec::new(), 0.0f64, true);
        for [native, norm_native] in known.into_iter().take(STEPS) {
            let records = trainer::step(&mut run.state, &mut run.checks, progress);
            let records = records.map_err(sentence)?;
            let Some(Record::Step(metrics)) = records.first() else {
                return Err("a step left no metrics".to_owned());
            };
            let here = metrics.play.composite_return_mean;
            let norm_here = metrics.learned.as_ref().map_or(f64::NAN, |it| it.grad_norm);
            is_equal &= here == native;
            furthest = furthest.max((norm_here - norm_native).abs() / norm_native);
            rows.push(json!({
                "step": metrics.step, "native": native, "here": here,
                "norm_native": norm_native, "norm_here": norm_here,
            }));
        }
        let ok = is_equal && furthest <= NORM;
        let text = match ok {
            true => format!("equal returns, gradient norms within {furthest:.1e}"),
            false => format!(
                "this browser or its driver computes something else: gradient norms differ by {furthest:.1e}, and {NORM:.0e} \
                 is allowed"
            ),
        };
        Ok(json!({ "ok": ok, "rows": rows, "text": text }))
    }
}

impl PageRun {
    fn new(gpu: &Gpu, config: Config, progress: &dyn Progress) -> Result<PageRun, String> {
        let state = State::new(gpu, None, config, RunPurpose::Train, progress).map_err(sentence)?;
        let run = run_directory();
        let lines = |path| Lines {
            path,
            text: String::new(),
            kept: 0,
        };
        Ok(PageRun {
            checks: HealthChecks::of(state.learner.game().0.actions()),
            kept: state.snapshot().map_err(sentence)?,
            state,
            test: TestResults::default(),
            metrics: lines(directory::metrics(&run)),
            episodes: lines(directory::episodes(&run)),
        })
    }

    /// Writes the first files of the run.
    fn begin(&self, caps: &Caps, preset: &str) -> Result<(), String> {
        let start = Session {
            time: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: "browser".to_owned(),
            step: 0,
            device: caps.name.clone(),
            driver: caps.driver.clone(),
            backend: caps.backend.clone(),
            software: caps.is_software,
            config: preset.to_owned(),
            model: self.state.model_name.clone(),
            fingerprint: self.state.fingerprint.clone(),
        };
        let run = run_directory();
        let start = serde_json::to_string(&start).expect("plain values") + "\n";
        let config = self.state.config.to_toml();
        for (path, text) in [
            (directory::config(&run), &*config),
            (directory::sessions(&run), &start),
            (directory::test(&run), "{}"),
            (directory::metrics(&run), ""),
            (directory::episodes(&run), ""),
        ] {
            write_file(&path, text.as_bytes()).map_err(sentence)?;
        }
        Ok(())
    }

    /// Returns the run as at its last snapshot, on another device.
    fn again(self, gpu: &Gpu, progress: &dyn Progress) -> Result<PageRun, String> {
        let mut run = PageRun::new(gpu, self.state.config.clone(), progress)?;
        run.state.restore(&self.kept);
        let cut = |mut lines: Lines| {
            lines.text.truncate(lines.kept);
            lines
        };
        Ok(PageRun {
            test: self.test,
            metrics: cut(self.metrics),
            episodes: cut(self.episodes),
            kept: self.kept,
            ..run
        })
    }

    /// Does what the training loop of the program does next. Returns the step, and whether all is done.
    fn advance(&mut self, progress: &dyn Progress) -> Result<Value, String> {
        let state = &mut self.state;
        let last = state.step >= state.config.train.steps;
        let due = last || state.config.eval.is_due(state.step);
        let is_tested = self.test.sampled.iter().any(|test| test.step == state.step);
        if due && state.evaluated != Some(state.step) {
            let (_, records) = trainer::evaluation(state, progress).map_err(sentence)?;
            state.evaluated = Some(state.step);
            self.keep(&records)?;
        } else if (last || state.step == 0) && !is_tested {
            // A copy, so that a test of which a part fails is played again.
            let mut test = self.test.clone();
            let stop = &std::sync::atomic::AtomicBool::new(false);
            trainer::add_test(&mut test, state, progress, stop).map_err(sentence)?;
            self.test = test;
            let text = serde_json::to_vec(&self.test).expect("plain values");
            write_file(&directory::test(&run_directory()), &text).map_err(sentence)?;
        } else if !last {
            let records = trainer::step(state, &mut self.checks, progress).map_err(sentence)?;
            self.keep(&records)?;
            self.checks.verdict().map_err(sentence)?;
        }
        let (step, steps) = (self.state.step, self.state.config.train.steps);
        let is_tested = self.test.sampled.iter().any(|test| test.step == steps);
        Ok(json!({ "step": step, "steps": steps, "done": is_tested }))
    }

    fn keep(&mut self, records: &[Record]) -> Result<(), String> {
        for record in records {
            record.check().map_err(sentence)?;
            let lines = match record {
                Record::Episode(_) => &mut self.episodes,
                _ => &mut self.metrics,
            };
            lines.text += &(serde_json::to_string(record).expect("plain values") + "\n");
        }
        if self.state.step.is_multiple_of(KEPT_EVERY) {
            self.kept = self.state.snapshot().map_err(sentence)?;
            (self.metrics.kept, self.episodes.kept) =
                (self.metrics.text.len(), self.episodes.text.len());
        }
        for lines in [&self.metrics, &self.episodes] {
            write_file(&lines.path, lines.text.as_bytes()).map_err(sentence)?;
        }
        Ok(())
    }
}

fn look(folder: &str, preset: &str) -> Result<String, String> {
    let dir = Path::new(MEMORY).join(folder);
    if !is_file(&directory::config(&dir)) {
        // Its game draws the boards.
        let config = config(preset, &[])?.to_toml();
        write_file(&directory::config(&dir), config.as_bytes()).map_err(sentence)?;
    }
    report::data(&[dir]).map_err(sentence)
}

#[cfg(test)]
mod tests;
