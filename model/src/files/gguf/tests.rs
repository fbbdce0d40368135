//! GGUF files that are made from the golden checkpoints, and references of llama.cpp's Python package.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use half::{bf16, f16};
use lapwing_tensor::random::Random;
use lapwing_tensor::{OutOfRange, Weight, WeightFormat, WeightRows, check};
use safetensors::SafeTensors;
use serde_json::Value;

use super::*;
use crate::text::to_gguf::gguf_fields;
use crate::{GgufType, Model, ModelDirectory, Precision, TextFiles, Tokens};

const ENCODINGS: [GgufFormat; 8] = {
    use GgufFormat::*;
    [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K]
};

fn golden(name: &str) -> PathBuf {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/golden");
    Path::new(golden).join(name)
}

/// Bytes and values of blocks, by tests/python/gguf_blocks.py.
fn blocks(format: GgufFormat) -> (Vec<u8>, Vec<f32>) {
    let file = fs::read(golden("gguf_blocks.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let part = |part: &str| file.tensor(&format!("{format:?}.{part}")).unwrap().data();
    let values = part("values").as_chunks().0;
    (
        part("bytes").to_vec(),
        values.iter().map(|b| f32::from_le_bytes(*b)).collect(),
    )
}

#[test]
fn blocks_decode_to_the_values_of_llama_cpp() {
    for format in ENCODINGS {
        let (bytes, wanted) = blocks(format);
        assert_eq!(format.to_f32(&bytes), wanted, "{format:?}");
    }
}

/// The device's formats have scales of 16 bits. Those of Q4_K, Q5_K and Q6_K are products of two numbers, which round.
#[test]
fn the_device_holds_the_values_of_the_blocks() {
    let gpu = check::gpu();
    for format in ENCODINGS {
        let (bytes, wanted) = blocks(format);
        let (quants, scales) = format.decode(&bytes);
        let rows = |_| Ok(WeightRows::Quants(quants.clone(), scales.clone()));
        let device = format.device_format();
        let weight: Result<Weight, OutOfRange> = Weight::upload(&gpu, 2, 256, device, rows);
        let weight = weight.unwrap();
        let held = weight.to_vec().unwrap();
        let is_product = format!("{format:?}").ends_with('K');
        for (at, (held, wanted)) in held.iter().zip(&wanted).enumerate() {
            // Scale times quant, and the minimum, are each rounded by 2^-11 of their size at most.
            let [scale, minimum] = scales[at / format.device_format().group().unwrap()];
            let size = (scale * f32::from(quants[at])).abs() + minimum.abs();
            let allowed = if is_product { size / 2048.0 } else { 0.0 };
            assert!(
                (held - wanted).abs() <= allowed,
                "{format:?} {at}: {held} instead of {wanted}"
            );
        }
    }
}

/// A golden checkpoint as a GGUF file, its weights encoded by `encode`, which gets name and values.
struct Converted {
    fields: GgufFields,
    tensors: Vec<(GgufOutput, Vec<u8>)>,
}

impl Converted {
    fn of(dir: &Path, encode: impl Fn(&str, &[f32]) -> (GgufFormat, Vec<u8>)) -> Converted {
        let model = ModelDirectory::open(dir).unwrap();
        let config = model.config();
        let mut fields = fields_of(config);
        let tokenizer = model.text_file("tokenizer.json").unwrap();
        fields.extend(gguf_fields(dir, &tokenizer, config).unwrap());
        let mut tensors = Vec::new();
        for (name, shape) in config.tensors() {
            let mut values = model.weights.read(&name, &shape).unwrap();
            // llama.cpp's converter permutes these rows, and those of no other family.
            let is_rotated = name.contains("q_proj") || name.contains("k_proj");
            if is_rotated && config.family.model_type() == "llama" {
                values = interleaved(
                    &values,
                    config.head_size,
                    shape.get(1).copied().unwrap_or(1),
                );
            }
            let (format, bytes) = match shape.len() {
                1 => (GgufFormat::F32, f32_bytes(&values)),
                _ => encode(&name, &values),
            };
            let tensor = GgufOutput {
                name: tensor_name(&name),
                format,
                shape,
            };
            tensors.push((tensor, bytes));
        }
        if let Some((name, divisors)) = frequency_divisors(config) {
            let tensor = GgufOutput {
                name: name.into(),
                format: GgufFormat::F32,
                shape: vec![divisors.len()],
            };
            tensors.push((tensor, f32_bytes(&divisors)));
        }
        Converted { fields, tensors }
    }

    fn bytes(self) -> Vec<u8> {
        Gguf::encode(&self.fields, &self.tensors)
    }

    fn write(self, home: &Path) -> PathBuf {
        let path = home.join("model.gguf");
        fs::write(&path, self.bytes()).unwrap();
        path
    }
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn in_f16(_: &str, values: &[f32]) -> (GgufFormat, Vec<u8>) {
    let bytes = values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes());
    (GgufFormat::F16, bytes.collect())
}

fn in_f32(_: &str, values: &[f32]) -> (GgufFormat, Vec<u8>) {
    (GgufFormat::F32, f32_bytes(values))
}

#[test]
fn floats_are_decoded() {
    // Exact in 16 bits.
    let values = [1.0, -2.5, 0.0, 0.125];
    let bytes = values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes());
    let in_bf16 = (GgufFormat::BF16, bytes.collect());
    for (format, bytes) in [in_f32("", &values), in_f16("", &values), in_bf16] {
        assert_eq!(format.to_f32(&bytes), values, "{format:?}");
    }
}

fn in_q8(_: &str, values: &[f32]) -> (GgufFormat, Vec<u8>) {
    let format = GgufFormat::Q8_0;
    (format, format.encode(values).unwrap())
}

fn logits(path: &Path) -> Vec<f32> {
    let model = Model::load(&check::gpu(), path, Precision::Stored).unwrap();
    let tokens = Tokens::sequence(model.gpu(), &[5, 9, 120, 33, 33, 7]);
    let hidden = model.forward(&tokens, None);
    hidden.logits(&model.head(None)).to_vec().unwrap()
}

/// Copies the files of a golden checkpoint. Its scaling of the rotation, if any, becomes that of the published models.
fn copy(name: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, home.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let path = home.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let of_tests = "\"original_max_position_embeddings\": 64";
    let published = "\"original_max_position_embeddings\": 8192";
    fs::write(&path, text.replace(of_tests, published)).unwrap();
    home
}

#[test]
fn a_gguf_file_computes_what_its_directory_computes() {
    for name in ["qwen2", "qwen3", "llama"] {
        let home = copy(name);
        let wanted = logits(home.path());
        // The bf16 checkpoints are exact in f32 only.
        let path = Converted::of(home.path(), in_f32).write(home.path());
        let model = ModelDirectory::open(&path).unwrap();
        let mut config = ModelDirectory::open(home.path()).unwrap().config().clone();
        // With that of the tokenizer.
        let stops = model.config().eos.clone();
        assert!(
            config.eos.iter().chain(&[366]).all(|id| stops.contains(id)),
            "{stops:?}"
        );
        config.eos = stops;
        assert_eq!(*model.config(), config, "{name}");
        assert_eq!(logits(&path), wanted, "{name}");
    }
    let home = copy("llama");
    let path = Converted::of(home.path(), in_f16).write(home.path());
    assert_eq!(logits(&path), logits(home.path()));
}

#[test]
fn quantised_weights_stay_quantised_and_compute_what_their_values_do() {
    let home = copy("llama");
    let path = Converted::of(home.path(), in_q8).write(home.path());
    let model = ModelDirectory::open(&path).unwrap();
    let loaded = Model::load(&check::gpu(), &path, Precision::Auto).unwrap();
    let matrices = loaded.report().matrices;
    assert_eq!(
        matrices[WeightFormat::Q8 as usize],
        matrices.iter().sum::<usize>()
    );
    let in_16_bits = ModelDirectory::open(home.path()).unwrap();
    let bytes = |model: &ModelDirectory| model.device_bytes(None) as f64;
    // 9 bits, and more for the heads of short rows.
    assert!(bytes(&model) < 0.75 * bytes(&in_16_bits));

    // The same values in f32.
    let values = |name: &str, values: &[f32]| {
        let (format, bytes) = in_q8(name, values);
        in_f32(name, &format.to_f32(&bytes))
    };
    let exact = copy("llama");
    let exact = Converted::of(exact.path(), values).write(home.path());
    let (got, wanted) = (logits(&path), logits(&exact));
    // Other kernels may sum in another order.
    let spread = wanted.iter().copied().fold(f32::MIN, f32::max)
        - wanted.iter().copied().fold(f32::MAX, f32::min);
    for (got, wanted) in got.iter().zip(&wanted) {
        assert!((got - wanted).abs() < 1e-5 * spread, "{got} {wanted}");
    }
}

#[test]
fn a_checkpoint_is_quantised_when_it_is_loaded() {
    let (dir, gpu) = (golden("llama"), check::gpu());
    let wanted = logits(&dir);
    let spread = |all: &[f32]| {
        let bound = |pick: fn(f32, f32) -> f32| all.iter().copied().reduce(pick).unwrap();
        bound(f32::max) - bound(f32::min)
    };
    // With 32 weights in a range of four standard deviations, rounding to 255 steps changes a product by 0.5 % (root mean
    // square), and to 15 steps by 8 %. The largest of 2,304 logits that pass through fifteen products is off by some times that.
    for (format, tables, allowed) in [(WeightFormat::Q8, 16, 0.02), (WeightFormat::Q4, 2, 0.3)] {
        let model = ModelDirectory::open(&dir).unwrap().quantised(Some(format));
        let bytes = model.device_bytes(None);
        let model = model.load(&gpu, Precision::Auto, &mut |_, _| ()).unwrap();
        let matrices = model.report().matrices;
        // Embedding and head have 8 bits.
        assert_eq!(matrices[WeightFormat::Q8 as usize], tables);
        assert_eq!(matrices.iter().sum::<usize>(), 16);
        assert_eq!(matrices[WeightFormat::Q4 as usize], 16 - tables);
        let tokens = Tokens::sequence(&gpu, &[5, 9, 120, 33, 33, 7]);
        let got = model
            .forward(&tokens, None)
            .logits(&model.head(None))
            .to_vec()
            .unwrap();
        let off = got
            .iter()
            .zip(&wanted)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        println!(
            "{format:?}: {} of the spread, {bytes} bytes",
            off / spread(&wanted)
        );
        assert!(
            off > 0.0 && off < allowed * spread(&wanted),
            "{format:?}: {off}"
        );
    }
}

/// From a directory and from a GGUF file: the weights of the merged directory, each rounded once, and the same texts.
#[test]
fn a_merged_file_holds_the_merged_directory() {
    for name in ["qwen2", "qwen3", "llama"] {
        let base = copy(name);
        let home = tempfile::tempdir().unwrap();
        let file = Converted::of(base.path(), in_f32).write(home.path());
        let dir = home.path().join("merged");
        // In f32, so that it is not rounded.
        let exact = ModelDirectory::open(&file).unwrap();
        let adapter = exact.adapter(&golden(name).join("adapter")).unwrap();
        exact.merge(&adapter, &dir, &mut |_, _| ()).unwrap();
        let wanted = ModelDirectory::open(&dir).unwrap();
        for source in [base.path(), &file] {
            let home = tempfile::tempdir().unwrap();
            let model = ModelDirectory::open(source).unwrap();
            for (to, format) in [
                (GgufType::F16, GgufFormat::F16),
                (GgufType::Q8, GgufFormat::Q8_0),
            ] {
                let out = home.path().join(format!("{to:?}.gguf"));
                let mut steps = Vec::new();
                let progress = &mut |done, total| steps.push((done, total));
                let adapter = Some(&adapter);
                model.merge_gguf(adapter, &out, to, progress).unwrap();
                let again = model.merge_gguf(adapter, &out, to, &mut |_, _| ());
                assert!(again.unwrap_err().to_string().contains("exists"));
                // Merged before, and only converted.
                let converted = home.path().join(format!("{to:?}-converted.gguf"));
                wanted
                    .merge_gguf(None, &converted, to, &mut |_, _| ())
                    .unwrap();
                let converted = ModelDirectory::open(&converted).unwrap();
                let got = ModelDirectory::open(&out).unwrap();
                let (config, own) = (wanted.config(), got.config());
                assert_eq!((own.tied, &own.eos), (config.tied, &config.eos));
                for (tensor, shape) in config.tensors() {
                    let mut values = wanted.weights.read(&tensor, &shape).unwrap();
                    if shape.len() == 2 {
                        let fits = shape[1].is_multiple_of(32);
                        let format = if fits { format } else { GgufFormat::F16 };
                        values = format.to_f32(&format.encode(&values).unwrap());
                    }
                    for file in [&got, &converted] {
                        assert!(
                            file.weights.read(&tensor, &shape).unwrap() == values,
                            "{tensor}"
                        );
                    }
                }
                assert_eq!(steps.last().map(|(done, total)| done == total), Some(true));
                let [ours, theirs] = [&out, &dir].map(|path| TextFiles::trusted(path));
                let [ids, others] = [&ours, &theirs].map(|text| {
                    let tokenizer = text.tokenizer(config).unwrap();
                    tokenizer
                        .encode("I'll count: 1, 23 \n\n naïve<|im_end|>")
                        .unwrap()
                });
                assert_eq!(ids, others);
                let template = |model: &ModelDirectory| {
                    let text = model.text_file("tokenizer_config.json").unwrap();
                    let config: Value = serde_json::from_str(&text).unwrap();
                    config["chat_template"].clone()
                };
                assert_eq!(template(&got), template(&wanted));
            }
        }
    }
}

/// Each change of a tokenizer that the metadata cannot hold.
#[test]
fn a_tokenizer_that_a_gguf_file_cannot_express_is_refused_by_name() {
    type Change = dyn Fn(&mut Value);
    let dir = golden("qwen2");
    let model = ModelDirectory::open(&dir).unwrap();
    let text = model.text_file("tokenizer.json").unwrap();
    let refused = |change: &Change| {
        let mut tokenizer: Value = serde_json::from_str(&text).unwrap();
        change(&mut tokenizer);
        let written = gguf_fields(&dir, &tokenizer.to_string(), model.config());
        let error = written.err().expect("an error").to_string();
        error.split_once("tokenizer.json: ").unwrap().1.to_owned()
    };
    let cases: [(&Change, &str); 7] = [
        (
            &|it| it["model"]["type"] = "Unigram".into(),
            "pre_tokenizer: not a byte-level BPE",
        ),
        (
            &|it| it["normalizer"]["type"] = "NFKC".into(),
            "pre_tokenizer: ",
        ),
        (
            &|it| it["model"]["ignore_merges"] = true.into(),
            "pre_tokenizer: ",
        ),
        (
            &|it| it["model"]["end_of_word_suffix"] = "</w>".into(),
            "model.end_of_word_suffix: found",
        ),
        (
            &|it| it["added_tokens"][0]["rstrip"] = true.into(),
            "added_tokens: \"<|endoftext|>\" has rstrip",
        ),
        (
            &|it| it["added_tokens"][0]["id"] = 99_999.into(),
            "the id of \"<|endoftext|>\" is 99999",
        ),
        (
            &|it| it["post_processor"]["single"] = json!([]),
            "post_processor: it adds other tokens",
        ),
    ];
    for (change, wanted) in cases {
        let error = refused(change);
        assert!(error.starts_with(wanted), "{error}");
    }
    let last = refused(cases[0].0);
    assert!(last.ends_with("(--format hf)"), "{last}");
}

#[test]
fn the_tokenizer_of_the_metadata_is_that_of_the_directory() {
    let dir = golden("qwen2");
    let home = tempfile::tempdir().unwrap();
    let path = Converted::of(&dir, in_f16).write(home.path());
    let config = ModelDirectory::open(&path).unwrap().config().clone();
    let (own, from) = (TextFiles::trusted(&path), TextFiles::trusted(&dir));
    let (own, from) = (
        own.tokenizer(&config).unwrap(),
        from.tokenizer(&config).unwrap(),
    );
    for text in [
        "What is the capital of France?",
        "I'll count: 1, 23, 456 \n\n  naïve café\t北京<|im_end|> e\u{301}",
    ] {
        let ids = own.encode(text).unwrap();
        assert_eq!(ids, from.encode(text).unwrap());
        assert_eq!(own.decode(&ids).unwrap(), from.decode(&ids).unwrap());
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Converted)| {
        let home = copy("llama");
        let mut converted = Converted::of(home.path(), in_f16);
        change(&mut converted);
        let path = converted.write(home.path());
        let error = match ModelDirectory::open(&path) {
            Err(error) => error,
            Ok(model) => {
                let text = TextFiles::trusted(&path);
                let read = text.tokenizer(model.config()).map(|_| ());
                read.expect_err("an error")
            }
        };
        let text = error.to_string();
        text.split_once("model.gguf: ").unwrap().1.to_owned()
    };
    fn set(converted: &mut Converted, name: &str, value: GgufValue) {
        converted.fields.retain(|(field, _)| field != name);
        converted.fields.push((name.to_owned(), value));
    }
    let text = |name: &'static str, value: &'static str| {
        refused(&|it| set(it, name, GgufValue::text(value)))
    };
    assert_eq!(
        text("general.architecture", "gemma3"),
        "general.architecture: \"gemma3\" is not supported; supported are llama, qwen2 and qwen3"
    );
    assert!(
        text("llama.rope.scaling.type", "yarn").starts_with("llama.rope.scaling.type: \"yarn\"")
    );
    assert!(text("tokenizer.ggml.model", "llama").contains("tokenizer.json"));
    assert!(text("tokenizer.ggml.pre", "tekken").starts_with("tokenizer.ggml.pre: \"tekken\""));
    assert_eq!(
        refused(&|it| set(it, "llama.expert_count", GgufValue::count(8))),
        "llama.expert_count: mixtures of experts are not supported"
    );
    assert!(
        refused(&|it| set(it, "split.count", GgufValue::count(2))).contains("llama-gguf-split")
    );
    assert_eq!(
        refused(&|it| set(it, "llama.attention.head_count", GgufValue::count(7))),
        "llama.attention.head_count_kv: 4 does not divide the 7 heads"
    );
    assert_eq!(
        refused(&|it| it.fields.retain(|(name, _)| name != "llama.block_count")),
        "llama.block_count: missing"
    );
    assert_eq!(
        refused(&|it| it.tensors.retain(|(t, _)| t.name != "blk.1.ffn_up.weight")),
        "tensor blk.1.ffn_up.weight: missing"
    );
    let divisors = |it: &mut Converted| {
        let (_, bytes) = it.tensors.last_mut().unwrap();
        bytes[0..4].copy_from_slice(&3f32.to_le_bytes());
    };
    assert!(refused(&divisors).starts_with("tensor rope_freqs.weight: other divisors"));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let complaint = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = ModelDirectory::open(&path).unwrap_err().to_string();
        error.split_once("model.gguf: ").unwrap().1.to_owned()
    };
    assert_eq!(complaint(b""), "empty, not a GGUF file");
    assert_eq!(complaint(b"PK\x03\x04 and so on"), "not a GGUF file");
    assert!(complaint(b"GGUF\x01\0\0\0").starts_with("GGUF version 1 is not supported"));
    assert_eq!(
        complaint(b"GGUF\0\0\0\x03"),
        "big-endian GGUF is not supported"
    );
    let mut whole = Converted::of(&golden("qwen2"), in_f16).bytes();
    assert!(
        complaint(b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0")
            .contains("tensors; at most")
    );
    let listed = whole
        .windows(12)
        .position(|w| w == b"token_embd.w")
        .unwrap();
    // After the name: two axes of 8 bytes, then the encoding.
    let encoding = listed + "token_embd.weight".len() + 4 + 16;
    whole[encoding] = 10;
    assert!(
        complaint(&whole)
            .starts_with("tensor token_embd.weight: Q2_K is not supported; supported are F32, ")
    );
}

/// The low-rank terms in the file, in the order of rows of llama.cpp, are those that a merge adds.
#[test]
fn an_adapter_for_llama_cpp_changes_the_same_weights() {
    let dir = golden("llama");
    let model = ModelDirectory::open(&dir).unwrap();
    let config = model.config();
    let adapter = model.adapter(&dir.join("adapter")).unwrap();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("adapter.gguf");
    fs::write(&path, adapter.to_gguf(config).unwrap()).unwrap();
    let file = Gguf::open(&path).unwrap();
    let field = |name: &str| file.fields().get(name).unwrap().clone();
    assert_eq!(field("general.type"), "adapter");
    assert_eq!(field("adapter.type"), "lora");
    assert_eq!(field("general.architecture"), "llama");
    let alpha = field("adapter.lora.alpha").as_f64().unwrap() as f32;

    let merged = home.path().join("merged");
    model.merge(&adapter, &merged, &mut |_, _| ()).unwrap();
    let merged = ModelDirectory::open(&merged).unwrap();
    let mut changed = 0;
    for (name, shape) in config.tensors() {
        let read = |model: &ModelDirectory| model.weights.read(&name, &shape).unwrap();
        let (mut before, mut after) = (read(&model), read(&merged));
        let own = tensor_name(&name);
        let values = |side: &str| {
            let tensor = file.header.tensors.get(&format!("{own}.lora_{side}"))?;
            Some((
                tensor.shape.clone(),
                tensor.format.to_f32(&file.map[tensor.bytes.clone()]),
            ))
        };
        let (Some((a_shape, a)), Some((b_shape, b))) = (values("a"), values("b")) else {
            assert_eq!(before, after, "{name}");
            continue;
        };
        let (rank, n, k) = (a_shape[0], shape[0], shape[1]);
        assert_eq!((a_shape[1], b_shape), (k, vec![n, rank]));
        if let Some(head) = head_permutation(config, &name) {
            before = interleaved(&before, head, k);
            after = interleaved(&after, head, k);
        }
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            let (row, column) = (at / k, at % k);
            let term = (0..rank)
                .map(|r| b[row * rank + r] * a[r * k + column])
                .sum::<f32>();
            let wanted = before + alpha / rank as f32 * term;
            // The merged weights are in f16.
            let allowed = 1e-6 + wanted.abs() / 1024.0;
            assert!(
                (after - wanted).abs() < allowed,
                "{name} {at}: {after} {wanted}"
            );
        }
        changed += 1;
    }
    assert_eq!(changed, adapter.sites.len());
}

/// Files that are cut off, and files with changed bytes in the header, load or are refused, quickly and without a panic.
#[test]
fn damaged_files_are_refused_quickly() {
    let whole = Converted::of(&golden("llama"), in_q8);
    let tensors: usize = whole.tensors.iter().map(|(_, bytes)| bytes.len()).sum();
    let whole = whole.bytes();
    let header = whole.len() - tensors;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("model.gguf");
    let mut random = Random::new(1);
    let mut refused = 0;
    for case in 0..200 {
        let mut bytes = whole.clone();
        let mut below = |most: usize| (random.uniform() * most as f64) as usize;
        match case % 4 {
            0 => bytes.truncate(below(bytes.len())),
            1 => bytes.truncate(below(header)),
            _ => {
                for _ in 0..1 + below(3) {
                    let at = 4 + below(header - 12);
                    // A length or a count that is far too large, or any byte.
                    match below(2) {
                        0 => bytes[at..at + 8].copy_from_slice(&[0xff; 8]),
                        _ => bytes[at] = below(256) as u8,
                    }
                }
            }
        }
        fs::write(&path, bytes).unwrap();
        let start = Instant::now();
        let opened = ModelDirectory::open(&path);
        let text = TextFiles::trusted(&path);
        match opened {
            Ok(model) => {
                let read = (text.tokenizer(model.config()).err(), text.template().err());
                refused += usize::from(read.0.is_some());
            }
            Err(error) => {
                assert!(error.to_string().contains("model.gguf: "), "{error}");
                refused += 1;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(refused >= 150, "{refused} of 200");
}
