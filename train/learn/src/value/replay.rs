//! Prioritised replay (Schaul et al. 2016): what was lived through, drawn the likelier the more it surprised.
//!
//! ```text
//! P(i) = w_i / Σ w, w_i = (|δ_i| + 1e-6)^alpha           what is new: the largest w that there ever was
//! importance_i = (N P(i))^-beta / max over the batch     takes back the bias that drawing so brings
//! ```

use std::sync::Arc;

use lapwing_tensor::NamedValues;
use lapwing_tensor::random::Random;

use crate::value::sight::Sight;
use crate::value::tree::SumTree;

/// Keeps what brought no surprise at all in play.
const LEAST: f64 = 1e-6;

/// A state, an action, and what came of it over some turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// the state
    pub sight: Arc<Sight>,
    /// what was done there
    pub action: usize,
    /// what the turns brought, discounted
    pub reward: f32,
    /// the state that they led to; `None` if nothing is to be expected from there
    pub next: Option<Arc<Sight>>,
    /// what the value of that state counts
    pub discount: f32,
}

/// A draw of some transitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// where each is
    pub places: Vec<usize>,
    /// what each counts in the loss, 1 at most
    pub importance: Vec<f64>,
}

/// The latest transitions, up to a number.
#[derive(Debug)]
pub struct Replay {
    transitions: Vec<Transition>,
    capacity: usize,
    /// the place of the next one
    next: usize,
    tree: SumTree,
    alpha: f64,
    /// the largest weight that any ever had
    largest: f64,
}

impl Replay {
    /// Nothing yet; weights are surprises to the power of `alpha`.
    ///
    /// # Panics
    /// If there is room for none.
    pub fn new(capacity: usize, alpha: f64) -> Replay {
        Replay {
            transitions: Vec::new(),
            capacity,
            next: 0,
            tree: SumTree::new(capacity),
            alpha,
            largest: 1.0,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.transitions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.transitions.is_empty()
    }

    /// Adds one, in the place of the oldest if there is no more room.
    pub fn push(&mut self, transition: Transition) {
        match self.transitions.get_mut(self.next) {
            Some(oldest) => *oldest = transition,
            None => self.transitions.push(transition),
        }
        self.tree.set(self.next, self.largest);
        self.next = (self.next + 1) % self.capacity;
    }

    /// The one at a place.
    pub fn get(&self, place: usize) -> &Transition {
        &self.transitions[place]
    }

    /// Draws so many, stratified; some may come twice.
    ///
    /// # Panics
    /// If there are none.
    pub fn draw(&self, count: usize, beta: f64, random: &mut Random) -> Drawn {
        let places = self.tree.draw(count, || random.uniform());
        let all = self.len() as f64 / self.tree.total();
        let of = |place: &usize| (all * self.tree.get(*place)).powf(-beta);
        let importance: Vec<f64> = places.iter().map(of).collect();
        let most = importance.iter().copied().fold(0.0, f64::max);
        Drawn {
            importance: importance.iter().map(|weight| weight / most).collect(),
            places,
        }
    }

    /// Notes how much each of these surprised: by how far its value was off.
    pub fn surprised(&mut self, places: &[usize], errors: &[f64]) {
        for (place, error) in places.iter().zip(errors) {
            // As it can be written down, so that a run that goes on draws the same.
            let weight = f64::from((error.abs() + LEAST).powf(self.alpha) as f32);
            self.tree.set(*place, weight);
            self.largest = self.largest.max(weight);
        }
    }

    /// All of it, in numbers.
    pub fn state(&self) -> Vec<NamedValues> {
        let mut sights: [Vec<f32>; 2] = Default::default();
        let [lengths, ones] = &mut sights;
        let mut rows = Vec::new();
        for (place, transition) in self.transitions.iter().enumerate() {
            let of = [Some(&transition.sight), transition.next.as_ref()];
            for sight in of {
                // 0 stands for no state, so that a state counts one more than it has ones.
                lengths.push(sight.map_or(0.0, |sight| 1.0 + sight.ones.len() as f32));
                if let Some(sight) = sight {
                    ones.push(sight.turns_left);
                    ones.extend(sight.ones.iter().map(|one| *one as f32));
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
        let [lengths, ones] = sights;
        vec![
            named("replay.lengths", lengths),
            named("replay.sights", ones),
            named("replay.rows", rows),
            named("replay.at", vec![self.next as f32, self.largest as f32]),
        ]
    }

    /// Puts it back, into one of the same size; `None` if it is not what [`Replay::state`] gives.
    #[must_use]
    pub fn restored(mut self, state: &[NamedValues]) -> Option<Replay> {
        let find = |wanted: &str| {
            let found = state.iter().find(|(name, _, _)| name == wanted);
            found.map(|(_, _, values)| &values[..])
        };
        let lengths = find("replay.lengths")?;
        let (mut sights, rows) = (find("replay.sights")?, find("replay.rows")?);
        let &[next, largest] = find("replay.at")? else {
            return None;
        };
        let mut sight = |length: f32| -> Option<Option<Arc<Sight>>> {
            if length == 0.0 {
                return Some(None);
            }
            let (own, rest) = sights.split_at_checked(length as usize)?;
            sights = rest;
            Some(Some(Arc::new(Sight {
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
                sight: sight(lengths[0])??,
                next: sight(*lengths.get(1)?)?,
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
        let sight = |ones: &[u32]| {
            Arc::new(Sight {
                ones: ones.to_vec(),
                turns_left: 0.25,
            })
        };
        Transition {
            sight: sight(&[number as u32, 70_000]),
            action: number % 4,
            reward: number as f32,
            next: (!is_last).then(|| sight(&[])),
            discount: 0.5,
        }
    }

    fn filled(count: usize) -> Replay {
        let mut replay = Replay::new(8, 0.5);
        (0..count).for_each(|number| replay.push(transition(number, number % 3 == 0)));
        replay
    }

    #[test]
    fn the_oldest_makes_room() {
        let replay = filled(11);
        assert_eq!(replay.len(), 8);
        let there: Vec<f32> = (0..8).map(|place| replay.get(place).reward).collect();
        assert_eq!(there, [8.0, 9.0, 10.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    /// What is new is as likely as the likeliest, so that everything is learned from before it is forgotten.
    #[test]
    fn what_is_new_has_the_largest_weight_there_ever_was() {
        let mut replay = filled(3);
        assert_eq!(replay.tree.total(), 3.0);
        replay.surprised(&[0, 1], &[-9.0, 0.0]);
        assert!((replay.tree.get(0) - 3.0).abs() < 1e-6);
        // Never 0: sqrt(1e-6).
        assert!((replay.tree.get(1) - 1e-3).abs() < 1e-9);
        replay.surprised(&[0], &[0.0]);
        replay.push(transition(3, false));
        assert!((replay.tree.get(3) - 3.0).abs() < 1e-6);
    }

    /// By hand: weights 1, 2, 1 of 4, so P = 1/4, 1/2, 1/4; (3 P)^-1 = 4/3, 2/3, 4/3; over the largest 1, 1/2, 1.
    #[test]
    fn importance_is_one_at_most_and_takes_the_drawing_back() {
        let mut replay = filled(3);
        replay.surprised(&[1], &[4.0 - LEAST]);
        let drawn = replay.draw(4, 1.0, &mut Random::new(1));
        assert_eq!(drawn.places, [0, 1, 1, 2]);
        for (importance, wanted) in drawn.importance.iter().zip([1.0, 0.5, 0.5, 1.0]) {
            assert!((importance - wanted).abs() < 1e-9, "{drawn:?}");
        }
        let even = replay.draw(4, 0.0, &mut Random::new(1));
        assert_eq!(even.importance, [1.0; 4]);
    }

    /// Pearson's test over single draws: as often as (|δ| + 1e-6)^alpha. 4 degrees of freedom; beyond 23.5 is one in ten
    /// thousand, and the seed is fixed.
    #[test]
    fn draws_are_as_frequent_as_surprise_to_the_power_of_alpha() {
        let mut replay = Replay::new(5, 0.5);
        (0..5).for_each(|number| replay.push(transition(number, false)));
        let errors = [1.0, 4.0, 9.0, 16.0, 25.0];
        replay.surprised(&[0, 1, 2, 3, 4], &errors);
        let mut random = Random::new(3);
        let mut counts = [0.0; 5];
        for _ in 0..15_000 {
            counts[replay.draw(1, 0.4, &mut random).places[0]] += 1.0;
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
    fn what_is_put_back_draws_the_same() {
        for count in [3, 8, 11] {
            let mut replay = filled(count);
            replay.surprised(&[0, 2], &[0.3, 7.0]);
            let again = Replay::new(8, 0.5).restored(&replay.state()).unwrap();
            assert_eq!(again.transitions, replay.transitions);
            assert_eq!((again.next, again.largest), (replay.next, replay.largest));
            let draw = |replay: &Replay| replay.draw(6, 0.4, &mut Random::new(9));
            assert_eq!(draw(&again), draw(&replay));
            // Into one with less room it does not fit.
            assert_eq!(
                Replay::new(4, 0.5).restored(&replay.state()).is_none(),
                count > 4
            );
        }
    }
}
