//! `lapwing pretrain`: a small base model from scratch, or an adapter that imitates recorded episodes.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::doctor::self_test;
use lapwing_lab::pretrain::{self, PretrainOptions, Reading};
use lapwing_learn::config::Weights;
use lapwing_learn::imitation::{self, Imitation};
use lapwing_play::sample::KeptEpisode;
use lapwing_play::{Episode, Progress};
use lapwing_train::Config;
use lapwing_train::record::{directory, episode_file};
use lapwing_train::state::{RunPurpose, State};

use super::loaded_model::InputError;
use crate::args::{DeviceArgs, PretrainArgs};
use crate::hub::hub;
use crate::progress::Terminal;
use crate::screen::counted;
use crate::{folders, out};

pub fn pretrain(device: DeviceArgs, arguments: &PretrainArgs) -> Result<()> {
    // Checked before anything is loaded.
    directory::check_free(&arguments.out)?;
    match arguments.from.is_empty() {
        true => from_scratch(device, arguments),
        false => imitate(device, arguments),
    }
}

fn imitate(device: DeviceArgs, arguments: &PretrainArgs) -> Result<()> {
    if arguments.configs.len() > 1 {
        let problem = "takes one config, whose [lora] and [policy] are used; the games are those of the episodes";
        return Err(InputError::new("--from", problem).into());
    }
    let mut config = arguments.config()?;
    // Imitation has no reference model.
    config.train.beta = 0.0;
    let whole = config.train.weights == Weights::All;
    let samples = arguments.from.iter().map(|path| episode_file::read(path));
    let samples: Vec<Vec<KeptEpisode>> = samples.collect::<Result<_, _>>()?;
    let samples = samples.concat();
    let how = Imitation {
        min_return: arguments.min_return,
        only_success: arguments.only_success,
        steps: arguments.steps.map(|steps| steps as usize),
        epochs: arguments.epochs.unwrap_or(3),
        lr: arguments.lr.map_or_else(|| config.imitation_lr(), Ok)?,
        seed: arguments.seed,
    };
    let gpu = device.open()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    let mut state = State::new(&gpu, hub(), config, RunPurpose::Train, &terminal)?;
    let most = state.learner.policy.model.config().max_positions;
    let data = how.demonstrations(&samples, &state.world().prompts, most)?;
    let replies = |episodes: &[Episode]| episodes.iter().map(|e| e.turns.len()).sum::<usize>();
    terminal.line(&format!(
        "imitating {} replies of {}, {} held out; skipped: {} of evaluations, {} others, {} invalid replies",
        replies(&data.train),
        counted(data.train.len(), "episode"),
        counted(data.held_out.len(), "episode"),
        counted(data.evaluations, "episode"),
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
            true
        },
    )?;
    drop(terminal);
    state.save(&arguments.out)?;
    let mut out = out::shown();
    match imitated.before.zip(imitated.after) {
        Some((before, after)) => writeln!(
            out,
            "held-out loss, nats a token: {before:.4} before, {after:.4} after ({})",
            counted(data.held_out.len(), "episode")
        )?,
        None => writeln!(out, "There is only one scene, so no held-out loss.")?,
    }
    let dir = arguments.out.display();
    match whole {
        false => writeln!(out, "The adapter is in {dir} (--adapter takes it).")?,
        true => writeln!(out, "The model is in {dir} (--model takes it).")?,
    }
    Ok(())
}

fn from_scratch(device: DeviceArgs, arguments: &PretrainArgs) -> Result<()> {
    let default = PretrainOptions::default();
    let game = |config: &String| Ok(Config::load(config, &[])?.game);
    let games: Vec<_> = arguments.configs.iter().map(game).collect::<Result<_>>()?;
    let (games, others) = match games.is_empty() {
        true => (default.games, default.others),
        false => (games, Vec::new()),
    };
    let how = PretrainOptions {
        games,
        others,
        width: arguments.width.unwrap_or(default.width),
        steps: arguments
            .steps
            .map_or(default.steps, |steps| steps as usize),
        seed: arguments.seed,
    };
    if let Some(game) = how.games.iter().find(|game| game.name.is_external()) {
        let problem = "a base model learns built-in games only; --from FILE imitates episodes that `lapwing play --keep` wrote";
        return Err(InputError::new(game.name.without_user(), problem).into());
    }
    let gpu = device.open()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    terminal.phase("pretraining", how.steps, "updates");
    let reading = pretrain::pretrain(&gpu, &how, &arguments.out, |update| {
        terminal.done(update.step);
        let text = format!("loss {:.4} (minimum {:.4})", update.loss, update.floor);
        terminal.steps(update.step, how.steps, &text, &text);
    })?;
    drop(terminal);
    let shown = |chance: fn(&Reading) -> f64| {
        let one = |it: &Reading| format!("{} {:.2}", it.topic, chance(it));
        reading.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let mut out = out::shown();
    let means = shown(|it| it.mean);
    writeln!(out, "probability of the right answer, by topic: {means}")?;
    let by_answer = shown(|it| it.by_answer);
    writeln!(out, "with all answers equally frequent: {by_answer}")?;
    writeln!(out, "The model is in {}.", arguments.out.display())?;
    Ok(())
}
