//! Replies that are sampled together, one token of each at a time. A reply may join between two steps, with its own settings,
//! and may leave at any time.
//!
//! A step samples on the device and reads back only ids, log-probs and entropies, all at once. The last token of a reply is
//! not run through the model, because no token follows it. A reply is bit-identical whatever else is in the batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapwing_tensor::random::mix;
use lapwing_tensor::{Indices, rl::LmHead};

use crate::sampling::{draw, each_row};
use crate::{Adapter, KvArena, Model, ModelError, SamplingOptions, TokenNode};

/// A prompt to continue.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// Token ids; not empty.
    pub prompt: Vec<u32>,
    /// The random stream of the reply: equal keys after equal prompts sample equal replies.
    pub key: u64,
}

/// Rows that a [`KvArena`] keeps free after the tokens of a reply. A reply may take this many rows more than it has tokens.
pub const SPARE_ROWS: usize = 15;

/// A reply to add to a [`ReplyBatch`].
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The prompt and the random stream.
    pub request: GenerationRequest,
    /// How to sample.
    pub sampling: SamplingOptions,
    /// If set, each token has a [`TokenScore`] with this many of the likeliest tokens.
    pub scores: Option<usize>,
}

/// The log-prob of a token under the model, at temperature 1 and without top-k and top-p.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// Log-prob of the token.
    pub log_prob: f32,
    /// The likeliest tokens at this position with their log-probs, in descending order.
    pub likeliest: Vec<(u32, f32)>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop id was sampled, or no allowed reply is longer.
    StopToken,
    /// The reply has `max_new_tokens` tokens.
    MaxTokens,
}

/// One token of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// The number of the reply.
    pub reply: u64,
    /// The token's id.
    pub token: u32,
    /// Log-prob among all tokens, or the allowed ones, at the sampling temperature (at 1 if that is 0).
    pub log_prob: f32,
    /// Entropy of that distribution in nats.
    pub entropy: f32,
    /// Set if [`BatchRequest::scores`] is.
    pub score: Option<TokenScore>,
    /// Set on the last token.
    pub finish: Option<FinishReason>,
}

static SAMPLED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of tokens that this process has sampled, for progress.
pub fn sampled_tokens() -> u64 {
    SAMPLED.load(Ordering::Relaxed)
}

/// The replies in progress with one model and adapter. All methods of a batch must be given the same arena.
#[derive(Debug)]
pub struct ReplyBatch {
    model: Model,
    adapter: Option<Adapter>,
    head: LmHead,
    rows_at_once: usize,
    active: Vec<ActiveReply>,
    next: u64,
}

#[derive(Debug)]
struct ActiveReply {
    number: u64,
    asked: BatchRequest,
    /// Prompt and reply, including the newest token.
    ids: Vec<u32>,
    end: TokenNode,
}

impl ActiveReply {
    fn sampled(&self) -> usize {
        self.ids.len() - self.asked.request.prompt.len()
    }

    /// Returns the tokens that can follow; none if all can, or if an allowed reply is complete.
    fn allowed(&self) -> Arc<[u32]> {
        let reply = &self.ids[self.asked.request.prompt.len()..];
        let allowed = self.asked.sampling.allowed.as_ref();
        allowed.map_or_else(Arc::default, |allowed| allowed.after(reply))
    }

    fn left(&self) -> usize {
        self.asked.sampling.max_new_tokens - self.sampled()
    }
}

impl ReplyBatch {
    /// Creates an empty batch. It records no gradients.
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> ReplyBatch {
        let model = model.without_gradients();
        let adapter = adapter.map(Adapter::without_gradients);
        let max_binding = model.gpu().caps().max_binding;
        ReplyBatch {
            head: model.head(adapter.as_ref()),
            rows_at_once: model.config().most_tokens(max_binding, 0),
            model,
            adapter,
            active: Vec::new(),
            next: 0,
        }
    }

    /// Returns the number of replies in progress.
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Returns whether no reply is in progress.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Returns whether the arena can hold these replies, beside those in progress, until all are done.
    pub fn has_room(&self, arena: &KvArena, requests: &[BatchRequest]) -> bool {
        let rows = |asked: &BatchRequest| {
            let longest = asked.sampling.max_new_tokens.saturating_add(SPARE_ROWS);
            longest.saturating_add(asked.request.prompt.len())
        };
        let all = self.active.iter().map(|reply| &reply.asked).chain(requests);
        all.map(rows).fold(0, usize::saturating_add) <= arena.most_rows()
    }

    /// Adds replies and returns the number of the first; the others are numbered consecutively. A reply with
    /// `max_new_tokens` of 0 is done at once. If the arena is full, rows that no reply in progress needs are freed.
    ///
    /// # Errors
    /// The arena cannot hold all replies. The batch is then empty.
    ///
    /// # Panics
    /// If a prompt is empty, or a request has allowed replies and top-k or top-p.
    #[track_caller]
    pub fn join(
        &mut self,
        arena: &mut KvArena,
        requests: Vec<BatchRequest>,
    ) -> Result<u64, ModelError> {
        for SamplingOptions {
            allowed,
            top_k,
            top_p,
            ..
        } in requests.iter().map(|r| &r.sampling)
        {
            let is_cut = *top_k > 0 || *top_p < 1.0;
            assert!(
                !is_cut || allowed.is_none(),
                "allowed replies with top-k or top-p"
            );
        }
        let prompts: Vec<&[u32]> = requests.iter().map(|r| &*r.request.prompt).collect();
        let ends = self.prefill(arena, &prompts)?;
        let first = self.next;
        for (number, (asked, end)) in (first..).zip(requests.into_iter().zip(ends)) {
            self.next = number + 1;
            if asked.sampling.max_new_tokens > 0 {
                let ids = asked.request.prompt.clone();
                self.active.push(ActiveReply {
                    number,
                    asked,
                    ids,
                    end,
                });
            }
        }
        Ok(first)
    }

    /// Removes a reply, if it is still in progress.
    pub fn leave(&mut self, number: u64) {
        self.active.retain(|reply| reply.number != number);
    }

    /// Removes all replies.
    pub fn clear(&mut self) {
        self.active.clear();
    }

    /// Samples the next token of every reply.
    ///
    /// # Errors
    /// The logits are not numbers, the arena cannot hold the replies, or the device is lost. The batch is then empty.
    pub fn step(&mut self, arena: &mut KvArena) -> Result<Vec<SampledToken>, ModelError> {
        let sampled = self.try_step(arena);
        if sampled.is_err() {
            self.active.clear();
        }
        sampled
    }

    fn try_step(&mut self, arena: &mut KvArena) -> Result<Vec<SampledToken>, ModelError> {
        let rows: Vec<(u32, u64, &SamplingOptions)> = self
            .active
            .iter()
            .map(|reply| {
                let key = mix(reply.asked.request.key ^ mix(reply.sampled() as u64 + 1));
                (arena.row(reply.end), key, &reply.asked.sampling)
            })
            .collect();
        let allowed: Vec<_> = self.active.iter().map(ActiveReply::allowed).collect();
        let draws = draw(
            arena.hidden(),
            &self.head,
            &rows,
            &allowed,
            self.rows_at_once,
        )?;
        if !draws.iter().all(|draw| draw.log_prob.is_finite()) {
            return Err(ModelError::NotNumbers);
        }
        SAMPLED.fetch_add(draws.len() as u64, Ordering::Relaxed);
        let (mut scored, mut questions) = (Vec::new(), Vec::new());
        for (i, reply) in self.active.iter().enumerate() {
            if let Some(likeliest) = reply.asked.scores {
                scored.push(i);
                questions.push((rows[i].0, draws[i].token, likeliest));
            }
        }
        let mut scores = vec![None; draws.len()];
        for (i, score) in scored.into_iter().zip(self.scores(arena, &questions)?) {
            scores[i] = Some(score);
        }
        let mut sampled = Vec::with_capacity(draws.len());
        for ((reply, draw), score) in self.active.iter_mut().zip(draws).zip(scores) {
            reply.ids.push(draw.token);
            let SamplingOptions { stop, allowed, .. } = &reply.asked.sampling;
            let is_complete = allowed.is_some() && reply.allowed().is_empty();
            let finish = match is_complete || stop.contains(&draw.token) {
                true => Some(FinishReason::StopToken),
                false => (reply.left() == 0).then_some(FinishReason::MaxTokens),
            };
            sampled.push(SampledToken {
                reply: reply.number,
                token: draw.token,
                log_prob: draw.log_prob,
                entropy: draw.entropy,
                score,
                finish,
            });
        }
        let mut finished = sampled.iter().map(|token| token.finish.is_some());
        self.active
            .retain(|_| !finished.next().expect("one for each"));
        self.advance(arena)?;
        Ok(sampled)
    }

    /// Runs the newest token of each reply through the model.
    fn advance(&mut self, arena: &mut KvArena) -> Result<(), ModelError> {
        let Some(longest) = self.active.iter().map(ActiveReply::left).max() else {
            return Ok(());
        };
        let additions: Vec<(TokenNode, &[u32])> = self
            .active
            .iter()
            .map(|reply| (reply.end, &reply.ids[reply.ids.len() - 1..]))
            .collect();
        let spare = (longest - 1).min(SPARE_ROWS) as u32;
        match arena.extend(&self.model, self.adapter.as_ref(), &additions, spare) {
            Err(ModelError::ArenaFull { .. }) => self.rebuild(arena),
            ends => {
                self.set_ends(ends?);
                Ok(())
            }
        }
    }

    fn set_ends(&mut self, ends: Vec<TokenNode>) {
        for (reply, end) in self.active.iter_mut().zip(ends) {
            reply.end = end;
        }
    }

    /// Puts prompts into the arena. If it is full, everything but the replies in progress is removed first.
    fn prefill(
        &mut self,
        arena: &mut KvArena,
        prompts: &[&[u32]],
    ) -> Result<Vec<TokenNode>, ModelError> {
        let adapter = self.adapter.as_ref();
        let ends = match arena.prefill(&self.model, adapter, prompts) {
            Err(ModelError::ArenaFull { .. }) => self
                .rebuild(arena)
                .and_then(|()| arena.prefill(&self.model, self.adapter.as_ref(), prompts)),
            ends => ends,
        };
        if ends.is_err() {
            self.active.clear();
        }
        ends
    }

    /// Clears the arena and computes the replies in progress again, bit-identical.
    fn rebuild(&mut self, arena: &mut KvArena) -> Result<(), ModelError> {
        arena.clear();
        let sequences: Vec<&[u32]> = self.active.iter().map(|reply| &*reply.ids).collect();
        let ends = arena.prefill(&self.model, self.adapter.as_ref(), &sequences)?;
        self.set_ends(ends);
        Ok(())
    }

    /// Returns the score of each token of a sequence except the first, with this many of the likeliest tokens.
    ///
    /// # Errors
    /// See [`ReplyBatch::step`].
    ///
    /// # Panics
    /// If the sequence is empty.
    #[track_caller]
    pub fn score(
        &mut self,
        arena: &mut KvArena,
        ids: &[u32],
        likeliest: usize,
    ) -> Result<Vec<TokenScore>, ModelError> {
        let end = self.prefill(arena, &[ids])?[0];
        let questions: Vec<(u32, u32, usize)> = arena
            .path(end)
            .into_iter()
            .zip(&ids[1..])
            .map(|(row, &id)| (row, id, likeliest))
            .collect();
        self.scores(arena, &questions)
    }

    /// Scores tokens. A question is an arena row, the token after it and the number of likeliest tokens.
    fn scores(
        &self,
        arena: &KvArena,
        questions: &[(u32, u32, usize)],
    ) -> Result<Vec<TokenScore>, ModelError> {
        let (hidden, gpu) = (arena.hidden(), self.model.gpu());
        let mut scores = Vec::with_capacity(questions.len());
        for questions in questions.chunks(self.rows_at_once.min(1024)) {
            let (rows, ids): (Vec<u32>, Vec<u32>) =
                questions.iter().map(|&(row, id, _)| (row, id)).unzip();
            let (rows, ids) = (Indices::new(gpu, &rows), Indices::new(gpu, &ids));
            let log_probs = hidden
                .log_probs(&self.head, &rows, &ids, &[], 1.0)
                .log_probs;
            scores.extend(log_probs.to_vec()?.into_iter().map(|log_prob| TokenScore {
                log_prob,
                likeliest: Vec::new(),
            }));
        }
        if !scores.iter().all(|score| score.log_prob.is_finite()) {
            return Err(ModelError::NotNumbers);
        }
        let more: Vec<usize> = (0..scores.len()).filter(|&i| questions[i].2 > 0).collect();
        let rows: Vec<u32> = more.iter().map(|&i| questions[i].0).collect();
        each_row(hidden, &self.head, &rows, |at, logits| {
            let (_, id, count) = questions[more[at]];
            let score = &mut scores[more[at]];
            score.likeliest = likeliest(logits, count);
            // The kernel's log-prob may differ in the last bit; one token must not have two.
            if let Some(same) = score.likeliest.iter_mut().find(|(other, _)| *other == id) {
                same.1 = score.log_prob;
            }
        })?;
        Ok(scores)
    }
}

/// Returns the tokens with the highest logits and their log-probs; of equals, the lower id comes first.
fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let highest = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|&z| f64::from(z - highest).exp()).sum();
    let log_prob = |z: f32| (f64::from(z - highest) - sum.ln()) as f32;
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    let order = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
    let count = count.min(ids.len());
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids.iter()
        .map(|&id| (id as u32, log_prob(logits[id])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_come_first_and_the_lower_of_equals() {
        let ids = |count| {
            likeliest(&[0.0, 3.0, 2.0, 3.0], count)
                .iter()
                .map(|l| l.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(0), [0u32; 0]);
        assert_eq!(ids(1), [1]);
        assert_eq!(ids(3), [1, 3, 2]);
        assert_eq!(ids(9), [1, 3, 2, 0]);
        let flat = likeliest(&[7.0; 8], 2);
        assert!((flat[1].1 + 8f32.ln()).abs() < 1e-6, "{flat:?}");
    }
}
