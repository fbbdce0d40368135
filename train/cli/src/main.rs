//! The program: what was typed, what is done, and how it ends.

mod args;
mod board;
mod commands;
mod describe;
mod interrupt;
mod keys;
mod out;
mod picture;
mod progress;
mod screen;
mod serve;
mod table;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use lapwing_model::ModelError;
use lapwing_tensor::GpuError;
use lapwing_train::{ConfigError, Error};

use args::{Cli, Command};
use interrupt::Stopped;

fn main() -> ExitCode {
    // First of all: this may be the process in which a stranger's tokenizer runs.
    lapwing_model::isolate_text();
    quiet_driver();
    quiet_panics();
    outlive_limits();
    let cli = Cli::parse();
    out::set_quiet(cli.quiet);
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever closed the pipe has read enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Stopped>() => {
            out::say(&error.to_string());
            ExitCode::from(interrupt::STATUS)
        }
        Err(error) => {
            out::error(&format!("{error:#}{}", hint(&error)));
            ExitCode::from(if is_usage(&error) { 2 } else { 1 })
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    match &cli.command {
        Command::Train(train) => commands::train::train(|| cli.open_gpu(), train),
        Command::Sweep(sweep) => commands::sweep::sweep(cli.adapter_index, sweep),
        Command::Eval(eval) => commands::eval::eval(|| cli.open_gpu(), eval),
        Command::Probe(probe) => commands::probe::probe(|| cli.open_gpu(), probe),
        Command::Play(play) if play.human => commands::by_hand::play(play),
        Command::Play(play) if play.player.player.is_some() => commands::play::by_another(play),
        Command::Play(play) => commands::play::by_model(|| cli.open_gpu(), play),
        Command::Score(score) => commands::score::score(|| cli.open_gpu(), score),
        Command::Generate(generate) => commands::generate::generate(|| cli.open_gpu(), generate),
        Command::Serve(serve) => commands::serve::serve(|| cli.open_gpu(), serve),
        Command::Merge(merge) => commands::merge::merge(merge),
        Command::Pretrain(pretrain) if !pretrain.imitation.from.is_empty() => {
            commands::pretrain::imitate(|| cli.open_gpu(), pretrain)
        }
        Command::Pretrain(pretrain) => commands::pretrain::pretrain(|| cli.open_gpu(), pretrain),
        Command::Doctor(doctor) => commands::doctor::doctor(|| cli.open_gpu(), doctor),
        Command::Report(report) => commands::report::report(report),
        Command::Watch(watch) => commands::watch::watch(watch),
        Command::Export(export) => commands::export::export(export),
        Command::Config(request) => commands::config::show(request),
        Command::Games => commands::games::list(),
        Command::Adapters => commands::adapters::list(cli.adapter_index),
        Command::Completions { shell } => commands::shell::completions(*shell),
        Command::Man { command } => commands::shell::manual(command.as_deref()),
    }
}

/// Without a desktop session, a layer that comes with Mesa prints "error: XDG_RUNTIME_DIR is invalid or not set" each
/// time it is asked for adapters. It sorts adapters by the screen they drive, which cannot matter then; this disables it.
fn quiet_driver() {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none()
        && std::env::var_os("MESA_VK_DEVICE_SELECT").is_none()
    {
        // Safety: the first thing that the program does as itself, so no other thread reads the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

/// Some damaged `tokenizer.json` make their library panic. That is caught and told as an error, and told once is enough.
fn quiet_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !lapwing_model::panic_is_caught() {
            tell(panic);
        }
    }));
}

/// A write beyond the limit on the size of files fails, and is told, instead of ending the process.
fn outlive_limits() {
    // Safety: no handler is installed, and no other thread runs yet.
    #[cfg(unix)]
    unsafe {
        use nix::sys::signal::{SigHandler, Signal, signal};
        let _ = signal(Signal::SIGXFSZ, SigHandler::SigIgn);
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// What to type about an error that can be cured so.
fn hint(error: &anyhow::Error) -> &'static str {
    let in_run = error.downcast_ref::<Error>();
    if let Some(Error::WrongNumbers { .. }) = in_run {
        return " (--adapter-index N chooses one; `lapwing doctor` tests them)";
    }
    let model = in_run.and_then(|error| match error {
        Error::Model(error) => Some(error),
        _ => None,
    });
    if let Some(ModelError::NotNumbers) = error.downcast_ref::<ModelError>().or(model) {
        return " (`lapwing doctor` tells whether the GPU computes right)";
    }
    let gpu = match (in_run, model) {
        (Some(Error::Gpu(error)), _) | (_, Some(ModelError::Gpu(error))) => Some(error),
        _ => None,
    };
    match error.downcast_ref::<GpuError>().or(gpu) {
        Some(GpuError::NoSuchDevice { .. } | GpuError::Unfit { .. } | GpuError::Refused { .. }) => {
            " (--adapter-index N chooses one; `lapwing adapters` lists them)"
        }
        Some(GpuError::OutOfMemory(_)) => " (train.tokens_per_batch, train.group_size)",
        Some(GpuError::Failed(_)) => " (`lapwing doctor` tells whether the GPU computes right)",
        _ => "",
    }
}

/// Whether what was typed is at fault; clap ends with the same code.
fn is_usage(error: &anyhow::Error) -> bool {
    // An error of a run speaks for the one it wraps, which is therefore no link of the chain.
    match error.downcast_ref::<Error>() {
        Some(Error::UnknownGame(_) | Error::Options(_)) => true,
        Some(Error::Config(error)) => error.is_usage(),
        _ => error
            .downcast_ref::<ConfigError>()
            .is_some_and(ConfigError::is_usage),
    }
}
