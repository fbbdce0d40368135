//! Many replies at once: token ids in, token ids out. This file knows no text and no game.
//!
//! Prompts and replies live in one [`KvArena`], so what they share is computed once. What goes together is one [`ReplyBatch`].

use std::collections::HashSet;

use crate::{
    Adapter, BatchRequest, FinishReason, GenerationRequest, KvArena, Model, ModelError, ReplyBatch,
    SPARE_ROWS, SamplingOptions,
};

/// What was drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeneratedReply {
    /// Token ids as drawn, the one that ended the reply included.
    pub ids: Vec<u32>,
    /// Log-prob of each token at the temperature it was drawn with (at 1 if that is 0), among all tokens.
    pub log_probs: Vec<f32>,
    /// Entropy, in nats, of that distribution.
    pub entropies: Vec<f32>,
    /// Whether it ended with a stop id; if not, it was cut at the longest length.
    pub stopped: bool,
}

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
    arena: &mut KvArena,
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
) -> Result<Vec<GeneratedReply>, ModelError> {
    let mut batch = ReplyBatch::new(model, adapter);
    let mut replies = Vec::with_capacity(requests.len());
    while replies.len() < requests.len() {
        let rest = &requests[replies.len()..];
        let (count, rows) = fitting(rest, sampling, arena.most_rows());
        if arena.rows() + rows > arena.most_rows() {
            arena.clear();
        }
        replies.extend(together(&mut batch, arena, &rest[..count], sampling)?);
    }
    Ok(replies)
}

/// How many of these requests go together so that they take at most so many rows (at least one), and how many they take
/// at most.
fn fitting(
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
    most: usize,
) -> (usize, usize) {
    let longest_reply = sampling.max_new_tokens + SPARE_ROWS;
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
    batch: &mut ReplyBatch,
    arena: &mut KvArena,
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
) -> Result<Vec<GeneratedReply>, ModelError> {
    let joining = |request: &GenerationRequest| BatchRequest {
        request: request.clone(),
        sampling: sampling.clone(),
        tell: None,
    };
    let first = batch.join(arena, requests.iter().map(joining).collect())?;
    let mut replies = vec![GeneratedReply::default(); requests.len()];
    while !batch.is_empty() {
        for drawn in batch.step(arena)? {
            let reply = &mut replies[(drawn.reply - first) as usize];
            reply.ids.push(drawn.token);
            reply.log_probs.push(drawn.log_prob);
            reply.entropies.push(drawn.entropy);
            reply.stopped = drawn.end == Some(FinishReason::StopToken);
        }
    }
    Ok(replies)
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
