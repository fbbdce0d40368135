//! Names of models on the command line and in configs.

use std::path::{Path, PathBuf};

use lapwing_model::{Repository, is_gguf};

/// The name of the built-in model, also in an adapter's `base_model_name_or_path`. Other weights need another name, so that adapters of
/// an earlier built-in model are refused.
pub(crate) const BUILT_IN: &str = "lapwing-base-2";

/// The source of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// The model that is built into the program.
    BuiltIn,
    /// A directory in Hugging Face's layout, or a GGUF file.
    Local(PathBuf),
    /// A repository of the Hugging Face hub.
    Repository(Repository),
}

impl ModelSource {
    /// Parses a name: an existing directory or a GGUF file; otherwise a repository, if the name has the form `owner/name@revision`, or
    /// `owner/name` and there is no directory `owner`; otherwise a missing directory. A path that begins with `.`, `~` or a
    /// slash, or ends with `.gguf` without a colon, is never a repository.
    pub fn typed(text: &str) -> ModelSource {
        let path = Path::new(text);
        let is_beside_others = path.parent().is_some_and(Path::is_dir) && !text.contains('@');
        match Repository::parse(text) {
            Some(repository)
                if !path.is_dir()
                    && !is_beside_others
                    && (text.contains(':') || !is_gguf(path)) =>
            {
                ModelSource::Repository(repository)
            }
            _ => ModelSource::Local(path.to_owned()),
        }
    }

    /// Returns the value for an adapter's `base_model_name_or_path`, from which PEFT loads the base.
    pub fn name(&self) -> String {
        match self {
            ModelSource::BuiltIn => BUILT_IN.to_owned(),
            ModelSource::Local(dir) => dir.display().to_string(),
            ModelSource::Repository(repository) => repository.id().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_a_directory_or_a_repository() {
        let is_repository =
            |text: &str| matches!(ModelSource::typed(text), ModelSource::Repository(_));
        for name in [
            "Qwen/Qwen2.5-0.5B-Instruct",
            "a/b@main",
            "a/b@refs/pr/1",
            "a/b@v1.0",
            "a/b:Q4_K_M",
            "a/b-GGUF:b-q8_0.gguf@main",
        ] {
            assert!(is_repository(name), "{name}");
        }
        for path in [
            "./a/b", "/a/b", "a/b.gguf", "../a", "a", "a/b/c", "~/a", "a/..", "a/b@", "a b/c",
            "a/b@../c",
        ] {
            assert!(!is_repository(path), "{path}");
        }
        // Tests run in the package's directory.
        assert_eq!(
            ModelSource::typed("src/base"),
            ModelSource::Local("src/base".into())
        );
        assert!(!is_repository("src/nowhere"));
        assert!(is_repository("src/nowhere@main"));
        assert!(is_repository("nowhere/name"));
    }
}
