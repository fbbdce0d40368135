//! The options of an external environment: `[game.options]`.

use lapwing_env::OptionRange::{Real, Whole};
use lapwing_env::{DeclaredOptions, OptionsError, refused, wrong};
use serde_json::Value;

lapwing_env::options! {
    pub(super) struct ExternalOptions;
    /// blocks that replace those of `default.jinja`: a file, or the text itself
    template: Option<String> = None;
    /// the action words; if omitted, the agent's whole reply goes to the template
    actions: Option<Vec<String>> = None;
    /// an expression that is true for an episode that counts as a success
    success: String = "done and return > 0".to_owned();
    /// the field of a reset that takes a seed for chance after the start; if omitted, chance follows from the scene
    luck: Option<String> = None;
    /// the lowest and the highest reward of a step; others are an error
    reward_bounds: Option<[f64; 2]> = None;
    /// turns of an episode
    step_limit: usize = 100, in Whole(1, 1_000_000);
    /// seconds until an answer, also to the first reset, for which a program may have to load
    timeout: f64 = 60.0, in Real(0.01, 86_400.0);
}

impl ExternalOptions {
    pub(crate) fn checked(game: &str, given: &Value) -> Result<ExternalOptions, OptionsError> {
        let options = ExternalOptions::read(game, given)?;
        let refused = |option, found: Value, wanted| Err(refused(game, option, found, wanted));
        if let Some(words) = &options.actions {
            let known = "a list of different words in small letters, without space around them";
            // A reply is compared in small letters.
            let is_good = |(i, word): (usize, &String)| {
                let is_plain = word.trim() == word && *word == word.to_lowercase();
                !word.is_empty() && is_plain && !words[..i].contains(word)
            };
            if words.is_empty() || !words.iter().enumerate().all(is_good) {
                return refused("actions", words.clone().into(), known);
            }
        } else if options.template.is_none() {
            let problem = "is not set: wanted the words that the agent may reply, such as --set \
                           'game.options.actions=[\"left\",\"right\"]', or a `template` whose block `action` takes any reply";
            return Err(wrong(game, "actions", problem.to_owned()));
        }
        if options.luck.as_ref().is_some_and(|field| field == "seed") {
            return refused("luck", "seed".into(), "another field: `seed` has the scene");
        }
        if let Some([low, high]) = options.reward_bounds
            && low > high
        {
            let found = vec![low, high].into();
            return refused("reward_bounds", found, "two numbers, the lower first");
        }
        Ok(options)
    }
}
