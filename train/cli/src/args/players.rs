//! Options of `eval`, `probe` and `play`.

use std::path::PathBuf;

use clap::Args;
use lapwing_play::SettingError;
use lapwing_play::config::GameConfig;
use lapwing_train::config::{MOST_EPISODES, Resolved};
use lapwing_train::state::check_language;
use lapwing_train::{Config, ConfigError, Error};

use super::changes::{ConfigArgs, TRAINING_ONLY, announced};
use super::values::{WHOLE, whole};

#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Number of episodes (eval.episodes)
    #[arg(long, value_name = "N", value_parser = whole(1..=MOST_EPISODES), allow_negative_numbers = true)]
    pub episodes: Option<usize>,
    /// Play these games instead of the config's own: presets, games, variants and config files, separated by commas
    #[arg(long, value_name = "GAME", value_delimiter = ',')]
    pub games: Vec<String>,
    /// Compare with this adapter or model on the same scenes. May be repeated. The model without adapter is always
    /// compared
    #[arg(long, value_name = "DIR|RUN", conflicts_with = "player")]
    pub against: Vec<PathBuf>,
    /// Player of every second side in a game of several agents: base (the model without adapter), scripted, random, an
    /// adapter or a run. If omitted, each player plays all sides
    #[arg(long, value_name = "PLAYER", conflicts_with = "player")]
    pub opponent: Option<String>,
    #[command(flatten)]
    pub player: PlayerArgs,
    /// Also evaluate each player with greedy decoding
    #[arg(long)]
    pub greedy: bool,
    /// Also evaluate a search player: it simulates every action of each turn about N times, and plays the scripted player's
    /// action unless another is clearly better
    #[arg(long, value_name = "N", value_parser = whole(1..=10_000_usize), allow_negative_numbers = true)]
    pub search: Option<usize>,
    /// Write the result of every scene to this new file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the table as Markdown
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Probes of the game, separated by commas. If omitted, all probes that `lapwing games` lists
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub probes: Vec<String>,
    /// Number of episodes of each probe (eval.episodes)
    #[arg(long, value_name = "N", value_parser = whole(1..=MOST_EPISODES), allow_negative_numbers = true)]
    pub episodes: Option<usize>,
    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the table as Markdown
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
pub struct PlayArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Play yourself. Needs no GPU
    #[arg(long, conflicts_with_all = ["model", "tokenizer", "adapter", "quantise", "episodes", "json", "player", "keep"])]
    pub human: bool,
    #[command(flatten)]
    pub player: PlayerArgs,
    /// Player of every second side in a game of several agents: base (the model without adapter), scripted, random, an
    /// adapter or a run. If omitted, the model plays all sides
    #[arg(long, value_name = "PLAYER", conflicts_with_all = ["player", "human"])]
    pub opponent: Option<String>,
    /// Take the most likely token each time (eval.temperature = 0)
    #[arg(long, conflicts_with_all = ["human", "player"])]
    pub greedy: bool,
    /// Number of episodes, on this seed and the following ones
    #[arg(long, value_name = "N", value_parser = whole(1..=MOST_EPISODES), default_value_t = 1, allow_negative_numbers = true)]
    pub episodes: usize,
    /// Print one JSON object for each agent of each episode
    #[arg(long)]
    pub json: bool,
    /// Write the episodes to this new file, for `lapwing pretrain --from`. Held-out scenes are skipped
    #[arg(long, value_name = "FILE.jsonl")]
    pub keep: Option<PathBuf>,
    /// Seed of the scene and its luck, such as `scene` in episodes.jsonl
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX), default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
}

impl PlayArgs {
    pub fn config(&self) -> Result<Config, Error> {
        let player = self.player.player.as_ref();
        let own = self.greedy.then(|| "--greedy eval.temperature=0".into());
        let own = own.into_iter().collect();
        let resolved = match self.human || player.is_some() {
            true => self.config.resolve(own)?,
            false => self.config.resolve_trained(own)?,
        };
        let evaluation: &[&str] = &["eval.episodes", "eval.every", "eval.seed"];
        let (unused, command) = match (self.human, player) {
            (true, _) => (&["eval.", "policy.", "model."][..], "a game played by hand"),
            (false, None) => (evaluation, "play"),
            (false, Some(_)) => (evaluation, "another player"),
        };
        let play = to_play(resolved, &self.config, player, unused, command);
        Ok(announced(play))
    }
}

#[derive(Debug, Args)]
pub struct PlayerArgs {
    /// Let another player play. Needs no GPU. openai:URL is a model behind an API such as http://127.0.0.1:8000/v1, with
    /// its key in OPENAI_API_KEY; scripted is the game's own player; random takes random actions
    #[arg(long, value_name = "PLAYER", value_parser = other_player, conflicts_with_all = ["model", "tokenizer", "adapter", "quantise"])]
    pub player: Option<OtherPlayer>,
    /// Name of the model in requests to the API
    #[arg(long, value_name = "NAME", requires = "player")]
    pub player_model: Option<String>,
    /// Number of requests to the API at a time
    #[arg(long, value_name = "N", requires = "player", default_value_t = 8, value_parser = whole(1..=256_usize))]
    pub player_concurrency: usize,
    /// Maximum number of API tokens to use, prompts and replies together
    #[arg(long, value_name = "TOKENS", requires = "player", value_parser = whole(WHOLE), allow_negative_numbers = true)]
    pub player_budget: Option<u64>,
    /// Cache the replies of the API in this directory [default: lapwing/api in the user's cache]
    #[arg(long, value_name = "DIR", requires = "player")]
    pub player_cache: Option<PathBuf>,
    /// Timeout of a request to the API, after which it is retried
    #[arg(long, value_name = "SECONDS", requires = "player", default_value_t = 120, value_parser = whole(1..=86_400_u64))]
    pub player_timeout: u64,
}

/// A player that is not a local model.
#[derive(Debug, Clone)]
pub enum OtherPlayer {
    /// A model behind the API at this URL.
    OpenAi(String),
    /// The game's own player.
    Scripted,
    /// Random actions.
    Random,
}

fn other_player(text: &str) -> Result<OtherPlayer, String> {
    match (text, text.strip_prefix("openai:")) {
        ("scripted", _) => Ok(OtherPlayer::Scripted),
        ("random", _) => Ok(OtherPlayer::Random),
        (_, Some(url)) if !url.is_empty() => Ok(OtherPlayer::OpenAi(url.to_owned())),
        _ => Err("wanted openai:URL, scripted or random".to_owned()),
    }
}

impl PlayerArgs {
    /// Returns the player's name in tables.
    pub fn name(&self) -> String {
        match &self.player {
            Some(OtherPlayer::Scripted) => "scripted (--player)".to_owned(),
            Some(OtherPlayer::Random) => "random (--player)".to_owned(),
            Some(OtherPlayer::OpenAi(_)) | None => {
                self.player_model.clone().unwrap_or("API".to_owned())
            }
        }
    }
}

impl EvalArgs {
    pub fn config(&self) -> Result<Config, Error> {
        let player = self.player.player.as_ref();
        evaluation(&self.config, self.episodes, player).map(announced)
    }

    pub fn games(&self, config: &Config) -> Result<Vec<GameConfig>, Error> {
        if self.games.is_empty() {
            return Ok(vec![config.game.clone()]);
        }
        let game = |name: &String| Ok(Config::load(name, &[])?.game);
        self.games.iter().map(game).collect()
    }
}

impl ProbeArgs {
    pub fn config(&self) -> Result<Config, Error> {
        let resolved = evaluation(&self.config, self.episodes, None)?;
        check_language(&resolved.config)?;
        Ok(announced(resolved))
    }

    /// Returns the selected probes of this game.
    pub fn probes(
        &self,
        game: &GameConfig,
    ) -> Result<Vec<&'static lapwing_env::SemanticProbe>, Error> {
        if game.name.is_external() {
            let wanted = "a built-in game: others have no probes";
            return Err(ConfigError::range("game.name", game.name.without_user(), wanted).into());
        }
        let (kind, _) =
            lapwing_env::find_variant(&game.name.to_string()).map_err(SettingError::from)?;
        let found = |name: &String| {
            kind.probe(name).ok_or_else(|| {
                let known: Vec<&str> = kind.probes.iter().map(|probe| probe.name).collect();
                let wanted = format!("probes of {}: {}", kind.name, known.join(", "));
                ConfigError::range("--probes", format!("{name:?}"), wanted).into()
            })
        };
        match self.probes.is_empty() {
            true => Ok(kind.probes.iter().collect()),
            false => self.probes.iter().map(found).collect(),
        }
    }
}

fn evaluation(
    request: &ConfigArgs,
    episodes: Option<usize>,
    player: Option<&OtherPlayer>,
) -> Result<Resolved, Error> {
    let episodes = episodes.map(|n| format!("--episodes eval.episodes={n}"));
    let own = episodes.into_iter().collect();
    let resolved = match player {
        Some(_) => request.resolve(own)?,
        None => request.resolve_trained(own)?,
    };
    let unused = ["eval.every", "mix"];
    Ok(to_play(resolved, request, player, &unused, "an evaluation"))
}

/// Suits a config to this player, and adds notes on keys that have no effect: those of training, and `unused` ones.
fn to_play(
    mut resolved: Resolved,
    request: &ConfigArgs,
    player: Option<&OtherPlayer>,
    unused: &[&str],
    command: &str,
) -> Resolved {
    if let Some(OtherPlayer::OpenAi(_)) = player {
        resolved.suit_other_model();
    }
    let model: &[&str] = if player.is_some() { &["model."] } else { &[] };
    let unused = [&TRAINING_ONLY[..], unused, model].concat();
    resolved.notes.extend(request.unused(&unused, command));
    resolved
}
