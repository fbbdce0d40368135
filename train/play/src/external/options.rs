//! What can be set of a game that lives elsewhere: `[game.options]`.

use std::time::Duration;

use lapwing_env::{OptionsError, in_force, read_options, refused};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The options, each with its default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExternalOptions {
    /// Blocks that take the place of those of `default.jinja`: a file, or the text itself. None: they all stay.
    pub template: Option<String>,
    /// The words for the actions. None: whatever the agent says goes to the template.
    pub actions: Option<Vec<String>>,
    /// An expression that is true of an episode that counts as a success.
    pub success: String,
    /// The field of a reset in which the environment takes a seed for what chance does after the start. None: it takes
    /// none, and episodes of one scene have the same luck.
    pub luck: Option<String>,
    /// The lowest and the highest reward of a step; others are an error. None: any.
    pub reward_bounds: Option<[f64; 2]>,
    /// After so many turns an episode is stopped.
    pub step_limit: usize,
    /// Seconds until an answer, that of the first reset included: a program that loads much needs some.
    pub timeout: f64,
}

impl Default for ExternalOptions {
    fn default() -> ExternalOptions {
        ExternalOptions {
            template: None,
            actions: None,
            success: "done and return > 0".to_owned(),
            luck: None,
            reward_bounds: None,
            step_limit: 100,
            timeout: 60.0,
        }
    }
}

impl ExternalOptions {
    pub fn read(game: &str, given: &Value) -> Result<ExternalOptions, OptionsError> {
        let options: ExternalOptions = read_options(game, given)?;
        let wrong =
            |option: &str, found: Value, wanted: &str| Err(refused(game, option, found, wanted));
        if let Some(words) = &options.actions {
            let known = "a list of different words in small letters, without space around them";
            // A reply is compared in small letters.
            let is_word = |word: &String| {
                let trimmed = word.trim();
                !word.is_empty() && trimmed == word && *word == word.to_lowercase()
            };
            let is_new = |(i, word): (usize, &String)| !words[..i].contains(word);
            if words.is_empty()
                || !words.iter().all(is_word)
                || !words.iter().enumerate().all(is_new)
            {
                return wrong("actions", words.clone().into(), known);
            }
        } else if options.template.is_none() {
            return Err(OptionsError::Value {
                game: game.to_owned(),
                option: "actions".to_owned(),
                problem: "is left out, but must be a list of words, such as [\"left\", \"right\"]; without it \
                          whatever is said goes to the block `action` of a `template`"
                    .to_owned(),
            });
        }
        if options.luck.as_ref().is_some_and(|field| field == "seed") {
            return wrong("luck", "seed".into(), "another field: `seed` has the scene");
        }
        if let Some([low, high]) = options.reward_bounds
            && low > high
        {
            return wrong(
                "reward_bounds",
                vec![low, high].into(),
                "two numbers, the lower first",
            );
        }
        if !(1..=1_000_000).contains(&options.step_limit) {
            let found = options.step_limit.into();
            return wrong("step_limit", found, "from 1 to 1000000");
        }
        if !(0.01..=86_400.0).contains(&options.timeout) {
            let found = options.timeout.into();
            return wrong("timeout", found, "from 0.01 to 86400 seconds");
        }
        Ok(options)
    }

    /// As they are set, for the config.
    pub fn in_force(&self) -> Value {
        in_force(self)
    }

    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }
}
