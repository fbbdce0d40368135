//! A model behind an OpenAI-compatible chat completions API: vLLM, llama.cpp, or a service.
//!
//! All requests of a round are sent concurrently, up to a limit. Answers are cached on disk, so a repeated request
//! costs nothing.

mod cache;
mod client;
mod completion;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::PlayError;
use crate::seeds;
use crate::{ActionRequest, Player, PromptWriter, Reply};
use cache::ReplyCache;
use client::{ApiClient, excerpt};
use completion::ChatReply;

/// The model and its request settings.
pub struct ApiSettings {
    /// the part before `/chat/completions`
    pub url: String,
    /// the server's name for the model
    pub model: String,
    /// sent to that address and nowhere else
    pub key: Option<String>,
    /// sampling temperature; at 0 no seed is sent, so equal prompts are requested once
    pub temperature: f64,
    /// maximum number of tokens of a reply
    pub max_new_tokens: usize,
    /// variables for the chat template, for servers that accept them (vLLM and llama.cpp)
    pub template_variables: Map<String, Value>,
    /// maximum number of concurrent requests
    pub concurrency: usize,
    /// timeout of one request, from the connection to the last byte
    pub timeout: Duration,
    /// maximum number of paid tokens, prompts and replies together
    pub budget: Option<u64>,
    /// the cache directory
    pub cache: PathBuf,
}

/// Counts of requests and tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiUsage {
    /// requests sent, including retries
    pub(crate) requests: u64,
    /// replies from the cache
    pub(crate) cached: u64,
    /// retries
    pub(crate) retries: u64,
    /// failed requests, by kind of failure
    pub(crate) failures: BTreeMap<String, u64>,
    /// paid prompt tokens
    pub(crate) prompt_tokens: u64,
    /// paid reply tokens
    pub(crate) completion_tokens: u64,
    /// answers without a token count, whose counts are estimates
    pub(crate) estimated: u64,
    /// unreadable cache files, which were ignored
    pub(crate) damaged: Vec<PathBuf>,
}

impl ApiUsage {
    /// Returns the number of paid tokens.
    pub(crate) fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

/// Formats the counts in one line.
impl fmt::Display for ApiUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests, {} from the cache, {} retries; {} prompt tokens, {} completion tokens",
            self.requests, self.cached, self.retries, self.prompt_tokens, self.completion_tokens
        )?;
        if self.estimated > 0 {
            write!(f, " ({} answers without usage: guessed)", self.estimated)?;
        }
        for (kind, count) in &self.failures {
            write!(f, "; failed: {kind} x {count}")?;
        }
        if let Some(path) = self.damaged.first() {
            let (count, path) = (self.damaged.len(), path.display());
            write!(f, "; {count} damaged cache files left out, such as {path}")?;
        }
        Ok(())
    }
}

/// A model behind an API as a player of one game.
pub struct Api {
    settings: ApiSettings,
    framing: PromptWriter,
    client: ApiClient,
    cache: ReplyCache,
    usage: Mutex<ApiUsage>,
}

impl Api {
    /// Makes a player for the game of this prompt writer.
    ///
    /// # Errors
    /// If the address is invalid, the key would be sent unencrypted, or the cache cannot be created.
    pub fn new(settings: ApiSettings, framing: PromptWriter) -> Result<Api, PlayError> {
        let key = settings.key.clone();
        let client = ApiClient::new(&settings.url, key, settings.timeout);
        Ok(Api {
            client: client.map_err(PlayError::Api)?,
            cache: ReplyCache::open(&settings.cache).map_err(PlayError::Api)?,
            settings,
            framing,
            usage: Mutex::default(),
        })
    }

    /// Returns the counts so far.
    pub fn account(&self) -> ApiUsage {
        self.usage().clone()
    }

    fn usage(&self) -> MutexGuard<'_, ApiUsage> {
        self.usage.lock().expect("no thread panics with it")
    }

    fn request(&self, ask: &ActionRequest<'_>) -> Result<String, PlayError> {
        let settings = &self.settings;
        let mut request = json!({
            "model": settings.model,
            "messages": self.framing.messages(&ask.seen)?,
            "temperature": settings.temperature,
            "max_tokens": settings.max_new_tokens,
            "stream": false,
        });
        if settings.temperature > 0.0 {
            // Servers take 32 bits, some of them signed.
            let seed = seeds::derive(ask.seen.seed, "reply", &[ask.turn]) >> 33;
            request["seed"] = seed.into();
        }
        if !settings.template_variables.is_empty() {
            request["chat_template_kwargs"] = settings.template_variables.clone().into();
        }
        Ok(request.to_string())
    }

    /// Returns a reply from the cache or the server.
    fn answer(&self, request: &str, number: usize, stop: &AtomicBool) -> Result<ChatReply, String> {
        let url = &self.client.url;
        match self.cache.get(url, request) {
            Ok(Some(answer)) => {
                self.usage().cached += 1;
                return Ok(answer);
            }
            Ok(None) => (),
            Err(damaged) => self.usage().damaged.push(damaged),
        }
        let used = self.usage().tokens();
        if let Some(budget) = self.settings.budget.filter(|budget| used >= *budget) {
            return Err(format!(
                "the budget of {budget} tokens is used up ({used} used): the answers so far are in the cache, so the \
                 same command with a larger --player-budget continues from there"
            ));
        }
        let (body, mut failures) = self.client.ask(request, number as u64, stop);
        let retries = failures.len() as u64 - u64::from(body.is_err());
        let answer = body.and_then(|body| {
            ChatReply::read(&body, request).map_err(|problem| {
                failures.push("another schema".to_owned());
                let body = excerpt(&body);
                format!(
                    "the API at {url} returned an answer that is not a chat completion ({problem}): {body}"
                )
            })
        });
        let mut usage = self.usage();
        usage.requests += retries + 1;
        usage.retries += retries;
        for kind in failures {
            *usage.failures.entry(kind).or_default() += 1;
        }
        let answer = answer?;
        let sum = u64::saturating_add;
        usage.prompt_tokens = sum(usage.prompt_tokens, answer.prompt_tokens);
        usage.completion_tokens = sum(usage.completion_tokens, answer.completion_tokens);
        usage.estimated += u64::from(answer.estimated);
        drop(usage);
        self.cache.put(url, request, &answer)?;
        Ok(answer)
    }

    /// Sends all of these, at most a limited number at a time. After the first error no new requests are sent. Requests
    /// in progress are completed, because they are paid for.
    fn answers(&self, requests: &[&str]) -> Result<Vec<ChatReply>, String> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let found: Vec<OnceLock<ChatReply>> = requests.iter().map(|_| OnceLock::new()).collect();
        let error = OnceLock::new();
        let work = || {
            while !stop.load(Relaxed) {
                let number = next.fetch_add(1, Relaxed);
                let Some(request) = requests.get(number) else {
                    return;
                };
                match self.answer(request, number, &stop) {
                    Ok(answer) => found[number].set(answer).expect("each is asked once"),
                    Err(problem) => {
                        // The first error is reported.
                        let _ = error.set(problem);
                        stop.store(true, Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.settings.concurrency.min(requests.len()) {
                scope.spawn(work);
            }
        });
        match error.into_inner() {
            Some(error) => Err(error),
            None => Ok(found.into_iter().filter_map(OnceLock::into_inner).collect()),
        }
    }
}

impl Player for Api {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        let requests: Vec<String> = asks
            .iter()
            .map(|ask| self.request(ask))
            .collect::<Result<_, _>>()?;
        // Equal requests are sent once.
        let (mut distinct, mut places) = (Vec::new(), HashMap::new());
        for request in &requests {
            places.entry(&**request).or_insert_with(|| {
                distinct.push(&**request);
                distinct.len() - 1
            });
        }
        let answers = self.answers(&distinct).map_err(PlayError::Api)?;
        let reply = |request: &String| {
            let answer = &answers[places[&**request]];
            self.framing.read(answer.text.clone(), answer.cut)
        };
        Ok(requests.iter().map(reply).collect())
    }
}

#[cfg(test)]
mod tests;
