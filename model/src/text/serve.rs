//! A process of its own for a stranger's tokenizer and chat template, as seen from within.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use super::chat::wrong;
use super::codec::Codec;
use super::guard::guarded;
use super::process::{ARGUMENT, Fault, PREPARED, Request, read_frame, write_frame};
use super::template::{Source, Template};
use crate::ModelError;

/// Published templates need a few hundred kilobytes. What goes deeper ends this process, and nothing else.
const STACK: usize = 16 << 20;

/// To be called first in `main`, before anything is printed or read: from then on, tokenizers and chat templates of
/// [`TextFiles::guarded`](crate::TextFiles::guarded) run in processes of their own.
///
/// Such a process is this program, started once more with an argument that only this function understands; there, it
/// answers its parent and does not return. A process whose parent has ended, however it did, ends too.
pub fn isolate_text() {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    match (first, arguments.next()) {
        (Some(first), Some(dir)) if first == OsStr::new(ARGUMENT) => serve(PathBuf::from(dir)),
        _ => PREPARED.store(true, Ordering::Relaxed),
    }
}

fn serve(dir: PathBuf) -> ! {
    limit();
    // What breaks is told to the parent, not to the terminal.
    std::panic::set_hook(Box::new(|_| ()));
    let (sender, requests) = mpsc::channel::<Vec<u8>>();
    let worker = thread::Builder::new()
        .name("text".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let mut text = Text {
                dir,
                codec: None,
                template: None,
            };
            let mut replies = io::stdout().lock();
            for request in requests {
                limit_time();
                let reply = text.answer(&request);
                let reply = serde_json::to_vec(&reply).expect("plain values");
                if write_frame(&mut replies, &reply).is_err() {
                    break;
                }
            }
        });
    if let Err(e) = worker {
        eprintln!("there is no room for a thread: {e}");
        std::process::exit(1);
    }
    // When the parent is gone this ends, and with it the process, whatever the other thread is at.
    while let Ok(request) = read_frame(&mut io::stdin(), usize::MAX) {
        if sender.send(request).is_err() {
            break;
        }
    }
    std::process::exit(0)
}

/// Bounds what this process may take. Where the system knows no such bound, the parent's limit of time remains.
fn limit() {
    #[cfg(unix)]
    {
        use super::process::MEMORY;
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        for (resource, most) in [(Resource::As, MEMORY), (Resource::Core, 0)] {
            let already = getrlimit(resource).maximum;
            let most = Some(already.map_or(most, |already| already.min(most)));
            let limit = Rlimit {
                current: most,
                maximum: most,
            };
            let _ = setrlimit(resource, limit);
        }
    }
    // If the machine runs out of memory all the same, Linux shall end this process before the one that trains.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Bounds the time of the next request: past it, the system ends the process.
fn limit_time() {
    #[cfg(unix)]
    {
        use super::process::LONGEST_WORK;
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use rustix::time::{ClockId, clock_gettime};
        let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64;
        let maximum = getrlimit(Resource::Cpu).maximum;
        // Whole seconds, of which one has begun.
        let most = used + 1 + LONGEST_WORK;
        let limit = Rlimit {
            current: Some(maximum.map_or(most, |maximum| most.min(maximum))),
            maximum,
        };
        let _ = setrlimit(Resource::Cpu, limit);
    }
}

struct Text {
    dir: PathBuf,
    codec: Option<Codec>,
    template: Option<(PathBuf, Template)>,
}

impl Text {
    fn answer(&mut self, request: &[u8]) -> Result<Value, Fault> {
        let dir = self.dir.clone();
        let done = match serde_json::from_slice(request) {
            Ok(request) => guarded(|| self.work(request)).unwrap_or_else(|| {
                let problem = "its tokenizer or template breaks the library that reads it";
                Err(ModelError::file(&dir, problem))
            }),
            Err(e) => Err(ModelError::file(&dir, format!("cannot be asked this: {e}"))),
        };
        done.map_err(|error| fault(&dir, error))
    }

    fn work(&mut self, request: Request) -> Result<Value, ModelError> {
        match request {
            Request::Tokenizer { vocab, eos } => {
                let codec = Codec::load(&self.dir, vocab, &eos)?;
                let stop_ids = json!(codec.stop_ids());
                self.codec = Some(codec);
                return Ok(stop_ids);
            }
            Request::Template => {
                let source = Source::read(&self.dir)?;
                let parsed = Template::parse(source.text);
                let parsed = parsed.map_err(|e| wrong(&source.path, e))?;
                let file = source.path.file_name().map(|name| name.to_string_lossy());
                let told = json!((file, source.special_tokens));
                self.template = Some((source.path, parsed));
                return Ok(told);
            }
            Request::Render(variables) => {
                let (path, template) = self.template.as_ref().expect("asked for before");
                let text = template.render(variables);
                return Ok(json!(text.map_err(|e| wrong(path, e))?));
            }
            _ => (),
        }
        let codec = self.codec.as_ref().expect("asked for before");
        Ok(match request {
            Request::Encode { text, around } => json!(codec.encode(&text, around)?),
            Request::Decode(ids) => json!(codec.decode(&ids)?),
            Request::Id(token) => json!(codec.id(&token)),
            Request::Token(id) => json!(codec.token(id)),
            _ => unreachable!("answered above"),
        })
    }
}

fn fault(dir: &Path, error: ModelError) -> Fault {
    let (path, field, problem) = match error {
        ModelError::File { path, problem } => (path, None, problem),
        ModelError::Field {
            path,
            field,
            problem,
        } => (path, Some(field), problem),
        other => (dir.to_owned(), None, other.to_string()),
    };
    let file = path
        .strip_prefix(dir)
        .ok()
        .and_then(|within| within.to_str());
    Fault {
        file: file.filter(|file| !file.is_empty()).map(str::to_owned),
        field,
        problem,
    }
}
