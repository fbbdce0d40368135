//! Selection of a config, and changes to it.

use std::path::{Path, PathBuf};

use clap::Args;
use lapwing_train::base::source::ModelSource;
use lapwing_train::config::{Origin, PathKind, Quantise, Resolved};
use lapwing_train::record::directory::{self, Trained};
use lapwing_train::{Config, ConfigError, Error};

use crate::{out, records};

#[derive(Debug, Default, Args)]
pub struct ConfigArgs {
    /// A preset, a game, a config file that ends in .toml, or a run directory. Presets: frozen-lake,
    /// frozen-lake-slippery, frozen-lake-large, snake, snake-imitation; for a --model: frozen-lake-small, snake-small,
    /// rooms-small, frozen-lake-paper, snake-paper. Presets of value learners: frozen-lake-dqn, frozen-lake-pqn,
    /// frozen-lake-slippery-pqn, snake-dqn, snake-pqn. A game variant such as snake-poison-apple uses the preset of its
    /// game. Other games, exec:COMMAND and ws://HOST:PORT/ws use the general defaults
    #[arg(value_name = "PRESET|FILE.toml|RUN", default_value = "frozen-lake")]
    pub config: String,
    /// Change a config value, such as train.lr=0.001. May be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use this model instead of the built-in one: a directory of Hugging Face files, a GGUF file, or a Hugging Face
    /// repository such as Qwen/Qwen2.5-0.5B-Instruct. @REVISION selects a branch, tag or commit, and :Q4_K_M a GGUF file
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Use the tokenizer and the chat template of this directory instead of the model's (model.tokenizer)
    #[arg(long, value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,
    /// Use this adapter: a directory of PEFT files, or a run. Training starts from it
    #[arg(long, value_name = "DIR|RUN")]
    pub adapter: Option<PathBuf>,
    /// Round the weights to 8 or 4 bits when they are loaded (model.quantise)
    #[arg(long, value_name = "q8|q4", alias = "quantize", value_parser = quantise)]
    pub quantise: Option<Quantise>,
    /// Play this game (game.name): one that `lapwing games` lists, or an external environment: exec:COMMAND (a child
    /// process) or ws://HOST:PORT/ws (a server). See `lapwing help environments`
    #[arg(long, value_name = "GAME")]
    pub game: Option<String>,
}

impl ConfigArgs {
    /// Returns the config with these changes, and then the command's own settings, applied.
    pub fn resolve(&self, own: Vec<String>) -> Result<Resolved, Error> {
        let settings = [self.settings()?, own].concat();
        Ok(Config::resolve(&self.config, &settings)?)
    }

    /// Does the same for a command that loads the model.
    pub fn resolve_with_model(&self, own: Vec<String>) -> Result<Resolved, Error> {
        let resolved = self.resolve(own)?;
        let model = resolved.config.model.dir.as_deref();
        match (resolved.origins.get("model.dir"), model) {
            (Some(Origin::Preset(preset)), Some(dir)) if !dir.exists() => {
                let example = match preset.ends_with("-paper") {
                    true => "Qwen/Qwen2.5-3B-Instruct",
                    false => "HuggingFaceTB/SmolLM2-135M-Instruct",
                };
                Err(ConfigError::Invalid(format!(
                    "the preset {preset} has no model of its own: name one with --model, either a directory or a repository of \
                     the Hugging Face hub such as {example}, which is downloaded once"
                ))
                .into())
            }
            _ => Ok(resolved),
        }
    }

    /// Does the same, and if the config is that of a run, replaces its model by the trained one.
    pub fn resolve_trained(&self, own: Vec<String>) -> Result<Resolved, Error> {
        let mut resolved = self.resolve_with_model(own)?;
        if !resolved.config.learner.has_language() {
            if let (Some(run), false) = (&resolved.run, is_set(&resolved, "value.network")) {
                let network = directory::trained_network(run)?.display().to_string();
                resolved.notes.push(format!("plays with {network}"));
                resolved.config.value.network = network;
            }
            return Ok(resolved);
        }
        if is_set(&resolved, "model.adapter") {
            return Ok(resolved);
        }
        let replaces_model = is_set(&resolved, "model.dir") || is_set(&resolved, "model.repo");
        let has_tokenizer = is_set(&resolved, "model.tokenizer");
        if let Some(run) = &resolved.run {
            let (trained, model) = (directory::trained(run)?, &mut resolved.config.model);
            let dir = records::described(run, &trained);
            let mut note = format!("plays with {dir}");
            match &trained {
                Trained::Adapter(dir) => model.adapter = Some(dir.clone()),
                Trained::Model(_) if replaces_model => {
                    note = format!(
                        "does not play with {dir}, the trained model of the run: another model is given"
                    );
                }
                Trained::Model(dir) => {
                    (model.dir, model.repo) = (Some(dir.clone()), None);
                    // Saved with the model.
                    model.tokenizer = model.tokenizer.take().filter(|_| has_tokenizer);
                }
            }
            resolved.notes.push(note);
        }
        let file = Path::new(&self.config);
        let parent = file.parent().filter(|_| file.ends_with("config.toml"));
        if let Some(run) = parent.filter(|run| directory::trained(run).is_ok()) {
            let run = run.display();
            resolved.notes.push(format!(
                "plays with the initial model of {run}, because its config.toml is given; to play with the trained one, \
                 give the directory {run}"
            ));
        }
        Ok(resolved)
    }

    /// Returns the settings that these options stand for.
    pub fn settings(&self) -> Result<Vec<String>, Error> {
        // Quoted as TOML, so that a directory named 7 stays a string.
        let quoted = |key: &str, text: &str| format!("--{key}={}", toml::Value::from(text));
        let mut settings = self.set.clone();
        settings.extend(self.game.iter().map(|game| quoted("game game.name", game)));
        let model = self.model.as_deref().map(model_setting).transpose()?;
        settings.extend(model);
        if let Some(quantise) = self.quantise {
            let name = format!("{quantise:?}").to_lowercase();
            settings.push(quoted("quantise model.quantise", &name));
        }
        if let Some(dir) = &self.tokenizer {
            settings.push(quoted("tokenizer model.tokenizer", &dir.to_string_lossy()));
        }
        if let Some(dir) = &self.adapter {
            let adapter = adapter("--adapter", dir)?;
            settings.push(quoted("adapter model.adapter", &adapter.to_string_lossy()));
        }
        Ok(settings)
    }

    /// Returns a note for each key of `--set` in one of the sections that `command` ignores.
    pub fn unused(&self, sections: &[&str], command: &str) -> Vec<String> {
        let keys = self.set.iter().filter_map(|set| set.split('=').next());
        keys.map(str::trim)
            .filter(|key| sections.iter().any(|section| key.starts_with(section)))
            .map(|key| format!("{key} (--set) has no effect on {command}"))
            .collect()
    }
}

fn is_set(resolved: &Resolved, key: &str) -> bool {
    matches!(resolved.origins.get(key), Some(Origin::Setting(_)))
}

/// Returns the adapter or model of a directory, which may be a run.
pub fn learned(dir: &Path) -> Result<Trained, Error> {
    Ok(match PathKind::of(dir) {
        PathKind::Run => directory::trained(dir)?,
        PathKind::Model => Trained::Model(dir.to_owned()),
        _ => Trained::Adapter(dir.to_owned()),
    })
}

/// Returns the directory of the adapter that this option names. For a run it is the run's adapter, which is noted.
pub fn adapter(option: &str, dir: &Path) -> Result<PathBuf, Error> {
    let trained = learned(dir)?;
    let described = records::described(dir, &trained);
    match trained {
        Trained::Adapter(adapter) => {
            if adapter != dir {
                out::note(&format!("{option}: uses {described}"));
            }
            Ok(adapter)
        }
        Trained::Model(model) => Err(ConfigError::Invalid(format!(
            "{} holds a whole model and no adapter: --model {} takes it",
            dir.display(),
            out::quoted(&model.to_string_lossy())
        ))
        .into()),
    }
}

/// Parses `--quantise`.
pub fn quantise(text: &str) -> Result<Quantise, String> {
    match text {
        "none" => Ok(Quantise::None),
        "q8" => Ok(Quantise::Q8),
        "q4" => Ok(Quantise::Q4),
        _ => Err("wanted q8, q4 or none".to_owned()),
    }
}

/// Returns the setting that `--model` stands for.
pub fn model_setting(text: &str) -> Result<String, Error> {
    let (key, name) = match model(text)? {
        ModelSource::Repository(_) => ("repo", text.to_owned()),
        directory => ("dir", directory.name()),
    };
    Ok(format!("--model model.{key}={}", toml::Value::from(name)))
}

/// Returns the model that `--model` names. For a run that trained a whole model it is that model, which is noted.
pub fn model(text: &str) -> Result<ModelSource, Error> {
    let dir = Path::new(text);
    let (is, cure) = match PathKind::of(dir) {
        PathKind::Run => match directory::trained(dir) {
            Ok(Trained::Model(model)) => {
                out::note(&format!("--model: uses {}", model.display()));
                return Ok(ModelSource::Local(model));
            }
            _ => (
                "is a run, not a model",
                "give it without --model, or the model that it began with",
            ),
        },
        PathKind::Adapter => ("is an adapter, not a model", "--adapter takes it"),
        _ if text.is_empty() => {
            return Err(ConfigError::range("--model", "\"\"", "a directory or OWNER/NAME").into());
        }
        _ => return Ok(ModelSource::typed(text)),
    };
    Err(ConfigError::Invalid(format!("{text} {is}: {cure}")).into())
}

/// Config sections and keys that only training uses.
pub const TRAINING_ONLY: [&str; 6] = [
    "train.",
    "warmup.",
    "lora.",
    "checkpoint.",
    "record.",
    "policy.temperature",
];

/// Prints the notes and returns the config.
pub fn announced(resolved: Resolved) -> Config {
    resolved.notes.iter().for_each(|note| out::note(note));
    resolved.config
}
