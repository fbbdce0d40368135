//! Replies under way, a token at a time: new ones may join between two tokens, each with its own settings, and any may
//! leave.
//!
//! Every step draws one token for each reply on the device and reads back only its id, log-prob and entropy, all at once;
//! finished replies leave at once, and the last token of a reply is never run through the model, because nobody asks what
//! follows it. What is drawn does not depend on what else is under way, to the last bit.

use lapwing_tensor::random::mix;
use lapwing_tensor::{Indices, rl::LmHead};

use crate::sampling::{draw, each_row};
use crate::{Adapter, Arena, Model, ModelError, Node, Sampling};

/// A prompt to be continued.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids; not empty.
    pub prompt: Vec<u32>,
    /// The random stream of this reply: equal keys after equal prompts draw equal replies.
    pub key: u64,
}

/// Rows that an arena keeps free behind a reply's token; see [`Arena::extend`]. A reply may take so many more than it has
/// tokens.
pub const ROOM: usize = 15;

/// A reply that is to be begun.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The prompt and its luck.
    pub request: Request,
    /// How to draw.
    pub sampling: Sampling,
    /// Whether to tell how likely the model finds each token, and so many of the likeliest in its place.
    pub tell: Option<usize>,
}

/// How likely the model, at temperature 1 and with nothing cut off, finds a token, and which it finds likeliest.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Log-prob of the token.
    pub log_prob: f32,
    /// The likeliest tokens in its place, the likeliest first, with their log-probs.
    pub likeliest: Vec<(u32, f32)>,
}

/// Why a reply is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a stop id.
    Stopped,
    /// At its longest length.
    Longest,
}

/// One token of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The number of the reply.
    pub reply: u64,
    /// Its id.
    pub token: u32,
    /// Log-prob at the temperature it was drawn with (at 1 if that is 0), among all tokens.
    pub log_prob: f32,
    /// Entropy, in nats, of that distribution.
    pub entropy: f32,
    /// What was wanted beside.
    pub told: Option<Told>,
    /// Set with the last token.
    pub end: Option<End>,
}

/// Replies under way with one model and adapter. All of its work is done in the arena that it is given, which must be the
/// same each time.
pub struct Batch {
    model: Model,
    adapter: Option<Adapter>,
    head: LmHead,
    at_once: usize,
    living: Vec<Living>,
    next: u64,
}

/// A reply under way.
struct Living {
    number: u64,
    prompt: usize,
    /// Prompt and reply, the newest token included.
    ids: Vec<u32>,
    key: u64,
    sampling: Sampling,
    tell: Option<usize>,
    end: Node,
}

impl Living {
    fn drawn(&self) -> usize {
        self.ids.len() - self.prompt
    }

    fn left(&self) -> usize {
        self.sampling.max_new_tokens - self.drawn()
    }
}

impl Batch {
    /// No reply yet. Nothing here is learned from, so nothing is recorded.
    pub fn new(model: &Model, adapter: Option<&Adapter>) -> Batch {
        let model = model.without_gradients();
        let adapter = adapter.map(Adapter::without_gradients);
        Batch {
            head: model.head(adapter.as_ref()),
            at_once: model
                .config()
                .most_tokens(model.gpu().caps().max_binding, 0),
            model,
            adapter,
            living: Vec::new(),
            next: 0,
        }
    }

    /// Replies under way.
    pub fn len(&self) -> usize {
        self.living.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.living.is_empty()
    }

    /// Whether the arena has room for such replies too until all are done.
    pub fn has_room(&self, arena: &Arena, joining: &[Joining]) -> bool {
        let own = |prompt: usize, sampling: &Sampling| {
            let longest = prompt.saturating_add(sampling.max_new_tokens);
            longest.saturating_add(ROOM)
        };
        let living = self.living.iter();
        let living = living.map(|reply| own(reply.prompt, &reply.sampling));
        let new = joining.iter();
        let new = new.map(|one| own(one.request.prompt.len(), &one.sampling));
        let taken = living.chain(new).fold(0usize, usize::saturating_add);
        taken <= arena.most_rows()
    }

    /// Begins replies, and gives the number of the first; the others have those that follow. A reply that may have no
    /// token is over at once. If the arena is full, what no reply under way needs is forgotten.
    ///
    /// # Errors
    /// If the arena cannot hold all of them. No reply is under way then.
    ///
    /// # Panics
    /// If a prompt is empty.
    #[track_caller]
    pub fn join(&mut self, arena: &mut Arena, joining: Vec<Joining>) -> Result<u64, ModelError> {
        let prompts: Vec<&[u32]> = joining.iter().map(|one| &*one.request.prompt).collect();
        let ends = self.prefill(arena, &prompts)?;
        let first = self.next;
        for (one, end) in joining.into_iter().zip(ends) {
            let Joining {
                request,
                sampling,
                tell,
            } = one;
            if sampling.max_new_tokens > 0 {
                self.living.push(Living {
                    number: self.next,
                    prompt: request.prompt.len(),
                    ids: request.prompt,
                    key: request.key,
                    sampling,
                    tell,
                    end,
                });
            }
            self.next += 1;
        }
        Ok(first)
    }

    /// Takes a reply out before its end; one that is over is none any more.
    pub fn leave(&mut self, number: u64) {
        self.living.retain(|reply| reply.number != number);
    }

    /// Takes all of them out.
    pub fn clear(&mut self) {
        self.living.clear();
    }

    /// Draws the next token of every reply.
    ///
    /// # Errors
    /// Logits that are not numbers, an arena that cannot hold the replies, or a lost device. No reply is under way then.
    pub fn step(&mut self, arena: &mut Arena) -> Result<Vec<Drawn>, ModelError> {
        let drawn = self.try_step(arena);
        if drawn.is_err() {
            self.living.clear();
        }
        drawn
    }

    fn try_step(&mut self, arena: &mut Arena) -> Result<Vec<Drawn>, ModelError> {
        let asked: Vec<(u32, u64, &Sampling)> = self
            .living
            .iter()
            .map(|reply| {
                let key = mix(reply.key ^ mix(reply.drawn() as u64 + 1));
                (arena.row(reply.end), key, &reply.sampling)
            })
            .collect();
        let draws = draw(arena.hidden(), &self.head, &asked, self.at_once)?;
        if !draws.iter().all(|draw| draw.log_prob.is_finite()) {
            return Err(ModelError::NotNumbers);
        }
        let wanted: Vec<(usize, usize)> = (self.living.iter().enumerate())
            .filter_map(|(i, reply)| Some((i, reply.tell?)))
            .collect();
        let questions: Vec<(u32, u32, usize)> = wanted
            .iter()
            .map(|&(i, likeliest)| (asked[i].0, draws[i].token, likeliest))
            .collect();
        let mut told = vec![None; draws.len()];
        for ((i, _), answer) in wanted.into_iter().zip(self.told(arena, &questions)?) {
            told[i] = Some(answer);
        }
        let mut drawn = Vec::with_capacity(draws.len());
        for ((reply, draw), told) in self.living.iter_mut().zip(draws).zip(told) {
            reply.ids.push(draw.token);
            let end = match reply.sampling.stop.contains(&draw.token) {
                true => Some(End::Stopped),
                false => (reply.left() == 0).then_some(End::Longest),
            };
            drawn.push(Drawn {
                reply: reply.number,
                token: draw.token,
                log_prob: draw.log_prob,
                entropy: draw.entropy,
                told,
                end,
            });
        }
        let mut ended = drawn.iter().map(|drawn| drawn.end.is_some());
        self.living.retain(|_| !ended.next().expect("one for each"));
        self.advance(arena)?;
        Ok(drawn)
    }

    /// Runs the newest token of each reply through the model.
    fn advance(&mut self, arena: &mut Arena) -> Result<(), ModelError> {
        let Some(longest) = self.living.iter().map(Living::left).max() else {
            return Ok(());
        };
        let newest = |reply: &Living| reply.ids.len() - 1;
        let additions: Vec<(Node, &[u32])> = self
            .living
            .iter()
            .map(|reply| (reply.end, &reply.ids[newest(reply)..]))
            .collect();
        let room = (longest - 1).min(ROOM) as u32;
        let ends = match arena.extend(&self.model, self.adapter.as_ref(), &additions, room) {
            Err(ModelError::ArenaFull { .. }) => return self.rebuild(arena),
            ends => ends?,
        };
        for (reply, end) in self.living.iter_mut().zip(ends) {
            reply.end = end;
        }
        Ok(())
    }

    /// Puts prompts into the arena; if it is full, into one that holds the living alone.
    fn prefill(&mut self, arena: &mut Arena, prompts: &[&[u32]]) -> Result<Vec<Node>, ModelError> {
        let adapter = self.adapter.as_ref();
        let ends = match arena.prefill(&self.model, adapter, prompts) {
            Err(ModelError::ArenaFull { .. }) => self
                .rebuild(arena)
                .and_then(|()| arena.prefill(&self.model, self.adapter.as_ref(), prompts)),
            ends => ends,
        };
        if ends.is_err() {
            self.living.clear();
        }
        ends
    }

    /// Computes what the living have so far again, in an arena that was full and has been cleared: the same to the last
    /// bit, without what is left of those that are gone.
    fn rebuild(&mut self, arena: &mut Arena) -> Result<(), ModelError> {
        arena.clear();
        let sequences: Vec<&[u32]> = self.living.iter().map(|reply| &*reply.ids).collect();
        let ends = arena.prefill(&self.model, self.adapter.as_ref(), &sequences)?;
        for (reply, end) in self.living.iter_mut().zip(ends) {
            reply.end = end;
        }
        Ok(())
    }

    /// How likely the model finds each token of a sequence but the first, and so many of the likeliest in its place.
    ///
    /// # Errors
    /// As [`Batch::step`].
    ///
    /// # Panics
    /// If the sequence is empty.
    #[track_caller]
    pub fn score(
        &mut self,
        arena: &mut Arena,
        ids: &[u32],
        likeliest: usize,
    ) -> Result<Vec<Told>, ModelError> {
        let end = self.prefill(arena, &[ids])?[0];
        let rows = arena.path(end);
        let questions: Vec<(u32, u32, usize)> = rows
            .iter()
            .zip(&ids[1..])
            .map(|(&row, &id)| (row, id, likeliest))
            .collect();
        self.told(arena, &questions)
    }

    /// Of arena rows, tokens that follow them, and how many others are wanted.
    fn told(&self, arena: &Arena, asked: &[(u32, u32, usize)]) -> Result<Vec<Told>, ModelError> {
        let (hidden, gpu) = (arena.hidden(), self.model.gpu());
        let mut told = Vec::with_capacity(asked.len());
        for asked in asked.chunks(self.at_once.min(1024)) {
            let (rows, ids): (Vec<u32>, Vec<u32>) =
                asked.iter().map(|&(row, id, _)| (row, id)).unzip();
            let (rows, ids) = (Indices::new(gpu, &rows), Indices::new(gpu, &ids));
            let scored = hidden
                .log_probs(&self.head, &rows, &ids, 1.0)
                .log_probs
                .to_vec()?;
            told.extend(scored.into_iter().map(|log_prob| Told {
                log_prob,
                likeliest: Vec::new(),
            }));
        }
        if !told.iter().all(|told| told.log_prob.is_finite()) {
            return Err(ModelError::NotNumbers);
        }
        let more: Vec<usize> = (0..asked.len()).filter(|&i| asked[i].2 > 0).collect();
        let rows: Vec<u32> = more.iter().map(|&i| asked[i].0).collect();
        each_row(hidden, &self.head, &rows, |at, logits| {
            let (_, id, count) = asked[more[at]];
            let told = &mut told[more[at]];
            told.likeliest = likeliest(logits, count);
            // One token has one log-prob, however it was computed.
            if let Some(same) = told.likeliest.iter_mut().find(|(other, _)| *other == id) {
                same.1 = told.log_prob;
            }
        })?;
        Ok(told)
    }
}

/// So many tokens of the highest logits, the lower id first of equals, with their log-probs.
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
