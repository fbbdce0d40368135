//! The sandboxed process for an untrusted tokenizer and chat template, from the side of the program.
//!
//! The program starts itself once more for each model directory. An endless loop, an exhausted stack or too much memory ends
//! that process and becomes an error of the file. Requests and replies are JSON after their length, one reply to each
//! request, in order.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::text_server::{TextReply, TextRequest, TextServer};
use crate::ModelError;

/// The first argument of a sandboxed process; the directory is the second.
pub(super) const ARGUMENT: &str = "--lapwing-text-of";

/// Memory limit in bytes. The largest published tokenizers of the supported families take 200 MiB.
const MAX_MEMORY: u64 = 2 << 30;
/// Processor seconds for a request. Reading a large tokenizer takes one, all others take milliseconds. A busy machine does
/// not use them up.
pub(super) const MAX_CPU_SECONDS: u64 = 10;
/// Limit on systems that do not count processor time, and for a process that waits.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Bytes of a reply: the longest text with an id for each of its bytes.
const MAX_REPLY: usize = 32 << 20;

/// Whether `main` of this program handles [`ARGUMENT`].
pub(super) static IS_SANDBOX_AVAILABLE: AtomicBool = AtomicBool::new(false);

/// Where the tokenizer and the template of a directory run.
#[derive(Debug)]
pub(super) enum Runner {
    /// In this process.
    Local(Box<Mutex<TextServer>>),
    /// In a sandbox.
    Sandboxed(SandboxProcess),
}

impl Runner {
    /// Returns the reply to a request. `file` is named if a sandbox ends.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        file: &Path,
        request: TextRequest,
    ) -> Result<T, ModelError> {
        match self {
            Runner::Local(server) => {
                let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
                let reply = server.work(request)?;
                Ok(serde_json::from_value(reply).expect("the type of this reply"))
            }
            Runner::Sandboxed(process) => process.ask(file, &request),
        }
    }
}

/// The process of one directory. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct SandboxProcess {
    dir: PathBuf,
    /// The process, or the file and the reason of its end. After a limit it is not started again, because the next request
    /// would likely hit it too.
    child: Mutex<Result<SandboxChild, (PathBuf, String)>>,
}

#[derive(Debug)]
struct SandboxChild {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<io::Result<Vec<u8>>>,
    /// The requests that load files, with their replies. The next process gets them first.
    loads: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Why a process ended without a reply.
enum SandboxEnd {
    /// It hit a limit or failed; the reason continues a sentence about the file.
    Failed(String),
    /// The system killed it, which says nothing about its files: Linux does so first if memory is short.
    Killed(String),
}

impl SandboxProcess {
    pub(super) fn start(dir: &Path) -> Result<SandboxProcess, ModelError> {
        let child = SandboxChild::start(dir).map_err(|e| {
            let problem = format!("cannot start the sandbox for its tokenizer and template: {e}");
            ModelError::file(dir, problem)
        })?;
        Ok(SandboxProcess {
            dir: dir.to_owned(),
            child: Mutex::new(Ok(child)),
        })
    }

    /// Sends a request and waits for its reply. If the system kills the process, sends it to another one, once.
    fn ask<T: DeserializeOwned>(
        &self,
        file: &Path,
        request: &TextRequest,
    ) -> Result<T, ModelError> {
        let mut child = self.child.lock().expect("no panic while it is held");
        let running = match &mut *child {
            Ok(running) => running,
            Err((file, problem)) => return Err(ModelError::file(file, problem)),
        };
        let bytes = serde_json::to_vec(request).expect("plain values");
        let reply = match running.ask(&bytes) {
            Err(SandboxEnd::Killed(_)) => running
                .restart(&self.dir)
                .and_then(|()| running.ask(&bytes)),
            other => other,
        };
        match reply {
            Ok(bytes_of_reply) => {
                let reply: TextReply<T> =
                    serde_json::from_slice(&bytes_of_reply).expect("written by the same program");
                use TextRequest::{Template, Tokenizer};
                if reply.is_ok() && matches!(request, Tokenizer { .. } | Template) {
                    running.loads.push((bytes, bytes_of_reply));
                }
                reply.map_err(|(path, problem)| ModelError::file(path.as_ref(), problem))
            }
            Err(SandboxEnd::Failed(reason)) => {
                let problem = format!("{} {reason}", request.subject());
                *child = Err((file.to_owned(), problem.clone()));
                Err(ModelError::file(file, problem))
            }
            Err(SandboxEnd::Killed(status)) => Err(ModelError::Killed(format!(
                "{}: the system killed the sandbox for its tokenizer and template twice ({status}), probably because memory \
                 is short: end other programs, raise the memory limit of the container or service, or use a smaller model",
                self.dir.display()
            ))),
        }
    }
}

impl SandboxChild {
    fn start(dir: &Path) -> io::Result<SandboxChild> {
        let mut command = Command::new(program()?);
        command
            .args([OsStr::new(ARGUMENT), dir.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        separate_group(&mut command);
        let mut child = command.spawn()?;
        let requests = child.stdin.take().expect("piped");
        let mut from = child.stdout.take().expect("piped");
        let (sender, replies) = mpsc::channel();
        let listener = thread::Builder::new()
            .name("sandbox replies".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                loop {
                    let reply = read_frame(&mut from, MAX_REPLY);
                    let is_last = reply.is_err();
                    if sender.send(reply).is_err() || is_last {
                        break;
                    }
                }
            });
        // Made before the thread is checked, so that dropping it ends the process.
        let running = SandboxChild {
            child,
            requests,
            replies,
            loads: Vec::new(),
        };
        listener.map(|_| running)
    }

    /// Replaces a process that ended by a new one that has loaded the same files.
    fn restart(&mut self, dir: &Path) -> Result<(), SandboxEnd> {
        let failed = |e| SandboxEnd::Failed(format!("cannot be loaded again: {e}"));
        let mut new = SandboxChild::start(dir).map_err(failed)?;
        for (request, reply) in &self.loads {
            if new.ask(request)? != *reply {
                let reason = "has changed on disk while it was in use";
                return Err(SandboxEnd::Failed(reason.to_owned()));
            }
        }
        new.loads = std::mem::take(&mut self.loads);
        *self = new;
        Ok(())
    }

    fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, SandboxEnd> {
        // If the process has ended, the replies have too.
        let _ = write_frame(&mut self.requests, request);
        // Waiting in slices does not count the time in which this process is stopped or the machine asleep.
        const SLICE: Duration = Duration::from_millis(50);
        for _ in 0..MAX_WAIT.as_millis() / SLICE.as_millis() {
            match self.replies.recv_timeout(SLICE) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(e)) if e.kind() == io::ErrorKind::InvalidData => {
                    let reason = format!("makes more than {} MiB of it", MAX_REPLY >> 20);
                    return Err(SandboxEnd::Failed(reason));
                }
                Err(RecvTimeoutError::Timeout) => (),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            }
        }
        Err(SandboxEnd::Failed(too_long(MAX_WAIT.as_secs())))
    }

    /// Returns why the process ended, after the end of its replies.
    fn end(&mut self) -> SandboxEnd {
        let _ = self.child.kill();
        let status = self.child.wait();
        // Such as "signal: 9 (SIGKILL)".
        let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        if status.contains("SIGKILL") {
            return SandboxEnd::Killed(status);
        }
        let mut output = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(1 << 16).read_to_string(&mut output);
        }
        SandboxEnd::Failed(if status.contains("SIGXCPU") {
            too_long(MAX_CPU_SECONDS)
        } else if output.contains("memory allocation of") {
            let limit = memory_limit() >> 20;
            format!("takes too much memory (it may have {limit} MiB)")
        } else if output.contains("overflowed its stack") {
            "nests too deeply".to_owned()
        } else {
            let last = output.lines().last().unwrap_or_default();
            let colon = if last.is_empty() { "" } else { ": " };
            format!("ends the process that it runs in ({status}{colon}{last})")
        })
    }
}

impl Drop for SandboxChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn too_long(seconds: u64) -> String {
    format!("does not come to an end (stopped after {seconds} s)")
}

/// Returns the memory limit of a sandbox in bytes: a lower one of this process applies to it, too.
pub(super) fn memory_limit() -> u64 {
    #[cfg(unix)]
    let own = rustix::process::getrlimit(rustix::process::Resource::As).maximum;
    #[cfg(not(unix))]
    let own = None;
    own.map_or(MAX_MEMORY, |own| MAX_MEMORY.min(own))
}

/// Returns the path of this program; on Linux one that works even if the file was replaced.
fn program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    }
}

/// Gives a child its own process group, which also contains the processes that it starts. Ctrl-C goes to the terminal's
/// whole group, and only the parent should handle it.
#[cfg_attr(target_family = "wasm", expect(unused_variables))]
pub fn separate_group(command: &mut Command) {
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

/// Writes bytes after their length.
pub(super) fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads what [`write_frame`] wrote, unless it is longer than a limit.
pub(super) fn read_frame(from: &mut impl Read, longest: usize) -> io::Result<Vec<u8>> {
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
