//! How an adapter comes to be and how it is kept: fresh, or from a PEFT directory; to be trained, or as it is. Named and
//! initialised as PEFT does.

use std::collections::HashMap;
use std::path::Path;

use lapwing_tensor::random::Random;
use lapwing_tensor::{Parameters, Tensor};

use super::peft;
use super::site::Site;
use crate::{Adapter, LoraConfig, Model, ModelError, StoredAdapter, Targets};

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
        let adapter = Adapter::over(model.config(), config, sites, |name| parameters.get(name));
        Ok((adapter, parameters))
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
        let adapter = Adapter::over(model.config(), config, sites, |name| parameters.get(name));
        (adapter, parameters)
    }

    /// The same, to be used as it is.
    pub fn frozen(model: &Model, stored: &StoredAdapter) -> Adapter {
        let (config, sites) = (stored.config.clone(), stored.sites.clone());
        Adapter::over(model.config(), config, sites, |name| {
            let tensor = stored.tensors.iter().find(|(known, ..)| known == name);
            let (_, shape, values) = tensor.expect("A and B of every site were read");
            Tensor::from_slice(model.gpu(), values, shape)
        })
    }

    /// Writes a PEFT directory aside and renames it into place. `base` is what PEFT shall load the base model from.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or weights that are not finite. What was there before is then still
    /// there.
    pub fn save(&self, dir: &Path, base: &str) -> Result<(), ModelError> {
        let (mut sites, mut tensors) = (Vec::new(), Vec::new());
        for (site, term) in self.terms() {
            sites.push(*site);
            for (name, side) in site.names().into_iter().zip([&term.a, &term.b]) {
                tensors.push((name, side.shape().to_vec(), side.to_vec()?));
            }
        }
        peft::write(dir, base, self.config(), &sites, &tensors)
    }
}
