//! Where the tokenizer and the chat template of a directory run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::process::{PREPARED, Process};
use crate::{ChatTemplate, Config, ModelError, Tokenizer};

/// The tokenizer and the chat template of a directory. They are programs in all but name: a template can loop and nest, a
/// normaliser can double a text twenty times. So it is decided here where they run.
pub struct TextFiles {
    dir: PathBuf,
    place: Place,
}

enum Place {
    Here,
    Within,
    Apart(Arc<Process>),
}

impl TextFiles {
    /// Those of a stranger. If the program has called [`isolate_text`](crate::isolate_text), they run in a process of
    /// their own, which they share: with 2 GiB of memory at most (on Linux; elsewhere as much as it gets in time), 10
    /// seconds of work for each text, and an end of its own, which is told as an error that names the file. Nothing more can be
    /// asked of it then. Otherwise they run in this process as [`ChatTemplate::load`] and [`Tokenizer::load`] do it.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn guarded(dir: &Path) -> Result<TextFiles, ModelError> {
        let place = match PREPARED.load(Ordering::Relaxed) {
            true => Place::Apart(Process::start(dir)?),
            false => Place::Within,
        };
        let dir = dir.to_owned();
        Ok(TextFiles { dir, place })
    }

    /// Those of the caller's own making, which end and stay small: they run on the thread that asks.
    pub fn trusted(dir: &Path) -> TextFiles {
        TextFiles {
            dir: dir.to_owned(),
            place: Place::Here,
        }
    }

    /// Reads the tokenizer.
    ///
    /// # Errors
    /// As [`Tokenizer::load`].
    pub fn tokenizer(&self, config: &Config) -> Result<Tokenizer, ModelError> {
        match &self.place {
            Place::Here | Place::Within => Tokenizer::load(&self.dir, config),
            Place::Apart(process) => Tokenizer::apart(process, config),
        }
    }

    /// Reads the chat template.
    ///
    /// # Errors
    /// As [`ChatTemplate::load`].
    pub fn template(&self) -> Result<ChatTemplate, ModelError> {
        match &self.place {
            Place::Here => ChatTemplate::trusted(&self.dir),
            Place::Within => ChatTemplate::load(&self.dir),
            Place::Apart(process) => ChatTemplate::apart(process),
        }
    }
}
