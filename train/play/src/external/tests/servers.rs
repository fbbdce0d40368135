//! Tests with servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use tungstenite::protocol::{CloseFrame, WebSocket, frame::coding::CloseCode};
use tungstenite::{Message, accept};

use super::*;

/// Starts a server that does this with each connection.
fn server(each: impl Fn(TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let each = each.clone();
            let stream = stream.unwrap();
            thread::spawn(move || each(stream));
        }
    });
    format!("ws://{address}/ws")
}

/// Starts a server that does this with each WebSocket.
fn speaks(each: impl Fn(&mut WebSocket<TcpStream>) + Send + Clone + 'static) -> String {
    server(move |stream| {
        if let Ok(mut socket) = accept(stream) {
            each(&mut socket);
        }
    })
}

fn observation(text: &str, done: bool) -> Message {
    let data = json!({ "observation": { "text": text }, "reward": f64::from(u8::from(done)), "done": done });
    Message::text(json!({ "type": "observation", "data": data }).to_string())
}

/// Returns the next request, without pings and pongs; `None` at the end.
fn request(socket: &mut WebSocket<TcpStream>) -> Option<Value> {
    loop {
        match socket.read().ok()? {
            Message::Text(text) => return serde_json::from_str(&text).ok(),
            Message::Close(_) => return None,
            _ => (),
        }
    }
}

/// An episode is won by sending "go" as often as the seed demands.
fn honest(socket: &mut WebSocket<TcpStream>) {
    let mut left = 0;
    while let Some(request) = request(socket) {
        match request["type"].as_str().unwrap() {
            "reset" => left = request["data"]["seed"].as_i64().unwrap(),
            "step" => left -= request["data"]["action"].as_i64().unwrap(),
            _ => return,
        }
        let _ = socket.send(observation(&format!("{left} left"), left == 0));
    }
}

#[test]
fn each_session_has_a_connection_and_uses_it_again() {
    let (told, connections) = std::sync::mpsc::channel();
    let url = speaks(move |socket| {
        told.send(()).unwrap();
        honest(socket);
    });
    let scenario = scenario(&url, json!({}));
    assert!(
        connections.try_recv().is_err(),
        "connected before it is needed"
    );
    for _ in 0..3 {
        let mut games: Vec<Box<dyn Game>> = (1..3).map(|n| scenario.start(n, 0).unwrap()).collect();
        for (game, n) in games.iter_mut().zip(1..) {
            assert_eq!(game.observe(0).unwrap(), format!("{n} left"));
            assert_eq!(game.play(&[Some(1)]).unwrap()[0].over, n == 1);
            assert_eq!(game.succeeded(0), n == 1);
        }
    }
    assert_eq!(connections.try_iter().count(), 2);
}

/// A server closes a connection that does not answer its pings.
#[test]
fn pings_are_answered_while_nothing_is_asked() {
    let url = speaks(|socket| {
        request(socket);
        let _ = socket.send(observation("first", false));
        let _ = socket.send(Message::Ping(b"there?".to_vec().into()));
        let answer = socket.read();
        let text = format!("{}", matches!(answer, Ok(Message::Pong(_))));
        request(socket);
        let _ = socket.send(observation(&text, false));
        request(socket);
    });
    let scenario = scenario(&url, json!({}));
    let mut game = scenario.start(0, 0).unwrap();
    thread::sleep(Duration::from_millis(2500));
    game.play(&[Some(0)]).unwrap();
    assert_eq!(game.observe(0).unwrap(), "true");
}

/// A server may close the connection between two episodes, but not within one.
#[test]
fn an_idle_connection_may_be_closed() {
    let url = speaks(|socket| {
        request(socket);
        let _ = socket.send(observation("once", false));
        let _ = socket.close(None);
        while request(socket).is_some() {}
    });
    let scenario = scenario(&url, json!({}));
    drop(scenario.start(0, 0).unwrap());
    let mut game = scenario.start(0, 0).unwrap();
    let error = game.play(&[Some(0)]).unwrap_err();
    assert!(
        told(&error).starts_with("the server has closed the connection"),
        "{error}"
    );
}

/// The second answer to a step is no answer to the next one, or to the next episode's reset.
#[test]
fn a_server_that_answers_twice_is_refused() {
    for twice in [1, 2] {
        let url = speaks(move |socket| {
            let mut step = 0;
            while let Some(request) = request(socket) {
                step = if request["type"] == "reset" {
                    0
                } else {
                    step + 1
                };
                for _ in 0..if step == twice { 2 } else { 1 } {
                    let _ = socket.send(observation(&format!("state {step}"), step == 2));
                }
            }
        });
        let scenario = scenario(&url, json!({}));
        let mut game = scenario.start(0, 0).unwrap();
        let mut next = |n| {
            game.play(&[Some(1)])
                .map(|_| assert_eq!(game.observe(0).unwrap(), format!("state {n}")))
        };
        next(1).unwrap();
        let error = match twice {
            1 => next(2).unwrap_err(),
            _ => {
                next(2).unwrap();
                drop(game);
                scenario.start(1, 0).map(drop).unwrap_err()
            }
        };
        let wanted = "the server sent a message without a request (it answered twice, or does not answer pings): ";
        assert!(told(&error).starts_with(wanted), "{error}");
    }
}

#[test]
fn servers_that_hang_flood_close_and_lie_end_with_an_error() {
    let after_hello = |then: fn(&mut WebSocket<TcpStream>)| {
        speaks(move |socket| {
            request(socket);
            let _ = socket.send(observation("hello", false));
            request(socket);
            then(socket);
        })
    };
    let closed_port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("ws://{}/ws", listener.local_addr().unwrap())
    };
    let answers = |text: &'static [u8]| {
        server(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(text);
            thread::sleep(Duration::from_millis(200));
        })
    };
    let cases: Vec<(String, &str)> = vec![
        (closed_port, "cannot connect to the server: "),
        (
            answers(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            "it answers 404 Not Found, and not with a WebSocket: is the path right? OpenEnv's is /ws",
        ),
        (
            answers(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
            "cannot connect to the server: it is not a WebSocket server: ",
        ),
        (
            server(|stream| {
                thread::sleep(Duration::from_secs(20));
                drop(stream);
            }),
            "the server did not answer within 2 s (game.options.timeout)",
        ),
        (
            // Each read of its handshake ends within the timeout.
            server(|mut stream| {
                let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nX: ");
                while stream.write_all(b"y").is_ok() {
                    thread::sleep(Duration::from_millis(500));
                }
            }),
            "the server did not answer within 2 s (game.options.timeout)",
        ),
        (
            after_hello(|_| thread::sleep(Duration::from_secs(20))),
            "the server did not answer within 2 s (game.options.timeout)",
        ),
        (
            // It sends pings without end and no answer.
            after_hello(|socket| while socket.send(Message::Ping(b"!".to_vec().into())).is_ok() {}),
            "the server did not answer within 2 s (game.options.timeout)",
        ),
        (
            after_hello(|socket| {
                let reason = "going \u{1b}[2J home".into();
                let code = CloseCode::Away;
                let _ = socket.close(Some(CloseFrame { code, reason }));
                while request(socket).is_some() {}
            }),
            r#"the server has closed the connection (code 1001, reason "going \u{1b}[2J home")"#,
        ),
        (
            after_hello(|socket| {
                let _ = socket.get_ref().shutdown(std::net::Shutdown::Both);
            }),
            "the connection to the server is lost: ",
        ),
        (
            after_hello(|socket| {
                let _ = socket.get_mut().write_all(&[0xff; 64]);
                thread::sleep(Duration::from_secs(1));
            }),
            "the server does not follow the WebSocket protocol: ",
        ),
        (
            after_hello(|socket| {
                let _ = socket.send(Message::text("y".repeat(17 << 20)));
                thread::sleep(Duration::from_secs(1));
            }),
            "the server sent a message of more than 16 MiB",
        ),
        (
            after_hello(|socket| {
                let _ = socket.send(Message::binary(vec![1, 2]));
                request(socket);
            }),
            r#"the server sent bytes, and not a text: "\u{1}\u{2}""#,
        ),
        (
            after_hello(|socket| {
                let _ = socket.send(Message::text("{}"));
                request(socket);
            }),
            "the message has no `type`: \"{}\"",
        ),
        (
            speaks(|socket| {
                let data = json!({ "message": "all taken", "code": "CAPACITY_REACHED" });
                let error = json!({ "type": "error", "data": data }).to_string();
                let _ = socket.send(Message::text(error));
                let _ = socket.close(None);
                while request(socket).is_some() {}
            }),
            "start the server with MAX_CONCURRENT_ENVS set to as many",
        ),
    ];
    for (url, wanted) in cases {
        let start = Instant::now();
        let told = failure(&*scenario(&url, json!({ "timeout": 2 })));
        assert!(told.contains(wanted), "{wanted}\n{told}");
        assert!(
            start.elapsed() < Duration::from_secs(8),
            "{told}: {:?}",
            start.elapsed()
        );
    }
}
