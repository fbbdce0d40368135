//! A thread with a deep stack that does one piece of work after another, each for as long as it may take.
//!
//! To map and unmap so large a stack for every piece would cost more than the work.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::guard::guarded;

type Work = Box<dyn FnOnce() + Send>;

/// The thread, which starts with the first piece of work and ends when this is dropped. Whoever asks while it is busy
/// waits for their turn.
pub(crate) struct Worker {
    stack: usize,
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    works: Sender<Work>,
    handle: JoinHandle<()>,
}

/// Why a piece of work gave nothing.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// The system gives no thread with such a stack.
    NoRoom(io::Error),
    /// It takes longer than it may. It is left behind with its thread, which ends when the work does, if ever.
    TooLong,
    /// It panicked.
    Panicked,
}

impl Worker {
    /// With a stack of so many bytes.
    pub(crate) fn new(stack: usize) -> Worker {
        let thread = Mutex::new(None);
        Worker { stack, thread }
    }

    /// Does some work there and waits for it, but not longer than `limit` from its beginning.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let mut slot = self.thread.lock().expect("nothing panics while it is held");
        let thread = match slot.take() {
            Some(thread) => thread,
            None => Thread::start(self.stack).map_err(Unfinished::NoRoom)?,
        };
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            let _ = sender.send(guarded(work));
        };
        thread
            .works
            .send(Box::new(work))
            .expect("it waits for work as long as somebody may have some");
        match receiver.recv_timeout(limit) {
            Ok(done) => {
                *slot = Some(thread);
                done.ok_or(Unfinished::Panicked)
            }
            Err(RecvTimeoutError::Timeout) => Err(Unfinished::TooLong),
            Err(RecvTimeoutError::Disconnected) => unreachable!("it answers even after a panic"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().ok().and_then(Option::take);
        if let Some(Thread { works, handle }) = thread {
            drop(works);
            // It has nothing to do, so it ends at once.
            let _ = handle.join();
        }
    }
}

impl Thread {
    fn start(stack: usize) -> io::Result<Thread> {
        let (works, waiting) = mpsc::channel::<Work>();
        let handle = thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(stack)
            .spawn(move || waiting.into_iter().for_each(|work| work()))?;
        Ok(Thread { works, handle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Barrier};

    const LONG: Duration = Duration::from_secs(60);

    fn id(worker: &Worker) -> thread::ThreadId {
        worker.run(LONG, || thread::current().id()).unwrap()
    }

    #[test]
    fn one_thread_does_it_all_and_ends_with_its_owner() {
        struct SetOnDrop(Arc<AtomicBool>);
        impl Drop for SetOnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        thread_local! {
            static HELD: std::cell::RefCell<Option<SetOnDrop>> = const { std::cell::RefCell::new(None) };
        }
        let worker = Worker::new(1 << 20);
        let first = id(&worker);
        assert_ne!(first, thread::current().id());
        assert_eq!(id(&worker), first);
        // What a thread holds is dropped when the thread ends.
        let ended = Arc::new(AtomicBool::new(false));
        let mark = SetOnDrop(ended.clone());
        let hold = move || HELD.with(|held| *held.borrow_mut() = Some(mark));
        worker.run(LONG, hold).unwrap();
        assert!(!ended.load(Ordering::SeqCst));
        drop(worker);
        assert!(ended.load(Ordering::SeqCst));
    }

    #[test]
    fn what_does_not_end_is_left_behind_and_the_next_is_done_all_the_same() {
        let worker = Worker::new(1 << 20);
        let first = id(&worker);
        let barrier = Arc::new(Barrier::new(2));
        let late = barrier.clone();
        let left = worker.run(Duration::from_millis(20), move || late.wait());
        assert!(matches!(left, Err(Unfinished::TooLong)));
        assert_ne!(id(&worker), first);
        barrier.wait();
    }

    #[test]
    fn a_panic_is_told_and_does_not_end_the_thread() {
        let worker = Worker::new(1 << 20);
        let first = id(&worker);
        let panicked = worker.run(LONG, || std::panic::resume_unwind(Box::new("no")));
        let panicked: Result<(), Unfinished> = panicked;
        assert!(matches!(panicked, Err(Unfinished::Panicked)));
        assert_eq!(id(&worker), first);
    }

    #[test]
    fn a_stack_that_the_system_cannot_give_is_an_error() {
        let worker = Worker::new(1 << 60);
        let refused = worker.run(LONG, || ());
        assert!(matches!(refused, Err(Unfinished::NoRoom(_))));
    }
}
