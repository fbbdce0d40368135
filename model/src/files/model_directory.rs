//! A model in a Hugging Face directory or a GGUF file, and loading it to the device.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use lapwing_tensor::{
    Gpu, Matrix, OutOfRange, Parameters, Tensor, Weight, WeightFormat, WeightRows,
};
use safetensors::Dtype;

use super::disk;
use super::gguf::{self, Gguf, is_gguf};
use super::weight_files::{Encoding, WeightFiles};
use crate::decoder::{EMBEDDING, HEAD};
use crate::decoder::{WeightSource, assemble};
use crate::text::gguf_text;
use crate::{LoadReport, Model, ModelConfig, ModelError, Precision, StoredAdapter};

const TOKENIZER: &str = "tokenizer.json";

/// A model directory or a GGUF file whose config and weight headers are read and agree. No value is read and nothing is on a
/// device yet.
#[derive(Debug)]
pub struct ModelDirectory {
    dir: PathBuf,
    /// The directory or GGUF file of the tokenizer and the chat template.
    text_dir: PathBuf,
    config: ModelConfig,
    pub(crate) weights: WeightFiles,
    quantised: Option<WeightFormat>,
}

impl ModelDirectory {
    /// Reads `config.json`, `generation_config.json` and the headers of the weight files; or the header of a file with the
    /// extension `gguf`.
    ///
    /// # Errors
    /// A file is missing, damaged or not supported; the error names file and field or tensor.
    pub fn open(dir: &Path) -> Result<ModelDirectory, ModelError> {
        let (mut config, weights) = if is_gguf(dir) {
            let gguf = Gguf::open(dir)?;
            let config = gguf::read_config(&gguf)?;
            let weights = WeightFiles::of_gguf(gguf, &config);
            (config, weights)
        } else {
            (ModelConfig::read(dir)?, WeightFiles::open(dir)?)
        };
        // As in transformers 5, a head with values of its own is not tied, whatever the config says.
        if config.tied && weights.contains(HEAD) {
            config.tied = weights.are_same(EMBEDDING, HEAD);
        }
        for (name, shape) in config.tensors() {
            weights.check(&name, &shape)?;
        }
        let text_dir = match dir.parent() {
            Some(parent) if is_gguf(dir) && disk::exists(&dir.with_file_name(TOKENIZER)) => parent,
            _ => dir,
        };
        Ok(ModelDirectory {
            dir: dir.to_owned(),
            text_dir: text_dir.to_owned(),
            config,
            weights,
            quantised: None,
        })
    }

    /// Rounds matrices that are not quantised to this format when they are loaded. In 4 bits, the embedding and the head have
    /// 8, because their errors weigh most. Matrices whose columns are not a multiple of 32 stay as they are.
    pub fn quantised(self, format: Option<WeightFormat>) -> ModelDirectory {
        ModelDirectory {
            quantised: format,
            ..self
        }
    }

    /// Takes the tokenizer and the chat template of this directory instead of those of the model.
    pub fn with_tokenizer(self, dir: &Path) -> ModelDirectory {
        ModelDirectory {
            text_dir: dir.to_owned(),
            ..self
        }
    }

    /// Returns the directory with `tokenizer.json`, which may be beside a GGUF file, or the GGUF file with the tokenizer.
    pub fn text_dir(&self) -> &Path {
        &self.text_dir
    }

    /// Returns the directory or the GGUF file.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns `tokenizer.json`, `tokenizer_config.json` or another file of the tokenizer. Those of a GGUF file are made from its
    /// metadata.
    ///
    /// # Errors
    /// The file does not exist or cannot be read.
    pub fn text_file(&self, name: &str) -> Result<String, ModelError> {
        match name {
            _ if !is_gguf(&self.text_dir) => {
                disk::read_text(&self.text_dir.join(name), disk::MOST_BESIDE)
            }
            TOKENIZER => gguf_text::tokenizer_json(&self.text_dir),
            "tokenizer_config.json" => {
                let config = gguf_text::tokenizer_config(&self.text_dir)?;
                Ok(serde_json::to_string_pretty(&config).expect("plain values"))
            }
            _ => Err(ModelError::file(&self.text_dir, format!("has no {name}"))),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the bytes that the weights take on the device with [`Precision::Auto`], as they are, or if they were
    /// [quantised](ModelDirectory::quantised) to this format.
    pub fn device_bytes(&self, quantised: Option<WeightFormat>) -> u64 {
        let quantised = quantised.or(self.quantised);
        let bytes = |(name, shape): &(String, Vec<usize>)| match shape[..] {
            [rows, cols] => {
                let format = self.format(name, Precision::Auto, quantised);
                Weight::device_bytes(rows, cols, format)
            }
            _ => 4 * shape.iter().product::<usize>() as u64,
        };
        self.config.tensors().iter().map(bytes).sum()
    }

    /// Loads the weights without gradients, a block of rows at a time, so that the host never holds more than a block.
    /// `progress` receives the numbers loaded so far and the total.
    ///
    /// # Errors
    /// A value is not a number (the error names file and tensor), or the device is lost.
    pub fn load(
        &self,
        gpu: &Gpu,
        precision: Precision,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Model, ModelError> {
        let wanted = self.config.tensors();
        let report = LoadReport {
            parameters: self.config.numbers(),
            ignored: self.ignored(&wanted),
            ..LoadReport::default()
        };
        let mut source = StreamedWeights {
            gpu,
            checkpoint: self,
            precision,
            report,
            progress,
            done: 0,
        };
        let mut model = assemble(gpu, self.config.clone(), &mut source)?;
        model.report = source.report;
        Ok(model)
    }

    /// Loads the weights in 32 bits for training. The stored values are kept exactly. Updates of the parameters change the
    /// model ([`Model::over`]). The host holds all weights meanwhile. `progress` receives the numbers read so far and the
    /// total.
    ///
    /// # Errors
    /// A value is not a number; the error names file and tensor.
    pub fn load_trained(
        &self,
        gpu: &Gpu,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Model, Parameters), ModelError> {
        let wanted = self.config.tensors();
        let (mut tensors, mut done, total) = (Vec::new(), 0, self.config.numbers());
        for (name, shape) in &wanted {
            let values = self.weights.read(name, shape)?;
            done += values.len() as u64;
            progress(done, total);
            tensors.push((name.clone(), shape.clone(), values));
        }
        let parameters = Parameters::new(gpu, &tensors);
        let mut model = Model::over(gpu, self.config.clone(), &parameters);
        model.report.ignored = self.ignored(&wanted);
        Ok((model, parameters))
    }

    /// Returns the names of tensors that the architecture does not have.
    fn ignored(&self, wanted: &[(String, Vec<usize>)]) -> Vec<String> {
        // A tied head may be stored, too.
        let known = wanted.iter().map(|(name, _)| name.as_str());
        let known: HashSet<&str> = known.chain([HEAD]).collect();
        let ignored = self.weights.names().filter(|name| !known.contains(name));
        ignored.map(str::to_owned).collect()
    }

    /// Reads an adapter for this model.
    ///
    /// # Errors
    /// A file is missing, damaged, not supported or made for another model; the error names file and field or tensor.
    pub fn adapter(&self, dir: &Path) -> Result<StoredAdapter, ModelError> {
        let stored = StoredAdapter::read(&self.config, dir)?;
        stored.check_copies(&self.config, &self.weights)?;
        Ok(stored)
    }

    /// Returns the format of a matrix on the device, if its values allow it.
    fn format(
        &self,
        name: &str,
        precision: Precision,
        quantised: Option<WeightFormat>,
    ) -> WeightFormat {
        let encoding = self.encoding(name);
        if let Encoding::Gguf(format) = encoding
            && format.device_format().group().is_some()
        {
            return format.device_format();
        }
        let cols = self.weights.stored(name).map(|stored| stored.shape[1]);
        if let Some(format) = quantised
            && cols.is_ok_and(|cols| cols.is_multiple_of(32))
        {
            return match name {
                EMBEDDING | HEAD => WeightFormat::Q8,
                _ => format,
            };
        }
        match (precision, encoding.dtype()) {
            (_, Dtype::F32 | Dtype::F64) => WeightFormat::F32,
            (Precision::Stored, Dtype::BF16) => WeightFormat::Bf16,
            (Precision::Auto | Precision::Stored, _) => WeightFormat::F16,
        }
    }

    fn encoding(&self, name: &str) -> Encoding {
        let stored = self.weights.stored(name);
        stored.expect("every tensor was checked").encoding
    }
}

struct StreamedWeights<'a> {
    gpu: &'a Gpu,
    checkpoint: &'a ModelDirectory,
    precision: Precision,
    report: LoadReport,
    // Not generic, so that the loops below are compiled in this crate.
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
}

impl WeightSource for StreamedWeights<'_> {
    fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Matrix, ModelError> {
        let checkpoint = self.checkpoint;
        let mut format = checkpoint.format(name, self.precision, checkpoint.quantised);
        let mut weight = self.upload(name, shape, format)?;
        if weight.is_none() {
            self.report.out_of_f16_range.push(name.to_owned());
            format = WeightFormat::Bf16;
            weight = self.upload(name, shape, format)?;
        }
        let weight = weight.expect("only f16 is refused");
        self.report.matrices[format as usize] += 1;
        self.done += (shape.0 * shape.1) as u64;
        (self.progress)(self.done, self.report.parameters);
        Ok(Matrix::Frozen(weight))
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor, ModelError> {
        let values = self.checkpoint.weights.read(name, &[len])?;
        self.done += len as u64;
        Ok(Tensor::from_slice(self.gpu, &values, &[len]))
    }
}

impl StreamedWeights<'_> {
    /// Uploads a matrix by blocks of rows. Returns `None` if its values are too large or too small for f16.
    fn upload(
        &self,
        name: &str,
        (rows, cols): (usize, usize),
        format: WeightFormat,
    ) -> Result<Option<Weight>, ModelError> {
        let weights = &self.checkpoint.weights;
        let may_be_small = self.checkpoint.encoding(name).dtype() == Dtype::BF16
            && format == WeightFormat::F16
            && self.precision == Precision::Auto;
        let uploaded = Weight::upload(self.gpu, rows, cols, format, |block| {
            if let Some(quants) = weights.read_quants(name, block.clone())? {
                return Ok(quants);
            }
            let values = weights.read_rows(name, block)?;
            match may_be_small && values.chunks_exact(cols).any(is_too_small_for_f16) {
                true => Err(UploadError::TooSmall),
                false => Ok(WeightRows::Values(values.into())),
            }
        });
        match uploaded {
            Ok(weight) => Ok(Some(weight)),
            Err(UploadError::TooSmall) => Ok(None),
            Err(UploadError::TooLarge(_)) if format == WeightFormat::F16 => Ok(None),
            Err(UploadError::TooLarge(e)) => {
                Err(ModelError::tensor(weights.path_of(name), name, e))
            }
            Err(UploadError::File(error)) => Err(error),
        }
    }
}

/// Why a matrix was not uploaded.
#[derive(thiserror::Error, Debug)]
enum UploadError {
    #[error(transparent)]
    File(#[from] ModelError),
    #[error("f16 is too coarse")]
    TooSmall,
    #[error(transparent)]
    TooLarge(#[from] OutOfRange),
}

/// Returns whether f16 is too coarse for a bf16 row. Values from 2^-17 on keep their eight bits in f16; smaller ones are
/// rounded by up to 2^-25. The rounding of the row must stay below 2^-10 of its norm, a quarter of a step of bf16.
fn is_too_small_for_f16(row: &[f32]) -> bool {
    const EXACT: f32 = 1.0 / (1 << 17) as f32;
    let small = |x: f32| u32::from(x.abs() < EXACT && x != 0.0);
    let (count, squares) = row.iter().fold((0, 0.0), |(count, squares), &x| {
        (count + small(x), squares + x * x)
    });
    let lost = f64::from(count) * 2f64.powi(-50);
    lost > f64::from(squares) * 2f64.powi(-20)
}
