//! The sandboxed process for an untrusted tokenizer and chat template, from within.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use super::sandbox::{ARGUMENT, IS_SANDBOX_AVAILABLE, read_frame, write_frame};
use super::text_server::TextServer;

/// Published templates need a few hundred kilobytes. Exceeding it ends this process only.
const STACK: usize = 16 << 20;

/// Makes the sandbox of [`TextFiles::untrusted`](crate::TextFiles::untrusted) available. Call it first in `main`, before the
/// program reads or prints anything.
///
/// A sandboxed process is this program, started once more with an argument that only this function handles. In that process
/// the function serves its parent and does not return. The process ends with its parent, even if the parent is killed.
pub fn run_sandbox_if_requested() {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    match (first, arguments.next()) {
        (Some(first), Some(dir)) if first == OsStr::new(ARGUMENT) => serve(PathBuf::from(dir)),
        _ => IS_SANDBOX_AVAILABLE.store(true, Ordering::Relaxed),
    }
}

fn serve(dir: PathBuf) -> ! {
    limit_memory();
    // The parent receives panics as errors; the terminal does not.
    std::panic::set_hook(Box::new(|_| ()));
    let (sender, requests) = mpsc::channel::<Vec<u8>>();
    let worker = thread::Builder::new()
        .name("text".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let mut server = TextServer::new(dir);
            let mut replies = io::stdout().lock();
            for request in requests {
                limit_time();
                let reply = serde_json::to_vec(&server.reply(&request)).expect("plain values");
                if write_frame(&mut replies, &reply).is_err() {
                    break;
                }
            }
        });
    if let Err(e) = worker {
        eprintln!("cannot start a thread: {e}");
        std::process::exit(1);
    }
    // Without a parent this loop ends, and the process with it, even if the other thread is busy.
    while let Ok(request) = read_frame(&mut io::stdin(), usize::MAX) {
        if sender.send(request).is_err() {
            break;
        }
    }
    std::process::exit(0)
}

/// Limits the memory of this process, where the system can do that, and disables core dumps.
fn limit_memory() {
    #[cfg(unix)]
    {
        use super::sandbox::memory_limit;
        use rustix::process::{Resource, Rlimit, setrlimit};
        for (resource, most) in [(Resource::As, memory_limit()), (Resource::Core, 0)] {
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            let _ = setrlimit(resource, limit);
        }
    }
    // If the machine runs out of memory, Linux ends this process before the one that trains.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Limits the processor time of the next request: beyond it, the system ends the process.
fn limit_time() {
    #[cfg(unix)]
    {
        use super::sandbox::MAX_CPU_SECONDS;
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use rustix::time::{ClockId, clock_gettime};
        let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64;
        let maximum = getrlimit(Resource::Cpu).maximum;
        // Whole seconds, of which one has begun.
        let most = used + 1 + MAX_CPU_SECONDS;
        let limit = Rlimit {
            current: Some(maximum.map_or(most, |maximum| most.min(maximum))),
            maximum,
        };
        let _ = setrlimit(Resource::Cpu, limit);
    }
}
