//! `lapwing serve`: a model behind OpenAI's API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lapwing_model::ModelError;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::base::files::Files;

use super::subject::{InputError, Room, Subject, open};
use crate::args;
use crate::interrupt::{self, Stopped};
use crate::out;
use lapwing_serve::{Places, Server, Texts, Worker};

/// Tokens that the arena holds from the start.
const FIRST: usize = 4096;
/// How long the worker may take to end, once it is to: a token takes much less.
const LAST_TOKEN: Duration = Duration::from_millis(700);
/// What requests must bear, if it is set.
const KEY: &str = "LAPWING_API_KEY";

/// Serves until it is stopped.
pub fn serve(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Serve,
) -> Result<()> {
    let key = key()?;
    // Before anything is loaded: nobody waits for a refusal.
    let listener = listen(arguments)?;
    let address = listener.local_addr()?;
    let files = open(&arguments.chosen.model)?;
    let config = files.checkpoint.config();
    let context = match arguments.context {
        Some(context) if context > config.max_positions => {
            let problem = format!(
                "{context} tokens, and the model was made for {} (max_position_embeddings)",
                config.max_positions
            );
            return Err(InputError::new("--context", problem).into());
        }
        given => given.unwrap_or(config.max_positions),
    };
    let tokenizer = files.tokenizer()?.clone();
    let texts = Texts {
        tokenizer: tokenizer.clone(),
        template: template(&files)?,
        vocab: config.vocab,
        context,
    };
    let room = Room {
        longest: context,
        reply: context - 1,
        sequences: arguments.batch,
        first: FIRST,
        name: "the longest context",
        cure: "set --context lower",
    };
    let subject = Subject::load_with(open_gpu, &arguments.chosen, &files, &room)?;
    let stop = interrupt::listen("what is under way is broken off")?;
    let (asks, asked) = mpsc::channel();
    let server = Server {
        name: name(arguments, &files),
        created: lapwing_serve::now(),
        texts,
        ends: tokenizer.stop_ids().to_vec(),
        asks,
        places: Places::new(arguments.batch + arguments.queue),
        key,
        stop,
    };
    announce(address, &server);
    let worker = Worker::new(
        (&subject.model, subject.adapter.as_ref(), subject.arena),
        tokenizer,
        asked,
        arguments.batch,
        stop,
        out::say,
    );
    let worker = thread::Builder::new()
        .name("model".to_owned())
        .spawn(|| worker.run())?;
    lapwing_serve::run(listener, server, || worker.is_finished())?;
    ended(worker)?;
    Err(Stopped::server().into())
}

/// The address that was asked for, before others take it.
fn listen(arguments: &args::Serve) -> Result<TcpListener> {
    let (host, port) = (&arguments.host, arguments.port);
    let wrong = |e: std::io::Error| {
        use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
        let problem = match e.kind() {
            AddrInUse => "another program listens there; choose another with --port, or any that is free with --port 0".to_owned(),
            AddrNotAvailable => "this machine has no such address; leave out --host, or give one of its own".to_owned(),
            PermissionDenied => format!("{e}; choose a port from 1024 on with --port"),
            _ => format!("cannot listen there: {e}"),
        };
        InputError::new(format!("{host}:{port}"), problem)
    };
    Ok(TcpListener::bind((host.as_str(), port)).map_err(wrong)?)
}

/// The key that requests must bear; it must be one that can be sent.
fn key() -> Result<Option<String>> {
    let Some(key) = std::env::var_os(KEY).filter(|key| !key.is_empty()) else {
        return Ok(None);
    };
    let key = key
        .into_string()
        .ok()
        .filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic()));
    let wrong = || {
        InputError::new(
            KEY,
            "wanted letters, digits and signs of ASCII, without spaces",
        )
    };
    Ok(Some(key.ok_or_else(wrong)?))
}

/// A model without a template can complete texts; one that is damaged is said.
fn template(files: &Files) -> Result<Option<lapwing_model::ChatTemplate>> {
    let has_one = files.mentions("messages");
    match files.template() {
        Ok(template) => Ok(Some(template)),
        Err(_) if !has_one => {
            out::note("the model has no chat template: /v1/chat/completions is refused");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What requests call the model.
fn name(arguments: &args::Serve, files: &Files) -> String {
    if let Some(name) = &arguments.name {
        return name.clone();
    }
    match &files.repository {
        Some(repository) => repository.id().to_owned(),
        None => {
            // `.` and `..` have no name of their own.
            let path = Path::new(&files.name);
            let whole = path.canonicalize();
            let path = whole.as_deref().unwrap_or(path);
            let last = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            last.unwrap_or_else(|| files.name.clone())
        }
    }
}

fn announce(address: SocketAddr, server: &Server) {
    let name = &server.name;
    // All addresses are not one that can be asked everywhere; this machine's own is among them.
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let url = format!("http://{}/v1", SocketAddr::new(host, address.port()));
    out::note(&format!(
        "{name} is served at {url} (Ctrl-C ends it); for example:"
    ));
    let key = match &server.key {
        Some(_) => format!(" -H \"Authorization: Bearer ${KEY}\""),
        None => String::new(),
    };
    let (path, what) = match server.texts.template {
        Some(_) => (
            "chat/completions",
            r#""messages": [{"role": "user", "content": "go"}]"#,
        ),
        None => ("completions", r#""prompt": "go""#),
    };
    let name = serde_json::Value::from(name.as_str());
    let body = out::quoted(&format!(r#"{{"model": {name}, {what}}}"#));
    out::note(&format!(
        "  curl {url}/{path} -H 'Content-Type: application/json'{key} -d {body}"
    ));
    if !address.ip().is_loopback() && server.key.is_none() {
        out::note(&format!(
            "{address} can be reached from other machines, and there is no authentication: whoever reaches it can use the \
             model; set {KEY} to ask for a key"
        ));
    }
}

/// Waits for the worker, but not for long; what it failed of ends the program.
fn ended(worker: JoinHandle<Result<(), ModelError>>) -> Result<()> {
    let since = Instant::now();
    while !worker.is_finished() {
        if since.elapsed() > LAST_TOKEN {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let done = worker
        .join()
        .map_err(|_| anyhow::anyhow!("the thread of the model broke down"));
    done?.context("the server ends")
}
