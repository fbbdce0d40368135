//! Tips for options that other programs have and that are settings here.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};
use lapwing_train::config;

use super::Cli;

/// Options of other programs, and the settings that mean the same.
const SETTINGS: [(&str, &str); 5] = [
    ("batch-size", "train.groups"),
    ("episodes", "train.group_size"),
    ("epochs", "train.steps"),
    ("learning-rate", "train.lr"),
    ("max-tokens", "policy.max_new_tokens"),
];

/// Replaces the parser's guess at an unknown option by the setting of that name, if the command has `--set`.
pub fn with_setting(mut error: Error) -> Error {
    let mut words = std::env::args();
    let cli = Cli::command();
    let command = words.find_map(|word| cli.find_subcommand(&word).cloned());
    let has_settings =
        |command: clap::Command| command.get_arguments().any(|a| a.get_id() == "set");
    if error.kind() != ErrorKind::UnknownArgument || !command.is_some_and(has_settings) {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let Some(key) = setting(option) else {
        return error;
    };
    let tip = format!("this is a setting: --set {key}=VALUE");
    error.remove(ContextKind::SuggestedArg);
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
    );
    error
}

/// Returns the setting that an option such as `--lr` or `--group-size` means.
fn setting(option: &str) -> Option<String> {
    let name = option.trim_start_matches('-');
    let mut others = SETTINGS.iter();
    match others.find(|(other, _)| *other == name) {
        Some((_, key)) => Some((*key).to_owned()),
        None => config::key_of_name(&name.replace('-', "_")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_programs_are_settings() {
        let cases = [
            ("--lr", "train.lr"),
            ("--group-size", "train.group_size"),
            ("--rank", "lora.rank"),
            ("--epochs", "train.steps"),
        ];
        for (option, key) in cases {
            assert_eq!(setting(option).as_deref(), Some(key), "{option}");
        }
        assert_eq!(setting("--stpes"), None);
        let keys = SETTINGS.map(|(_, key)| key);
        let known = |key: &str| key.split('.').next_back().and_then(config::key_of_name);
        assert!(keys.iter().all(|key| known(key).as_deref() == Some(key)));
    }
}
