//! Merged checkpoints against the base with its adapter.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lapwing_model::{Adapter, LoraConfig, Model, ModelDirectory, Precision, Targets};
use lapwing_tensor::check;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::support::*;

fn merge(model: &Path, adapter: &Path, out: &Path) -> Result<(), String> {
    let checkpoint = ModelDirectory::open(model).unwrap();
    let adapter = checkpoint.adapter(adapter).unwrap();
    let merged = checkpoint.merge(&adapter, out, &mut |_, _| ());
    merged.map_err(|e| e.to_string())
}

/// Returns the types and shapes by name of every weight file.
fn layout(dir: &Path) -> BTreeMap<String, BTreeMap<String, (Dtype, Vec<usize>)>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "safetensors")
            || path.ends_with("expected.safetensors")
        {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |(name, view): (String, safetensors::tensor::TensorView)| {
            (name, (view.dtype(), view.shape().to_vec()))
        };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        files.insert(name, file.tensors().into_iter().map(tensor).collect());
    }
    files
}

#[test]
fn a_merged_checkpoint_is_the_base_with_its_adapter() {
    for name in CHECKPOINTS {
        let (home, base) = (tempfile::tempdir().unwrap(), GoldenCopy::of(name));
        let out = home.path().join("merged");
        merge(base.0.path(), &golden(name).join("adapter"), &out).unwrap();
        assert_eq!(layout(&out), layout(base.0.path()), "{name}");
        for entry in fs::read_dir(base.0.path()).unwrap() {
            let file = entry.unwrap().file_name();
            assert!(out.join(&file).exists(), "{name}: {file:?} is missing");
        }

        let adapter = golden(name).join("adapter");
        let terms = values(&adapter.join("adapter_model.safetensors"));
        let json = fs::read(adapter.join("adapter_config.json")).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let scale = json["lora_alpha"].as_f64().unwrap() / json["r"].as_f64().unwrap();
        let mut changed = 0;
        for file in layout(&out).keys() {
            let (before, after) = (values(&base.0.path().join(file)), values(&out.join(file)));
            for (tensor, (dtype, shape, values)) in &before {
                let module = tensor.strip_suffix(".weight").unwrap_or(tensor);
                let term =
                    |side| terms.get(&format!("base_model.model.{module}.lora_{side}.weight"));
                let (Some(a), Some(b)) = (term("A"), term("B")) else {
                    assert_eq!(after[tensor].2, *values, "{name}: {tensor}");
                    continue;
                };
                changed += 1;
                let (rank, cols) = (a.1[0], shape[1]);
                // Rounded once to the type of the file, after sums of few products in f32.
                let rounding = match dtype {
                    Dtype::BF16 => 2f64.powi(-8),
                    Dtype::F16 => 2f64.powi(-11),
                    _ => 2f64.powi(-24),
                };
                for (at, (merged, base)) in after[tensor].2.iter().zip(values).enumerate() {
                    let (n, k) = (at / cols, at % cols);
                    let low: f64 = (0..rank)
                        .map(|r| b.2[n * rank + r] * a.2[r * cols + k])
                        .sum();
                    let exact = base + scale * low;
                    let allowed = rounding * exact.abs() * 1.01 + 1e-6;
                    assert!(
                        (merged - exact).abs() <= allowed,
                        "{name}: {tensor}: {merged} for {exact}"
                    );
                }
            }
        }
        assert_eq!(changed * 2, terms.len(), "{name}: every term went in");
    }
}

/// Type, shape and values of every tensor of a file.
fn values(path: &Path) -> BTreeMap<String, (Dtype, Vec<usize>, Vec<f64>)> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let read = |view: &safetensors::tensor::TensorView| -> Vec<f64> {
        let pairs = view.data().as_chunks::<2>().0.iter();
        match view.dtype() {
            Dtype::BF16 => pairs
                .map(|b| half::bf16::from_le_bytes(*b).to_f64())
                .collect(),
            Dtype::F16 => pairs
                .map(|b| half::f16::from_le_bytes(*b).to_f64())
                .collect(),
            Dtype::F64 => {
                let words = view.data().as_chunks::<8>().0.iter();
                words.map(|b| f64::from_le_bytes(*b)).collect()
            }
            Dtype::F32 => {
                let words = view.data().as_chunks::<4>().0.iter();
                words.map(|b| f64::from(f32::from_le_bytes(*b))).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let tensor = |(name, view): (String, safetensors::tensor::TensorView)| {
        (name, (view.dtype(), view.shape().to_vec(), read(&view)))
    };
    file.tensors().into_iter().map(tensor).collect()
}

/// An adapter of these layers whose B is not zero.
fn random_adapter(model: &Model, targets: Targets, dir: &Path) {
    let config = LoraConfig {
        rank: 3,
        alpha: 5.0,
        rslora: true,
        targets,
    };
    let (adapter, mut parameters) = Adapter::new(model, config, 5).unwrap();
    let mut state = parameters.state().unwrap();
    for (t, tensor) in state.iter_mut().enumerate() {
        for (i, value) in tensor.values.iter_mut().enumerate() {
            *value = ((i * 37 + t * 11) % 17) as f32 / 170.0 - 0.05;
        }
    }
    parameters.restore(&state, 0);
    adapter.save(dir, "base").unwrap();
}

/// The written head is the embedding with the head's term, rounded once, and the embedding is unchanged.
fn assert_head(adapter: &Path, base: &Path, merged: &Path) {
    let find = |dir: &Path, tensor: &str| {
        let files = layout(dir);
        let holding = files
            .iter()
            .find(|(_, tensors)| tensors.contains_key(tensor));
        values(&dir.join(holding.unwrap().0))
            .remove(tensor)
            .unwrap()
    };
    let (dtype, shape, embedding) = find(base, "model.embed_tokens.weight");
    assert_eq!(find(merged, "model.embed_tokens.weight").2, embedding);
    let (head_dtype, head_shape, head) = find(merged, "lm_head.weight");
    assert_eq!((head_dtype, &head_shape), (dtype, &shape));
    let terms = values(&adapter.join("adapter_model.safetensors"));
    let term = |side| &terms[&format!("base_model.model.lm_head.lora_{side}.weight")].2;
    let (a, b, cols) = (term("A"), term("B"), shape[1]);
    let scale = 5.0 / 3f64.sqrt();
    let rounding = if dtype == Dtype::BF16 {
        2f64.powi(-8)
    } else {
        2f64.powi(-24)
    };
    for (at, (head, embedding)) in head.iter().zip(&embedding).enumerate() {
        let (n, k) = (at / cols, at % cols);
        let low: f64 = (0..3).map(|r| b[n * 3 + r] * a[r * cols + k]).sum();
        let exact = embedding + scale * low;
        let allowed = rounding * exact.abs() * 1.01 + 1e-6;
        assert!((head - exact).abs() <= allowed, "{head} for {exact}");
    }
}

#[test]
fn a_tied_head_that_an_adapter_changes_becomes_a_head_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let tied: Vec<&str> = CHECKPOINTS
        .into_iter()
        .filter(|name| load(name).config().tied)
        .collect();
    assert!(tied.len() > 1);
    for name in tied {
        let base = GoldenCopy::of(name);
        let (adapter_dir, out) = (
            home.path().join(format!("{name}-a")),
            home.path().join(name),
        );
        let model = load(name);
        random_adapter(
            &model,
            Targets::Pattern("lm_head|.*v_proj".into()),
            &adapter_dir,
        );
        merge(base.0.path(), &adapter_dir, &out).unwrap();

        let merged = Model::load(&check::gpu(), &out, Precision::Auto).unwrap();
        assert!(!merged.config().tied);
        let (adapter, _) = read_adapter(name, &model, &adapter_dir).unwrap();
        let ids = Expected::of(name).ids("ids3");
        let wanted = log_probs(&model, Some(&adapter), &ids).to_vec().unwrap();
        let got = log_probs(&merged, None, &ids).to_vec().unwrap();
        let worst = distance(&got, &wanted);
        println!("{name}: log-probs off by {worst:e}");
        // The merged weights are rounded to the type of the file, bf16 or f32.
        let tolerance = if name == "qwen2-sharded" { 1e-4 } else { 0.5 };
        assert!(worst <= tolerance, "{name}: off by {worst:e}");
        assert_head(&adapter_dir, base.0.path(), &out);
        let index = out.join("model.safetensors.index.json");
        if index.exists() {
            let index: Value = serde_json::from_slice(&fs::read(index).unwrap()).unwrap();
            let map = &index["weight_map"];
            assert_eq!(map["lm_head.weight"], map["model.embed_tokens.weight"]);
        }
    }
}

#[test]
fn a_failed_merge_leaves_no_files() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("precious"), "").unwrap();
    let adapter = golden("qwen2").join("adapter");
    let error = merge(&golden("qwen2"), &adapter, &out).unwrap_err();
    assert!(
        error.ends_with("out: exists and is not empty: choose another directory"),
        "{error}"
    );
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);

    let file = home.path().join("notes.txt");
    fs::write(&file, "precious").unwrap();
    let error = merge(&golden("qwen2"), &adapter, &file).unwrap_err();
    assert!(
        error.ends_with("notes.txt: exists and is not a directory: choose another name"),
        "{error}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    let error = merge(&golden("qwen2"), &adapter, Path::new("..")).unwrap_err();
    assert!(error.contains("has no name; name a directory"), "{error}");

    // A tensor without values, of which a file may say that it has many rows.
    let endless = GoldenCopy::of("qwen2").edit_header(FILE, |header| {
        header["endless"] = serde_json::json!({
            "dtype": "F32", "shape": [1_u64 << 60, 0], "data_offsets": [0, 0],
        });
    });
    merge(endless.0.path(), &adapter, &home.path().join("endless")).unwrap();
    fs::remove_dir_all(home.path().join("endless")).unwrap();

    // Tensors that the adapter does not change are checked, too.
    let damaged = GoldenCopy::of("qwen2").edit_tensor(FILE, "model.norm.weight", |data| {
        data[..2].copy_from_slice(&[0x80, 0x7f]);
    });
    let error = merge(damaged.0.path(), &adapter, &home.path().join("damaged")).unwrap_err();
    let wanted = "tensor model.norm.weight: holds inf in row 0; the checkpoint is damaged";
    assert!(error.ends_with(wanted), "{error}");

    // A head that overflows f16 with the adapter.
    let model = load("llama");
    let dir = home.path().join("large");
    let targets = Targets::Names(vec!["lm_head".into()]);
    let config = LoraConfig {
        rank: 1,
        alpha: 1e8,
        rslora: false,
        targets,
    };
    let (adapter, mut parameters) = Adapter::new(&model, config, 5).unwrap();
    let mut state = parameters.state().unwrap();
    state.iter_mut().for_each(|tensor| tensor.values.fill(1.0));
    parameters.restore(&state, 0);
    adapter.save(&dir, "llama").unwrap();
    let merged = home.path().join("merged");
    let error = merge(&golden("llama"), &dir, &merged).unwrap_err();
    let wanted = "merged/model.safetensors: tensor lm_head.weight: with the adapter it holds values that F16 cannot";
    assert!(error.ends_with(wanted), "{error}");
    let left: Vec<_> = fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

/// A link may lead to a private file.
#[cfg(unix)]
#[test]
fn links_that_lead_elsewhere_are_not_followed() {
    use std::os::unix::fs::symlink;
    let home = tempfile::tempdir().unwrap();
    let secret = home.path().join("secret");
    fs::write(&secret, "private").unwrap();
    let adapter = golden("qwen2").join("adapter");
    let out = home.path().join("out");
    for name in [
        "merges.txt",
        "generation_config.json",
        "chat_template.jinja",
    ] {
        let base = GoldenCopy::of("qwen2");
        let _ = fs::remove_file(base.path(name));
        // The loader reads it.
        if name == "generation_config.json" {
            fs::write(&secret, "{}").unwrap();
        }
        symlink(&secret, base.path(name)).unwrap();
        let error = merge(base.0.path(), &adapter, &out).unwrap_err();
        let wanted = format!("{name}: leads out of the directory, to ");
        assert!(error.contains(&wanted), "{error}");
        assert!(!out.exists());
    }
    // Links within the directory are followed.
    let base = GoldenCopy::of("qwen2");
    symlink("tokenizer_config.json", base.path("same.json")).unwrap();
    merge(base.0.path(), &adapter, &out).unwrap();
    assert!(!out.join("same.json").is_symlink());

    // Hugging Face's cache consists of links: snapshots/COMMIT/FILE to blobs/HASH.
    let cache = home.path().join("models--a--b");
    let (blobs, snapshot) = (cache.join("blobs"), cache.join("snapshots/0123"));
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    for entry in fs::read_dir(base.0.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        fs::copy(&path, blobs.join(format!("hash-{name}"))).unwrap();
        symlink(format!("../../blobs/hash-{name}"), snapshot.join(name)).unwrap();
    }
    let out = home.path().join("from-cache");
    merge(&snapshot, &adapter, &out).unwrap();
    assert_eq!(
        fs::read(out.join("tokenizer.json")).unwrap(),
        fs::read(base.path("tokenizer.json")).unwrap()
    );
    symlink("../../../secret", snapshot.join("notes.txt")).unwrap();
    let error = merge(&snapshot, &adapter, &home.path().join("again")).unwrap_err();
    assert!(
        error.contains("notes.txt: leads out of the directory"),
        "{error}"
    );
}

#[test]
fn large_companion_files_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let base = GoldenCopy::of("qwen2");
    // A sparse file takes no space.
    let file = fs::File::create(base.path("data.txt")).unwrap();
    file.set_len((256 << 20) + 1).unwrap();
    let (adapter, out) = (golden("qwen2").join("adapter"), home.path().join("out"));
    let error = merge(base.0.path(), &adapter, &out).unwrap_err();
    let wanted = "data.txt: larger than 256 MiB; files beside the weights are copied with them: move it elsewhere";
    assert!(error.ends_with(wanted), "{error}");
    file.set_len(256 << 20).unwrap();
    for number in 0..4 {
        let more = fs::File::create(base.path(&format!("more-{number}.txt"))).unwrap();
        more.set_len(256 << 20).unwrap();
    }
    let error = merge(base.0.path(), &adapter, &out).unwrap_err();
    assert!(
        error.contains("with the files before it, larger than 1024 MiB"),
        "{error}"
    );
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}
