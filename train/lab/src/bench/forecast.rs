//! The forecast of a model's speed: tokens per second, and the time of a training step of a preset.

use lapwing_learn::config::Sampling;
use lapwing_train::Error;
use lapwing_train::state::State;

use super::cases::{PROMPT, SEQUENCES};
use super::phases::{PROMPTS, REPLIES, REPLY};
use super::report::{BenchReport, Forecast};

/// Returns the function that forecasts the steps of a run from a measurement, if that has the phases of the model.
pub(super) fn forecast(
    state: &mut State,
    model: String,
) -> Result<impl FnOnce(&BenchReport) -> Option<Forecast> + use<>, Error> {
    let (seed, config) = (state.config.eval.seed, &state.config);
    let (train, reply) = (&config.train, config.policy.max_new_tokens);
    let world = &mut state.learner.worlds[0];
    let (agents, turns) = (world.scenario.agents(), world.scenario.step_limit());
    let starts = world.starts(seed, 16)?;
    // Tokens that all prompts begin with, and the mean number of the others.
    let alike = |other: &Vec<u32>| {
        let pairs = starts[0].iter().zip(other);
        pairs.take_while(|(a, b)| a == b).count()
    };
    let shared = starts.iter().map(alike).min().unwrap_or(0);
    let own = starts.iter().map(Vec::len).sum::<usize>() / starts.len() - shared;
    let learn = match train.sampling {
        Sampling::All => train.group_size,
        _ => train.learn.min(train.group_size),
    };
    let episodes = train.groups * train.group_size * agents;
    let trained = train.groups * learn * agents;
    // The reference's log-probs are half a pass.
    let passes = train.passes as f64 + if train.beta > 0.0 { 0.5 } else { 0.0 };
    let step = format!(
        "{}: episodes {episodes} ({trained} trained on), turns {turns}, tokens of a reply {reply}",
        world.name
    );
    Ok(move |report: &BenchReport| {
        let seconds = |kind: &str, what: &str| {
            let name = format!("{kind}/{model}/{what}");
            let row = report.rows.iter().find(|row| row.name == name);
            row.map(|row| row.seconds)
        };
        let one = seconds("decode", "1 sequence")?;
        let some = seconds("decode", "25 sequences")?;
        let per_prompt_token = seconds("prefill", "4 prompts")? / (PROMPTS * PROMPT) as f64;
        let updated = PROMPT + REPLIES * (REPLY - 1);
        let per_updated_token = seconds("update", "20 replies")? / updated as f64;
        // Linear in the number of sequences beyond one.
        let more = ((some - one) / (SEQUENCES - 1) as f64).max(0.0);
        let per_step = one + more * (episodes - 1) as f64;
        let prompts = shared + episodes * own * turns;
        let updated = shared + trained * turns * (own + reply);
        Some(Forecast {
            step,
            alone: 1.0 / one,
            together: SEQUENCES as f64 / some,
            rollout: prompts as f64 * per_prompt_token + (turns * reply) as f64 * per_step,
            update: updated as f64 * passes * per_updated_token,
        })
    })
}
