//! Credit: what each turn of an episode is worth to learning, from its group. Numbers in f64, no device.
//!
//! A turn t is played in a state s_t (what the agent sees), brings r_t (the game's reward and the shaping), and
//!
//! ```text
//! C   = r_1 + ... + r_T                            the return of the episode
//! R_t = r_t + gamma R_{t+1}                        what followed the turn, itself included
//! ```
//!
//! Its advantage is, with means over the n episodes of the group,
//!
//! ```text
//! episode   A_t = (C - mean C) / F                                       MS-GRPO
//! rloo      A_t = n / (n - 1) (C - mean C) / F                           C beside the mean of the others
//! gigpo     A_t = (C - mean C) / F + omega (R_t - mean R in s_t) / F     0 for a state met once
//! tabular   A_t = G_t / F,  G_t = d_t + gamma lambda G_{t+1},  d_t = r_t + gamma V(s_{t+1}) - V(s_t)
//!           V(s) = mean R over the group's turns in s, 0 after the end
//! critic    the same with V from a critic, which tells what comes after a truncation too         turn-level PPO
//! ```
//!
//! F is a standard deviation plus 1e-6, or 1 (`credit.normalise`). A group (or a state) whose returns are equal has zeros.
//!
//! No advantage of a turn is measured from the mean of those turns that come as late: how many such terms an episode adds
//! up depends on when it stops, which pays for stopping or for going on (verl#7244). For the same reason G is divided and
//! not centred.

use std::collections::HashMap;

use crate::config;
use crate::config::{Method, Normalise};
use lapwing_play::{Episode, Turn};

/// How an episode did beside its group.
#[derive(Debug, Clone, PartialEq)]
pub struct Credit {
    /// How far the whole episode stands out: the mean of its turns' advantages.
    pub advantage: f64,
    /// The advantage of each turn, and so of each token of its reply: what learning goes by.
    pub turns: Vec<f64>,
}

impl Credit {
    /// What choosing goes by: the root mean square of the turns' advantages, so that good and bad turns of an episode do
    /// not hide each other.
    pub fn weight(&self) -> f64 {
        if self.is_even() {
            return self.advantage.abs();
        }
        let squares: f64 = self.turns.iter().map(|a| a * a).sum();
        (squares / self.turns.len() as f64).sqrt()
    }

    /// Whether all turns have the same advantage: that of the episode, to the bit.
    fn is_even(&self) -> bool {
        self.turns.iter().all(|a| *a == self.advantage)
    }

    fn of(turns: Vec<f64>) -> Credit {
        let first = turns.first().copied().unwrap_or_default();
        let even = Credit {
            advantage: first,
            turns,
        };
        if even.is_even() {
            return even;
        }
        Credit {
            advantage: even.turns.iter().sum::<f64>() / even.turns.len() as f64,
            turns: even.turns,
        }
    }
}

/// The credit of every episode of all groups of a step. `values` are what a critic says of each state of each episode, and of
/// what comes after it; only `critic` asks for them.
///
/// # Panics
/// If it does, and they are not as many.
#[track_caller]
pub fn weigh(
    credit: &config::Credit,
    groups: &[&[Episode]],
    values: &[&[Vec<f64>]],
) -> Vec<Vec<Credit>> {
    let advantages = match credit.method {
        Method::Episode => by_episode(credit, groups, |_| 1.0),
        Method::Rloo => by_episode(credit, groups, |n| n / (n - 1.0)),
        Method::Gigpo => {
            let mut advantages = by_episode(credit, groups, |_| 1.0);
            let by_state = by_state(credit, groups);
            let all = advantages.iter_mut().flatten().flatten();
            for (whole, state) in all.zip(by_state.iter().flatten().flatten()) {
                *whole += credit.omega * state;
            }
            advantages
        }
        Method::Tabular => by_table(credit, groups),
        Method::Critic => by_values(credit, groups, values),
    };
    let credits = |group: Vec<Vec<f64>>| group.into_iter().map(Credit::of).collect();
    advantages.into_iter().map(credits).collect()
}

/// By group, episode and turn.
type Advantages = Vec<Vec<Vec<f64>>>;

/// Every turn has what its episode has, times `factor` of the size of its group.
fn by_episode(
    credit: &config::Credit,
    groups: &[&[Episode]],
    factor: fn(f64) -> f64,
) -> Advantages {
    let of = |group: &&[Episode]| -> Vec<Return> { group.iter().map(Return::of).collect() };
    let all: Vec<Vec<f64>> = groups.iter().map(|g| deviations(&of(g))).collect();
    let of_step = standard_deviation(&all.concat());
    let spread = |(group, deviations): (&&[Episode], &Vec<f64>)| {
        let by = divisor(credit.normalise, standard_deviation(deviations), of_step);
        let factor = factor(group.len() as f64);
        let episodes = group.iter().zip(deviations);
        episodes
            .map(|(episode, deviation)| vec![factor * deviation / by; episode.turns.len()])
            .collect()
    };
    groups.iter().zip(&all).map(spread).collect()
}

/// What followed each turn beside what followed others in the same state: the anchor groups of GiGPO.
fn by_state(credit: &config::Credit, groups: &[&[Episode]]) -> Advantages {
    let mut all: Advantages = Vec::new();
    let mut anchors = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let follows: Vec<Vec<Return>> = group
            .iter()
            .map(|e| returns_to_go(e, credit.gamma))
            .collect();
        all.push(follows.iter().map(|e| vec![0.0; e.len()]).collect());
        for turns in by_observation(group) {
            let returns: Vec<Return> = turns.iter().map(|&(e, t)| follows[e][t]).collect();
            anchors.push((number, turns, deviations(&returns)));
        }
    }
    let deviations: Vec<f64> = anchors.iter().flat_map(|(_, _, d)| d.clone()).collect();
    let of_step = standard_deviation(&deviations);
    for (number, turns, deviations) in anchors {
        let by = divisor(credit.normalise, standard_deviation(&deviations), of_step);
        for ((episode, turn), deviation) in turns.into_iter().zip(deviations) {
            all[number][episode][turn] = deviation / by;
        }
    }
    all
}

/// TD(lambda) on the table of each group's own states.
fn by_table(credit: &config::Credit, groups: &[&[Episode]]) -> Advantages {
    let values = |group: &&[Episode]| -> Vec<Vec<f64>> {
        let follows: Vec<Vec<Return>> = group
            .iter()
            .map(|e| returns_to_go(e, credit.gamma))
            .collect();
        let mut values: Vec<Vec<f64>> = follows.iter().map(|e| vec![0.0; e.len() + 1]).collect();
        for turns in by_observation(group) {
            let sum: f64 = turns.iter().map(|&(e, t)| follows[e][t].value).sum();
            for &(episode, turn) in &turns {
                values[episode][turn] = sum / turns.len() as f64;
            }
        }
        values
    };
    by_values(
        credit,
        groups,
        &groups.iter().map(values).collect::<Vec<_>>(),
    )
}

/// Generalised advantage estimation over turns (arXiv 1506.02438). An episode of T turns has T + 1 values: the last is that
/// of what comes after it.
#[track_caller]
fn by_values(
    credit: &config::Credit,
    groups: &[&[Episode]],
    values: &[impl AsRef<[Vec<f64>]>],
) -> Advantages {
    assert_eq!(groups.len(), values.len(), "groups, and those valued");
    let mut all: Advantages = Vec::new();
    for (group, values) in groups.iter().zip(values) {
        let values = values.as_ref();
        assert_eq!(group.len(), values.len(), "episodes, and those valued");
        // What rounding makes of advantages that are zero.
        let sizes = group.iter().map(|e| e.turns.iter().map(size).sum::<f64>());
        let turns: usize = group.iter().map(|episode| episode.turns.len()).sum();
        let error = 4.0 * turns as f64 * f64::EPSILON * sizes.fold(0.0, f64::max);
        let of = |(episode, values): (&Episode, &Vec<f64>)| {
            let advantages = temporal_differences(credit, episode, values);
            let rounded = |a: f64| if a.abs() <= error { 0.0 } else { a };
            advantages.into_iter().map(rounded).collect()
        };
        all.push(group.iter().zip(values).map(of).collect());
    }
    let of_step = root_mean_square(all.iter().flatten().flatten());
    for group in &mut all {
        let own = root_mean_square(group.iter().flatten());
        let by = divisor(credit.normalise, own, of_step);
        group.iter_mut().flatten().for_each(|a| *a /= by);
    }
    all
}

/// G_t of each turn, given the values of its states and of what comes after the last: T + 1 of them.
///
/// # Panics
/// If they are not as many.
#[track_caller]
pub fn temporal_differences(
    credit: &config::Credit,
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

/// The turns of a group that were played in the same state, as (episode, turn); in the order in which states were met first.
fn by_observation(group: &[Episode]) -> Vec<Vec<(usize, usize)>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut states: Vec<Vec<(usize, usize)>> = Vec::new();
    for (e, episode) in group.iter().enumerate() {
        for (t, turn) in episode.turns.iter().enumerate() {
            let place = *places.entry(&turn.observation).or_insert(states.len());
            if place == states.len() {
                states.push(Vec::new());
            }
            states[place].push((e, t));
        }
    }
    states
}

fn reward(turn: &Turn) -> f64 {
    turn.reward + turn.shaping
}

fn size(turn: &Turn) -> f64 {
    turn.reward.abs() + turn.shaping.abs()
}

/// A return, and how far rounding may have moved it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Return {
    /// The sum of rewards and shaping.
    pub value: f64,
    /// The most by which it differs from the exact sum.
    pub error: f64,
}

impl Return {
    /// The composite return of an episode.
    ///
    /// Adding n numbers one after the other errs by at most n u times the sum of their absolute values, u = 2^-53
    /// (Higham 2002, section 4.2), the rounding of each number itself included.
    pub fn of(episode: &Episode) -> Return {
        let sizes: f64 = episode.turns.iter().map(size).sum();
        let unit = f64::EPSILON / 2.0;
        Return {
            value: episode.composite_return(),
            error: episode.turns.len() as f64 * unit * sizes,
        }
    }
}

/// R_t of each turn. Each step of Horner's rule is a product and a sum, which doubles the error.
fn returns_to_go(episode: &Episode, gamma: f64) -> Vec<Return> {
    let zero = Return {
        value: 0.0,
        error: 0.0,
    };
    let mut returns = vec![zero; episode.turns.len()];
    let (mut value, mut sizes) = (0.0, 0.0);
    for (t, turn) in episode.turns.iter().enumerate().rev() {
        value = reward(turn) + gamma * value;
        sizes = size(turn) + gamma * sizes;
        let left = (episode.turns.len() - t) as f64;
        let error = left * f64::EPSILON * sizes;
        returns[t] = Return { value, error };
    }
    returns
}

/// The standard deviation of a group's returns; 0 if they are equal within rounding.
pub fn spread(group: &[Episode]) -> f64 {
    let returns: Vec<Return> = group.iter().map(Return::of).collect();
    standard_deviation(&deviations(&returns))
}

/// How far each lies from their mean; exact zeros if they are equal within rounding.
///
/// Two apples in 20 rounds of Snake give 1.8 or 1.7999999999999998, by when they were eaten. That spread means nothing
/// and must not be divided by: returns are equal if one number lies within the rounding error of all of them.
fn deviations(returns: &[Return]) -> Vec<f64> {
    let highest_least = returns
        .iter()
        .map(|c| c.value - c.error)
        .fold(f64::MIN, f64::max);
    let lowest_most = returns
        .iter()
        .map(|c| c.value + c.error)
        .fold(f64::MAX, f64::min);
    if highest_least <= lowest_most {
        return vec![0.0; returns.len()];
    }
    let mean = returns.iter().map(|c| c.value).sum::<f64>() / returns.len() as f64;
    returns.iter().map(|c| c.value - mean).collect()
}

/// Of a sample (n - 1), from numbers whose mean is zero.
fn standard_deviation(deviations: &[f64]) -> f64 {
    if deviations.len() < 2 {
        return 0.0;
    }
    let squares: f64 = deviations.iter().map(|d| d.powi(2)).sum();
    (squares / (deviations.len() as f64 - 1.0)).sqrt()
}

fn root_mean_square<'a>(numbers: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut squares, mut count) = (0.0, 0);
    for number in numbers {
        squares += number * number;
        count += 1;
    }
    (squares / f64::from(count.max(1))).sqrt()
}

/// F, where the numbers spread so much in a group (or a state) of their own and in the whole step.
fn divisor(normalise: Normalise, own: f64, of_step: f64) -> f64 {
    match normalise {
        Normalise::Std => own + 1e-6,
        Normalise::Mean => 1.0,
        Normalise::Batch => of_step + 1e-6,
    }
}

#[cfg(test)]
mod tests;
