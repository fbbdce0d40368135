//! Reads and writes adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::BTreeSet;
use std::path::Path;

use lapwing_tensor::NamedValues;
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::site::LoraSite;
use super::targets::{every_layer, matches, pattern_key};
use crate::decoder::{EMBEDDING, HEAD};
use crate::files::disk;
use crate::files::fields::{JsonFields, read_object};
use crate::files::weight_files::{self, WeightFiles};
use crate::{Linear, LoraConfig, ModelConfig, ModelError, Targets};

const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
/// PEFT's prefix for the names of the base model.
const PREFIX: &str = "base_model.model.";

/// An adapter that is read from its files and fits a model's config. Nothing is on a device yet.
#[derive(Debug)]
pub struct StoredAdapter {
    pub(crate) config: LoraConfig,
    pub(crate) sites: Vec<LoraSite>,
    /// A and B of each site, in that order.
    pub(crate) tensors: Vec<NamedValues>,
    weights: WeightFiles,
    /// Tables that PEFT copied from the base: the name in the file and the name in the base.
    copies: Vec<(String, String)>,
}

impl StoredAdapter {
    /// Returns the name of the model that the adapter of a PEFT directory was trained on, if the directory has it.
    ///
    /// # Errors
    /// If `adapter_config.json` is missing or damaged.
    pub fn base(dir: &Path) -> Result<Option<String>, ModelError> {
        let path = dir.join(CONFIG);
        let map = read_object(&path)?;
        let name = JsonFields::new(&path, &map).text("base_model_name_or_path")?;
        Ok(name.map(str::to_owned))
    }

    /// Reads a PEFT directory.
    ///
    /// # Errors
    /// A file is missing, damaged, not supported or made for another model; the error names file and field or tensor.
    pub fn read(model: &ModelConfig, dir: &Path) -> Result<StoredAdapter, ModelError> {
        let path = dir.join(CONFIG);
        let map = read_object(&path)?;
        let fields = JsonFields::new(&path, &map);
        let config = read_config(&fields)?;
        let weights = open_weights(dir)?;
        let mut layers = every_layer(model);
        layers.retain(|&(layer, linear)| {
            let names = LoraSite::names_of(layer, linear);
            names.iter().any(|name| weights.contains(name))
        });
        let ranks = pattern(&fields, "rank_pattern", &layers)?;
        let alphas = pattern(&fields, "alpha_pattern", &layers)?;
        let numbers = ranks.into_iter().zip(alphas);
        let site = |(&(layer, linear), (rank, alpha)): (_, (Option<f64>, Option<f64>))| LoraSite {
            layer,
            linear,
            rank: rank.map_or(config.rank, |rank| rank as usize),
            alpha: alpha.unwrap_or(config.alpha),
        };
        let sites: Vec<LoraSite> = layers.iter().zip(numbers).map(site).collect();
        let copies = copies(&weights, &sites)?;
        let mut tensors = Vec::new();
        for site in &sites {
            for (name, shape) in site.names().into_iter().zip(site.shapes(model)) {
                let values = weights.read(&name, &shape)?;
                tensors.push((name, shape, values));
            }
        }
        for (copy, _) in &copies {
            weights.check(copy, &[model.vocab, model.width])?;
        }
        let targets = Targets::of(&layers, model);
        let config = LoraConfig { targets, ..config };
        Ok(StoredAdapter {
            config,
            sites,
            tensors,
            weights,
            copies,
        })
    }

    /// Checks that copied tables are equal to the base's: PEFT stores embedding and head beside an adapter of the head.
    pub(crate) fn check_copies(
        &self,
        model: &ModelConfig,
        base: &WeightFiles,
    ) -> Result<(), ModelError> {
        let at_once = ((1 << 20) / model.width).max(1);
        for (copy, original) in &self.copies {
            // A tied head is usually stored as the embedding only.
            let is_stored = base.contains(original);
            let original = if is_stored { original } else { EMBEDDING };
            for first in (0..model.vocab).step_by(at_once) {
                let rows = first..model.vocab.min(first + at_once);
                let theirs = self.weights.read_rows(copy, rows.clone())?;
                let ours = base.read_rows(original, rows)?;
                // Either may be rounded to bf16, which has 8 significant bits.
                let same =
                    |(a, b): (&f32, &f32)| (a - b).abs() <= a.abs().max(b.abs()) / 128.0 + 1e-6;
                if let Some(at) = theirs.iter().zip(&ours).position(|pair| !same(pair)) {
                    let row = first + at / model.width;
                    let problem = format!(
                        "row {row} is not that of the base model; an adapter that brings its own table is not supported"
                    );
                    let path = self.weights.path_of(copy);
                    return Err(ModelError::tensor(path, copy, problem));
                }
            }
        }
        Ok(())
    }

    /// Returns the path of the weights.
    pub(crate) fn path(&self) -> &Path {
        self.weights.path_of("")
    }

    /// Returns the largest rank.
    pub fn rank(&self) -> usize {
        self.sites.iter().map(|site| site.rank).max().unwrap_or(0)
    }

    /// Returns the number of trained numbers.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(|(_, _, v)| v.len() as u64).sum()
    }
}

fn open_weights(dir: &Path) -> Result<WeightFiles, ModelError> {
    let path = dir.join(WEIGHTS);
    if !disk::exists(&path) && disk::exists(&dir.join("adapter_model.bin")) {
        let problem = "missing; there is an adapter_model.bin, which can run code when it is opened: save the adapter as \
                       safetensors";
        return Err(ModelError::file(&path, problem));
    }
    WeightFiles::open_file(&path)
}

/// Reads `adapter_config.json`. The adapted layers are read from the weights instead.
fn read_config(fields: &JsonFields) -> Result<LoraConfig, ModelError> {
    match fields.text("peft_type")? {
        Some("LORA") => (),
        other => {
            let found = other.unwrap_or("nothing");
            let problem = format!("\"{found}\" is not supported, only LORA");
            return Err(fields.wrong("peft_type", problem));
        }
    }
    let off = [
        "use_dora",
        "fan_in_fan_out",
        "lora_bias",
        "use_qalora",
        "use_bdlora",
    ];
    for field in off {
        if fields.flag(field)? {
            return Err(fields.wrong(field, "true is not supported"));
        }
    }
    // Some initialisations change the base, too, so only those that do not are accepted. EVA sets A from the data.
    const HARMLESS: [&str; 3] = ["gaussian", "eva", "orthogonal"];
    match fields.get("init_lora_weights") {
        None | Some(Value::Bool(_)) => (),
        Some(Value::String(name)) if HARMLESS.contains(&name.to_lowercase().as_str()) => (),
        Some(other) => {
            let problem = format!(
                "{other} is not supported, since it may change the base model too, as PiSSA does; supported are \
                     true, false and {}; convert the adapter with PEFT's path_initial_model_for_weight_conversion",
                HARMLESS.map(|name| format!("\"{name}\"")).join(", ")
            );
            return Err(fields.wrong("init_lora_weights", problem));
        }
    }
    if !matches!(fields.text("bias")?, None | Some("none")) {
        return Err(fields.wrong("bias", "only \"none\" is supported"));
    }
    let empty = |value: &Value| match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let unsupported = [
        "modules_to_save",
        "layer_replication",
        "trainable_token_indices",
        "target_parameters",
        "alora_invocation_tokens",
    ];
    for field in unsupported {
        if fields.get(field).is_some_and(|value| !empty(value)) {
            return Err(fields.wrong(field, "not supported"));
        }
    }
    Ok(LoraConfig {
        rank: fields.required_count("r", MOST_RANK)?,
        // PEFT's default.
        alpha: fields.positive("lora_alpha")?.unwrap_or(8.0),
        rslora: fields.flag("use_rslora")?,
        targets: Targets::default(),
    })
}

const MOST_RANK: usize = 1 << 16;

/// The most linear layers of a model.
const MOST_KEYS: usize = 1 << 13;

/// Returns the number that `rank_pattern` or `alpha_pattern` has for each layer: that of the first key that matches, as in PEFT.
fn pattern(
    fields: &JsonFields,
    field: &str,
    layers: &[(usize, Linear)],
) -> Result<Vec<Option<f64>>, ModelError> {
    let mut found = vec![None; layers.len()];
    let Some(inner) = fields.object(field)? else {
        return Ok(found);
    };
    if inner.names().count() > MOST_KEYS {
        return Err(fields.wrong(field, format!("has more than {MOST_KEYS} entries")));
    }
    let wrong = |e: ModelError| fields.wrong(field, e);
    for key in inner.names() {
        let number = match field {
            "rank_pattern" => inner.required_count(key, MOST_RANK)? as f64,
            _ => inner.required_positive(key)?,
        };
        let regex = pattern_key(key).map_err(wrong)?;
        for (found, (layer, linear)) in found.iter_mut().zip(layers) {
            if found.is_none() && matches(&regex, &linear.module(*layer)).map_err(wrong)? {
                *found = Some(number);
            }
        }
    }
    Ok(found)
}

/// Returns the copies of the base's tables. Every other tensor must be A or B of a site.
fn copies(weights: &WeightFiles, sites: &[LoraSite]) -> Result<Vec<(String, String)>, ModelError> {
    let known: BTreeSet<String> = sites.iter().flat_map(LoraSite::names).collect();
    let mut copies = Vec::new();
    for name in weights.names().filter(|&name| !known.contains(name)) {
        match copied(name) {
            Some(original) => copies.push((name.to_owned(), original)),
            None => {
                let problem = match name.contains("lora_embedding") {
                    true => "an adapted embedding is not supported",
                    false => OTHER_MODEL,
                };
                return Err(ModelError::tensor(weights.path_of(name), name, problem));
            }
        }
    }
    if sites.is_empty() {
        let problem = "holds no low-rank term";
        return Err(ModelError::file(weights.path_of(""), problem));
    }
    Ok(copies)
}

const OTHER_MODEL: &str =
    "this model has no linear layer of that name; is it the adapter of another model?";

/// Returns the name of a table in the base, if this is the name of a copy.
fn copied(name: &str) -> Option<String> {
    let original = name.strip_prefix(PREFIX)?.replace(".base_layer.", ".");
    [EMBEDDING, HEAD]
        .contains(&original.as_str())
        .then_some(original)
}

/// Writes a PEFT directory atomically. PEFT loads the base model from `base`; `tensors` are A and B of each site.
pub(super) fn write(
    dir: &Path,
    base: &str,
    config: &LoraConfig,
    sites: &[LoraSite],
    tensors: &[NamedValues],
) -> Result<(), ModelError> {
    let path = dir.join(WEIGHTS);
    let bytes = weight_files::serialize(tensors, Dtype::F32).map_err(|tensor| {
        let problem = "holds values that are not finite; not saved";
        ModelError::tensor(&path, &tensor, problem)
    })?;
    let json = serde_json::to_string_pretty(&config_json(base, config, sites));
    let json = json.expect("JSON from JSON");
    disk::write_directory_atomically(dir, |new| {
        disk::write_atomically(&new.join(WEIGHTS), &bytes)?;
        disk::write_atomically(&new.join(CONFIG), json.as_bytes())
    })
}

/// Returns every field that any version of PEFT has had for plain LoRA.
fn config_json(base: &str, config: &LoraConfig, sites: &[LoraSite]) -> Value {
    let differing = |of: &dyn Fn(&LoraSite) -> Option<Value>| -> Map<String, Value> {
        let named = |site: &LoraSite| Some((site.linear.module(site.layer), of(site)?));
        sites.iter().filter_map(named).collect()
    };
    let ranks = differing(&|s| (s.rank != config.rank).then(|| json!(s.rank)));
    let alphas = differing(&|s| (s.alpha != config.alpha).then(|| number(s.alpha)));
    json!({
        "alpha_pattern": alphas,
        "auto_mapping": null,
        "base_model_name_or_path": base,
        "bias": "none",
        "exclude_modules": null,
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "layer_replication": null,
        "layers_pattern": null,
        "layers_to_transform": null,
        "loftq_config": {},
        "lora_alpha": number(config.alpha),
        "lora_bias": false,
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": config.rank,
        "rank_pattern": ranks,
        "revision": null,
        "target_modules": config.targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": config.rslora,
    })
}

/// Writes integers without a fraction, as PEFT does.
fn number(alpha: f64) -> Value {
    if alpha.fract() == 0.0 && alpha.abs() < 1e15 {
        json!(alpha as i64)
    } else {
        json!(alpha)
    }
}
