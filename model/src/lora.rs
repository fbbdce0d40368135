//! LoRA adapters (Hu et al. 2021): beside a frozen weight W, a trained low-rank term, y = x W^T + scale (x A^T) B^T.
//! Named, initialised, saved and loaded as PEFT does.

use std::collections::BTreeSet;
use std::path::Path;

use lapwing_tensor::{Gpu, Lora, NamedValues, Parameters, Tensor};
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use crate::fields::{Fields, read_object};
use crate::random::Random;
use crate::weights::{self, Weights};
use crate::{Config, Linear, Model, ModelError, files};

/// What to adapt, and how strongly.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// Columns of B, rows of A.
    pub rank: usize,
    /// The low-rank term is scaled by alpha / rank ...
    pub alpha: f64,
    /// ... or, with rsLoRA (Kalajdzievski 2023), by alpha / sqrt(rank).
    pub rslora: bool,
    /// The linear layers that get a low-rank term, in every block.
    pub targets: Vec<Linear>,
}

impl Default for LoraConfig {
    /// Rank 16, alpha 32, all seven linear layers of a block.
    fn default() -> LoraConfig {
        LoraConfig {
            rank: 16,
            alpha: 32.0,
            rslora: false,
            targets: Linear::BLOCK.to_vec(),
        }
    }
}

impl LoraConfig {
    /// What the low-rank term is multiplied by.
    pub fn scale(&self) -> f32 {
        let rank = self.rank as f64;
        (self.alpha / if self.rslora { rank.sqrt() } else { rank }) as f32
    }

    /// Layer, kind and PEFT's name of every adapted linear layer.
    fn sites(&self, config: &Config) -> Vec<Site> {
        let mut sites = Vec::new();
        for layer in 0..config.layers {
            let adapted = Linear::BLOCK
                .into_iter()
                .filter(|linear| self.targets.contains(linear));
            sites.extend(adapted.map(|linear| Site { layer, linear }));
        }
        if self.targets.contains(&Linear::Head) {
            sites.push(Site {
                layer: 0,
                linear: Linear::Head,
            });
        }
        sites
    }
}

/// One adapted linear layer; the head counts as of block 0.
#[derive(Clone, Copy, PartialEq)]
struct Site {
    layer: usize,
    linear: Linear,
}

impl Site {
    /// The names of A and B in PEFT's files, which are also their names in the parameters.
    fn names(self) -> [String; 2] {
        let module = self.linear.module(self.layer);
        ["A", "B"].map(|side| format!("base_model.model.{module}.lora_{side}.weight"))
    }

    /// The shapes of A (r, K) and B (N, r).
    fn shapes(self, config: &Config, rank: usize) -> [Vec<usize>; 2] {
        let (n, k) = config.linear_shape(self.linear);
        [vec![rank, k], vec![n, rank]]
    }
}

/// The low-rank terms of a model. They are views into a [`Parameters`] arena: an optimiser step there changes them
/// here. Cheap to clone.
#[derive(Clone)]
pub struct Adapter {
    config: LoraConfig,
    sites: Vec<Site>,
    blocks: Vec<[Option<Lora>; 7]>,
    head: Option<Lora>,
}

const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";

impl Adapter {
    /// A fresh adapter, which changes nothing yet: A as PEFT draws it, uniform within 1/sqrt(K), B zero.
    ///
    /// # Panics
    /// If the rank is zero or there is no target.
    #[track_caller]
    pub fn new(model: &Model, config: LoraConfig, seed: u64) -> (Adapter, Parameters) {
        assert!(
            config.rank > 0 && !config.targets.is_empty(),
            "lora: rank and targets must not be empty"
        );
        let mut random = Random::new(seed);
        let sites = config.sites(model.config());
        let mut tensors = Vec::new();
        for site in &sites {
            let [a, b] = site.shapes(model.config(), config.rank);
            // Kaiming-uniform with a = sqrt(5): sqrt(6 / ((1 + 5) K)).
            let bound = 1.0 / (a[1] as f64).sqrt();
            let drawn = (0..a[0] * a[1])
                .map(|_| ((2.0 * random.uniform() - 1.0) * bound) as f32)
                .collect();
            let zeros = vec![0.0; b[0] * b[1]];
            let [a_name, b_name] = site.names();
            tensors.push((a_name, a, drawn));
            tensors.push((b_name, b, zeros));
        }
        Adapter::over(model, config, sites, &tensors)
    }

    fn over(
        model: &Model,
        config: LoraConfig,
        sites: Vec<Site>,
        tensors: &[NamedValues],
    ) -> (Adapter, Parameters) {
        let gpu: &Gpu = model.gpu();
        let parameters = Parameters::new(gpu, tensors);
        let mut blocks: Vec<[Option<Lora>; 7]> = vec![Default::default(); model.config().layers];
        let mut head = None;
        for site in &sites {
            let [a, b] = site.names().map(|name| parameters.get(&name));
            let lora = Some(Lora {
                a,
                b,
                scale: config.scale(),
            });
            match site.linear {
                Linear::Head => head = lora,
                linear => blocks[site.layer][linear as usize] = lora,
            }
        }
        (
            Adapter {
                config,
                sites,
                blocks,
                head,
            },
            parameters,
        )
    }

    /// Reads a PEFT directory: `adapter_config.json` and `adapter_model.safetensors`.
    ///
    /// # Errors
    /// What is missing, damaged, not supported or made for another model, naming file and field or tensor.
    pub fn load(model: &Model, dir: &Path) -> Result<(Adapter, Parameters), ModelError> {
        let path = dir.join(CONFIG);
        let map = read_object(&path)?;
        let mut config = read_config(&Fields::new(&path, &map))?;
        let weights = Weights::open_file(&dir.join(WEIGHTS))?;
        let sites = find_sites(&weights, model.config())?;
        let mut tensors = Vec::new();
        for site in &sites {
            let shapes = site.shapes(model.config(), config.rank);
            for (name, shape) in site.names().into_iter().zip(shapes) {
                let values = weights.read(&name, &shape)?;
                tensors.push((name, shape, values));
            }
        }
        let found: BTreeSet<Linear> = sites.iter().map(|site| site.linear).collect();
        config.targets = found.into_iter().collect();
        Ok(Adapter::over(model, config, sites, &tensors))
    }

    /// Writes a PEFT directory aside and renames it into place. `base` is what PEFT shall load the base model from.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or weights that are not finite.
    pub fn save(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        let mut tensors = Vec::new();
        for site in &self.sites {
            let lora = match site.linear {
                Linear::Head => self.head(),
                linear => self.get(site.layer, linear),
            };
            let lora = lora.expect("every site has its term");
            let [a, b] = site.names();
            tensors.push((a, lora.a.shape().to_vec(), lora.a.to_vec()?));
            tensors.push((b, lora.b.shape().to_vec(), lora.b.to_vec()?));
        }
        let path = dir.join(WEIGHTS);
        let bytes = weights::serialize(&tensors, Dtype::F32).map_err(|tensor| {
            ModelError::tensor(
                &path,
                &tensor,
                "holds values that are not finite; not saved",
            )
        })?;
        let config = serde_json::to_string_pretty(&self.config_json(base)).expect("JSON from JSON");
        files::write_directory_aside(dir, &[(WEIGHTS, &bytes), (CONFIG, config.as_bytes())])
    }

    /// Every field that PEFT's versions have had for plain LoRA, so that none of them has to guess.
    fn config_json(&self, base: &str) -> Value {
        let names: Vec<&str> = self
            .config
            .targets
            .iter()
            .map(|target| target.name())
            .collect();
        json!({
            "alpha_pattern": {},
            "auto_mapping": null,
            "base_model_name_or_path": base,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "layer_replication": null,
            "layers_pattern": null,
            "layers_to_transform": self.layers_json(),
            "loftq_config": {},
            "lora_alpha": whole_if_whole(self.config.alpha),
            "lora_bias": false,
            "lora_dropout": 0.0,
            "modules_to_save": null,
            "peft_type": "LORA",
            "r": self.config.rank,
            "rank_pattern": {},
            "revision": null,
            "target_modules": names,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": self.config.rslora,
        })
    }

    /// Null where all blocks are adapted alike, as they are unless the adapter was loaded from elsewhere.
    fn layers_json(&self) -> Value {
        let adapted = |block: &[Option<Lora>; 7]| block.iter().any(Option::is_some);
        if self.blocks.iter().all(adapted) || !self.blocks.iter().any(adapted) {
            return Value::Null;
        }
        let numbers = self
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| adapted(block));
        json!(numbers.map(|(layer, _)| layer).collect::<Vec<_>>())
    }

    /// The term of a linear layer of a block.
    pub(crate) fn get(&self, layer: usize, linear: Linear) -> Option<&Lora> {
        self.blocks[layer][linear as usize].as_ref()
    }

    /// The term of the head.
    pub(crate) fn head(&self) -> Option<&Lora> {
        self.head.as_ref()
    }

    /// Rank, scale and targets.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// The same terms, wanting no gradients: for sampling and scoring. Later updates show through.
    pub fn without_gradients(&self) -> Adapter {
        let detached = |lora: &Lora| Lora {
            a: Tensor::detach(&lora.a),
            b: Tensor::detach(&lora.b),
            scale: lora.scale,
        };
        let block =
            |block: &[Option<Lora>; 7]| block.each_ref().map(|lora| lora.as_ref().map(detached));
        Adapter {
            blocks: self.blocks.iter().map(block).collect(),
            head: self.head.as_ref().map(detached),
            ..self.clone()
        }
    }
}

/// PEFT's own alphas are whole numbers and stay so.
fn whole_if_whole(alpha: f64) -> Value {
    if alpha.fract() == 0.0 {
        json!(alpha as i64)
    } else {
        json!(alpha)
    }
}

/// Rank and scale of `adapter_config.json`; which layers are adapted is read off the weights.
fn read_config(fields: &Fields) -> Result<LoraConfig, ModelError> {
    match fields.text("peft_type")? {
        Some("LORA") => (),
        other => {
            let found = other.unwrap_or("nothing");
            return Err(fields.wrong(
                "peft_type",
                format!("\"{found}\" is not supported, only LORA"),
            ));
        }
    }
    for field in [
        "use_dora",
        "fan_in_fan_out",
        "lora_bias",
        "use_qalora",
        "use_bdlora",
    ] {
        if fields.flag(field)? {
            return Err(fields.wrong(field, "true is not supported"));
        }
    }
    if !matches!(fields.text("bias")?, None | Some("none")) {
        return Err(fields.wrong("bias", "only \"none\" is supported"));
    }
    for field in [
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "layer_replication",
        "trainable_token_indices",
    ] {
        let empty = |value: &Value| {
            value.as_object().is_some_and(Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
        };
        if fields.get(field).is_some_and(|value| !empty(value)) {
            return Err(fields.wrong(
                field,
                "not supported; only one rank and one alpha for all layers are",
            ));
        }
    }
    Ok(LoraConfig {
        rank: fields.required_count("r", 1 << 16)?,
        // PEFT's own default; it always writes the field.
        alpha: fields.positive("lora_alpha")?.unwrap_or(8.0),
        rslora: fields.flag("use_rslora")?,
        targets: Vec::new(),
    })
}

/// The sites whose A and B the file holds; every tensor in it must belong to one.
fn find_sites(weights: &Weights, config: &Config) -> Result<Vec<Site>, ModelError> {
    let everywhere = LoraConfig {
        targets: Linear::BLOCK.into_iter().chain([Linear::Head]).collect(),
        ..LoraConfig::default()
    };
    let mut sites = everywhere.sites(config);
    sites.retain(|site| site.names().iter().any(|name| weights.contains(name)));
    let known: BTreeSet<String> = sites.iter().flat_map(|site| site.names()).collect();
    if let Some(foreign) = weights.names().find(|&name| !known.contains(name)) {
        let problem =
            "this model has no linear layer of that name; is it the adapter of another model?";
        return Err(ModelError::tensor(
            weights.path_of(foreign),
            foreign,
            problem,
        ));
    }
    if sites.is_empty() {
        return Err(ModelError::file(
            weights.path_of(""),
            "holds no low-rank term",
        ));
    }
    Ok(sites)
}
