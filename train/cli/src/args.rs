//! What can be typed.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use lapwing_tensor::{Gpu, GpuError, GpuOptions};
use lapwing_train::base::source::Source;
use lapwing_train::play::Form;
use lapwing_train::record::directory;
use lapwing_train::run::config::{Game, MOST_EPISODES, Origin, Place, Resolved};
use lapwing_train::{Config, ConfigError, Error};

use crate::out;

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

/// Which config, and what of it to change.
#[derive(Debug, Args)]
pub struct Request {
    /// A preset (frozen-lake, frozen-lake-slippery, frozen-lake-large, frozen-lake-curriculum, snake, frozen-lake-paper,
    /// snake-paper), a variant of a game by the preset of that game (snake-poison-apple), a game by the general defaults
    /// (exec:COMMAND and ws://HOST:PORT/ws, too), a file that ends in .toml, or the directory of a run
    #[arg(value_name = "PRESET|FILE.toml|RUN", default_value = "frozen-lake")]
    pub config: String,
    #[command(flatten)]
    pub changes: Changes,
}

impl Request {
    /// The config with these changes and the command's own on top.
    pub fn resolve(&self, own: Vec<String>) -> Result<Resolved, Error> {
        let settings = [self.changes.settings()?, own].concat();
        let mut resolved = Config::resolve(&self.config, &settings)?;
        resolved.notes.extend(for_the_base(&resolved));
        Ok(resolved)
    }

    /// The same for one who plays and does not learn: the adapter of a run is what the run has learned.
    fn resolve_trained(&self, own: Vec<String>) -> Result<Resolved, Error> {
        let mut resolved = self.resolve(own)?;
        let is_named = resolved.origins.get("model.adapter") == Some(&Origin::Setting);
        if let Some(run) = resolved.run.clone().filter(|_| !is_named) {
            let adapter = directory::trained(&run)?;
            resolved
                .notes
                .push(format!("plays with {}", adapter.display()));
            resolved.config.model.adapter = adapter.display().to_string();
        }
        let file = Path::new(&self.config);
        let around = file.parent().filter(|_| file.ends_with("config.toml"));
        if let Some(run) = around.filter(|run| !is_named && directory::trained(run).is_ok()) {
            let run = run.display();
            resolved.notes.push(format!(
                "plays as {run} began, as its config.toml says; the directory {run} itself names what was learned"
            ));
        }
        Ok(resolved)
    }
}

/// What to know of a preset for the built-in base that another model is to play.
fn for_the_base(resolved: &Resolved) -> Option<String> {
    let chosen = |key: &str| matches!(resolved.origins.get(key), Some(Origin::Setting));
    of_the_base(resolved).filter(|_| chosen("model.dir") || chosen("model.repo"))
}

/// What a preset for the built-in base has that suits no other model.
fn of_the_base(resolved: &Resolved) -> Option<String> {
    let Some(Origin::Preset(preset)) = resolved.origins.get("policy.max_new_tokens") else {
        return None;
    };
    (resolved.config.policy.reply == Form::Word).then(|| {
        format!(
            "the preset {preset} is for the built-in model: it has policy.reply = \"word\" and policy.max_new_tokens = {}",
            resolved.config.policy.max_new_tokens
        )
    })
}

/// The adapter that a directory means: its own, or that of the run that it is. What it stands for is said.
pub fn adapter(dir: &Path) -> Result<PathBuf, Error> {
    if Place::of(dir) != Place::Run {
        return Ok(dir.to_owned());
    }
    let adapter = directory::trained(dir)?;
    out::note(&format!("--adapter: takes {}", adapter.display()));
    Ok(adapter)
}

/// A model's directory; what is something else is named as that.
fn model(dir: &str) -> Result<&str, Error> {
    let wrong = |is: &'static str, cure: &str| {
        let (path, cure) = (PathBuf::from(dir), cure.to_owned());
        Err(ConfigError::Place { path, is, cure }.into())
    };
    match Place::of(Path::new(dir)) {
        Place::Run => wrong("is a run, not a model", "name it without --model"),
        Place::Adapter => wrong("is an adapter, not a model", "--adapter takes it"),
        _ => Ok(dir),
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
    /// Begin with the adapter in this directory (PEFT files), or with that of a run
    #[arg(long, value_name = "DIR|RUN")]
    pub adapter: Option<PathBuf>,
    /// Play this game (game.name): one that `lapwing games` lists, or one that lives elsewhere, as exec:COMMAND (a child
    /// process) or ws://HOST:PORT/ws (a server); docs/environments.md
    #[arg(long, value_name = "GAME")]
    pub game: Option<String>,
}

impl Changes {
    fn settings(&self) -> Result<Vec<String>, Error> {
        // Quoted as TOML, so that a directory called 7 stays a text.
        let place = |key: &str, text: &str| format!("{key}={}", toml::Value::from(text));
        let mut settings = self.set.clone();
        settings.extend(self.game.iter().map(|game| place("game.name", game)));
        if let Some(text) = &self.model {
            // One takes the place of the other, whichever the config has.
            let (dir, repo) = match Source::typed(text) {
                Source::Repository(_) => ("", text.as_str()),
                _ => (model(text)?, ""),
            };
            settings.extend([place("model.dir", dir), place("model.repo", repo)]);
        }
        if let Some(dir) = &self.adapter {
            settings.push(place("model.adapter", &adapter(dir)?.to_string_lossy()));
        }
        Ok(settings)
    }

    /// The keys of --set, of which those are told that such a command has no use for.
    fn idle(&self, sections: &[&str], what: &str) -> Vec<String> {
        let keys = self
            .set
            .iter()
            .filter_map(|setting| setting.split('=').next());
        let is_idle = |key: &&str| sections.iter().any(|section| key.starts_with(section));
        keys.map(str::trim)
            .filter(is_idle)
            .map(|key| format!("{key} (--set) has no effect on {what}"))
            .collect()
    }
}

/// What an evaluation has no use for.
const OF_TRAINING: [&str; 5] = [
    "train.",
    "lora.",
    "checkpoint.",
    "record.",
    "policy.temperature",
];

/// Tells the notes, and hands out the config.
fn announced(resolved: Resolved) -> Config {
    for note in &resolved.notes {
        out::note(note);
    }
    resolved.config
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

#[derive(Debug, Args)]
pub struct Eval {
    #[command(flatten)]
    pub request: Request,
    /// Episodes to play (eval.episodes)
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub episodes: Option<u64>,
    /// Play these instead of the config's own game, to see what carries over: presets, games, variants and config files,
    /// with commas between them
    #[arg(long, value_name = "GAME", value_delimiter = ',')]
    pub games: Vec<String>,
    /// Hold it against this one too, on the same scenes: the adapter in a directory, or that of a run; may be repeated. The
    /// model without adapter plays in any case
    #[arg(long, value_name = "DIR|RUN", conflicts_with = "player")]
    pub against: Vec<PathBuf>,
    /// Let somebody else play every second side of a game of several agents: base (the model without adapter), scripted,
    /// random, the adapter in a directory, or that of a run [default: each plays all sides itself]
    #[arg(long, value_name = "WHO", conflicts_with = "player")]
    pub opponent: Option<String>,
    #[command(flatten)]
    pub player: ApiPlayer,
    /// Let each play a second time, taking the likeliest token each time
    #[arg(long)]
    pub greedy: bool,
    /// Add the game's own player thinking ahead: it tries each action of each turn so many times before it moves
    #[arg(long, value_name = "N", value_parser = tries, allow_negative_numbers = true)]
    pub search: Option<usize>,
    /// Write the result of every scene to this new file, a JSON object a line
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the table for a page
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
pub struct Probe {
    #[command(flatten)]
    pub request: Request,
    /// Which of the game's probes, with commas between them [default: all; `lapwing games` lists them]
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub probes: Vec<String>,
    /// Episodes to play of each (eval.episodes)
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub episodes: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the table for a page
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
pub struct Play {
    #[command(flatten)]
    pub request: Request,
    /// Play it yourself; needs no GPU
    #[arg(long, conflicts_with_all = ["model", "adapter", "episodes", "json", "player", "keep"])]
    pub human: bool,
    #[command(flatten)]
    pub player: ApiPlayer,
    /// Let somebody else play every second side of a game of several agents: base (the model without adapter), scripted,
    /// random, the adapter in a directory, or that of a run [default: the model plays all sides]
    #[arg(long, value_name = "WHO", conflicts_with_all = ["player", "human"])]
    pub opponent: Option<String>,
    /// Episodes to play, on this seed and those after it
    #[arg(long, value_name = "N", value_parser = episodes, default_value_t = 1, allow_negative_numbers = true)]
    pub episodes: usize,
    /// Print one JSON object for each agent of each episode
    #[arg(long)]
    pub json: bool,
    /// Keep the episodes in this new file, for `lapwing pretrain --from`; seeds whose scenes are held out for evaluations
    /// are passed over
    #[arg(long, value_name = "FILE.jsonl")]
    pub keep: Option<PathBuf>,
    /// The scene and its luck
    #[arg(long, value_name = "N", value_parser = number, default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
}

impl Play {
    /// The config with what was typed.
    pub fn config(&self) -> Result<Config, Error> {
        let mut resolved = match self.human || self.player.player.is_some() {
            true => self.request.resolve(Vec::new())?,
            false => self.request.resolve_trained(Vec::new())?,
        };
        let of_evaluation = ["eval.episodes", "eval.every", "eval.seed"];
        let (idle, what): (Vec<&str>, _) = match (self.human, &self.player.player) {
            (true, _) => (["eval.", "policy."].into(), "a game by hand"),
            (false, None) => (of_evaluation.into(), "play"),
            (false, Some(_)) => ([&of_evaluation[..], &["model."]].concat(), "another player"),
        };
        resolved.notes.extend(self.player.note(&resolved));
        let idle = [&OF_TRAINING[..], &idle].concat();
        resolved
            .notes
            .extend(self.request.changes.idle(&idle, what));
        Ok(announced(resolved))
    }
}

/// Who plays in place of a model of ours.
#[derive(Debug, Args)]
pub struct ApiPlayer {
    /// Let somebody else play; needs no GPU: openai:URL (a model behind an API such as http://127.0.0.1:8000/v1, its key in
    /// OPENAI_API_KEY), scripted (the game's own player) or random
    #[arg(long, value_name = "WHO", value_parser = who, conflicts_with_all = ["model", "adapter"])]
    pub player: Option<Who>,
    /// What the API calls the model
    #[arg(long, value_name = "NAME", requires = "player")]
    pub player_model: Option<String>,
    /// Requests to the API at a time
    #[arg(long, value_name = "N", requires = "player", default_value_t = 8, value_parser = jobs)]
    pub player_concurrency: usize,
    /// Stop when so many tokens of the API were used, prompts and replies together
    #[arg(long, value_name = "TOKENS", requires = "player", value_parser = number, allow_negative_numbers = true)]
    pub player_budget: Option<u64>,
    /// Keep the API's answers in this directory [default: lapwing/api in the user's cache]
    #[arg(long, value_name = "DIR", requires = "player")]
    pub player_cache: Option<PathBuf>,
    /// Give up on a request to the API after so many seconds, and try again
    #[arg(long, value_name = "SECONDS", requires = "player", default_value_t = 120, value_parser = seconds)]
    pub player_timeout: u64,
}

/// Somebody who plays in place of a model of ours.
#[derive(Debug, Clone)]
pub enum Who {
    /// A model behind an API at this address.
    OpenAi(String),
    /// The game's own player.
    Scripted,
    /// Any action.
    Random,
}

fn who(text: &str) -> Result<Who, String> {
    match (text, text.strip_prefix("openai:")) {
        ("scripted", _) => Ok(Who::Scripted),
        ("random", _) => Ok(Who::Random),
        (_, Some(url)) if !url.is_empty() => Ok(Who::OpenAi(url.to_owned())),
        _ => Err("wanted openai:URL, scripted or random".to_owned()),
    }
}

impl ApiPlayer {
    /// What the player is called in tables.
    pub fn name(&self) -> String {
        match (&self.player, &self.player_model) {
            (Some(Who::Scripted), _) => "scripted player, asked".to_owned(),
            (Some(Who::Random), _) => "random player, asked".to_owned(),
            (_, Some(model)) => model.clone(),
            _ => "API".to_owned(),
        }
    }

    /// What to know of a preset for the built-in base that a model behind an API is to play.
    pub fn note(&self, resolved: &Resolved) -> Option<String> {
        match self.player {
            Some(Who::OpenAi(_)) => of_the_base(resolved),
            _ => None,
        }
    }
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
    /// [lora] and [policy] are used [default: frozen-lake]
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
    /// The highest learning rate [default: 0.002 for the embedded model, 0.0002 for another]
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

/// A whole number that TOML can hold.
fn number(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number <= i64::MAX as u64 => Ok(number),
        _ => Err(format!("wanted a whole number from 0 to {}", i64::MAX)),
    }
}

/// So many episodes as an evaluation may have.
fn episodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MOST_EPISODES).contains(&number) => Ok(number),
        _ => Err(format!("wanted a whole number from 1 to {MOST_EPISODES}")),
    }
}

/// So many tokens as a reply may have.
fn tokens(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number as usize),
        _ => Err(format!("wanted a whole number from 1 to {}", u32::MAX)),
    }
}

fn tries(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(tries) if (1..=10_000).contains(&tries) => Ok(tries),
        _ => Err("wanted a whole number from 1 to 10000".to_owned()),
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if (1..=86_400).contains(&seconds) => Ok(seconds),
        _ => Err("wanted a whole number from 1 to 86400".to_owned()),
    }
}

fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs) if (1..=256).contains(&jobs) => Ok(jobs),
        _ => Err("wanted a whole number from 1 to 256".to_owned()),
    }
}

fn waiting(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(waiting) if waiting <= 100_000 => Ok(waiting),
        _ => Err("wanted a whole number from 0 to 100000".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= 1.0 => Ok(rate),
        _ => Err("wanted a number above 0, at most 1".to_owned()),
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

impl Eval {
    /// The config with what was typed.
    pub fn config(&self) -> Result<Config, Error> {
        examined(&self.request, self.episodes, Some(&self.player))
    }

    /// What is played, in an evaluation of this config.
    pub fn games(&self, config: &Config) -> Result<Vec<Game>, Error> {
        if self.games.is_empty() {
            return Ok(vec![config.game.clone()]);
        }
        let game = |name: &String| Ok(Config::load(name, &[])?.game);
        self.games.iter().map(game).collect()
    }
}

impl Probe {
    /// The config with what was typed.
    pub fn config(&self) -> Result<Config, Error> {
        examined(&self.request, self.episodes, None)
    }

    /// The probes that are played of this game.
    pub fn probes(&self, game: &Game) -> Result<Vec<&'static lapwing_env::Probe>, Error> {
        let (kind, _) = lapwing_env::find_variant(&game.name)?;
        let known = || {
            let known: Vec<&str> = kind.probes.iter().map(|probe| probe.name).collect();
            known.join(", ")
        };
        let found = |name: &String| {
            kind.probe(name).map(|(probe, _)| probe).ok_or_else(|| {
                let (key, found) = ("--probes".to_owned(), format!("{name:?}"));
                let wanted = format!("probes of {}: {}", kind.name, known());
                Error::from(ConfigError::Range { key, found, wanted })
            })
        };
        match self.probes.is_empty() {
            true => Ok(kind.probes.iter().collect()),
            false => self.probes.iter().map(found).collect(),
        }
    }
}

/// The config of those who play held-out scenes.
fn examined(
    request: &Request,
    episodes: Option<u64>,
    player: Option<&ApiPlayer>,
) -> Result<Config, Error> {
    let episodes = episodes.map(|n| format!("eval.episodes={n}"));
    let own = episodes.into_iter().collect();
    let another = player.filter(|player| player.player.is_some());
    let mut resolved = match another {
        Some(_) => request.resolve(own)?,
        None => request.resolve_trained(own)?,
    };
    let note = another.and_then(|player| player.note(&resolved));
    resolved.notes.extend(note);
    let idle = [&OF_TRAINING[..], &["eval.every", "mix"]].concat();
    let idle = request.changes.idle(&idle, "an evaluation");
    resolved.notes.extend(idle);
    Ok(announced(resolved))
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
