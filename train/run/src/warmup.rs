//! The warm-up: before the first step, the model imitates a few episodes until its replies can be read. The run then
//! continues as one that starts from this adapter, which is also the KL reference.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lapwing_env::Scenario;
use lapwing_learn::config::Weights;
use lapwing_learn::imitation::{Imitation, imitate};
use lapwing_learn::language::LanguageLearner;
use lapwing_model::{Adapter, StoredAdapter};
use lapwing_play::players::scripted::{RandomPlayer, ScriptedPlayer};
use lapwing_play::sample::{EpisodeOrigin, EpisodePurpose, KeptEpisode};
use lapwing_play::{Episode, Player, Progress, Referee, Turn, seeds};

use crate::base::source::ModelSource;
use crate::config::WarmupConfig;
use crate::health::{cures, is_unreadable, readable};
use crate::learner::Learner;
use crate::record::directory;
use crate::record::episode_file;
use crate::state::State;
use crate::{Config, ConfigError, Error};

/// Scenes, and turns in each, that show whether replies can be read.
const SAMPLED: [usize; 2] = [4, 4];
/// Losses shown, at most.
const SHOWN: usize = 16;

impl WarmupConfig {
    /// Checks that there is a warm-up's player or file, before a run is begun.
    ///
    /// # Errors
    /// If the file cannot be read, or the game has no scripted player.
    pub fn check(&self, scenario: &dyn Scenario) -> Result<(), Error> {
        let wrong = |wanted: String| {
            let found = format!("{:?}", self.player);
            Err(ConfigError::range("warmup.player", found, wanted).into())
        };
        let file = Path::new(&self.player);
        match self.updates {
            0 => Ok(()),
            _ if !self.has_file() => match scenario.start(0, 0)?.best_actions(0) {
                None if self.player == "scripted" => {
                    let game = scenario.name();
                    wrong(format!(
                        "\"random\" or a file: {game} has no scripted player"
                    ))
                }
                _ => Ok(()),
            },
            _ if !file.is_file() => wrong(
                "\"random\", \"scripted\", or a file that `lapwing play --keep` wrote".to_owned(),
            ),
            _ => Ok(episode_file::read(file).map(drop)?),
        }
    }
}

impl Config {
    /// Returns the peak learning rate of an imitation, unless the user sets one.
    ///
    /// # Errors
    /// If the config names two models.
    pub fn imitation_lr(&self) -> Result<f64, ConfigError> {
        Ok(match (self.model.source()?, self.train.weights) {
            (ModelSource::BuiltIn, _) => 2e-3,
            (_, Weights::Lora) => 2e-4,
            (_, Weights::All) => 2e-5,
        })
    }
}

/// How a warm-up ended.
pub(crate) enum WarmupEnd {
    /// The run needs none, or had it, and has the KL reference again.
    Skipped,
    /// The weights are in the run directory. A checkpoint is needed for that to count.
    Trained,
    /// It was stopped. Nothing was saved, and resuming the run starts it again.
    Stopped,
}

/// Warms up the run in the directory `run`, unless it has a checkpoint.
///
/// # Errors
/// If there are no episodes to imitate, the device or the disk fails, or the loss is not finite.
pub(crate) fn warm_up<L: Learner>(
    state: &mut State<L>,
    run: &Path,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<WarmupEnd, Error> {
    let (config, dir) = (&state.config, directory::warmup(run));
    let learner = state.learner.language();
    let Some(learner) = learner.filter(|_| config.warmup.updates > 0) else {
        return Ok(WarmupEnd::Skipped);
    };
    let is_done = directory::checkpoints(run).exists();
    let mut losses = None;
    if !is_done {
        losses = imitated(learner, config, progress, stop)?;
        if losses.is_none() {
            return Ok(WarmupEnd::Stopped);
        }
        learner.save(config, &dir)?;
    }
    let policy = &mut learner.policy;
    let stored = StoredAdapter::read(policy.model.config(), &dir)?;
    if let Some(reference) = &mut policy.reference {
        reference.adapter = Some(Adapter::frozen(&policy.model, &stored));
        learner.share_reference(&dir)?;
    }
    let Some([first, last]) = losses else {
        return Ok(WarmupEnd::Skipped);
    };
    // With a new optimiser.
    let policy = &mut learner.policy;
    let (adapter, parameters) = Adapter::trained(&policy.model, &stored);
    (policy.adapter, learner.parameters) = (Some(adapter), Some(parameters));
    let turns = sample_turns(learner, config, progress)?;
    progress.line(&format!(
        "warm-up: loss {first:.3} at first, {last:.3} at the end; {}",
        readable(&turns)
    ));
    if is_unreadable(&turns) {
        progress.note(&format!("few replies can be read: {}", cures(config)));
    }
    Ok(WarmupEnd::Trained)
}

/// Trains the learner's weights on the episodes. Returns the first and the last loss; `None` if it was stopped.
fn imitated(
    learner: &mut LanguageLearner,
    config: &Config,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<[f64; 2]>, Error> {
    let (warmup, seed) = (&config.warmup, config.train.seed);
    warmup.check(&*learner.world().scenario)?;
    let samples = match warmup.has_file() {
        true => episode_file::read(warmup.player.as_ref())?,
        false => played(learner, config)?,
    };
    let how = Imitation {
        min_return: None,
        only_success: false,
        steps: Some(warmup.updates),
        epochs: 1,
        lr: match warmup.lr {
            0.0 => config.imitation_lr()?,
            lr => lr,
        },
        seed: seeds::derive(seed, "warmup order", &[]),
    };
    let most = learner.policy.model.config().max_positions;
    let data = how.demonstrations(&samples, &learner.world().prompts, most)?;
    progress.phase("warm-up", warmup.updates, "updates");
    let (mut losses, mut is_whole) = (Vec::new(), false);
    imitate(learner, &config.train, &data, &how, &mut |update| {
        losses.push(update.loss);
        progress.done(update.step);
        let (step, steps, loss) = (update.step, update.steps, update.loss);
        is_whole = step == steps;
        if step.is_multiple_of(steps.div_ceil(SHOWN)) {
            progress.line(&format!("warm-up {step}/{steps}  loss {loss:.4}"));
        }
        !stop.load(Relaxed)
    })?;
    let ends = losses.first().copied().zip(losses.last().copied());
    Ok(ends.filter(|_| is_whole).map(<[f64; 2]>::from))
}

/// Lets the random or the scripted player play, with replies in the form that the model shall learn.
fn played(learner: &LanguageLearner, config: &Config) -> Result<Vec<KeptEpisode>, Error> {
    let (world, count) = (learner.world(), config.warmup.episodes);
    let scenario = &*world.scenario;
    let seed = config.train.seed;
    let seats = world.scenes.warmup(scenario, "warmup", seed, count)?;
    let mut player: Box<dyn Player> = match &*config.warmup.player {
        "scripted" => Box::new(ScriptedPlayer::default()),
        _ => Box::new(RandomPlayer::default()),
    };
    let referee = Referee::of(scenario, 0.0);
    let mut episodes = referee.play(scenario, &seats, &mut [&mut *player], &mut |_| ())?;
    let (agents, actions) = (scenario.agents(), scenario.actions());
    let kept = |(number, episode): (usize, &mut Episode)| {
        for turn in &mut episode.turns {
            turn.text = config.policy.reply.say(&turn.text);
        }
        let place = EpisodeOrigin {
            step: 0,
            purpose: EpisodePurpose::Training,
            game: None,
            scene: seats[number / agents].scene,
            agent: number % agents,
        };
        let sample = KeptEpisode::of(episode, place, actions, None)?;
        Ok(sample.told(episode, &world.prompts.framing)?)
    };
    episodes.iter_mut().enumerate().map(kept).collect()
}

/// Samples a few turns on training scenes, to see whether the replies can be read.
///
/// # Errors
/// If the game, the model or the device fails.
pub fn sample_turns(
    learner: &mut LanguageLearner,
    config: &Config,
    progress: &dyn Progress,
) -> Result<Vec<Turn>, Error> {
    let ([scenes, turns], world) = (SAMPLED, learner.world());
    let seats = world
        .scenes
        .warmup(&*world.scenario, "sample", config.train.seed, scenes)?;
    let temperature = learner.temperature;
    let (scenario, referee, mut player) = learner.seated(&config.policy, 0, temperature);
    let referee = Referee {
        step_limit: turns.min(referee.step_limit),
        ..referee
    };
    progress.phase("sampled replies", scenes * turns, "turns");
    let mut watch =
        |episodes: &[Episode]| progress.done(episodes.iter().map(|it| it.turns.len()).sum());
    let episodes = referee.play(scenario, &seats, &mut [&mut player], &mut watch)?;
    Ok(episodes.into_iter().flat_map(|it| it.turns).collect())
}

#[cfg(test)]
mod tests;
