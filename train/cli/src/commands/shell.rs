//! `lapwing shim`, `lapwing completions`, `lapwing man` and `lapwing help`: texts for other programs and for people.

use std::io::Write;

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use lapwing_train::ConfigError;

use crate::args::Cli;
use crate::out;

pub fn shim() -> Result<()> {
    out::raw().write_all(include_bytes!("../shim.py"))?;
    Ok(())
}

macro_rules! pages {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../docs/", $name, ".md")))),*]
    };
}

/// The documentation, for users of an installed program.
static PAGES: &[(&str, &str)] = pages![
    "browser"
    "clusters" "commands" "configuration" "credit" "devices" "environments" "errors" "evaluation" "health-checks" "libraries"
    "models" "own-game" "performance" "players" "presets" "prompts" "records" "serving" "sweeps" "training" "value-learners"
    "games/frozen-lake" "games/snake" "games/sokoban" "games/rooms" "games/2048"
];

/// Prints the help of a command, a page of the documentation, or both if they share the name. A page may be named by its
/// path.
pub fn help(topic: Option<&str>) -> Result<()> {
    let mut cli = command_line();
    let Some(topic) = topic else {
        write!(out::raw(), "{}", cli.render_help())?;
        return Ok(());
    };
    let name = topic.trim_start_matches("docs/").trim_end_matches(".md");
    let pages = PAGES.iter();
    let pages = pages.map(|(page, _)| page.trim_start_matches("games/").to_owned());
    let known = names(&cli).chain(pages).collect();
    let page = PAGES
        .iter()
        .find(|(page, _)| *page == name || page.ends_with(&format!("/{name}")));
    let command = cli.find_subcommand_mut(name);
    if page.is_none() && command.is_none() {
        return Err(unknown("command or page", topic, known));
    }
    let help = command.map_or(String::new(), |command| {
        format!("{}\n", command.render_help())
    });
    write!(out::raw(), "{help}{}", page.map_or("", |(_, text)| text))?;
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
    let found = command.map_or(Some(&cli), |name| cli.find_subcommand(name));
    let name = command.unwrap_or_default();
    let page = found.ok_or_else(|| unknown("command", name, names(&cli).collect()))?;
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

fn names(cli: &Command) -> impl Iterator<Item = String> {
    cli.get_subcommands()
        .map(|command| command.get_name().to_owned())
}

fn unknown(kind: &str, name: &str, known: Vec<String>) -> anyhow::Error {
    let (nearest, known) = (lapwing_env::suggestion(name, &known), known.join(", "));
    let problem = format!("unknown {kind} `{name}`{nearest}; there are {known}");
    ConfigError::Invalid(problem).into()
}
