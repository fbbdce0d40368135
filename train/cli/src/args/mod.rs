//! What can be typed.

mod playing;
mod request;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lapwing_tensor::{Gpu, GpuError, GpuOptions};
use lapwing_train::record::directory;
use lapwing_train::{Config, Error};

pub use playing::{ApiPlayer, Eval, Play, Probe, Who};
use request::announced;
pub use request::{Changes, Request, adapter, learned, model};
use values::{chance, episodes, jobs, number, rate, share, temperature, tokens, waiting};

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
    /// Say nothing but results and errors
    #[arg(long, short, global = true, display_order = 999)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The adapter asked for, or the best there is.
    pub fn open_gpu(&self) -> Result<Gpu, GpuError> {
        Gpu::open(GpuOptions {
            device: self.adapter_index,
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
    /// Find out whether an agent reads its instructions or plays as it has learned to
    Probe(Probe),
    /// Watch a model play an episode, or play it yourself
    Play(Play),
    /// Tell how likely a model finds each token of a text
    Score(Score),
    /// Let a model go on with a text or a conversation
    Generate(Generate),
    /// Answer the requests of other programs, as OpenAI's API does
    Serve(Serve),
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
    /// Print a config with every value in force, and where each comes from
    Config(Request),
    /// List the games and their options
    Games,
    /// List the GPUs that were found, and say which will be used
    Adapters,
    /// Print what a shell needs to complete commands and options
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the program, or of one of its commands
    Man {
        /// The command
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Train {
    #[command(flatten)]
    pub request: Request,
    /// Keep the run in this directory, which must be new or empty [default: runs/NAME-SEED]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run in this directory, from its latest checkpoint; --steps may be raised
    #[arg(long, value_name = "RUN", conflicts_with_all = ["config", "out", "seed", "model", "adapter", "game"])]
    pub resume: Option<PathBuf>,
    /// Training steps (train.steps)
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// The number that everything random follows from (train.seed)
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Write event files for TensorBoard too (record.tensorboard)
    #[arg(long)]
    pub tensorboard: bool,
    /// Keep every episode in episodes.jsonl, not some of each evaluation (record.all_episodes)
    #[arg(long)]
    pub all_episodes: bool,
    /// Load everything, show a prompt and what would be done, and stop; writes nothing
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
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

/// A model to look at, outside of any game.
#[derive(Debug, Args)]
pub struct Chosen {
    /// Use this model instead of the embedded one: a directory of Hugging Face files, or a repository of the Hugging Face
    /// hub such as Qwen/Qwen2.5-0.5B-Instruct (@REVISION after it chooses a branch, a tag or a commit)
    #[arg(long, value_name = "DIR|OWNER/NAME")]
    pub model: Option<String>,
    /// Add the adapter in this directory (PEFT files), or that of a run
    #[arg(long, value_name = "DIR|RUN")]
    pub adapter: Option<PathBuf>,
}

/// A model to look at.
#[derive(Debug, Args)]
pub struct Subject {
    #[command(flatten)]
    pub chosen: Chosen,
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
    /// Score these token ids: a file with a JSON list of numbers; - is standard input
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
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Draw from the fewest likeliest tokens whose chances add up to this; 1: from all
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = share, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Draw from this many likeliest tokens; 0: from all
    #[arg(long, value_name = "N", value_parser = number, default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: u64,
    /// Stop after this many tokens, if the model has not stopped by then
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = tokens, allow_negative_numbers = true)]
    pub max_new_tokens: usize,
    /// The number that the drawing follows from
    #[arg(long, value_name = "N", value_parser = number, default_value_t = 1, allow_negative_numbers = true)]
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
    /// `messages` and variables for the template, such as {"messages": [...], "enable_thinking": false}; - is standard
    /// input
    #[arg(long, value_name = "FILE.json")]
    pub chat: Option<PathBuf>,
    /// Go on with these token ids: a file with a JSON list of numbers; - is standard input
    #[arg(long, value_name = "FILE.json")]
    pub ids: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "If the environment has LAPWING_API_KEY, requests must bear it. docs/serving.md says what is supported."
)]
pub struct Serve {
    #[command(flatten)]
    pub chosen: Chosen,
    /// Listen on this address; others than this machine's own are for networks that you trust
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Listen on this port; 0: any that is free
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// What requests call the model [default: its directory's name, or its repository's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Longest prompt and reply together, in tokens [default: what the model was made for]
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// Replies that are decoded together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = jobs)]
    pub batch: usize,
    /// Replies that may wait for a place in the batch; who comes after them is sent away
    #[arg(long, value_name = "N", value_parser = waiting, default_value_t = 64, allow_negative_numbers = true)]
    pub queue: usize,
}

#[derive(Debug, Args)]
pub struct Merge {
    /// The directory of a run: its model and its best adapter
    #[arg(value_name = "RUN", required_unless_present = "adapter")]
    pub run: Option<PathBuf>,
    /// The model instead of the embedded one: a directory of Hugging Face files, or a repository of the Hugging Face hub
    #[arg(long, value_name = "DIR|OWNER/NAME", conflicts_with = "run")]
    pub model: Option<String>,
    /// The adapter (PEFT files), or that of a run
    #[arg(long, value_name = "DIR|RUN", conflicts_with = "run")]
    pub adapter: Option<PathBuf>,
    /// Write the merged model to this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct Pretrain {
    /// Write the model, or the adapter, to this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Presets or files whose games are learned, all at once [default: those of the embedded base]; with --from one, whose
    /// `lora` and `policy` are used [default: frozen-lake]
    #[arg(value_name = "PRESET|FILE.toml")]
    pub configs: Vec<String>,
    /// The chance that the player makes a good move; otherwise it makes any
    #[arg(long, value_name = "P", value_parser = chance, conflicts_with = "from", allow_negative_numbers = true)]
    pub skill: Option<f64>,
    #[command(flatten)]
    pub imitation: Imitation,
    /// Optimiser updates
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// The number that everything random follows from
    #[arg(long, value_name = "N", value_parser = number, default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
}

/// Learning from the episodes of others, as an adapter.
#[derive(Debug, Args)]
pub struct Imitation {
    /// Imitate these episodes instead, and write an adapter: a file of `lapwing play --keep`, or the episodes.jsonl of a
    /// run; may be repeated
    #[arg(long, value_name = "EPISODES.jsonl")]
    pub from: Vec<PathBuf>,
    /// The model that learns instead of the embedded one: a directory of Hugging Face files, or a repository of the
    /// Hugging Face hub
    #[arg(long, value_name = "DIR|OWNER/NAME", requires = "from")]
    pub model: Option<String>,
    /// Leave out episodes that returned less
    #[arg(
        long,
        value_name = "X",
        requires = "from",
        allow_negative_numbers = true
    )]
    pub min_return: Option<f64>,
    /// Leave out episodes that were not won
    #[arg(long, requires = "from")]
    pub only_success: bool,
    /// Passes over the episodes [default: 3, unless --steps says how many updates]
    #[arg(long, value_name = "N", requires = "from", conflicts_with = "steps", value_parser = episodes, allow_negative_numbers = true)]
    pub epochs: Option<usize>,
    /// The highest learning rate [default: 0.002 for the embedded model, 0.0002 for an adapter of another,
    /// 0.00002 for all of its weights]
    #[arg(long, value_name = "X", requires = "from", value_parser = rate, allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Change a value of the config, such as lora.rank=16; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "from")]
    pub set: Vec<String>,
}

impl Pretrain {
    /// The config of an imitation, with what was typed.
    pub fn config(&self) -> Result<Config, Error> {
        let request = Request {
            config: self
                .configs
                .first()
                .map_or("frozen-lake", String::as_str)
                .to_owned(),
            changes: Changes {
                set: self.imitation.set.clone(),
                model: self.imitation.model.clone(),
                adapter: None,
                game: None,
            },
        };
        Ok(announced(
            request.resolve(vec![format!("train.seed={}", self.seed)])?,
        ))
    }
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at this model too: a directory of Hugging Face files, or a repository of the Hugging Face hub
    #[arg(long, value_name = "DIR|OWNER/NAME")]
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
            let mut resolved = self.request.resolve(own)?;
            if let Some(run) = &resolved.run {
                let run = run.display();
                let note = format!("makes the run in {run} again, from its config.toml");
                resolved.notes.push(note);
            }
            return Ok(announced(resolved).absolute());
        };
        directory::is_run(run)?;
        let settings = [self.request.changes.set.clone(), own].concat();
        let resolved = Config::resolve(&directory::config(run).to_string_lossy(), &settings)?;
        Ok(announced(resolved))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use lapwing_train::run::config::PRESETS;

    use super::*;

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
