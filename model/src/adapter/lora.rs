//! LoRA adapters (Hu et al. 2021): beside a frozen weight W, a trained low-rank term, y = x W^T + scale (x A^T) B^T. Names and
//! initial values are PEFT's.

use std::collections::HashMap;
use std::path::Path;

use lapwing_tensor::random::Random;
use lapwing_tensor::{Lora, NamedValues, Parameters, Tensor};

use super::peft;
use super::site::LoraSite;
use crate::{Linear, LoraConfig, Model, ModelError, StoredAdapter, Targets};

/// The low-rank terms of a model. They are views into the arena of [`Parameters`], so an optimiser step there changes them.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Adapter {
    config: LoraConfig,
    sites: Vec<LoraSite>,
    terms: HashMap<(usize, Linear), Lora>,
}

impl Adapter {
    /// Creates an adapter that does not change the model yet: A as PEFT draws it, uniform within 1/sqrt(K), B zero.
    ///
    /// # Errors
    /// The targets name no layer of this model.
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
        let layers = config.targets.layers(model.config())?;
        // By name, as in a loaded adapter.
        let targets = Targets::of(&layers, model.config());
        let config = LoraConfig { targets, ..config };
        let (mut sites, mut tensors) = (Vec::new(), Vec::new());
        for (layer, linear) in layers {
            let site = LoraSite {
                layer,
                linear,
                rank: config.rank,
                alpha: config.alpha,
            };
            let [a, b] = site.shapes(model.config());
            // Kaiming-uniform with a = sqrt(5): sqrt(6 / ((1 + 5) K)).
            let bound = 1.0 / (a[1] as f64).sqrt();
            let drawn = (0..a[0] * a[1])
                .map(|_| ((2.0 * random.uniform() - 1.0) * bound) as f32)
                .collect();
            let zeros = vec![0.0; b[0] * b[1]];
            let [a_name, b_name] = site.names();
            tensors.extend([(a_name, a, drawn), (b_name, b, zeros)]);
            sites.push(site);
        }
        let parameters = Parameters::new(model.gpu(), &tensors);
        let adapter = Adapter::over(config, sites, |name| parameters.get(name));
        Ok((adapter, parameters))
    }

    /// Puts a stored adapter on the device for training.
    pub fn trained(model: &Model, stored: &StoredAdapter) -> (Adapter, Parameters) {
        let parameters = Parameters::new(model.gpu(), &stored.tensors);
        let (config, sites) = (stored.config.clone(), stored.sites.clone());
        let adapter = Adapter::over(config, sites, |name| parameters.get(name));
        (adapter, parameters)
    }

    /// Puts a stored adapter on the device for sampling and scoring only.
    pub fn frozen(model: &Model, stored: &StoredAdapter) -> Adapter {
        let (config, sites) = (stored.config.clone(), stored.sites.clone());
        Adapter::over(config, sites, |name| {
            let tensor = stored.tensors.iter().find(|(known, ..)| known == name);
            let (_, shape, values) = tensor.expect("A and B of every site were read");
            Tensor::from_slice(model.gpu(), values, shape)
        })
    }

    /// `get` returns A or B by name, on the device.
    fn over(config: LoraConfig, sites: Vec<LoraSite>, get: impl Fn(&str) -> Tensor) -> Adapter {
        let term = |site: &LoraSite| {
            let [a, b] = site.names().map(|name| get(&name));
            let scale = site.scale(config.rslora);
            ((site.layer, site.linear), Lora { a, b, scale })
        };
        let terms = sites.iter().map(term).collect();
        Adapter {
            config,
            sites,
            terms,
        }
    }

    /// Writes a PEFT directory under a temporary name and renames it. PEFT loads the base model from `base`.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or weights that are not finite. An older directory then stays.
    pub fn save(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        let term = |site: &LoraSite| &self.terms[&(site.layer, site.linear)];
        let sides = self
            .sites
            .iter()
            .map(term)
            .flat_map(|term| [&term.a, &term.b]);
        let sides: Vec<&Tensor> = sides.collect();
        let names = self.sites.iter().flat_map(LoraSite::names);
        let named = names.zip(&sides).zip(Tensor::to_vecs(&sides)?);
        let tensors: Vec<NamedValues> = named
            .map(|((name, side), values)| (name, side.shape().to_vec(), values))
            .collect();
        peft::write(dir, base, &self.config, &self.sites, &tensors)
    }

    /// Returns the term of a linear layer; the head belongs to block 0.
    pub(crate) fn get(&self, layer: usize, linear: Linear) -> Option<&Lora> {
        self.terms.get(&(layer, linear))
    }

    /// Returns rank, scale and targets.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// Returns a view of the same terms without gradients, for sampling and scoring. It follows later updates.
    pub fn without_gradients(&self) -> Adapter {
        let detached = |(place, lora): (&_, &Lora)| {
            let [a, b] = [&lora.a, &lora.b].map(Tensor::detach);
            (*place, Lora { a, b, ..*lora })
        };
        Adapter {
            terms: self.terms.iter().map(detached).collect(),
            ..self.clone()
        }
    }
}
