//! One visit of the page: a run, a game by hand, and files to look at.

use std::path::{Path, PathBuf};

use lapwing_lab::report;
use lapwing_model::{MEMORY, entries, is_file, write_file};
use lapwing_play::Progress;
use lapwing_tensor::{Caps, Gpu, GpuOptions};
use lapwing_train::health::HealthChecks;
use lapwing_train::learner::Learner;
use lapwing_train::record::directory::{self, Session as Start};
use lapwing_train::record::metrics::{TestResults, now};
use lapwing_train::record::Record;
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
enum Request {
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
    /// The data of a report about files that were put into `look`.
    Look { preset: String },
    /// Uses the adapter that was put into `adapter`.
    Adapter,
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
pub struct Session {
    gpu: Gpu,
    run: Option<Run>,
    hand: Option<ByHand>,
    /// The directory of the adapter that the visitor brought.
    adapter: Option<PathBuf>,
}

/// A run whose files are in memory.
struct Run {
    state: State,
    checks: HealthChecks,
    test: TestResults,
    metrics: Lines,
    episodes: Lines,
}

/// A file of records.
struct Lines {
    path: PathBuf,
    text: String,
}

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

impl Session {
    /// Opens the device. With `checked`, kernels are compiled with bounds checks, for tests.
    ///
    /// # Errors
    /// If there is none, or it lacks a feature.
    pub fn open(checked: bool) -> Result<Session, String> {
        let options = GpuOptions {
            webgpu: true,
            checked,
            ..GpuOptions::default()
        };
        Ok(Session {
            gpu: Gpu::open(options).map_err(sentence)?,
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
        let request: Request = serde_json::from_str(request).map_err(sentence)?;
        let answer = match request {
            Request::Open => Ok(self.offer()),
            Request::Start(choice) => self.start(&choice, progress),
            Request::Advance => self.run()?.advance(progress),
            Request::Report => return report::data(&[run_directory()]).map_err(sentence),
            Request::Files => self.files(),
            Request::Look { preset } => return look(&preset),
            Request::Adapter => self.bring_adapter(progress),
            Request::Words { prompt, trained } => {
                if self.run.is_none() {
                    self.run = Some(Run::new(&self.gpu, config(PRESETS[0].0, &[])?, progress)?);
                }
                let learner = &mut self.run()?.state.learner;
                let tokenizer = learner.worlds[0].prompts.tokenizer();
                words(&mut learner.policy, tokenizer, &prompt, trained).map(|words| json!(words))
            }
            Request::Play {
                preset,
                seed,
                human,
            } => self.play(&preset, &seed, human, progress),
            Request::Move { action } => {
                let hand = self.hand.as_mut().ok_or("no game was started")?;
                hand.play(action.as_deref()).map(|view| json!(view))
            }
            Request::Selftest => self.self_test(progress),
        };
        // An error of the device may come later than the call that caused it.
        self.gpu.finish().map_err(sentence)?;
        answer.map(|value| value.to_string())
    }

    fn run(&mut self) -> Result<&mut Run, String> {
        self.run.as_mut().ok_or("no run was started".to_owned())
    }

    fn offer(&self) -> Value {
        let Caps {
            name,
            driver,
            backend,
            is_software,
            ..
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
            "device": {"name": name, "driver": driver, "backend": backend, "software": is_software},
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
        if let Some(adapter) = &self.adapter {
            settings.push(format!("model.adapter={:?}", adapter.display().to_string()));
        }
        let config = config(&choice.preset, &settings)?;
        // The old one frees its memory first.
        self.run = None;
        self.hand = None;
        let run = Run::new(&self.gpu, config, progress)?;
        run.begin(self.gpu.caps(), &choice.preset)?;
        let steps = run.state.config.train.steps;
        self.run = Some(run);
        Ok(json!({ "steps": steps }))
    }

    fn bring_adapter(&mut self, progress: &dyn Progress) -> Result<Value, String> {
        let dir = Path::new(MEMORY).join("adapter");
        let setting = format!("model.adapter={:?}", dir.display().to_string());
        let config = config(PRESETS[0].0, &[setting])?;
        let rank = State::new(&self.gpu, None, config, RunPurpose::Play, progress)
            .map_err(sentence)?
            .learner
            .policy
            .adapter
            .map_or(0, |adapter| adapter.config().rank);
        self.adapter = Some(dir);
        // The run has other weights.
        self.run = None;
        self.hand = None;
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
        let seed = seed.map_err(|_| "the seed of a game is a whole number".to_owned())?;
        let mut settings = Vec::new();
        if preset == "snake" {
            // The person and the model.
            settings.push("game.options.agents=2".to_owned());
            settings.push("game.options.enemies=0".to_owned());
        }
        if let Some(adapter) = &self.adapter {
            settings.push(format!("model.adapter={:?}", adapter.display().to_string()));
        }
        let config = config(preset, &settings)?;
        let state = State::new(&self.gpu, None, config, RunPurpose::Play, progress);
        let mut state = state.map_err(sentence)?;
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
        run.state.save(&directory::adapter(&dir)).map_err(sentence)?;
        let paths = entries(&dir).map_err(sentence)?;
        let below = |path: &PathBuf| path.strip_prefix(MEMORY).expect("in memory").to_owned();
        Ok(json!(paths.iter().map(below).collect::<Vec<_>>()))
    }

    fn self_test(&mut self, progress: &dyn Progress) -> Result<Value, String> {
        let known: Value = serde_json::from_str(TRAJECTORY).expect("a fixture");
        let known: Vec<[f64; 2]> =
            serde_json::from_value(known["return_and_norm"].clone()).expect("a fixture");
        let mut run = Run::new(&self.gpu, config(PRESETS[0].0, &[])?, progress)?;
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

impl Run {
    fn new(gpu: &Gpu, config: Config, progress: &dyn Progress) -> Result<Run, String> {
        let state = State::new(gpu, None, config, RunPurpose::Train, progress).map_err(sentence)?;
        let run = run_directory();
        let lines = |path| Lines {
            path,
            text: String::new(),
        };
        Ok(Run {
            checks: HealthChecks::of(state.learner.game().0.actions()),
            state,
            test: TestResults::default(),
            metrics: lines(directory::metrics(&run)),
            episodes: lines(directory::episodes(&run)),
        })
    }

    /// Writes the first files of the run.
    fn begin(&self, caps: &Caps, preset: &str) -> Result<(), String> {
        let start = Start {
            time: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            step: 0,
            device: caps.name.clone(),
            driver: caps.driver.clone(),
            backend: caps.backend.clone(),
            software: caps.is_software,
            config: preset.to_owned(),
            model: self.state.model_name.clone(),
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
            trainer::add_test(&mut self.test, state, progress).map_err(sentence)?;
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
        for lines in [&self.metrics, &self.episodes] {
            write_file(&lines.path, lines.text.as_bytes()).map_err(sentence)?;
        }
        Ok(())
    }
}

fn look(preset: &str) -> Result<String, String> {
    let dir = Path::new(MEMORY).join("look");
    if !is_file(&directory::config(&dir)) {
        // Its game draws the boards.
        let config = config(preset, &[])?.to_toml();
        write_file(&directory::config(&dir), config.as_bytes()).map_err(sentence)?;
    }
    report::data(&[dir]).map_err(sentence)
}
