//! Loads and saves whole models.

use std::path::Path;

use lapwing_tensor::{Gpu, WeightFormat};
use safetensors::Dtype;

use super::companion_files::CompanionFiles;
use super::{disk, weight_files};
use crate::{Model, ModelDirectory, ModelError, Precision};

impl Model {
    /// Loads a Hugging Face directory: [`ModelDirectory::open`], then [`ModelDirectory::load`].
    ///
    /// # Errors
    /// A file is missing, damaged or not supported; the error names file and field or tensor.
    pub fn load(gpu: &Gpu, dir: &Path, precision: Precision) -> Result<Model, ModelError> {
        ModelDirectory::open(dir)?.load(gpu, precision, &mut |_, _| ())
    }

    /// Writes `config.json` and `model.safetensors` into an existing directory, each atomically.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or a weight that the format cannot represent.
    pub fn save(&self, dir: &Path, format: WeightFormat) -> Result<(), ModelError> {
        let (dtype, name) = match format {
            WeightFormat::F32 => (Dtype::F32, "float32"),
            WeightFormat::F16 => (Dtype::F16, "float16"),
            WeightFormat::Bf16 => (Dtype::BF16, "bfloat16"),
            other => panic!("save: {other:?} is no type of safetensors"),
        };
        let path = dir.join("model.safetensors");
        let bytes = weight_files::serialize(&self.tensors()?, dtype).map_err(|tensor| {
            ModelError::tensor(&path, &tensor, format!("holds values that {name} cannot"))
        })?;
        let config =
            serde_json::to_string_pretty(&self.config.to_json(name)).expect("JSON from JSON");
        disk::write_atomically(&path, &bytes)?;
        disk::write_atomically(&dir.join("config.json"), config.as_bytes())
    }

    /// Writes a complete model directory for lapwing, transformers and others: weights in 32 bits and the companion files of the
    /// original. The directory is written atomically and replaces an older one of that name.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or weights that are not finite. An older directory then stays.
    pub fn save_whole(&self, dir: &Path, companions: &CompanionFiles) -> Result<(), ModelError> {
        disk::write_directory_atomically(dir, |new| {
            for (name, bytes) in &companions.files {
                disk::write_atomically(&new.join(name), bytes)?;
            }
            self.save(new, WeightFormat::F32)
        })
    }
}
