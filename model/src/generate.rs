//! Many replies at once: token ids in, token ids out. This file knows no text and no game.
//!
//! Prompts and replies live in one [`Arena`], so what they share is computed once. Every round draws one token for
//! each living reply on the device and reads back only its id, log-prob and entropy; finished replies leave at once, and the last token of
//! a reply is never run through the model, because nobody asks what follows it.

use lapwing_tensor::{Draws, Indices};

use crate::random::mix;
use crate::{Adapter, Arena, Model, ModelError, Node};

/// A prompt to be continued.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids; not empty.
    pub prompt: Vec<u32>,
    /// The random stream of this reply: equal keys after equal prompts draw equal replies.
    pub key: u64,
}

/// How to draw.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the likeliest token.
    pub temperature: f32,
    /// Longest reply, in tokens.
    pub max_new_tokens: usize,
    /// Ids that end a reply.
    pub stop: Vec<u32>,
}

/// What was drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Token ids as drawn, the one that ended the reply included.
    pub ids: Vec<u32>,
    /// Log-prob of each token at the temperature it was drawn with (at 1 if that is 0).
    pub log_probs: Vec<f32>,
    /// Entropy, in nats, of what each token was drawn from.
    pub entropies: Vec<f32>,
    /// Whether it ended with a stop id; if not, it was cut at the longest length.
    pub stopped: bool,
}

/// Free rows kept behind a reply's token; see [`Arena::extend`].
const ROOM: usize = 15;

/// Continues every prompt.
///
/// # Errors
/// A full arena or a lost device.
///
/// # Panics
/// If a prompt is empty.
#[track_caller]
pub fn generate(
    model: &Model,
    adapter: Option<&Adapter>,
    arena: &mut Arena,
    requests: &[Request],
    sampling: &Sampling,
) -> Result<Vec<Reply>, ModelError> {
    // Nothing here is learned from, so nothing may be recorded.
    let model = &model.without_gradients();
    let adapter = adapter.map(Adapter::without_gradients);
    let adapter = adapter.as_ref();
    let head = model.head(adapter);
    let prompts: Vec<&[u32]> = requests
        .iter()
        .map(|request| request.prompt.as_slice())
        .collect();
    let mut ends = arena.prefill(model, adapter, &prompts)?;
    let mut replies = vec![Reply::default(); requests.len()];
    let mut living: Vec<usize> = (0..requests.len()).collect();
    for round in 0..sampling.max_new_tokens {
        if living.is_empty() {
            break;
        }
        let rows: Vec<u32> = living.iter().map(|&i| arena.row(ends[i])).collect();
        let keys: Vec<[u32; 2]> = living
            .iter()
            .map(|&i| key(requests[i].key, round))
            .collect();
        let rows = Indices::new(model.gpu(), &rows);
        let draws = arena
            .hidden()
            .draw(&head, &rows, &keys, sampling.temperature);
        append(&mut replies, &living, &draws, &sampling.stop)?;
        living.retain(|&i| !replies[i].stopped);
        let left = sampling.max_new_tokens - round - 1;
        if left > 0 && !living.is_empty() {
            let newest = |&i: &usize| {
                (
                    ends[i],
                    replies[i]
                        .ids
                        .last_chunk::<1>()
                        .expect("one was drawn")
                        .as_slice(),
                )
            };
            let additions: Vec<(Node, &[u32])> = living.iter().map(newest).collect();
            let new = arena.extend(model, adapter, &additions, (left - 1).min(ROOM) as u32)?;
            for (&i, end) in living.iter().zip(new) {
                ends[i] = end;
            }
        }
    }
    Ok(replies)
}

/// Reads back one token for each living reply.
fn append(
    replies: &mut [Reply],
    living: &[usize],
    draws: &Draws,
    stop: &[u32],
) -> Result<(), ModelError> {
    let (ids, log_probs, entropies) = (
        draws.tokens.to_vec()?,
        draws.log_probs.to_vec()?,
        draws.entropy.to_vec()?,
    );
    for (drawn, &i) in living.iter().enumerate() {
        let reply = &mut replies[i];
        reply.ids.push(ids[drawn]);
        reply.log_probs.push(log_probs[drawn]);
        reply.entropies.push(entropies[drawn]);
        reply.stopped = stop.contains(&ids[drawn]);
    }
    Ok(())
}

/// The counter generator's key of one draw.
fn key(stream: u64, round: usize) -> [u32; 2] {
    let mixed = mix(stream ^ mix(round as u64 + 1));
    [mixed as u32, (mixed >> 32) as u32]
}
