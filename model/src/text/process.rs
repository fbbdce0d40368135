//! A process of its own for a stranger's tokenizer and chat template, as seen by the one that asks it.
//!
//! The program runs itself once more for each such directory. What goes wrong over there, be it an endless loop, a stack
//! that is exhausted or more memory than there may be, ends that process and is told as an error of the file.
//! Requests and replies are JSON behind their length, one reply to each request, in order.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ModelError;

/// The program's first argument where it is such a process; the directory is the second.
pub(crate) const ARGUMENT: &str = "--lapwing-text-of";

/// Whether this program answers to that argument.
pub(crate) static PREPARED: AtomicBool = AtomicBool::new(false);

/// Bytes of memory that the process may have. The largest published tokenizers of the supported families take 200 MiB.
pub(crate) const MEMORY: u64 = 2 << 30;

/// What it can be asked.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Reads the tokenizer, for a model with so many tokens and these ends. Gives the ids that end a reply.
    Tokenizer { vocab: usize, eos: Vec<u32> },
    /// Reads the template. Gives the name of its file and the special tokens.
    Template,
    /// Renders the template with these variables. Gives the text.
    Render(Map<String, Value>),
    /// Encodes a text, with the tokens that the tokenizer puts around it or without. Gives ids.
    Encode { text: String, around: bool },
    /// Gives the text of these ids.
    Decode(Vec<u32>),
    /// Gives the id of a token, or none.
    Id(String),
    /// Gives the token of an id, or none.
    Token(u32),
}

/// An error over there.
#[derive(Serialize, Deserialize)]
pub(crate) struct Fault {
    /// its name within the directory; none: the directory itself
    pub(crate) file: Option<String>,
    pub(crate) field: Option<String>,
    pub(crate) problem: String,
}

/// Seconds of the processor's time for a request, of which everything takes milliseconds and the reading of a large
/// tokenizer one. A busy machine does not use them up.
pub(crate) const LONGEST_WORK: u64 = 10;
/// In all, for systems that do not count the processor's time, and for what waits and does not work.
const LONGEST_TIME: Duration = Duration::from_secs(60);
/// Bytes of a reply: enough for the longest text with an id for each of its bytes.
const LONGEST_REPLY: usize = 32 << 20;

/// The process of one directory. When this is dropped, it ends.
pub(crate) struct Process {
    dir: PathBuf,
    state: Mutex<State>,
}

enum State {
    Running(Running),
    /// Over, for this reason. It is not started again: the next request would likely end it too.
    Over(PathBuf, String),
}

struct Running {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<Vec<u8>>,
}

impl Process {
    /// Starts one for this directory.
    pub(crate) fn start(dir: &Path) -> Result<Arc<Process>, ModelError> {
        let running = Running::start(dir).map_err(|e| {
            let problem = format!("cannot start a process for its tokenizer and template: {e}");
            ModelError::file(dir, problem)
        })?;
        Ok(Arc::new(Process {
            dir: dir.to_owned(),
            state: Mutex::new(State::Running(running)),
        }))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Asks something and waits for the reply. If it comes to a bad end, `subject` in `file` is to blame.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        file: Option<&Path>,
        request: &Request,
    ) -> Result<T, ModelError> {
        let mut state = self.state.lock().expect("nothing panics while it is held");
        let running = match &mut *state {
            State::Running(running) => running,
            State::Over(file, problem) => return Err(ModelError::file(file, problem)),
        };
        let request = serde_json::to_vec(request).expect("plain values");
        match running.ask(&request) {
            Ok(reply) => {
                let reply: Result<T, Fault> =
                    serde_json::from_slice(&reply).expect("what the same program wrote");
                reply.map_err(|fault| self.error(fault))
            }
            Err(reason) => {
                let (file, problem) = (file.unwrap_or(&self.dir), format!("{subject} {reason}"));
                // Dropped with it: the process, if there still is one.
                *state = State::Over(file.to_owned(), problem.clone());
                Err(ModelError::file(file, problem))
            }
        }
    }

    fn error(&self, fault: Fault) -> ModelError {
        let path = match fault.file {
            Some(file) => self.dir.join(file),
            None => self.dir.clone(),
        };
        match fault.field {
            Some(field) => ModelError::field(&path, &field, fault.problem),
            None => ModelError::file(&path, fault.problem),
        }
    }
}

impl Running {
    fn start(dir: &Path) -> io::Result<Running> {
        let mut command = Command::new(program()?);
        command
            .args([OsStr::new(ARGUMENT), dir.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        apart_from_the_terminal(&mut command);
        let mut child = command.spawn()?;
        let requests = child.stdin.take().expect("piped");
        let mut from = child.stdout.take().expect("piped");
        let (sender, replies) = mpsc::channel();
        let listener = thread::Builder::new()
            .name("replies of a text process".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                while let Ok(reply) = read_frame(&mut from, LONGEST_REPLY) {
                    if sender.send(reply).is_err() {
                        break;
                    }
                }
            });
        let running = Running {
            child,
            requests,
            replies,
        };
        listener.map(|_| running)
    }

    /// The reply, or what the process does instead of one.
    fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        // If it cannot be written to, it has ended, and so have the replies.
        let _ = write_frame(&mut self.requests, request);
        // In slices: time in which this process is stopped, or the machine asleep, is not counted.
        const SLICE: Duration = Duration::from_millis(50);
        for _ in 0..LONGEST_TIME.as_millis() / SLICE.as_millis() {
            match self.replies.recv_timeout(SLICE) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            }
        }
        let seconds = LONGEST_TIME.as_secs();
        Err(format!(
            "does not come to an end (stopped after {seconds} s)"
        ))
    }

    /// What ended it.
    fn end(&mut self) -> String {
        // It may also go on, writing more than is read.
        let writes_on = self.child.try_wait().is_ok_and(|status| status.is_none());
        let _ = self.child.kill();
        let status = self.child.wait();
        let mut said = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(1 << 16).read_to_string(&mut said);
        }
        if status.as_ref().is_ok_and(is_out_of_time) {
            endless(LONGEST_WORK)
        } else if said.contains("memory allocation of") {
            format!("takes too much memory (it may have {} GiB)", MEMORY >> 30)
        } else if said.contains("overflowed its stack") {
            "nests too deeply".to_owned()
        } else if writes_on && said.is_empty() {
            format!("makes more than {} MiB of it", LONGEST_REPLY >> 20)
        } else {
            let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
            let said = said.lines().last().unwrap_or_default();
            let colon = if said.is_empty() { "" } else { ": " };
            format!("ends the process that it runs in ({status}{colon}{said})")
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn endless(seconds: u64) -> String {
    format!("does not come to an end (stopped after {seconds} s)")
}

/// Whether the system ended it for the time that it took.
fn is_out_of_time(status: &ExitStatus) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        status.signal() == Some(rustix::process::Signal::XCPU.as_raw())
    }
    #[cfg(not(unix))]
    {
        let _ = status;
        false
    }
}

/// This program. On Linux what is running, even if its file has been replaced since.
fn program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    }
}

/// Ctrl-C goes to all processes of the terminal's group. What it means is for the parent alone to decide.
fn apart_from_the_terminal(command: &mut Command) {
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

/// Writes bytes behind their length.
pub(crate) fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads them again, if they are not more than so many.
pub(crate) fn read_frame(from: &mut impl Read, longest: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > longest as u64 {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut pipe = Vec::new();
        for frame in [&b"one"[..], b"", b"three"] {
            write_frame(&mut pipe, frame).unwrap();
        }
        let mut from = &pipe[..];
        assert_eq!(read_frame(&mut from, 5).unwrap(), b"one");
        assert_eq!(read_frame(&mut from, 5).unwrap(), b"");
        assert!(read_frame(&mut from, 4).is_err());
        assert!(read_frame(&mut &pipe[..9], 5).is_err());
    }
}
