//! Which episodes of a run are kept whole: a few of each evaluation, and of the step after it.

use crate::Error;
use crate::learn::group::Group;
use crate::play::{Episode, Seat};
use crate::record::Record;
use crate::record::sample::{Place, Purpose, Sample};
use crate::run::state::State;

/// Of an evaluation: the first ones, which are on the same scenes each time.
///
/// # Errors
/// If a template fails.
pub fn of_evaluation(
    state: &State,
    seats: &[Seat],
    episodes: &[Episode],
) -> Result<Vec<Record>, Error> {
    let world = state.world();
    let agents = world.scenario.agents();
    let record = &state.config.record;
    let count = match record.all_episodes {
        true => episodes.len(),
        false => record.episodes * agents,
    };
    let sample = |(number, episode): (usize, &Episode)| {
        let place = Place {
            step: state.step,
            purpose: Purpose::Evaluation,
            game: None,
            scene: seats[number / agents].scene,
            agent: number % agents,
        };
        let (actions, prompts) = (world.scenario.actions(), &world.prompts);
        Sample::of(episode, place, actions, prompts).map(Record::Episode)
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
pub fn of_step(state: &State, groups: &[Group]) -> Result<Vec<Record>, Error> {
    let record = &state.config.record;
    let count = match (
        record.all_episodes,
        state.config.eval.is_due(state.step - 1),
    ) {
        (true, _) => usize::MAX,
        (false, true) => record.episodes,
        (false, false) => 0,
    };
    let mut samples = Vec::new();
    for group in groups {
        let world = &state.worlds[group.world];
        let (actions, prompts) = (world.scenario.actions(), &world.prompts);
        let game = (group.world > 0).then_some(&*world.name);
        let place = Place {
            step: state.step,
            purpose: Purpose::Training,
            game,
            scene: group.scene,
            agent: group.agent,
        };
        let weighed = group.episodes.iter().zip(&group.credits);
        for (member, (episode, credit)) in weighed.enumerate().take(count) {
            let is_chosen = group.chosen.iter().any(|(chosen, _)| *chosen == member);
            let sample = Sample::of(episode, place, actions, prompts)?;
            let sample = sample.learned(credit.advantage, &credit.turns, is_chosen);
            samples.push(Record::Episode(sample));
        }
    }
    Ok(samples)
}
