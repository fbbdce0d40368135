//! The command line.

mod changes;
mod part;
mod players;
mod tips;
mod values;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand};
use lapwing_tensor::{Gpu, GpuError, GpuOptions};
use lapwing_train::config::{MOST_EPISODES, Quantise};
use lapwing_train::record::directory;
use lapwing_train::{Config, Error};

use changes::announced;
pub use changes::{ConfigArgs, adapter, learned, model, model_setting};
pub use part::Part;
pub use players::{EvalArgs, OtherPlayer, PlayArgs, PlayerArgs, ProbeArgs};
pub use tips::{printable, with_setting};
use values::{SHARE, TOKENS, WHOLE, number, whole};

/// Train small language models to play text games, on any GPU or none
#[derive(Debug, Parser)]
#[command(
    name = "lapwing",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    mut_subcommands = with_examples,
    after_help = "`lapwing help COMMAND` prints the options of a command and examples, `lapwing help TOPIC` a page of the \
        documentation: browser, clusters, commands, configuration, credit, devices, environments, errors, evaluation, health-checks, \
        libraries, models, own-game, performance, players, presets, prompts, records, serving, sweeps, training, value-learners, frozen-lake, \
        snake, sokoban, rooms, 2048"
)]
pub struct Cli {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Print only results and errors
    #[arg(long, short, global = true, display_order = 999)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Copy, Args)]
pub struct DeviceArgs {
    /// Use this device: a number of `lapwing devices`. If omitted, the best one
    #[arg(
        long = "device",
        alias = "adapter-index",
        global = true,
        value_name = "N",
        value_parser = |text: &str| text.parse::<usize>()
            .or(Err("wanted a number of `lapwing devices`, such as 0")),
        env = "LAPWING_DEVICE",
        hide_env_values = true
    )]
    pub index: Option<usize>,
}

impl DeviceArgs {
    /// Opens the selected device, or the best one if none is selected.
    pub fn open(self) -> Result<Gpu, GpuError> {
        Gpu::open(GpuOptions {
            device: self.index,
            ..GpuOptions::default()
        })
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model on a game and save the adapter
    Train(TrainArgs),
    /// Train with several settings and seeds and compare the results
    Sweep(SweepArgs),
    /// Evaluate a model on held-out scenes
    Eval(EvalArgs),
    /// Measure whether an agent follows changed instructions
    Probe(ProbeArgs),
    /// Watch a model play, or play yourself
    Play(PlayArgs),
    /// Print the log-probability of each token
    Score(ScoreArgs),
    /// Continue a text or a conversation
    Generate(GenerateArgs),
    /// Start an OpenAI-compatible HTTP server
    Serve(ServeArgs),
    /// Merge an adapter into its model, or convert a model to GGUF
    Merge(MergeArgs),
    /// Make a small base model, or an adapter that imitates recorded episodes
    Pretrain(PretrainArgs),
    /// Check whether this machine can train: device, driver, kernels, gradients, memory, speed
    Doctor(DoctorArgs),
    /// Measure the speed of this device: kernels, decoding, updates, each beside its ceiling
    Bench(BenchArgs),
    /// Write an HTML report of runs or sweeps
    Report(ReportArgs),
    /// Follow a run or a sweep in the terminal, from another shell
    Watch(WatchArgs),
    /// Export the metrics of a run as CSV or TensorBoard files, or its adapter for llama.cpp
    Export(ExportArgs),
    /// List runs with their game, model, steps and best evaluation
    Runs(RunsArgs),
    /// Print the config values in effect and their origins, or explain a key
    Config {
        #[command(flatten)]
        config: ConfigArgs,
        /// Explain a key such as train.lr, or all keys of a section: meaning, values, default. game.options has the
        /// options of the config's game
        #[arg(long, value_name = "KEY|SECTION")]
        explain: Option<String>,
        /// Print JSON: an object with `config` and `origins`, or a list of the explained keys
        #[arg(long)]
        json: bool,
    },
    /// List the games and their options
    Games {
        /// Describe only this game or variant
        #[arg(value_name = "GAME")]
        name: Option<String>,
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// List the devices and mark the default one
    #[command(alias = "adapters")]
    Devices {
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Print a Python program that connects Gymnasium and TextArena environments
    Shim,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of lapwing or of a command
    Man {
        /// The command
        command: Option<String>,
    },
    /// Print the help of a command, or a page of the documentation
    Help {
        /// A command or a page, such as configuration
        topic: Option<String>,
    },
}

/// Adds the examples in `docs/commands.md` to the help of a command.
fn with_examples(command: clap::Command) -> clap::Command {
    let name = format!("lapwing {} ", command.get_name());
    let lines = include_str!("../../../../docs/commands.md").lines();
    let examples = lines.filter(|line| line.starts_with(&name) && !line.ends_with('\\'));
    let example = |line: &str| {
        let (command, effect) = line.split_once(" # ").unwrap_or((line, ""));
        format!("\n  {}\n      {effect}", command.trim_end())
    };
    let examples: String = examples.map(example).collect();
    let more = command.get_after_help().cloned().unwrap_or_default();
    command.after_help(format!("Examples:{examples}\n\n{more}"))
}

#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Write the run to this directory, which must be new or empty [default: runs/NAME-1, or the
    /// next free number]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in this directory from its latest checkpoint. --steps may be raised
    #[arg(long, value_name = "RUN", conflicts_with_all = ["config", "out", "seed", "model", "tokenizer", "adapter", "quantise", "game", "warmup"])]
    pub resume: Option<PathBuf>,
    /// Number of training steps (train.steps)
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Seed of all randomness in the run (train.seed)
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Before the first step, let the model imitate 24 episodes of the random player in N updates (warmup.updates), so that
    /// its replies can be read. N is 12 if omitted
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), num_args = 0..=1, require_equals = true, default_missing_value = "12")]
    pub warmup: Option<u64>,
    /// Also write TensorBoard event files (record.tensorboard)
    #[arg(long)]
    pub tensorboard: bool,
    /// Record every episode in episodes.jsonl instead of a few of each evaluation (record.all_episodes)
    #[arg(long)]
    pub all_episodes: bool,
    /// Load everything, print a prompt, some replies and the plan, and exit without writing files
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The sweep file: seeds and settings (format: `lapwing help sweeps`)
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Number of runs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=256_usize))]
    pub jobs: usize,
    /// Run only part K of N, also while other machines with the same directory run the others [default: from the variables of
    /// a SLURM job array, or else all runs]
    #[arg(long, value_name = "K/N")]
    pub part: Option<Part>,
    /// Print and write the results so far, also while runs are in progress, and run nothing
    #[arg(long, conflicts_with_all = ["jobs", "part"])]
    pub results: bool,
    /// Check all configs, list the runs, and exit without writing files
    #[arg(long, conflicts_with_all = ["jobs", "results"])]
    pub dry_run: bool,
    /// Write runs and results to this directory. Existing runs are resumed [default: sweeps/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A model outside of any game.
#[derive(Debug, Default, Args)]
pub struct ModelArgs {
    /// Use the trained model of this run directory: its best adapter, or its best model if all weights were trained
    #[arg(value_name = "RUN")]
    pub run: Option<PathBuf>,
    /// Use this model instead of the built-in one: a directory of Hugging Face files, a GGUF file, or a Hugging Face
    /// repository such as Qwen/Qwen2.5-0.5B-Instruct. @REVISION selects a branch, tag or commit, and :Q4_K_M a GGUF file
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Use the tokenizer and the chat template of this directory instead of the model's (model.tokenizer)
    #[arg(long, value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,
    /// Add this adapter: a directory of PEFT files, or a run
    #[arg(long, value_name = "DIR|RUN")]
    pub adapter: Option<PathBuf>,
    /// Round the weights to 8 or 4 bits when they are loaded (model.quantise)
    #[arg(long, value_name = "q8|q4", alias = "quantize", value_parser = changes::quantise)]
    pub quantise: Option<Quantise>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").required(true)))]
pub struct ScoreArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Score this text. The tokenizer adds its usual special tokens
    #[arg(long, value_name = "TEXT", group = "input")]
    pub text: Option<String>,
    /// Score these token ids: a file with a JSON list of numbers. - reads standard input
    #[arg(long, value_name = "FILE.json", group = "input")]
    pub ids: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").required(true)))]
pub struct GenerateArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Continue this text. The tokenizer adds its usual special tokens
    #[arg(long, value_name = "TEXT", group = "input")]
    pub prompt: Option<String>,
    /// Reply to a conversation, formatted by the model's chat template: a file with a JSON list of messages, or an object
    /// with `messages` and template variables, such as {"messages": [...], "enable_thinking": false}. - reads standard
    /// input
    #[arg(long, value_name = "FILE.json", group = "input")]
    pub chat: Option<PathBuf>,
    /// Continue these token ids: a file with a JSON list of numbers. - reads standard input
    #[arg(long, value_name = "FILE.json", group = "input")]
    pub ids: Option<PathBuf>,
    /// Take the most likely token each time
    #[arg(long, conflicts_with_all = ["temperature", "top_p", "top_k", "seed"])]
    pub greedy: bool,
    /// Sampling temperature. 0 is the same as --greedy
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true,
        value_parser = number(|x: f32| x == 0.0 || (1e-3..=1e3).contains(&x), "0, or a number from 0.001 to 1000"))]
    pub temperature: f32,
    /// Sample from the most likely tokens whose probabilities sum to this. 1 means all tokens
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true,
        value_parser = number(|x: f32| x > 0.0 && x <= 1.0, SHARE))]
    pub top_p: f32,
    /// Sample from this many most likely tokens. 0 means all tokens
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: u64,
    /// Maximum number of new tokens
    #[arg(long, value_name = "N", value_parser = whole(TOKENS), default_value_t = 256, allow_negative_numbers = true)]
    pub max_new_tokens: usize,
    /// Seed of the sampling
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(
    after_help = "If LAPWING_API_KEY is set, clients must send it as their API key. `lapwing help serving` describes the API."
)]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Address to listen on. Use an address other than a local one only in networks that you trust
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Accept requests that use this name for this machine, as a proxy may. May be repeated [always: localhost, --host and
    /// IP addresses]
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Port to listen on. 0 selects a free port
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Model name in requests [default: the name of the directory of the run or model, or of the repository]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Maximum length of prompt and reply together, in tokens [default: the model's maximum]
    #[arg(long, value_name = "N", value_parser = whole(TOKENS), allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// Maximum number of replies that are decoded together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole(1..=256_usize))]
    pub batch: usize,
    /// Maximum number of replies that wait for a place in the batch. Further requests are refused with status 429
    #[arg(long, value_name = "N", value_parser = whole(0..=100_000_usize), default_value_t = 64, allow_negative_numbers = true)]
    pub queue: usize,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Write the merged model to this directory, which must be new or empty, or to this new file
    #[arg(long, value_name = "DIR|FILE.gguf")]
    pub out: PathBuf,
    /// Output format: a Hugging Face directory, or a GGUF file for llama.cpp
    #[arg(
        long,
        value_name = "hf|gguf",
        default_value = "hf",
        hide_possible_values = true
    )]
    pub format: MergeFormat,
    /// Type of the matrices in a GGUF file [default: f16]
    #[arg(long = "type", value_name = "f16|q8_0", hide_possible_values = true)]
    pub kind: Option<MatrixType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MergeFormat {
    Hf,
    Gguf,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum MatrixType {
    F16,
    #[value(name = "q8_0")]
    Q8,
}

#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// Write the model or adapter to this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Presets or config files of the games to learn [default: the games of the built-in model]. With --from: one config,
    /// of which `lora` and `policy` are used [default: frozen-lake]
    #[arg(value_name = "PRESET|FILE.toml")]
    pub configs: Vec<String>,
    /// Width of the new model [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "from", allow_negative_numbers = true,
        value_parser = number(|width: usize| (16..=1024).contains(&width) && width % 16 == 0, "a multiple of 16 from 16 to 1024"))]
    pub width: Option<usize>,
    /// Train an adapter on the episodes of this file: one that `lapwing play --keep` wrote, or the episodes.jsonl of a run.
    /// May be repeated
    #[arg(long, value_name = "EPISODES.jsonl")]
    pub from: Vec<PathBuf>,
    /// Train this model instead of the built-in one: a directory of Hugging Face files, a GGUF file, or a Hugging Face repository
    #[arg(long, value_name = "MODEL", requires = "from")]
    pub model: Option<String>,
    /// Skip episodes with a lower return
    #[arg(
        long,
        value_name = "X",
        requires = "from",
        allow_negative_numbers = true
    )]
    pub min_return: Option<f64>,
    /// Skip episodes without success
    #[arg(long, requires = "from")]
    pub only_success: bool,
    /// Number of passes over the episodes [default: 3, unless --steps is given]
    #[arg(long, value_name = "N", requires = "from", conflicts_with = "steps", allow_negative_numbers = true,
        value_parser = whole(1..=MOST_EPISODES))]
    pub epochs: Option<usize>,
    /// Peak learning rate [default: 0.002 for the built-in model, 0.0002 for an adapter of another model, 0.00002 for all
    /// weights of another model]
    #[arg(long, value_name = "X", requires = "from", allow_negative_numbers = true,
        value_parser = number(|rate: f64| rate > 0.0 && rate <= 1.0, SHARE))]
    pub lr: Option<f64>,
    /// Change a config value, such as lora.rank=16. May be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "from")]
    pub set: Vec<String>,
    /// Number of optimiser updates
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Seed of all randomness
    #[arg(long, value_name = "N", value_parser = whole(WHOLE), default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
}

impl PretrainArgs {
    /// Returns the config of `--from`.
    pub fn config(&self) -> Result<Config, Error> {
        let config = self.configs.first();
        let request = ConfigArgs {
            config: config.map_or("frozen-lake", String::as_str).to_owned(),
            set: self.set.clone(),
            model: self.model.clone(),
            ..ConfigArgs::default()
        };
        let seed = vec![format!("--seed train.seed={}", self.seed)];
        let mut resolved = request.resolve_with_model(seed)?;
        for (key, option) in [("train.lr", "--lr"), ("train.steps", "--steps")] {
            let command = format!("pretrain: use {option}");
            resolved.notes.extend(request.unused(&[key], &command));
        }
        let unused = request.unused(&["warmup."], "pretrain");
        resolved.notes.extend(unused);
        Ok(announced(resolved))
    }
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check this model, too: a directory of Hugging Face files, a GGUF file, or a Hugging Face repository
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Print one JSON object, for a bug report
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Measure only what has this in its name, such as product or attention/3B
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Measure the shapes and phases of this model, and forecast its speed: a directory of Hugging Face files, a GGUF
    /// file, or a Hugging Face repository
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Forecast a training step of this preset or config file
    #[arg(
        long,
        value_name = "PRESET|FILE.toml",
        requires = "model",
        default_value = "frozen-lake-paper"
    )]
    pub preset: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Compare with an earlier result of --json, and mark differences beyond the spread of both
    #[arg(long, value_name = "OLD.json", conflicts_with = "json")]
    pub compare: Option<PathBuf>,
    /// Check the device first, as lapwing doctor does, and write all results to this new file, to attach to an
    /// issue
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories of runs or sweeps, such as runs/frozen-lake-1, or of several, such as runs. Runs that differ only in their
    /// seed share one curve with a band
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Write the report to this file [default: RUN/report.html, or lapwing-report.html for several arguments]
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Directory of a run or a sweep, such as runs/frozen-lake-1. Of a directory of runs, such as runs, the run in progress
    /// that was started last
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Print the current state and exit
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
pub struct RunsArgs {
    /// List the runs in this directory, which may be that of a sweep
    #[arg(value_name = "DIR", default_value = "runs")]
    pub place: PathBuf,
    /// Print a JSON list of objects
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Run directory, such as runs/frozen-lake-1
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Output format
    #[arg(long, value_name = "tensorboard|csv|gguf")]
    pub format: ExportFormat,
    /// Write to this directory, which must be new or empty [default: RUN/tensorboard, RUN/csv or RUN/gguf]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ExportFormat {
    /// Event files for TensorBoard. Weights & Biases and trackio read them, too
    Tensorboard,
    /// steps.csv and evaluations.csv
    Csv,
    /// adapter.gguf, the best adapter for llama.cpp's --lora
    Gguf,
}

impl TrainArgs {
    /// Returns the config of the run, with all options applied.
    pub fn config(&self) -> Result<Config, Error> {
        let number = |key: &str, value: Option<u64>| value.map(|n| format!("{key}={n}"));
        let flag = |key: &str, is: bool| is.then(|| format!("{key}=true"));
        let own = [
            number("--steps train.steps", self.steps),
            number("--seed train.seed", self.seed),
            number("--warmup warmup.updates", self.warmup),
            flag("--tensorboard record.tensorboard", self.tensorboard),
            flag("--all-episodes record.all_episodes", self.all_episodes),
        ];
        let own = own.into_iter().flatten().collect();
        let Some(run) = &self.resume else {
            let mut resolved = self.config.resolve_with_model(own)?;
            let run = resolved.run.as_deref().map(Path::display);
            let note = run.map(|run| format!("repeats the run in {run}, from its config.toml"));
            resolved.notes.extend(note);
            return Ok(announced(resolved).absolute());
        };
        directory::is_run(run)?;
        let settings = [self.config.set.clone(), own].concat();
        let resolved = Config::resolve(&directory::config(run).to_string_lossy(), &settings)?;
        Ok(announced(resolved))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use lapwing_train::config::PRESETS;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help() {
        let names = Cli::command();
        let names = names.get_subcommands().map(|c| c.get_name().to_owned());
        for name in names.chain(["lapwing".to_owned()]) {
            let mut arguments = vec!["lapwing", &*name, "--help"];
            if name == "lapwing" {
                arguments.remove(1);
            }
            let help = Cli::command().term_width(100);
            let help = help.try_get_matches_from(arguments).unwrap_err();
            insta::assert_snapshot!(format!("help_{name}"), help.to_string());
        }
    }

    #[test]
    fn old_spellings_are_understood() {
        let cli = Cli::parse_from(["lapwing", "adapters", "--adapter-index", "3"]);
        assert!(matches!(cli.command, Command::Devices { .. }));
        assert_eq!(cli.device.index, Some(3));
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
