//! A model directory as Hugging Face has it, and its way to the device.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use lapwing_tensor::{Gpu, Matrix, OutOfRange, Parameters, Tensor, Weight, WeightFormat};
use safetensors::Dtype;

use super::weights::Weights;
use crate::decoder::assemble::{Source, assemble, count};
use crate::decoder::config::{EMBEDDING, HEAD};
use crate::{Config, LoadOptions, LoadReport, Model, ModelError, Precision, StoredAdapter};

/// A model directory whose config was read and whose weight files were found to hold what it asks for. Nothing is on a
/// device yet, and no value was looked at.
pub struct Checkpoint {
    dir: PathBuf,
    config: Config,
    pub(crate) weights: Weights,
}

impl Checkpoint {
    /// Reads `config.json`, `generation_config.json` and the headers of the weight files.
    ///
    /// # Errors
    /// What is missing, damaged or not supported, naming file and field or tensor.
    pub fn open(dir: &Path) -> Result<Checkpoint, ModelError> {
        let mut config = Config::read(dir)?;
        let weights = Weights::open(dir)?;
        // A head that is tied by its config but stored with other values is a head of its own, as in transformers 5.
        if config.tied && weights.contains(HEAD) {
            config.tied = weights.are_same(EMBEDDING, HEAD);
        }
        for (name, shape) in config.tensors() {
            weights.check(&name, &shape)?;
        }
        let dir = dir.to_owned();
        Ok(Checkpoint {
            dir,
            config,
            weights,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the model looks like.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that the weights will take on the device.
    pub fn device_bytes(&self, options: &LoadOptions) -> u64 {
        let bytes = |(name, shape): &(String, Vec<usize>)| match shape[..] {
            [rows, cols] => {
                let format = self.format(name, options.precision);
                Weight::device_bytes(rows, cols, format)
            }
            _ => 4 * shape.iter().product::<usize>() as u64,
        };
        self.config.tensors().iter().map(bytes).sum()
    }

    /// Streams the weights to the device, a block of rows at a time, so that the host never holds more than a block.
    /// They are frozen: no gradient reaches them. `progress` is told how many numbers are there, of how many.
    ///
    /// # Errors
    /// A value that is not a number, naming file and tensor; a lost device.
    pub fn load(
        &self,
        gpu: &Gpu,
        options: &LoadOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Model, ModelError> {
        let wanted = self.config.tensors();
        let report = LoadReport {
            parameters: count(&wanted),
            ignored: self.ignored(&wanted),
            ..LoadReport::default()
        };
        let mut source = Streamed {
            gpu,
            checkpoint: self,
            precision: options.precision,
            report,
            progress,
            done: 0,
        };
        let mut model = assemble(gpu, self.config.clone(), &mut source)?;
        model.report = source.report;
        Ok(model)
    }

    /// Puts all weights on the device in 32 bits, to be trained: what is stored, to the bit. The model views the
    /// parameters, whose updates change it ([`Model::over`]). The host holds the weights while it does so. `progress` is
    /// told how many numbers were read, of how many.
    ///
    /// # Errors
    /// A value that is not a number, naming file and tensor.
    pub fn load_trained(
        &self,
        gpu: &Gpu,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Model, Parameters), ModelError> {
        let wanted = self.config.tensors();
        let (mut tensors, mut done, total) = (Vec::new(), 0, count(&wanted));
        for (name, shape) in &wanted {
            let values = self.weights.read(name, shape)?;
            self.weights.release(name, 0..shape[0]);
            done += values.len() as u64;
            progress(done, total);
            tensors.push((name.clone(), shape.clone(), values));
        }
        let parameters = Parameters::new(gpu, &tensors);
        let mut model = Model::over(gpu, self.config.clone(), &parameters);
        model.report.ignored = self.ignored(&wanted);
        Ok((model, parameters))
    }

    /// Names of tensors in the files that the architecture has no place for.
    fn ignored(&self, wanted: &[(String, Vec<usize>)]) -> Vec<String> {
        let known = wanted.iter().map(|(name, _)| name.as_str());
        // A tied head may be stored once more.
        let known: HashSet<&str> = known.chain([HEAD]).collect();
        let ignored = self.weights.names().filter(|name| !known.contains(name));
        ignored.map(str::to_owned).collect()
    }

    /// Reads an adapter for this model.
    ///
    /// # Errors
    /// What is missing, damaged, not supported or made for another model, naming file and field or tensor.
    pub fn adapter(&self, dir: &Path) -> Result<StoredAdapter, ModelError> {
        let stored = StoredAdapter::read(&self.config, dir)?;
        stored.check_copies(&self.config, |name, rows| {
            // A tied head is mostly stored as the embedding alone.
            let there = self.weights.contains(name);
            let name = if there { name } else { EMBEDDING };
            let values = self.weights.read_rows(name, rows.clone());
            self.weights.release(name, rows);
            values
        })?;
        Ok(stored)
    }

    /// How a matrix is held, if its values allow.
    fn format(&self, name: &str, precision: Precision) -> WeightFormat {
        match (precision, self.weights.dtype(name)) {
            (Precision::F32, _)
            | (Precision::Auto | Precision::Stored, Some(Dtype::F32 | Dtype::F64)) => {
                WeightFormat::F32
            }
            (Precision::Bf16, _) | (Precision::Stored, Some(Dtype::BF16)) => WeightFormat::Bf16,
            (Precision::F16 | Precision::Auto | Precision::Stored, _) => WeightFormat::F16,
        }
    }
}

struct Streamed<'a> {
    gpu: &'a Gpu,
    checkpoint: &'a Checkpoint,
    precision: Precision,
    report: LoadReport,
    // Not generic, so that the loops below are compiled with this crate's optimisation and not the caller's.
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
}

impl Source for Streamed<'_> {
    fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Matrix, ModelError> {
        let format = self.checkpoint.format(name, self.precision);
        let (format, weight) = match self.upload(name, shape, format)? {
            Ok(weight) => (format, weight),
            Err(OutOfRange { .. }) => {
                self.report.out_of_f16_range.push(name.to_owned());
                let weight = self.upload(name, shape, WeightFormat::Bf16)?;
                let path = self.checkpoint.weights.path_of(name);
                let too_large = |e: OutOfRange| ModelError::tensor(path, name, e);
                (WeightFormat::Bf16, weight.map_err(too_large)?)
            }
        };
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

impl Streamed<'_> {
    /// Streams a matrix to the device by blocks of rows. The outer error is the file's, the inner the format's.
    fn upload(
        &mut self,
        name: &str,
        (rows, cols): (usize, usize),
        format: WeightFormat,
    ) -> Result<Result<Weight, OutOfRange>, ModelError> {
        let weights = &self.checkpoint.weights;
        let may_be_small = weights.dtype(name) == Some(Dtype::BF16)
            && format == WeightFormat::F16
            && self.precision == Precision::Auto;
        let (mut damage, mut small) = (None, None);
        let uploaded = Weight::upload(self.gpu, rows, cols, format, |block| {
            let len = block.len() * cols;
            // The upload knows no errors of files, so after one it is fed zeros and thrown away.
            let read = match (&damage, &small) {
                (None, None) => weights.read_rows(name, block.clone()),
                _ => return Cow::Owned(vec![0.0; len]),
            };
            // These pages will not be looked at again.
            weights.release(name, block.clone());
            let values = read.unwrap_or_else(|error| {
                damage = Some(error);
                vec![0.0; len]
            });
            if may_be_small {
                let row = values.chunks_exact(cols).position(is_too_small_for_f16);
                small = row.map(|row| OutOfRange {
                    value: values[row * cols],
                    row: block.start + row,
                    column: 0,
                    format,
                });
            }
            Cow::Owned(values)
        });
        match (damage, small) {
            (Some(error), _) => Err(error),
            (None, Some(small)) => Ok(Err(small)),
            (None, None) => Ok(uploaded),
        }
    }
}

/// Whether a row that is stored in bf16 would lose more to f16 than bf16 itself has lost. Values from 2^-17 on have all
/// their eight bits in f16 too; smaller ones are rounded by up to 2^-25. Of the row as a whole that must stay below a
/// share of 2^-10, a quarter of what a step of bf16 is.
fn is_too_small_for_f16(row: &[f32]) -> bool {
    const EXACT: f32 = 1.0 / (1 << 17) as f32;
    let small = |x: f32| u32::from(x.abs() < EXACT && x != 0.0);
    let (count, squares) = row.iter().fold((0, 0.0), |(count, squares), &x| {
        (count + small(x), squares + x * x)
    });
    let lost = f64::from(count) * 2f64.powi(-50);
    lost > f64::from(squares) * 2f64.powi(-20)
}
