//! A WebSocket server such as OpenEnv's, with one connection for each session.

use std::fmt::Display;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
use tungstenite::http::Uri;
use tungstenite::protocol::{WebSocket, WebSocketConfig};
use tungstenite::{Bytes, Error, HandshakeError, Message};

use super::protocol::{self, EnvironmentSession, LONGEST, SessionError, StepResult, quoted};

/// The interval at which an idle connection answers pings: servers close connections that do not answer, and a model
/// may generate for minutes.
const PING_INTERVAL: Duration = Duration::from_secs(1);

const CLOSED: &str = "the server has closed the connection";

/// Checks the form of an address. The error is the expected form.
pub(super) fn check(url: &str) -> Result<(), String> {
    if url.starts_with("wss:") {
        return Err(
            "ws://HOST:PORT/ws: connections are not encrypted here (a tunnel can do it)".to_owned(),
        );
    }
    let uri: Uri = url.parse().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = uri.host().unwrap_or_default();
    let port = authority.strip_prefix(host).unwrap_or_default();
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if authority.contains('@') {
        Err("ws://HOST:PORT/ws: no user name or password is sent (a proxy can add them)".to_owned())
    } else if host.is_empty() || url.into_client_request().is_err() {
        Err("ws://HOST:PORT/ws".to_owned())
    } else if !port.strip_prefix(':').is_none_or(is_port) {
        Err("ws://HOST:PORT/ws with a port from 1 to 65535".to_owned())
    } else {
        Ok(())
    }
}

/// One connection. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct SocketSession {
    patience: Duration,
    requests: Option<Sender<String>>,
    answers: Receiver<Result<Vec<u8>, SessionError>>,
    /// shut down after a timeout, which ends the worker's reading and writing
    stream: TcpStream,
    worker: thread::JoinHandle<()>,
}

impl SocketSession {
    pub(crate) fn open(url: &str, patience: Duration) -> Result<SocketSession, String> {
        let (requests, asked) = mpsc::channel();
        let (answering, answers) = mpsc::channel();
        let (connecting, connected) = mpsc::channel();
        let url = url.to_owned();
        let work = move || {
            let mut socket = connect(&url, patience);
            let stream = match &socket {
                Ok(socket) => socket.get_ref().try_clone().map_err(not_connected),
                Err(problem) => Err(problem.clone()),
            };
            let is_awaited = connecting.send(stream).is_ok();
            if let Ok(socket) = &mut socket
                && is_awaited
            {
                serve(socket, &asked, &answering);
            }
        };
        // Each concurrent episode has its own connection.
        let worker = thread::Builder::new()
            .name("a connection".to_owned())
            .spawn(work)
            .map_err(|e| format!("cannot start a thread for the connection: {e}"))?;
        // The timeouts of the stream apply to each read, and a server can send its part of the handshake byte by byte.
        let stream = connected
            .recv_timeout(patience)
            .unwrap_or_else(|_| Err(too_late(patience)))?;
        Ok(SocketSession {
            patience,
            requests: Some(requests),
            answers,
            stream,
            worker,
        })
    }
}

impl EnvironmentSession for SocketSession {
    fn ask(&mut self, request: Value) -> Result<StepResult, SessionError> {
        // The server may close the connection.
        if let Ok(early) = self.answers.try_recv() {
            early?;
        }
        let requests = self.requests.as_ref().expect("there until it is dropped");
        let _ = requests.send(request.to_string());
        let answer = self.answers.recv_timeout(self.patience);
        let bytes = answer.unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(SessionError::Closed(CLOSED.to_owned())),
            RecvTimeoutError::Timeout => {
                let _ = self.stream.shutdown(Shutdown::Both);
                Err(SessionError::Other(too_late(self.patience)))
            }
        })?;
        let message = protocol::read(&bytes).map_err(SessionError::Other)?;
        message.content.map_err(SessionError::Other)
    }
}

impl Drop for SocketSession {
    fn drop(&mut self) {
        self.requests = None;
        // Sends a close frame, and does not wait for the answer.
        for _ in 0..50 {
            if self.worker.is_finished() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn too_late(patience: Duration) -> String {
    let seconds = patience.as_secs_f64();
    format!("the server did not answer within {seconds} s (game.options.timeout)")
}

fn not_connected(problem: impl Display) -> String {
    format!("cannot connect to the server: {problem}")
}

fn connect(url: &str, patience: Duration) -> Result<WebSocket<TcpStream>, String> {
    let uri: Uri = url.parse().expect("checked when it was configured");
    let host = uri.host().expect("checked when it was configured");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, uri.port_u16().unwrap_or(80)).to_socket_addrs();
    let mut connected = Err(io::Error::other("its name has no address"));
    for address in addresses.map_err(not_connected)? {
        connected = TcpStream::connect_timeout(&address, patience);
        if connected.is_ok() {
            break;
        }
    }
    let stream = connected.map_err(|e| not_connected(format!("{e}; is it running?")))?;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(patience)))
        .and_then(|()| stream.set_write_timeout(Some(patience)))
        .map_err(not_connected)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST));
    let socket = client_with_config(url, stream, Some(config)).map_err(|error| match error {
        HandshakeError::Interrupted(_) => too_late(patience),
        HandshakeError::Failure(Error::Http(answer)) => not_connected(format!(
            "it answers {}, and not with a WebSocket: is the path right? OpenEnv's is /ws",
            answer.status()
        )),
        HandshakeError::Failure(error) => {
            let said = quoted(error.to_string().as_bytes());
            not_connected(format!("it is not a WebSocket server: {said}"))
        }
    });
    let (socket, _) = socket?;
    // From here on only the requester has a timeout.
    let untimed = socket.get_ref().set_read_timeout(None);
    untimed.map_err(not_connected)?;
    Ok(socket)
}

/// Passes requests to the server and answers back, until either side closes.
///
/// The messages have no numbers, so a ping before each request separates them: a server handles frames in order, and
/// whatever it sends before the pong is no answer to the request.
fn serve(
    socket: &mut WebSocket<TcpStream>,
    requests: &Receiver<String>,
    answers: &Sender<Result<Vec<u8>, SessionError>>,
) {
    let mut asked = 0_u64;
    loop {
        match requests.recv_timeout(PING_INTERVAL) {
            Ok(request) => {
                asked += 1;
                let mark = Bytes::copy_from_slice(&asked.to_be_bytes());
                // A server that closed the connection may have sent the reason.
                let _ = socket.write(Message::Ping(mark.clone()));
                let _ = socket.send(Message::text(request));
                let mut is_expected = false;
                let answer = loop {
                    let found = socket.read();
                    is_expected |= matches!(&found, Ok(Message::Pong(data)) if *data == mark);
                    match message_of(found) {
                        None => (),
                        Some(Ok(message)) if !is_expected => break Err(unsolicited(&message)),
                        Some(answer) => break answer,
                    }
                };
                let is_end = answer.is_err();
                if answers.send(answer).is_err() || is_end {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let _ = socket.get_ref().set_nonblocking(true);
                let found = socket.read();
                let _ = socket.get_ref().set_nonblocking(false);
                match found {
                    Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => (),
                    found => match message_of(found) {
                        None => _ = socket.flush(),
                        Some(message) => {
                            let problem = message.and_then(|message| Err(unsolicited(&message)));
                            let _ = answers.send(problem);
                            return;
                        }
                    },
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let goodbye = protocol::close().to_string();
                let _ = socket.send(Message::text(goodbye));
                let _ = socket.close(None);
                let _ = socket.flush();
                return;
            }
        }
    }
}

/// The error of a message that answers no request. If it is an error itself, the server ends the session with it.
fn unsolicited(message: &[u8]) -> SessionError {
    if let Ok(Err(problem)) = protocol::read(message).map(|message| message.content) {
        return SessionError::Closed(problem);
    }
    SessionError::Other(format!(
        "the server sent a message without a request (it answered twice, or does not answer pings): {}",
        quoted(message)
    ))
}

/// Converts a frame into a message or an error; `None` if it is neither.
fn message_of(found: Result<Message, Error>) -> Option<Result<Vec<u8>, SessionError>> {
    let closed = |problem: String| Some(Err(SessionError::Closed(problem)));
    let other = |problem: String| Some(Err(SessionError::Other(problem)));
    match found {
        Ok(Message::Text(text)) => Some(Ok(text.as_bytes().to_vec())),
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => None,
        Ok(Message::Binary(bytes)) => {
            let shown = quoted(&bytes);
            other(format!("the server sent bytes, and not a text: {shown}"))
        }
        Ok(Message::Close(Some(frame))) => {
            let (code, reason) = (u16::from(frame.code), quoted(frame.reason.as_bytes()));
            closed(format!("{CLOSED} (code {code}, reason {reason})"))
        }
        Ok(Message::Close(None)) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => {
            closed(CLOSED.to_owned())
        }
        Err(Error::Io(error)) => closed(format!("the connection to the server is lost: {error}")),
        Err(Error::Protocol(ResetWithoutClosingHandshake)) => {
            let problem = "the connection to the server is lost: it ended without a farewell";
            closed(problem.to_owned())
        }
        Err(Error::Capacity(_)) => {
            let most = LONGEST >> 20;
            other(format!("the server sent a message of more than {most} MiB"))
        }
        Err(error) => {
            let said = quoted(error.to_string().as_bytes());
            other(format!(
                "the server does not follow the WebSocket protocol: {said}"
            ))
        }
    }
}
