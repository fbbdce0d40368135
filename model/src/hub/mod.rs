//! Downloads models of the Hugging Face hub into the cache that Hugging Face's own libraries use.
//!
//! `models--OWNER--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/FILE` links to `blobs/HASH`. Cached files are used
//! without a request. Only the files that a model needs are downloaded. A partial download is resumed, and every file is
//! compared with the hub's checksum.

mod download;
mod repository;

use std::fs;
use std::path::{Path, PathBuf};

use crate::ModelError;
use crate::files::disk;
use download::{CONFIG, Download, MAX_SILENCE, choose_gguf};

pub use repository::Repository;

/// The local files of a repository at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubSnapshot {
    /// The directory, which may lack files of the commit that no model needs, or the GGUF file.
    pub path: PathBuf,
    /// The commit, 40 hexadecimal digits.
    pub commit: String,
}

/// The settings for downloads. The library reads no environment variable; a program builds this from its own environment
/// with [`Hub::from_variables`].
#[derive(Clone)]
pub struct Hub {
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// Directory with one folder for each repository.
    pub cache: PathBuf,
    /// Access token for private and gated repositories.
    pub token: Option<String>,
    /// File with an access token, read for a download if `token` is `None` and the file exists.
    pub token_file: Option<PathBuf>,
    /// Use the cache only.
    pub offline: bool,
}

const MAX_TOKEN_BYTES: u64 = 64 << 10;

impl Hub {
    /// Returns the settings that Hugging Face's libraries derive from their environment variables:
    ///
    /// 1. Cache: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `$HF_HOME/hub`, `$XDG_CACHE_HOME/huggingface/hub`,
    ///    `~/.cache/huggingface/hub`.
    /// 2. Token: `HF_TOKEN`, the file `HF_TOKEN_PATH`, the file `token` in `HF_HOME` or its default.
    /// 3. Endpoint: `HF_ENDPOINT`, `https://huggingface.co`.
    /// 4. Offline: `HF_HUB_OFFLINE` is 1, ON, YES or TRUE.
    ///
    /// `variable` returns the value of a variable. The home directory is `HOME` or `USERPROFILE`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Hub {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = get("HOME")
            .or_else(|| get("USERPROFILE"))
            .unwrap_or_default();
        let caches = get("XDG_CACHE_HOME").map_or(Path::new(&home).join(".cache"), PathBuf::from);
        let hf_home = get("HF_HOME").map_or(caches.join("huggingface"), PathBuf::from);
        let cache = get("HF_HUB_CACHE").or_else(|| get("HUGGINGFACE_HUB_CACHE"));
        let token_file = get("HF_TOKEN_PATH").map_or(hf_home.join("token"), PathBuf::from);
        let endpoint = get("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let is_on = |value: String| ["1", "ON", "YES", "TRUE"].contains(&&*value.to_uppercase());
        Hub {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache: cache.map_or(hf_home.join("hub"), PathBuf::from),
            token: get("HF_TOKEN"),
            token_file: Some(token_file),
            offline: get("HF_HUB_OFFLINE").is_some_and(is_on),
        }
    }

    /// Returns the files of a model, downloading those that the cache lacks. `progress` receives the bytes downloaded so
    /// far and the total.
    ///
    /// # Errors
    /// The hub cannot be reached or does not have the repository, or the cache cannot be written.
    pub fn snapshot(
        &self,
        repository: &Repository,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<HubSnapshot, ModelError> {
        let mut download = Download::new(self, repository, MAX_SILENCE);
        let known = download.known_commit();
        if let (Some(commit), Some(wanted)) = (&known, repository.gguf()) {
            let entries = fs::read_dir(download.snapshot(commit))
                .into_iter()
                .flatten();
            let paths = entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|it| it.is_file());
            let names = paths.filter_map(|it| it.file_name()?.to_str().map(str::to_owned));
            if let Ok(name) = choose_gguf(names.collect(), wanted) {
                let path = download.snapshot(commit).join(name);
                let commit = commit.clone();
                return Ok(HubSnapshot { path, commit });
            }
        } else if let Some(commit) = known {
            let missing = download.missing(&commit)?;
            // Not every model has the other files, and a cache that another library filled does not record which ones the
            // repository lacks.
            let required = |name: &&String| *name == CONFIG || name.ends_with(".safetensors");
            let lacking = missing.iter().find(required);
            download.is_in_cache = lacking.is_none();
            if missing.is_empty() || (self.offline && download.is_in_cache) {
                let path = download.snapshot(&commit);
                return Ok(HubSnapshot { path, commit });
            }
            if let Some(name) = lacking.filter(|_| self.offline) {
                return Err(download.offline(name));
            }
        }
        if self.offline {
            return Err(download.offline("it"));
        }
        download.token = self.read_token();
        download.run(progress)
    }

    fn read_token(&self) -> Option<String> {
        let from_file = || disk::read_text(self.token_file.as_ref()?, MAX_TOKEN_BYTES).ok();
        let token = self.token.clone().or_else(from_file)?;
        let token = token.trim();
        (!token.is_empty()).then(|| token.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_variables_in_order() {
        let hub = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(known, _)| *known == name);
            Hub::from_variables(|name| Some(find(name)?.1.to_owned()))
        };
        let plain = hub(&[("HOME", "/h"), ("HF_TOKEN", ""), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!(plain.endpoint, "https://huggingface.co");
        assert_eq!(plain.cache, Path::new("/h/.cache/huggingface/hub"));
        assert_eq!(
            plain.token_file.unwrap(),
            Path::new("/h/.cache/huggingface/token")
        );
        assert!(plain.token.is_none() && !plain.offline);
        let own = hub(&[
            ("HOME", "/h"),
            ("HF_HOME", "/hf"),
            ("HF_TOKEN_PATH", "/t"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_HUB_OFFLINE", "yes"),
        ]);
        assert_eq!((&*own.endpoint, own.offline), ("http://mirror", true));
        assert_eq!(own.cache, Path::new("/hf/hub"));
        assert_eq!(own.token_file.unwrap(), Path::new("/t"));
        let cache = hub(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")]).cache;
        assert_eq!(cache, Path::new("/c"));
    }

    #[test]
    fn a_token_is_read_from_its_file_if_none_is_given() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("token");
        let mut hub = Hub::from_variables(|_| None);
        hub.token_file = Some(file.clone());
        assert_eq!(hub.read_token(), None);
        fs::write(&file, "hf_file\n").unwrap();
        assert_eq!(hub.read_token().unwrap(), "hf_file");
        hub.token = Some("hf_own".to_owned());
        assert_eq!(hub.read_token().unwrap(), "hf_own");
    }
}
