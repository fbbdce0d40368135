//! The config sections `[game]`, `[[mix]]` and `[policy]`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use lapwing_env::OptionRange::{self, Real, Whole};
use lapwing_env::Scenario;
use lapwing_model::ChatTemplate;

use crate::external::{self, Address, GameName};
use crate::{ReplyForm, SettingError};

lapwing_env::options! {
    /// The game.
    pub struct GameConfig;
    /// One that `lapwing games` lists, or an external one: `exec:COMMAND` or `ws://HOST:PORT/ws`. Another name drops the options
    /// of the previous game.
    name: GameName = "frozen-lake".into();
    /// A probe of the game, which changes instructions and rewards. Its options override those below. Empty: none. External
    /// games have none.
    probe: Option<String> = None, with "optional";
    /// The game's own options, including the step limit. `lapwing games` lists them with their defaults; `lapwing help
    /// environments` has those of external environments.
    options: toml::Table = toml::Table::new();
}

impl GameConfig {
    /// Returns a section for an existing scenario, with every option.
    ///
    /// # Panics
    /// If it breaks a rule of [`Scenario`]: its actions are not distinct words, its step limit is 0, or its options are not an
    /// object without nulls.
    #[track_caller]
    pub fn of(scenario: &dyn Scenario) -> GameConfig {
        let (name, actions) = (scenario.name(), scenario.actions());
        let distinct = actions.iter().collect::<BTreeSet<_>>().len();
        assert!(
            !actions.is_empty() && distinct == actions.len(),
            "{name}: the actions {actions:?} are not distinct words"
        );
        assert!(scenario.step_limit() > 0, "{name}: the step limit is 0");
        let options = scenario.options();
        let Ok(table) = toml::Table::try_from(&options) else {
            panic!("{name}: the options {options} are not an object without nulls")
        };
        GameConfig {
            name: name.into(),
            probe: None,
            options: table,
        }
    }

    /// Returns the scenario with these options.
    ///
    /// # Errors
    /// If the game or probe does not exist, or refuses these options.
    pub fn scenario(&self) -> Result<Box<dyn Scenario>, SettingError> {
        self.scenario_in("game")
    }

    /// Does the same; `section` names the config section in errors.
    fn scenario_in(&self, section: &str) -> Result<Box<dyn Scenario>, SettingError> {
        let own = json(&format!("{section}.options"), &self.options)?;
        let wrong = |key: &str, found: &str, wanted: String| {
            SettingError::range(format!("{section}.{key}"), format!("{found:?}"), wanted)
        };
        let name = self.name.to_string();
        if self.name.is_external() {
            if let Some(probe) = &self.probe {
                let wanted = "none: games that live elsewhere have no probes";
                return Err(wrong("probe", probe, wanted.to_owned()));
            }
            let address = Address::parse(&self.name)
                .map_err(|wanted| wrong("name", &self.name.without_user(), wanted))?;
            return Ok(external::configure(&name, address, &own.into())?);
        }
        let (kind, mut options) = lapwing_env::find_variant(&name).map_err(|unknown| {
            let form = self.name.external_form();
            form.map_or(unknown.into(), |form| wrong("name", &name, form))
        })?;
        let set = options.as_object_mut().expect("find_variant promises it");
        set.extend(own);
        if let Some(probe) = &self.probe {
            let Some(probe) = kind.probe(probe) else {
                let known: Vec<&str> = kind.probes.iter().map(|probe| probe.name).collect();
                let wanted = format!("a probe of {}: {}", kind.name, known.join(", "));
                return Err(wrong("probe", probe, wanted));
            };
            set.extend((probe.options)().as_object().cloned().unwrap_or_default());
        }
        Ok((kind.configure)(&options)?)
    }
}

lapwing_env::options! {
    /// A game that some groups of a training step play instead: another game, the same with other options, or a probe.
    /// Evaluations play only the run's own game.
    pub struct MixConfig;
    /// One that `lapwing games` lists. Empty: the run's own game and options.
    name: Option<GameName> = None, with "optional";
    /// A probe of the game. Empty: none.
    probe: Option<String> = None, with "optional";
    /// The share of the groups that play it. Each group draws. In no step may all shares add up to more than 1.
    share: f64 = 0.1, in Real(0.0, 1.0);
    /// The first step in which it is played, from 0.
    from: usize = 0;
    /// The step after the last one in which it is played, above `from`. 0: no end. Consecutive shares of 1 make a curriculum.
    until: usize = 0;
    /// Options of the game.
    options: toml::Table = toml::Table::new();
}

impl MixConfig {
    /// Returns the steps in which it is played.
    pub fn steps(&self) -> Range<usize> {
        match self.until {
            0 => self.from..usize::MAX,
            end => self.from..end,
        }
    }

    /// Returns its name in the records of a run on this game, such as "snake with apples = 5".
    pub fn title(&self, own: &GameConfig) -> String {
        let mut title = self.game(own).name.to_string();
        if let Some(probe) = &self.probe {
            title += &format!(" ({probe})");
        }
        for (number, (key, value)) in self.options.iter().enumerate() {
            let before = if number == 0 { " with" } else { "," };
            title += &format!("{before} {key} = {value}");
        }
        title
    }

    /// Returns the scenario of the game in a run on this game.
    ///
    /// # Errors
    /// As [`GameConfig::scenario`].
    pub fn scenario(&self, own: &GameConfig) -> Result<Box<dyn Scenario>, SettingError> {
        self.game(own).scenario_in("mix")
    }

    fn game(&self, own: &GameConfig) -> GameConfig {
        let mut game = match self.name.clone() {
            None => own.clone(),
            Some(name) => GameConfig {
                name,
                ..GameConfig::default()
            },
        };
        game.options.extend(self.options.clone());
        game.probe.clone_from(&self.probe);
        game
    }
}

/// Beyond these, logits divided by the temperature become equal or infinite.
const TEMPERATURE: OptionRange = Real(1e-3, 1e3);

lapwing_env::options! {
    /// How the model plays.
    pub struct PolicyConfig;
    /// The form of a reply: `word`, only the action; `tags`, any text and then `<action>word</action>`; `think` and `plan`,
    /// `<think>` or `<plan>` and then `<action>`; `json`, `{"action": "word"}`. `tags`: it lets the model reason before it acts.
    reply: ReplyForm = ReplyForm::Tags;
    /// The number of earlier turns, with replies, that a prompt repeats. 0: the observation has everything, and such
    /// prompts share most of their tokens.
    history: usize = 0, in Whole(0, 1 << 16);
    /// Template files that replace blocks of the default template. Of several, each episode draws one. Empty: the
    /// default template.
    templates: Vec<PathBuf> = Vec::new();
    /// Sampling temperature in training. Log-probs belong to the same distribution, so the first update's ratio is 1.
    /// 1: the model's own distribution.
    temperature: f64 = 1.0, in TEMPERATURE;
    /// The maximum number of tokens of a reply. 256 leaves room for a few sentences of reasoning.
    max_new_tokens: usize = 256, in Whole(1, 1 << 24);
    /// Whether only the words of the actions can be sampled, for models that would reply with something else. Log-probs in
    /// sampling and training are those of this restricted distribution. Needs `reply = "word"`.
    constrain: bool = false;
    /// Subtracted from the return for every unreadable reply. 1: the value that the paper's first author later used.
    format_penalty: f64 = 1.0, in Real(0.0, f64::MAX);
    /// Variables for the model's chat template, such as `enable_thinking = false` for Qwen3. Empty: the template's own
    /// defaults. Names that lapwing fills, such as `messages`, are refused.
    chat_template_kwargs: toml::Table = toml::Table::new();
}

impl PolicyConfig {
    /// Returns the variables as JSON, which templates read.
    ///
    /// # Errors
    /// If one has a type that templates do not have, or would replace what lapwing passes to the template: the
    /// conversation (which has no tools or documents) or the checkpoint's special tokens.
    pub fn template_variables(
        &self,
    ) -> Result<serde_json::Map<String, serde_json::Value>, SettingError> {
        const SECTION: &str = "policy.chat_template_kwargs";
        let ours = |name: &&String| {
            ChatTemplate::is_reserved(name) || ["tools", "documents"].contains(&name.as_str())
        };
        if let Some(name) = self.chat_template_kwargs.keys().find(ours) {
            let (key, found) = (
                format!("{SECTION}.{name}"),
                &self.chat_template_kwargs[name],
            );
            let wanted =
                "it left out: what the template gets under this name is not free to be set";
            return Err(SettingError::range(key, found.to_string(), wanted));
        }
        json(SECTION, &self.chat_template_kwargs)
    }
}

/// Returns a table as JSON, for games and templates.
fn json(
    section: &str,
    table: &toml::Table,
) -> Result<serde_json::Map<String, serde_json::Value>, SettingError> {
    let entry = |(name, value): (&String, &toml::Value)| {
        let key = format!("{section}.{name}");
        Ok((name.clone(), json_value(&key, value)?))
    };
    table.iter().map(entry).collect()
}

/// TOML has non-finite numbers and JSON does not: as null they would be ignored silently. A date becomes its text.
fn json_value(key: &str, value: &toml::Value) -> Result<serde_json::Value, SettingError> {
    Ok(match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Boolean(is) => (*is).into(),
        toml::Value::Float(number) if number.is_finite() => (*number).into(),
        toml::Value::Float(_) => {
            return Err(SettingError::range(
                key,
                value.to_string(),
                "a finite number",
            ));
        }
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => {
            let items = items.iter().map(|item| json_value(key, item));
            items.collect::<Result<Vec<_>, _>>()?.into()
        }
        toml::Value::Table(table) => json(key, table)?.into(),
    })
}

/// An optional setting, which is an empty string in TOML.
pub mod optional {
    use serde::de::value::StringDeserializer;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the value, or an empty string.
    ///
    /// # Errors
    /// As those of the serializer.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// If it is no string, or not one of a value.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = (!text.is_empty()).then(|| T::deserialize(StringDeserializer::new(text)));
        value.transpose()
    }
}
