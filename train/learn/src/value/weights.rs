//! A network in a file: safetensors, each weight under its name.

use std::fs;
use std::path::Path;

use lapwing_model::{ModelError, write_atomically};
use lapwing_tensor::NamedValues;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::LearnError;

/// Writes weights aside, and puts the file in its place when it is whole.
///
/// # Errors
/// If it cannot be written; what was there before stays.
pub fn write(path: &Path, weights: &[NamedValues]) -> Result<(), ModelError> {
    let view = |(name, shape, values): &'_ NamedValues| -> (String, Vec<u8>, Vec<usize>) {
        let bytes = bytemuck::cast_slice(values).to_vec();
        (name.clone(), bytes, shape.clone())
    };
    let owned: Vec<_> = weights.iter().map(view).collect();
    let views = owned.iter().map(|(name, bytes, shape)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.expect("as many as the shape"))
    });
    let bytes = safetensors::serialize(views, None).expect("names and shapes are sound");
    write_atomically(path, &bytes)
}

/// Reads the weights of these names and shapes, in this order.
///
/// # Errors
/// If the file cannot be read, or is not of such a network.
pub fn read(path: &Path, wanted: &[(String, Vec<usize>)]) -> Result<Vec<NamedValues>, LearnError> {
    let wrong = |problem: String| LearnError::Network {
        path: path.to_owned(),
        problem,
    };
    let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let odd = |error: safetensors::SafeTensorError| wrong(format!("no network: {error}"));
    let tensors = SafeTensors::deserialize(&bytes).map_err(odd)?;
    let one = |(name, shape): &(String, Vec<usize>)| {
        let lacks = || {
            wrong(format!(
                "it lacks {name}; made with other layers, or another learner"
            ))
        };
        let view = tensors.tensor(name).map_err(|_| lacks())?;
        if view.shape() != shape || view.dtype() != Dtype::F32 {
            return Err(wrong(format!(
                "{name} has the shape {:?}, and this config and game want {shape:?}",
                view.shape()
            )));
        }
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(view.data());
        match values.iter().all(|value| value.is_finite()) {
            true => Ok((name.clone(), shape.clone(), values)),
            false => Err(wrong(format!("{name} holds what is no number"))),
        }
    };
    wanted.iter().map(one).collect()
}
