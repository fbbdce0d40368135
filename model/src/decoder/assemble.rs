//! A model put together from its tensors, wherever they come from, and each of them found again by its name.

use lapwing_tensor::{Gpu, Matrix, NamedValues, Parameters, Rotations, Tensor};

use super::model_config::{EMBEDDING, HEAD};
use super::transformer::{Affine, Block};
use crate::{Linear, LoadReport, Model, ModelConfig, ModelError};

impl Model {
    /// A model whose every weight is trained: `parameters` holds all of [`ModelConfig::tensors`] (see [`initial`](crate::initial)). An
    /// optimiser step on them changes this model in place.
    ///
    /// # Panics
    /// If a tensor is missing from `parameters`.
    pub fn over(gpu: &Gpu, config: ModelConfig, parameters: &Parameters) -> Model {
        let wanted = config.tensors();
        let model = assemble(gpu, config, &mut FromParameters(parameters));
        let mut model = model.expect("parameters in memory cannot fail to load");
        model.report.parameters = count_numbers(&wanted);
        model.report.matrices[0] = wanted.iter().filter(|(_, shape)| shape.len() == 2).count();
        model
    }

    /// The values of a tensor of the checkpoint, read back from the device. A tied head is the embedding.
    pub(crate) fn values(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        Ok(match self.find(name) {
            NamedWeight::Matrix(Matrix::Frozen(weight)) => weight.to_vec()?,
            NamedWeight::Matrix(Matrix::Trained(tensor)) | NamedWeight::Vector(tensor) => {
                tensor.to_vec()?
            }
        })
    }

    /// Every tensor of the checkpoint, read back from the device.
    pub(crate) fn tensors(&self) -> Result<Vec<NamedValues>, ModelError> {
        let mut list = Vec::new();
        for (name, shape) in self.config.tensors() {
            let values = self.values(&name)?;
            list.push((name, shape, values));
        }
        Ok(list)
    }

    /// The tensor of a checkpoint name.
    fn find(&self, name: &str) -> NamedWeight<'_> {
        let name = name.strip_suffix(".weight").unwrap_or(name);
        match name {
            "model.embed_tokens" => return NamedWeight::Matrix(&self.embedding),
            "model.norm" => return NamedWeight::Vector(&self.norm),
            "lm_head" => return NamedWeight::Matrix(&self.head),
            _ => (),
        }
        let within = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.split_once('.'));
        let (layer, name) = within.expect("a name from ModelConfig::tensors");
        let block = &self.blocks[layer
            .parse::<usize>()
            .expect("a name from ModelConfig::tensors")];
        let norms = block.head_norms.as_ref();
        match name {
            "input_layernorm" => NamedWeight::Vector(&block.attention_norm),
            "post_attention_layernorm" => NamedWeight::Vector(&block.mlp_norm),
            "self_attn.q_norm" => {
                NamedWeight::Vector(&norms.expect("ModelConfig::tensors lists head norms").0)
            }
            "self_attn.k_norm" => {
                NamedWeight::Vector(&norms.expect("ModelConfig::tensors lists head norms").1)
            }
            name => {
                let bias = name.strip_suffix(".bias");
                let linear = Linear::BLOCK
                    .iter()
                    .position(|l| l.path() == bias.unwrap_or(name));
                let affine = &block.linears[linear.expect("a name from ModelConfig::tensors")];
                match bias {
                    Some(_) => NamedWeight::Vector(
                        affine
                            .bias
                            .as_ref()
                            .expect("ModelConfig::tensors lists a bias"),
                    ),
                    None => NamedWeight::Matrix(&affine.weight),
                }
            }
        }
    }
}

enum NamedWeight<'a> {
    Matrix(&'a Matrix),
    Vector(&'a Tensor),
}

pub(crate) fn count_numbers(tensors: &[(String, Vec<usize>)]) -> u64 {
    tensors
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>() as u64)
        .sum()
}

/// Where the tensors of a model come from.
pub(crate) trait WeightSource {
    fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Matrix, ModelError>;
    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor, ModelError>;
}

/// Puts a model together, asking for exactly the tensors of [`ModelConfig::tensors`], in that order.
pub(crate) fn assemble(
    gpu: &Gpu,
    config: ModelConfig,
    source: &mut impl WeightSource,
) -> Result<Model, ModelError> {
    let embedding = source.matrix(EMBEDDING, (config.vocab, config.width))?;
    let blocks = (0..config.layers).map(|layer| assemble_block(&config, layer, source));
    let blocks = blocks.collect::<Result<_, _>>()?;
    let norm = source.vector("model.norm.weight", config.width)?;
    let head = match config.tied {
        true => embedding.clone(),
        false => source.matrix(HEAD, (config.vocab, config.width))?,
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
        recomputes: false,
    })
}

fn assemble_block(
    config: &ModelConfig,
    layer: usize,
    source: &mut impl WeightSource,
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

struct FromParameters<'a>(&'a Parameters);

impl WeightSource for FromParameters<'_> {
    fn matrix(&mut self, name: &str, _: (usize, usize)) -> Result<Matrix, ModelError> {
        Ok(Matrix::Trained(self.0.get(name)))
    }

    fn vector(&mut self, name: &str, _: usize) -> Result<Tensor, ModelError> {
        Ok(self.0.get(name))
    }
}
