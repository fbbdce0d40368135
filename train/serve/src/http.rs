//! The way in and out: connections, paths, bodies and streams.

use std::convert::Infallible;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use lapwing_model::{BatchRequest, GenerationRequest as Prompted, SamplingOptions};
use lapwing_tensor::random::mix;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::answer::{Answer, Choice, Form};
use super::error::{ApiError, shown};
use super::request::{self, Asked};
use super::stream::{Answered, Stream};
use super::texts::{Ready, Texts};
use super::worker::{Ask, Event, Places};

/// Bytes of a request: what the tokenizer takes.
const LONGEST_BODY: usize = 4 << 20;
/// For the head of a request, and for its body.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Connections at once; others wait to be accepted.
const MOST_CONNECTIONS: usize = 512;
/// How often a connection, and the one who accepts them, looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);
/// For the last words when the server stops.
const FAREWELL: Duration = Duration::from_millis(700);

/// What every request is answered with.
pub struct Server {
    /// what requests call the model
    pub name: String,
    /// seconds since 1970
    pub created: u64,
    /// What turns requests into tokens.
    pub texts: Texts,
    /// ids that end a reply
    pub ends: Vec<u32>,
    /// to the worker
    pub asks: Sender<Ask>,
    /// The replies that may be in progress or wait.
    pub places: Places,
    /// which requests must bear
    pub key: Option<String>,
    /// Set to stop the server.
    pub stop: &'static AtomicBool,
}

/// Accepts connections until the server stops or `is_over`, and lets those that are open end.
///
/// # Errors
/// If the system has no more sockets or timers for it.
pub fn run(
    listener: std::net::TcpListener,
    server: Server,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let server = Arc::new(server);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(async move {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let mut open = JoinSet::new();
        while !server.stop.load(Relaxed) && !is_over() {
            while open.try_join_next().is_some() {}
            if open.len() >= MOST_CONNECTIONS {
                sleep(LOOK).await;
                continue;
            }
            match timeout(LOOK, listener.accept()).await {
                Ok(Ok((stream, _))) => {
                    open.spawn(connection(server.clone(), stream));
                }
                // The system has no more files, or the client has gone already.
                Ok(Err(_)) => sleep(LOOK).await,
                Err(_) => (),
            }
        }
        drop(listener);
        server.stop.store(true, Relaxed);
        let _ = timeout(FAREWELL, async {
            while open.join_next().await.is_some() {}
        })
        .await;
        Ok::<_, io::Error>(())
    })?;
    // What a template is still busy with is not waited for.
    runtime.shutdown_background();
    Ok(())
}

/// One connection to its end. What is wrong with it is the client's business.
async fn connection(server: Arc<Server>, stream: TcpStream) {
    // A chunk is a token, which someone waits for.
    let _ = stream.set_nodelay(true);
    let stop = server.stop;
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(answered(&server, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST_WAIT)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    while timeout(LOOK, connection.as_mut()).await.is_err() {
        if stop.load(Relaxed) {
            connection.as_mut().graceful_shutdown();
        }
    }
}

async fn answered(server: &Arc<Server>, request: Request<Incoming>) -> Response<Answered> {
    match answer(server, request).await {
        Ok(response) => response,
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &ApiError) -> Response<Answered> {
    let status = StatusCode::from_u16(error.status).expect("one of ours");
    let mut response = whole(status, &error.body());
    if error.is_passing() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn whole(status: StatusCode, body: &Value) -> Response<Answered> {
    let mut response = Response::new(Answered::Whole(Some(body.to_string().into())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn answer(
    server: &Arc<Server>,
    request: Request<Incoming>,
) -> Result<Response<Answered>, ApiError> {
    let path = request.uri().path().to_owned();
    let form = match &*path {
        "/v1/chat/completions" => Some(Form::Chat),
        "/v1/completions" => Some(Form::Completion),
        _ => None,
    };
    let model = path.strip_prefix("/v1/models/");
    let is_known = form.is_some() || model.is_some() || ["/health", "/v1/models"].contains(&&*path);
    if !is_known {
        let problem = format!("there is nothing at {}", shown(&path));
        return Err(ApiError::status(404, "unknown_url", problem));
    }
    let method = if form.is_some() {
        Method::POST
    } else {
        Method::GET
    };
    if request.method() != method {
        let problem = format!(
            "{}: wanted {method}, not {}",
            shown(&path),
            shown(request.method().as_str())
        );
        let mut response = refusal(&ApiError::status(405, "method_not_allowed", problem));
        let allowed = HeaderValue::from_str(method.as_str()).expect("a plain word");
        response.headers_mut().insert(ALLOW, allowed);
        return Ok(response);
    }
    if path == "/health" {
        return Ok(whole(StatusCode::OK, &json!({"status": "ok"})));
    }
    check_key(server, request.headers().get(AUTHORIZATION))?;
    let Some(form) = form else {
        let entry = json!({
            "id": server.name,
            "object": "model",
            "created": server.created,
            "owned_by": "lapwing",
            "max_model_len": server.texts.context,
        });
        return match model {
            None => Ok(whole(
                StatusCode::OK,
                &json!({"object": "list", "data": [entry]}),
            )),
            Some(model) => check_name(server, model).map(|()| whole(StatusCode::OK, &entry)),
        };
    };
    check_type(request.headers().get(CONTENT_TYPE))?;
    let body = timeout(LONGEST_WAIT, read(request.into_body())).await;
    let body = body.unwrap_or_else(|_| {
        let problem = format!(
            "the body did not come within {} seconds",
            LONGEST_WAIT.as_secs()
        );
        Err(ApiError::status(408, "request_timeout", problem))
    })?;
    let asked = match form {
        Form::Chat => request::chat(&body),
        Form::Completion => request::completion(&body),
    }?;
    check_name(server, &asked.model)?;
    // The template and the tokenizer may take their time, and others should not wait for it.
    let texts = server.clone();
    let ready = spawn_blocking(move || {
        let ready = texts.texts.ready(&asked);
        ready.map(|ready| (asked, ready))
    });
    let (asked, ready) = ready.await.map_err(|_| {
        ApiError::status(
            500,
            "internal_error",
            "the tokenizer breaks down over this text",
        )
    })??;
    reply(server, form, &asked, ready).await
}

fn check_key(server: &Server, given: Option<&HeaderValue>) -> Result<(), ApiError> {
    let Some(key) = &server.key else {
        return Ok(());
    };
    let given = given.and_then(|given| given.as_bytes().strip_prefix(b"Bearer "));
    // Every byte is looked at, so that the time says nothing of how many are right.
    let differs = |given: &[u8]| {
        let bytes = given.iter().zip(key.bytes());
        bytes.fold(given.len() ^ key.len(), |differs, (a, b)| {
            differs | usize::from(a ^ b)
        })
    };
    match given.is_some_and(|given| differs(given) == 0) {
        true => Ok(()),
        false => {
            let problem = "this server wants its API key as \"Authorization: Bearer KEY\"";
            Err(ApiError::status(401, "invalid_api_key", problem))
        }
    }
}

fn check_name(server: &Server, name: &str) -> Result<(), ApiError> {
    if name == server.name {
        return Ok(());
    }
    let problem = format!(
        "the model {:?} is not here, only {:?}",
        shown(name),
        server.name
    );
    Err(ApiError::status(404, "model_not_found", problem))
}

/// A page in a browser can send a form or plain text to any address, this machine's own too, without being asked; JSON it
/// cannot.
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

async fn read(mut body: Incoming) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        let problem = format!("the body has more than {} MiB", LONGEST_BODY >> 20);
        ApiError::status(413, "request_too_large", problem)
    };
    if body.size_hint().lower() > LONGEST_BODY as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| ApiError::bad("the body breaks off"))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > LONGEST_BODY {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// Hands the replies that are asked for to the worker, and what becomes of them to the client.
async fn reply(
    server: &Server,
    form: Form,
    asked: &Asked,
    ready: Vec<Ready>,
) -> Result<Response<Answered>, ApiError> {
    let count = ready.len() * asked.n;
    let Some(mut places) = server.places.take(count) else {
        let most = server.places.most();
        return Err(match count > most {
            true => {
                let problem = format!(
                    "n: {count} replies, and this server takes {most} at a time (--batch, --queue)"
                );
                ApiError::field("n", "invalid_value", problem)
            }
            false => ApiError::status(
                429,
                "queue_full",
                "too many requests are waiting; try again in a moment",
            ),
        });
    };
    let seed = asked.seed.unwrap_or_else(any_number);
    let answer = Answer {
        form,
        id: match form {
            Form::Chat => format!("chatcmpl-{:016x}", any_number()),
            Form::Completion => format!("cmpl-{:016x}", any_number()),
        },
        created: now(),
        model: server.name.clone(),
        tell: asked.tell,
        prompt_tokens: ready.iter().map(|ready| ready.ids.len()).sum(),
        include_usage: asked.include_usage,
    };
    let (events, mut received) = unbounded_channel();
    for (p, ready) in ready.into_iter().enumerate() {
        for i in 0..asked.n {
            let joining = BatchRequest {
                request: Prompted {
                    prompt: ready.ids.clone(),
                    // The first is what `lapwing generate` draws with this seed.
                    key: if i == 0 {
                        seed
                    } else {
                        mix(seed ^ mix(i as u64))
                    },
                },
                sampling: SamplingOptions {
                    temperature: asked.temperature,
                    top_k: asked.top_k,
                    top_p: asked.top_p,
                    max_new_tokens: ready.most,
                    stop: server.ends.clone(),
                },
                scores: asked.tell,
            };
            let ask = Ask {
                joining,
                index: p * asked.n + i,
                stop: asked.stop.clone(),
                echo: asked.echo,
                events: events.clone(),
                place: places.pop().expect("one for each"),
            };
            server.asks.send(ask).map_err(|_| ApiError::stopping())?;
        }
    }
    drop(events);
    // What fails before the first piece has a status of its own.
    let first = match received.recv().await {
        Some(Event::Failed(error)) => return Err(error),
        Some(event) => event,
        None => return Err(ApiError::stopping()),
    };
    match asked.stream {
        true => Ok(streamed(Stream::new(answer, received, count, first))),
        false => collected(&answer, received, count, first).await,
    }
}

async fn collected(
    answer: &Answer,
    mut received: UnboundedReceiver<Event>,
    count: usize,
    first: Event,
) -> Result<Response<Answered>, ApiError> {
    let mut choices = vec![Choice::default(); count];
    let mut next = Some(first);
    while let Some(event) = next {
        let (index, mut piece) = match event {
            Event::Failed(error) => return Err(error),
            Event::Piece(index, piece) => (index, piece),
            Event::End(index, piece, finish, tokens) => {
                let choice = &mut choices[index];
                (choice.finish, choice.tokens) = (Some(finish), tokens);
                (index, piece)
            }
        };
        let choice = &mut choices[index].piece;
        choice.text += &piece.text;
        choice.tokens.append(&mut piece.tokens);
        next = received.recv().await;
    }
    // Whoever sends the events has ended before all replies have.
    if choices.iter().any(|choice| choice.finish.is_none()) {
        return Err(ApiError::stopping());
    }
    Ok(whole(StatusCode::OK, &answer.whole(&choices)))
}

fn streamed(stream: Stream) -> Response<Answered> {
    let mut response = Response::new(Answered::Stream(Box::new(stream)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("cache-control", HeaderValue::from_static("no-cache"));
    response
}

/// A number that nobody chose: the standard library seeds its hash maps from the system's.
fn any_number() -> u64 {
    RandomState::new().hash_one(0)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
