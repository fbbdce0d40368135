//! A whole model from its directory, and into one.

use std::path::Path;

use lapwing_tensor::{Gpu, WeightFormat};
use safetensors::Dtype;

use super::companions::Companions;
use super::{disk, weights};
use crate::{Checkpoint, LoadOptions, Model, ModelError};

impl Model {
    /// Reads a Hugging Face directory: [`Checkpoint::open`], then [`Checkpoint::load`].
    ///
    /// # Errors
    /// What is missing, damaged or not supported, naming file and field or tensor.
    pub fn load(gpu: &Gpu, dir: &Path, options: &LoadOptions) -> Result<Model, ModelError> {
        Checkpoint::open(dir)?.load(gpu, options, &mut |_, _| ())
    }

    /// Writes `config.json` and `model.safetensors` into a directory that is there, each aside and then renamed into place.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or a weight that the format cannot hold.
    pub fn save(&self, dir: &Path, format: WeightFormat) -> Result<(), ModelError> {
        let (dtype, name) = match format {
            WeightFormat::F32 => (Dtype::F32, "float32"),
            WeightFormat::F16 => (Dtype::F16, "float16"),
            WeightFormat::Bf16 => (Dtype::BF16, "bfloat16"),
        };
        let path = dir.join("model.safetensors");
        let bytes = weights::serialize(&self.tensors()?, dtype).map_err(|tensor| {
            ModelError::tensor(&path, &tensor, format!("holds values that {name} cannot"))
        })?;
        let config =
            serde_json::to_string_pretty(&self.config.to_json(name)).expect("JSON from JSON");
        disk::write_aside(&path, &bytes)?;
        disk::write_aside(&dir.join("config.json"), config.as_bytes())
    }

    /// Writes a whole directory, weights in 32 bits and what lay beside those that training began from, aside and renames
    /// it into place: a model for this program, transformers and others. An older directory of that name is replaced.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or weights that are not finite. What was there before is then still there.
    pub fn save_whole(&self, dir: &Path, companions: &Companions) -> Result<(), ModelError> {
        disk::write_directory_aside(dir, |new| {
            for (name, bytes) in &companions.files {
                disk::write_aside(&new.join(name), bytes)?;
            }
            self.save(new, WeightFormat::F32)
        })
    }
}
