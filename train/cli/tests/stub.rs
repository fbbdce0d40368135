//! A server with a chat completions API, and with the failures that a test selects.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The response to a request.
#[derive(Clone)]
pub enum StubResponse {
    /// This reply; `true` if it is truncated.
    Says(&'static str, bool),
    /// This status, header lines and body.
    Status(u16, &'static str, String),
    /// Half of the body.
    HalfABody,
    /// A closed connection.
    Closes,
    /// A response after six seconds.
    Hangs,
}

/// A request.
#[derive(Clone)]
pub struct StubRequest {
    pub path: String,
    pub authorization: Option<String>,
    pub body: Value,
}

#[derive(Default)]
struct StubState {
    script: VecDeque<StubResponse>,
    asked: Vec<StubRequest>,
    at_once: usize,
    most_at_once: usize,
}

pub struct Stub {
    pub url: String,
    shared: Arc<Mutex<StubState>>,
}

impl Stub {
    /// Responds with the script first, and then with `after`.
    pub fn new(script: &[StubResponse], after: StubResponse) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(StubState {
            script: script.iter().cloned().collect(),
            ..StubState::default()
        }));
        let all = shared.clone();
        // The thread ends with the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, after) = (all.clone(), after.clone());
                std::thread::spawn(move || answer(stream.unwrap(), &shared, after));
            }
        });
        Stub { url, shared }
    }

    /// Takes the requests since the last call.
    pub fn asked(&self) -> Vec<StubRequest> {
        std::mem::take(&mut self.shared.lock().unwrap().asked)
    }

    pub fn most_at_once(&self) -> usize {
        self.shared.lock().unwrap().most_at_once
    }
}

fn answer(
    mut stream: TcpStream,
    shared: &Mutex<StubState>,
    after: StubResponse,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match &*name.to_lowercase() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => authorization = Some(value.to_owned()),
            _ => (),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let manner = {
        let mut shared = shared.lock().unwrap();
        shared.asked.push(StubRequest {
            path,
            authorization,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        });
        shared.at_once += 1;
        shared.most_at_once = shared.most_at_once.max(shared.at_once);
        shared.script.pop_front().unwrap_or(after)
    };
    // Long enough for concurrent requests to overlap.
    std::thread::sleep(Duration::from_millis(20));
    let (status, headers, body) = match manner {
        StubResponse::Says(text, cut) => (200, "", completion(text, cut)),
        StubResponse::Status(status, headers, ref body) => (status, headers, body.clone()),
        StubResponse::HalfABody => (200, "", completion("left", false)),
        StubResponse::Hangs | StubResponse::Closes => (0, "", String::new()),
    };
    if matches!(manner, StubResponse::Hangs) {
        std::thread::sleep(Duration::from_secs(6));
    }
    shared.lock().unwrap().at_once -= 1;
    if status == 0 {
        return Ok(());
    }
    let (length, sent) = match manner {
        StubResponse::HalfABody => (body.len(), &body[..body.len() / 2]),
        _ => (body.len(), &*body),
    };
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{sent}"
    )
}

fn completion(text: &str, cut: bool) -> String {
    json!({
        "id": "x",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": if cut { "length" } else { "stop" },
        }],
        "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100},
    })
    .to_string()
}
