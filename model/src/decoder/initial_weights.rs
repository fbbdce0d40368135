//! Initial weights of a new model.

use lapwing_tensor::NamedValues;
use lapwing_tensor::random::Random;

use crate::{Linear, ModelConfig};

/// Returns the values that pretraining starts from: norms one, biases zero, matrices normal with variance 1/K (K inputs). The
/// matrices that write to the residual stream are divided by the square root of their number (Radford et al. 2019).
pub fn initial_weights(config: &ModelConfig, seed: u64) -> Vec<NamedValues> {
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
