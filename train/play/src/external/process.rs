//! A child process that exchanges JSON lines. Each message is a line with its session's number, so one process plays
//! many episodes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lapwing_model::separate_group;
use serde_json::{Value, json};

use super::protocol::{self, EnvironmentSession, LONGEST, SessionError, StepResult, quoted};

/// Time for a process to exit after its standard input is closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// The interval between checks for an exit.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The number of bytes kept from the end of standard error.
const MAX_STDERR: usize = 4096;

/// A running process, or why it stopped. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct GameProcess {
    patience: Duration,
    state: Mutex<Result<RunningProcess, String>>,
}

#[derive(Debug)]
struct RunningProcess {
    child: Child,
    /// lines to write; `None` once it should exit
    requests: Option<Sender<Vec<u8>>>,
    /// the lines it wrote
    replies: Receiver<Result<Vec<u8>, String>>,
    /// the end of its standard error
    said: Arc<Mutex<Vec<u8>>>,
    listener: thread::JoinHandle<()>,
}

#[derive(Debug)]
pub(super) struct ProcessSession {
    pub(super) process: Arc<GameProcess>,
    /// no other session of the process has it
    pub(super) number: u64,
}

impl ProcessSession {
    fn line(&self, mut message: Value) -> Vec<u8> {
        let fields = message.as_object_mut().expect("a message has fields");
        fields.shift_insert(0, "session".to_owned(), json!(self.number));
        format!("{message}\n").into_bytes()
    }
}

impl EnvironmentSession for ProcessSession {
    fn ask(&mut self, request: Value) -> Result<StepResult, SessionError> {
        let line = self.line(request);
        let answered = self.process.ask(line, self.number);
        answered.map_err(SessionError::Other)
    }
}

impl Drop for ProcessSession {
    fn drop(&mut self) {
        let line = self.line(protocol::close());
        if let Ok(running) = &*self.process.lock() {
            running.write(line);
        }
    }
}

impl GameProcess {
    /// Starts the process in the current directory.
    pub(crate) fn start(words: &[String], patience: Duration) -> Result<GameProcess, String> {
        let (program, arguments) = words.split_first().expect("a command has a first word");
        let shown = quoted(program.as_bytes());
        let started = RunningProcess::start(program, arguments).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if Path::new(program).is_file() && !program.contains('/') => {
                format!("cannot start {shown}: there is no such program on the PATH; for the file here write exec:./{program}, or exec:python3 {program} for Python")
            }
            io::ErrorKind::NotFound => {
                format!("cannot start {shown}: there is no such program here or on the PATH")
            }
            _ => format!("cannot start {shown}: {error}; if it is a script, name its interpreter first, as in exec:python3 {program}"),
        });
        Ok(GameProcess {
            patience,
            state: Mutex::new(Ok(started?)),
        })
    }

    /// Returns whether the process seems to be running.
    pub(crate) fn runs(&self) -> bool {
        self.lock().is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Result<RunningProcess, String>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, line: Vec<u8>, session: u64) -> Result<StepResult, String> {
        let mut state = self.lock();
        let running = state.as_mut().map_err(|problem| problem.clone())?;
        let message = running.ask(line, self.patience).and_then(|line| {
            let message = protocol::read(&line)?;
            match message.session {
                Some(number) if number == session => Ok(message),
                Some(other) => Err(format!(
                    "session {session} was asked and session {other} answers: {}",
                    quoted(&line)
                )),
                None => Err(format!("the answer has no `session`: {}", quoted(&line))),
            }
        });
        match message {
            // An error of one session does not end the process.
            Ok(message) => message.content,
            Err(problem) => {
                let problem = format!("{problem}{}", running.stderr_tail());
                // Drops the process, which ends it if it still runs.
                *state = Err(problem.clone());
                Err(problem)
            }
        }
    }
}

impl RunningProcess {
    fn start(program: &str, arguments: &[String]) -> io::Result<RunningProcess> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        separate_group(&mut command);
        let mut child = command.spawn()?;
        live_processes().push(child.id());
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        let (requests, to_write) = mpsc::channel::<Vec<u8>>();
        // Output that nobody reads stays in the pipe, so it cannot fill the memory.
        let (written, replies) = mpsc::sync_channel(1);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        // A process may stop reading or writing at any time, so none of the three threads may wait for another.
        thread::spawn(move || to_write.iter().all(|line| stdin.write_all(&line).is_ok()));
        thread::spawn(move || {
            let mut from = BufReader::new(stdout);
            while let Some(line) = read_line(&mut from) {
                let last = line.is_err();
                if written.send(line).is_err() || last {
                    break;
                }
            }
        });
        let listener = thread::spawn(move || collect_stderr(stderr, &heard));
        Ok(RunningProcess {
            child,
            requests: Some(requests),
            replies,
            said,
            listener,
        })
    }

    fn write(&self, line: Vec<u8>) {
        // If writing fails, the process has ended, and so have its replies.
        if let Some(requests) = &self.requests {
            let _ = requests.send(line);
        }
    }

    /// Returns the next line of the process, or why there is none.
    fn ask(&mut self, line: Vec<u8>, patience: Duration) -> Result<Vec<u8>, String> {
        if let Ok(early) = self.replies.try_recv() {
            let line = quoted(&early?);
            return Err(format!(
                "it wrote to its standard output without a request, where only answers belong: {line}"
            ));
        }
        self.write(line);
        let reply = self.replies.recv_timeout(patience);
        reply.unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => {
                    let seconds = patience.as_secs_f64();
                    format!(
                        "it did not answer within {seconds} s, and was ended (game.options.timeout)"
                    )
                }
                // Its standard output has ended.
                RecvTimeoutError::Disconnected => {
                    match within(SHUTDOWN_GRACE, || ended(&mut self.child)) {
                        Some(how) => format!("it ended ({how}; started in the current directory)"),
                        None => "it closed its standard output, and was ended".to_owned(),
                    }
                }
            })
        })
    }

    /// Returns the end of its standard error, for an error message.
    fn stderr_tail(&mut self) -> String {
        const SHOWN: usize = 600;
        kill(&mut self.child);
        within(SHUTDOWN_GRACE, || self.listener.is_finished().then_some(()));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&said);
        let text = text.trim();
        if text.is_empty() {
            return String::new();
        }
        let left_out = text.chars().count().saturating_sub(SHOWN);
        let shown: String = text.chars().skip(left_out).collect();
        let dots = if left_out > 0 { "..." } else { "" };
        format!("; its last words on standard error: {dots}{shown:?}")
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // Closing standard input lets the process exit by itself and clean up.
        self.requests = None;
        within(SHUTDOWN_GRACE, || ended(&mut self.child));
        kill(&mut self.child);
        let _ = self.child.wait();
        live_processes().retain(|id| *id != self.child.id());
    }
}

/// Waits until a value is available, but at most this long.
fn within<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = look();
        if found.is_some() || start.elapsed() >= patience {
            return found;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns a line without its end, or an error; `None` at the end of the stream.
fn read_line(from: &mut impl BufRead) -> Option<Result<Vec<u8>, String>> {
    let mut line = Vec::new();
    let read = from.take(LONGEST as u64 + 1).read_until(b'\n', &mut line);
    if read.is_err() || line.is_empty() {
        return None;
    }
    if line.len() > LONGEST {
        let problem = format!(
            "it wrote a line of more than {} MiB, which begins with {}",
            LONGEST >> 20,
            quoted(&line)
        );
        return Some(Err(problem));
    }
    line.pop_if(|last| *last == b'\n');
    Some(Ok(line))
}

/// Keeps the end of a stream.
fn collect_stderr(mut stderr: impl Read, heard: &Mutex<Vec<u8>>) {
    let mut bytes = [0; MAX_STDERR];
    while let Ok(count @ 1..) = stderr.read(&mut bytes) {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(&bytes[..count]);
        let surplus = heard.len().saturating_sub(MAX_STDERR);
        heard.drain(..surplus);
    }
}

/// The processes that were started and have not ended.
fn live_processes() -> MutexGuard<'static, Vec<u32>> {
    static LIVING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all child processes at once, and on Unix the processes that they started. For a program that is about to exit
/// without cleaning up. (On other systems the children only see the end of their standard input.)
pub fn end_all() {
    for id in live_processes().iter() {
        kill_group(*id);
    }
}

/// Returns the exit status, if the process has ended. On Unix the process is not reaped: until then no other process
/// can get its id, which is also its group's id.
fn ended(child: &mut Child) -> Option<String> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(Pid::from_child(child)), options);
        Some(match status.transpose()? {
            Ok(status) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "for no known reason".to_owned(),
            },
            Err(error) => error.to_string(),
        })
    }
    #[cfg(not(unix))]
    {
        let status = child.try_wait().transpose()?;
        Some(status.map_or_else(|error| error.to_string(), |status| status.to_string()))
    }
}

/// Kills the process, and on Unix the processes that it started. Must not be called after the process was reaped.
fn kill(child: &mut Child) {
    kill_group(child.id());
    let _ = child.kill();
}

fn kill_group(id: u32) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        let id = i32::try_from(id).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
    #[cfg(not(unix))]
    let _ = id;
}
