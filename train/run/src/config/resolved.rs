//! A config with the origins of its values and notes for the user.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use lapwing_env::DeclaredOption;
use lapwing_learn::config::Sampling;
use lapwing_model::{ModelDirectory, is_gguf, read_text};
use lapwing_play::ReplyForm;
use toml::Table;

use super::origin::{Origin, find};
use super::{Config, reference, unused};

/// Room for two sentences and an action in tags.
const REPLY_TOKENS: usize = 64;

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
    /// Returns the sections that have an effect as TOML. A comment beside each value has its origin, its default if that
    /// differs, and whether it has no effect.
    pub fn to_toml(&self) -> String {
        let idle = unused::keys(&self.config);
        let is_effective = |(section, key): &(&str, &DeclaredOption)| {
            !idle.contains(&reference::dotted(section, key.name))
        };
        let in_effect = reference::keys().into_iter().filter(is_effective);
        let in_effect: BTreeSet<&str> = in_effect.map(|(section, _)| section).collect();
        let sections = reference::keys().into_iter().map(|(section, _)| section);
        let idle_sections = sections.filter(|section| !in_effect.contains(section));
        let mut left_out: Vec<_> = idle_sections.map(|it| format!("[{it}]")).collect();
        left_out.dedup();
        let is_shown = |part: &&str| {
            let heading = part.lines().next().unwrap_or_default();
            let name = heading.trim_matches(['[', ']']).split('.').next();
            let in_effect = || in_effect.contains(name.unwrap_or_default());
            // A heading alone is that of an empty table.
            !heading.starts_with('[') || in_effect() && part.contains('\n')
        };
        let all = self.config.to_toml();
        let parts: Vec<&str> = all.trim_end().split("\n\n").filter(is_shown).collect();
        let game = &self.config.game;
        let options =
            lapwing_env::find(&game.name.to_string()).map_or(&[][..], |kind| kind.options);
        let names = options.iter().map(|option| option.name);
        let not_set = names.filter(|name| !game.options.contains_key(*name));
        left_out.extend(not_set.map(|name| format!("game.options.{name}")));
        let mut defaults = Config::default();
        defaults.game.name = self.config.game.name.clone();
        // An external game may need options, and has no defaults without them.
        let _ = defaults.resolve_game();
        let mut defaults = Table::try_from(defaults).expect("plain values");
        // The name's default is that of the preset, file or game.
        defaults.remove("name");
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
            let Some((key, value)) = whole.and_then(|table| table.into_iter().next()) else {
                return format!("{line}\n");
            };
            let key = format!("{section}{key}");
            let mut comment = self.origin(&key);
            let default = find(&mut defaults, &key).filter(|default| **default != value);
            if let Some(default) = default.filter(|_| self.origins.contains_key(&key)) {
                comment += &format!(" (default {default})");
            }
            if idle.contains(&key) {
                comment += ", no effect";
            }
            format!("{line}  # {comment}\n")
        };
        let text: String = parts.join("\n\n").lines().map(line).collect();
        let left_out = left_out.join(", ");
        format!("{text}\n# left out, as they have no effect here or are not set: {left_out}\n")
    }

    /// Lowers the default of `train.learn` to the size of a group.
    pub(super) fn follow_group_size(&mut self) {
        let origin = self.origin("train.group_size");
        let train = &mut self.config.train;
        let (learn, size) = (train.learn, train.group_size);
        let is_given = self.origins.contains_key("train.learn");
        if is_given || learn <= size || train.sampling == Sampling::All {
            return;
        }
        train.learn = size;
        let follows = Origin::Derived("follows train.group_size");
        self.origins.insert("train.learn".to_owned(), follows);
        self.notes.push(format!(
            "train.learn is {size} instead of the default {learn}, because train.group_size is {size} ({origin}): all \
             episodes are trained on, whatever train.sampling is"
        ));
    }

    /// Gives a model that is not the built-in one, or made like it, a reply form and length that it can use instead of a
    /// preset's one word of one token. Does nothing if the user set the length, or wants words.
    pub fn suit_other_model(&mut self) {
        let preset = |key| match self.origins.get(key) {
            Some(Origin::Preset(name)) => Some(name.clone()),
            _ => None,
        };
        let [reply, length] = ["policy.reply", "policy.max_new_tokens"];
        let Some(name) = preset(length) else {
            return;
        };
        let is_preset = preset(reply).is_some();
        let policy = &mut self.config.policy;
        let chosen = Origin::Derived("chosen for this model");
        let instead = match policy.reply {
            _ if policy.constrain || policy.max_new_tokens >= REPLY_TOKENS => return,
            ReplyForm::Word if is_preset => {
                policy.reply = ReplyForm::Tags;
                self.origins.insert(reply.to_owned(), chosen.clone());
                " policy.reply = \"tags\" and"
            }
            ReplyForm::Word => return,
            // The user's.
            _ => "",
        };
        policy.max_new_tokens = REPLY_TOKENS;
        self.origins.insert(length.to_owned(), chosen);
        self.notes.push(format!(
            "the preset {name} is for the built-in model; another model gets{instead} policy.max_new_tokens = {REPLY_TOKENS} \
             instead"
        ));
    }

    /// Whether the model is certainly not made as the built-in one: by `lapwing pretrain`, which makes small vocabularies.
    pub(super) fn has_large_model(&self) -> bool {
        let vocab = |dir: &PathBuf| {
            if is_gguf(dir) {
                return Some(ModelDirectory::open(dir).ok()?.config().vocab as u64);
            }
            let config = read_text(&dir.join("config.json"), 1 << 20).ok()?;
            let config: serde_json::Value = serde_json::from_str(&config).ok()?;
            config["vocab_size"].as_u64()
        };
        let model = &self.config.model;
        model.repo.is_some() || model.dir.as_ref().and_then(vocab) >= Some(1024)
    }

    /// Returns the origin of a value, as a line.
    pub(super) fn origin(&self, key: &str) -> String {
        // A list of tables has one origin.
        let section = || self.origins.get(key.split('.').next()?);
        let own = (key == "name").then_some(&Origin::Derived("the name of the config"));
        let origin = self.origins.get(key).or_else(section).or(own);
        let origin = origin.map_or("default".to_owned(), ToString::to_string);
        origin.escape_debug().collect()
    }
}
