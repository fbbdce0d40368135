//! Downloads models of the Hugging Face hub into the cache that Hugging Face's own libraries use.
//!
//! `models--OWNER--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/FILE` links to `blobs/HASH`. Cached files are used
//! without a request. Only the files that a model needs are downloaded. A partial download is resumed, and every file is
//! compared with the hub's checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::Agent;
use ureq::http::Response;

use crate::ModelError;
use crate::files::disk;
use crate::files::gguf::is_gguf;
use crate::files::weight_files::{INDEX, SINGLE, read_index};

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
    fn gguf(&self) -> Option<&str> {
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

/// The files that are read beside the weights.
const FILES: [&str; 5] = [
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
const CONFIG: &str = "config.json";

const MAX_RESPONSE_BYTES: u64 = 16 << 20;
const MAX_TOKEN_BYTES: u64 = 64 << 10;
/// Requests in a row that may bring no byte of a file before the download fails.
const MAX_ATTEMPTS: u32 = 5;
/// Pause before the second attempt; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How long the hub may send nothing before the next attempt.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// What a request for it wants, in messages.
const LIST: &str = "the list of files";

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
        let folder = format!("models--{}", repository.id().replace('/', "--"));
        let mut download = Download {
            hub: self,
            repository,
            home: self.cache.join(&folder),
            locks: self.cache.join(".locks").join(folder),
            agent: agent(MAX_SILENCE),
            token: None,
            is_in_cache: false,
        };
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

/// Returns a client that fails if the hub sends nothing for this long.
fn agent(silence: Duration) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // `get` follows redirects, because ureq would send the token to another port.
        .max_redirects(0)
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_per_read(Some(silence))
        .user_agent(concat!("lapwing/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// Returns the scheme, host and port of an address.
fn origin(address: &str) -> &str {
    let host = address.find("://").map_or(0, |at| at + 3);
    let path = address[host..].find(['/', '?', '#']);
    &address[..path.map_or(address.len(), |at| host + at)]
}

struct RemoteFile {
    name: String,
    size: u64,
    /// The checksum, which is also the name in the cache: SHA-256 for large files, git's SHA-1 of a blob for small ones.
    checksum: String,
    is_large: bool,
}

impl RemoteFile {
    /// Reads an entry of the hub's list; `None` if it has no checksum.
    fn parse(entry: &Value) -> Option<RemoteFile> {
        let (large, is_large) = (&entry["lfs"], !entry["lfs"].is_null());
        let (size, checksum, digits) = match is_large {
            true => (&large["size"], &large["sha256"], 64),
            false => (&entry["size"], &entry["blobId"], 40),
        };
        Some(RemoteFile {
            name: entry["rfilename"].as_str()?.to_owned(),
            size: size.as_u64()?,
            checksum: checksum.as_str().filter(|c| is_hex(c, digits))?.to_owned(),
            is_large,
        })
    }

    fn checksum_of(&self, file: &mut File) -> io::Result<String> {
        file.rewind()?;
        match self.is_large {
            true => hash(file, Sha256::new()),
            false => {
                let head = format!("blob {}\0", self.size);
                hash(file, Sha1::new_with_prefix(head))
            }
        }
    }
}

/// Returns the hash of the rest of a file in hexadecimal digits.
fn hash(file: &mut File, mut hasher: impl Digest) -> io::Result<String> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let bytes = hasher.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == digits && text.bytes().all(is_digit)
}

/// Returns the names of the weight files that an index lists.
fn shards(index: &Path) -> Result<BTreeSet<String>, ModelError> {
    Ok(read_index(index)?.into_values().collect())
}

/// Returns the GGUF file of some names that has this name or this encoding, such as Q4_K_M.
fn choose_gguf(mut names: Vec<String>, wanted: &str) -> Result<String, String> {
    names.retain(|name| is_gguf(name.as_ref()));
    let wanted = wanted.to_lowercase();
    let stem = wanted.strip_suffix(".gguf").unwrap_or(&wanted);
    let is_wanted = |name: &&String| {
        let name = name.to_lowercase();
        let before = name
            .strip_suffix(".gguf")
            .and_then(|name| name.strip_suffix(stem));
        before.is_some_and(|before| before.is_empty() || before.ends_with(['-', '.', '_']))
    };
    let found: Vec<&String> = names.iter().filter(is_wanted).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        _ if names.is_empty() => {
            Err("has no GGUF files; leave out the part after the colon".to_owned())
        }
        [] => Err(format!(
            "has no GGUF file {wanted}; it has {}",
            names.join(", ")
        )),
        _ => {
            let found: Vec<&str> = found.iter().map(|name| name.as_str()).collect();
            Err(format!(
                "has several GGUF files {wanted}: name one of {}",
                found.join(", ")
            ))
        }
    }
}

struct Download<'a> {
    hub: &'a Hub,
    repository: &'a Repository,
    home: PathBuf,
    /// Files that are locked during downloads, as by Hugging Face's libraries. They are never removed: a lock on a removed
    /// file excludes no other process.
    locks: PathBuf,
    agent: Agent,
    token: Option<String>,
    /// Whether the cache has all files that a model must have.
    is_in_cache: bool,
}

impl Download<'_> {
    fn snapshot(&self, commit: &str) -> PathBuf {
        self.home.join("snapshots").join(commit)
    }

    fn not_there(&self, commit: &str) -> PathBuf {
        self.home.join(".no_exist").join(commit)
    }

    /// Returns the commit that the cache has for the revision.
    fn known_commit(&self) -> Option<String> {
        let revision = self.repository.revision();
        if is_hex(revision, 40) {
            return Some(revision.to_owned());
        }
        let noted = disk::read_text(&self.home.join("refs").join(revision), 64).ok()?;
        let commit = noted.trim();
        is_hex(commit, 40).then(|| commit.to_owned())
    }

    /// Returns the files of a commit that are not in the cache, except those that are recorded as not existing.
    fn missing(&self, commit: &str) -> Result<Vec<String>, ModelError> {
        let (dir, none) = (self.snapshot(commit), self.not_there(commit));
        let mut missing: Vec<String> = FILES
            .into_iter()
            .filter(|name| !dir.join(name).is_file() && !none.join(name).exists())
            .map(str::to_owned)
            .collect();
        if dir.join(SINGLE).is_file() {
            return Ok(missing);
        }
        if dir.join(INDEX).is_file() {
            let shards = shards(&dir.join(INDEX))?.into_iter();
            missing.extend(shards.filter(|name| !dir.join(name).is_file()));
        } else {
            missing.push(SINGLE.to_owned());
        }
        Ok(missing)
    }

    fn run(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<HubSnapshot, ModelError> {
        let (commit, files) = self.list()?;
        let dir = self.snapshot(&commit);
        if let Some(wanted) = self.repository.gguf() {
            let name = choose_gguf(files.keys().cloned().collect(), wanted);
            let name = name.map_err(|problem| self.error(problem))?;
            let path = dir.join(&name);
            if !path.is_file() {
                let total = files[&name].size;
                self.fetch(&commit, &files[&name], &mut |done| progress(done, total))?;
            }
            self.note_commit(&commit)?;
            return Ok(HubSnapshot { path, commit });
        }
        let is_there = |name: &str| dir.join(name).is_file();
        let lacks = |name: &str| {
            let gguf = files.keys().find(|name| is_gguf(name.as_ref()));
            let gguf = gguf.map_or(String::new(), |name| {
                format!(
                    "; it has GGUF files, such as {}:{name}",
                    self.repository.id()
                )
            });
            self.error(format!(
                "has no {name}: wanted config.json and *.safetensors{gguf}"
            ))
        };
        let file = |name: &str| files.get(name).ok_or_else(|| lacks(name));
        file(CONFIG)?;
        let mut wanted: Vec<&RemoteFile> =
            FILES.iter().filter_map(|name| files.get(*name)).collect();
        match (files.get(SINGLE), files.get(INDEX)) {
            (Some(single), _) => wanted.push(single),
            (None, None) => return Err(lacks(SINGLE)),
            (None, Some(index)) => {
                if !is_there(INDEX) {
                    self.fetch(&commit, index, &mut |_| ())?;
                }
                for name in shards(&dir.join(INDEX))? {
                    wanted.push(file(&name)?);
                }
            }
        }
        wanted.retain(|file| !is_there(&file.name));
        let total = wanted.iter().map(|file| file.size).sum();
        let mut before = 0;
        for file in wanted {
            self.fetch(&commit, file, &mut |done| progress(before + done, total))?;
            before += file.size;
        }
        // Hugging Face's libraries record it in the same way.
        for name in FILES.iter().filter(|name| !files.contains_key(**name)) {
            disk::write_file(&self.not_there(&commit).join(name), b"")?;
        }
        self.note_commit(&commit)?;
        Ok(HubSnapshot { path: dir, commit })
    }

    /// Records the commit of the revision.
    fn note_commit(&self, commit: &str) -> Result<(), ModelError> {
        match self.repository.revision() {
            revision if revision == commit => Ok(()),
            revision => disk::write_file(&self.home.join("refs").join(revision), commit.as_bytes()),
        }
    }

    /// Requests the commit of the revision and its files by name.
    fn list(&self) -> Result<(String, BTreeMap<String, RemoteFile>), ModelError> {
        let revision = self.repository.revision().replace('/', "%2F");
        let (endpoint, id) = (&self.hub.endpoint, self.repository.id());
        let address = format!("{endpoint}/api/models/{id}/revision/{revision}?blobs=true");
        let mut response = self.get(&address, 0)?;
        self.check_status(&response, &[200], LIST)?;
        let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES);
        let body = body.read_to_vec().map_err(|e| self.network(e))?;
        let wrong = |found: &str| self.unexpected(found, "the commit and the list of files");
        let info: Value = serde_json::from_slice(&body).map_err(|_| wrong("with invalid JSON"))?;
        let commit = info["sha"].as_str().filter(|commit| is_hex(commit, 40));
        let commit = commit.ok_or_else(|| wrong("without a commit"))?;
        let mut files = BTreeMap::new();
        for entry in info["siblings"].as_array().into_iter().flatten() {
            let name = entry["rfilename"].as_str().unwrap_or_default();
            if name.contains(['/', '\\']) || name.starts_with('.') {
                continue;
            }
            let file = RemoteFile::parse(entry);
            let file = file.ok_or_else(|| wrong("with a file that has no checksum"))?;
            files.insert(name.to_owned(), file);
        }
        Ok((commit.to_owned(), files))
    }

    /// Downloads a file or resumes its download, compares its checksum and puts it into the snapshot.
    fn fetch(
        &self,
        commit: &str,
        remote: &RemoteFile,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ModelError> {
        let blob = self.home.join("blobs").join(&remote.checksum);
        let partial = blob.with_extension("incomplete");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let open = |path: &Path| {
            let failed = |e| ModelError::unwritable(path, e);
            fs::create_dir_all(disk::parent(path)).map_err(failed)?;
            disk::open_regular(path, &options).map_err(failed)
        };
        let failed = |e| ModelError::unwritable(&partial, e);
        // Waits for another process that downloads the same file.
        let lock = open(&self.locks.join(format!("{}.lock", remote.checksum)))?;
        lock.lock().map_err(failed)?;
        // A blob that this snapshot did not use before may be damaged.
        let is_sound = |mut blob: File| Ok(remote.checksum_of(&mut blob)? == remote.checksum);
        if !blob.is_file() || !File::open(&blob).and_then(is_sound).map_err(failed)? {
            let mut file = open(&partial)?;
            self.fill(commit, remote, &mut file, &partial, progress)?;
            file.sync_all().map_err(failed)?;
            fs::rename(&partial, &blob).map_err(failed)?;
        }
        progress(remote.size);
        let path = self.snapshot(commit).join(&remote.name);
        let failed = |e| ModelError::unwritable(&path, e);
        fs::create_dir_all(self.snapshot(commit)).map_err(failed)?;
        let is_broken_link = disk::exists(&path) && !path.exists();
        if is_broken_link {
            fs::remove_file(&path).map_err(failed)?;
        }
        match link(&blob, &path) {
            // Another process made the link.
            Err(_) if path.exists() => Ok(()),
            linked => linked.map_err(failed),
        }
    }

    /// Downloads the rest of a partial file and compares its checksum.
    fn fill(
        &self,
        commit: &str,
        remote: &RemoteFile,
        file: &mut File,
        partial: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ModelError> {
        let failed = |e| ModelError::unwritable(partial, e);
        let mut done = remote.size.min(file.metadata().map_err(failed)?.len());
        file.set_len(done).map_err(failed)?;
        let (endpoint, id, name) = (&self.hub.endpoint, self.repository.id(), &remote.name);
        let address = format!("{endpoint}/{id}/resolve/{commit}/{name}");
        let (mut buffer, mut attempt) = (vec![0; 1 << 20], 0);
        while done < remote.size {
            let before = done;
            let mut cut = None;
            match self.get(&address, done) {
                Ok(mut response) => {
                    self.check_status(&response, &[200, 206], name)?;
                    // A server without ranges sends the whole file.
                    if done > 0 && response.status().as_u16() == 200 {
                        done = 0;
                        file.set_len(0).map_err(failed)?;
                    }
                    file.seek(SeekFrom::Start(done)).map_err(failed)?;
                    let mut body = response.body_mut().as_reader();
                    while done < remote.size {
                        let most = buffer.len().min((remote.size - done) as usize);
                        match body.read(&mut buffer[..most]) {
                            Ok(0) => break,
                            Ok(read) => {
                                file.write_all(&buffer[..read]).map_err(failed)?;
                                done += read as u64;
                                progress(done);
                            }
                            Err(e) => {
                                cut = Some(self.network(e));
                                break;
                            }
                        }
                    }
                }
                Err(error) => cut = Some(error),
            }
            if done < remote.size {
                attempt = if done > before { 1 } else { attempt + 1 };
                if attempt >= MAX_ATTEMPTS {
                    let size = remote.size;
                    let short =
                        || self.network(format!("{name} ends after {done} of {size} bytes"));
                    return Err(cut.unwrap_or_else(short));
                }
                std::thread::sleep(FIRST_PAUSE * (1 << attempt));
            }
        }
        let (found, wanted) = (remote.checksum_of(file).map_err(failed)?, &remote.checksum);
        if found != *wanted {
            fs::remove_file(partial).map_err(failed)?;
            let problem = format!(
                "{name} has the checksum {found}, wanted {wanted}; it was deleted: try again"
            );
            return Err(self.error(problem));
        }
        Ok(())
    }

    /// Requests the bytes of an address from a position on, and follows redirects.
    fn get(&self, address: &str, from: u64) -> Result<Response<ureq::Body>, ModelError> {
        let mut address = address.to_owned();
        for _ in 0..10 {
            let mut request = self.agent.get(&address);
            // The token is for the hub, not for other servers that it redirects to.
            let is_of_hub = origin(&address) == origin(&self.hub.endpoint);
            if let Some(token) = self.token.as_ref().filter(|_| is_of_hub) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            if from > 0 {
                request = request.header("Range", format!("bytes={from}-"));
            }
            let response = request.call().map_err(|e| self.network(e))?;
            let target = response.headers().get("location");
            let target = target.filter(|_| response.status().is_redirection());
            let Some(target) = target.and_then(|target| target.to_str().ok()) else {
                return Ok(response);
            };
            address = match target.starts_with('/') {
                true => origin(&address).to_owned() + target,
                false => target.to_owned(),
            };
        }
        Err(self.network("too many redirects"))
    }

    /// Checks the status of a response, and returns the error that an unexpected one stands for.
    fn check_status(
        &self,
        response: &Response<ureq::Body>,
        expected: &[u16],
        wanted: &str,
    ) -> Result<(), ModelError> {
        let status = response.status().as_u16();
        if expected.contains(&status) {
            return Ok(());
        }
        let code = response.headers().get("x-error-code");
        let code = code.and_then(|code| code.to_str().ok()).unwrap_or_default();
        let (id, revision) = (self.repository.id(), self.repository.revision());
        let endpoint = &self.hub.endpoint;
        Err(match (status, code) {
            (_, "RevisionNotFound") => {
                self.error(format!("the repository has no revision `{revision}`"))
            }
            (401 | 403, "GatedRepo") => self.error(format!(
                "access is restricted: accept the conditions at {endpoint}/{id}, and set HF_TOKEN to a token of that account"
            )),
            (401 | 403, _) if wanted != LIST => self.error(format!(
                "{wanted} may not be read (status {status}): set HF_TOKEN to a token that may read it, or try again later"
            )),
            (401 | 403 | 404, _) if wanted == LIST => self.error(format!(
                "there is no directory of that name, and no repository at {endpoint} that may be read: check the name, or \
                 set HF_TOKEN if it is private"
            )),
            (500.., _) => self.network(format!("status {status}")),
            _ => self.unexpected(&format!("with status {status}"), wanted),
        })
    }

    fn error(&self, problem: String) -> ModelError {
        ModelError::Hub(format!("{}: {problem}", self.repository))
    }

    fn network(&self, reason: impl fmt::Display) -> ModelError {
        let endpoint = &self.hub.endpoint;
        let hint = match self.is_in_cache {
            true => "; HF_HUB_OFFLINE=1 uses the files in the cache",
            false => "",
        };
        self.error(format!(
            "there is no directory of that name, and it cannot be downloaded from {endpoint}: {reason}; check the \
             network, or give a local directory; the next attempt resumes a partial download{hint}"
        ))
    }

    fn unexpected(&self, found: &str, wanted: &str) -> ModelError {
        let endpoint = &self.hub.endpoint;
        self.error(format!("{endpoint} responds {found}, wanted {wanted}"))
    }

    fn offline(&self, missing: &str) -> ModelError {
        let cache = self.hub.cache.display();
        self.error(format!(
            "{missing} is not in the cache {cache}, and HF_HUB_OFFLINE is set: unset it once, or name a directory"
        ))
    }
}

/// Links `snapshots/COMMIT/FILE` to `blobs/HASH`.
#[cfg(unix)]
fn link(blob: &Path, path: &Path) -> io::Result<()> {
    let name = blob.file_name().expect("a blob has a name");
    std::os::unix::fs::symlink(Path::new("../../blobs").join(name), path)
}

/// Moves the file, as Hugging Face's libraries do: links need a privilege on Windows.
#[cfg(not(unix))]
fn link(blob: &Path, path: &Path) -> io::Result<()> {
    fs::rename(blob, path)
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

    /// A server that sends no more bytes and keeps the connection.
    #[test]
    fn a_body_that_stalls_is_requested_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut hub = Hub::from_variables(|_| None);
        hub.endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut streams = Vec::new();
            for answer in [
                "200 X\r\nContent-Length: 10\r\n\r\n0123",
                "206 X\r\nContent-Length: 6\r\n\r\n456789",
            ] {
                let mut stream = listener.accept().unwrap().0;
                let head = stream.read(&mut [0; 4096]).unwrap();
                assert!(head > 0);
                stream
                    .write_all(format!("HTTP/1.1 {answer}").as_bytes())
                    .unwrap();
                streams.push(stream);
            }
            streams
        });
        let repository = Repository::parse("owner/name").unwrap();
        let download = Download {
            hub: &hub,
            repository: &repository,
            home: PathBuf::new(),
            locks: PathBuf::new(),
            agent: agent(Duration::from_millis(50)),
            token: None,
            is_in_cache: false,
        };
        let bytes = Sha256::digest(b"0123456789");
        let remote = RemoteFile {
            name: "model.safetensors".to_owned(),
            size: 10,
            checksum: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            is_large: true,
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let filled = download.fill("main", &remote, file.as_file_mut(), &path, &mut |_| ());
        filled.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0123456789");
        server.join().unwrap();
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
