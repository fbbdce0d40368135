//! A config with the origins of its values and notes for the user.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use lapwing_model::read_text;
use lapwing_play::ReplyForm;

use super::Config;

/// Room for two sentences and an action in tags.
const REPLY_TOKENS: usize = 64;

/// The origin of a value that is not the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The preset of this name.
    Preset(String),
    /// The game variant of this name.
    Variant(String),
    /// This file.
    File(String),
    /// This file with every value, which lapwing wrote; the user chose none of them.
    Written(String),
    /// The command line.
    Setting,
    /// lapwing, because the preset's value is for the built-in model.
    Model,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Preset(name) => write!(f, "the preset {name}"),
            Origin::Variant(name) => write!(f, "the variant {name}"),
            Origin::File(path) | Origin::Written(path) => f.write_str(path),
            Origin::Setting => f.write_str("--set"),
            Origin::Model => f.write_str("chosen for this model"),
        }
    }
}

/// A config with the origins of its values.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// The origins of values that are not defaults, by dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// Notes for the user: the base of a file, and values that the user set without effect.
    pub notes: Vec<String>,
    /// The run directory, if the name was that of a run.
    pub run: Option<PathBuf>,
}

impl Resolved {
    /// Returns the config as TOML, with a comment on the origin of each value.
    pub fn to_toml(&self) -> String {
        let (mut section, mut list) = (String::new(), None);
        let line = |line: &str| {
            // A list of tables is one value.
            if let Some(name) = line.strip_prefix("[[").and_then(|l| l.strip_suffix("]]")) {
                list = Some(name.to_owned());
                let origin = self.origin(name);
                return format!("{line}  # {origin}\n");
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                let outer = name.split('.').next();
                list = list.take().filter(|list| Some(&**list) == outer);
                section = format!("{name}.");
                return format!("{line}\n");
            }
            if list.is_some() {
                return format!("{line}\n");
            }
            // A text of several lines gets no comment, because the comment would become part of it.
            let whole: Option<toml::Table> = line.parse().ok();
            let key = whole.as_ref().and_then(|table| table.keys().next());
            let Some(key) = key else {
                return format!("{line}\n");
            };
            format!("{line}  # {}\n", self.origin(&format!("{section}{key}")))
        };
        self.config.to_toml().lines().map(line).collect()
    }

    /// Gives a model that is not the built-in one, or made like it, a reply form and length that it can use instead of a
    /// preset's one word of one token. Does nothing if the user set either.
    pub fn suit_other_model(&mut self) {
        let preset = |key| match self.origins.get(key) {
            Some(Origin::Preset(name)) => Some(name.clone()),
            _ => None,
        };
        let keys = ["policy.reply", "policy.max_new_tokens"];
        let policy = &mut self.config.policy;
        let [Some(name), Some(_)] = keys.map(preset) else {
            return;
        };
        if policy.reply != ReplyForm::Word {
            return;
        }
        (policy.reply, policy.max_new_tokens) = (ReplyForm::Tags, REPLY_TOKENS);
        self.origins
            .extend(keys.map(|key| (key.to_owned(), Origin::Model)));
        self.notes.push(format!(
            "the preset {name} is for the built-in model; another model gets policy.reply = \"tags\" and policy.max_new_tokens \
             = {REPLY_TOKENS} instead (--set of either keeps the preset's other value)"
        ));
    }

    /// Whether the model is certainly not made as the built-in one: by `lapwing pretrain`, which makes small vocabularies.
    pub(super) fn has_large_model(&self) -> bool {
        let large = |dir: &PathBuf| {
            let config = read_text(&dir.join("config.json"), 1 << 20).ok()?;
            let config: serde_json::Value = serde_json::from_str(&config).ok()?;
            Some(config["vocab_size"].as_u64()? >= 1024)
        };
        let model = &self.config.model;
        model.repo.is_some() || model.dir.as_ref().and_then(large) == Some(true)
    }

    /// Returns the origin of a value, as a line.
    fn origin(&self, key: &str) -> String {
        let origin = self.origins.get(key).map(ToString::to_string);
        let origin = origin.unwrap_or_else(|| "default".to_owned());
        origin.escape_debug().collect()
    }

    /// Returns the origin of a value, if the user chose it.
    pub(super) fn chosen(&self, key: &str) -> Option<&Origin> {
        let origin = self.origins.get(key);
        origin.filter(|origin| matches!(origin, Origin::File(_) | Origin::Setting))
    }
}
