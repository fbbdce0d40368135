//! The choice of where the tokenizer and the chat template of a directory run.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::sandbox::{IS_SANDBOX_AVAILABLE, Runner, SandboxProcess};
use super::text_server::TextServer;
use crate::{ChatTemplate, ModelConfig, ModelError, Tokenizer};

/// The tokenizer and the chat template of a model directory. Both are programs: a template can loop and nest, and a
/// normaliser can double a text twenty times.
#[derive(Debug)]
pub struct TextFiles {
    pub(super) dir: PathBuf,
    pub(super) runner: Arc<Runner>,
}

impl TextFiles {
    /// Opens files from an untrusted source. They run in one sandboxed process with at most 2 GiB of memory (enforced on
    /// Linux) and 10 seconds of processor time for each request. If that process hits a limit, the error names the file, and
    /// all later requests return the same error. If the system kills it, it is started again and the request repeated, once.
    ///
    /// If the program did not call [`run_sandbox_if_requested`](crate::run_sandbox_if_requested), there is no sandbox. The
    /// files then run in this process like [trusted](TextFiles::trusted) ones: the length of texts and the number of steps are
    /// limited, memory, time and depth are not.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn untrusted(dir: &Path) -> Result<TextFiles, ModelError> {
        if !IS_SANDBOX_AVAILABLE.load(Ordering::Relaxed) {
            return Ok(TextFiles::trusted(dir));
        }
        Ok(TextFiles {
            runner: Arc::new(Runner::Sandboxed(SandboxProcess::start(dir)?)),
            dir: dir.to_owned(),
        })
    }

    /// Opens files that the caller trusts. They run in this process, which a hostile file can end: the memory that a tokenizer
    /// takes is not limited, nor are the memory, the time and the depth of a template.
    pub fn trusted(dir: &Path) -> TextFiles {
        let dir = dir.to_owned();
        let server = Box::new(Mutex::new(TextServer::new(dir.clone())));
        let runner = Arc::new(Runner::Local(server));
        TextFiles { dir, runner }
    }

    /// Reads `tokenizer.json` and the end-of-text token of `tokenizer_config.json`. Texts of more than 4 MiB are refused.
    ///
    /// # Errors
    /// The file cannot be read, the tokenizer belongs to another model (it has ids outside of the model's vocabulary), or it
    /// encodes at random.
    pub fn tokenizer(&self, config: &ModelConfig) -> Result<Tokenizer, ModelError> {
        Tokenizer::of(self, config)
    }

    /// Reads `chat_template.jinja`, or else the template in `tokenizer_config.json`. The length of its source and output and
    /// the number of its steps are limited.
    ///
    /// # Errors
    /// There is no template, or it cannot be parsed.
    pub fn template(&self) -> Result<ChatTemplate, ModelError> {
        ChatTemplate::of(self)
    }
}
