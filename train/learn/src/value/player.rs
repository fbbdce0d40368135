//! Plays with a network: the action of the largest Q, or a random one.

use std::sync::Arc;

use lapwing_play::PlayError;
use lapwing_play::players::scripted::{EpisodeStreams, word};
use lapwing_play::{ActionRequest, Player, Reply};

use crate::value::encoder::{EncodedState, PlaneEncoder};
use crate::value::network::Network;

/// The states of an episode and their values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trajectory {
    /// State before each turn, and for a truncated episode the one after the last turn.
    pub(crate) states: Vec<Arc<EncodedState>>,
    /// Largest Q of each state before a turn.
    pub(crate) values: Vec<f64>,
    /// Whether the episode was truncated in a state that has a value, which is the last of the states.
    pub(crate) bootstraps: bool,
}

/// Plays with a network on the feature planes of a game.
pub struct ValuePlayer<'a> {
    network: Network,
    encoder: &'a PlaneEncoder,
    /// probability of a random action
    epsilon: f64,
    chances: EpisodeStreams,
    /// by episode, if they are recorded for training
    pub(crate) trajectories: Option<Vec<Trajectory>>,
}

impl<'a> ValuePlayer<'a> {
    /// Plays the action of the largest Q, the first of equals.
    pub(crate) fn greedy(network: &Network, encoder: &'a PlaneEncoder) -> ValuePlayer<'a> {
        ValuePlayer {
            network: network.without_gradients(),
            encoder,
            epsilon: 0.0,
            chances: EpisodeStreams::default(),
            trajectories: None,
        }
    }

    /// Plays a random action with probability `epsilon`, and records the trajectories of this many episodes.
    pub(crate) fn exploring(
        network: &Network,
        encoder: &'a PlaneEncoder,
        epsilon: f64,
        episodes: usize,
    ) -> ValuePlayer<'a> {
        ValuePlayer {
            epsilon,
            trajectories: Some(vec![Trajectory::default(); episodes]),
            ..ValuePlayer::greedy(network, encoder)
        }
    }
}

/// Returns the index of the largest value, the first of equals.
pub(crate) fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}

impl Player for ValuePlayer<'_> {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let encode = |ask: &ActionRequest<'_>| {
            let state = self.encoder.encode(ask.game, ask.agent, ask.turn);
            state.map(Arc::new)
        };
        let states: Vec<Arc<EncodedState>> = asks.iter().map(encode).collect::<Result<_, _>>()?;
        let batch = self.network.batch(states.iter().map(|state| &**state));
        let q = self.network.forward(&batch).to_vec()?;
        let actions = q.len() / asks.len();
        let mut replies = Vec::with_capacity(asks.len());
        for ((ask, state), q) in asks.iter().zip(states).zip(q.chunks(actions)) {
            let best = argmax(q);
            let mut action = best;
            if self.epsilon > 0.0 {
                let chance = self.chances.of(ask, "exploration");
                if chance.chance(self.epsilon) {
                    action = chance.below(actions);
                }
            }
            replies.push(word(ask, action));
            if let Some(trajectories) = &mut self.trajectories {
                trajectories[ask.episode].states.push(state);
                trajectories[ask.episode].values.push(f64::from(q[best]));
            }
        }
        Ok(replies)
    }

    fn stopped(&mut self, ask: &ActionRequest<'_>) -> Result<(), PlayError> {
        // A limit that is an input is terminal.
        if self.encoder.limit.is_none()
            && let Some(trajectories) = &mut self.trajectories
        {
            let state = self.encoder.encode(ask.game, ask.agent, ask.turn)?;
            let trajectory = &mut trajectories[ask.episode];
            trajectory.states.push(Arc::new(state));
            trajectory.bootstraps = true;
        }
        Ok(())
    }
}
