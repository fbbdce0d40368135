//! A WebSocket server such as OpenEnv's, with one connection for each session.

use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::http::Uri;
use tungstenite::protocol::{WebSocket, WebSocketConfig};
use tungstenite::{Error, HandshakeError, Message};

use super::protocol::{self, EnvironmentSession, LONGEST, SessionError, StepResult, quoted};

/// The interval at which an idle connection answers pings: servers close connections that do not answer, and a model
/// may generate for minutes.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Checks the form of an address. The error is the expected form.
pub(super) fn check(url: &str) -> Result<(), String> {
    if url.starts_with("wss:") {
        return Err(
            "ws://HOST:PORT/ws: connections are not encrypted here (a tunnel can do it)".to_owned(),
        );
    }
    let wanted = || "ws://HOST:PORT/ws".to_owned();
    let uri: Uri = url.parse().map_err(|_| wanted())?;
    match uri.host() {
        Some(host) if !host.is_empty() && url.into_client_request().is_ok() => Ok(()),
        _ => Err(wanted()),
    }
}

/// One connection. Dropping it closes the connection.
pub(super) struct SocketSession {
    patience: Duration,
    requests: Option<Sender<String>>,
    answers: Receiver<Result<Vec<u8>, SessionError>>,
    /// the socket to shut down after a timeout
    stream: Arc<OnceLock<TcpStream>>,
    worker: thread::JoinHandle<()>,
}

impl SocketSession {
    /// Starts to connect. The first answer reports a failure.
    pub(crate) fn open(url: &str, patience: Duration) -> Result<SocketSession, String> {
        let (requests, asked) = mpsc::channel();
        let (answering, answers) = mpsc::channel();
        let stream = Arc::new(OnceLock::new());
        let (url, slot) = (url.to_owned(), stream.clone());
        let work = move || {
            // Sending fails only if the receiver is gone.
            let _ = match connect(&url, patience, &slot) {
                Ok(mut socket) => serve(&mut socket, &asked, &answering),
                Err(fault) => answering.send(Err(fault)),
            };
        };
        // Each concurrent episode has its own connection.
        let worker = thread::Builder::new().name("a connection".to_owned());
        let worker = worker.spawn(work);
        let worker =
            worker.map_err(|e| format!("cannot start a thread for the connection: {e}"))?;
        Ok(SocketSession {
            patience,
            requests: Some(requests),
            answers,
            stream,
            worker,
        })
    }

    fn cut(&self) {
        if let Some(stream) = self.stream.get() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl EnvironmentSession for SocketSession {
    fn ask(&mut self, request: Map<String, Value>) -> Result<StepResult, SessionError> {
        let closed = || SessionError::Closed("the server has closed the connection".to_owned());
        let bytes = match self.answers.try_recv() {
            // The server may close the connection, or refuse it with a reason.
            Ok(early) => {
                let bytes = early?;
                let message = protocol::read(&bytes).map_err(SessionError::Other)?;
                let problem = message.content.err().unwrap_or_else(|| {
                    let answer = quoted(&bytes);
                    format!("the server sent a message without a request: {answer}")
                });
                return Err(SessionError::Closed(problem));
            }
            Err(TryRecvError::Disconnected) => return Err(closed()),
            Err(TryRecvError::Empty) => {
                let requests = self.requests.as_ref().expect("there until it is dropped");
                let _ = requests.send(Value::Object(request).to_string());
                match self.answers.recv_timeout(self.patience) {
                    Ok(answer) => answer?,
                    Err(RecvTimeoutError::Disconnected) => return Err(closed()),
                    Err(RecvTimeoutError::Timeout) => {
                        self.cut();
                        let seconds = self.patience.as_secs_f64();
                        return Err(SessionError::Other(format!(
                            "the server did not answer within {seconds} s (game.options.timeout)"
                        )));
                    }
                }
            }
        };
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
        self.cut();
    }
}

fn connect(
    url: &str,
    patience: Duration,
    slot: &OnceLock<TcpStream>,
) -> Result<WebSocket<TcpStream>, SessionError> {
    let failed =
        |problem: String| SessionError::Other(format!("cannot connect to the server: {problem}"));
    let uri: Uri = url.parse().expect("checked when it was configured");
    let host = uri.host().expect("checked when it was configured");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, uri.port_u16().unwrap_or(80)).to_socket_addrs();
    let addresses = addresses.map_err(|e| failed(e.to_string()))?;
    let mut connected = Err(io::Error::other("its name has no address"));
    for address in addresses {
        connected = TcpStream::connect_timeout(&address, patience);
        if connected.is_ok() {
            break;
        }
    }
    let stream = connected.map_err(|e| failed(format!("{e}; is it running?")))?;
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(patience)))
        .and_then(|()| stream.set_write_timeout(Some(patience)))
        .and_then(|()| stream.try_clone());
    let _ = slot.set(prepared.map_err(|e| failed(e.to_string()))?);
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST));
    match client_with_config(url, stream, Some(config)) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Interrupted(_)) => Err(failed(format!(
            "it did not answer within {} s (game.options.timeout)",
            patience.as_secs_f64()
        ))),
        Err(HandshakeError::Failure(Error::Http(answer))) => Err(failed(format!(
            "it answers {}, and not with a WebSocket: is the path right? OpenEnv's is /ws",
            answer.status()
        ))),
        Err(HandshakeError::Failure(error)) => {
            let said = quoted(error.to_string().as_bytes());
            Err(failed(format!("it is not a WebSocket server: {said}")))
        }
    }
}

type Answers = Sender<Result<Vec<u8>, SessionError>>;

/// Passes requests to the server and answers back, until either side closes.
fn serve(
    socket: &mut WebSocket<TcpStream>,
    requests: &Receiver<String>,
    answers: &Answers,
) -> Result<(), mpsc::SendError<Result<Vec<u8>, SessionError>>> {
    loop {
        match requests.recv_timeout(PING_INTERVAL) {
            Ok(request) => {
                // A server that closed the connection may have sent the reason.
                let _ = socket.send(Message::text(request));
                let answer = receive(socket);
                let is_end = answer.is_err();
                answers.send(answer)?;
                if is_end {
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let patience = socket.get_ref().read_timeout().unwrap_or_default();
                let look = Duration::from_millis(1);
                let _ = socket.get_ref().set_read_timeout(Some(look));
                let found = socket.read();
                let _ = socket.get_ref().set_read_timeout(patience);
                match found {
                    Err(Error::Io(error)) if is_patience(&error) => (),
                    Ok(Message::Ping(_) | Message::Pong(_)) => {
                        let _ = socket.flush();
                    }
                    found => {
                        return answers.send(message_of(found).unwrap_or_else(|| receive(socket)));
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let goodbye = Value::Object(protocol::close()).to_string();
                let _ = socket.send(Message::text(goodbye));
                let _ = socket.close(None);
                let _ = socket.flush();
                return Ok(());
            }
        }
    }
}

/// Returns the next message of the server.
fn receive(socket: &mut WebSocket<TcpStream>) -> Result<Vec<u8>, SessionError> {
    loop {
        if let Some(found) = message_of(socket.read()) {
            return found;
        }
    }
}

/// Converts a frame into a message or an error; `None` if it is neither.
fn message_of(found: Result<Message, Error>) -> Option<Result<Vec<u8>, SessionError>> {
    let other = |problem: String| Some(Err(SessionError::Other(problem)));
    match found {
        Ok(Message::Text(text)) => Some(Ok(text.as_bytes().to_vec())),
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => None,
        Ok(Message::Binary(bytes)) => {
            let shown = quoted(&bytes);
            other(format!("the server sent bytes, and not a text: {shown}"))
        }
        Ok(Message::Close(frame)) => {
            let why = frame.map_or_else(String::new, |frame| {
                let reason = quoted(frame.reason.as_bytes());
                format!(" (code {}, reason {reason})", u16::from(frame.code))
            });
            let problem = format!("the server has closed the connection{why}");
            Some(Err(SessionError::Closed(problem)))
        }
        Err(Error::Io(error)) if is_patience(&error) => {
            other("the server did not answer in time (game.options.timeout)".to_owned())
        }
        Err(Error::ConnectionClosed | Error::AlreadyClosed) => Some(Err(SessionError::Closed(
            "the server has closed the connection".to_owned(),
        ))),
        Err(Error::Capacity(_)) => other(format!(
            "the server sent a message of more than {} MiB",
            LONGEST >> 20
        )),
        Err(Error::Io(error)) => {
            let problem = format!("the connection to the server is lost: {error}");
            Some(Err(SessionError::Closed(problem)))
        }
        Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
            let problem = "the connection to the server is lost: it ended without a farewell";
            Some(Err(SessionError::Closed(problem.to_owned())))
        }
        Err(error) => {
            let said = quoted(error.to_string().as_bytes());
            other(format!(
                "the server does not follow the WebSocket protocol: {said}"
            ))
        }
    }
}

/// Returns whether the error is a timeout.
fn is_patience(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
