//! `lapwing serve`: an OpenAI-compatible HTTP server for a model.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use anyhow::Result;
use lapwing_model::ChatTemplate;
use lapwing_serve::ServeOptions;
use lapwing_train::base::files::Files;
use lapwing_train::memory::MemoryDemand;

use super::loaded_model::{InputError, LoadedModel, open};
use crate::args::{DeviceArgs, ServeArgs};
use crate::interrupt::{self, Stopped};
use crate::out;

const INITIAL_TOKENS: usize = 4096;
/// The variable of the API key that requests need.
const KEY: &str = "LAPWING_API_KEY";

pub fn serve(device: DeviceArgs, arguments: &ServeArgs) -> Result<()> {
    let key = key()?;
    // Before anything is loaded, because the port may be taken.
    let listener = listen(arguments)?;
    let (files, adapter) = open(&arguments.model)?;
    let most = files.checkpoint.config().max_positions;
    let context = arguments.context.unwrap_or(most);
    if context > most {
        let problem =
            format!("{context} tokens, and the model supports {most} (max_position_embeddings)");
        return Err(InputError::new("--context", problem).into());
    }
    let tokenizer = files.tokenizer()?.clone();
    let template = template(&files)?;
    let demand = MemoryDemand {
        longest: context,
        reply: context - 1,
        episodes: arguments.batch,
        cure: "set --context lower",
        ..MemoryDemand::default()
    };
    let (stored, longest) = (adapter.as_ref(), "the longest context");
    let loaded = LoadedModel::load(device, &files, stored, demand, INITIAL_TOKENS, longest)?;
    let options = ServeOptions {
        model: loaded.model,
        adapter: loaded.adapter,
        arena: loaded.arena,
        tokenizer,
        template,
        name: name(arguments, &files),
        context,
        batch: arguments.batch,
        queue: arguments.queue,
        key,
        hosts: [
            &arguments.allow_host[..],
            std::slice::from_ref(&arguments.host),
        ]
        .concat(),
        stop: interrupt::listen("requests in progress are aborted")?,
        log: out::status,
        report: out::print_always,
    };
    announce(listener.local_addr()?, &options);
    match lapwing_serve::serve(listener, options) {
        Ok(()) => Err(Stopped(String::new()).into()),
        Err(error) => Err(anyhow::Error::from_boxed(error).context("the server ends")),
    }
}

fn listen(arguments: &ServeArgs) -> Result<TcpListener> {
    let (host, port) = (&arguments.host, arguments.port);
    let wrong = |e: std::io::Error| {
        use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
        let problem = match e.kind() {
            AddrInUse => "another program uses this port; choose another one with --port, or a free one with --port 0".to_owned(),
            AddrNotAvailable => "this machine does not have this address; omit --host, or give one of its addresses".to_owned(),
            PermissionDenied => format!("{e}; choose a port from 1024 on with --port"),
            _ => format!("cannot listen there: {e}"),
        };
        let wrong = InputError::new(format!("{host}:{port}"), problem);
        // The argument is right where the port is free.
        match e.kind() {
            AddrInUse => anyhow::anyhow!("{wrong}"),
            _ => wrong.into(),
        }
    };
    TcpListener::bind((host.as_str(), port)).map_err(wrong)
}

/// Returns the API key. It must fit into an HTTP header.
fn key() -> Result<Option<String>> {
    let Some(key) = std::env::var_os(KEY).filter(|key| !key.is_empty()) else {
        return Ok(None);
    };
    match key.into_string() {
        Ok(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(key)),
        _ => Err(InputError::new(KEY, "wanted printable ASCII characters without spaces").into()),
    }
}

/// Returns the chat template, if the model has one. A damaged template is an error.
fn template(files: &Files) -> Result<Option<ChatTemplate>> {
    match files.template() {
        Ok(template) => Ok(Some(template)),
        Err(_) if !files.mentions("messages") => {
            out::note("the model has no chat template: /v1/chat/completions is refused");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn name(arguments: &ServeArgs, files: &Files) -> String {
    if let Some(name) = &arguments.name {
        return name.clone();
    }
    let run = arguments.model.run.as_deref();
    if let (None, Some(repository)) = (run, &files.repository) {
        return repository.id().to_owned();
    }
    let path = run.unwrap_or(Path::new(&files.name));
    // `.` and `..` have no name.
    let absolute = path.canonicalize();
    let last = absolute.as_deref().unwrap_or(path).file_name();
    last.map_or_else(
        || files.name.clone(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn announce(address: SocketAddr, options: &ServeOptions) {
    let name = &options.name;
    // An unspecified address cannot be connected to on every system.
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let url = format!("http://{}/v1", SocketAddr::new(host, address.port()));
    out::status(&format!(
        "{name} is served at {url} (Ctrl-C stops the server); for example:"
    ));
    let key = match &options.key {
        Some(_) => format!(" -H \"Authorization: Bearer ${KEY}\""),
        None => String::new(),
    };
    let (path, input) = match options.template {
        Some(_) => (
            "chat/completions",
            r#""messages": [{"role": "user", "content": "go"}]"#,
        ),
        None => ("completions", r#""prompt": "go""#),
    };
    let name = serde_json::Value::from(name.as_str());
    let body = out::quoted(&format!(r#"{{"model": {name}, {input}}}"#));
    out::status(&format!(
        "  curl {url}/{path} -H 'Content-Type: application/json'{key} -d {body}"
    ));
    if !address.ip().is_loopback() && options.key.is_none() {
        out::warning(&format!(
            "other machines can reach {address}, and no API key is required: set {KEY} to require one"
        ));
    }
}
