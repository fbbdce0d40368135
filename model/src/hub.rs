//! Models by name: repositories of the Hugging Face hub, kept in the cache that its own libraries share.
//!
//! `models--OWNER--NAME/refs/REVISION` holds a commit, `snapshots/COMMIT/FILE` links to `blobs/HASH`. What is there is used
//! as it is, without asking the hub. Only the files that are read are downloaded; what was cut off is continued, and
//! nothing is used whose hash is not the hub's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;

use crate::ModelError;
use crate::files::disk;

/// `owner/name` with a revision: a branch, a tag or a commit; `main` if none is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    id: String,
    revision: Option<String>,
}

impl Repository {
    /// Reads `owner/name` or `owner/name@revision`; `None` if it is not of this form.
    pub fn parse(text: &str) -> Option<Repository> {
        let (id, revision) = match text.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (text, None),
        };
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
        let sound = is_name(owner) && is_name(name) && revision.is_none_or(is_revision);
        sound.then(|| Repository {
            id: id.to_owned(),
            revision: revision.map(str::to_owned),
        })
    }

    /// `owner/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The branch, tag or commit.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// The same repository at this commit.
    pub fn at(&self, commit: &str) -> Repository {
        Repository {
            id: self.id.clone(),
            revision: Some(commit.to_owned()),
        }
    }
}

/// As it is read.
impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.revision {
            Some(revision) => write!(f, "{}@{revision}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// A repository's files on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Where they are; files of that commit that no model needs may be missing.
    pub dir: PathBuf,
    /// The commit that they are of, in 40 hexadecimal digits.
    pub commit: String,
}

/// Why a repository cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The hub knows no such repository, or hides it.
    #[error(
        "{repository}: there is no directory of that name, and no repository at {endpoint} that may be read: check the \
         name, or set HF_TOKEN if it is private"
    )]
    NoRepository {
        /// What was asked for.
        repository: Repository,
        /// Of whom.
        endpoint: String,
    },
    /// The repository has no such branch, tag or commit.
    #[error("{repository}: the repository has no revision `{}`", .repository.revision())]
    NoRevision {
        /// What was asked for.
        repository: Repository,
    },
    /// Its owner wants to know who downloads it.
    #[error(
        "{repository}: access is restricted: accept the conditions at {endpoint}/{}, and set HF_TOKEN to a token of that \
         account", .repository.id()
    )]
    Gated {
        /// What was asked for.
        repository: Repository,
        /// Of whom.
        endpoint: String,
    },
    /// It would have to be downloaded, and nothing may be.
    #[error(
        "{repository}: {missing} is not in the cache {}, and HF_HUB_OFFLINE is set: unset it once, or name a directory", .cache.display()
    )]
    Offline {
        /// What was asked for.
        repository: Repository,
        /// What of it.
        missing: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The hub cannot be reached, or stops in the middle of a file.
    #[error(
        "{repository}: cannot be downloaded from {endpoint}: {reason}; what has come so far is kept, so try again (what is \
         in the cache is used without the network if HF_HUB_OFFLINE=1 is set)"
    )]
    Network {
        /// What was asked for.
        repository: Repository,
        /// Of whom.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// The hub answers what it should not.
    #[error("{repository}: {endpoint} answers {found}, wanted {wanted}")]
    Answer {
        /// What was asked for.
        repository: Repository,
        /// Of whom.
        endpoint: String,
        /// The answer.
        found: String,
        /// What it should be.
        wanted: String,
    },
    /// The repository is of something else, or of weights in another format.
    #[error("{repository}: has no {missing}: wanted config.json and *.safetensors")]
    NoModel {
        /// What was asked for.
        repository: Repository,
        /// What it lacks.
        missing: String,
    },
    /// What was downloaded is not what the hub has.
    #[error(
        "{repository}: {file} has the checksum {found}, wanted {wanted}; it was thrown away: try again"
    )]
    Checksum {
        /// What was asked for.
        repository: Repository,
        /// The file.
        file: String,
        /// Of what was downloaded.
        found: String,
        /// What the hub says.
        wanted: String,
    },
    /// The cache or the token cannot be read or written.
    #[error(transparent)]
    File(#[from] ModelError),
}

/// Where models are found by name.
#[derive(Clone)]
pub struct Hub {
    /// The address, without a slash at its end.
    pub endpoint: String,
    /// The folder with a folder for each repository.
    pub cache: PathBuf,
    /// Says who asks, for repositories that are not for everybody.
    pub token: Option<String>,
    /// Use what is in the cache, and no network.
    pub offline: bool,
}

/// What of a repository is read, beside its weights.
const FILES: [&str; 5] = [
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Bytes of the hub's answer about a repository.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Bytes of an index of shards.
const LARGEST_INDEX: u64 = 64 << 20;
/// Times that a file is gone on with after it was cut off, and the pause before the first of them.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

impl Hub {
    /// As Hugging Face's own libraries are told by the environment: HF_ENDPOINT, HF_HUB_CACHE or HF_HOME (else
    /// `~/.cache/huggingface`), HF_TOKEN or HF_TOKEN_PATH (else the token that `hf auth login` has left), HF_HUB_OFFLINE.
    pub fn from_env() -> Hub {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = get("HOME")
            .or_else(|| get("USERPROFILE"))
            .unwrap_or_default();
        let caches = get("XDG_CACHE_HOME").map_or(Path::new(&home).join(".cache"), PathBuf::from);
        let hf_home = get("HF_HOME").map_or(caches.join("huggingface"), PathBuf::from);
        let cache = get("HF_HUB_CACHE").or_else(|| get("HUGGINGFACE_HUB_CACHE"));
        let token_path = get("HF_TOKEN_PATH").map_or(hf_home.join("token"), PathBuf::from);
        let token = get("HF_TOKEN").or_else(|| fs::read_to_string(token_path).ok());
        let endpoint = get("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let is_on = |value: String| ["1", "ON", "YES", "TRUE"].contains(&&*value.to_uppercase());
        Hub {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache: cache.map_or(hf_home.join("hub"), PathBuf::from),
            token: token
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
            offline: get("HF_HUB_OFFLINE").is_some_and(is_on),
        }
    }

    /// The files of a model: from the cache if all that is read is there, else downloaded to it. `progress` is told how
    /// many bytes of how many have come.
    ///
    /// # Errors
    /// If the hub cannot be reached or does not have it, or the cache cannot be written.
    pub fn snapshot(
        &self,
        repository: &Repository,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Snapshot, HubError> {
        let folder = format!("models--{}", repository.id.replace('/', "--"));
        let ask = Asked {
            hub: self,
            repository,
            home: self.cache.join(folder),
            agent: agent(),
        };
        if let Some(commit) = ask.known_commit() {
            let missing = ask.missing(&commit)?;
            // What may be missing is of no use to every model; of a cache that others filled nothing says whether the
            // repository has it.
            let needed = |name: &String| name == CONFIG || name.ends_with(".safetensors");
            let lacking = match self.offline {
                true => missing.iter().find(|name| needed(name)),
                false => missing.first(),
            };
            match lacking {
                None => {
                    let dir = ask.snapshot(&commit);
                    return Ok(Snapshot { dir, commit });
                }
                Some(name) if self.offline => return Err(ask.offline(name)),
                Some(_) => (),
            }
        }
        if self.offline {
            return Err(ask.offline("it"));
        }
        ask.download(progress)
    }
}

fn agent() -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .user_agent(concat!("lapwing/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// A file of a repository.
struct Remote {
    name: String,
    size: u64,
    hash: Hash,
}

/// What a file is checked by, and what it is called in the cache.
#[derive(Clone, PartialEq)]
enum Hash {
    /// Of large files.
    Sha256(String),
    /// Of small files, as git has it.
    GitSha1(String),
}

impl Hash {
    fn text(&self) -> &str {
        match self {
            Hash::Sha256(text) | Hash::GitSha1(text) => text,
        }
    }
}

/// Adds up what has come.
enum Hasher {
    Sha256(Sha256),
    GitSha1(Sha1),
}

impl Hasher {
    fn new(file: &Remote) -> Hasher {
        match file.hash {
            Hash::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Hash::GitSha1(_) => {
                let head = format!("blob {}\0", file.size);
                Hasher::GitSha1(Sha1::new_with_prefix(head))
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::GitSha1(hasher) => hasher.update(bytes),
        }
    }

    fn text(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Hasher::Sha256(hasher) => hex(&hasher.finalize()),
            Hasher::GitSha1(hasher) => hex(&hasher.finalize()),
        }
    }
}

#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The shards that an index names.
fn shards(path: &Path) -> Result<BTreeSet<String>, ModelError> {
    let index = disk::read_json(path, LARGEST_INDEX)?;
    let names = index["weight_map"].as_object().into_iter().flatten();
    let shard = |name: &serde_json::Value| match name.as_str() {
        Some(name) if !name.contains(['/', '\\']) && name.ends_with(".safetensors") => {
            Ok(name.to_owned())
        }
        _ => Err(ModelError::field(
            path,
            "weight_map",
            format!("{name} is not the name of a file in this directory"),
        )),
    };
    names.map(|(_, name)| shard(name)).collect()
}

/// One repository that was asked for.
struct Asked<'a> {
    hub: &'a Hub,
    repository: &'a Repository,
    home: PathBuf,
    agent: Agent,
}

impl Asked<'_> {
    fn snapshot(&self, commit: &str) -> PathBuf {
        self.home.join("snapshots").join(commit)
    }

    /// The commit that the cache knows the revision by.
    fn known_commit(&self) -> Option<String> {
        let revision = self.repository.revision();
        if is_hex(revision, 40) {
            return Some(revision.to_owned());
        }
        let noted = disk::read_text(&self.home.join("refs").join(revision), 64).ok()?;
        let commit = noted.trim();
        is_hex(commit, 40).then(|| commit.to_owned())
    }

    /// What of a commit is neither in the cache nor known not to exist.
    fn missing(&self, commit: &str) -> Result<Vec<String>, ModelError> {
        let (dir, none) = (
            self.snapshot(commit),
            self.home.join(".no_exist").join(commit),
        );
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

    fn download(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Snapshot, HubError> {
        let (commit, files) = self.list()?;
        let dir = self.snapshot(&commit);
        let is_there = |name: &str| dir.join(name).is_file();
        let file = |name: &str| {
            let file = files.get(name);
            file.ok_or_else(|| HubError::NoModel {
                repository: self.repository.clone(),
                missing: name.to_owned(),
            })
        };
        file(CONFIG)?;
        let mut wanted: Vec<&Remote> = FILES.iter().filter_map(|name| files.get(*name)).collect();
        match files.get(SINGLE) {
            Some(single) => wanted.push(single),
            None => {
                let index = file(INDEX).map_err(|_| HubError::NoModel {
                    repository: self.repository.clone(),
                    missing: "model.safetensors".to_owned(),
                })?;
                // What the shards are stands in it.
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
        // As its own libraries note it, so that nobody asks for them again.
        for name in FILES.iter().filter(|name| !files.contains_key(**name)) {
            disk::write_file(&self.home.join(".no_exist").join(&commit).join(name), b"")?;
        }
        let revision = self.repository.revision();
        if revision != commit {
            disk::write_file(&self.home.join("refs").join(revision), commit.as_bytes())?;
        }
        Ok(Snapshot { dir, commit })
    }

    /// The commit of the revision, and its files by name.
    fn list(&self) -> Result<(String, BTreeMap<String, Remote>), HubError> {
        let revision = self.repository.revision().replace('/', "%2F");
        let (endpoint, id) = (&self.hub.endpoint, &self.repository.id);
        let address = format!("{endpoint}/api/models/{id}/revision/{revision}?blobs=true");
        let mut answer = self.get(&address, 0)?;
        self.refuse(&answer, &[200], "what the repository holds")?;
        let body = answer
            .body_mut()
            .with_config()
            .limit(LONGEST_ANSWER)
            .read_to_vec();
        let body = body.map_err(|e| self.network(e))?;
        let wrong = |found: &str| {
            self.answer(
                found.to_owned(),
                "the commit and the files of the repository",
            )
        };
        let info: Info =
            serde_json::from_slice(&body).map_err(|_| wrong("something that cannot be read"))?;
        if !is_hex(&info.sha, 40) {
            return Err(wrong("no commit"));
        }
        let mut files = BTreeMap::new();
        for sibling in info.siblings {
            let name = sibling.rfilename;
            if name.contains(['/', '\\']) || name.starts_with('.') {
                continue;
            }
            let (hash, size) = match (sibling.lfs, sibling.blob_id, sibling.size) {
                (Some(lfs), _, _) if is_hex(&lfs.sha256, 64) => {
                    (Hash::Sha256(lfs.sha256), lfs.size)
                }
                (None, Some(id), Some(size)) if is_hex(&id, 40) => (Hash::GitSha1(id), size),
                _ => return Err(wrong("a file without a checksum")),
            };
            files.insert(name.clone(), Remote { name, size, hash });
        }
        Ok((info.sha, files))
    }

    /// Downloads a file, goes on with it if it was cut off, checks it and puts it into the snapshot.
    fn fetch(
        &self,
        commit: &str,
        remote: &Remote,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), HubError> {
        let blob = self.home.join("blobs").join(remote.hash.text());
        if !blob.is_file() {
            let aside = blob.with_extension("incomplete");
            let failed = |e| ModelError::unwritable(&aside, e);
            let folder = aside.parent().expect("in blobs");
            fs::create_dir_all(folder).map_err(failed)?;
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let mut file = options.open(&aside).map_err(failed)?;
            lock(&file).map_err(failed)?;
            // Another process may have finished it while we waited.
            if !blob.is_file() {
                self.fill(commit, remote, &mut file, &aside, progress)?;
                file.sync_all().map_err(failed)?;
                fs::rename(&aside, &blob).map_err(failed)?;
            } else {
                // Ours alone, and empty: the other's was renamed.
                let _ = fs::remove_file(&aside);
            }
        }
        progress(remote.size);
        let place = self.snapshot(commit).join(&remote.name);
        let failed = |e| ModelError::unwritable(&place, e);
        fs::create_dir_all(self.snapshot(commit)).map_err(failed)?;
        // A link that leads nowhere.
        if disk::exists(&place) && !place.exists() {
            fs::remove_file(&place).map_err(failed)?;
        }
        match link(&blob, &place) {
            // Another process was faster, or the file was there.
            Err(_) if place.exists() => Ok(()),
            linked => Ok(linked.map_err(failed)?),
        }
    }

    /// Fills the file to its size, beginning with what it has.
    fn fill(
        &self,
        commit: &str,
        remote: &Remote,
        file: &mut File,
        aside: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), HubError> {
        let failed = |e| ModelError::unwritable(aside, e);
        let (mut hasher, mut done) = (Hasher::new(remote), 0);
        let mut buffer = vec![0; 1 << 20];
        while done < remote.size {
            let most = buffer.len().min((remote.size - done) as usize);
            let read = file.read(&mut buffer[..most]).map_err(failed)?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            done += read as u64;
        }
        file.set_len(done).map_err(failed)?;
        let (endpoint, id, name) = (&self.hub.endpoint, &self.repository.id, &remote.name);
        let address = format!("{endpoint}/{id}/resolve/{commit}/{name}");
        let mut attempt = 0;
        while done < remote.size {
            let before = done;
            let mut cut = None;
            match self.get(&address, done) {
                Ok(mut answer) => {
                    self.refuse(&answer, &[200, 206], name)?;
                    // A server that does not know how to go on begins again.
                    if done > 0 && answer.status().as_u16() == 200 {
                        (hasher, done) = (Hasher::new(remote), 0);
                        file.set_len(0).map_err(failed)?;
                    }
                    file.seek(SeekFrom::Start(done)).map_err(failed)?;
                    let mut body = answer.body_mut().as_reader();
                    while done < remote.size {
                        let most = buffer.len().min((remote.size - done) as usize);
                        match body.read(&mut buffer[..most]) {
                            Ok(0) => break,
                            Ok(read) => {
                                file.write_all(&buffer[..read]).map_err(failed)?;
                                hasher.update(&buffer[..read]);
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
                if attempt >= ATTEMPTS {
                    let of = remote.size;
                    let short = || self.network(format!("{name} ends after {done} of {of} bytes"));
                    return Err(cut.unwrap_or_else(short));
                }
                std::thread::sleep(PAUSE * (1 << attempt));
            }
        }
        let found = hasher.text();
        if found != remote.hash.text() {
            fs::remove_file(aside).map_err(failed)?;
            return Err(HubError::Checksum {
                repository: self.repository.clone(),
                file: name.clone(),
                found,
                wanted: remote.hash.text().to_owned(),
            });
        }
        Ok(())
    }

    /// The answer to a request for what begins at this byte.
    fn get(&self, address: &str, from: u64) -> Result<Response<ureq::Body>, HubError> {
        let mut request = self.agent.get(address);
        if let Some(token) = &self.hub.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|e| self.network(e))
    }

    /// The error that an answer stands for, unless its status is one of those expected.
    fn refuse(
        &self,
        answer: &Response<ureq::Body>,
        expected: &[u16],
        wanted: &str,
    ) -> Result<(), HubError> {
        let status = answer.status().as_u16();
        if expected.contains(&status) {
            return Ok(());
        }
        let code = answer.headers().get("x-error-code");
        let code = code.and_then(|code| code.to_str().ok()).unwrap_or_default();
        let (repository, endpoint) = (self.repository.clone(), self.hub.endpoint.clone());
        Err(match (status, code) {
            (_, "RevisionNotFound") => HubError::NoRevision { repository },
            (401 | 403, "GatedRepo") => HubError::Gated {
                repository,
                endpoint,
            },
            (401 | 403 | 404, _) => HubError::NoRepository {
                repository,
                endpoint,
            },
            (500.., _) => self.network(format!("status {status}")),
            _ => self.answer(format!("with status {status}"), wanted),
        })
    }

    fn network(&self, reason: impl fmt::Display) -> HubError {
        HubError::Network {
            repository: self.repository.clone(),
            endpoint: self.hub.endpoint.clone(),
            reason: reason.to_string(),
        }
    }

    fn answer(&self, found: String, wanted: &str) -> HubError {
        HubError::Answer {
            repository: self.repository.clone(),
            endpoint: self.hub.endpoint.clone(),
            found,
            wanted: wanted.to_owned(),
        }
    }

    fn offline(&self, missing: &str) -> HubError {
        HubError::Offline {
            repository: self.repository.clone(),
            missing: missing.to_owned(),
            cache: self.hub.cache.clone(),
        }
    }
}

/// Waits until no other process writes this file. The lock goes with the process that has it.
#[cfg(unix)]
fn lock(file: &File) -> std::io::Result<()> {
    Ok(rustix::fs::flock(
        file,
        rustix::fs::FlockOperation::LockExclusive,
    )?)
}

/// Two at a time spoil the file, which its checksum then tells.
#[cfg(not(unix))]
fn lock(_: &File) -> std::io::Result<()> {
    Ok(())
}

/// `snapshots/COMMIT/FILE` to `blobs/HASH`.
#[cfg(unix)]
fn link(blob: &Path, place: &Path) -> std::io::Result<()> {
    let name = blob.file_name().expect("a blob has a name");
    std::os::unix::fs::symlink(Path::new("../../blobs").join(name), place)
}

/// Links are not for everybody there; Hugging Face's own libraries move the file, too.
#[cfg(not(unix))]
fn link(blob: &Path, place: &Path) -> std::io::Result<()> {
    fs::rename(blob, place)
}
