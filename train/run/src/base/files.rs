//! The files of a model (built-in, of a directory, or of a repository), and loading them on a device.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use lapwing_model::{
    ChatTemplate, Hub, MEMORY, Model, ModelDirectory, ModelError, Precision, Repository,
    StoredAdapter, TextFiles, Tokenizer, file_of_model, is_dir, is_file, is_gguf, write_file,
};
use lapwing_tensor::{Gpu, Parameters};

use super::source::{BUILT_IN, ModelSource};
use crate::Error;
use crate::config::ModelChoice;
use lapwing_play::Progress;

macro_rules! embedded {
    ($($file:literal)*) => {
        &[$(($file, include_bytes!(concat!("../../../../fixtures/base/", $file)))),*]
    };
}

/// Made by `lapwing pretrain`; `fixtures/base/README.md` has the details.
const FILES: &[(&str, &[u8])] = embedded!(
    "config.json"
    "generation_config.json"
    "model.safetensors"
    "tokenizer.json"
    "tokenizer_config.json"
    "chat_template.jinja"
);

const TOKENIZER: &str = "tokenizer.json";

/// Returns the Hugging Face directory of the built-in model, which is in memory.
pub fn built_in() -> PathBuf {
    static WRITTEN: Once = Once::new();
    let dir = Path::new(MEMORY).join(BUILT_IN);
    WRITTEN.call_once(|| {
        for (name, bytes) in FILES {
            write_file(&dir.join(name), bytes).expect("memory takes files");
        }
    });
    dir
}

/// Checks that a local model exists, which takes no time. Nothing is read.
///
/// # Errors
/// If there is no model directory and no GGUF file of this name.
pub fn check_exists(model: &Path) -> Result<(), Error> {
    let holds_gguf = !is_file(&model.join("config.json")) && gguf_in(model).is_some();
    match is_gguf(model) || is_dir(model) && !holds_gguf {
        true => Ok(()),
        false => Err(Error::no_model(model)),
    }
}

/// Returns the first GGUF file in a directory.
pub(crate) fn gguf_in(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .filter(|it| is_gguf(it))
        .min()
}

/// The files of a model, read and checked; nothing is on a device yet.
pub struct Files {
    /// the name for messages
    pub name: String,
    /// the repository, if there is one, with its commit instead of a branch or tag, so that it names exactly these
    /// files
    pub repository: Option<Repository>,
    /// config and weights
    pub checkpoint: ModelDirectory,
    text: TextFiles,
    /// none: the file does not exist
    tokenizer: Option<Tokenizer>,
}

impl Files {
    /// Opens a model. A repository comes from the local cache, or is downloaded to it by `hub`.
    ///
    /// # Errors
    /// If a file is missing, invalid, or cannot be downloaded; the error names it. A repository needs a hub.
    pub fn of(
        choice: &ModelChoice,
        hub: Option<&Hub>,
        progress: &dyn Progress,
    ) -> Result<Files, Error> {
        let tokenizer = choice.tokenizer.as_deref();
        let files = match choice.source()? {
            ModelSource::BuiltIn => Files::open(None, tokenizer)?,
            ModelSource::Local(dir) => Files::open(Some(&dir), tokenizer)?,
            ModelSource::Repository(repository) => {
                let hub = hub.ok_or_else(|| {
                    Error::Unusable(format!(
                        "model.repo is {repository}, and nothing is downloaded here: wanted a directory (model.dir)"
                    ))
                })?;
                let told = &mut in_millions(progress, "downloading", "MB");
                let snapshot = hub.snapshot(&repository, told)?;
                let pinned = repository.at(&snapshot);
                Files {
                    name: pinned.to_string(),
                    repository: Some(pinned),
                    ..Files::open(Some(&snapshot.path), tokenizer)?
                }
            }
        };
        Ok(Files {
            checkpoint: files.checkpoint.quantised(choice.quantise.format()),
            ..files
        })
    }

    /// Opens a model directory or a GGUF file; `None` is the built-in model. The tokenizer and the template may be those of
    /// another directory. Those of a directory are [untrusted](TextFiles::untrusted): they run in a sandboxed process if the
    /// program has called [`run_sandbox_if_requested`](lapwing_model::run_sandbox_if_requested).
    ///
    /// # Errors
    /// If a file is missing or invalid; the error names it.
    pub fn open(dir: Option<&Path>, tokenizer: Option<&Path>) -> Result<Files, Error> {
        if let Some(dir) = dir {
            check_exists(dir)?;
        }
        let path = dir.map_or_else(built_in, Path::to_owned);
        let mut checkpoint = ModelDirectory::open(&path)?;
        if let Some(other) = tokenizer {
            if !is_file(&other.join(TOKENIZER)) {
                return Err(Error::Unusable(format!(
                    "there is no {TOKENIZER} in {}: wanted a directory with that file, and tokenizer_config.json for the chat \
                     template (--tokenizer, model.tokenizer)",
                    other.display()
                )));
            }
            checkpoint = checkpoint.with_tokenizer(other);
        }
        let text_path = checkpoint.text_dir();
        let text = match dir.or(tokenizer) {
            Some(_) => TextFiles::untrusted(text_path)?,
            None => TextFiles::trusted(text_path),
        };
        // Read even if it is not needed, so that the tokenizer of another model is always noticed.
        let tokenizer = match is_gguf(text_path) || is_file(&text_path.join(TOKENIZER)) {
            true => Some(text.tokenizer(checkpoint.config())?),
            false => None,
        };
        Ok(Files {
            name: dir.map_or(BUILT_IN.to_owned(), |dir| dir.display().to_string()),
            repository: None,
            checkpoint,
            text,
            tokenizer,
        })
    }

    /// Returns the tokenizer. Without one, a model can only continue token ids.
    ///
    /// # Errors
    /// If there is no tokenizer.
    pub fn tokenizer(&self) -> Result<&Tokenizer, ModelError> {
        self.tokenizer.as_ref().ok_or_else(|| ModelError::File {
            path: file_of_model(self.checkpoint.text_dir(), TOKENIZER),
            problem: "missing".to_owned(),
        })
    }

    /// Returns the chat template. Without one, a model can continue a text, but not play.
    ///
    /// # Errors
    /// If there is no template, or it cannot be parsed.
    pub fn template(&self) -> Result<ChatTemplate, ModelError> {
        self.text.template()
    }

    /// Returns whether the files of the chat template mention this variable. No template reads a variable that they do
    /// not mention.
    pub fn mentions(&self, variable: &str) -> bool {
        let texts = ["chat_template.jinja", "tokenizer_config.json"]
            .map(|name| self.checkpoint.text_file(name));
        texts.iter().flatten().any(|text| text.contains(variable))
    }

    /// Reads an adapter for this model. The built-in model takes only adapters that name it; other models may have been moved since.
    ///
    /// # Errors
    /// If it is missing, damaged, unsupported, or made for another model.
    pub fn adapter(&self, dir: &Path) -> Result<StoredAdapter, Error> {
        if !is_dir(dir) {
            return Err(Error::Unusable(format!(
                "there is no adapter directory {}: wanted one with adapter_config.json and adapter_model.safetensors",
                dir.display()
            )));
        }
        let base = StoredAdapter::base(dir)?;
        let base = base.filter(|base| self.name == BUILT_IN && base != BUILT_IN);
        if let Some(base) = base {
            return Err(Error::Unusable(format!(
                "{}: made for the model {base}, not for the built-in model, {BUILT_IN}: name that model with --model, or \
                 the run instead of --adapter; if it is an earlier built-in model, train again",
                dir.display()
            )));
        }
        Ok(self.checkpoint.adapter(dir)?)
    }

    /// Loads the weights on the device.
    ///
    /// # Errors
    /// If a value is damaged, or the device is lost.
    pub fn load(&self, gpu: &Gpu, progress: &dyn Progress) -> Result<Model, Error> {
        let told = &mut in_millions(progress, "loading", "million weights");
        let model = self.checkpoint.load(gpu, Precision::Auto, told)?;
        summarise(&self.name, &model, progress);
        Ok(model)
    }

    /// Loads the weights for training all of them: in 32 bits, with gradients and the optimiser's moments.
    ///
    /// # Errors
    /// As [`Files::load`].
    pub(crate) fn load_trained(
        &self,
        gpu: &Gpu,
        progress: &dyn Progress,
    ) -> Result<(Model, Parameters), Error> {
        let told = &mut in_millions(progress, "loading", "million weights");
        let (model, parameters) = self.checkpoint.load_trained(gpu, told)?;
        summarise(&self.name, &model, progress);
        Ok((model, parameters))
    }

    /// Loads the weights a second time, frozen, as the reference.
    ///
    /// # Errors
    /// As [`Files::load`].
    pub fn load_reference(&self, gpu: &Gpu) -> Result<Model, Error> {
        let precision = Precision::Stored;
        Ok(self.checkpoint.load(gpu, precision, &mut |_, _| ())?)
    }
}

/// Reports the loaded weights: their precision, and anything unexpected.
fn summarise(name: &str, model: &Model, progress: &dyn Progress) {
    let report = model.report();
    let formats = [
        "32 bits",
        "f16",
        "bf16",
        "4 bits",
        "8 bits",
        "8 bits (groups of 16)",
    ]
    .into_iter()
    .zip(report.matrices);
    let held: Vec<String> = formats
        .filter(|(_, count)| *count > 0)
        .map(|(format, count)| format!("{count} matrices in {format}"))
        .collect();
    let (family, held) = (model.config().family.model_type(), held.join(", "));
    let parameters = grouped(report.parameters);
    progress.line(&format!(
        "model {name}: {family}, {parameters} parameters, {held}"
    ));
    let list = |what: &str, names: &[String]| {
        if let [first, rest @ ..] = names {
            let more = match rest.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            progress.line(&format!("  {what}: {first}{more}"));
        }
    };
    list(
        "too large or too small for f16, so held in bf16",
        &report.out_of_f16_range,
    );
    list(
        "in the files, but no part of this architecture",
        &report.ignored,
    );
}

/// Formats a number with a comma between every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev();
    let parts: Vec<&str> = parts
        .map(|part| str::from_utf8(part).expect("digits"))
        .collect();
    parts.join(",")
}

/// The progress of a phase, which begins with the first call.
fn in_millions<'a>(
    progress: &'a dyn Progress,
    phase: &'static str,
    unit: &'static str,
) -> impl FnMut(u64, u64) + 'a {
    const MILLION: u64 = 1_000_000;
    let mut begun = false;
    move |done, total| {
        if total < MILLION {
            return;
        }
        if !begun {
            progress.phase(phase, (total / MILLION) as usize, unit);
            begun = true;
        }
        progress.done((done / MILLION) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model is part of every copy of the program.
    #[test]
    fn the_built_in_base_is_small() {
        let bytes: usize = FILES.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= 2 << 20, "{bytes} bytes");
    }

    /// An adapter of other weights is refused by its model's name alone.
    #[test]
    fn other_weights_have_another_name() {
        let (_, weights) = FILES
            .iter()
            .find(|(name, _)| *name == "model.safetensors")
            .unwrap();
        assert_eq!(
            (BUILT_IN, crc32c::crc32c(weights)),
            ("lapwing-base-2", 927_612_993)
        );
    }
}
