//! `lapwing completions`, `lapwing man` and `lapwing help`.

use std::io::Write;

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use lapwing_train::ConfigError;

use crate::args::Cli;
use crate::out;

macro_rules! pages {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../docs/", $name, ".md")))),*]
    };
}

/// The documentation, for users of an installed program.
static PAGES: &[(&str, &str)] = pages![
    "commands" "configuration" "credit" "devices" "environments" "errors" "evaluation" "health-checks" "libraries"
    "models" "players" "presets" "prompts" "records" "serving" "sweeps" "training" "value-learners"
    "games/frozen-lake" "games/snake" "games/sokoban" "games/rooms" "games/2048"
];

/// Prints the help of a command, a page of the documentation, or both if they share the name. A page may be named by its
/// path.
pub fn help(topic: Option<&str>) -> Result<()> {
    let mut cli = command_line();
    let pages: Vec<String> = PAGES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let Some(topic) = topic else {
        let pages = pages.join(", ");
        write!(
            out::raw(),
            "{}\nPages of the documentation: {pages}\n",
            cli.render_help()
        )?;
        return Ok(());
    };
    let name = topic.strip_prefix("docs/").unwrap_or(topic);
    let name = name.strip_suffix(".md").unwrap_or(name);
    let page = PAGES
        .iter()
        .find(|(page, _)| *page == name || page.strip_prefix("games/") == Some(name));
    let known = [names(&cli), pages].concat();
    let command = cli.find_subcommand_mut(name);
    if command.is_none() && page.is_none() {
        return Err(unknown("command or page", topic, known));
    }
    if let Some(command) = command {
        writeln!(out::raw(), "{}", command.render_help())?;
    }
    if let Some((_, page)) = page {
        write!(out::raw(), "{page}")?;
    }
    Ok(())
}

pub fn completions(shell: Shell) -> Result<()> {
    // Into memory, because the generator panics if standard output is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lapwing", &mut script);
    out::raw().write_all(&script)?;
    Ok(())
}

pub fn manual(command: Option<&str>) -> Result<()> {
    let cli = command_line();
    let page = match command {
        None => &cli,
        Some(name) => cli
            .find_subcommand(name)
            .ok_or_else(|| unknown("command", name, names(&cli)))?,
    };
    let page = clap_mangen::Man::new(page.clone().disable_help_flag(true));
    let mut text = Vec::new();
    let version = concat!("lapwing ", env!("CARGO_PKG_VERSION"));
    page.source(version).render(&mut text)?;
    out::raw().write_all(&text)?;
    Ok(())
}

fn command_line() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

fn unknown(kind: &str, name: &str, known: Vec<String>) -> anyhow::Error {
    let nearest = lapwing_env::suggestion(name, &known);
    let known = known.join(", ");
    ConfigError::Invalid(format!(
        "unknown {kind} `{name}`{nearest}; there are {known}"
    ))
    .into()
}

fn names(cli: &Command) -> Vec<String> {
    cli.get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect()
}
