//! lapwing in a browser: trains the built-in model and plays with it on a static page.
//!
//! `page/worker.js` runs this crate in a worker and passes requests of the page to a [`PageSession`], as JSON. The crate
//! compiles for other systems too, where its tests run.

mod by_hand;
mod session;
mod words;

pub use session::PageSession;

#[cfg(target_family = "wasm")]
#[expect(
    deprecated,
    reason = "waiting is new in browsers, and called experimental"
)]
mod browser {
    use std::cell::RefCell;
    use std::panic;
    use std::path::Path;

    use lapwing_model::{MEMORY, clear_memory, read_file, write_file};
    use lapwing_play::Progress;
    use wasm_bindgen::prelude::{JsError, wasm_bindgen};

    use crate::PageSession;

    #[wasm_bindgen]
    extern "C" {
        /// Receives the progress of long operations.
        fn lapwing_progress(phase: &str, done: usize, total: usize, unit: &str);
        /// Receives the text of a panic, after which the module cannot be used.
        fn lapwing_panicked(text: &str);
    }

    thread_local! {
        static SESSION: RefCell<Option<PageSession>> = const { RefCell::new(None) };
    }

    /// Answers a request. Both are JSON. Requests must not overlap.
    ///
    /// # Errors
    /// With a sentence for the visitor.
    #[wasm_bindgen(jspi)]
    pub fn answer(request: &str) -> Result<String, JsError> {
        SESSION.with_borrow_mut(|session| {
            if session.is_none() {
                panic::set_hook(Box::new(|info| lapwing_panicked(&info.to_string())));
                *session = Some(PageSession::open(false).map_err(|e| JsError::new(&e))?);
            }
            let session = session.as_mut().expect("opened above");
            let answer = session.answer(request, &PageProgress::default());
            answer.map_err(|error| JsError::new(&error))
        })
    }

    /// Puts a file into the memory of the module, below `<memory>`.
    #[wasm_bindgen]
    pub fn put_file(path: &str, bytes: &[u8]) {
        write_file(&Path::new(MEMORY).join(path), bytes).expect("memory takes files");
    }

    /// Removes the files of a folder of that memory.
    #[wasm_bindgen]
    pub fn clear_files(folder: &str) {
        clear_memory(&Path::new(MEMORY).join(folder));
    }

    /// Returns a file of that memory; empty if it does not exist.
    #[wasm_bindgen]
    pub fn file(path: &str) -> Vec<u8> {
        read_file(&Path::new(MEMORY).join(path), u64::MAX).unwrap_or_default()
    }

    #[derive(Default)]
    struct PageProgress(RefCell<(&'static str, usize, &'static str)>);

    impl Progress for PageProgress {
        fn phase(&self, name: &'static str, total: usize, unit: &'static str) {
            self.0.replace((name, total, unit));
            self.done(0);
        }

        fn done(&self, done: usize) {
            let (phase, total, unit) = *self.0.borrow();
            lapwing_progress(phase, done, total, unit);
        }
    }
}
