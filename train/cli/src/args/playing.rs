//! What is typed of those who play: `eval`, `probe` and `play`.

use lapwing_play::SettingError;
use std::path::PathBuf;

use clap::Args;
use lapwing_play::config::Game;
use lapwing_train::config::Resolved;
use lapwing_train::{Config, ConfigError, Error};

use super::request::{OF_TRAINING, Request, announced, of_the_base};
use super::values::{episodes, jobs, number, seconds, tries};

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
    pub fn probes(&self, game: &Game) -> Result<Vec<&'static lapwing_env::SemanticProbe>, Error> {
        let (kind, _) =
            lapwing_env::find_variant(&game.name.to_string()).map_err(SettingError::from)?;
        let known = || {
            let known: Vec<&str> = kind.probes.iter().map(|probe| probe.name).collect();
            known.join(", ")
        };
        let found = |name: &String| {
            kind.probe(name).ok_or_else(|| {
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
