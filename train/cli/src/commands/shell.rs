//! `lapwing shim`, `lapwing completions` and `lapwing man`: texts for other programs.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::loaded_model::InputError;
use crate::args::Cli;
use crate::out;

pub fn shim() -> Result<()> {
    out::raw().write_all(include_bytes!("../shim.py"))?;
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
    let mut cli = Cli::command();
    cli.build();
    let page = match command {
        None => &cli,
        Some(name) => cli.find_subcommand(name).ok_or_else(|| {
            let names = cli.get_subcommands().map(|c| c.get_name().to_owned());
            let names: Vec<String> = names.filter(|name| name != "help").collect();
            let nearest = lapwing_env::suggestion(name, &names);
            let names = names.join(", ");
            let problem = format!("unknown command{nearest}; the commands are {names}");
            InputError::new(format!("`{name}`"), problem)
        })?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page.clone().disable_help_flag(true)).render(&mut text)?;
    out::raw().write_all(&text)?;
    Ok(())
}
