//! `lapwing train --dry-run`: what a run would be, without making it.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use indicatif::HumanCount;
use lapwing_play::Seen;
use lapwing_train::Config;
use lapwing_train::state::State;

use crate::out;

/// Shows a prompt, and says in a line what would be done.
pub fn show(state: &mut State, out: Option<&Path>, introduction: &str) -> Result<()> {
    let seat = state.evaluation_seats()?[0];
    let game = state.world().scenario.start(seat.scene, seat.luck)?;
    let observation = game.observe(0)?;
    let seen = Seen::first(&observation);
    let prompts = &mut state.learner.worlds[0].prompts;
    let (text, count) = (prompts.text(&seen)?, prompts.ids(&seen)?.len());
    let mut shown = out::shown();
    writeln!(shown, "--- a prompt of {count} tokens\n{text}\n---")?;
    let config = &state.config;
    let place = place(config, out);
    let parameters = state
        .learner
        .parameters
        .as_ref()
        .expect("a run that trains");
    let what = match state.trains_model() {
        false => "of an adapter",
        true => "all that the model has",
    };
    let count = HumanCount(parameters.count());
    writeln!(shown, "would change {count} parameters, {what}")?;
    writeln!(shown, "would train {introduction}, kept in {place}")?;
    Ok(())
}

/// Where a run would be kept.
pub fn place(config: &Config, out: Option<&Path>) -> String {
    match out {
        Some(path) => path.display().to_string(),
        None => format!(
            "runs/{}-{}, or the next number that is free",
            config.name, config.train.seed
        ),
    }
}
