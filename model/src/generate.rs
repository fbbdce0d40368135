//! Many replies at once: token ids in, token ids out. This file knows no text and no game.
//!
//! Prompts and replies live in one [`Arena`], so what they share is computed once. Every round draws one token for
//! each living reply on the device and reads back only its id, log-prob and entropy, all at once; finished replies leave
//! at once, and the last token of a reply is never run through the model, because nobody asks what follows it.

use std::collections::HashSet;

use lapwing_tensor::random::{Random, mix};
use lapwing_tensor::{Draw, Head, Indices, Tensor};

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
    /// Draw from so many likeliest tokens only; 0: from all.
    pub top_k: usize,
    /// Draw from the fewest likeliest tokens whose chances reach this sum; 1: from all. After `top_k`, as in
    /// transformers.
    pub top_p: f32,
    /// Longest reply, in tokens.
    pub max_new_tokens: usize,
    /// Ids that end a reply.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    /// The model as it is: temperature 1, nothing cut off, 256 tokens.
    fn default() -> Sampling {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            max_new_tokens: 256,
            stop: Vec::new(),
        }
    }
}

/// What was drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Token ids as drawn, the one that ended the reply included.
    pub ids: Vec<u32>,
    /// Log-prob of each token at the temperature it was drawn with (at 1 if that is 0), among all tokens.
    pub log_probs: Vec<f32>,
    /// Entropy, in nats, of that distribution.
    pub entropies: Vec<f32>,
    /// Whether it ended with a stop id; if not, it was cut at the longest length.
    pub stopped: bool,
}

/// Rows that an arena keeps free behind a reply's token; see [`Arena::extend`]. A reply may take so many more than it has
/// tokens.
pub const ROOM: usize = 15;

/// Continues every prompt. What the arena cannot hold at once is done in parts, with the same result.
///
/// # Errors
/// A prompt and reply that the arena cannot hold, logits that are not numbers, or a lost device.
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
    let mut replies = Vec::with_capacity(requests.len());
    while replies.len() < requests.len() {
        let rest = &requests[replies.len()..];
        let (count, rows) = fitting(rest, sampling, arena.most_rows());
        if arena.rows() + rows > arena.most_rows() {
            arena.clear();
        }
        replies.extend(together(
            model,
            adapter.as_ref(),
            arena,
            &rest[..count],
            sampling,
        )?);
    }
    Ok(replies)
}

/// How many of these requests go together so that they take at most so many rows (at least one), and how many they take
/// at most.
fn fitting(requests: &[Request], sampling: &Sampling, most: usize) -> (usize, usize) {
    let longest_reply = sampling.max_new_tokens + ROOM;
    let first = &requests[0].prompt;
    let mut shared = first.len();
    for request in requests {
        let alike = first
            .iter()
            .zip(&request.prompt)
            .take_while(|(a, b)| a == b);
        shared = alike.count().min(shared);
    }
    let (mut rows, mut seen) = (shared, HashSet::new());
    for (count, request) in requests.iter().enumerate() {
        let new = seen.insert(&request.prompt);
        let own = longest_reply
            + if new {
                request.prompt.len() - shared
            } else {
                0
            };
        if count > 0 && rows + own > most {
            return (count, rows);
        }
        rows += own;
    }
    (requests.len(), rows)
}

/// Continues prompts that fit the arena together.
fn together(
    model: &Model,
    adapter: Option<&Adapter>,
    arena: &mut Arena,
    requests: &[Request],
    sampling: &Sampling,
) -> Result<Vec<Reply>, ModelError> {
    let head = model.head(adapter);
    let at_once = model
        .config()
        .most_tokens(model.gpu().caps().max_binding, 0);
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
        let keys: Vec<u64> = living
            .iter()
            .map(|&i| mix(requests[i].key ^ mix(round as u64 + 1)))
            .collect();
        let mut drawn = Vec::with_capacity(living.len());
        for (rows, keys) in rows.chunks(at_once).zip(keys.chunks(at_once)) {
            let rows = Indices::new(model.gpu(), rows);
            drawn.extend(draw(arena.hidden(), &head, &rows, keys, sampling)?);
        }
        if !drawn.iter().all(|draw| draw.log_prob.is_finite()) {
            return Err(ModelError::NotNumbers);
        }
        for (&i, draw) in living.iter().zip(drawn) {
            let reply = &mut replies[i];
            reply.ids.push(draw.token);
            reply.log_probs.push(draw.log_prob);
            reply.entropies.push(draw.entropy);
            reply.stopped = sampling.stop.contains(&draw.token);
        }
        living.retain(|&i| !replies[i].stopped);
        let left = sampling.max_new_tokens - round - 1;
        if left > 0 && !living.is_empty() {
            let newest = |&i: &usize| {
                let last = replies[i].ids.last_chunk::<1>().expect("one was drawn");
                (ends[i], last.as_slice())
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

/// One token after each of these rows: on the device, unless only some tokens are in question.
fn draw(
    hidden: &Tensor,
    head: &Head,
    rows: &Indices,
    keys: &[u64],
    sampling: &Sampling,
) -> Result<Vec<Draw>, ModelError> {
    let cut = sampling.top_k > 0 || sampling.top_p < 1.0;
    if cut && sampling.temperature > 0.0 {
        let logits = hidden.gather_rows(rows).logits(head).to_vec()?;
        let rows = logits.chunks_exact(head.weight.rows()).zip(keys);
        return Ok(rows
            .map(|(logits, key)| among(logits, *key, sampling))
            .collect());
    }
    let keys: Vec<[u32; 2]> = keys
        .iter()
        .map(|&key| [key as u32, (key >> 32) as u32])
        .collect();
    Ok(hidden
        .draw(head, rows, &keys, sampling.temperature)
        .read()?)
}

/// A token among the likeliest of a row.
fn among(logits: &[f32], key: u64, sampling: &Sampling) -> Draw {
    let scaled: Vec<f64> = logits
        .iter()
        .map(|&z| f64::from(z) / f64::from(sampling.temperature))
        .collect();
    let highest = scaled.iter().copied().fold(f64::MIN, f64::max);
    let total: f64 = scaled.iter().map(|z| (z - highest).exp()).sum();
    let log_prob = |id: usize| scaled[id] - highest - total.ln();

    let mut likeliest: Vec<usize> = (0..scaled.len()).collect();
    // The lower id of equals, so that the order is always the same.
    likeliest.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]).then(a.cmp(&b)));
    if sampling.top_k > 0 {
        likeliest.truncate(sampling.top_k);
    }
    let kept: f64 = likeliest.iter().map(|&id| log_prob(id).exp()).sum();
    let (mut sum, mut count) = (0.0, 0);
    for &id in &likeliest {
        sum += log_prob(id).exp();
        count += 1;
        if sum >= f64::from(sampling.top_p) * kept {
            break;
        }
    }
    likeliest.truncate(count);

    let mut left = Random::new(key).uniform() * sum;
    let chosen = likeliest.iter().find(|&&id| {
        left -= log_prob(id).exp();
        left < 0.0
    });
    let id = *chosen.unwrap_or(&likeliest[count - 1]);
    let entropy: f64 = (0..scaled.len())
        .map(|id| -log_prob(id).exp() * log_prob(id))
        .filter(|h| h.is_finite())
        .sum();
    Draw {
        token: id as u32,
        log_prob: log_prob(id) as f32,
        entropy: entropy as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sampling: &Sampling) -> Vec<u32> {
        let logits = [0.0f32, 3.0, 2.0, 3.0, -1.0];
        let mut ids: Vec<u32> = (0..2000)
            .map(|key| among(&logits, mix(key), sampling).token)
            .collect();
        ids.sort_unstable();
        ids
    }

    fn distinct(mut ids: Vec<u32>) -> Vec<u32> {
        ids.dedup();
        ids
    }

    #[test]
    fn only_the_likeliest_are_drawn() {
        let sampling = |top_k, top_p, temperature| Sampling {
            top_k,
            top_p,
            temperature,
            ..Sampling::default()
        };
        assert_eq!(distinct(drawn(&sampling(0, 1.0, 1.0))), [0, 1, 2, 3, 4]);
        assert_eq!(distinct(drawn(&sampling(3, 1.0, 1.0))), [1, 2, 3]);
        assert_eq!(distinct(drawn(&sampling(1, 1.0, 1.0))), [1]);
        // Chances 0.41, 0.41, 0.15, 0.02, 0.01: two reach 0.8, three 0.9.
        assert_eq!(distinct(drawn(&sampling(0, 0.8, 1.0))), [1, 3]);
        assert_eq!(distinct(drawn(&sampling(0, 0.9, 1.0))), [1, 2, 3]);
        // Of the three, renormalised to 0.42, 0.42, 0.16.
        assert_eq!(distinct(drawn(&sampling(3, 0.83, 1.0))), [1, 3]);
        // Hotter, the first two are less likely, and the third is needed.
        assert_eq!(distinct(drawn(&sampling(0, 0.8, 2.0))), [1, 2, 3]);
    }

    #[test]
    fn they_are_drawn_as_often_as_they_are_likely() {
        let three = Sampling {
            top_k: 3,
            ..Sampling::default()
        };
        let twos = drawn(&three).iter().filter(|&&id| id == 2).count();
        // 0.155 of 2000; four standard deviations are 65.
        assert!((245..375).contains(&twos), "{twos}");
    }

    #[test]
    fn log_prob_and_entropy_are_of_the_whole_distribution() {
        let flat = among(
            &[1.0; 8],
            3,
            &Sampling {
                top_k: 2,
                ..Sampling::default()
            },
        );
        assert!((flat.log_prob + 8f32.ln()).abs() < 1e-6);
        assert!((flat.entropy - 8f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn requests_are_taken_together_as_far_as_there_is_room() {
        let request = |prompt: &[u32]| Request {
            prompt: prompt.to_vec(),
            key: 0,
        };
        let requests = [
            request(&[1, 2, 3]),
            request(&[1, 2, 3]),
            request(&[1, 2, 4, 5]),
        ];
        let sampling = Sampling {
            max_new_tokens: 5,
            ..Sampling::default()
        };
        // Two shared tokens; 5 + 15 for each reply, 1 and 2 for the rest of the prompts.
        assert_eq!(fitting(&requests, &sampling, 65), (3, 65));
        assert_eq!(fitting(&requests, &sampling, 64), (2, 43));
        assert_eq!(fitting(&requests, &sampling, 1), (1, 23));
    }
}
