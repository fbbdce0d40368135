//! `lapwing pretrain`: a small base model from nothing, or an adapter from the episodes of others.

use std::io::Write;

use anyhow::{Result, bail};
use lapwing_lab::doctor::self_test;
use lapwing_lab::pretrain;
use lapwing_lab::pretrain::Pretraining;
use lapwing_learn::config::Weights;
use lapwing_learn::imitation;
use lapwing_learn::imitation::Imitation;
use lapwing_play::Episode;
use lapwing_play::Progress;
use lapwing_play::sample::Sample;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Config;
use lapwing_train::base::source::Source;
use lapwing_train::record::{directory, episode_file};
use lapwing_train::state::{Purpose, State};

use crate::args;
use crate::folders;
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

/// Teaches an adapter, or all weights of the model, what others have said.
pub fn imitate(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Pretrain,
) -> Result<()> {
    if arguments.configs.len() > 1 {
        bail!(
            "--from takes one config, whose [lora] and [policy] are used; the games are those of the episodes"
        );
    }
    // Nobody waits for a refusal.
    directory::check_free(&arguments.out)?;
    let mut config = arguments.config()?;
    // Nothing is held against a reference.
    config.train.beta = 0.0;
    let whole = config.train.weights == Weights::All;
    let files = arguments.imitation.from.iter();
    let samples: Vec<Vec<Sample>> = files
        .map(|path| episode_file::read(path))
        .collect::<Result<_, _>>()?;
    let samples = samples.concat();
    let is_built_in = matches!(config.model.source()?, Source::BuiltIn);
    let how = Imitation {
        min_return: arguments.imitation.min_return,
        only_success: arguments.imitation.only_success,
        steps: arguments.steps.map(|steps| steps as usize),
        epochs: arguments.imitation.epochs.unwrap_or(3),
        lr: arguments
            .imitation
            .lr
            .unwrap_or(match (is_built_in, whole) {
                (true, _) => 2e-3,
                (false, false) => 2e-4,
                (false, true) => 2e-5,
            }),
        seed: arguments.seed,
    };
    let gpu = open_gpu()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    let mut state = State::new(&gpu, hub(), config, Purpose::Train, &terminal)?;
    let most = state.learner.policy.model.config().max_positions;
    let data = how.demonstrations(&samples, &state.world().prompts, most)?;
    let replies = |episodes: &[Episode]| episodes.iter().map(|e| e.turns.len()).sum::<usize>();
    terminal.line(&format!(
        "imitating {} replies of {} episodes, {} episodes held out; left out: {} episodes of evaluations, {} others, {} \
         replies that cannot be read",
        replies(&data.train),
        data.train.len(),
        data.held_out.len(),
        data.evaluations,
        data.filtered,
        data.unreadable,
    ));
    terminal.phase("imitation", how.updates(&data), "updates");
    let imitated = imitation::imitate(
        &mut state.learner,
        &state.config.train,
        &data,
        &how,
        &mut |update| {
            terminal.done(update.step);
            let text = format!("loss {:.4}", update.loss);
            terminal.steps(update.step, update.steps, &text, &text);
        },
    )?;
    drop(terminal);
    state.save(&arguments.out)?;
    let mut out = out::shown();
    match imitated.before.zip(imitated.after) {
        Some((before, after)) => writeln!(
            out,
            "held-out loss, nats a token: {before:.4} before, {after:.4} after ({} episodes)",
            data.held_out.len()
        )?,
        None => writeln!(out, "There is one scene only: no loss was held out.")?,
    }
    let dir = arguments.out.display();
    match whole {
        false => writeln!(out, "The adapter is in {dir} (--adapter takes it).")?,
        true => writeln!(out, "The model is in {dir} (--model takes it).")?,
    }
    Ok(())
}

/// Trains all weights of a new model and writes it down.
pub fn pretrain(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Pretrain,
) -> Result<()> {
    let usual = Pretraining::default();
    let how = Pretraining {
        games: match arguments.configs.is_empty() {
            true => usual.games.clone(),
            false => {
                let game = |config: &String| Ok(Config::load(config, &[])?.game);
                arguments.configs.iter().map(game).collect::<Result<_>>()?
            }
        },
        skill: arguments.skill.unwrap_or(usual.skill),
        steps: arguments.steps.map_or(usual.steps, |steps| steps as usize),
        seed: arguments.seed,
        ..usual
    };
    let gpu = open_gpu()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    terminal.phase("pretraining", how.steps, "updates");
    pretrain::pretrain(&gpu, &how, &arguments.out, |so_far| {
        terminal.done(so_far.step);
        let text = format!("loss {:.4} (at least {:.4})", so_far.loss, so_far.floor);
        terminal.steps(so_far.step, how.steps, &text, &text);
    })?;
    drop(terminal);
    writeln!(out::shown(), "The model is in {}.", arguments.out.display())?;
    Ok(())
}
