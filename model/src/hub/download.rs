//! The download of a repository's files into the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::Agent;
use ureq::http::Response;

use super::{Hub, HubSnapshot, Repository};
use crate::ModelError;
use crate::files::disk;
use crate::files::gguf::is_gguf;
use crate::files::weight_files::{INDEX, SINGLE, read_index};

/// The files that are read beside the weights.
const FILES: [&str; 5] = [
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
pub(super) const CONFIG: &str = "config.json";

const MAX_RESPONSE_BYTES: u64 = 16 << 20;
/// Requests in a row that may bring no byte of a file before the download fails.
const MAX_ATTEMPTS: u32 = 5;
/// Pause before the second attempt; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How long the hub may send nothing before the next attempt.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(30);
/// What a request for it wants, in messages.
const LIST: &str = "the list of files";

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
pub(super) fn choose_gguf(mut names: Vec<String>, wanted: &str) -> Result<String, String> {
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

pub(super) struct Download<'a> {
    hub: &'a Hub,
    repository: &'a Repository,
    home: PathBuf,
    /// Files that are locked during downloads, as by Hugging Face's libraries. They are never removed: a lock on a removed
    /// file excludes no other process.
    locks: PathBuf,
    agent: Agent,
    pub(super) token: Option<String>,
    /// Whether the cache has all files that a model must have.
    pub(super) is_in_cache: bool,
}

impl<'a> Download<'a> {
    /// Makes one without a token, which fails if the hub sends nothing for this long.
    pub(super) fn new(hub: &'a Hub, repository: &'a Repository, silence: Duration) -> Download<'a> {
        let folder = format!("models--{}", repository.id().replace('/', "--"));
        Download {
            hub,
            repository,
            home: hub.cache.join(&folder),
            locks: hub.cache.join(".locks").join(folder),
            agent: agent(silence),
            token: None,
            is_in_cache: false,
        }
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.home.join("snapshots").join(commit)
    }

    fn not_there(&self, commit: &str) -> PathBuf {
        self.home.join(".no_exist").join(commit)
    }

    /// Returns the commit that the cache has for the revision.
    pub(super) fn known_commit(&self) -> Option<String> {
        let revision = self.repository.revision();
        if is_hex(revision, 40) {
            return Some(revision.to_owned());
        }
        let noted = disk::read_text(&self.home.join("refs").join(revision), 64).ok()?;
        let commit = noted.trim();
        is_hex(commit, 40).then(|| commit.to_owned())
    }

    /// Returns the files of a commit that are not in the cache, except those that are recorded as not existing.
    pub(super) fn missing(&self, commit: &str) -> Result<Vec<String>, ModelError> {
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

    pub(super) fn run(
        &self,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<HubSnapshot, ModelError> {
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
                // The hub is busy.
                Ok(response) if matches!(response.status().as_u16(), 429 | 500..) => {
                    cut = self.check_status(&response, &[], name).err();
                }
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
                attempt = if done > before { 0 } else { attempt + 1 };
                if attempt >= MAX_ATTEMPTS {
                    let size = remote.size;
                    let short =
                        || self.network(format!("{name} ends after {done} of {size} bytes"));
                    return Err(cut.unwrap_or_else(short));
                }
                std::thread::sleep(FIRST_PAUSE * (1 << attempt.saturating_sub(1)));
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

    pub(super) fn offline(&self, missing: &str) -> ModelError {
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
        let download = Download::new(&hub, &repository, Duration::from_millis(50));
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
}
