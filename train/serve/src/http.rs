//! HTTP: connections, paths, request bodies and responses.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, net};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use lapwing_model::{BatchRequest, GenerationRequest, SamplingOptions};
use lapwing_tensor::random::mix;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::error::{ApiError, shown};
use super::model_thread::{ModelThread, ReplyEvent, ReplyPart, ReplyRequest};
use super::options::ServeOptions;
use super::prompts::{EncodedPrompt, PromptEncoder};
use super::request::{self, CompletionRequest};
use super::response::{Endpoint, ResponseBuilder};
use super::stream::{EventStream, ResponseBody};

/// Maximum size of a request, the same as of the tokenizer's input.
const MAX_BODY: usize = 4 << 20;
/// Timeout of the body of a request.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the head of a request, from the connection or the last response on.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections; others wait to be accepted.
const MAX_CONNECTIONS: usize = 512;
/// Maximum number of connections from one address; others are closed.
const MAX_CONNECTIONS_OF_ADDRESS: usize = MAX_CONNECTIONS / 2;
/// How often the stop flag is read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long connections, and then the model thread, may take to end.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(700);

/// The server cannot run, or ended because of an error of the system or the model.
pub type ServeError = Box<dyn std::error::Error + Send + Sync>;

/// Serves the model until `stop` is set or the device fails. Requests in progress end with an error then.
///
/// # Errors
/// If the system has no resources for the server, or the device fails.
pub fn serve(listener: net::TcpListener, mut options: ServeOptions) -> Result<(), ServeError> {
    let (sender, requests) = channel();
    let server = Server {
        name: std::mem::take(&mut options.name),
        created: now(),
        prompts: PromptEncoder {
            tokenizer: options.tokenizer.clone(),
            template: options.template.take(),
            vocab: options.model.config().vocab,
            context: options.context,
        },
        stop_ids: options.tokenizer.stop_ids().to_vec(),
        requests: sender,
        slots: Arc::new(Semaphore::new(options.batch + options.queue)),
        max_replies: options.batch + options.queue,
        key: options.key.take(),
        hosts: std::mem::take(&mut options.hosts),
        stop: options.stop,
        log: options.log,
    };
    let model = ModelThread::new(options, requests);
    let model = thread::Builder::new()
        .name("model".to_owned())
        .spawn(|| model.run())?;
    accept(listener, server, &model)?;
    let stopped = Instant::now();
    while !model.is_finished() {
        if stopped.elapsed() > SHUTDOWN_GRACE {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let ended = model.join();
    Ok(ended.map_err(|_| "the model thread has panicked")??)
}

struct Server {
    name: String,
    /// Seconds since 1970.
    created: u64,
    prompts: PromptEncoder,
    /// Tokens that end a reply.
    stop_ids: Vec<u32>,
    requests: Sender<ReplyRequest>,
    /// One permit for each reply in progress or waiting.
    slots: Arc<Semaphore>,
    max_replies: usize,
    key: Option<String>,
    hosts: Vec<String>,
    stop: &'static AtomicBool,
    log: fn(&str),
}

/// Accepts connections until the server stops or the model thread ends, and then lets open connections end.
fn accept<T>(listener: net::TcpListener, server: Server, model: &JoinHandle<T>) -> io::Result<()> {
    let server = Arc::new(server);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(async move {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let mut open = JoinSet::new();
        // The reference count is one more than the number of connections.
        let mut of_address: HashMap<net::IpAddr, Arc<()>> = HashMap::new();
        while !server.stop.load(Relaxed) && !model.is_finished() {
            while open.try_join_next().is_some() {}
            if open.len() >= MAX_CONNECTIONS {
                sleep(POLL_INTERVAL).await;
                continue;
            }
            match timeout(POLL_INTERVAL, listener.accept()).await {
                Ok(Ok((stream, address))) => {
                    of_address.retain(|_, held| Arc::strong_count(held) > 1);
                    let held = of_address.entry(address.ip()).or_default();
                    if Arc::strong_count(held) <= MAX_CONNECTIONS_OF_ADDRESS {
                        let (server, held) = (server.clone(), held.clone());
                        open.spawn(async move {
                            connection(server, stream).await;
                            drop(held);
                        });
                    }
                }
                // The system has no more files, or the client is gone.
                Ok(Err(_)) => sleep(POLL_INTERVAL).await,
                Err(_) => (),
            }
        }
        drop(listener);
        server.stop.store(true, Relaxed);
        let all_closed = async { while open.join_next().await.is_some() {} };
        let _ = timeout(SHUTDOWN_GRACE, all_closed).await;
        Ok::<_, io::Error>(())
    })?;
    // Does not wait for a template that is still rendered.
    runtime.shutdown_background();
    Ok(())
}

/// Serves a connection to its end. Its errors are ignored.
async fn connection(server: Arc<Server>, stream: TcpStream) {
    // Sends each token at once.
    let _ = stream.set_nodelay(true);
    let stop = server.stop;
    let service = service_fn(move |request: Request<Incoming>| {
        let server = server.clone();
        async move {
            let (head, mut body) = request.into_parts();
            let started = Instant::now();
            let response = respond(&server, &head, &mut body).await;
            log(&server, &head, started.elapsed(), &response);
            Ok::<_, Infallible>(response.unwrap_or_else(|error| {
                // Most clients read the response after they have sent all of the body.
                tokio::spawn(timeout(READ_TIMEOUT, async move {
                    while let Some(Ok(_)) = next_frame(&mut body).await {}
                }));
                refusal(&error)
            }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    while timeout(POLL_INTERVAL, connection.as_mut()).await.is_err() {
        if stop.load(Relaxed) {
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Logs a request, after its response or the first token of a stream.
fn log(
    server: &Server,
    head: &Parts,
    after: Duration,
    response: &Result<Response<ResponseBody>, ApiError>,
) {
    let (method, path) = (shown(head.method.as_str()), shown(head.uri.path()));
    // Monitors ask every few seconds.
    if path == "/health" {
        return;
    }
    let seconds = after.as_secs_f64();
    let (status, problem) = match response {
        Ok(response) => (response.status().as_u16(), String::new()),
        Err(error) => (error.status, format!(": {}", error.message)),
    };
    (server.log)(&format!(
        "{method} {path} {status}, {seconds:.2} s{problem}"
    ));
}

fn refusal(error: &ApiError) -> Response<ResponseBody> {
    let status = StatusCode::from_u16(error.status).expect("one of ours");
    let mut response = complete(status, &error.body());
    // The same request may succeed later.
    if matches!(error.status, 429 | 503) {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn complete(status: StatusCode, body: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Complete(Some(body.to_string().into())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn respond(
    server: &Arc<Server>,
    head: &Parts,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, ApiError> {
    check_host(server, head.headers.get(HOST))?;
    let path = percent_decode_str(head.uri.path()).decode_utf8_lossy();
    let endpoint = match &*path {
        "/v1/chat/completions" => Some(Endpoint::Chat),
        "/v1/completions" => Some(Endpoint::Completion),
        _ => None,
    };
    let model = path.strip_prefix("/v1/models/");
    let is_known =
        endpoint.is_some() || model.is_some() || ["/health", "/v1/models"].contains(&&*path);
    if !is_known {
        let problem = format!("unknown path {}", shown(&path));
        return Err(ApiError::status(404, "unknown_url", problem));
    }
    let method = match endpoint {
        Some(_) => Method::POST,
        None => Method::GET,
    };
    if head.method != method {
        let problem = format!(
            "{}: wanted {method}, not {}",
            shown(&path),
            shown(head.method.as_str())
        );
        let mut response = refusal(&ApiError::status(405, "method_not_allowed", problem));
        let allowed = HeaderValue::from_str(method.as_str()).expect("a plain word");
        response.headers_mut().insert(ALLOW, allowed);
        return Ok(response);
    }
    if path == "/health" {
        return Ok(complete(StatusCode::OK, &json!({"status": "ok"})));
    }
    check_key(server, head.headers.get(AUTHORIZATION))?;
    let Some(endpoint) = endpoint else {
        let entry = json!({
            "id": server.name,
            "object": "model",
            "created": server.created,
            "owned_by": "lapwing",
            "max_model_len": server.prompts.context,
        });
        return match model {
            None => Ok(complete(
                StatusCode::OK,
                &json!({"object": "list", "data": [entry]}),
            )),
            Some(model) => check_name(server, model).map(|()| complete(StatusCode::OK, &entry)),
        };
    };
    check_type(head.headers.get(CONTENT_TYPE))?;
    let body = timeout(READ_TIMEOUT, read(body)).await;
    let body = body.unwrap_or_else(|_| {
        let problem = format!(
            "the body did not arrive within {} seconds",
            READ_TIMEOUT.as_secs()
        );
        Err(ApiError::status(408, "request_timeout", problem))
    })?;
    let request = match endpoint {
        Endpoint::Chat => request::chat(&body),
        Endpoint::Completion => request::completion(&body),
    }?;
    check_name(server, &request.model)?;
    // In another thread, because the template and the tokenizer may take long.
    let encoder = server.clone();
    let encoded = spawn_blocking(move || {
        let prompts = encoder.prompts.encode(&request)?;
        Ok((request, prompts))
    });
    let (request, prompts) = encoded.await.map_err(|_| {
        ApiError::status(500, "internal_error", "the tokenizer fails on this text")
    })??;
    reply(server, endpoint, &request, prompts).await
}

/// Requires an IP address, `localhost` or an allowed name. A page of another host whose name is made to resolve to this
/// machine (DNS rebinding) could read responses otherwise.
fn check_host(server: &Server, given: Option<&HeaderValue>) -> Result<(), ApiError> {
    // Browsers always send it.
    let Some(given) = given else {
        return Ok(());
    };
    let given = String::from_utf8_lossy(given.as_bytes());
    let authority = given.parse::<Authority>();
    let host = authority.as_ref().map_or("", |it| it.host());
    let is_address = host.trim_matches(['[', ']']).parse::<net::IpAddr>().is_ok();
    let mut names = server.hosts.iter().map(String::as_str).chain(["localhost"]);
    match is_address || names.any(|name| name.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => {
            let problem = format!(
                "unknown host {:?}: wanted localhost, an IP address or a name given with --allow-host",
                shown(&given)
            );
            Err(ApiError::status(403, "host_not_allowed", problem))
        }
    }
}

fn check_key(server: &Server, given: Option<&HeaderValue>) -> Result<(), ApiError> {
    let Some(key) = &server.key else {
        return Ok(());
    };
    let given = given.and_then(|given| given.as_bytes().strip_prefix(b"Bearer "));
    // Compares all bytes, so that the time does not depend on how many are right.
    let differs = |given: &[u8]| {
        let bytes = given.iter().zip(key.bytes());
        bytes.fold(given.len() ^ key.len(), |differs, (a, b)| {
            differs | usize::from(a ^ b)
        })
    };
    match given.is_some_and(|given| differs(given) == 0) {
        true => Ok(()),
        false => {
            let problem = "wanted the API key of this server as \"Authorization: Bearer KEY\"";
            Err(ApiError::status(401, "invalid_api_key", problem))
        }
    }
}

fn check_name(server: &Server, name: &str) -> Result<(), ApiError> {
    if name == server.name {
        return Ok(());
    }
    let problem = format!(
        "unknown model {:?}; this server has {:?}",
        shown(name),
        server.name
    );
    Err(ApiError::status(404, "model_not_found", problem))
}

/// Requires JSON. A web page can send a form or plain text to any address, even to this machine, but not JSON.
fn check_type(given: Option<&HeaderValue>) -> Result<(), ApiError> {
    let given = given
        .and_then(|given| given.to_str().ok())
        .unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => {
            let problem = "wanted a body of the type application/json (curl: -H 'Content-Type: application/json')";
            Err(ApiError::status(415, "unsupported_media_type", problem))
        }
    }
}

async fn next_frame(body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

async fn read(body: &mut Incoming) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        let problem = format!("the body has more than {} MiB", MAX_BODY >> 20);
        ApiError::status(413, "request_too_large", problem)
    };
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = next_frame(body).await {
        let frame = frame.map_err(|_| ApiError::bad("the body is incomplete"))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > MAX_BODY {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// Sends the requested replies to the model thread, and their events to the client.
async fn reply(
    server: &Server,
    endpoint: Endpoint,
    request: &CompletionRequest,
    prompts: Vec<EncodedPrompt>,
) -> Result<Response<ResponseBody>, ApiError> {
    let count = prompts.len() * request.n;
    let most = server.max_replies;
    if count > most {
        let problem =
            format!("{count} replies, and this server takes {most} at a time (--batch, --queue)");
        return Err(ApiError::invalid("n", problem));
    }
    let slots = server.slots.clone().try_acquire_many_owned(count as u32);
    let mut slots = slots.map_err(|_| {
        let problem = "too many requests are waiting; try again in a moment";
        ApiError::status(429, "queue_full", problem)
    })?;
    let seed = request.seed.unwrap_or_else(random_number);
    let prefix = match endpoint {
        Endpoint::Chat => "chatcmpl",
        Endpoint::Completion => "cmpl",
    };
    let builder = ResponseBuilder {
        endpoint,
        id: format!("{prefix}-{:016x}", random_number()),
        created: now(),
        model: server.name.clone(),
        likeliest: request.likeliest,
        prompt_tokens: prompts.iter().map(|prompt| prompt.ids.len()).sum(),
        include_usage: request.include_usage,
    };
    let (events, mut received) = unbounded_channel();
    for index in 0..count {
        let (prompt, i) = (&prompts[index / request.n], index % request.n);
        let joining = BatchRequest {
            request: GenerationRequest {
                prompt: prompt.ids.clone(),
                // The first reply is that of `lapwing generate` with this seed.
                key: match i {
                    0 => seed,
                    _ => mix(seed ^ mix(i as u64)),
                },
            },
            sampling: SamplingOptions {
                temperature: request.temperature,
                top_k: request.top_k,
                top_p: request.top_p,
                max_new_tokens: prompt.max_new_tokens,
                stop: server.stop_ids.clone(),
                allowed: None,
            },
            scores: request.likeliest,
        };
        let reply = ReplyRequest {
            joining,
            index,
            stop: request.stop.clone(),
            echo: request.echo,
            events: events.clone(),
            _slot: slots.split(1).expect("one for each reply"),
        };
        let sent = server.requests.send(reply);
        sent.map_err(|_| ApiError::stopping())?;
    }
    drop(events);
    // An error before the first piece becomes the status of the response.
    let first = received.recv().await;
    let first = first.unwrap_or(Err(ApiError::stopping()))?;
    match request.stream {
        true => Ok(streamed(EventStream::new(builder, received, count, first))),
        false => collected(&builder, received, count, first).await,
    }
}

async fn collected(
    builder: &ResponseBuilder,
    mut received: UnboundedReceiver<ReplyEvent>,
    count: usize,
    first: ReplyPart,
) -> Result<Response<ResponseBody>, ApiError> {
    let empty = |index| ReplyPart {
        index,
        ..ReplyPart::default()
    };
    let mut replies: Vec<ReplyPart> = (0..count).map(empty).collect();
    let mut next = Some(first);
    while let Some(mut part) = next {
        let reply = &mut replies[part.index];
        reply.piece.text += &part.piece.text;
        reply.piece.tokens.append(&mut part.piece.tokens);
        reply.end = part.end;
        next = received.recv().await.transpose()?;
    }
    // The model thread has ended before the replies.
    if replies.iter().any(|reply| reply.end.is_none()) {
        return Err(ApiError::stopping());
    }
    Ok(complete(StatusCode::OK, &builder.complete(&replies)))
}

fn streamed(stream: EventStream) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Stream(Box::new(stream)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("cache-control", HeaderValue::from_static("no-cache"));
    response
}

/// Returns a random number: the standard library seeds its hash maps with random numbers of the system.
fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
