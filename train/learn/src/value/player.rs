//! A network at play: the action of the largest Q, or now and then any.

use std::sync::Arc;

use crate::value::network::Network;
use crate::value::sight::{Shape, Sight};
use lapwing_play::PlayError;
use lapwing_play::players::scripted::{Chances, word};
use lapwing_play::{Ask, Player, Reply};

/// What one agent saw, and what it made of it, turn by turn.
#[derive(Debug, Clone, Default)]
pub struct Path {
    /// the state before each turn, and behind them the one that an episode was stopped in
    pub sights: Vec<Arc<Sight>>,
    /// the largest Q of each state before a turn
    pub values: Vec<f64>,
    /// whether the last state is one that the episode was stopped in
    stopped: bool,
}

impl Path {
    /// Whether the episode was stopped in a state that is still worth something, which is then the last of its states.
    pub fn goes_on(&self) -> bool {
        self.stopped
    }
}

/// Plays by a network. It goes by the planes of a game, which hold what the observation holds.
pub struct ValuePlayer<'a> {
    network: Network,
    shape: &'a Shape,
    /// the chance of any action
    epsilon: f64,
    chances: Chances,
    /// by episode, where they are to be learned from
    paths: Option<Vec<Path>>,
}

impl<'a> ValuePlayer<'a> {
    /// Always the best action; of equals the first.
    pub fn greedy(network: &Network, shape: &'a Shape) -> ValuePlayer<'a> {
        ValuePlayer {
            network: network.without_gradients(),
            shape,
            epsilon: 0.0,
            chances: Chances::default(),
            paths: None,
        }
    }

    /// With a chance of `epsilon` any action instead; what so many episodes see is kept.
    pub fn exploring(
        network: &Network,
        shape: &'a Shape,
        epsilon: f64,
        episodes: usize,
    ) -> ValuePlayer<'a> {
        ValuePlayer {
            epsilon,
            paths: Some(vec![Path::default(); episodes]),
            ..ValuePlayer::greedy(network, shape)
        }
    }

    /// What was kept.
    pub fn into_paths(self) -> Vec<Path> {
        self.paths.unwrap_or_default()
    }
}

/// The place of the largest, the first of equals.
pub fn best(values: &[f32]) -> usize {
    let mut best = 0;
    for (place, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = place;
        }
    }
    best
}

impl Player for ValuePlayer<'_> {
    fn act(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Reply>, PlayError> {
        let see = |ask: &Ask<'_>| self.shape.see(ask.game, ask.agent, ask.turn).map(Arc::new);
        let sights: Vec<Arc<Sight>> = asks.iter().map(see).collect::<Result<_, _>>()?;
        let batch = self.network.batch(sights.iter().map(|sight| &**sight));
        let q = self.network.forward(&batch).to_vec()?;
        let actions = q.len() / asks.len();
        let mut replies = Vec::with_capacity(asks.len());
        for ((ask, sight), q) in asks.iter().zip(sights).zip(q.chunks(actions)) {
            let best = best(q);
            let mut action = best;
            if self.epsilon > 0.0 {
                let chance = self.chances.of(ask, "exploration");
                if chance.chance(self.epsilon) {
                    action = chance.below(actions);
                }
            }
            replies.push(word(ask, action));
            if let Some(paths) = &mut self.paths {
                paths[ask.episode].sights.push(sight);
                paths[ask.episode].values.push(f64::from(q[best]));
            }
        }
        Ok(replies)
    }

    fn stopped(&mut self, ask: &Ask<'_>) -> Result<(), PlayError> {
        // A limit that is seen coming is an end like any other.
        if let Some(paths) = self.paths.as_mut().filter(|_| !self.shape.has_limit()) {
            let sight = self.shape.see(ask.game, ask.agent, ask.turn)?;
            let path = &mut paths[ask.episode];
            path.sights.push(Arc::new(sight));
            path.stopped = true;
        }
        Ok(())
    }
}
