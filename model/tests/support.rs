//! The golden checkpoints, their expected values, and comparisons.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lapwing_model::{
    Adapter, GeneratedReply, GenerationRequest, KvArena, Model, ModelDirectory, ModelError,
    PackedTree, Precision, SamplingOptions, TokenTree, Tokens, generate,
};
use lapwing_tensor::random::Random;
use lapwing_tensor::{Indices, Parameters, Tensor, check};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// Every checkpoint of `fixtures/golden`.
pub const CHECKPOINTS: [&str; 4] = ["qwen2", "qwen2-sharded", "qwen3", "llama"];

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/golden")
        .join(name)
}

pub fn load(name: &str) -> Model {
    Model::load(&check::gpu(), &golden(name), Precision::Auto).unwrap()
}

/// Loads a checkpoint with its adapter.
pub fn load_adapted(name: &str) -> (Model, Adapter, Parameters) {
    let model = load(name);
    let (adapter, parameters) = read_adapter(name, &model, &golden(name).join("adapter")).unwrap();
    (model, adapter, parameters)
}

/// Reads an adapter of a golden checkpoint.
pub fn read_adapter(
    name: &str,
    model: &Model,
    dir: &Path,
) -> Result<(Adapter, Parameters), ModelError> {
    let stored = ModelDirectory::open(&golden(name))?.adapter(dir)?;
    Ok(Adapter::trained(model, &stored))
}

/// The values of transformers and PEFT.
pub struct Expected(Vec<u8>);

impl Expected {
    pub fn of(name: &str) -> Expected {
        Expected(std::fs::read(golden(name).join("expected.safetensors")).unwrap())
    }

    fn bytes(&self, name: &str, dtype: Dtype) -> Vec<[u8; 4]> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file
            .tensor(name)
            .unwrap_or_else(|_| panic!("no {name} among the expected"));
        assert_eq!(tensor.dtype(), dtype);
        tensor.data().as_chunks::<4>().0.to_vec()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        self.bytes(name, Dtype::F32)
            .into_iter()
            .map(f32::from_le_bytes)
            .collect()
    }

    pub fn ids(&self, name: &str) -> Vec<u32> {
        self.bytes(name, Dtype::I32)
            .into_iter()
            .map(u32::from_le_bytes)
            .collect()
    }

    /// Returns the names with this prefix, without it.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let names = file.names();
        names
            .into_iter()
            .filter_map(|name| name.strip_prefix(prefix))
            .map(str::to_owned)
            .collect()
    }
}

/// The largest difference.
pub fn distance(got: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(got.len(), wanted.len(), "lengths");
    let differences = got.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    // A NaN must not get lost in a maximum.
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// The largest magnitude.
pub fn magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Fails unless the largest difference is within `tolerance` of the largest magnitude.
pub fn assert_near(what: &str, got: &[f32], wanted: &[f32], tolerance: f32) {
    let relative = distance(got, wanted) / magnitude(wanted);
    assert!(
        relative <= tolerance,
        "{what}: off by {relative:e} of the largest, allowed {tolerance:e}"
    );
}

/// Log-probs of `ids[1..]`, each after what precedes it.
pub fn log_probs(model: &Model, adapter: Option<&Adapter>, ids: &[u32]) -> Tensor {
    let gpu = model.gpu();
    let hidden = model.forward(&Tokens::sequence(gpu, ids), adapter);
    let rows: Vec<u32> = (0..ids.len() as u32 - 1).collect();
    let (rows, targets) = (Indices::new(gpu, &rows), Indices::new(gpu, &ids[1..]));
    hidden
        .log_probs(&model.head(adapter), &rows, &targets, &[], 1.0)
        .log_probs
}

/// Generates replies without watching the tokens come.
pub fn replies_of(
    model: &Model,
    adapter: Option<&Adapter>,
    arena: &mut KvArena,
    requests: &[GenerationRequest],
    sampling: &SamplingOptions,
) -> Result<Vec<GeneratedReply>, ModelError> {
    generate(model, adapter, arena, requests, sampling, &mut |_, _| true)
}

/// Packs sequences without their last tokens, and lists for every later token the packed row that predicts it.
pub fn pack(sequences: &[Vec<u32>]) -> (PackedTree, Vec<Vec<u32>>) {
    let mut tree = TokenTree::default();
    let nodes: Vec<_> = sequences
        .iter()
        .map(|s| tree.insert(&s[..s.len() - 1]))
        .collect();
    let packed = tree.pack();
    let rows = nodes.iter().map(|&node| packed.path(node)).collect();
    (packed, rows)
}

/// Sequences that begin alike in many ways: each continues a random part of an earlier one, at least its first token.
pub fn related_sequences(seed: u64, count: usize, vocab: u32) -> Vec<Vec<u32>> {
    let mut random = Random::new(seed);
    let mut draw = |below: u32| (random.next_u64() % u64::from(below)) as u32;
    let mut sequences: Vec<Vec<u32>> = vec![(0..12).map(|_| draw(vocab)).collect()];
    while sequences.len() < count {
        let from = &sequences[draw(sequences.len() as u32) as usize];
        let kept = 1 + draw(from.len() as u32 - 2) as usize;
        let mut new = from[..kept].to_vec();
        let more = 2 + draw(9);
        new.extend((0..more).map(|_| draw(vocab)));
        sequences.push(new);
    }
    sequences
}

/// The weights of a checkpoint in one file.
pub const FILE: &str = "model.safetensors";

/// A copy of a golden checkpoint to damage.
pub struct GoldenCopy(pub tempfile::TempDir);

impl GoldenCopy {
    pub fn of(name: &str) -> GoldenCopy {
        let home = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(golden(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with("expected.safetensors") {
                fs::copy(&path, home.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        GoldenCopy(home)
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Changes a JSON file.
    pub fn edit(self, file: &str, change: impl FnOnce(&mut Value)) -> GoldenCopy {
        let path = self.path(file);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, value.to_string()).unwrap();
        self
    }

    /// Changes the header of a safetensors file.
    pub fn edit_header(self, file: &str, change: impl FnOnce(&mut Value)) -> GoldenCopy {
        let path = self.path(file);
        let (mut header, data) = split(&path);
        change(&mut header);
        join(&path, &header, &data);
        self
    }

    /// Changes the data of a safetensors file; the closure is given where a tensor's bytes begin.
    pub fn edit_tensor(
        self,
        file: &str,
        tensor: &str,
        change: impl FnOnce(&mut [u8]),
    ) -> GoldenCopy {
        let path = self.path(file);
        let (header, _) = split(&path);
        let start = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
        let mut bytes = fs::read(&path).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        change(&mut bytes[8 + header + start..]);
        fs::write(&path, bytes).unwrap();
        self
    }

    /// Returns the error of loading this directory without the directory's name. It must come within a second.
    pub fn complaint(&self) -> String {
        let gpu = check::gpu();
        let start = Instant::now();
        let result = Model::load(&gpu, self.0.path(), Precision::Auto);
        let error = result.expect_err("an error").to_string();
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}: {error}",
            start.elapsed()
        );
        error
            .replace(&format!("{}/", self.0.path().display()), "")
            .replace(&self.0.path().display().to_string(), "DIR")
    }
}

/// Writes a safetensors file of a header and what follows it.
pub fn join(path: &Path, header: &Value, data: &[u8]) {
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(path, [&length[..], header.as_bytes(), data].concat()).unwrap();
}

/// The header of a safetensors file and what follows it.
pub fn split(path: &Path) -> (Value, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (
        serde_json::from_slice(&bytes[8..8 + header]).unwrap(),
        bytes[8 + header..].to_vec(),
    )
}
