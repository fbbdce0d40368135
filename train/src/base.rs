//! The base model that is built into the program, and loading of an agent from it or from a directory.

use std::path::Path;

use lapwing_model::{ChatTemplate, LoadOptions, Model, Tokenizer};
use lapwing_tensor::Gpu;

use crate::agent::Agent;
use crate::error::Error;

macro_rules! embedded {
    ($($file:literal)*) => {
        &[$(($file, include_bytes!(concat!("../../fixtures/base/", $file)))),*]
    };
}

/// Made by `lapwing pretrain`; `fixtures/base/README.md` says how.
const FILES: &[(&str, &[u8])] = embedded!(
    "config.json"
    "generation_config.json"
    "model.safetensors"
    "tokenizer.json"
    "tokenizer_config.json"
    "chat_template.jinja"
);

/// What the embedded base is called in an adapter's `base_model_name_or_path`.
pub const NAME: &str = "lapwing-base";

/// Writes the embedded base as a Hugging Face directory.
///
/// # Errors
/// If the directory cannot be written.
pub fn unpack(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    FILES
        .iter()
        .try_for_each(|(name, bytes)| std::fs::write(dir.join(name), bytes))
}

/// Loads model, tokenizer and chat template; `None` is the embedded base.
///
/// # Errors
/// If a file is missing or wrong; the error names it.
pub fn load_agent(gpu: &Gpu, dir: Option<&Path>) -> Result<Agent, Error> {
    // The loader maps files, so the embedded ones go through a directory that is gone right after.
    let unpacked;
    let dir = match dir {
        Some(dir) if dir.is_dir() => dir,
        Some(dir) => return Err(Error::NoModel(dir.to_owned())),
        None => {
            unpacked = tempfile::tempdir().map_err(Error::Unpack)?;
            unpack(unpacked.path()).map_err(Error::Unpack)?;
            unpacked.path()
        }
    };
    let model = Model::load(gpu, dir, &LoadOptions::default())?;
    let tokenizer = Tokenizer::load(dir, model.config())?;
    let template = ChatTemplate::load(dir)?;
    Ok(Agent {
        model,
        adapter: None,
        tokenizer,
        template,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It travels with every copy of the program.
    #[test]
    fn the_built_in_base_is_small() {
        let bytes: usize = FILES.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= 2 << 20, "{bytes} bytes");
    }
}
