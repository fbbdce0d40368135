//! A training step of a value network: plays its episodes, then updates the network as DQN or PQN.

use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{Episode, Progress, Seat, seeds};
use web_time::Instant;

use crate::LearnError;
use crate::config::LearnerKind;
use crate::metrics::StepMetrics;
use crate::value::learner::{NO_NETWORK, NetworkLearner, NetworkOptions, NetworkRollout};
use crate::value::player::ValuePlayer;
use crate::value::{dqn, pqn};

impl NetworkLearner {
    /// Plays the episodes of a step with exploration, each on its own scene.
    pub(crate) fn play(
        &self,
        options: &NetworkOptions<'_>,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<NetworkRollout, LearnError> {
        let seed = options.train.seed;
        let seat = |i| {
            let draw = |attempt| seeds::derive(seed, "scene", &[step, i, attempt]);
            Ok(Seat {
                scene: self.scenes.training(&*self.scenario, draw)?,
                luck: seeds::derive(seed, "luck", &[step, i]),
                reply: seeds::derive(seed, "reply", &[step, i]),
            })
        };
        let seats = (0..options.value.episodes).map(seat);
        let seats: Vec<Seat> = seats.collect::<Result<_, LearnError>>()?;
        let count = seats.len() * self.scenario.agents();
        progress.phase("rollout", count, "episodes");
        let mut player =
            ValuePlayer::exploring(&self.network, &self.encoder, options.epsilon(step), count);
        let referee = self.referee();
        let limit = referee.step_limit;
        let mut watch = |episodes: &[Episode]| progress.done(Episode::played(episodes, limit));
        let episodes = referee.play(&*self.scenario, &seats, &mut [&mut player], &mut watch)?;
        Ok(NetworkRollout {
            seats,
            episodes,
            trajectories: player.trajectories.unwrap_or_default(),
        })
    }

    /// Makes one training step. Returns its metrics and episodes.
    ///
    /// # Errors
    /// If the game or the device fails.
    pub fn step(
        &mut self,
        options: &NetworkOptions<'_>,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<(StepMetrics, NetworkRollout), LearnError> {
        let started = Instant::now();
        let mut played = self.play(options, step, progress)?;
        let seconds_rollout = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let (value, updates_dropped) = match options.learner {
            LearnerKind::Dqn => dqn::train(self, options, step, &played, progress)?,
            LearnerKind::Pqn => pqn::train(self, options, step, &mut played, progress)?,
            LearnerKind::MsGrpo => unreachable!("{NO_NETWORK}"),
        };
        let metrics = StepMetrics {
            step: step + 1,
            play: PlayMetrics::of(self.scenario.actions(), &played.episodes),
            seconds_rollout,
            seconds_update: started.elapsed().as_secs_f64(),
            updates_dropped,
            value,
            ..StepMetrics::default()
        };
        Ok((metrics, played))
    }
}
