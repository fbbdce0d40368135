//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lapwing::{Config, ConfigError};
use lapwing_tensor::{Gpu, GpuError, GpuOptions};

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
    /// Examine a model on scenes that training never sees
    Eval(Eval),
    /// Watch a model play an episode, or play it yourself
    Play(Play),
    /// Make a small base model that imitates a noisy player
    Pretrain(Pretrain),
    /// List the games and their options
    Games,
    /// List the GPUs that were found, and say which will be used
    Adapters,
}

/// Which config, and what of it to change.
#[derive(Debug, Args)]
pub struct Request {
    /// A preset (frozen-lake, frozen-lake-paper, snake-paper), or a file that ends in .toml
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
    /// Use the model in this directory (Hugging Face files) instead of the embedded one
    #[arg(long, value_name = "DIR")]
    pub model: Option<String>,
}

impl Changes {
    fn settings(&self) -> Vec<String> {
        // Quoted as TOML, so that a directory called 7 stays a text.
        let model = self
            .model
            .iter()
            .map(|dir| format!("model.dir={}", toml::Value::from(dir.as_str())));
        self.set.iter().cloned().chain(model).collect()
    }
}

#[derive(Debug, Args)]
pub struct Train {
    #[command(flatten)]
    pub request: Request,
    /// Keep the run in this directory, which must be new or empty [default: runs/NAME-SEED]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Training steps (train.steps)
    #[arg(long, value_name = "N", value_parser = number())]
    pub steps: Option<u64>,
    /// The number that everything random follows from (train.seed)
    #[arg(long, value_name = "N", value_parser = number())]
    pub seed: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Eval {
    #[command(flatten)]
    pub request: Request,
    /// Add the adapter in this directory, such as runs/frozen-lake-1/adapter
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// Episodes to play (eval.episodes)
    #[arg(long, value_name = "N", value_parser = number())]
    pub episodes: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Play {
    /// One of those that `lapwing games` lists, or the config.toml of a run
    #[arg(value_name = "GAME|FILE.toml")]
    pub game: String,
    /// Play it yourself; needs no GPU
    #[arg(long, conflicts_with_all = ["model", "adapter"])]
    pub human: bool,
    #[command(flatten)]
    pub changes: Changes,
    /// Add the adapter in this directory, such as runs/frozen-lake-1/adapter
    #[arg(long, value_name = "DIR")]
    pub adapter: Option<PathBuf>,
    /// The scene and its luck
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Play {
    /// How the game is played: as the file says, by the embedded base as it was trained, or by any other model with the
    /// general defaults.
    pub fn config(&self) -> Result<Config, ConfigError> {
        if self.game.ends_with(".toml") {
            return Config::load(&self.game, &self.changes.settings());
        }
        let mut settings = vec![format!(
            "game.name={}",
            toml::Value::from(self.game.as_str())
        )];
        if self.changes.model.is_some() {
            let general = Config::default().policy;
            let reply = toml::Value::try_from(general.reply).expect("a plain word");
            settings.push(format!("policy.reply={reply}"));
            settings.push(format!("policy.max_new_tokens={}", general.max_new_tokens));
        }
        settings.extend(self.changes.settings());
        Config::load("frozen-lake", &settings)
    }
}

#[derive(Debug, Args)]
pub struct Pretrain {
    /// Write the model to this directory
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The game whose scripted player is imitated
    #[arg(long, value_name = "GAME", default_value = "frozen-lake")]
    pub game: String,
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

/// A whole number that TOML can hold.
fn number() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=i64::MAX as u64)
}

fn chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err("wanted a number from 0 to 1".to_owned()),
    }
}

impl Train {
    /// The config with what was typed.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let steps = self.steps.map(|n| format!("train.steps={n}"));
        let seed = self.seed.map(|n| format!("train.seed={n}"));
        self.request.config(steps.into_iter().chain(seed).collect())
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
    use clap::CommandFactory;
    use lapwing::config::PRESETS;

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
