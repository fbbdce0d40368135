//! The interface between the training loop and a learner, for the language model and for the value networks.

use std::path::{Path, PathBuf};

use lapwing_env::Scenario;
use lapwing_learn::batch::Group;
use lapwing_learn::config::StepOptions;
use lapwing_learn::language::LanguageLearner;
use lapwing_learn::metrics::StepMetrics;
use lapwing_learn::ms_grpo;
use lapwing_learn::value::learner::{NetworkLearner, NetworkOptions};
use lapwing_play::evaluate::play_against;
use lapwing_play::sample::{EpisodeOrigin, KeptEpisode};
use lapwing_play::scenes::Scenes;
use lapwing_play::{Episode, Progress, Seat};
use lapwing_tensor::Parameters;

use crate::record::directory;
use crate::snapshot::Snapshot;
use crate::{Config, Error};

/// A policy that learns, as the training loop, evaluations and checkpoints see it.
pub trait Learner {
    /// Returns the run's game, with its training and held-out scenes.
    fn game(&self) -> (&dyn Scenario, &Scenes);

    /// Returns the language model, if this is one.
    fn language(&mut self) -> Option<&mut LanguageLearner> {
        None
    }

    /// Plays the run's game on these seats, without learning.
    ///
    /// # Errors
    /// If the game, the model or the device fails.
    fn evaluate(
        &mut self,
        config: &Config,
        seats: &[Seat],
        progress: &dyn Progress,
    ) -> Result<Vec<Episode>, Error>;

    /// Makes one training step. Returns its metrics and the episodes that it played.
    ///
    /// # Errors
    /// If the game, the model or the device fails.
    fn step(
        &mut self,
        config: &Config,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<(StepMetrics, Vec<Group>), Error>;

    /// An episode of one of its games as a record.
    ///
    /// # Errors
    /// If a template fails.
    fn sample(
        &self,
        world: usize,
        place: EpisodeOrigin<'_>,
        episode: &Episode,
    ) -> Result<KeptEpisode, Error>;

    /// Optimiser updates made so far.
    fn updates(&self) -> u64;

    /// The trained weights and their optimiser state.
    ///
    /// # Panics
    /// If nothing is trained.
    fn parameters(&self) -> &Parameters;

    /// Copies what was learned from the device into a snapshot.
    ///
    /// # Errors
    /// If the device is lost.
    fn capture(&self, snapshot: &mut Snapshot) -> Result<(), Error>;

    /// Restores what [`Learner::capture`] copied.
    ///
    /// # Panics
    /// If it is of another config.
    fn restore(&mut self, config: &Config, snapshot: &Snapshot);

    /// Returns the places of the latest and the best weights in a run directory.
    fn paths(&self, run: &Path) -> [PathBuf; 2];

    /// Writes the trained weights.
    ///
    /// # Errors
    /// If it cannot be written, or is not finite; then the old files stay.
    fn save(&self, config: &Config, place: &Path) -> Result<(), Error>;
}

impl Config {
    /// The sections that a step of a language model reads.
    pub fn language(&self) -> StepOptions<'_> {
        StepOptions {
            policy: &self.policy,
            train: &self.train,
            credit: &self.credit,
            critic: &self.critic,
        }
    }

    /// The sections that a step of a value network reads.
    pub fn network(&self) -> NetworkOptions<'_> {
        NetworkOptions {
            learner: self.learner,
            train: &self.train,
            value: &self.value,
            dqn: &self.dqn,
            pqn: &self.pqn,
        }
    }
}

impl Learner for LanguageLearner {
    fn game(&self) -> (&dyn Scenario, &Scenes) {
        let world = self.world();
        (&*world.scenario, &world.scenes)
    }

    fn language(&mut self) -> Option<&mut LanguageLearner> {
        Some(self)
    }

    fn evaluate(
        &mut self,
        config: &Config,
        seats: &[Seat],
        progress: &dyn Progress,
    ) -> Result<Vec<Episode>, Error> {
        Ok(self.play(&config.policy, 0, seats, config.eval.temperature, progress)?)
    }

    fn step(
        &mut self,
        config: &Config,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<(StepMetrics, Vec<Group>), Error> {
        Ok(ms_grpo::step(self, &config.language(), step, progress)?)
    }

    fn sample(
        &self,
        world: usize,
        place: EpisodeOrigin<'_>,
        episode: &Episode,
    ) -> Result<KeptEpisode, Error> {
        let is_mixed_in = world > 0;
        let world = &self.worlds[world];
        let game = is_mixed_in.then_some(&*world.name);
        let (place, actions) = (EpisodeOrigin { game, ..place }, world.scenario.actions());
        let prompts = Some(&world.prompts);
        Ok(KeptEpisode::of(episode, place, actions, prompts)?)
    }

    fn updates(&self) -> u64 {
        LanguageLearner::updates(self)
    }

    fn parameters(&self) -> &Parameters {
        self.parameters.as_ref().expect("a run that trains")
    }

    fn capture(&self, snapshot: &mut Snapshot) -> Result<(), Error> {
        let parameters = self.parameters();
        let critic = self.critic.as_ref().map(|critic| &critic.parameters);
        snapshot.unsolved.clone_from(&self.unsolved);
        snapshot.updates = parameters.steps();
        snapshot.parameters = parameters.state()?;
        snapshot.critic_updates = critic.map_or(0, Parameters::steps);
        snapshot.critic = critic.map_or(Ok(Vec::new()), Parameters::state)?;
        Ok(())
    }

    #[track_caller]
    fn restore(&mut self, _: &Config, snapshot: &Snapshot) {
        let parameters = self.parameters.as_mut().expect("a run that trains");
        parameters.restore(&snapshot.parameters, snapshot.updates);
        if let Some(critic) = &mut self.critic {
            let parameters = &mut critic.parameters;
            parameters.restore(&snapshot.critic, snapshot.critic_updates);
        }
        self.unsolved.clone_from(&snapshot.unsolved);
    }

    fn paths(&self, run: &Path) -> [PathBuf; 2] {
        let last = match self.companions {
            Some(_) => directory::model(run),
            None => directory::adapter(run),
        };
        [last, directory::best(run)]
    }

    fn save(&self, config: &Config, place: &Path) -> Result<(), Error> {
        let policy = &self.policy;
        if let Some(companions) = &self.companions {
            return Ok(policy.model.save_whole(place, companions)?);
        }
        let base = config.model.source()?.name();
        let adapter = policy.adapter.as_ref().expect("a run has an adapter");
        Ok(adapter.save(place, &base)?)
    }
}

impl Learner for NetworkLearner {
    fn game(&self) -> (&dyn Scenario, &Scenes) {
        (&*self.scenario, &self.scenes)
    }

    fn evaluate(
        &mut self,
        _: &Config,
        seats: &[Seat],
        progress: &dyn Progress,
    ) -> Result<Vec<Episode>, Error> {
        let (scenario, referee, mut player) =
            (&*self.scenario, self.referee(), self.greedy_player());
        let episodes = play_against(scenario, &referee, seats, &mut player, &mut [], progress);
        Ok(episodes?)
    }

    fn step(
        &mut self,
        config: &Config,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<(StepMetrics, Vec<Group>), Error> {
        let (metrics, played) = NetworkLearner::step(self, &config.network(), step, progress)?;
        let agents = self.scenario.agents();
        let group = |(number, episode): (usize, Episode)| Group {
            scene: played.seats[number / agents].scene,
            agent: number % agents,
            episodes: vec![episode],
            ..Group::default()
        };
        let groups = played.episodes.into_iter().enumerate().map(group);
        Ok((metrics, groups.collect()))
    }

    fn sample(
        &self,
        _: usize,
        place: EpisodeOrigin<'_>,
        episode: &Episode,
    ) -> Result<KeptEpisode, Error> {
        let actions = self.scenario.actions();
        Ok(KeptEpisode::of(episode, place, actions, None)?)
    }

    fn updates(&self) -> u64 {
        self.parameters.steps()
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn capture(&self, snapshot: &mut Snapshot) -> Result<(), Error> {
        snapshot.updates = self.parameters.steps();
        snapshot.parameters = self.parameters.state()?;
        snapshot.memory = self.memory()?;
        Ok(())
    }

    #[track_caller]
    fn restore(&mut self, config: &Config, snapshot: &Snapshot) {
        self.parameters
            .restore(&snapshot.parameters, snapshot.updates);
        self.restore_memory(&config.network(), &snapshot.memory);
    }

    fn paths(&self, run: &Path) -> [PathBuf; 2] {
        [directory::network(run), directory::best_network(run)]
    }

    fn save(&self, _: &Config, place: &Path) -> Result<(), Error> {
        Ok(self.save_network(place)?)
    }
}
