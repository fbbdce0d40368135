//! Tips for options of other programs that are settings here.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{CommandFactory, Parser};
use lapwing_train::config;

use super::Cli;
use crate::out;

/// Options of other programs, and the settings of training that mean about the same.
const SETTINGS: [(&str, &str); 4] = [
    ("batch-size", "train.groups=VALUE"),
    ("episodes", "eval.episodes=VALUE or train.group_size=VALUE"),
    ("epochs", "train.steps=VALUE"),
    ("learning-rate", "train.lr=VALUE"),
];

/// Returns the parser's error with the control characters of the command line escaped.
pub fn printable(error: Error) -> Error {
    let words = std::env::args_os().map(|word| out::line(&word.to_string_lossy()).into_owned());
    Cli::try_parse_from(words).err().unwrap_or(error)
}

/// Replaces the parser's guess at an unknown option that names a setting by that setting, if the command has `--set`.
pub fn with_setting(mut error: Error) -> Error {
    if error.kind() == ErrorKind::UnknownArgument {
        // That an option may be a value after `--`, which it never is.
        error.remove(ContextKind::Suggested);
    }
    let cli = Cli::command();
    let command = std::env::args_os().find_map(|word| cli.find_subcommand(&word));
    let command = command.filter(|c| c.get_arguments().any(|a| a.get_id() == "set"));
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some(command) = command
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(of_training) = setting("train", option)
    {
        let tip = match setting(command.get_name(), option) {
            Some(setting) => format!("this is a setting: --set {setting}"),
            None => format!("only training has such a setting: --set {of_training}"),
        };
        error.remove(ContextKind::SuggestedArg);
        let tip = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tip);
        // It would list the options that were given as required ones.
        error.remove(ContextKind::Usage);
    }
    error
}

/// Returns the setting that an option such as `--lr` or `--group-size` means, if it has an effect on this command.
fn setting(command: &str, option: &str) -> Option<String> {
    let option = option.trim_start_matches('-');
    let name = option.replace('-', "_");
    let key = format!("eval.{name}");
    match command {
        _ if name == "step_limit" => Some("game.options.step_limit=VALUE".to_owned()),
        "train" | "pretrain" => {
            let other = SETTINGS.iter().find(|(other, _)| *other == option);
            let other = other.map(|(_, setting)| (*setting).to_owned());
            other.or_else(|| Some(config::key_of_name(&name)? + "=VALUE"))
        }
        "eval" | "probe" | "play" => config::explain(&key, &[]).ok().map(|_| key + "=VALUE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_programs_are_settings() {
        let cases = [
            ("train", "--lr", "train.lr"),
            ("train", "--group-size", "train.group_size"),
            ("train", "--rank", "lora.rank"),
            ("train", "--epochs", "train.steps"),
            ("train", "--name", "name"),
            ("train", "--temperature", "policy.temperature"),
            ("play", "--temperature", "eval.temperature"),
            ("eval", "--seed", "eval.seed"),
            ("probe", "--temperature", "eval.temperature"),
            ("play", "--step-limit", "game.options.step_limit"),
        ];
        for (command, option, key) in cases {
            let found = setting(command, option);
            let wanted = format!("{key}=VALUE");
            assert_eq!(found, Some(wanted), "{command} {option}");
        }
        for (command, option) in [("train", "--stpes"), ("eval", "--lr"), ("play", "--steps")] {
            assert_eq!(setting(command, option), None, "{command} {option}");
        }
        let keys = SETTINGS.map(|(_, setting)| setting.split('=').next().unwrap());
        let known = |key: &str| key.split('.').next_back().and_then(config::key_of_name);
        assert!(keys.iter().all(|key| known(key).as_deref() == Some(key)));
    }
}
