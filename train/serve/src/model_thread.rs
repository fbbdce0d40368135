//! The thread that owns the model, the adapter and the arena. It decodes all replies in one batch. New replies join between
//! two tokens, and those of disconnected clients leave.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lapwing_model::{
    BatchRequest, FinishReason, KvArena, ModelError, ReplyBatch, SampledToken, TokenScore,
    Tokenizer,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use super::detokenizer::{Detokenizer, ReplyPiece, ReplyToken};
use super::error::ApiError;
use super::options::ServeOptions;

pub(crate) struct ReplyRequest {
    pub(crate) joining: BatchRequest,
    /// Index among the replies of its request.
    pub(crate) index: usize,
    pub(crate) stop: Arc<[String]>,
    /// Whether the prompt is sent, too.
    pub(crate) echo: bool,
    pub(crate) events: UnboundedSender<ReplyEvent>,
    /// Freed when the reply ends.
    pub(crate) _slot: OwnedSemaphorePermit,
}

/// A part of a reply, or the error that ends it.
pub(crate) type ReplyEvent = Result<ReplyPart, ApiError>;

#[derive(Debug, Default)]
pub(crate) struct ReplyPart {
    /// Index among the replies of its request.
    pub(crate) index: usize,
    pub(crate) piece: ReplyPiece,
    /// Of the last part: why the reply ends (a stop text counts as a stop token), and its number of tokens.
    pub(crate) end: Option<(FinishReason, usize)>,
}

/// How long an idle thread waits for requests that arrive together with the first one.
const BATCH_DELAY: Duration = Duration::from_millis(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct ModelThread {
    batch: ReplyBatch,
    arena: KvArena,
    tokenizer: Tokenizer,
    requests: Receiver<ReplyRequest>,
    waiting: VecDeque<ReplyRequest>,
    running: Vec<RunningReply>,
    /// Maximum number of running replies.
    most: usize,
    stop: &'static AtomicBool,
    /// Prints an error.
    report: fn(&str),
    /// Cache of the texts of single tokens.
    token_texts: HashMap<u32, String>,
}

struct RunningReply {
    number: u64,
    request: ReplyRequest,
    text: Detokenizer,
    /// Number of sampled tokens.
    tokens: usize,
}

impl RunningReply {
    /// Sends a part. An error means that the client is gone, which is noticed later.
    fn send(&self, piece: ReplyPiece, end: Option<(FinishReason, usize)>) {
        let index = self.request.index;
        let _ = self
            .request
            .events
            .send(Ok(ReplyPart { index, piece, end }));
    }
}

impl ModelThread {
    /// Returns a thread that takes its replies from `requests`.
    pub(crate) fn new(options: ServeOptions, requests: Receiver<ReplyRequest>) -> ModelThread {
        ModelThread {
            batch: ReplyBatch::new(&options.model, options.adapter.as_ref()),
            arena: options.arena,
            tokenizer: options.tokenizer,
            requests,
            waiting: VecDeque::new(),
            running: Vec::new(),
            most: options.batch,
            stop: options.stop,
            report: options.report,
            token_texts: HashMap::new(),
        }
    }

    /// Decodes replies until `stop` is set or the sender of requests is dropped.
    pub(crate) fn run(mut self) -> Result<(), ModelError> {
        loop {
            if self.running.is_empty() && self.waiting.is_empty() {
                match self.requests.recv_timeout(POLL_INTERVAL) {
                    Ok(request) => {
                        self.waiting.push_back(request);
                        thread::sleep(BATCH_DELAY);
                    }
                    Err(RecvTimeoutError::Timeout) => (),
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            self.waiting.extend(self.requests.try_iter());
            if self.stop.load(Relaxed) {
                self.fail(&ApiError::stopping());
                return Ok(());
            }
            self.remove_disconnected();
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

    fn remove_disconnected(&mut self) {
        self.waiting.retain(|request| !request.events.is_closed());
        let batch = &mut self.batch;
        self.running.retain(|reply| {
            let is_closed = reply.request.events.is_closed();
            if is_closed {
                batch.leave(reply.number);
            }
            !is_closed
        });
    }

    /// Starts waiting replies in their order, as far as there is room.
    fn admit(&mut self) -> Result<(), ModelError> {
        let (mut joining, mut new) = (Vec::new(), Vec::new());
        while self.running.len() + new.len() < self.most
            && let Some(request) = self.waiting.pop_front()
        {
            joining.push(request.joining.clone());
            if !self.batch.has_room(&self.arena, &joining) {
                joining.pop();
                self.waiting.push_front(request);
                break;
            }
            new.push(request);
        }
        if new.is_empty() {
            return Ok(());
        }
        let joined = self.batch.join(&mut self.arena, joining);
        let first = *joined.as_ref().unwrap_or(&0);
        let numbers = first..first + new.len() as u64;
        // Even after an error, which `fail` then reports to their clients.
        let new = numbers.clone().zip(new);
        self.running
            .extend(new.map(|(number, request)| RunningReply {
                number,
                text: Detokenizer::new(request.stop.clone()),
                request,
                tokens: 0,
            }));
        joined?;
        for number in numbers {
            self.start(self.place(number))?;
        }
        Ok(())
    }

    /// Returns the place of a running reply, which is valid until a reply ends.
    fn place(&self, number: u64) -> usize {
        let is_it = |reply: &RunningReply| reply.number == number;
        let place = self.running.iter().position(is_it);
        place.expect("a reply of the batch")
    }

    /// Sends the prompt of a new reply if requested, and ends the reply if it has no new tokens.
    fn start(&mut self, place: usize) -> Result<(), ModelError> {
        let BatchRequest {
            request,
            sampling,
            scores,
        } = self.running[place].request.joining.clone();
        if self.running[place].request.echo {
            let ids = &request.prompt;
            let scores = scores.map(|count| self.batch.score(&mut self.arena, ids, count));
            let scores = scores.transpose()?;
            for (at, &id) in ids.iter().enumerate() {
                if let Some(scores) = &scores {
                    // The first token has no score.
                    let score = at.checked_sub(1).map(|before| &scores[before]);
                    self.describe(place, id, score)?;
                }
                let text = &mut self.running[place].text;
                text.push(id, true, &|ids| self.tokenizer.decode(ids))?;
            }
            let reply = &mut self.running[place];
            let piece = reply.text.take_all();
            reply.send(piece, None);
        }
        match sampling.max_new_tokens {
            0 => self.end(place, FinishReason::MaxTokens),
            _ => Ok(()),
        }
    }

    /// Samples a token of each reply.
    fn step(&mut self) -> Result<(), ModelError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        for drawn in self.batch.step(&mut self.arena)? {
            self.grow(self.place(drawn.reply), &drawn)?;
        }
        Ok(())
    }

    /// Adds a token to a reply, and sends the new text or ends the reply.
    fn grow(&mut self, place: usize, drawn: &SampledToken) -> Result<(), ModelError> {
        self.running[place].tokens += 1;
        let mut finish = drawn.finish;
        // A stop token is no part of the reply.
        if finish != Some(FinishReason::StopToken) {
            if drawn.score.is_some() {
                self.describe(place, drawn.token, drawn.score.as_ref())?;
            }
            let reply = &mut self.running[place];
            let decode = |ids: &[u32]| self.tokenizer.decode(ids);
            reply.text.push(drawn.token, false, &decode)?;
            if reply.text.is_over {
                self.batch.leave(reply.number);
                finish = Some(FinishReason::StopToken);
            }
        }
        if let Some(finish) = finish {
            return self.end(place, finish);
        }
        let reply = &mut self.running[place];
        if let Some(piece) = reply.text.take() {
            reply.send(piece, None);
        }
        Ok(())
    }

    fn end(&mut self, place: usize, finish: FinishReason) -> Result<(), ModelError> {
        let reply = &mut self.running[place];
        let piece = reply.text.finish(&|ids| self.tokenizer.decode(ids))?;
        // The last characters may complete a stop text.
        let finish = match reply.text.is_over {
            true => FinishReason::StopToken,
            false => finish,
        };
        reply.send(piece, Some((finish, reply.tokens)));
        self.running.swap_remove(place);
        Ok(())
    }

    /// Adds the description of the token that is pushed next.
    fn describe(
        &mut self,
        place: usize,
        id: u32,
        score: Option<&TokenScore>,
    ) -> Result<(), ModelError> {
        let mut likeliest = Vec::new();
        for &(id, log_prob) in score.iter().flat_map(|score| &score.likeliest) {
            likeliest.push((self.token_text(id)?, log_prob));
        }
        let text = self.token_text(id)?;
        let reply = &mut self.running[place].text;
        reply.tokens.push(ReplyToken {
            text,
            log_prob: score.map(|score| score.log_prob),
            likeliest,
            offset: reply.characters,
        });
        Ok(())
    }

    fn token_text(&mut self, id: u32) -> Result<String, ModelError> {
        if let Some(text) = self.token_texts.get(&id) {
            return Ok(text.clone());
        }
        let text = self.tokenizer.text_of(id)?;
        self.token_texts.insert(id, text.clone());
        Ok(text)
    }

    /// Ends all running and waiting replies with an error.
    fn fail(&mut self, error: &ApiError) {
        self.batch.clear();
        let running = self.running.drain(..).map(|reply| reply.request);
        for request in running.chain(self.waiting.drain(..)) {
            let _ = request.events.send(Err(error.clone()));
        }
    }
}
