//! Groups: the episodes that are weighed against each other.

use lapwing_env::rng::Stream;

use crate::batch;
use crate::batch::Chosen;
use crate::choose;
use crate::config::{Aggregation, Train};
use crate::credit;
use crate::credit::Credit;
use crate::entropy;
use crate::filter::widest;
use crate::language::Options;
use lapwing_play::seeds;
use lapwing_play::{Episode, Seat};

/// The episodes of one agent on one scene: they are weighed against each other.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// which of the run's games
    pub world: usize,
    /// the seed of the scene
    pub scene: u64,
    /// which agent
    pub agent: usize,
    /// what they lived through
    pub episodes: Vec<Episode>,
    /// what a critic says of each state of each of them, and of what comes after; none without a critic
    pub values: Vec<Vec<f64>>,
    /// how each stands out
    pub credits: Vec<Credit>,
    /// the weight of the entropy in what is learned
    pub entropy_weight: f64,
    /// Which are learned from, each with its importance; none if all returns are equal.
    pub chosen: Vec<(usize, f64)>,
}

/// The episodes of each scene, an agent's together.
pub fn grouped(
    world: usize,
    seats: &[Seat],
    episodes: Vec<Episode>,
    size: usize,
    agents: usize,
) -> Vec<Group> {
    let mut groups = vec![Group::default(); seats.len() / size * agents];
    for (number, episode) in episodes.into_iter().enumerate() {
        let (seat, agent) = (number / agents, number % agents);
        let group = &mut groups[seat / size * agents + agent];
        (group.world, group.scene, group.agent) = (world, seats[seat].scene, agent);
        group.episodes.push(episode);
    }
    groups
}

/// Gives every episode its credit, and entropy its weight.
pub fn weigh(groups: &mut [Group], options: &Options<'_>) {
    let played: Vec<&[Episode]> = groups.iter().map(|group| &group.episodes[..]).collect();
    let values: Vec<&[Vec<f64>]> = groups.iter().map(|group| &group.values[..]).collect();
    let credits = credit::weigh(options.credit, &played, &values);
    let entropy_weight = entropy::weight(options.train, played.into_iter().flatten());
    for (group, credits) in groups.iter_mut().zip(credits) {
        (group.credits, group.entropy_weight) = (credits, entropy_weight);
    }
}

/// Chooses which episodes of each group to learn from in this step; none of a group in which none stands out, or which the
/// filter leaves out.
pub fn choose(groups: &mut [Group], train: &Train, step: usize) {
    let played: Vec<&[Episode]> = groups.iter().map(|group| &group.episodes[..]).collect();
    let kept = widest(&played, train.filter);
    for (number, (group, kept)) in groups.iter_mut().zip(kept).enumerate() {
        let weights: Vec<f64> = group.credits.iter().map(Credit::weight).collect();
        group.chosen = match kept && weights.iter().any(|weight| *weight != 0.0) {
            true => {
                let seed = seeds::derive(train.seed, "choose", &[step, number]);
                choose::choose(train, &weights, &mut Stream::new(seed, "choose"))
            }
            false => Vec::new(),
        };
    }
}

/// The chosen episodes of all groups, and what a draw of so many is expected to hold of what the loss is a mean over, such
/// as tokens.
pub fn all_chosen(groups: &[Group], aggregation: Aggregation) -> (Vec<Chosen<'_>>, f64) {
    let (mut all, mut expected) = (Vec::new(), 0.0);
    for group in groups {
        let share = group.chosen.len() as f64 / group.episodes.len() as f64;
        expected += share * batch::count(group.episodes.iter(), aggregation);
        all.extend(group.chosen.iter().map(|&(member, importance)| Chosen {
            episode: &group.episodes[member],
            advantages: &group.credits[member].turns,
            importance,
            entropy_weight: group.entropy_weight,
        }));
    }
    (all, expected)
}

/// The weight that entropy has in a step of these groups; `None` where it is in its band.
pub fn entropy_weight(groups: &[Group]) -> Option<f64> {
    let weight = groups.first()?.entropy_weight;
    (weight != 0.0).then_some(weight)
}

/// How many episodes of equal weight the chosen ones amount to: (sum w)^2 / sum w^2, with w the importance of an episode
/// times how far it stands out (Kish 1965). `None` if none is chosen.
pub fn effective_episodes(groups: &[Group]) -> Option<f64> {
    let (mut sum, mut squares) = (0.0, 0.0);
    for group in groups {
        for &(member, importance) in &group.chosen {
            let weight = importance * group.credits[member].weight();
            sum += weight;
            squares += weight * weight;
        }
    }
    (squares > 0.0).then(|| sum * sum / squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn episodes_of_equal_weight_count_in_full() {
        let group = |advantages: &[f64], chosen: &[(usize, f64)]| Group {
            credits: advantages
                .iter()
                .map(|a| Credit {
                    advantage: *a,
                    turns: vec![*a],
                })
                .collect(),
            chosen: chosen.to_vec(),
            ..Group::default()
        };
        let all = [(0, 1.0), (1, 1.0), (2, 1.0)];
        assert_eq!(
            effective_episodes(&[group(&[1.0, -1.0, 1.0], &all)]),
            Some(3.0)
        );
        // One of them three times as far out: 25 / 11.
        assert_eq!(
            effective_episodes(&[group(&[3.0, -1.0, 1.0], &all)]),
            Some(25.0 / 11.0)
        );
        let corrected = group(&[3.0, -1.0], &[(0, 1.0 / 3.0), (1, 1.0)]);
        assert_eq!(
            effective_episodes(&[corrected, group(&[1.0], &[])]),
            Some(2.0)
        );
        assert_eq!(effective_episodes(&[group(&[1.0], &[])]), None);
    }
}
