//! Prioritised replay (Schaul et al. 2016): transitions with larger errors are drawn more often.
//!
//! ```text
//! P(i) = w_i / Σ w, w_i = (|δ_i| + 1e-6)^alpha           a new transition: the largest w so far
//! importance_i = (N P(i))^-beta / max over the batch     corrects the bias of the draw
//! ```

use std::sync::Arc;

use lapwing_tensor::NamedValues;
use lapwing_tensor::random::Random;

use crate::value::encoder::EncodedState;
use crate::value::sum_tree::SumTree;

/// Lets transitions without error be drawn again.
const PRIORITY_FLOOR: f64 = 1e-6;

/// A state, an action, and the rewards and state that followed over some turns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transition {
    /// The state.
    pub(crate) state: Arc<EncodedState>,
    /// The action.
    pub(crate) action: usize,
    /// Sum of the discounted rewards.
    pub(crate) reward: f32,
    /// State after the turns. `None` if it is terminal.
    pub(crate) next: Option<Arc<EncodedState>>,
    /// Discount of the value of that state.
    pub(crate) discount: f32,
}

/// Drawn transitions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplayDraw {
    /// Index of each.
    pub(crate) indices: Vec<usize>,
    /// Weight of each in the loss, at most 1.
    pub(crate) importance: Vec<f64>,
}

/// A ring buffer of transitions.
#[derive(Debug)]
pub(crate) struct Replay {
    transitions: Vec<Transition>,
    capacity: usize,
    /// index of the next one
    next: usize,
    tree: SumTree,
    alpha: f64,
    /// largest weight so far
    largest: f64,
}

impl Replay {
    /// Makes an empty buffer. Weights are errors to the power of `alpha`.
    pub(crate) fn new(capacity: usize, alpha: f64) -> Replay {
        Replay {
            transitions: Vec::new(),
            capacity,
            next: 0,
            tree: SumTree::new(capacity),
            alpha,
            largest: 1.0,
        }
    }

    /// Returns the number of transitions.
    pub(crate) fn len(&self) -> usize {
        self.transitions.len()
    }

    /// Adds a transition. A full buffer replaces the oldest one.
    pub(crate) fn push(&mut self, transition: Transition) {
        match self.transitions.get_mut(self.next) {
            Some(oldest) => *oldest = transition,
            None => self.transitions.push(transition),
        }
        self.tree.set(self.next, self.largest);
        self.next = (self.next + 1) % self.capacity;
    }

    /// Returns a transition.
    pub(crate) fn get(&self, place: usize) -> &Transition {
        &self.transitions[place]
    }

    /// Draws transitions by stratified sampling, with repetition.
    pub(crate) fn draw(&self, count: usize, beta: f64, random: &mut Random) -> ReplayDraw {
        let indices = self.tree.draw(count, || random.uniform());
        let all = self.len() as f64 / self.tree.total();
        let of = |index: &usize| (all * self.tree.get(*index)).powf(-beta);
        let importance: Vec<f64> = indices.iter().map(of).collect();
        let most = importance.iter().copied().fold(0.0, f64::max);
        ReplayDraw {
            importance: importance.iter().map(|weight| weight / most).collect(),
            indices,
        }
    }

    /// Sets the weights of these transitions from their errors.
    pub(crate) fn reprioritise(&mut self, indices: &[usize], errors: &[f64]) {
        for (index, error) in indices.iter().zip(errors) {
            // As f32, which checkpoints store, so that a resumed run draws the same.
            let weight = f64::from((error.abs() + PRIORITY_FLOOR).powf(self.alpha) as f32);
            self.tree.set(*index, weight);
            self.largest = self.largest.max(weight);
        }
    }

    /// Returns the whole buffer as tensors for a checkpoint.
    pub(crate) fn to_values(&self) -> Vec<NamedValues> {
        let mut states: [Vec<f32>; 2] = Default::default();
        let [lengths, ones] = &mut states;
        let mut rows = Vec::new();
        for (place, transition) in self.transitions.iter().enumerate() {
            let of = [Some(&transition.state), transition.next.as_ref()];
            for state in of {
                // 0 stands for no state; a state has the length of its ones plus 1.
                lengths.push(state.map_or(0.0, |state| 1.0 + state.ones.len() as f32));
                if let Some(state) = state {
                    ones.push(state.turns_left);
                    ones.extend(state.ones.iter().map(|one| *one as f32));
                }
            }
            rows.extend([
                transition.action as f32,
                transition.reward,
                transition.discount,
                self.tree.get(place) as f32,
            ]);
        }
        let named = |name: &str, values: Vec<f32>| (name.to_owned(), vec![values.len()], values);
        let [lengths, ones] = states;
        vec![
            named("replay.lengths", lengths),
            named("replay.sights", ones),
            named("replay.rows", rows),
            named("replay.at", vec![self.next as f32, self.largest as f32]),
        ]
    }

    /// Restores the result of [`Replay::to_values`]. `None` if it does not fit this buffer.
    #[must_use]
    pub(crate) fn restored(mut self, state: &[NamedValues]) -> Option<Replay> {
        let find = |wanted: &str| {
            let found = state.iter().find(|(name, _, _)| name == wanted);
            found.map(|(_, _, values)| &values[..])
        };
        let lengths = find("replay.lengths")?;
        let (mut states, rows) = (find("replay.sights")?, find("replay.rows")?);
        let &[next, largest] = find("replay.at")? else {
            return None;
        };
        let mut state = |length: f32| -> Option<Option<Arc<EncodedState>>> {
            if length == 0.0 {
                return Some(None);
            }
            let (own, rest) = states.split_at_checked(length as usize)?;
            states = rest;
            Some(Some(Arc::new(EncodedState {
                turns_left: own[0],
                ones: own[1..].iter().map(|one| *one as u32).collect(),
            })))
        };
        if lengths.len() > 2 * self.capacity {
            return None;
        }
        for (place, (lengths, row)) in lengths.chunks(2).zip(rows.chunks(4)).enumerate() {
            let &[action, reward, discount, weight] = row else {
                return None;
            };
            self.transitions.push(Transition {
                state: state(lengths[0])??,
                next: state(*lengths.get(1)?)?,
                action: action as usize,
                reward,
                discount,
            });
            self.tree.set(place, f64::from(weight));
        }
        (self.next, self.largest) = (next as usize, f64::from(largest));
        (self.next < self.capacity).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(number: usize, is_last: bool) -> Transition {
        let state = |ones: &[u32]| {
            Arc::new(EncodedState {
                ones: ones.to_vec(),
                turns_left: 0.25,
            })
        };
        Transition {
            state: state(&[number as u32, 70_000]),
            action: number % 4,
            reward: number as f32,
            next: (!is_last).then(|| state(&[])),
            discount: 0.5,
        }
    }

    fn filled(count: usize) -> Replay {
        let mut replay = Replay::new(8, 0.5);
        (0..count).for_each(|number| replay.push(transition(number, number % 3 == 0)));
        replay
    }

    #[test]
    fn the_oldest_is_replaced() {
        let replay = filled(11);
        assert_eq!(replay.len(), 8);
        let there: Vec<f32> = (0..8).map(|place| replay.get(place).reward).collect();
        assert_eq!(there, [8.0, 9.0, 10.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    /// New transitions have the largest weight, so that each is drawn before it is replaced.
    #[test]
    fn new_transitions_have_the_largest_weight() {
        let mut replay = filled(3);
        assert_eq!(replay.tree.total(), 3.0);
        replay.reprioritise(&[0, 1], &[-9.0, 0.0]);
        assert!((replay.tree.get(0) - 3.0).abs() < 1e-6);
        // Never 0: sqrt(1e-6).
        assert!((replay.tree.get(1) - 1e-3).abs() < 1e-9);
        replay.reprioritise(&[0], &[0.0]);
        replay.push(transition(3, false));
        assert!((replay.tree.get(3) - 3.0).abs() < 1e-6);
    }

    /// By hand: weights 1, 2, 1 of 4, so P = 1/4, 1/2, 1/4; (3 P)^-1 = 4/3, 2/3, 4/3; over the largest 1, 1/2, 1.
    #[test]
    fn importance_corrects_the_draw_and_is_at_most_one() {
        let mut replay = filled(3);
        replay.reprioritise(&[1], &[4.0 - PRIORITY_FLOOR]);
        let drawn = replay.draw(4, 1.0, &mut Random::new(1));
        assert_eq!(drawn.indices, [0, 1, 1, 2]);
        for (importance, wanted) in drawn.importance.iter().zip([1.0, 0.5, 0.5, 1.0]) {
            assert!((importance - wanted).abs() < 1e-9, "{drawn:?}");
        }
        let even = replay.draw(4, 0.0, &mut Random::new(1));
        assert_eq!(even.importance, [1.0; 4]);
    }

    /// Pearson's test over single draws in proportion to (|δ| + 1e-6)^alpha. 4 degrees of freedom; beyond 23.5 is one in ten
    /// thousand, and the seed is fixed.
    #[test]
    fn draws_are_as_frequent_as_errors_to_the_power_of_alpha() {
        let mut replay = Replay::new(5, 0.5);
        (0..5).for_each(|number| replay.push(transition(number, false)));
        let errors = [1.0, 4.0, 9.0, 16.0, 25.0];
        replay.reprioritise(&[0, 1, 2, 3, 4], &errors);
        let mut random = Random::new(3);
        let mut counts = [0.0; 5];
        for _ in 0..15_000 {
            counts[replay.draw(1, 0.4, &mut random).indices[0]] += 1.0;
        }
        // Their roots are 1 to 5, of 15.
        let of = |(place, count): (usize, &f64)| {
            let expected = 1000.0 * (place + 1) as f64;
            (count - expected).powi(2) / expected
        };
        let chi_squared: f64 = counts.iter().enumerate().map(of).sum();
        assert!(chi_squared < 23.5, "{chi_squared}: {counts:?}");
    }

    #[test]
    fn a_restored_buffer_draws_the_same() {
        for count in [3, 8, 11] {
            let mut replay = filled(count);
            replay.reprioritise(&[0, 2], &[0.3, 7.0]);
            let again = Replay::new(8, 0.5).restored(&replay.to_values()).unwrap();
            assert_eq!(again.transitions, replay.transitions);
            assert_eq!((again.next, again.largest), (replay.next, replay.largest));
            let draw = |replay: &Replay| replay.draw(6, 0.4, &mut Random::new(9));
            assert_eq!(draw(&again), draw(&replay));
            // A smaller buffer cannot hold it.
            assert_eq!(
                Replay::new(4, 0.5).restored(&replay.to_values()).is_none(),
                count > 4
            );
        }
    }
}
