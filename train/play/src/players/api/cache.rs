//! Paid answers, cached on disk so that no request is paid for twice.
//!
//! Each request has one file, named by a SHA-256 of address and request. Its first line is a SHA-256 of the rest, which
//! is a JSON object of the request and its answer. Files are written to a temporary name and renamed, so several
//! processes can share a cache.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use lapwing_model::read_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::completion::ChatReply;

/// A directory of answers.
pub(super) struct ReplyCache {
    dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct CacheEntry {
    request: Value,
    answer: ChatReply,
}

impl ReplyCache {
    pub(super) fn open(dir: &Path) -> Result<ReplyCache, String> {
        fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
        let dir = dir.to_owned();
        Ok(ReplyCache { dir })
    }

    /// Returns the cached answer. The error is an unreadable file, which is overwritten once the answer has arrived.
    pub(super) fn get(&self, url: &str, request: &str) -> Result<Option<ChatReply>, PathBuf> {
        let path = self.path(url, request);
        match read_file(&path, 64 << 20) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            bytes => match bytes.ok().and_then(|bytes| read(&bytes, request)) {
                Some(answer) => Ok(Some(answer)),
                None => Err(path),
            },
        }
    }

    pub(super) fn put(&self, url: &str, request: &str, answer: &ChatReply) -> Result<(), String> {
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
            write!(aside, "{}\n{text}", hash(&text))?;
            aside.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error| unwritable(&path, &error))
    }

    fn path(&self, url: &str, request: &str) -> PathBuf {
        let name = hash(&format!("{url}\n{request}"));
        self.dir.join(&name[..2]).join(format!("{name}.json"))
    }
}

fn read(bytes: &[u8], request: &str) -> Option<ChatReply> {
    let (sum, text) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    if sum != hash(text) {
        return None;
    }
    let entry: CacheEntry = serde_json::from_str(text).ok()?;
    (entry.request == serde_json::from_str::<Value>(request).ok()?).then_some(entry.answer)
}

fn hash(text: &str) -> String {
    let digits = Sha256::digest(text);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unwritable(path: &Path, reason: &io::Error) -> String {
    let path = path.display();
    format!("cannot write {path} ({reason}): name another directory with --player-cache")
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
        assert_eq!(cache.get(url, request), Ok(None));
        cache.put(url, request, &answer).unwrap();
        cache.put(url, request, &answer).unwrap();
        assert_eq!(cache.get(url, request), Ok(Some(answer.clone())));
        assert_eq!(cache.get("http://127.0.0.2/v1", request), Ok(None));
        assert_eq!(cache.get(url, r#"{"model":"m","seed":4}"#), Ok(None));

        let path = cache.path(url, request);
        let whole = fs::read_to_string(&path).unwrap();
        for damaged in [
            "",
            "no line",
            &whole[..whole.len() - 1],
            &whole.replace("left", "down"),
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(url, request), Err(path.clone()));
        }
        cache.put(url, request, &answer).unwrap();
        assert_eq!(cache.get(url, request), Ok(Some(answer)));
    }
}
