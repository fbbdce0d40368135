//! A child process that speaks JSON lines: one message a line, and in each the number of its session, so that one process
//! plays many episodes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::protocol::{self, EnvironmentSession, LONGEST, SessionError, StepResult, quoted};

/// How long a process may take to end by itself once its standard input is closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// How often is looked whether something has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of its standard error that are kept: the last.
const MAX_STDERR: usize = 4096;

/// A running process, or why it no longer runs. When this is dropped, it ends.
#[derive(Debug)]
pub(super) struct GameProcess {
    patience: Duration,
    state: Mutex<ProcessState>,
}

#[derive(Debug)]
enum ProcessState {
    Running(RunningProcess),
    Over(String),
}

#[derive(Debug)]
struct RunningProcess {
    child: Child,
    /// lines to write; `None` once it is to end
    requests: Option<Sender<Vec<u8>>>,
    /// lines that it has written
    replies: Receiver<Result<Vec<u8>, String>>,
    /// the end of what it has said on its standard error
    said: Arc<Mutex<Vec<u8>>>,
    listener: thread::JoinHandle<()>,
}

/// One session with a process.
pub(super) struct ProcessSession {
    process: Arc<GameProcess>,
    number: u64,
}

impl ProcessSession {
    /// Session `number` with this process, which nobody else has.
    pub(crate) fn new(process: Arc<GameProcess>, number: u64) -> ProcessSession {
        ProcessSession { process, number }
    }

    fn line(&self, mut message: Map<String, Value>) -> Vec<u8> {
        message.shift_insert(0, "session".to_owned(), json!(self.number));
        let mut line = Value::Object(message).to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

impl EnvironmentSession for ProcessSession {
    fn ask(&mut self, request: Map<String, Value>) -> Result<StepResult, SessionError> {
        let line = self.line(request);
        let answered = self.process.ask(line, self.number);
        answered.map_err(SessionError::Other)
    }
}

impl Drop for ProcessSession {
    fn drop(&mut self) {
        let line = self.line(protocol::close());
        if let ProcessState::Running(running) = &*self.process.lock() {
            running.write(line);
        }
    }
}

impl GameProcess {
    /// Starts it, in the directory in which this program runs.
    pub(crate) fn start(words: &[String], patience: Duration) -> Result<GameProcess, String> {
        let (program, arguments) = words.split_first().expect("a command has a first word");
        let shown = quoted(program.as_bytes());
        let started = RunningProcess::start(program, arguments).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("cannot start {shown}: there is no such program here or on the PATH")
            }
            io::ErrorKind::PermissionDenied => {
                format!("cannot start {shown}: it may not be executed (chmod +x, or name its interpreter first)")
            }
            _ => format!("cannot start {shown}: {error}"),
        });
        Ok(GameProcess {
            patience,
            state: Mutex::new(ProcessState::Running(started?)),
        })
    }

    /// Whether it can be asked, as far as is known.
    pub(crate) fn runs(&self) -> bool {
        matches!(&*self.lock(), ProcessState::Running(_))
    }

    fn lock(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, line: Vec<u8>, session: u64) -> Result<StepResult, String> {
        let mut state = self.lock();
        let running = match &mut *state {
            ProcessState::Running(running) => running,
            ProcessState::Over(problem) => return Err(problem.clone()),
        };
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
            // Its own error concerns one session.
            Ok(message) => message.content,
            Err(problem) => {
                let problem = format!("{problem}{}", running.stderr_tail());
                // Dropped with it: the process, if there still is one.
                *state = ProcessState::Over(problem.clone());
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
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        let (requests, to_write) = mpsc::channel();
        // What nobody reads is not taken either: it fills the pipe, and not the memory.
        let (written, replies) = mpsc::sync_channel(1);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        // A process may stop to read, or to write, at any time: none of the three may wait for another.
        thread::spawn(move || write_lines(stdin, &to_write));
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
        // If it cannot be written to it has ended, and so have the replies.
        if let Some(requests) = &self.requests {
            let _ = requests.send(line);
        }
    }

    /// The line that it answers, or what it does instead.
    fn ask(&mut self, line: Vec<u8>, patience: Duration) -> Result<Vec<u8>, String> {
        match self.replies.try_recv() {
            Ok(Ok(line)) => {
                let line = quoted(&line);
                return Err(format!(
                    "it wrote to its standard output without being asked, where only answers belong: {line}"
                ));
            }
            Ok(Err(problem)) => return Err(problem),
            Err(TryRecvError::Disconnected) => return Err(self.end()),
            Err(TryRecvError::Empty) => self.write(line),
        }
        match self.replies.recv_timeout(patience) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => {
                let seconds = patience.as_secs_f64();
                Err(format!(
                    "it did not answer within {seconds} s, and was ended (game.options.timeout)"
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }

    /// What became of a process whose standard output has ended.
    fn end(&mut self) -> String {
        match within(SHUTDOWN_GRACE, || ended(&mut self.child)) {
            Some(how) => format!("its process has ended ({how})"),
            None => "it closed its standard output, and was ended".to_owned(),
        }
    }

    /// The end of what it said on standard error, for the end of an error.
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
        // Its standard input ends: a process that reads to the end of it ends by itself, and can tidy up.
        self.requests = None;
        within(SHUTDOWN_GRACE, || ended(&mut self.child));
        kill(&mut self.child);
        let _ = self.child.wait();
        live_processes().retain(|id| *id != self.child.id());
    }
}

/// Waits until there is something, but not longer than this.
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

fn write_lines(mut to: ChildStdin, lines: &Receiver<Vec<u8>>) {
    while let Ok(line) = lines.recv() {
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            break;
        }
    }
}

/// A line without its end, or what is wrong with it; `None` at the end.
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

/// Keeps the end of what is said.
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

/// Ends all child processes at once, and on Unix what they have started: for a program that is about to end without tidying
/// up. (Elsewhere they see their standard input end, and no more.)
pub fn end_all() {
    for id in live_processes().iter() {
        kill_group(*id);
    }
}

/// Ctrl-C goes to all processes of the terminal's group. What it means is for the parent alone to decide. And what a
/// process starts is in its group, and ends with it.
fn separate_group(command: &mut Command) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    #[cfg(windows)]
    {
        use std::os::windows::process::CommandExt;
        const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
        command.creation_flags(CREATE_NEW_PROCESS_GROUP);
    }
}

/// How it has ended, if it has. On Unix without taking note of it: until then its id, which is its group's too, is nobody
/// else's.
fn ended(child: &mut Child) -> Option<String> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(Pid::from_child(child)), options);
        let status = status.map_or_else(|error| Some(Err(error)), |found| found.map(Ok))?;
        Some(match status {
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
        let status = child.try_wait();
        let status = status.map_or_else(|error| Some(Err(error)), |found| found.map(Ok))?;
        Some(status.map_or_else(|error| error.to_string(), |status| status.to_string()))
    }
}

/// Ends it, and on Unix what it has started. Not after it was waited for.
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
