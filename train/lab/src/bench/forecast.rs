//! The forecast of a model's speed: tokens per second, and the time of a training step of a preset.

use lapwing_learn::config::Sampling;
use lapwing_model::TokenTree;
use lapwing_play::evaluate::play_against;
use lapwing_play::players::scripted::RandomPlayer;
use lapwing_play::{AgentView, Progress, Referee, ReplyForm};
use lapwing_train::Error;
use lapwing_train::state::State;

use super::cases::{PROMPT, SEQUENCES};
use super::phases::{PROMPTS, REPLIES, REPLY};
use super::report::{BenchReport, Forecast};

/// The work of a step whose actions are random.
#[derive(Default)]
struct StepWork {
    turns: usize,
    /// Tokens of each reply.
    reply: usize,
    /// Episodes that have each of the turns.
    playing: Vec<usize>,
    /// Different tokens of all prompts.
    prompts: TokenTree,
    /// Those of the episodes that are trained on, and the number of their turns.
    trained: TokenTree,
    trained_turns: usize,
}

impl StepWork {
    /// Lets the random player play the first step of a run. Returns `None` if a game takes any text, which it cannot write.
    fn of(state: &mut State) -> Result<Option<StepWork>, Error> {
        if state
            .learner
            .worlds
            .iter()
            .any(|it| it.scenario.takes_text())
        {
            return Ok(None);
        }
        let (config, mut work) = (&state.config, StepWork::default());
        let (train, policy) = (&config.train, &config.policy);
        let learn = match train.sampling {
            Sampling::All => train.group_size,
            _ => train.learn.min(train.group_size),
        };
        work.reply = policy.max_new_tokens;
        let mut words = 0;
        for (number, seats) in state.learner.seats(train, 0)? {
            let world = &mut state.learner.worlds[number];
            let (scenario, agents) = (&*world.scenario, world.scenario.agents());
            let referee = Referee::of(scenario, policy.format_penalty);
            let player = &mut RandomPlayer::default();
            let episodes = play_against(scenario, &referee, &seats, player, &mut [], &())?;
            for action in scenario.actions() {
                words = words.max(world.prompts.tokenizer().encode(action)?.len());
            }
            for (number, episode) in episodes.iter().enumerate() {
                let is_trained = number / agents % train.group_size < learn;
                for turn in 0..episode.turns.len() {
                    let ids = world.prompts.ids(&AgentView::turn(episode, turn))?;
                    work.prompts.insert(&ids);
                    if is_trained {
                        work.trained.insert(&ids);
                        work.trained_turns += 1;
                    }
                    if turn == work.playing.len() {
                        work.playing.push(0);
                    }
                    work.playing[turn] += 1;
                    work.turns += 1;
                }
            }
        }
        if policy.reply == ReplyForm::Word {
            work.reply = work.reply.min(words);
        }
        Ok(Some(work))
    }
}

/// Returns the function that forecasts the steps of a run from a measurement, if that has the phases of the model.
pub(super) fn forecast(
    state: &mut State,
    model: String,
    progress: &dyn Progress,
) -> Result<impl FnOnce(&BenchReport) -> Option<Forecast> + use<>, Error> {
    let work = StepWork::of(state)?;
    if work.is_none() {
        progress.note("no forecast: the random player cannot play a game that takes any text");
    }
    let (config, learner) = (&state.config, &state.learner);
    // The reference's log-probs are half a pass.
    let passes = config.train.passes as f64 + if config.train.beta > 0.0 { 0.5 } else { 0.0 };
    let name = learner.world().name.clone();
    Ok(move |report: &BenchReport| {
        let work = work?;
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
        let together = |playing: &usize| one + more * (playing - 1) as f64;
        let of_turns: f64 = work.playing.iter().map(together).sum();
        let trained = work.trained.len() + work.trained_turns * (work.reply - 1);
        Some(Forecast {
            step: format!(
                "{name} with random actions: {} turns of {} episodes, {} different tokens of prompts, {} of a reply",
                work.turns,
                work.playing.first().unwrap_or(&0),
                work.prompts.len(),
                work.reply
            ),
            alone: 1.0 / one,
            together: SEQUENCES as f64 / some,
            rollout: work.prompts.len() as f64 * per_prompt_token + work.reply as f64 * of_turns,
            update: trained as f64 * passes * per_updated_token,
        })
    })
}

#[cfg(test)]
mod tests {
    use lapwing_train::Config;
    use lapwing_train::state::RunPurpose;

    use super::*;

    #[test]
    fn the_turns_of_random_actions_are_counted() {
        let work = |more: &[&str]| {
            let settings = [&["train.groups=2", "train.group_size=4"], more].concat();
            let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
            let config = Config::load("frozen-lake", &settings).unwrap();
            let gpu = lapwing_tensor::check::gpu();
            let state = State::new(&gpu, None, config, RunPurpose::Train, &());
            StepWork::of(&mut state.unwrap()).unwrap().unwrap()
        };
        let all = work(&["train.sampling=all"]);
        assert_eq!((all.playing[0], all.reply), (8, 1));
        assert_eq!(all.playing.iter().sum::<usize>(), all.turns);
        assert!(all.playing.is_sorted_by(|before, after| before >= after));
        assert_eq!(
            (all.trained_turns, all.trained.len()),
            (all.turns, all.prompts.len())
        );
        // Prompts share their beginnings, and states recur.
        assert!((all.turns..20 * all.turns).contains(&all.prompts.len()));

        let some = work(&[
            "train.sampling=aaw",
            "train.learn=1",
            "policy.reply=tags",
            "policy.max_new_tokens=20",
        ]);
        assert_eq!((some.playing[0], some.reply), (8, 20));
        assert!(some.trained_turns < some.turns / 2 && some.trained.len() < some.prompts.len());
    }
}
