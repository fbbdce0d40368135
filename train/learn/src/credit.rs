//! Credit assignment by turn: the variants of the advantage in [`ms_grpo`](crate::ms_grpo) (f64, on the host).
//!
//! Turn t is played in the state s_t (its [key](lapwing_env::Game::key)) and brings r_t (reward and shaping). The return of the episode is
//! C = r_1 + ... + r_T, and the return to go is R_t = r_t + gamma R_{t+1}. With means over the n episodes of the group:
//!
//! ```text
//! episode   A_t = (C - mean C) / F                                       MS-GRPO
//! gigpo     A_t = (C - mean C) / F + omega (R_t - mean R in s_t) / F     0 for a state that occurs once
//! planning  A_t = (Q_t - mean Q in s_t) / F                              Q_t = Q(s_t, a_t) of value iteration
//!           Q(s, a) = mean of r + gamma V(s') over the group's turns with a in s,  V(s) = max over a of Q(s, a)
//! critic    A_t = G_t / F,  G_t = d_t + gamma lambda G_{t+1},  d_t = r_t + gamma V(s_{t+1}) - V(s_t)
//!           V from a critic, 0 after the end of the game                 turn-level PPO
//! ```
//!
//! F is a standard deviation plus 1e-6, or 1 (`credit.normalise`). A group (or a state) of equal returns has zeros.
//!
//! No method subtracts the mean over the turns with the same number t. How many such terms an episode adds up depends on
//! when it stops, which would reward stopping or continuing as such (verl#7244). For the same reason G is divided but not
//! centred.

use std::collections::{BTreeMap, HashMap};

use lapwing_play::{Episode, Turn};

use crate::batch::Group;
use crate::config::{AdvantageScale, CreditConfig};

/// Advantages by group, episode and turn.
pub(crate) type Advantages = Vec<Vec<Vec<f64>>>;

/// A return.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Return {
    /// The sum of rewards and shaping.
    pub(crate) value: f64,
    /// Bound of its rounding error.
    pub(crate) error: f64,
}

/// Compares the returns of each set with each other: a deviation for each.
type Compare<'a> = dyn Fn(&[Vec<Return>]) -> Vec<Vec<f64>> + 'a;

/// Adds GiGPO's second term: the returns to go of the turns in each state, compared by `compare`.
pub(crate) fn add_states(
    advantages: &mut Advantages,
    credit: &CreditConfig,
    groups: &[Group],
    compare: &Compare<'_>,
) {
    let to_go = |episode: &Episode| returns_to_go(episode, credit.gamma);
    let of_group = |episodes: &[Episode]| episodes.iter().map(to_go).collect();
    let of_states = within_states(groups, of_group, compare);
    let all = advantages.iter_mut().flatten().flatten();
    for (advantage, of_state) in all.zip(of_states.into_iter().flatten().flatten()) {
        *advantage += credit.omega * of_state;
    }
}

/// The planned value of each turn's action, compared by `compare` with those of the group's other turns in the same state.
pub(crate) fn planning(
    credit: &CreditConfig,
    groups: &[Group],
    compare: &Compare<'_>,
) -> Advantages {
    within_states(groups, |episodes| planned(credit, episodes), compare)
}

/// Compares the number of each turn in `values` with those of the group's other turns in the same state.
fn within_states(
    groups: &[Group],
    values: impl Fn(&[Episode]) -> Vec<Vec<Return>>,
    compare: &Compare<'_>,
) -> Advantages {
    let zeros = |episode: &Episode| vec![0.0; episode.turns.len()];
    let zeros = |group: &Group| group.episodes.iter().map(zeros).collect();
    let mut advantages: Advantages = groups.iter().map(zeros).collect();
    let (mut states, mut of_states) = (Vec::new(), Vec::new());
    for (number, group) in groups.iter().enumerate() {
        let values = values(&group.episodes);
        for turns in by_state(&group.episodes) {
            of_states.push(turns.iter().map(|&(e, t)| values[e][t]).collect());
            states.push((number, turns));
        }
    }
    for ((group, turns), of_state) in states.into_iter().zip(compare(&of_states)) {
        for ((episode, turn), advantage) in turns.into_iter().zip(of_state) {
            advantages[group][episode][turn] = advantage;
        }
    }
    advantages
}

/// Returns Q(s_t, a_t) of each turn: the return of its action if the best known actions follow.
///
/// The model is what the group saw: an action in a state brings each outcome as often as it did there. Value iteration looks
/// ahead as many turns as the longest episode has. V is 0 after the end of an episode.
fn planned(credit: &CreditConfig, episodes: &[Episode]) -> Vec<Vec<Return>> {
    let states = by_state(episodes);
    let mut state_of: Vec<Vec<usize>> = episodes.iter().map(|e| vec![0; e.turns.len()]).collect();
    for (state, turns) in states.iter().enumerate() {
        turns.iter().for_each(|&(e, t)| state_of[e][t] = state);
    }
    // The turns of each action in each state. An unreadable reply is an action, too.
    let mut choices: Vec<Vec<Vec<(usize, usize)>>> = Vec::new();
    for turns in &states {
        let mut by_action: BTreeMap<Option<usize>, Vec<(usize, usize)>> = BTreeMap::new();
        for &(e, t) in turns {
            by_action
                .entry(episodes[e].turns[t].action)
                .or_default()
                .push((e, t));
        }
        choices.push(by_action.into_values().collect());
    }
    let worth = |turns: &[(usize, usize)], values: &[f64]| {
        let outcome = |&(e, t): &(usize, usize)| {
            let next = state_of[e].get(t + 1).map_or(0.0, |state| values[*state]);
            reward(&episodes[e].turns[t]) + credit.gamma * next
        };
        turns.iter().map(outcome).sum::<f64>() / turns.len() as f64
    };
    let longest = episodes.iter().map(|e| e.turns.len()).max().unwrap_or(0);
    let mut values = vec![0.0; states.len()];
    for _ in 1..longest {
        let best = |of_state: &Vec<Vec<(usize, usize)>>| {
            let worths = of_state.iter().map(|turns| worth(turns, &values));
            worths.fold(f64::NEG_INFINITY, f64::max)
        };
        values = choices.iter().map(best).collect();
    }
    let zero = Return {
        value: 0.0,
        error: 0.0,
    };
    let mut planned: Vec<Vec<Return>> =
        episodes.iter().map(|e| vec![zero; e.turns.len()]).collect();
    // Each of the sweeps adds up at most all turns.
    let count: usize = episodes.iter().map(|e| e.turns.len()).sum();
    let sizes = episodes.iter().flat_map(|e| &e.turns).map(magnitude);
    let largest = sizes.fold(0.0, f64::max) * longest as f64;
    let error = longest as f64 * (count + 2) as f64 * f64::EPSILON * largest;
    for turns in choices.iter().flatten() {
        let value = worth(turns, &values);
        turns
            .iter()
            .for_each(|&(e, t)| planned[e][t] = Return { value, error });
    }
    planned
}

/// Generalised advantage estimation over turns (arXiv 1506.02438) from the critic's values of each group. An episode of T turns
/// has T + 1 values; the last is that of the state after it.
#[track_caller]
pub(crate) fn with_critic(credit: &CreditConfig, groups: &[Group]) -> Advantages {
    let mut all: Advantages = Vec::new();
    for Group {
        episodes, values, ..
    } in groups
    {
        assert_eq!(episodes.len(), values.len(), "episodes and their values");
        let played = episodes.iter().zip(values);
        let of = |(episode, values): (&Episode, &Vec<f64>)| {
            temporal_differences(credit, episode, values)
        };
        all.push(played.map(of).collect());
    }
    let of_step = root_mean_square(all.iter().flatten().flatten());
    for group in &mut all {
        let divisor = match credit.normalise {
            AdvantageScale::Std => root_mean_square(group.iter().flatten()) + 1e-6,
            AdvantageScale::Mean => 1.0,
            AdvantageScale::Batch => of_step + 1e-6,
        };
        group.iter_mut().flatten().for_each(|a| *a /= divisor);
    }
    all
}

/// Returns G_t of each turn, given the values of its states and of the state after the last: T + 1 of them.
#[track_caller]
pub(crate) fn temporal_differences(
    credit: &CreditConfig,
    episode: &Episode,
    values: &[f64],
) -> Vec<f64> {
    assert_eq!(
        values.len(),
        episode.turns.len() + 1,
        "values of an episode"
    );
    let mut advantages = vec![0.0; episode.turns.len()];
    let mut later = 0.0;
    for (t, turn) in episode.turns.iter().enumerate().rev() {
        let difference = reward(turn) + credit.gamma * values[t + 1] - values[t];
        later = difference + credit.gamma * credit.lambda * later;
        advantages[t] = later;
    }
    advantages
}

/// Returns the turns that were played in the same state, as (episode, turn), in the order in which the states first occur.
fn by_state(group: &[Episode]) -> Vec<Vec<(usize, usize)>> {
    let mut indices: HashMap<&str, usize> = HashMap::new();
    let mut states: Vec<Vec<(usize, usize)>> = Vec::new();
    for (e, episode) in group.iter().enumerate() {
        for (t, turn) in episode.turns.iter().enumerate() {
            let index = *indices.entry(&turn.key).or_insert(states.len());
            if index == states.len() {
                states.push(Vec::new());
            }
            states[index].push((e, t));
        }
    }
    states
}

fn reward(turn: &Turn) -> f64 {
    turn.reward + turn.shaping
}

/// The sum of the absolute values of a turn's reward and shaping.
pub(crate) fn magnitude(turn: &Turn) -> f64 {
    turn.reward.abs() + turn.shaping.abs()
}

/// Returns R_t of each turn. Each step of Horner's rule is a product and a sum, which doubles the rounding error.
fn returns_to_go(episode: &Episode, gamma: f64) -> Vec<Return> {
    let zero = Return {
        value: 0.0,
        error: 0.0,
    };
    let mut returns = vec![zero; episode.turns.len()];
    let (mut value, mut sizes) = (0.0, 0.0);
    for (t, turn) in episode.turns.iter().enumerate().rev() {
        value = reward(turn) + gamma * value;
        sizes = magnitude(turn) + gamma * sizes;
        let left = (episode.turns.len() - t) as f64;
        let error = left * f64::EPSILON * sizes;
        returns[t] = Return { value, error };
    }
    returns
}

fn root_mean_square<'a>(numbers: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut squares, mut count) = (0.0, 0);
    for number in numbers {
        squares += number * number;
        count += 1;
    }
    (squares / f64::from(count.max(1))).sqrt()
}

#[cfg(test)]
mod tests;
