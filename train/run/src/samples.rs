//! Which episodes of a run are kept whole: a few of each evaluation, and of the step after it.

use crate::Error;
use crate::record::Record;
use lapwing_learn::batch::Group;
use lapwing_play::sample::{Place, Purpose, Sample};
use lapwing_play::world::World;
use lapwing_play::{Episode, Seat};

/// Of an evaluation: the first ones, which are on the same scenes each time.
///
/// # Errors
/// If a template fails.
pub fn of_evaluation(
    world: &World,
    step: usize,
    seats: &[Seat],
    episodes: &[Episode],
    count: usize,
) -> Result<Vec<Record>, Error> {
    let agents = world.scenario.agents();
    let sample = |(number, episode): (usize, &Episode)| {
        let place = Place {
            step,
            purpose: Purpose::Evaluation,
            game: None,
            scene: seats[number / agents].scene,
            agent: number % agents,
        };
        let (actions, prompts) = (world.scenario.actions(), &world.prompts);
        let sample = Sample::of(episode, place, actions, prompts)?;
        Ok(Record::Episode(sample))
    };
    episodes
        .iter()
        .take(count)
        .enumerate()
        .map(sample)
        .collect()
}

/// Of the step that was just made, if the policy was examined before it: the first ones of each group.
///
/// # Errors
/// If a template fails.
pub fn of_step(
    worlds: &[World],
    step: usize,
    groups: &[Group],
    count: usize,
) -> Result<Vec<Record>, Error> {
    let mut samples = Vec::new();
    for group in groups {
        let world = &worlds[group.world];
        let (actions, prompts) = (world.scenario.actions(), &world.prompts);
        let game = (group.world > 0).then_some(&*world.name);
        let place = Place {
            step,
            purpose: Purpose::Training,
            game,
            scene: group.scene,
            agent: group.agent,
        };
        let compared = group.episodes.iter().zip(&group.advantages);
        for (member, (episode, advantage)) in compared.enumerate().take(count) {
            let is_selected = group.selected.iter().any(|(index, _)| *index == member);
            let sample = Sample::of(episode, place, actions, prompts)?;
            let sample = sample.learned(advantage.mean, &advantage.turns, is_selected);
            samples.push(Record::Episode(sample));
        }
    }
    Ok(samples)
}
