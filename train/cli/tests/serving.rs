//! Clients of `lapwing serve`, with the built-in model.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::{golden, json as program, lapwing, run};

/// A server on a free port, which ends when this is dropped.
struct TestServer {
    child: Child,
    port: u16,
    /// Its output until it was ready.
    told: Vec<String>,
    stderr: BufReader<std::process::ChildStderr>,
}

impl TestServer {
    fn start(more: &str) -> TestServer {
        TestServer::start_with(more, |_| ())
    }

    fn start_with(more: &str, prepare: impl FnOnce(&mut Command)) -> TestServer {
        let home = std::env::temp_dir();
        let mut command = lapwing(&home, &format!("serve --port 0 {more}"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut told = Vec::new();
        // The example is the last line that is always printed.
        while !told
            .last()
            .is_some_and(|line: &String| line.contains("curl "))
        {
            let mut line = String::new();
            assert_ne!(
                stderr.read_line(&mut line).unwrap(),
                0,
                "it ended: {told:?}"
            );
            told.push(line);
        }
        let address = told
            .iter()
            .find_map(|line| line.split("http://").nth(1))
            .unwrap();
        let port = address
            .split('/')
            .next()
            .unwrap()
            .rsplit(':')
            .next()
            .unwrap();
        let port = port.parse().unwrap();
        TestServer {
            child,
            port,
            told,
            stderr,
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// Sends a request without waiting for the response.
    fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse the request before it has read all of it.
        let _ = stream.write_all(body);
        stream
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> HttpResponse {
        HttpResponse::read(self.send(method, path, headers, body))
    }

    fn get(&self, path: &str) -> HttpResponse {
        self.ask("GET", path, "", b"")
    }

    fn begin(&self, path: &str, body: &Value) -> TcpStream {
        self.send("POST", path, JSON, body.to_string().as_bytes())
    }

    fn post(&self, path: &str, body: &Value) -> HttpResponse {
        HttpResponse::read(self.begin(path, body))
    }

    fn interrupt(&self) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-INT", &id]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const JSON: &str = "Content-Type: application/json\r\n";
const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

struct HttpResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl HttpResponse {
    fn read(mut stream: TcpStream) -> HttpResponse {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: BTreeMap<String, String> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let is_chunked = headers
            .get("transfer-encoding")
            .is_some_and(|how| how == "chunked");
        let body = if is_chunked {
            unchunked(body)
        } else {
            body.to_owned()
        };
        HttpResponse {
            status,
            headers,
            body,
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn right(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }

    fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    /// Returns the events of a stream.
    fn events(&self) -> Vec<String> {
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let events = self.body.split_terminator("\n\n");
        events
            .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole += &rest[..length];
        body = &rest[(length + 2).min(rest.len())..];
    }
    whole
}

fn chat(text: &str, more: Value) -> Value {
    let messages =
        json!([{"role": "system", "content": "Play."}, {"role": "user", "content": text}]);
    with(
        json!({"model": "lapwing-base-2", "messages": messages}),
        more,
    )
}

fn completion(prompt: Value, more: Value) -> Value {
    with(json!({"model": "lapwing-base-2", "prompt": prompt}), more)
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    body
}

/// A request for long replies, in which all tokens are about equally likely.
fn endless() -> Value {
    chat(
        "go",
        json!({"temperature": 1000, "n": 4, "seed": 5, "stream": true}),
    )
}

/// Returns the replies, without ids and times.
fn choices(answer: Value) -> Value {
    answer["choices"].clone()
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

#[test]
fn responses_are_those_of_openais_api() {
    let mut server = TestServer::start("");
    let ready = server
        .told
        .iter()
        .position(|line| line.contains("is served at"))
        .unwrap();
    assert_snapshot!(
        server.told[ready..]
            .concat()
            .replace(&server.port.to_string(), "PORT")
    );

    let list = server.get("/v1/models").right();
    let mut log = String::new();
    server.stderr.read_line(&mut log).unwrap();
    assert!(log.starts_with("GET /v1/models 200, "), "{log}");
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "lapwing-base-2");
    assert_eq!(
        server.get("/v1/models/lapwing-base-2").right(),
        list["data"][0]
    );
    assert_eq!(server.get("/health").right(), json!({"status": "ok"}));

    let ended = server
        .post(CHAT, &chat("go", json!({"temperature": 0})))
        .right();
    assert_eq!(ended["object"], "chat.completion");
    assert_eq!(ended["model"], "lapwing-base-2");
    let choice = &ended["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["logprobs"], Value::Null);
    let usage = &ended["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(
        count("total_tokens"),
        count("prompt_tokens") + count("completion_tokens")
    );

    // The numbers are those of `generate` and `score`.
    let home = tempfile::tempdir().unwrap();
    let file = |value: &Value| fs::write(home.path().join("in.json"), value.to_string()).unwrap();
    file(&chat("go", json!({}))["messages"]);
    let generated = program(home.path(), "generate --chat in.json --greedy --json");
    assert_eq!(choice["message"]["content"], generated["text"]);
    assert_eq!(
        count("completion_tokens") as usize,
        generated["ids"].as_array().unwrap().len()
    );
    let ids: Vec<u64> = (20..50).collect();
    file(&json!(ids));
    let line = "generate --ids in.json --json --temperature 2 --max-new-tokens 12 --seed 9";
    let generated = program(home.path(), line);
    let more = json!({"temperature": 2, "max_tokens": 12, "seed": 9, "logprobs": 2});
    let asked = completion(json!(ids), more);
    let drawn = server.post(TEXT, &asked).right();
    assert_eq!(text(&drawn), generated["text"].as_str().unwrap());
    let all: Vec<u64> = generated["ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap())
        .collect();
    let all = [&ids[..], &all].concat();
    file(&json!(all));
    let scored = program(home.path(), "score --ids in.json --json");
    let scored = scored["logprobs"].as_array().unwrap();
    let told = drawn["choices"][0]["logprobs"].clone();
    let own = told["token_logprobs"].as_array().unwrap();
    assert!(!own.is_empty());
    assert_eq!(own[..], scored[ids.len() - 1..][..own.len()]);
    for (at, token) in told["tokens"].as_array().unwrap().iter().enumerate() {
        let likeliest = told["top_logprobs"][at].as_object().unwrap();
        assert_eq!(likeliest[token.as_str().unwrap()], own[at]);
        assert!((2..=3).contains(&likeliest.len()), "{likeliest:?}");
    }

    // Evaluation harnesses score a prompt without new tokens.
    let more = json!({"echo": true, "max_tokens": 0, "logprobs": 1});
    let echoed = server.post(TEXT, &completion(json!(all), more)).right();
    let told = &echoed["choices"][0]["logprobs"]["token_logprobs"];
    assert_eq!(told[0], Value::Null);
    assert_eq!(told.as_array().unwrap()[1..], scored[..]);
    assert_eq!(echoed["usage"]["completion_tokens"], 0);

    // Several replies to several prompts come in order, and the first of each is that of a single request.
    let more = json!({"n": 2, "seed": 9, "max_tokens": 8});
    let many = server
        .post(TEXT, &completion(json!(["go left", "up"]), more))
        .right();
    assert_eq!(many["choices"].as_array().unwrap().len(), 4);
    for (index, prompt) in [(0, "go left"), (2, "up")] {
        let one = json!({"seed": 9, "max_tokens": 8});
        let alone = server.post(TEXT, &completion(json!(prompt), one)).right();
        assert_eq!(many["choices"][index]["text"], alone["choices"][0]["text"]);
        assert_eq!(many["choices"][index]["index"], index);
    }

    // A stop text is not part of the reply.
    let more = |stop: Value| json!({"temperature": 2, "seed": 8, "max_tokens": 40, "stop": stop});
    let whole = server
        .post(TEXT, &completion(json!("go"), more(Value::Null)))
        .right();
    let whole = text(&whole);
    let stop: String = whole.chars().skip(5).take(2).collect();
    let stopped = server
        .post(TEXT, &completion(json!("go"), more(json!([stop]))))
        .right();
    assert_eq!(text(&stopped), whole.split(&stop).next().unwrap());
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_stream_has_the_same_content() {
    let server = TestServer::start("");
    let more = json!({"temperature": 2, "seed": 7, "n": 3, "max_tokens": 20, "logprobs": true, "top_logprobs": 2, "stop": ["e"]});
    let whole = server.post(CHAT, &chat("go", more.clone())).right();
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let streamed = server.post(CHAT, &chat("go", with(more.clone(), stream)));
    let mut events = streamed.events();
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let mut events: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let last = events.pop().unwrap();
    assert_eq!(
        (&last["choices"], &last["usage"]),
        (&json!([]), &whole["usage"])
    );
    let mut built = json!([]);
    for index in 0..3 {
        let of = events
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == index);
        let of: Vec<&Value> = of.collect();
        assert_eq!(of[0]["delta"]["role"], "assistant");
        let content: String = of
            .iter()
            .filter_map(|choice| choice["delta"]["content"].as_str())
            .collect();
        let told: Vec<Value> = of
            .iter()
            .filter_map(|choice| choice["logprobs"]["content"].as_array().cloned())
            .flatten()
            .collect();
        let (end, before) = of.split_last().unwrap();
        assert!(
            before
                .iter()
                .all(|choice| choice["finish_reason"].is_null())
        );
        let choice = json!({
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": null},
            "logprobs": {"content": told, "refusal": null},
            "finish_reason": end["finish_reason"],
        });
        built.as_array_mut().unwrap().push(choice);
    }
    assert_eq!(built, choices(whole));
    assert!(events.iter().all(|event| event["usage"].is_null()));

    let more = json!({"temperature": 2, "seed": 7, "max_tokens": 20, "echo": true, "logprobs": 0});
    let whole = server
        .post(TEXT, &completion(json!("go left"), more.clone()))
        .right();
    let streamed = server.post(
        TEXT,
        &completion(json!("go left"), with(more, json!({"stream": true}))),
    );
    let events = streamed.events();
    let events = events[..events.len() - 1].iter();
    let events: Vec<Value> = events
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let joined: String = events.iter().map(text).collect();
    assert_eq!(joined, text(&whole));
    assert!(joined.starts_with("go left"), "{joined}");
    for list in ["tokens", "token_logprobs", "text_offset"] {
        let of = |event: &Value| event["choices"][0]["logprobs"][list].as_array().cloned();
        let told: Vec<Value> = events.iter().filter_map(of).flatten().collect();
        assert_eq!(Some(told), of(&whole), "{list}");
    }
}

/// A reply is bit-identical whatever else is in the batch.
#[test]
fn eight_clients_get_the_same_replies_as_alone() {
    let server = TestServer::start("--batch 4");
    let request = |i: usize| {
        let temperature = [0.0, 0.7, 1.0, 1.8][i % 4];
        let top_p = [1.0, 0.9][i / 4];
        let more = json!({"temperature": temperature, "top_p": top_p, "seed": i, "max_tokens": 6 + 5 * i, "logprobs": true});
        chat(["go", "up or down", "left"][i % 3], more)
    };
    let alone: Vec<Value> = (0..8)
        .map(|i| choices(server.post(CHAT, &request(i)).right()))
        .collect();
    for _ in 0..3 {
        thread::scope(|scope| {
            let server = &server;
            let clients: Vec<_> = (0..8)
                .map(|i| scope.spawn(move || choices(server.post(CHAT, &request(i)).right())))
                .collect();
            for (client, alone) in clients.into_iter().zip(&alone) {
                assert_eq!(&client.join().unwrap(), alone);
            }
        });
    }
    // Without a seed, replies differ. Two short ones may be equal by chance.
    let free = chat("go", json!({"temperature": 3, "max_tokens": 30}));
    let replies = [(); 8].map(|()| choices(server.post(CHAT, &free).right()));
    assert!(replies.iter().any(|reply| *reply != replies[0]));
}

#[test]
fn wrong_requests_are_refused_in_the_same_form() {
    let server = TestServer::start("--queue 4 --context 500");
    let mut told = String::new();
    let mut tell = |what: &str, answer: HttpResponse| {
        let error = answer.error();
        let field = |name: &str| error[name].as_str().unwrap_or("-").to_owned();
        let [message, kind, param, code] = ["message", "type", "param", "code"].map(field);
        told += &format!(
            "{what}: {} {kind} {param} {code}\n  {message}\n",
            answer.status
        );
        answer.headers
    };
    let raw = |body: &[u8]| server.ask("POST", CHAT, JSON, body);
    tell("no JSON", raw(b"{\"model\""));
    tell("a list", raw(b"[]"));
    tell("no text", raw(b"\xff\xfe"));
    tell("deep", raw("[".repeat(100_000).as_bytes()));
    tell(
        "no model",
        raw(b"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"),
    );
    tell(
        "another model",
        server.post(
            CHAT,
            &with(chat("a", json!({})), json!({"model": "gpt\u{1b}[2J"})),
        ),
    );
    tell("another model", server.get("/v1/models/gpt"));
    tell(
        "an unknown field",
        server.post(CHAT, &chat("a", json!({"min_p": 0.1}))),
    );
    tell(
        "tools",
        server.post(CHAT, &chat("a", json!({"tools": [{"type": "function"}]}))),
    );
    let form = json!({"response_format": {"type": "json_object"}});
    tell("a format", server.post(CHAT, &chat("a", form)));
    tell(
        "a picture",
        server.post(
            CHAT,
            &with(
                chat("a", json!({})),
                json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            ),
        ),
    );
    tell(
        "too long",
        server.post(CHAT, &chat(&"go left ".repeat(600), json!({}))),
    );
    let long = chat(&"left ".repeat(8000), json!({}));
    tell("far too long", server.post(CHAT, &long));
    tell(
        "too much",
        server.post(TEXT, &completion(json!("go"), json!({"max_tokens": 500}))),
    );
    tell(
        "no token",
        server.post(TEXT, &completion(json!(""), json!({}))),
    );
    tell(
        "foreign token",
        server.post(TEXT, &completion(json!([5, 640]), json!({}))),
    );
    tell(
        "too many",
        server.post(TEXT, &completion(json!("go"), json!({"n": 21}))),
    );
    tell("no path", server.get("/v1/embeddings"));
    let headers = tell("another method", server.get(CHAT));
    assert_eq!(headers["allow"], "POST");
    let headers = tell(
        "another method",
        server.ask("DELETE", "/v1/models", "", b""),
    );
    assert_eq!(headers["allow"], "GET");
    tell(
        "a form",
        server.ask("POST", CHAT, "Content-Type: text/plain\r\n", b"{}"),
    );
    let huge = vec![b' '; (4 << 20) + 1];
    let answer = server.ask("POST", CHAT, JSON, &huge[..0]);
    tell("nothing", answer);
    let mut stream = server.connect();
    let length = huge.len();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{JSON}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    tell("huge", HttpResponse::read(stream));
    assert_snapshot!(told);

    // An incomplete body, invalid HTTP and a silent connection do not block others.
    let mut half = server.send("POST", CHAT, &format!("{JSON}Expect: nothing\r\n"), b"");
    half.write_all(b"{").unwrap();
    let mut half = server.connect();
    half.write_all(
        format!("POST {CHAT} HTTP/1.1\r\n{JSON}Content-Length: 50\r\n\r\n{{\"mod").as_bytes(),
    )
    .unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut garbage = server.connect();
    garbage.write_all(b"\x16\x03\x01 hello\r\n\r\n").unwrap();
    let _silent = server.connect();
    server
        .post(
            CHAT,
            &chat("go", json!({"user": "me", "metadata": {"a": "b"}})),
        )
        .right();
    assert!(HttpResponse::read(garbage).status == 400);
}

#[test]
fn other_hosts_and_many_connections_are_refused_and_large_bodies_read() {
    let model = golden("qwen2");
    let more = "--allow-host Proxy.example --name org/qwen";
    let server = TestServer::start(&format!("--model '{model}' {more}"));
    let of_host = |host: &str| {
        let mut stream = server.connect();
        let head = format!("GET /v1/models HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        HttpResponse::read(stream)
    };
    for host in [
        "",
        "Host: LOCALHOST\r\n",
        "Host: localhost:8080\r\n",
        "Host: 127.0.0.1:80\r\n",
        "Host: [::1]:80\r\n",
        "Host: proxy.example\r\n",
    ] {
        assert_eq!(of_host(host).status, 200, "{host}");
    }
    for host in [
        "evil.example:80",
        "localhost.evil.example",
        "",
        "a b",
        "127.0.0.1.evil",
    ] {
        let refused = of_host(&format!("Host: {host}\r\n"));
        assert_eq!(refused.status, 403, "{host}");
        assert_eq!(refused.error()["code"], "host_not_allowed");
    }
    let refused = of_host("Host: evil.example\r\n").error()["message"].to_string();
    assert_snapshot!(refused, @r#""unknown host \"evil.example\": wanted localhost, an IP address or a name given with --allow-host""#);

    for (path, status) in [
        ("/v1/models/org%2Fqwen", 200),
        ("/v1/models/org/qwen", 200),
        ("/%76%31/models", 200),
        ("/v1/models/%ff%2", 404),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }

    // The response arrives although the client sends all of the body first.
    let mut stream = server.send("POST", CHAT, JSON, &vec![b' '; 12 << 20]);
    stream.flush().unwrap();
    assert_eq!(HttpResponse::read(stream).status, 413);

    let mut idle: Vec<TcpStream> = (0..257).map(|_| server.connect()).collect();
    let begun = Instant::now();
    let mut last = idle.pop().unwrap();
    assert!(matches!(last.read(&mut [0]), Ok(0) | Err(_)));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    // An idle connection is closed in turn, before it has sent a request.
    let timeout = Some(Duration::from_secs(20));
    idle[0].set_read_timeout(timeout).unwrap();
    let closed = idle[0].read(&mut [0; 64]);
    let is_late = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!closed.as_ref().is_err_and(is_late), "{closed:?}");
    drop(idle);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_disconnected_client_frees_its_slot() {
    let server = TestServer::start("--batch 2 --queue 2");
    let stream = json!({"stream": true});
    let mut first = server.begin(CHAT, &with(endless(), stream));
    first.read_exact(&mut [0; 400]).unwrap();
    // All four slots are taken, two of them by waiting replies.
    let refused = server.post(CHAT, &chat("go", json!({})));
    assert_eq!(
        (refused.status, &*refused.headers["retry-after"]),
        (429, "1")
    );
    assert_eq!(refused.error()["code"], "queue_full");
    drop(first);
    // A client that waits for a complete response disconnects, too.
    let begun = Instant::now();
    let second = loop {
        let answer = server.begin(CHAT, &with(endless(), json!({"stream": false})));
        answer
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        if answer.peek(&mut [0; 1]).is_err() {
            break answer;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "the slot is not free"
        );
        thread::sleep(Duration::from_millis(20));
    };
    drop(second);
    let begun = Instant::now();
    while server
        .post(CHAT, &chat("go", json!({"max_tokens": 2})))
        .status
        == 429
    {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "the slot is not free"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_server_and_its_requests() {
    let mut server = TestServer::start("");
    let mut idle = server.connect();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    idle.read_exact(&mut [0; 50]).unwrap();
    let mut stream = server.begin(CHAT, &endless());
    let whole = server.begin(CHAT, &with(endless(), json!({"stream": false})));
    let mut start = [0; 400];
    stream.read_exact(&mut start).unwrap();
    let begun = Instant::now();
    server.interrupt();
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"code\":\"server_stopping\""), "{rest}");
    let refused = HttpResponse::read(whole);
    assert_eq!(
        (refused.status, &*refused.headers["retry-after"]),
        (503, "1")
    );
    let mut ended = String::new();
    server.stderr.read_to_string(&mut ended).unwrap();
    let of_requests = ["GET ", "POST "];
    let others = ended
        .lines()
        .filter(|line| !of_requests.iter().any(|it| line.starts_with(it)));
    assert_snapshot!(others.collect::<Vec<_>>().join("\n"), @r"
    stopping: requests in progress are aborted; again to stop at once
    stopped
    ");
}

#[test]
fn addresses_and_names_are_checked_before_anything_is_loaded() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut told = String::new();
    for arguments in [
        &format!("--port {port}"),
        "--host 192.0.2.1 --port 0",
        "--port 65536",
        "--port 0 --context 4096",
        "--port 0 --model nowhere",
        "--port 0 --adapter nowhere",
        "--port 0 --batch 0",
    ] {
        let ended = run(home.path(), &format!("serve {arguments}"));
        told += &format!("{} {}", ended.code, ended.err.replace(&port, "PORT"));
    }
    assert_snapshot!(told);
}

#[test]
fn a_key_is_required_and_quiet_prints_nothing() {
    let server = TestServer::start_with("--host 0.0.0.0 --name mine", |command| {
        command.env("LAPWING_API_KEY", "secret");
    });
    let example = server.told.last().unwrap();
    assert!(
        example.contains("Bearer $LAPWING_API_KEY") && !example.contains("secret"),
        "{example}"
    );
    assert!(example.contains("\"mine\""), "{example}");
    let with_key = |key: &str| {
        server
            .ask(
                "GET",
                "/v1/models",
                &format!("Authorization: {key}\r\n"),
                b"",
            )
            .status
    };
    assert_eq!(server.get("/v1/models").error()["code"], "invalid_api_key");
    for (key, status) in [
        ("Bearer secret", 200),
        ("Bearer secre", 401),
        ("Bearer secrets", 401),
        ("secret", 401),
        ("Bearer ", 401),
    ] {
        assert_eq!(with_key(key), status, "{key}");
    }
    assert_eq!(server.get("/health").status, 200);
    drop(server);

    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let home = tempfile::tempdir().unwrap();
    let mut child = lapwing(home.path(), &format!("serve --quiet --port {free}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", free)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(20));
    }
    // It responds without having printed anything.
    let mut stream = TcpStream::connect(("127.0.0.1", free)).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(HttpResponse::read(stream).status, 200);
    child.kill().unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.stdout.len(), ended.stderr.len()),
        (0, 0),
        "{ended:?}"
    );
}

/// Another model, with an adapter and a template in a sandbox.
#[test]
fn a_directory_with_an_adapter_is_served() {
    let (model, adapter) = (golden("qwen2"), golden("qwen2/adapter"));
    let served = format!("--model '{model}' --adapter '{adapter}'");
    let server = TestServer::start(&served);
    let body = with(
        chat("go", json!({"temperature": 0, "max_tokens": 6})),
        json!({"model": "qwen2"}),
    );
    let ended = server.post(CHAT, &body).right();
    let home = tempfile::tempdir().unwrap();
    let messages = chat("go", json!({}))["messages"].to_string();
    fs::write(home.path().join("in.json"), messages).unwrap();
    let line = format!("generate {served} --chat in.json --greedy --max-new-tokens 6 --json");
    let generated = program(home.path(), &line);
    assert_eq!(ended["choices"][0]["message"]["content"], generated["text"]);
}
