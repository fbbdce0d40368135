//! `lapwing completions` and `lapwing man`: the command line, as shells and manuals want it.

use std::io::Write;

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::subject::InputError;
use crate::args::Cli;
use crate::out;

/// Prints the completions.
pub fn completions(shell: Shell) -> Result<()> {
    // Into memory first: the generator panics where nobody reads.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lapwing", &mut script);
    out::raw().write_all(&script)?;
    Ok(())
}

/// Prints a page in the form that `man` reads.
pub fn manual(of: Option<&str>) -> Result<()> {
    let mut whole = Cli::command();
    whole.build();
    let names: Vec<String> = commands(&whole).map(|c| c.get_name().to_owned()).collect();
    let command = match of {
        None => whole,
        Some(name) => match commands(&whole).find(|command| command.get_name() == name) {
            Some(command) => command.clone(),
            None => {
                let nearest = lapwing_env::suggestion(name, &names);
                let problem = format!("no such command{nearest}; there are {}", names.join(", "));
                return Err(InputError::new(format!("`{name}`"), problem).into());
            }
        },
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command.disable_help_flag(true)).render(&mut page)?;
    out::raw().write_all(&page)?;
    Ok(())
}

fn commands(whole: &Command) -> impl Iterator<Item = &Command> {
    whole
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
}
