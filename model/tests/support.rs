//! The golden checkpoints, what their libraries compute with them, and ways to compare.

use std::path::{Path, PathBuf};

use lapwing_model::{Adapter, LoadOptions, Model, PackedTree, TokenTree, Tokens};
use lapwing_tensor::{Indices, Parameters, Tensor, testing};
use safetensors::{Dtype, SafeTensors};

/// Every checkpoint of `fixtures/golden`.
pub const CHECKPOINTS: [&str; 4] = ["qwen2", "qwen2-sharded", "qwen3", "llama"];

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/golden")
        .join(name)
}

pub fn load(name: &str) -> Model {
    Model::load(&testing::gpu(), &golden(name), &LoadOptions::default()).unwrap()
}

/// A checkpoint with the adapter that lies beside it.
pub fn load_adapted(name: &str) -> (Model, Adapter, Parameters) {
    let model = load(name);
    let (adapter, parameters) = Adapter::load(&model, &golden(name).join("adapter")).unwrap();
    (model, adapter, parameters)
}

/// What transformers and PEFT computed.
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

    /// The parts of the names that begin so.
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
        .log_probs(&model.head(adapter), &rows, &targets, 1.0)
        .log_probs
}

/// Packs sequences without their last tokens, and lists for every later token the packed row that predicts it.
pub fn pack(sequences: &[Vec<u32>]) -> (PackedTree, Vec<Vec<u32>>) {
    let mut tree = TokenTree::new();
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
    let mut state = seed;
    let mut draw = |below: u32| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((state >> 33) as u32) % below
    };
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
