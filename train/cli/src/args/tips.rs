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
    let command = command.filter(|c| c.get_arguments().any(|a| a.get_id() == "set"));
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some(command) = command
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(key) = setting(command.get_name(), option)
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

/// Returns the setting that an option such as `--lr` or `--group-size` means, if it has an effect on this command.
fn setting(command: &str, option: &str) -> Option<String> {
    let option = option.trim_start_matches('-');
    let name = option.replace('-', "_");
    let of_eval = format!("eval.{name}");
    match command {
        _ if name == "step_limit" => Some("game.options.step_limit".to_owned()),
        "train" | "sweep" | "pretrain" => {
            let other = SETTINGS.iter().find(|(other, _)| *other == option);
            let other = other.map(|(_, key)| (*key).to_owned());
            other.or_else(|| config::key_of_name(&name))
        }
        "eval" | "probe" => config::explain(&of_eval, &[]).ok().map(|_| of_eval),
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
            ("sweep", "--epochs", "train.steps"),
            ("eval", "--seed", "eval.seed"),
            ("probe", "--temperature", "eval.temperature"),
            ("play", "--step-limit", "game.options.step_limit"),
        ];
        for (command, option, key) in cases {
            let found = setting(command, option);
            assert_eq!(found.as_deref(), Some(key), "{command} {option}");
        }
        for (command, option) in [("train", "--stpes"), ("eval", "--lr"), ("play", "--steps")] {
            assert_eq!(setting(command, option), None, "{command} {option}");
        }
        let keys = SETTINGS.map(|(_, key)| key);
        let known = |key: &str| key.split('.').next_back().and_then(config::key_of_name);
        assert!(keys.iter().all(|key| known(key).as_deref() == Some(key)));
    }
}
