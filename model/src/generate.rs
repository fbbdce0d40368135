//! Samples many replies: token ids in, token ids out.

use std::collections::HashSet;

use crate::{
    Adapter, BatchRequest, FinishReason, GenerationRequest, KvArena, Model, ModelError, ReplyBatch,
    SPARE_ROWS, SamplingOptions,
};

/// A sampled reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeneratedReply {
    /// Token ids, including the stop id if there is one.
    pub ids: Vec<u32>,
    /// Log-prob of each token among all tokens, or the allowed ones, at the sampling temperature (at 1 if that is 0).
    pub log_probs: Vec<f32>,
    /// Entropy of that distribution in nats.
    pub entropies: Vec<f32>,
    /// Whether it ended with a stop id or as an allowed reply; if not, it was cut at its maximum length.
    pub stopped: bool,
}

/// Continues every prompt. If the arena cannot hold all of them, they are processed in parts, with the same result.
/// `watch` receives the index of a request and the ids of its reply: none before the first token, then after each token. If
/// it returns false, the replies are returned as they are. Rows of the arena that are there are used, so
/// [clear](KvArena::clear) it before another adapter or after an optimiser step.
///
/// # Errors
/// The arena cannot hold a prompt and its reply, the logits are not numbers, or the device is lost.
///
/// # Panics
/// If a prompt is empty, or an id is not in the vocabulary.
#[track_caller]
pub fn generate(
    model: &Model,
    adapter: Option<&Adapter>,
    arena: &mut KvArena,
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
    watch: &mut dyn FnMut(usize, &[u32]) -> bool,
) -> Result<Vec<GeneratedReply>, ModelError> {
    let mut batch = ReplyBatch::new(model, adapter);
    let mut replies = vec![GeneratedReply::default(); requests.len()];
    let mut done = 0;
    if !(0..requests.len()).all(|request| watch(request, &[])) {
        return Ok(replies);
    }
    while done < requests.len() {
        let (count, rows) = fitting(&requests[done..], sampling, arena.most_rows());
        if arena.rows() + rows > arena.most_rows() {
            arena.clear();
        }
        let new = requests[done..done + count].iter().map(|r| BatchRequest {
            request: r.clone(),
            sampling: sampling.clone(),
            scores: None,
        });
        // All earlier requests joined too, so the number of a reply is its index.
        batch.join(arena, new.collect())?;
        while !batch.is_empty() {
            for sampled in batch.step(arena)? {
                let reply = &mut replies[sampled.reply as usize];
                reply.ids.push(sampled.token);
                reply.log_probs.push(sampled.log_prob);
                reply.entropies.push(sampled.entropy);
                reply.stopped = sampled.finish == Some(FinishReason::StopToken);
                if !watch(sampled.reply as usize, &reply.ids) {
                    return Ok(replies);
                }
            }
        }
        done += count;
    }
    Ok(replies)
}

/// Returns how many requests fit into `most` rows together, at least one, and the most rows that they take.
fn fitting(
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
    most: usize,
) -> (usize, usize) {
    let longest_reply = sampling.max_new_tokens + SPARE_ROWS;
    let first = &requests[0].prompt;
    let shared = requests.iter().map(|request| {
        let pairs = first.iter().zip(&request.prompt);
        pairs.take_while(|(a, b)| a == b).count()
    });
    let shared = shared.min().unwrap_or(0);
    let (mut rows, mut seen) = (shared, HashSet::new());
    for (count, request) in requests.iter().enumerate() {
        let new = match seen.insert(&request.prompt) {
            true => request.prompt.len() - shared,
            false => 0,
        };
        if count > 0 && rows + longest_reply + new > most {
            return (count, rows);
        }
        rows += longest_reply + new;
    }
    (requests.len(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_together_as_far_as_there_is_room() {
        let request = |prompt: &[u32]| GenerationRequest {
            prompt: prompt.to_vec(),
            key: 0,
        };
        let requests = [
            request(&[1, 2, 3]),
            request(&[1, 2, 3]),
            request(&[1, 2, 4, 5]),
        ];
        let sampling = SamplingOptions {
            max_new_tokens: 5,
            ..SamplingOptions::default()
        };
        // Two shared tokens; 5 + 15 for each reply, 1 and 2 for the rest of the prompts.
        assert_eq!(fitting(&requests, &sampling, 65), (3, 65));
        assert_eq!(fitting(&requests, &sampling, 64), (2, 43));
        assert_eq!(fitting(&requests, &sampling, 1), (1, 23));
    }
}
