//! What must hold of imitation, on the embedded base.

use lapwing_model::{TokenTree, Tokens};
use lapwing_tensor::Indices;
use lapwing_tensor::check::gpu;

use super::*;
use crate::play::players::scripted::Scripted;
use crate::play::{Referee, Seat, Unread};
use crate::record::sample::Place;
use crate::run::config::Config;
use crate::run::state::Purpose as For;

fn state() -> State {
    let settings = ["eval.episodes=60".to_owned()];
    let config = Config::load("frozen-lake", &settings).unwrap();
    State::new(&gpu(), config, For::Train, &()).unwrap()
}

fn how() -> Imitation {
    Imitation {
        min_return: None,
        only_success: false,
        steps: None,
        epochs: 1,
        lr: 2e-3,
        seed: 1,
    }
}

/// Episodes of the game's own player on scenes to learn from, as they are kept.
fn kept(state: &State, count: usize) -> Vec<Sample> {
    let world = state.world();
    let (scenario, framing) = (&*world.scenario, &world.prompts.framing);
    let seat = |i| {
        let draw = |attempt| seeds::derive(9, "kept", &[i, attempt]);
        let scene = world.scenes.training(scenario, draw).unwrap();
        Seat {
            scene,
            luck: scene,
            reply: scene,
        }
    };
    let seats: Vec<Seat> = (0..count).map(seat).collect();
    let referee = Referee {
        step_limit: 20,
        format_penalty: 0.0,
    };
    let mut player = Scripted::default();
    let played = referee.play(scenario, &seats, &mut [&mut player], &mut |_| ());
    let sample = |(seat, episode): (&Seat, &Episode)| {
        let place = Place {
            step: 0,
            purpose: Purpose::Training,
            game: None,
            scene: seat.scene,
            agent: 0,
        };
        let sample = Sample::played(episode, place, scenario.actions());
        sample.told(episode, framing).unwrap()
    };
    seats.iter().zip(&played.unwrap()).map(sample).collect()
}

fn lessons(state: &State, how: &Imitation, samples: &[Sample]) -> Result<Lessons, String> {
    let lessons = how.lessons(samples, &state.world().prompts, 256);
    lessons.map_err(|error| error.to_string())
}

fn success(state: &mut State) -> f64 {
    let seats = state.evaluation_seats().unwrap();
    let played = state.play(0, &seats, 1.0, &()).unwrap();
    played.iter().filter(|episode| episode.success).count() as f64 / played.len() as f64
}

#[test]
fn the_base_learns_from_the_scripted_player() {
    let mut state = state();
    let lessons = lessons(&state, &how(), &kept(&state, 160)).unwrap();
    assert_eq!((lessons.train.len(), lessons.held_out.len()), (144, 16));
    let before = success(&mut state);
    let mut losses = Vec::new();
    let imitated = imitate(&mut state, &lessons, &how(), &mut |update| {
        losses.push(update.loss);
    });
    let imitated = imitated.unwrap();
    assert_eq!(losses.len(), 18);
    // The base ends replies well already, so that half of the tokens cost nothing; a mean over few updates is noisy.
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..4]), mean(&losses[14..]));
    assert!(last < 0.85 * first, "{losses:?}");
    let (old, new) = (imitated.before.unwrap(), imitated.after.unwrap());
    assert!(new < 0.85 * old, "held out: {old} to {new}");
    let after = success(&mut state);
    assert!(after > before + 0.2, "success: {before} to {after}");
}

/// The packed tree gives what each reply gives by itself, token after token: a target that is one token off shows.
#[test]
fn the_loss_is_that_of_separate_sequences() {
    let state = state();
    let lessons = lessons(&state, &how(), &kept(&state, 6)).unwrap();
    let (model, adapter) = (&state.policy.model, state.policy.adapter.as_ref());
    let (mut sum, mut count) = (0.0, 0);
    for reply in lessons.train.iter().flat_map(Episode::sampled) {
        // One word, and the end.
        assert_eq!(reply.ids.len(), 2);
        assert!(
            state
                .world()
                .prompts
                .tokenizer()
                .stop_ids()
                .contains(&reply.ids[1])
        );
        for (k, id) in reply.ids.iter().enumerate() {
            // Whatever comes after the last token of this text is asked of the model's whole distribution.
            let text = [&reply.prompt[..], &reply.ids[..k]].concat();
            let mut tree = TokenTree::new();
            tree.insert(&text);
            let hidden = model.forward(&Tokens::new(model.gpu(), &tree.pack()), adapter);
            let row = Indices::new(model.gpu(), &[text.len() as u32 - 1]);
            let target = Indices::new(model.gpu(), &[*id]);
            let log_prob = hidden.log_probs(&model.head(adapter), &row, &target, 1.0);
            sum -= f64::from(log_prob.log_probs.to_vec().unwrap()[0]);
            count += 1;
        }
    }
    let wanted = sum / f64::from(count);
    for limit in [1, 100, 100_000] {
        let part = |batch: &Batch| cross_entropy(model, adapter, batch).to_vec().unwrap()[0];
        let loss: f64 = packed(lessons.train.iter(), limit)
            .iter()
            .map(|batch| f64::from(part(batch)))
            .sum();
        // f32 through four blocks, about fifty tokens
        assert!((loss - wanted).abs() < 1e-4 * wanted, "{loss} and {wanted}");
    }
}

#[test]
fn only_what_can_be_read_and_was_good_enough_is_learned_from() {
    let state = state();
    let mut samples = kept(&state, 30);
    let turns = samples[0].turns.len();
    samples[0].turns[0].action = None;
    samples[0].turns[0].unread = Some(Unread::NoTag);
    samples[1].purpose = Purpose::Evaluation;
    (samples[2].success, samples[2].game_return) = (false, 0.0);
    for turn in &mut samples[3].turns {
        turn.action = None;
    }
    let counts = |how: &Imitation, samples: &[Sample]| {
        let lessons = lessons(&state, how, samples).unwrap();
        let replies = lessons.train.iter().chain(&lessons.held_out);
        let replies: usize = replies.map(|episode| episode.turns.len()).sum();
        let (of, left) = (lessons.of_evaluations, lessons.left_out);
        (
            lessons.train.len() + lessons.held_out.len(),
            of,
            left,
            lessons.unread,
            replies,
        )
    };
    let all: usize = samples.iter().map(|sample| sample.turns.len()).sum();
    let known = all - 1 - samples[1].turns.len() - samples[3].turns.len();
    assert!(turns > 1);
    assert_eq!(counts(&how(), &samples), (28, 1, 1, 1, known));
    let won = Imitation {
        only_success: true,
        ..how()
    };
    let known = known - samples[2].turns.len();
    assert_eq!(counts(&won, &samples), (27, 1, 2, 1, known));
    let high = Imitation {
        min_return: Some(0.5),
        ..how()
    };
    assert_eq!(counts(&high, &samples), (27, 1, 2, 1, known));

    let nothing = lessons(&state, &how(), &samples[1..2]).unwrap_err();
    assert!(nothing.contains("1 are of evaluations"), "{nothing}");
}

/// Neither the order nor the number of episodes of a scene puts it on both sides.
#[test]
fn a_scene_is_held_out_whole() {
    let state = state();
    let once = kept(&state, 20);
    let twice = [&once[..], &once[..]].concat();
    let held: Vec<bool> = {
        let held = held_out(twice.iter());
        twice
            .iter()
            .map(|sample| held.contains(&*sample.scene))
            .collect()
    };
    assert_eq!(held[..20], held[20..]);
    assert_eq!(held.iter().filter(|held| **held).count(), 4);
    assert!(held_out(once[..1].iter()).is_empty());
}

/// What a run has kept is text in the template of its model.
#[test]
fn a_prompt_as_text_is_of_this_model_or_refused() {
    let state = state();
    let prompts = &state.world().prompts;
    let told = kept(&state, 3);
    let mut texts = told.clone();
    for turn in texts.iter_mut().flat_map(|sample| &mut sample.turns) {
        turn.prompt = prompts.template().render(&turn.messages, true).unwrap();
        turn.messages.clear();
    }
    let of = |samples: &[Sample]| lessons(&state, &how(), samples);
    let (a, b) = (of(&told).unwrap(), of(&texts).unwrap());
    assert_eq!((a.train, a.held_out), (b.train, b.held_out));
    for foreign in [
        "",
        "<|im_start|>system\nRules.<|im_end|>\n<|im_start|>assistant\n",
    ] {
        texts[0].turns[0].prompt = foreign.to_owned();
        let refused = of(&texts).unwrap_err();
        assert!(
            refused.contains("chat template of another model"),
            "{refused}"
        );
    }
    let long = how().lessons(&told, prompts, 20).unwrap_err().to_string();
    assert!(long.contains("do not fit this model"), "{long}");
}
