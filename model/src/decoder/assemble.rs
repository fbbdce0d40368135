//! Builds a model from its tensors, and reads them back.

use lapwing_tensor::{Gpu, Matrix, NamedValues, Parameters, Rotations, Tensor};

use super::model_config::{EMBEDDING, HEAD};
use super::transformer::{Affine, Block};
use crate::{Linear, LoadReport, Model, ModelConfig, ModelError};

impl Model {
    /// Builds a model whose weights are all trained. `parameters` holds all of [`ModelConfig::tensors`] (see
    /// [`initial_weights`](crate::initial_weights)); an optimiser step on them changes this model in place.
    ///
    /// # Panics
    /// If a tensor is missing from `parameters`.
    pub fn over(gpu: &Gpu, config: ModelConfig, parameters: &Parameters) -> Model {
        let wanted = config.tensors();
        let model = assemble(gpu, config, &mut { parameters });
        let mut model = model.expect("parameters in memory cannot fail to load");
        model.report.parameters = model.config().numbers();
        model.report.matrices[0] = wanted.iter().filter(|(_, shape)| shape.len() == 2).count();
        model
    }

    /// Reads every tensor of [`ModelConfig::tensors`] back from the device.
    pub(crate) fn tensors(&self) -> Result<Vec<NamedValues>, ModelError> {
        let vector = |tensor: &Tensor| Matrix::Trained(tensor.clone());
        let mut weights = vec![self.embedding.clone()];
        for block in &self.blocks {
            weights.push(vector(&block.attention_norm));
            for affine in &block.linears {
                weights.push(affine.weight.clone());
                weights.extend(affine.bias.as_ref().map(vector));
            }
            if let Some((query_norm, key_norm)) = &block.head_norms {
                weights.extend([vector(query_norm), vector(key_norm)]);
            }
            weights.push(vector(&block.mlp_norm));
        }
        weights.push(vector(&self.norm));
        if !self.config.tied {
            weights.push(self.head.clone());
        }
        let named = self.config.tensors().into_iter().zip(weights);
        let read = |((name, shape), weight)| {
            let values = match weight {
                Matrix::Frozen(weight) => weight.to_vec()?,
                Matrix::Trained(tensor) => tensor.to_vec()?,
            };
            Ok((name, shape, values))
        };
        named.map(read).collect()
    }
}

/// A source of a model's tensors.
pub(crate) trait WeightSource {
    fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Matrix, ModelError>;
    fn vector(&mut self, name: &str, len: usize) -> Result<Tensor, ModelError>;
}

/// Builds a model. It requests exactly the tensors of [`ModelConfig::tensors`], in that order.
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
    let mut linears: [Affine; 7] = linears
        .try_into()
        .unwrap_or_else(|_| unreachable!("seven linear layers in a block"));
    together(&mut linears[..3]);
    together(&mut linears[4..6]);
    Ok(Block {
        attention_norm,
        linears,
        head_norms,
        mlp_norm,
    })
}

/// Lays the frozen matrices of layers with one input beside each other, and their biases, for [`Tensor::linears`].
fn together(layers: &mut [Affine]) {
    let weights = layers.iter().map(|layer| layer.weight.clone()).collect();
    let Some(weights) = Matrix::together(weights) else {
        return;
    };
    for (layer, weight) in layers.iter_mut().zip(weights) {
        layer.weight = weight;
    }
    let biases: Option<Vec<Tensor>> = layers.iter().map(|layer| layer.bias.clone()).collect();
    if let Some(biases) = biases {
        for (layer, bias) in layers.iter_mut().zip(Tensor::together(&biases)) {
            layer.bias = Some(bias);
        }
    }
}

impl WeightSource for &Parameters {
    fn matrix(&mut self, name: &str, _: (usize, usize)) -> Result<Matrix, ModelError> {
        Ok(Matrix::Trained(self.get(name)))
    }

    fn vector(&mut self, name: &str, _: usize) -> Result<Tensor, ModelError> {
        Ok(self.get(name))
    }
}
