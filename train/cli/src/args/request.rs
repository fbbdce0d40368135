//! Which config is asked for, and what of it is changed.

use std::path::{Path, PathBuf};

use clap::Args;
use lapwing_learn::config::LearnerKind;
use lapwing_play::Form;
use lapwing_train::base::source::Source;
use lapwing_train::config::{Origin, Place, Resolved};
use lapwing_train::record::directory;
use lapwing_train::record::directory::Trained;
use lapwing_train::{Config, ConfigError, Error};

use crate::out;

/// Which config, and what of it to change.
#[derive(Debug, Args)]
pub struct Request {
    /// A preset (frozen-lake, frozen-lake-slippery, frozen-lake-large, frozen-lake-curriculum, snake, frozen-lake-paper,
    /// snake-paper; without language frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn), a
    /// variant of a game by the preset of that game (snake-poison-apple), a game by the general defaults (exec:COMMAND and
    /// ws://HOST:PORT/ws, too), a file that ends in .toml, or the directory of a run
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

    /// The same for one who plays and does not learn: the adapter of a run, its model or its network, is what the run has learned.
    pub fn resolve_trained(&self, own: Vec<String>) -> Result<Resolved, Error> {
        let mut resolved = self.resolve(own)?;
        if resolved.config.learner != LearnerKind::MsGrpo {
            let is_named = resolved.origins.get("value.network") == Some(&Origin::Setting);
            if let Some(run) = resolved.run.clone().filter(|_| !is_named) {
                let network = directory::trained_network(&run)?.display().to_string();
                resolved.notes.push(format!("plays with {network}"));
                resolved.config.value.network = network;
            }
            return Ok(resolved);
        }
        let names = |key: &str| resolved.origins.get(key) == Some(&Origin::Setting);
        let (is_named, names_model) = (
            names("model.adapter"),
            names("model.dir") || names("model.repo"),
        );
        if let Some(run) = resolved.run.clone().filter(|_| !is_named) {
            let (trained, model) = (directory::trained(&run)?, &mut resolved.config.model);
            let dir = trained.dir().display();
            let mut note = format!("plays with {dir}");
            match &trained {
                Trained::Adapter(dir) => model.adapter = Some(dir.clone()),
                Trained::Model(_) if names_model => {
                    note = format!(
                        "{dir} has all that the run learned, and does not play: another model is named"
                    );
                }
                Trained::Model(dir) => (model.dir, model.repo) = (Some(dir.clone()), None),
            }
            resolved.notes.push(note);
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
pub fn of_the_base(resolved: &Resolved) -> Option<String> {
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

/// What a directory holds: an adapter or a model, its own, or that of the run that it is.
pub fn learned(dir: &Path) -> Result<Trained, Error> {
    Ok(match Place::of(dir) {
        Place::Run => directory::trained(dir)?,
        Place::Model => Trained::Model(dir.to_owned()),
        _ => Trained::Adapter(dir.to_owned()),
    })
}

/// The adapter that a directory means: its own, or that of the run that it is. What it stands for is said.
pub fn adapter(dir: &Path) -> Result<PathBuf, Error> {
    match learned(dir)? {
        Trained::Adapter(adapter) => {
            if adapter != dir {
                out::note(&format!("--adapter: takes {}", adapter.display()));
            }
            Ok(adapter)
        }
        Trained::Model(model) => Err(ConfigError::Place {
            path: dir.to_owned(),
            is: "holds a whole model and no adapter",
            cure: format!("--model {} takes it", out::quoted(&model.to_string_lossy())),
        }
        .into()),
    }
}

/// What `--model` names: a run that has trained a whole model stands for that, which is said.
pub fn model(text: &str) -> String {
    let dir = Path::new(text);
    match (Place::of(dir), directory::trained(dir)) {
        (Place::Run, Ok(Trained::Model(model))) => {
            out::note(&format!("--model: takes {}", model.display()));
            model.display().to_string()
        }
        _ => text.to_owned(),
    }
}

/// A model's directory; what is something else is named as that.
fn directory_of_a_model(dir: &str) -> Result<&str, Error> {
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
            let text = &*model(text);
            let (dir, repo) = match Source::typed(text) {
                Source::Repository(_) => ("", text),
                _ => (directory_of_a_model(text)?, ""),
            };
            settings.extend([place("model.dir", dir), place("model.repo", repo)]);
        }
        if let Some(dir) = &self.adapter {
            settings.push(place("model.adapter", &adapter(dir)?.to_string_lossy()));
        }
        Ok(settings)
    }

    /// The keys of --set, of which those are told that such a command has no use for.
    pub fn idle(&self, sections: &[&str], what: &str) -> Vec<String> {
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
pub const OF_TRAINING: [&str; 5] = [
    "train.",
    "lora.",
    "checkpoint.",
    "record.",
    "policy.temperature",
];

/// Tells the notes, and hands out the config.
pub fn announced(resolved: Resolved) -> Config {
    for note in &resolved.notes {
        out::note(note);
    }
    resolved.config
}
