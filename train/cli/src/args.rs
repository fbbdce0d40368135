//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lapwing_tensor::{Gpu, GpuError, GpuOptions};
use lapwing_train::base::source::Source;
use lapwing_train::record::directory;
use lapwing_train::run::config::{PRESETS, Policy};
use lapwing_train::{Config, ConfigError, Error};

/// Teaches small language models to play text games, on any GPU or none.
#[derive(Debug, Parser)]
#[command(name = "lapwing", version, max_term_width = 100)]
pub struct Cli {
    /// Use this adapter of those that `lapwing adapters` lists
    #[arg(
        long,
        global = true,
        value_name = "N",
        env = "LAPWING_ADAPTER_INDEX",
        hide_env_values = true
    )]
    pub adapter_index: Option<usize>,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The adapter asked for, or the best there is.
    pub fn open_gpu(&self) -> Result<Gpu, GpuError> {
        Gpu::open(GpuOptions {
            index: self.adapter_index,
            ..GpuOptions::default()
        })
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Teach a model to play a game, and keep what it learned as an adapter
    Train(Train),
    /// Train with several settings and seeds, and compare what came of them
    Sweep(Sweep),
    /// Examine a model on scenes that training never sees
    Eval(Eval),
    /// Watch a model play an episode, or play it yourself
    Play(Play),
    /// Tell how likely a model finds each token of a text
    Score(Score),
    /// Let a model go on with a text or a conversation
    Generate(Generate),
    /// Work an adapter into the weights of its model
    Merge(Merge),
    /// Make a small base model that imitates a noisy player
    Pretrain(Pretrain),
    /// Find out whether this machine can train: GPU, driver, every kernel, gradients, memory, speed
    Doctor(Doctor),
    /// Show a run, or several beside each other, as a page in one HTML file
    Report(Report),
    /// Follow a run in the terminal, from another shell
    Watch(Watch),
    /// Write the metrics of a run for other programs
    Export(Export),
    /// List the games and their options
    Games,
    /// List the GPUs that were found, and say which will be used
    Adapters,
}

/// Which config, and what of it to change.
#[derive(Debug, Args)]
pub struct Request {
    /// A preset (frozen-lake, frozen-lake-slippery, frozen-lake-large, snake, frozen-lake-paper, snake-paper), or a file
    /// that ends in .toml
    #[arg(value_name = "PRESET|FILE.toml", default_value = "frozen-lake")]
    pub config: String,
    #[command(flatten)]
    pub changes: Changes,
}

impl Request {
    /// The config with these changes and the command's own on top.
    pub fn config(&self, own: Vec<String>) -> Result<Config, ConfigError> {
        Config::load(&self.config, &[self.changes.settings(), own].concat())
    }
}

#[derive(Debug, Args)]
pub struct Changes {
    /// Change a value of the config, such as train.lr=0.001; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use this model instead of the embedded one: a directory of Hugging Face files, or a repository of the Hugging Face
    /// hub such as Qwen/Qwen2.5-0.5B-Instruct (@REVISION after it chooses a branch, a tag or a commit)
    #[arg(long, value_name = "DIR|OWNER/NAME")]
    pub model: Option<String>,
    /// Begin with the adapter in this directory (PEFT files), such as runs/frozen-lake-1/adapter
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<String>,
}

impl Changes {
    fn settings(&self) -> Vec<String> {
        // Quoted as TOML, so that a directory called 7 stays a text.
        let place = |key: &str, dir: &str| format!("{key}={}", toml::Value::from(dir));
        // One takes the place of the other, whichever the config has.
        let model = self.model.iter().flat_map(|text| {
            let (dir, repo) = match Source::typed(text) {
                Source::Repository(_) => ("", text.as_str()),
                _ => (text.as_str(), ""),
            };
            [place("model.dir", dir), place("model.repo", repo)]
        });
        let adapter = self.adapter.iter().map(|dir| place("model.adapter", dir));
        self.set
            .iter()
            .cloned()
            .chain(model)
            .chain(adapter)
            .collect()
    }
}

#[derive(Debug, Args)]
pub struct Train {
    #[command(flatten)]
    pub request: Request,
    /// Keep the run in this directory, which must be new or empty [default: runs/NAME-SEED]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run in this directory, from its latest checkpoint; --steps may be raised
    #[arg(long, value_name = "RUN", conflicts_with_all = ["config", "out", "seed", "model", "adapter"])]
    pub resume: Option<PathBuf>,
    /// Training steps (train.steps)
    #[arg(long, value_name = "N", value_parser = number())]
    pub steps: Option<u64>,
    /// The number that everything random follows from (train.seed)
    #[arg(long, value_name = "N", value_parser = number())]
    pub seed: Option<u64>,
    /// Write event files for TensorBoard too (record.tensorboard)
    #[arg(long)]
    pub tensorboard: bool,
    /// Keep every episode in episodes.jsonl, not some of each evaluation (record.all_episodes)
    #[arg(long)]
    pub all_episodes: bool,
}

#[derive(Debug, Args)]
pub struct Sweep {
    /// Which seeds and which settings: docs/sweeps.md says how to write it
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Runs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = jobs)]
    pub jobs: usize,
    /// Keep the runs and the results in this directory; runs that are there already are gone on with [default:
    /// sweeps/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Eval {
    #[command(flatten)]
    pub request: Request,
    /// Episodes to play (eval.episodes)
    #[arg(long, value_name = "N", value_parser = number())]
    pub episodes: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Play {
    /// One of those that `lapwing games` lists, a preset, or the config.toml of a run
    #[arg(value_name = "GAME|PRESET|FILE.toml")]
    pub game: String,
    /// Play it yourself; needs no GPU
    #[arg(long, conflicts_with_all = ["model", "adapter"])]
    pub human: bool,
    #[command(flatten)]
    pub changes: Changes,
    /// The scene and its luck
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Play {
    /// How the game is played: as the file or the preset says; a game without a preset by the general defaults. The embedded
    /// base says one word; any other model replies as the general defaults want it.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let settings = self.changes.settings();
        if self.game.ends_with(".toml") {
            return Config::load(&self.game, &settings);
        }
        let is_preset = PRESETS.iter().any(|preset| preset.name == self.game);
        let is_game = lapwing_env::GAMES.iter().any(|game| game.name == self.game);
        if !is_preset && !is_game {
            return Err(self.unknown());
        }
        let base = if is_preset {
            Config::load(&self.game, &[])?
        } else {
            Config::of(&[])?
        };
        let mut own = Vec::new();
        if !is_preset {
            own.push(format!(
                "game.name={}",
                toml::Value::from(self.game.as_str())
            ));
        }
        // Without a model's name a preset is for the embedded base.
        match (&self.changes.model, base.model.source()?) {
            (Some(_), Source::BuiltIn) => own.extend(policy(&Config::default().policy)),
            (None, Source::BuiltIn) if !is_preset => {
                own.extend(policy(&Config::load("frozen-lake", &[])?.policy));
            }
            _ => (),
        }
        own.extend(settings);
        if is_preset {
            Config::load(&self.game, &own)
        } else {
            Config::of(&own)
        }
    }

    fn unknown(&self) -> ConfigError {
        let presets = PRESETS.iter().map(|preset| preset.name);
        let games = lapwing_env::GAMES.iter().map(|game| game.name);
        let others = games.filter(|game| PRESETS.iter().all(|preset| preset.name != *game));
        let known: Vec<String> = presets.chain(others).map(str::to_owned).collect();
        ConfigError::UnknownPreset {
            name: self.game.clone(),
            suggestion: lapwing_env::suggestion(&self.game, &known),
            known: known.join(", "),
        }
    }
}

/// What must be set for replies of this form.
fn policy(policy: &Policy) -> [String; 3] {
    let reply = toml::Value::try_from(policy.reply).expect("a plain word");
    [
        format!("policy.reply={reply}"),
        format!("policy.max_new_tokens={}", policy.max_new_tokens),
        format!("policy.format_penalty={:?}", policy.format_penalty),
    ]
}

/// A model to look at, outside of any game.
#[derive(Debug, Args)]
pub struct Subject {
    /// Use this model instead of the embedded one: a directory of Hugging Face files, or a repository of the Hugging Face
    /// hub such as Qwen/Qwen2.5-0.5B-Instruct (@REVISION after it chooses a branch, a tag or a commit)
    #[arg(long, value_name = "DIR|OWNER/NAME")]
    pub model: Option<String>,
    /// Add the adapter in this directory (PEFT files), such as runs/frozen-lake-1/adapter
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Score {
    #[command(flatten)]
    pub subject: Subject,
    #[command(flatten)]
    pub input: ScoreInput,
}

/// What is scored.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ScoreInput {
    /// Score this text, with the tokens that the tokenizer puts around it
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Score these token ids: a file with a JSON list of numbers
    #[arg(long, value_name = "FILE.json")]
    pub ids: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Generate {
    #[command(flatten)]
    pub subject: Subject,
    #[command(flatten)]
    pub input: GenerateInput,
    /// Take the likeliest token each time
    #[arg(long, conflicts_with_all = ["temperature", "top_p", "top_k", "seed"])]
    pub greedy: bool,
    /// Divide the logits by this before drawing; 0 is --greedy
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = temperature)]
    pub temperature: f32,
    /// Draw from the fewest likeliest tokens whose chances add up to this; 1: from all
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = share)]
    pub top_p: f32,
    /// Draw from this many likeliest tokens; 0: from all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top_k: usize,
    /// Stop after this many tokens, if the model has not stopped by then
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_new_tokens: u32,
    /// The number that the drawing follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What the model goes on with.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct GenerateInput {
    /// Go on with this text, with the tokens that the tokenizer puts before it
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Reply to a conversation under the model's chat template: a file with a JSON list of messages, or an object with
    /// `messages` and variables for the template, such as {"messages": [...], "enable_thinking": false}
    #[arg(long, value_name = "FILE.json")]
    pub chat: Option<PathBuf>,
    /// Go on with these token ids: a file with a JSON list of numbers
    #[arg(long, value_name = "FILE.json")]
    pub ids: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Merge {
    /// The model instead of the embedded one: a directory of Hugging Face files, or a repository of the Hugging Face hub
    #[arg(long, value_name = "DIR|OWNER/NAME")]
    pub model: Option<String>,
    /// The adapter (PEFT files)
    #[arg(long, value_name = "DIR")]
    pub adapter: PathBuf,
    /// Write the merged model to this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct Pretrain {
    /// Write the model to this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Presets or files whose games are learned, all at once [default: those of the embedded base]
    #[arg(value_name = "PRESET|FILE.toml")]
    pub configs: Vec<String>,
    /// The chance that the player makes a good move; otherwise it makes any
    #[arg(long, value_name = "P", value_parser = chance)]
    pub skill: Option<f64>,
    /// Optimiser updates
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// The number that everything random follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at the model in this directory (Hugging Face files) too
    #[arg(long, value_name = "DIR")]
    pub model: Option<String>,
    /// Print one JSON object, for a bug report
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Report {
    /// Directories of runs, such as runs/frozen-lake-1; seeds of one config are drawn as one curve with a band
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Write the page to this file [default: RUN/report.html, or lapwing-report.html for several runs]
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// The directory of a run, such as runs/frozen-lake-1
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Print one picture and end
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
pub struct Export {
    /// The directory of a run, such as runs/frozen-lake-1
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What to write
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Write to this directory, which must be new or empty [default: RUN/tensorboard or RUN/csv]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ExportFormat {
    /// Event files for TensorBoard, which Weights & Biases and trackio read too
    Tensorboard,
    /// steps.csv and evaluations.csv
    Csv,
}

/// A whole number that TOML can hold.
fn number() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=i64::MAX as u64)
}

fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs) if (1..=256).contains(&jobs) => Ok(jobs),
        _ => Err("wanted a whole number from 1 to 256".to_owned()),
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x == 0.0 || (1e-3..=1e3).contains(&x) => Ok(x),
        _ => Err("wanted 0, or a number from 0.001 to 1000".to_owned()),
    }
}

fn share(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        _ => Err("wanted a number above 0, at most 1".to_owned()),
    }
}

fn chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err("wanted a number from 0 to 1".to_owned()),
    }
}

impl Train {
    /// The config with what was typed.
    pub fn config(&self) -> Result<Config, Error> {
        let number = |key: &str, value: Option<u64>| value.map(|n| format!("{key}={n}"));
        let flag = |key: &str, is: bool| is.then(|| format!("{key}=true"));
        let own = [
            number("train.steps", self.steps),
            number("train.seed", self.seed),
            flag("record.tensorboard", self.tensorboard),
            flag("record.all_episodes", self.all_episodes),
        ];
        let own = own.into_iter().flatten().collect();
        let Some(run) = &self.resume else {
            return Ok(self.request.config(own)?);
        };
        directory::is_run(run)?;
        let settings = [self.request.changes.set.clone(), own].concat();
        Ok(Config::load(
            &directory::config(run).to_string_lossy(),
            &settings,
        )?)
    }
}

impl Eval {
    /// The config with what was typed.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let episodes = self.episodes.map(|n| format!("eval.episodes={n}"));
        self.request.config(episodes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_preset() {
        let help = Cli::command()
            .find_subcommand_mut("train")
            .unwrap()
            .render_help()
            .to_string();
        for preset in PRESETS {
            assert!(help.contains(preset.name), "{}", preset.name);
        }
    }
}
