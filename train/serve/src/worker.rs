//! The one thread that owns model, adapter and arena. Replies that are asked for together are decoded together; new ones
//! join between two tokens, and those that nobody waits for any more leave.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lapwing_model::{
    Adapter, BatchRequest, FinishReason, KvArena, Model, ModelError, ReplyBatch, SampledToken,
    TokenScore, Tokenizer,
};
use tokio::sync::mpsc::UnboundedSender;

use super::error::ApiError;
use super::reply::{Growing, Piece, Token};

/// One reply that is asked for.
pub struct Ask {
    /// The prompt and how its reply is sampled.
    pub joining: BatchRequest,
    /// which of its request's
    pub index: usize,
    /// Texts that end the reply.
    pub stop: Arc<[String]>,
    /// the prompt is told too
    pub echo: bool,
    /// Receives the reply piece by piece.
    pub events: UnboundedSender<Event>,
    /// held until it is over
    pub place: Place,
}

/// What happens to a reply, whose index comes first.
#[derive(Debug)]
pub enum Event {
    Piece(usize, Piece),
    /// the last piece, and how many tokens there were
    End(usize, Piece, Finish, usize),
    Failed(ApiError),
}

/// Why a reply is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finish {
    Stop,
    Length,
}

/// How many replies may be under way or wait.
#[derive(Clone)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// The place of one reply.
pub struct Place(Arc<AtomicUsize>);

impl Places {
    /// All free.
    pub fn new(most: usize) -> Places {
        Places {
            taken: Arc::default(),
            most,
        }
    }

    /// All that there are.
    pub fn most(&self) -> usize {
        self.most
    }

    /// So many, or none if there are not enough.
    pub fn take(&self, count: usize) -> Option<Vec<Place>> {
        let most = self.most;
        let more = |taken: usize| taken.checked_add(count).filter(|&taken| taken <= most);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some((0..count).map(|_| Place(self.taken.clone())).collect())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Who is idle waits this long for company of the first that comes.
const COMPANY: Duration = Duration::from_millis(3);
/// Who is idle looks this often whether it shall end.
const IDLE: Duration = Duration::from_millis(50);

/// What the thread has.
pub struct Worker {
    arena: KvArena,
    report: fn(&str),
    batch: ReplyBatch,
    tokenizer: Tokenizer,
    asks: Receiver<Ask>,
    waiting: VecDeque<Ask>,
    running: Vec<Running>,
    /// replies at once
    most: usize,
    stop: &'static AtomicBool,
    /// tokens in words, as they were needed
    words: HashMap<u32, String>,
}

/// A reply under way.
struct Running {
    /// of the batch
    number: u64,
    index: usize,
    growing: Growing,
    events: UnboundedSender<Event>,
    tokens: usize,
    _place: Place,
}

impl Worker {
    /// Decodes at most so many replies at once, until it is to stop.
    pub fn new(
        (model, adapter, arena): (&Model, Option<&Adapter>, KvArena),
        tokenizer: Tokenizer,
        asks: Receiver<Ask>,
        most: usize,
        stop: &'static AtomicBool,
        report: fn(&str),
    ) -> Worker {
        Worker {
            batch: ReplyBatch::new(model, adapter),
            arena,
            report,
            tokenizer,
            asks,
            waiting: VecDeque::new(),
            running: Vec::new(),
            most,
            stop,
            words: HashMap::new(),
        }
    }

    /// Works until it is to stop, or nobody can ask any more.
    ///
    /// # Errors
    /// If the device is lost: nothing works then.
    pub fn run(mut self) -> Result<(), ModelError> {
        loop {
            if self.running.is_empty() && self.waiting.is_empty() {
                match self.asks.recv_timeout(IDLE) {
                    Ok(ask) => {
                        self.waiting.push_back(ask);
                        thread::sleep(COMPANY);
                    }
                    Err(RecvTimeoutError::Timeout) => (),
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            self.waiting.extend(self.asks.try_iter());
            if self.stop.load(Relaxed) {
                self.fail(&ApiError::stopping());
                return Ok(());
            }
            self.forget_the_gone();
            let Err(error) = self.admit().and_then(|()| self.step()) else {
                continue;
            };
            (self.report)(&format!("requests failed: {error}"));
            self.fail(&ApiError::internal(&error));
            if let ModelError::Gpu(_) = error {
                return Err(error);
            }
        }
    }

    /// Who has gone gets no more tokens.
    fn forget_the_gone(&mut self) {
        self.waiting.retain(|ask| !ask.events.is_closed());
        let batch = &mut self.batch;
        self.running.retain(|reply| {
            let is_gone = reply.events.is_closed();
            if is_gone {
                batch.leave(reply.number);
            }
            !is_gone
        });
    }

    /// Begins what waits, first come, first served, as far as there is room.
    fn admit(&mut self) -> Result<(), ModelError> {
        let (mut joining, mut new) = (Vec::new(), Vec::new());
        while self.running.len() + new.len() < self.most
            && let Some(ask) = self.waiting.pop_front()
        {
            joining.push(ask.joining.clone());
            if !self.batch.has_room(&self.arena, &joining) {
                joining.pop();
                self.waiting.push_front(ask);
                break;
            }
            new.push(ask);
        }
        if new.is_empty() {
            return Ok(());
        }
        let joined = self.batch.join(&mut self.arena, joining);
        let first = *joined.as_ref().unwrap_or(&0);
        let mut told = Vec::new();
        // Even if it has failed, so that whoever asked is told.
        for (number, ask) in (first..).zip(new) {
            if ask.echo || ask.joining.sampling.max_new_tokens == 0 {
                told.push((number, ask.joining, ask.echo));
            }
            self.running.push(Running {
                number,
                index: ask.index,
                growing: Growing::new(ask.stop),
                events: ask.events,
                tokens: 0,
                _place: ask.place,
            });
        }
        joined?;
        for (number, joining, echo) in told {
            self.with(number, |worker, reply| {
                worker.tell_prompt(reply, &joining, echo)
            })?;
        }
        Ok(())
    }

    /// Does something with a reply, which is over if it does not come back.
    fn with(
        &mut self,
        number: u64,
        work: impl FnOnce(&mut Worker, Running) -> Result<Option<Running>, ModelError>,
    ) -> Result<(), ModelError> {
        let is_it = |reply: &Running| reply.number == number;
        let at = self.running.iter().position(is_it);
        let reply = self.running.remove(at.expect("what is in the batch runs"));
        let events = reply.events.clone();
        // It is not among the others, which are told by whoever hears of it.
        let failed = |error: &ModelError| {
            let _ = events.send(Event::Failed(ApiError::internal(error)));
        };
        if let Some(reply) = work(self, reply).inspect_err(failed)? {
            self.running.push(reply);
        }
        Ok(())
    }

    /// Hands out the prompt of a reply that was just begun, if that is wanted, and ends it if no token is to follow.
    fn tell_prompt(
        &mut self,
        mut reply: Running,
        joining: &BatchRequest,
        echo: bool,
    ) -> Result<Option<Running>, ModelError> {
        let ids = &joining.request.prompt;
        if echo {
            let arena = &mut self.arena;
            let told = joining.scores;
            let told = told.map(|likeliest| self.batch.score(arena, ids, likeliest));
            let told = told.transpose()?;
            for (at, &id) in ids.iter().enumerate() {
                if let Some(told) = &told {
                    // Nothing says how likely the first is.
                    let told = at.checked_sub(1).map(|before| &told[before]);
                    let token = self.token(id, told, reply.growing.letters())?;
                    reply.growing.tell(token);
                }
                let tokenizer = &self.tokenizer;
                let decode = |ids: &[u32]| tokenizer.decode(ids);
                reply.growing.push(id, true, &decode)?;
            }
            let piece = reply.growing.take_prompt();
            let _ = reply.events.send(Event::Piece(reply.index, piece));
        }
        match joining.sampling.max_new_tokens {
            0 => self.end(reply, Finish::Length).map(|()| None),
            _ => Ok(Some(reply)),
        }
    }

    /// Draws a token of each reply and hands out what it makes.
    fn step(&mut self) -> Result<(), ModelError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        for drawn in self.batch.step(&mut self.arena)? {
            self.with(drawn.reply, |worker, reply| worker.grow(reply, &drawn))?;
        }
        Ok(())
    }

    /// A reply with one more token; none if it is over.
    fn grow(
        &mut self,
        mut reply: Running,
        drawn: &SampledToken,
    ) -> Result<Option<Running>, ModelError> {
        reply.tokens += 1;
        // What ended it is no part of it.
        if drawn.finish == Some(FinishReason::StopToken) {
            return self.end(reply, Finish::Stop).map(|()| None);
        }
        if let Some(told) = &drawn.score {
            let token = self.token(drawn.token, Some(told), reply.growing.letters())?;
            reply.growing.tell(token);
        }
        let tokenizer = &self.tokenizer;
        reply
            .growing
            .push(drawn.token, false, &|ids| tokenizer.decode(ids))?;
        if reply.growing.is_over() {
            self.batch.leave(reply.number);
            return self.end(reply, Finish::Stop).map(|()| None);
        }
        if drawn.finish == Some(FinishReason::MaxTokens) {
            return self.end(reply, Finish::Length).map(|()| None);
        }
        if let Some(piece) = reply.growing.take() {
            let _ = reply.events.send(Event::Piece(reply.index, piece));
        }
        Ok(Some(reply))
    }

    fn end(&self, mut reply: Running, finish: Finish) -> Result<(), ModelError> {
        let piece = reply.growing.finish(&|ids| self.tokenizer.decode(ids))?;
        // The last letters may have been a stop text.
        let finish = if reply.growing.is_over() {
            Finish::Stop
        } else {
            finish
        };
        let Running {
            index,
            tokens,
            events,
            ..
        } = reply;
        let _ = events.send(Event::End(index, piece, finish, tokens));
        Ok(())
    }

    fn token(
        &mut self,
        id: u32,
        told: Option<&TokenScore>,
        offset: usize,
    ) -> Result<Token, ModelError> {
        let mut likeliest = Vec::new();
        for &(id, log_prob) in told.iter().flat_map(|told| &told.likeliest) {
            likeliest.push((self.word(id)?, log_prob));
        }
        Ok(Token {
            text: self.word(id)?,
            log_prob: told.map(|told| told.log_prob),
            likeliest,
            offset,
        })
    }

    /// A token by itself; one that is no text, as the tokenizer writes it.
    fn word(&mut self, id: u32) -> Result<String, ModelError> {
        if let Some(word) = self.words.get(&id) {
            return Ok(word.clone());
        }
        let mut word = self.tokenizer.decode(&[id])?;
        if word.is_empty() {
            word = self.tokenizer.token(id)?.unwrap_or_default();
        }
        self.words.insert(id, word.clone());
        Ok(word)
    }

    /// All that runs or waits has failed.
    fn fail(&mut self, error: &ApiError) {
        self.batch.clear();
        for reply in self.running.drain(..) {
            let _ = reply.events.send(Event::Failed(error.clone()));
        }
        for ask in self.waiting.drain(..) {
            let _ = ask.events.send(Event::Failed(error.clone()));
        }
    }
}
