//! From a model directory to a model on the device, and back.

use std::borrow::Cow;
use std::path::Path;

use lapwing_tensor::{
    Format, Gpu, Matrix, NamedValues, OutOfRange, Parameters, Rotations, Tensor, Weight,
};
use safetensors::Dtype;

use crate::random::Random;
use crate::transformer::{Affine, Block};
use crate::weights::{self, Weights};
use crate::{Config, Linear, Model, ModelError, files};

/// In how many bits matrices are held on the device. Vectors (norms, biases) are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As stored, except that bf16 becomes f16, which is finer, wherever all values of a matrix are within its range.
    #[default]
    Auto,
    /// 32 bits.
    F32,
    /// f16; a matrix with values out of its range is held in bf16.
    F16,
    /// bf16.
    Bf16,
}

/// How to load a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// In how many bits matrices are held.
    pub precision: Precision,
}

/// What was loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Numbers in the model.
    pub parameters: u64,
    /// Matrices held in 32 bits, in f16 and in bf16.
    pub matrices: [usize; 3],
    /// Names of matrices that f16 could not hold and that are therefore in bf16.
    pub out_of_f16_range: Vec<String>,
    /// Names of tensors in the files that this architecture has no place for.
    pub ignored: Vec<String>,
}

impl Model {
    /// Reads a Hugging Face directory: `config.json` and the weights. They are frozen: no gradient reaches them.
    ///
    /// Everything is checked before anything is allocated on the device; values are checked as they pass by.
    ///
    /// # Errors
    /// What is missing, damaged or not supported, naming file and field or tensor.
    pub fn load(gpu: &Gpu, dir: &Path, options: &LoadOptions) -> Result<Model, ModelError> {
        let config = Config::read(dir)?;
        let weights = Weights::open(dir)?;
        let wanted = config.tensors();
        for (name, shape) in &wanted {
            weights.check(name, shape)?;
        }
        let mut report = LoadReport {
            parameters: count(&wanted),
            ..LoadReport::default()
        };
        let known: std::collections::HashSet<&str> =
            wanted.iter().map(|(name, _)| name.as_str()).collect();
        report.ignored = weights
            .names()
            .filter(|n| !known.contains(n))
            .map(str::to_owned)
            .collect();
        let mut files = FromFiles {
            gpu,
            weights: &weights,
            precision: options.precision,
            report,
        };
        let mut model = assemble(gpu, config, &mut files)?;
        model.report = files.report;
        Ok(model)
    }

    /// A model whose every weight is trained: `parameters` holds all of [`Config::tensors`] (see [`initial`]). An
    /// optimiser step on them changes this model in place.
    ///
    /// # Panics
    /// If a tensor is missing from `parameters`.
    pub fn over(gpu: &Gpu, config: Config, parameters: &Parameters) -> Model {
        let wanted = config.tensors();
        let model = assemble(gpu, config, &mut FromParameters(parameters));
        let mut model = model.expect("parameters in memory cannot fail to load");
        model.report.parameters = count(&wanted);
        model.report.matrices[0] = wanted.iter().filter(|(_, shape)| shape.len() == 2).count();
        model
    }

    /// Writes `config.json` and `model.safetensors` into a directory, each aside and then renamed into place.
    ///
    /// # Errors
    /// A full or read-only disk, a lost device, or a weight that the format cannot hold.
    pub fn save(&self, dir: &Path, format: Format) -> Result<(), ModelError> {
        let (dtype, name) = match format {
            Format::F32 => (Dtype::F32, "float32"),
            Format::F16 => (Dtype::F16, "float16"),
            Format::Bf16 => (Dtype::BF16, "bfloat16"),
        };
        let path = dir.join("model.safetensors");
        let bytes = weights::serialize(&self.tensors()?, dtype).map_err(|tensor| {
            ModelError::tensor(&path, &tensor, format!("holds values that {name} cannot"))
        })?;
        let config =
            serde_json::to_string_pretty(&self.config.to_json(name)).expect("JSON from JSON");
        files::write_aside(&path, &bytes)?;
        files::write_aside(&dir.join("config.json"), config.as_bytes())
    }

    /// Every tensor of the checkpoint, read back from the device.
    fn tensors(&self) -> Result<Vec<NamedValues>, ModelError> {
        let mut list = Vec::new();
        for (name, shape) in self.config.tensors() {
            let values = match self.find(&name) {
                Found::Matrix(Matrix::Frozen(weight)) => weight.to_vec()?,
                Found::Matrix(Matrix::Trained(tensor)) | Found::Vector(tensor) => {
                    tensor.to_vec()?
                }
            };
            list.push((name, shape, values));
        }
        Ok(list)
    }

    /// The tensor of a checkpoint name.
    fn find(&self, name: &str) -> Found<'_> {
        let name = name.strip_suffix(".weight").unwrap_or(name);
        match name {
            "model.embed_tokens" => return Found::Matrix(&self.embedding),
            "model.norm" => return Found::Vector(&self.norm),
            "lm_head" => return Found::Matrix(&self.head),
            _ => (),
        }
        let within = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.split_once('.'));
        let (layer, name) = within.expect("a name from Config::tensors");
        let block = &self.blocks[layer.parse::<usize>().expect("a name from Config::tensors")];
        let norms = block.head_norms.as_ref();
        match name {
            "input_layernorm" => Found::Vector(&block.attention_norm),
            "post_attention_layernorm" => Found::Vector(&block.mlp_norm),
            "self_attn.q_norm" => {
                Found::Vector(&norms.expect("Config::tensors lists head norms").0)
            }
            "self_attn.k_norm" => {
                Found::Vector(&norms.expect("Config::tensors lists head norms").1)
            }
            name => {
                let bias = name.strip_suffix(".bias");
                let linear = Linear::BLOCK
                    .iter()
                    .position(|l| l.path() == bias.unwrap_or(name));
                let affine = &block.linears[linear.expect("a name from Config::tensors")];
                match bias {
                    Some(_) => {
                        Found::Vector(affine.bias.as_ref().expect("Config::tensors lists a bias"))
                    }
                    None => Found::Matrix(&affine.weight),
                }
            }
        }
    }
}

enum Found<'a> {
    Matrix(&'a Matrix),
    Vector(&'a Tensor),
}

fn count(tensors: &[(String, Vec<usize>)]) -> u64 {
    tensors
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>() as u64)
        .sum()
}

/// Where the tensors of a model come from.
trait Source {
    fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Matrix, ModelError>;
    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor, ModelError>;
}

/// Puts a model together, asking for exactly the tensors of [`Config::tensors`], in that order.
fn assemble(gpu: &Gpu, config: Config, source: &mut impl Source) -> Result<Model, ModelError> {
    let embedding = source.matrix("model.embed_tokens.weight", (config.vocab, config.width))?;
    let blocks = (0..config.layers).map(|layer| assemble_block(&config, layer, source));
    let blocks = blocks.collect::<Result<_, _>>()?;
    let norm = source.vector("model.norm.weight", config.width)?;
    let head = match config.tied {
        true => embedding.clone(),
        false => source.matrix("lm_head.weight", (config.vocab, config.width))?,
    };
    let rotations = Rotations::new(gpu, &config.rope.inverse_frequencies(config.head_size));
    let (gpu, report) = (gpu.clone(), LoadReport::default());
    Ok(Model {
        config,
        gpu,
        embedding,
        blocks,
        norm,
        head,
        rotations,
        report,
    })
}

fn assemble_block(
    config: &Config,
    layer: usize,
    source: &mut impl Source,
) -> Result<Block, ModelError> {
    let name = |name: &str| format!("model.layers.{layer}.{name}.weight");
    let attention_norm = source.vector(&name("input_layernorm"), config.width)?;
    let mut linears = Vec::with_capacity(Linear::BLOCK.len());
    for linear in Linear::BLOCK {
        let (module, shape) = (linear.module(layer), config.linear_shape(linear));
        let weight = source.matrix(&format!("{module}.weight"), shape)?;
        let bias = match config.has_bias(linear) {
            true => Some(source.vector(&format!("{module}.bias"), shape.0)?),
            false => None,
        };
        linears.push(Affine { weight, bias });
    }
    let head_norms = match config.qk_norm() {
        true => Some((
            source.vector(&name("self_attn.q_norm"), config.head_size)?,
            source.vector(&name("self_attn.k_norm"), config.head_size)?,
        )),
        false => None,
    };
    let mlp_norm = source.vector(&name("post_attention_layernorm"), config.width)?;
    let linears = linears
        .try_into()
        .unwrap_or_else(|_| unreachable!("seven linear layers in a block"));
    Ok(Block {
        attention_norm,
        linears,
        head_norms,
        mlp_norm,
    })
}

struct FromFiles<'a> {
    gpu: &'a Gpu,
    weights: &'a Weights,
    precision: Precision,
    report: LoadReport,
}

impl Source for FromFiles<'_> {
    fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Matrix, ModelError> {
        let format = match (self.precision, self.weights.dtype(name)?) {
            (Precision::F32, _) | (Precision::Auto, Dtype::F32 | Dtype::F64) => Format::F32,
            (Precision::Bf16, _) => Format::Bf16,
            (Precision::F16 | Precision::Auto, _) => Format::F16,
        };
        let (format, weight) = match self.upload(name, shape, format)? {
            Ok(weight) => (format, weight),
            Err(OutOfRange { .. }) => {
                self.report.out_of_f16_range.push(name.to_owned());
                let weight = self.upload(name, shape, Format::Bf16)?;
                let too_large =
                    |e: OutOfRange| ModelError::tensor(self.weights.path_of(name), name, e);
                (Format::Bf16, weight.map_err(too_large)?)
            }
        };
        self.report.matrices[format as usize] += 1;
        Ok(Matrix::Frozen(weight))
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor, ModelError> {
        Ok(Tensor::from_slice(
            self.gpu,
            &self.weights.read(name, &[len])?,
            &[len],
        ))
    }
}

impl FromFiles<'_> {
    /// Streams a matrix to the device by blocks of rows. The outer error is the file's, the inner the format's.
    fn upload(
        &self,
        name: &str,
        (rows, cols): (usize, usize),
        format: Format,
    ) -> Result<Result<Weight, OutOfRange>, ModelError> {
        let mut damage = None;
        let uploaded = Weight::upload(self.gpu, rows, cols, format, |block| {
            let len = block.len() * cols;
            // The upload knows no errors of files, so after one it is fed zeros and thrown away.
            let read = match damage {
                None => self.weights.read_rows(name, block),
                Some(_) => return Cow::Owned(vec![0.0; len]),
            };
            Cow::Owned(read.unwrap_or_else(|error| {
                damage = Some(error);
                vec![0.0; len]
            }))
        });
        match damage {
            Some(error) => Err(error),
            None => Ok(uploaded),
        }
    }
}

struct FromParameters<'a>(&'a Parameters);

impl Source for FromParameters<'_> {
    fn matrix(&mut self, name: &str, _: (usize, usize)) -> Result<Matrix, ModelError> {
        Ok(Matrix::Trained(self.0.get(name)))
    }

    fn vector(&mut self, name: &str, _: usize) -> Result<Tensor, ModelError> {
        Ok(self.0.get(name))
    }
}

/// Values to start pretraining from: norms one, biases zero, matrices normal with variance 1/K (K numbers in), and
/// those that write to the residual stream smaller by the square root of how many do (Radford et al. 2019).
pub fn initial(config: &Config, seed: u64) -> Vec<NamedValues> {
    let mut random = Random::new(seed);
    let writers = 2.0 * config.layers as f64;
    let fill = |(name, shape): (String, Vec<usize>)| {
        let count = shape.iter().product();
        let values = match shape[..] {
            [_, inputs] => {
                let writes = name.contains(Linear::O.path()) || name.contains(Linear::Down.path());
                let variance = if writes {
                    1.0 / inputs as f64 / writers
                } else {
                    1.0 / inputs as f64
                };
                (0..count)
                    .map(|_| (random.normal() * variance.sqrt()) as f32)
                    .collect()
            }
            _ if name.ends_with(".bias") => vec![0.0; count],
            _ => vec![1.0; count],
        };
        (name, shape, values)
    };
    config.tensors().into_iter().map(fill).collect()
}
