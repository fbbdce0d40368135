//! The program `lapwing`: command line, exit status and setup of the process.

mod args;
mod board;
mod commands;
mod comparison;
mod describe;
mod exit_code;
mod folders;
mod hub;
mod interrupt;
mod keys;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
mod out;
mod picture;
mod progress;
mod records;
mod screen;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use lapwing_model::ModelError;
use lapwing_tensor::GpuError;
use lapwing_train::Error;

use args::{Cli, Command};
use interrupt::Stopped;

/// The variable with the number of threads of Mesa's software driver.
const DRIVER_THREADS: &str = "LP_NUM_THREADS";

fn main() -> ExitCode {
    // First, because this process may be the sandbox of an untrusted tokenizer.
    lapwing_model::run_sandbox_if_requested();
    set_environment();
    quiet_panics();
    outlive_limits();
    let cli =
        Cli::try_parse().unwrap_or_else(|error| args::with_setting(args::printable(error)).exit());
    out::set_quiet(cli.quiet);
    interrupt::end_with_sweep();
    let status = status(run(&cli));
    launch::leave(status);
    ExitCode::from(status)
}

/// Prints an error, and returns the exit status.
fn status(result: anyhow::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        // As in `lapwing games | head`.
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) if error.is::<Stopped>() => {
            out::print_always(&error.to_string());
            interrupt::STATUS
        }
        Err(error) => {
            out::error(&format!("{error:#}{}", hint(&error)));
            exit_code::of(&error)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let device = cli.device;
    let ranks = launch::connect(&cli.command)?;
    match &cli.command {
        Command::Train(train) => commands::train::train(device, train, ranks),
        Command::Sweep(sweep) => commands::sweep::sweep(device, sweep),
        Command::Eval(eval) => commands::eval::eval(device, eval),
        Command::Probe(probe) => commands::probe::probe(device, probe),
        Command::Play(play) if play.human => commands::by_hand::play(play),
        Command::Play(play) => commands::play::play(device, play),
        Command::Score(score) => commands::score::score(device, score),
        Command::Generate(generate) => commands::generate::generate(device, generate),
        Command::Serve(serve) => commands::serve::serve(device, serve),
        Command::Merge(merge) => commands::merge::merge(merge),
        Command::Pretrain(pretrain) => commands::pretrain::pretrain(device, pretrain),
        Command::Doctor(doctor) => commands::doctor::doctor(device, doctor),
        Command::Bench(bench) => commands::bench::bench(device, bench),
        Command::Report(report) => commands::report::report(report),
        Command::Watch(watch) => commands::watch::watch(watch),
        Command::Export(export) => commands::export::export(export),
        Command::Runs(runs) => commands::runs::list(runs),
        Command::Config {
            config,
            explain,
            json,
        } => commands::config::show(config, explain.as_deref(), *json),
        Command::Games { name, json } => commands::games::list(name.as_deref(), *json),
        Command::Devices { json } => commands::devices::list(device, *json),
        Command::Shim => commands::shell::shim(),
        Command::Completions { shell } => commands::shell::completions(*shell),
        Command::Man { command } => commands::shell::manual(command.as_deref()),
        Command::Help { topic } => commands::shell::help(topic.as_deref()),
    }
}

/// Reads the device from its old variable, too. Without a desktop session, also disables a layer of Mesa that sorts devices
/// by the screen they drive and prints "error: XDG_RUNTIME_DIR is invalid or not set".
///
/// Mesa's software driver divides a launch into as many parts as it has threads, by default one for each processor. On a few
/// processors it gets twice as many threads, so that less of a launch waits for a thread that starts late (LOG.md,
/// 2026-11-29; measured with two processors and up to eight threads).
fn set_environment() {
    let var = std::env::var_os;
    let old_device = var("LAPWING_ADAPTER_INDEX").filter(|_| var("LAPWING_DEVICE").is_none());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let few = (2..=4).contains(&processors) && var(DRIVER_THREADS).is_none();
    let is_headless = var("XDG_RUNTIME_DIR").is_none() && var("MESA_VK_DEVICE_SELECT").is_none();
    // Safety: no other thread runs yet.
    unsafe {
        if let Some(device) = old_device {
            std::env::set_var("LAPWING_DEVICE", device);
        }
        if is_headless {
            std::env::set_var("NODEVICE_SELECT", "1");
        }
        if few {
            std::env::set_var(DRIVER_THREADS, (2 * processors).to_string());
        }
    }
}

/// Does not print panics of the tokenizer library that become errors.
fn quiet_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !lapwing_model::panic_becomes_error() {
            print(panic);
            // Other processes of the run would wait for this one.
            launch::leave(101);
        }
    }));
}

/// Makes a write beyond the file size limit fail instead of ending the process.
fn outlive_limits() {
    // Safety: no handler is installed, and no other thread runs yet.
    #[cfg(unix)]
    unsafe {
        use nix::sys::signal::{SigHandler, Signal, signal};
        let _ = signal(Signal::SIGXFSZ, SigHandler::SigIgn);
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut io_errors = error.chain().filter_map(|e| e.downcast_ref::<io::Error>());
    io_errors.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns options and commands that help with this error.
fn hint(error: &anyhow::Error) -> &'static str {
    let in_run = error.downcast_ref::<Error>();
    let model = match in_run {
        Some(Error::Model(error)) => Some(error),
        _ => error.downcast_ref(),
    };
    let gpu = match (in_run, model) {
        (Some(Error::Gpu(error)), _) | (_, Some(ModelError::Gpu(error))) => Some(error),
        _ => error.downcast_ref(),
    };
    match (in_run, model, gpu) {
        (Some(Error::WrongNumbers(_)), ..) => {
            " (--device N selects another device; `lapwing doctor` tests them)"
        }
        (_, Some(ModelError::NotNumbers), _) | (.., Some(GpuError::Failed(_))) => {
            " (`lapwing doctor` tests the device)"
        }
        (.., Some(GpuError::NoSuchDevice { .. })) => "; `lapwing devices` lists them",
        (.., Some(GpuError::Unusable(_))) => {
            " (--device N selects a device; `lapwing devices` lists them)"
        }
        (.., Some(GpuError::OutOfMemory(_))) => " (train.tokens_per_batch, train.group_size)",
        _ => "",
    }
}
