//! The names of repositories.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::HubSnapshot;

/// `owner/name`, or `owner/name@revision` with a branch, a tag or a commit. After the name, `:Q4_K_M` or `:FILE.gguf` selects a
/// GGUF file by its encoding or its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Repository(String);

impl Repository {
    /// Parses one. Returns `None` for any other form.
    pub fn parse(text: &str) -> Option<Repository> {
        let (id, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (id, gguf) = id.split_once(':').unwrap_or((id, "any"));
        let (owner, name) = id.split_once('/')?;
        let is_plain = |text: &str, also: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && text.len() <= 255
                && !text.contains("..")
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || also.contains(c))
        };
        let is_name = |text: &str| is_plain(text, "-_.") && !text.contains("--");
        let is_revision =
            |text: &str| is_plain(text, "-_./") && !text.contains("//") && !text.ends_with('/');
        let is_valid = [owner, name].into_iter().all(is_name)
            && is_plain(gguf, "-_.")
            && is_revision(revision);
        is_valid.then(|| Repository(text.to_owned()))
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('@').unwrap_or((&self.0, MAIN))
    }

    /// Returns `owner/name`.
    pub fn id(&self) -> &str {
        let id = self.parts().0;
        id.split_once(':').map_or(id, |(id, _)| id)
    }

    /// Returns what selects a GGUF file, if the repository is not one of Hugging Face files.
    pub(super) fn gguf(&self) -> Option<&str> {
        Some(self.parts().0.split_once(':')?.1)
    }

    /// Returns the branch, tag or commit; `main` if none was given.
    pub fn revision(&self) -> &str {
        self.parts().1
    }

    /// Returns the same repository at the commit of a snapshot, with the name of a GGUF file.
    pub fn at(&self, snapshot: &HubSnapshot) -> Repository {
        let (id, commit) = (self.id(), &snapshot.commit);
        let file = snapshot.path.file_name().filter(|_| self.gguf().is_some());
        let file = file.map_or(String::new(), |name| format!(":{}", name.to_string_lossy()));
        Repository(format!("{id}{file}@{commit}"))
    }
}

/// Writes the form that [`Repository::parse`] reads.
impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Repository {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Repository, Self::Error> {
        Repository::parse(&text)
            .ok_or("expected OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME:QUANT")
    }
}

const MAIN: &str = "main";
