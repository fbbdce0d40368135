//! Imitation of the scripted player, on the base model.

use lapwing_model::{TokenTree, Tokens};
use lapwing_play::players::scripted::ScriptedPlayer;
use lapwing_play::sample::EpisodeOrigin;
use lapwing_play::{Referee, Seat, UnreadReason};
use lapwing_tensor::Indices;

use super::*;
use crate::testing::{TestSettings, evaluation_seats};

fn learner() -> (LanguageLearner, TestSettings) {
    let settings = TestSettings::load("frozen-lake", &[]);
    (settings.language(), settings)
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

/// Kept episodes of the scripted player on training scenes.
fn kept(learner: &LanguageLearner, count: usize) -> Vec<KeptEpisode> {
    let world = learner.world();
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
    let mut player = ScriptedPlayer::default();
    let played = referee.play(scenario, &seats, &mut [&mut player], &mut |_| ());
    let sample = |(seat, episode): (&Seat, &Episode)| {
        let place = EpisodeOrigin {
            step: 0,
            purpose: EpisodePurpose::Training,
            game: None,
            scene: seat.scene,
            agent: 0,
        };
        let sample = KeptEpisode::of(episode, place, scenario.actions(), None).unwrap();
        sample.told(episode, framing).unwrap()
    };
    seats.iter().zip(&played.unwrap()).map(sample).collect()
}

fn demonstrations(
    learner: &LanguageLearner,
    how: &Imitation,
    samples: &[KeptEpisode],
) -> Result<Demonstrations, String> {
    let data = how.demonstrations(samples, &learner.world().prompts, 256);
    data.map_err(|error| error.to_string())
}

fn success(learner: &mut LanguageLearner, settings: &TestSettings) -> f64 {
    let seats = evaluation_seats(learner.world(), 60);
    let played = learner.play(&settings.policy, 0, &seats, 1.0, &()).unwrap();
    played.iter().filter(|episode| episode.success).count() as f64 / played.len() as f64
}

#[test]
fn the_base_learns_from_the_scripted_player() {
    let (mut learner, settings) = learner();
    let data = demonstrations(&learner, &how(), &kept(&learner, 160)).unwrap();
    // Some of the 160 lakes are equal, and one of them is among the tenth that is held out.
    assert_eq!((data.train.len(), data.held_out.len()), (141, 19));
    let before = success(&mut learner, &settings);
    let mut losses = Vec::new();
    let imitated = imitate(
        &mut learner,
        &settings.train,
        &data,
        &how(),
        &mut |update| {
            losses.push(update.loss);
            true
        },
    )
    .unwrap();
    assert_eq!(losses.len(), 18);
    // The base already ends replies well, so that half of the tokens have no loss; a mean over few updates is noisy.
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..4]), mean(&losses[14..]));
    assert!(last < 0.85 * first, "{losses:?}");
    let (old, new) = (imitated.before.unwrap(), imitated.after.unwrap());
    assert!(new < 0.85 * old, "held out: {old} to {new}");
    let after = success(&mut learner, &settings);
    // The base cannot play, and 18 updates do not teach it all.
    assert!(after > before + 0.1, "success: {before} to {after}");
}

/// The loss of the packed tree equals that of single replies, token by token, so that a shifted target would show.
#[test]
fn the_loss_is_that_of_separate_sequences() {
    let (learner, _) = learner();
    let data = demonstrations(&learner, &how(), &kept(&learner, 6)).unwrap();
    let (model, adapter) = (&learner.policy.model, learner.policy.adapter.as_ref());
    let (mut sum, mut count) = (0.0, 0);
    for reply in data.train.iter().flat_map(Episode::sampled) {
        // One word and the stop token.
        assert_eq!(reply.ids.len(), 2);
        assert!(
            learner
                .world()
                .prompts
                .tokenizer()
                .stop_ids()
                .contains(&reply.ids[1])
        );
        for (k, id) in reply.ids.iter().enumerate() {
            let text = [&reply.prompt[..], &reply.ids[..k]].concat();
            let mut tree = TokenTree::default();
            tree.insert(&text);
            let hidden = model.forward(&Tokens::new(model.gpu(), &tree.pack()), adapter);
            let row = Indices::new(model.gpu(), &[text.len() as u32 - 1]);
            let target = Indices::new(model.gpu(), &[*id]);
            let log_prob = hidden.log_probs(&model.head(adapter), &row, &target, &[], 1.0);
            sum -= f64::from(log_prob.log_probs.to_vec().unwrap()[0]);
            count += 1;
        }
    }
    let wanted = sum / f64::from(count);
    for limit in [1, 100, 100_000] {
        let part = |batch: &Batch| cross_entropy(model, adapter, batch).to_vec().unwrap()[0];
        let loss: f64 = pack_all(data.train.iter(), limit)
            .iter()
            .map(|batch| f64::from(part(batch)))
            .sum();
        // f32 through four blocks, about fifty tokens.
        assert!((loss - wanted).abs() < 1e-4 * wanted, "{loss} and {wanted}");
    }
}

#[test]
fn only_readable_and_good_enough_replies_are_used() {
    let (learner, _) = learner();
    let mut samples = kept(&learner, 30);
    let turns = samples[0].turns.len();
    samples[0].turns[0].action = None;
    samples[0].turns[0].unread = Some(UnreadReason::NoTag);
    samples[1].purpose = EpisodePurpose::Evaluation;
    (samples[2].success, samples[2].game_return) = (false, 0.0);
    for turn in &mut samples[3].turns {
        turn.action = None;
    }
    let counts = |how: &Imitation, samples: &[KeptEpisode]| {
        let data = demonstrations(&learner, how, samples).unwrap();
        let replies = data.train.iter().chain(&data.held_out);
        let replies: usize = replies.map(|episode| episode.turns.len()).sum();
        (
            data.train.len() + data.held_out.len(),
            data.evaluations,
            data.filtered,
            data.unreadable,
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

    let nothing = demonstrations(&learner, &how(), &samples[1..2]).unwrap_err();
    assert!(nothing.contains("1 are of evaluations"), "{nothing}");
}

/// All episodes of a scene are on the same side.
#[test]
fn a_scene_is_held_out_whole() {
    let (learner, _) = learner();
    let once = kept(&learner, 20);
    let mut twice = [&once[..], &once[..]].concat();
    // Another seed can draw the same scene.
    for (number, sample) in twice[20..].iter_mut().enumerate() {
        sample.scene = number.to_string();
    }
    let held: Vec<bool> = {
        let starts = starts(&twice);
        let held = held_out(twice.iter(), &starts);
        let is_held = |sample: &KeptEpisode| held.contains(starts[&*sample.scene]);
        twice.iter().map(is_held).collect()
    };
    assert_eq!(held[..20], held[20..]);
    assert_eq!(held.iter().filter(|held| **held).count(), 4);
    assert!(held_out(once[..1].iter(), &starts(&once)).is_empty());
}

/// Runs keep prompts as text in the chat template of their model.
#[test]
fn a_prompt_as_text_is_of_this_model_or_refused() {
    let (learner, _) = learner();
    let prompts = &learner.world().prompts;
    let with_messages = kept(&learner, 3);
    let mut texts = with_messages.clone();
    for turn in texts.iter_mut().flat_map(|sample| &mut sample.turns) {
        turn.prompt = prompts.template().render(&turn.messages, true).unwrap();
        turn.messages.clear();
    }
    let of = |samples: &[KeptEpisode]| demonstrations(&learner, &how(), samples);
    let (a, b) = (of(&with_messages).unwrap(), of(&texts).unwrap());
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
    let long = how().demonstrations(&with_messages, prompts, 20);
    let long = long.unwrap_err().to_string();
    assert!(long.contains("do not fit this model"), "{long}");
}
