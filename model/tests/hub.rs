//! Downloads from a stub of the hub: its requests, the cache, and the errors.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use lapwing_model::{Hub, HubSnapshot, ModelConfig, ModelDirectory, Repository, TextFiles};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::support::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How the stub behaves; a test changes it while it runs.
#[derive(Default)]
struct HubBehaviour {
    files: BTreeMap<String, Vec<u8>>,
    /// closes the connection after this many bytes of a body, the given number of times
    cuts: Vec<usize>,
    /// sends whole files only
    knows_no_ranges: bool,
    /// sends other bytes than it has
    lies: bool,
    /// responds to addresses with this part with this status and error code
    refusal: Option<(&'static str, u16, &'static str)>,
    /// redirects addresses that begin with the first text to the second one and the rest
    redirect: Option<(&'static str, String)>,
    /// requests: path, first byte, token
    asked: Vec<(String, usize, Option<String>)>,
}

struct HubStub {
    address: String,
    manner: Arc<Mutex<HubBehaviour>>,
}

impl HubStub {
    /// Serves the files of a golden checkpoint, and some that no model needs.
    fn of(name: &str) -> HubStub {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(golden(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with("expected.safetensors") {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
        for other in [
            "README.md",
            "pytorch_model.bin",
            ".gitattributes",
            "onnx/model.onnx",
        ] {
            files.insert(other.to_owned(), b"not read".to_vec());
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let manner = Arc::new(Mutex::new(HubBehaviour {
            files,
            ..HubBehaviour::default()
        }));
        let shared = manner.clone();
        // The thread ends with the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = answer(stream.unwrap(), &shared);
            }
        });
        HubStub { address, manner }
    }

    fn with(&self, change: impl FnOnce(&mut HubBehaviour)) {
        change(&mut self.manner.lock().unwrap());
    }

    fn hub(&self, cache: &Path) -> Hub {
        Hub {
            endpoint: self.address.clone(),
            cache: cache.to_owned(),
            token: None,
            token_file: None,
            offline: false,
        }
    }

    /// Returns the requests since the last call.
    fn asked(&self) -> Vec<(String, usize, Option<String>)> {
        std::mem::take(&mut self.manner.lock().unwrap().asked)
    }
}

/// Large files have a SHA-256, small ones git's SHA-1.
fn is_large(name: &str) -> bool {
    name.ends_with(".safetensors") || name == "tokenizer.json"
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn git_hash(bytes: &[u8]) -> String {
    let head = format!("blob {}\0", bytes.len());
    hex(&Sha1::new_with_prefix(head).chain_update(bytes).finalize())
}

fn info(files: &BTreeMap<String, Vec<u8>>) -> Value {
    let sibling = |(name, bytes): (&String, &Vec<u8>)| {
        let mut sibling =
            json!({"rfilename": name, "size": bytes.len(), "blobId": git_hash(bytes)});
        if is_large(name) {
            let sha256 = hex(&Sha256::digest(bytes));
            sibling["lfs"] = json!({"sha256": sha256, "size": bytes.len(), "pointerSize": 134});
        }
        sibling
    };
    json!({"id": "owner/name", "sha": COMMIT, "siblings": files.iter().map(sibling).collect::<Vec<_>>()})
}

fn answer(stream: TcpStream, manner: &Mutex<HubBehaviour>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap()?;
    let path = first.split(' ').nth(1).unwrap().to_owned();
    let (mut from, mut token) = (0, None);
    for line in lines {
        let line = line?;
        let lower = line.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = lower.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        }
        if lower.starts_with("authorization: ") {
            token = Some(line["authorization: ".len()..].to_owned());
        }
    }
    let mut manner = manner.lock().unwrap();
    manner.asked.push((path.clone(), from, token));
    let send = |status: u16, more: &str, body: &[u8], length: usize| {
        let mut stream = &stream;
        let head = format!(
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)
    };
    if let Some((begin, target)) = &manner.redirect
        && let Some(rest) = path.strip_prefix(begin)
    {
        return send(307, &format!("Location: {target}{rest}\r\n"), b"", 0);
    }
    match manner.refusal {
        Some((part, status, code)) if path.contains(part) => {
            return send(status, &format!("X-Error-Code: {code}\r\n"), b"", 0);
        }
        _ => (),
    }
    if path.starts_with("/api/models/owner/name/revision/") {
        let body = info(&manner.files).to_string();
        return send(200, "", body.as_bytes(), body.len());
    }
    let prefix = format!("/owner/name/resolve/{COMMIT}/");
    let found = path
        .strip_prefix(&prefix)
        .and_then(|name| manner.files.get(name));
    let Some(mut bytes) = found.cloned() else {
        return send(404, "X-Error-Code: EntryNotFound\r\n", b"", 0);
    };
    if manner.lies {
        bytes[0] ^= 1;
    }
    let from = if manner.knows_no_ranges { 0 } else { from };
    let (status, rest) = (if from > 0 { 206 } else { 200 }, &bytes[from..]);
    let is_weights = path.ends_with(".safetensors");
    let sent = match manner.cuts.pop() {
        Some(cut) if is_weights => &rest[..cut.min(rest.len())],
        Some(cut) => {
            manner.cuts.push(cut);
            rest
        }
        None => rest,
    };
    send(status, "", sent, rest.len())
}

fn get(hub: &Hub, name: &str) -> Result<HubSnapshot, String> {
    let repository = Repository::parse(name).unwrap();
    let snapshot = hub.snapshot(&repository, &mut |_, _| ());
    snapshot.map_err(|e| e.to_string().replace(&hub.endpoint, "HUB"))
}

fn files_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_model_is_downloaded_once_without_other_files() {
    for (name, shards) in [("qwen2", 1), ("qwen2-sharded", 6)] {
        let (stub, home) = (HubStub::of(name), tempfile::tempdir().unwrap());
        let hub = stub.hub(home.path());
        let repository = Repository::parse("owner/name").unwrap();
        let mut told = Vec::new();
        let snapshot = hub
            .snapshot(&repository, &mut |done, total| told.push((done, total)))
            .unwrap();
        assert_eq!(snapshot.commit, COMMIT);
        let read = files_in(&snapshot.path);
        let weights = read.iter().filter(|file| file.ends_with(".safetensors"));
        assert_eq!(weights.count(), shards);
        for file in &read {
            let (here, there) = (snapshot.path.join(file), golden(name).join(file));
            assert_eq!(fs::read(here).unwrap(), fs::read(there).unwrap(), "{file}");
        }
        for not_read in ["README.md", "pytorch_model.bin", "chat.json"] {
            assert!(!read.contains(&not_read.to_owned()));
        }
        // Progress rises to the sum of what was missing.
        let (done, total) = *told.last().unwrap();
        assert!(done == total && total > 100_000, "{done} of {total}");
        assert!(told.iter().all(|(_, t)| *t == total) && told.is_sorted());

        let checkpoint = ModelDirectory::open(&snapshot.path).unwrap();
        TextFiles::trusted(&snapshot.path)
            .tokenizer(checkpoint.config())
            .unwrap();
        // In the layout of Hugging Face's libraries.
        let repository = home.path().join("models--owner--name");
        assert_eq!(
            fs::read_to_string(repository.join("refs/main")).unwrap(),
            COMMIT
        );
        let config = fs::read(golden(name).join("config.json")).unwrap();
        assert_eq!(
            fs::read(repository.join("blobs").join(git_hash(&config))).unwrap(),
            config
        );
        assert!(
            files_in(&repository.join("blobs"))
                .iter()
                .all(|blob| !blob.contains('.'))
        );

        // After that there is no request, by branch or by commit.
        assert_eq!(stub.asked().len(), 1 + read.len());
        let offline = Hub {
            offline: true,
            ..hub.clone()
        };
        for hub in [&hub, &offline] {
            assert_eq!(get(hub, "owner/name").unwrap(), snapshot);
            assert_eq!(get(hub, &format!("owner/name@{COMMIT}")).unwrap(), snapshot);
        }
        assert_eq!(stub.asked(), []);
        // Only a missing file is downloaded.
        fs::remove_file(snapshot.path.join("config.json")).unwrap();
        fs::remove_file(repository.join("blobs").join(git_hash(&config))).unwrap();
        get(&hub, "owner/name@refs/pr/1").unwrap();
        let asked: Vec<String> = stub.asked().into_iter().map(|(path, ..)| path).collect();
        let file = format!("/owner/name/resolve/{COMMIT}/config.json");
        assert_eq!(
            asked,
            [
                "/api/models/owner/name/revision/refs%2Fpr%2F1?blobs=true",
                &file
            ]
        );
        assert_eq!(
            fs::read_to_string(repository.join("refs/refs/pr/1")).unwrap(),
            COMMIT
        );
    }
}

#[test]
fn partial_downloads_are_resumed() {
    let weights = fs::read(golden("qwen2").join(FILE)).unwrap();
    let path = format!("/owner/name/resolve/{COMMIT}/{FILE}");
    for knows_no_ranges in [false, true] {
        // Cut off during a download: resumed at once.
        let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
        stub.with(|manner| {
            manner.cuts = vec![20_000, 30_000];
            manner.knows_no_ranges = knows_no_ranges;
        });
        let snapshot = get(&stub.hub(home.path()), "owner/name").unwrap();
        assert_eq!(fs::read(snapshot.path.join(FILE)).unwrap(), weights);
        let from: Vec<usize> = stub
            .asked()
            .iter()
            .filter(|a| a.0 == path)
            .map(|a| a.1)
            .collect();
        let second = if knows_no_ranges { 20_000 } else { 50_000 };
        assert_eq!(from, [0, 30_000, second]);
    }
    // Cut off in every attempt, and resumed by a later call.
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    stub.with(|manner| manner.cuts = vec![0, 0, 0, 0, 0, 30_000]);
    let error = get(&stub.hub(home.path()), "owner/name").unwrap_err();
    assert!(
        error.starts_with(
            "owner/name: there is no directory of that name, and it cannot be downloaded from HUB: "
        ),
        "{error}"
    );
    assert!(
        error.ends_with("; the next attempt resumes a partial download"),
        "{error}"
    );
    let sha256 = hex(&Sha256::digest(&weights));
    let aside = home
        .path()
        .join(format!("models--owner--name/blobs/{sha256}.incomplete"));
    assert_eq!(fs::read(&aside).unwrap(), weights[..30_000]);
    stub.with(|manner| manner.cuts.clear());
    stub.asked();
    let snapshot = get(&stub.hub(home.path()), "owner/name").unwrap();
    assert_eq!(fs::read(snapshot.path.join(FILE)).unwrap(), weights);
    let asked: Vec<_> = stub
        .asked()
        .into_iter()
        .map(|(path, from, _)| (path, from))
        .collect();
    assert_eq!(asked[1..], [(path, 30_000)]);
    assert!(!aside.exists());
}

#[test]
fn files_with_wrong_checksums_are_deleted() {
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    stub.with(|manner| manner.lies = true);
    let hub = stub.hub(home.path());
    let error = get(&hub, "owner/name").unwrap_err();
    let config = fs::read(golden("qwen2").join("config.json")).unwrap();
    let wanted = format!(", wanted {}; it was deleted: try again", git_hash(&config));
    assert!(
        error.starts_with("owner/name: config.json has the checksum "),
        "{error}"
    );
    assert!(error.ends_with(&wanted), "{error}");
    let repository = home.path().join("models--owner--name");
    assert_eq!(files_in(&repository.join("blobs")), [""; 0]);
    assert!(!repository.join("snapshots").exists());
    // Nor is a damaged partial download.
    stub.with(|manner| manner.lies = false);
    let sha256 = hex(&Sha256::digest(
        fs::read(golden("qwen2").join(FILE)).unwrap(),
    ));
    let aside = repository.join(format!("blobs/{sha256}.incomplete"));
    fs::write(&aside, [7; 1000]).unwrap();
    let error = get(&hub, "owner/name").unwrap_err();
    assert!(
        error.contains("model.safetensors has the checksum"),
        "{error}"
    );
    assert!(!aside.exists());
    get(&hub, "owner/name").unwrap();
}

#[test]
fn refusals_are_errors_with_hints() {
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    let hub = stub.hub(home.path());
    let refused = |name: &str, refusal| {
        stub.with(|manner| manner.refusal = Some(refusal));
        get(&hub, name).unwrap_err()
    };
    let none = "owner/name: there is no directory of that name, and no repository at HUB that may be read: check the \
                name, or set HF_TOKEN if it is private";
    assert_eq!(refused("owner/name", ("/api/", 404, "RepoNotFound")), none);
    // Without a token, the hub's response for a private repository and a missing one is the same.
    assert_eq!(refused("owner/name", ("/api/", 401, "RepoNotFound")), none);
    let revision = refused("owner/name@v2", ("/api/", 404, "RevisionNotFound"));
    assert_eq!(
        revision,
        "owner/name@v2: the repository has no revision `v2`"
    );
    let gated = "owner/name: access is restricted: accept the conditions at HUB/owner/name, and set HF_TOKEN to a token \
                 of that account";
    for status in [401, 403] {
        assert_eq!(
            refused("owner/name", ("/resolve/", status, "GatedRepo")),
            gated
        );
    }
    // Of a file, only that it is refused is known.
    for status in [401, 403] {
        let error = refused("owner/name", ("/resolve/", status, ""));
        let wanted = format!(
            "owner/name: config.json may not be read (status {status}): set HF_TOKEN to a token that may read it, or try \
             again later"
        );
        assert_eq!(error, wanted);
    }
    let broken = refused("owner/name", ("/api/", 503, ""));
    assert!(
        broken.contains("cannot be downloaded from HUB: status 503"),
        "{broken}"
    );
    // The token is sent with every request.
    stub.with(|manner| manner.refusal = None);
    stub.asked();
    let with_token = Hub {
        token: Some("hf_secret".into()),
        ..hub.clone()
    };
    get(&with_token, "owner/name").unwrap();
    let wanted = Some("Bearer hf_secret".to_owned());
    assert!(stub.asked().iter().all(|(.., token)| *token == wanted));
}

/// Another port is another server.
#[test]
fn the_token_follows_no_redirect_to_another_server() {
    let (stub, other) = (HubStub::of("qwen2"), HubStub::of("qwen2"));
    let home = tempfile::tempdir().unwrap();
    let hub = Hub {
        token: Some("hf_secret".into()),
        ..stub.hub(home.path())
    };
    let redirect = |from, to: &str| stub.with(|m| m.redirect = Some((from, to.to_owned())));
    let api = "/api/models/owner/name/revision/";
    redirect("/api/models/owner/name/revision/v1", &format!("{api}main"));
    get(&hub, "owner/name@v1").unwrap();
    let wanted = Some("Bearer hf_secret".to_owned());
    assert!(stub.asked().iter().all(|(.., token)| *token == wanted));
    let home = tempfile::tempdir().unwrap();
    let hub = Hub {
        cache: home.path().to_owned(),
        ..hub
    };
    redirect("/owner/", &format!("{}/owner/", other.address));
    get(&hub, "owner/name").unwrap();
    assert!(stub.asked().iter().all(|(.., token)| *token == wanted));
    let asked = other.asked();
    assert!(asked.len() > 3 && asked.iter().all(|(.., token)| token.is_none()));
    redirect("/api/", "/api/");
    let error = get(&hub, "owner/other").unwrap_err();
    assert!(error.contains("too many redirects"), "{error}");
}

#[test]
fn repositories_without_a_model_are_refused() {
    let lacking = |name: &str| {
        let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
        stub.with(|manner| {
            manner.files.remove(name);
        });
        let error = get(&stub.hub(home.path()), "owner/name").unwrap_err();
        assert_eq!(stub.asked().len(), 1, "nothing is downloaded in vain");
        error
    };
    for name in ["config.json", FILE] {
        let wanted = format!("owner/name: has no {name}: wanted config.json and *.safetensors");
        assert_eq!(lacking(name), wanted);
    }
    // A file that not every model has may be missing, and is not requested again.
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    stub.with(|manner| {
        manner.files.remove("generation_config.json");
    });
    let hub = stub.hub(home.path());
    let snapshot = get(&hub, "owner/name").unwrap();
    ModelConfig::read(&snapshot.path).unwrap();
    stub.asked();
    get(&hub, "owner/name").unwrap();
    assert_eq!(stub.asked(), []);
    // Names that lead out of the cache are refused.
    let (stub, home) = (HubStub::of("qwen2-sharded"), tempfile::tempdir().unwrap());
    stub.with(|manner| {
        let index = r#"{"weight_map": {"a": "../../../evil.safetensors"}}"#;
        let index = index.as_bytes().to_vec();
        manner
            .files
            .insert("model.safetensors.index.json".into(), index);
        manner
            .files
            .insert("../../../evil.safetensors".into(), b"evil".to_vec());
    });
    let error = get(&stub.hub(home.path()), "owner/name").unwrap_err();
    assert!(
        error.contains("is not the name of a file in this directory"),
        "{error}"
    );
    assert!(!home.path().join("evil.safetensors").exists());
}

#[test]
fn a_gguf_file_is_selected_by_its_encoding_or_its_name() {
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    for name in [
        "a-Q4_K_M.gguf",
        "a-q8_0.gguf",
        "b-Q8_0.gguf",
        "mmproj-a-f16.gguf",
    ] {
        let bytes = name.as_bytes().to_vec();
        stub.with(|manner| drop(manner.files.insert(name.to_owned(), bytes)));
    }
    let hub = stub.hub(home.path());
    for (wanted, name) in [("q4_k_m", "a-Q4_K_M.gguf"), ("b-Q8_0.gguf", "b-Q8_0.gguf")] {
        let repository = format!("owner/name:{wanted}@main");
        let snapshot = get(&hub, &repository).unwrap();
        assert_eq!(fs::read(&snapshot.path).unwrap(), name.as_bytes());
        let pinned = Repository::parse(&repository)
            .unwrap()
            .at(&snapshot)
            .to_string();
        assert!(
            pinned.starts_with(&format!("owner/name:{name}@0123")),
            "{pinned}"
        );
        assert_eq!(stub.asked().len(), 2, "the list and the file");
        // From the cache.
        assert_eq!(get(&hub, &repository).unwrap(), snapshot);
        assert_eq!(stub.asked().len(), 0);
    }
    let home = tempfile::tempdir().unwrap();
    let hub = stub.hub(home.path());
    let refused = |wanted: &str| get(&hub, &format!("owner/name:{wanted}")).unwrap_err();
    assert_eq!(
        refused("Q8_0"),
        "owner/name:Q8_0: has several GGUF files q8_0: name one of a-q8_0.gguf, b-Q8_0.gguf"
    );
    assert!(
        refused("Q5_K")
            .contains("it has a-Q4_K_M.gguf, a-q8_0.gguf, b-Q8_0.gguf, mmproj-a-f16.gguf")
    );
    stub.with(|manner| drop(manner.files.remove(FILE)));
    let (home, error) = (
        tempfile::tempdir().unwrap(),
        "; it has GGUF files, such as owner/name:a-Q4_K_M.gguf",
    );
    let complaint = get(&stub.hub(home.path()), "owner/name").unwrap_err();
    assert!(complaint.ends_with(error), "{complaint}");
}

#[test]
fn offline_uses_the_cache_only() {
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    let hub = Hub {
        offline: true,
        ..stub.hub(home.path())
    };
    let cache = home.path().display().to_string();
    let error = get(&hub, "owner/name")
        .unwrap_err()
        .replace(&cache, "CACHE");
    let wanted = "owner/name: it is not in the cache CACHE, and HF_HUB_OFFLINE is set: unset it once, or name a directory";
    assert_eq!(error, wanted);
    // A cache of another library that lacks some of the files that we read.
    let repository = home.path().join("models--owner--name");
    let snapshot = repository.join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), COMMIT).unwrap();
    fs::copy(
        golden("qwen2").join("config.json"),
        snapshot.join("config.json"),
    )
    .unwrap();
    let error = get(&hub, "owner/name").unwrap_err();
    assert!(
        error.contains("model.safetensors is not in the cache"),
        "{error}"
    );
    fs::copy(golden("qwen2").join(FILE), snapshot.join(FILE)).unwrap();
    assert_eq!(get(&hub, "owner/name").unwrap().path, snapshot);
    assert_eq!(stub.asked(), []);
    // No server.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let hub = Hub {
        endpoint,
        offline: false,
        ..hub
    };
    let named = get(&hub, "owner/name").unwrap_err();
    let hint = "; HF_HUB_OFFLINE=1 uses the files in the cache";
    assert!(named.ends_with(hint), "{named}");
    let error = get(&hub, "owner/other").unwrap_err();
    assert!(
        error.starts_with("owner/other: there is no directory of that name, and it cannot be downloaded from HUB: "),
        "{error}"
    );
    assert!(!error.contains("HF_HUB_OFFLINE"), "{error}");
}

/// A process that waits for a file does not remove it, and half a file of another program is not used.
#[test]
fn a_download_waits_for_its_lock_and_checks_its_file() {
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    let hub = stub.hub(home.path());
    let weights = fs::read(golden("qwen2").join(FILE)).unwrap();
    let sha256 = hex(&Sha256::digest(&weights));
    let locks = home.path().join(".locks/models--owner--name");
    let blobs = home.path().join("models--owner--name/blobs");
    for folder in [&locks, &blobs] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(blobs.join(&sha256), &weights[..30_000]).unwrap();
    let lock = locks.join(format!("{sha256}.lock"));
    let other = fs::File::create(&lock).unwrap();
    other.lock().unwrap();
    let asked = || stub.manner.lock().unwrap().asked.len();
    std::thread::scope(|scope| {
        let download = scope.spawn(|| get(&hub, "owner/name").unwrap());
        // The list and every file before the weights.
        while asked() < 6 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!((asked(), download.is_finished()), (6, false));
        other.unlock().unwrap();
        let dir = download.join().unwrap().path;
        assert_eq!(fs::read(dir.join(FILE)).unwrap(), weights);
    });
    assert!(lock.exists());
}

/// Concurrent downloads of the same repository share its files.
#[test]
fn concurrent_downloads_share_their_files() {
    let (stub, home) = (HubStub::of("qwen2"), tempfile::tempdir().unwrap());
    let hub = stub.hub(home.path());
    std::thread::scope(|scope| {
        let both = [(); 4].map(|()| scope.spawn(|| get(&hub, "owner/name").unwrap()));
        for one in both {
            let dir = one.join().unwrap().path;
            assert_eq!(files_in(&dir.join("../../blobs")).len(), 6);
            assert_eq!(
                fs::read(dir.join(FILE)).unwrap(),
                fs::read(golden("qwen2").join(FILE)).unwrap()
            );
        }
    });
}
