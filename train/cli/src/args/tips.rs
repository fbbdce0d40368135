//! Tips for options of other programs that are settings here.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{CommandFactory, Parser};
use lapwing_train::config;

use super::Cli;
use crate::out;

/// Options of other programs, and the settings that mean about the same.
const SETTINGS: [(&str, &str); 4] = [
    ("batch-size", "train.groups"),
    ("episodes", "train.group_size"),
    ("epochs", "train.steps"),
    ("learning-rate", "train.lr"),
];

/// Returns the parser's error with the control characters of the command line escaped.
pub fn printable(error: Error) -> Error {
    let words = std::env::args_os().map(|word| out::line(&word.to_string_lossy()).into_owned());
    Cli::try_parse_from(words).err().unwrap_or(error)
}

/// Replaces the parser's guess at an unknown option by the setting of that name, if the command has `--set`.
pub fn with_setting(mut error: Error) -> Error {
    let cli = Cli::command();
    let command = std::env::args_os().find_map(|word| cli.find_subcommand(&word));
    let has_settings = command.is_some_and(|c| c.get_arguments().any(|a| a.get_id() == "set"));
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && has_settings
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(key) = setting(option)
    {
        let tip = format!("this is a setting: --set {key}=VALUE");
        error.remove(ContextKind::SuggestedArg);
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
        // It would list the options that were given as required ones.
        error.remove(ContextKind::Usage);
    }
    error
}

/// Returns the setting that an option such as `--lr` or `--group-size` means.
fn setting(option: &str) -> Option<String> {
    let name = option.trim_start_matches('-');
    let other = SETTINGS.iter().find(|(other, _)| *other == name);
    let other = other.map(|(_, key)| (*key).to_owned());
    other.or_else(|| config::key_of_name(&name.replace('-', "_")))
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
