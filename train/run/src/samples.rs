//! The episodes of a run that are kept complete: some of each evaluation, and some of the step after it.

use crate::Error;
use crate::learner::Learner;
use crate::record::Record;
use lapwing_learn::batch::Group;
use lapwing_play::sample::{EpisodeOrigin, EpisodePurpose};
use lapwing_play::{Episode, Seat};

/// Returns the first episodes of an evaluation, which are on the same scenes each time.
///
/// # Errors
/// If a template fails.
pub(crate) fn of_evaluation(
    learner: &impl Learner,
    step: usize,
    seats: &[Seat],
    episodes: &[Episode],
    count: usize,
) -> Result<Vec<Record>, Error> {
    let agents = learner.game().0.agents();
    let sample = |(number, episode): (usize, &Episode)| {
        let place = EpisodeOrigin {
            step,
            purpose: EpisodePurpose::Evaluation,
            game: None,
            scene: seats[number / agents].scene,
            agent: number % agents,
        };
        Ok(Record::Episode(learner.sample(0, place, episode)?))
    };
    let kept = episodes.iter().take(count).enumerate();
    kept.map(sample).collect()
}

/// Returns the first episodes of each group of the last step, if an evaluation came before it.
///
/// # Errors
/// If a template fails.
pub(crate) fn of_step(
    learner: &impl Learner,
    step: usize,
    groups: &[Group],
    count: usize,
) -> Result<Vec<Record>, Error> {
    // A value learner has no groups: each episode is a group of its own, and those of the first games are kept.
    let kept = match groups.first() {
        Some(group) if group.advantages.is_empty() => {
            count.saturating_mul(learner.game().0.agents())
        }
        _ => usize::MAX,
    };
    let mut samples = Vec::new();
    for group in groups.iter().take(kept) {
        let place = EpisodeOrigin {
            step,
            purpose: EpisodePurpose::Training,
            game: None,
            scene: group.scene,
            agent: group.agent,
        };
        for (member, episode) in group.episodes.iter().enumerate().take(count) {
            let mut sample = learner.sample(group.world, place, episode)?;
            if let Some(advantage) = group.advantages.get(member) {
                let is_selected = group.selected.contains(&member);
                sample = sample.learned(advantage.mean, &advantage.turns, is_selected);
            }
            samples.push(Record::Episode(sample));
        }
    }
    Ok(samples)
}
