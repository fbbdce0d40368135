//! Paid answers, cached on disk so that no request is paid for twice.
//!
//! Each request has one file, named by a SHA-256 of address and request. Its first line is a SHA-256 of the rest, which
//! is a JSON object of the request and its answer. Files are written to a temporary name and renamed, so several
//! processes can share a cache.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::completion::ChatReply;
use super::error::ApiPlayerError;

/// A directory of answers.
pub(super) struct ReplyCache {
    dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct CacheEntry {
    request: Value,
    answer: ChatReply,
}

/// The result of a lookup.
#[derive(Debug, PartialEq)]
pub(super) enum Lookup {
    /// The cached answer.
    Found(ChatReply),
    /// No file.
    Nothing,
    /// An unreadable file, which is overwritten once the answer has arrived.
    Damaged(PathBuf),
}

impl ReplyCache {
    pub(super) fn open(dir: &Path) -> Result<ReplyCache, ApiPlayerError> {
        fs::create_dir_all(dir).map_err(unwritable(dir))?;
        Ok(ReplyCache {
            dir: dir.to_owned(),
        })
    }

    pub(super) fn get(&self, url: &str, request: &str) -> Lookup {
        let path = self.path(url, request);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Lookup::Nothing,
            Err(_) => return Lookup::Damaged(path),
        };
        match read(&bytes, request) {
            Some(answer) => Lookup::Found(answer),
            None => Lookup::Damaged(path),
        }
    }

    pub(super) fn put(
        &self,
        url: &str,
        request: &str,
        answer: &ChatReply,
    ) -> Result<(), ApiPlayerError> {
        let path = self.path(url, request);
        let entry = CacheEntry {
            request: serde_json::from_str(request).expect("a request is JSON"),
            answer: answer.clone(),
        };
        let text = serde_json::to_string(&entry).expect("an entry is JSON");
        let folder = path.parent().expect("it is in the cache");
        let write = || {
            fs::create_dir_all(folder)?;
            let mut aside = tempfile::NamedTempFile::new_in(folder)?;
            write!(aside, "{}\n{text}", hash(&[&text]))?;
            aside.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(unwritable(&path))
    }

    fn path(&self, url: &str, request: &str) -> PathBuf {
        let name = hash(&[url, "\n", request]);
        self.dir.join(&name[..2]).join(format!("{name}.json"))
    }
}

fn read(bytes: &[u8], request: &str) -> Option<ChatReply> {
    let (sum, text) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    if sum != hash(&[text]) {
        return None;
    }
    let entry: CacheEntry = serde_json::from_str(text).ok()?;
    (entry.request == serde_json::from_str::<Value>(request).ok()?).then_some(entry.answer)
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> ApiPlayerError {
    let path = path.to_owned();
    |reason| ApiPlayerError::Cache { path, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_is_damaged_does_not() {
        let home = tempfile::tempdir().unwrap();
        let cache = ReplyCache::open(&home.path().join("new/cache")).unwrap();
        let answer = ChatReply {
            text: "left\n\u{1b}".to_owned(),
            cut: true,
            prompt_tokens: 7,
            completion_tokens: 1,
            estimated: false,
        };
        let (url, request) = ("http://127.0.0.1/v1", r#"{"model":"m","seed":3}"#);
        assert_eq!(cache.get(url, request), Lookup::Nothing);
        cache.put(url, request, &answer).unwrap();
        cache.put(url, request, &answer).unwrap();
        assert_eq!(cache.get(url, request), Lookup::Found(answer.clone()));
        assert_eq!(cache.get("http://127.0.0.2/v1", request), Lookup::Nothing);
        assert_eq!(cache.get(url, r#"{"model":"m","seed":4}"#), Lookup::Nothing);

        let path = cache.path(url, request);
        let whole = fs::read_to_string(&path).unwrap();
        for damaged in [
            "",
            "no line",
            &whole[..whole.len() - 1],
            &whole.replace("left", "down"),
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(url, request), Lookup::Damaged(path.clone()));
        }
        cache.put(url, request, &answer).unwrap();
        assert_eq!(cache.get(url, request), Lookup::Found(answer));
    }
}
