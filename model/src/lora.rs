//! LoRA adapters (Hu et al. 2021): beside a frozen weight W, a trained low-rank term, y = x W^T + scale (x A^T) B^T.
//! Named and initialised as PEFT does; `peft.rs` knows the files.

use std::collections::HashMap;
use std::path::Path;

use lapwing_tensor::{Lora, Parameters, Tensor};

use crate::random::Random;
use crate::{Config, Linear, Model, ModelError, StoredAdapter, Targets, peft};

/// What to adapt, and how strongly.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// Columns of B, rows of A; of a loaded adapter, where nothing else is said of a layer.
    pub rank: usize,
    /// The low-rank term is scaled by alpha / rank ...
    pub alpha: f64,
    /// ... or, with rsLoRA (Kalajdzievski 2023), by alpha / sqrt(rank).
    pub rslora: bool,
    /// The linear layers that get a low-rank term.
    pub targets: Targets,
}

impl Default for LoraConfig {
    /// Rank 16, alpha 32, all seven linear layers of a block.
    fn default() -> LoraConfig {
        LoraConfig {
            rank: 16,
            alpha: 32.0,
            rslora: false,
            targets: Targets::default(),
        }
    }
}

impl LoraConfig {
    /// Numbers in A and B of all layers that it adapts in such a model.
    ///
    /// # Errors
    /// If its targets name no layer of this model.
    pub fn parameters(&self, model: &Config) -> Result<u64, ModelError> {
        let layers = self.targets.layers(model)?;
        let count = |(_, linear): &(usize, Linear)| {
            let (n, k) = model.linear_shape(*linear);
            (self.rank * (n + k)) as u64
        };
        Ok(layers.iter().map(count).sum())
    }
}

/// One adapted linear layer; the head counts as of block 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) layer: usize,
    pub(crate) linear: Linear,
    pub(crate) rank: usize,
    pub(crate) alpha: f64,
}

impl Site {
    /// The names of A and B in PEFT's files, which are also their names in the parameters.
    pub(crate) fn names(&self) -> [String; 2] {
        Site::names_of(self.layer, self.linear)
    }

    pub(crate) fn names_of(layer: usize, linear: Linear) -> [String; 2] {
        let module = linear.module(layer);
        ["A", "B"].map(|side| format!("base_model.model.{module}.lora_{side}.weight"))
    }

    /// The shapes of A (r, K) and B (N, r).
    pub(crate) fn shapes(&self, config: &Config) -> [Vec<usize>; 2] {
        let (n, k) = config.linear_shape(self.linear);
        [vec![self.rank, k], vec![n, self.rank]]
    }

    /// What the low-rank term is multiplied by.
    pub(crate) fn scale(&self, rslora: bool) -> f32 {
        let rank = self.rank as f64;
        (self.alpha / if rslora { rank.sqrt() } else { rank }) as f32
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

impl Adapter {
    /// A fresh adapter, which changes nothing yet: A as PEFT draws it, uniform within 1/sqrt(K), B zero.
    ///
    /// # Errors
    /// If the targets name no layer of this model.
    ///
    /// # Panics
    /// If the rank is zero.
    #[track_caller]
    pub fn new(
        model: &Model,
        config: LoraConfig,
        seed: u64,
    ) -> Result<(Adapter, Parameters), ModelError> {
        assert!(config.rank > 0, "lora: the rank must not be zero");
        let mut random = Random::new(seed);
        let (rank, alpha) = (config.rank, config.alpha);
        let site = |(layer, linear)| Site {
            layer,
            linear,
            rank,
            alpha,
        };
        let layers = config.targets.layers(model.config())?;
        // Said by name from here on, as an adapter that is loaded says it.
        let config = LoraConfig {
            targets: Targets::of(&layers, model.config()),
            ..config
        };
        let sites: Vec<Site> = layers.into_iter().map(site).collect();
        let mut tensors = Vec::new();
        for site in &sites {
            let [a, b] = site.shapes(model.config());
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
        let parameters = Parameters::new(model.gpu(), &tensors);
        let adapter = Adapter::over(model, config, sites, |name| parameters.get(name));
        Ok((adapter, parameters))
    }

    /// `get` gives A and B by name, on the device.
    fn over(
        model: &Model,
        config: LoraConfig,
        sites: Vec<Site>,
        get: impl Fn(&str) -> Tensor,
    ) -> Adapter {
        let mut blocks: Vec<[Option<Lora>; 7]> = vec![Default::default(); model.config().layers];
        let mut head = None;
        for site in &sites {
            let [a, b] = site.names().map(|name| get(&name));
            let scale = site.scale(config.rslora);
            let lora = Some(Lora { a, b, scale });
            match site.linear {
                Linear::Head => head = lora,
                linear => blocks[site.layer][linear as usize] = lora,
            }
        }
        Adapter {
            config,
            sites,
            blocks,
            head,
        }
    }

    /// Reads a PEFT directory: `adapter_config.json` and `adapter_model.safetensors`.
    ///
    /// # Errors
    /// What is missing, damaged, not supported or made for another model, naming file and field or tensor.
    pub fn load(model: &Model, dir: &Path) -> Result<(Adapter, Parameters), ModelError> {
        let stored = StoredAdapter::read(model.config(), dir)?;
        let (width, mut tables) = (model.config().width, HashMap::new());
        stored.check_copies(model.config(), |name, rows| {
            if !tables.contains_key(name) {
                tables.insert(name.to_owned(), model.values(name)?);
            }
            Ok(tables[name][rows.start * width..rows.end * width].to_vec())
        })?;
        Ok(Adapter::trained(model, &stored))
    }

    /// Puts an adapter that [`Checkpoint::adapter`](crate::Checkpoint::adapter) has read on the device, to be trained on.
    pub fn trained(model: &Model, stored: &StoredAdapter) -> (Adapter, Parameters) {
        let parameters = Parameters::new(model.gpu(), &stored.tensors);
        let (config, sites) = (stored.config.clone(), stored.sites.clone());
        let adapter = Adapter::over(model, config, sites, |name| parameters.get(name));
        (adapter, parameters)
    }

    /// The same, to be used as it is.
    pub fn frozen(model: &Model, stored: &StoredAdapter) -> Adapter {
        let (config, sites) = (stored.config.clone(), stored.sites.clone());
        Adapter::over(model, config, sites, |name| {
            let tensor = stored.tensors.iter().find(|(known, ..)| known == name);
            let (_, shape, values) = tensor.expect("A and B of every site were read");
            Tensor::from_slice(model.gpu(), values, shape)
        })
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
        peft::write(dir, base, &self.config, &self.sites, &tensors)
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
