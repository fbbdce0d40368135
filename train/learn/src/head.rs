//! The network of a critic: one hidden layer on a hidden state of the policy.
//!
//! ```text
//! x    = (h - center) / scale
//! V(h) = w2 silu(W1 x + b1) + b2               W1 (H, C) drawn, the rest zeros: at first V = 0
//! ```
//!
//! A linear head would be left with what the model happens to have laid out in straight lines, which is what it wants to say
//! next and not how the game will end; hence the hidden layer.
//!
//! The prompts of a game all end alike, and so do most of their hidden states: on Frozen Lake and the built-in base what sets
//! them apart is a 16th of their length, and without the first line a head learns next to nothing. The center (C) is the mean
//! of the states of the first step, the scale the root mean square of what is left; both stay, so that a value means the same
//! from step to step.

use lapwing_tensor::random::Random;
use lapwing_tensor::{Gpu, GpuError, Matrix, NamedValues, Parameters, Tensor};

/// W1, b1, w2, b2, center and scale, as checkpoints call them.
pub const NAMES: [&str; 6] = [
    "critic.hidden.weight",
    "critic.hidden.bias",
    "critic.value.weight",
    "critic.value.bias",
    "critic.center",
    "critic.scale",
];

/// The network, and its own optimiser.
pub struct Head {
    /// W1, b1, w2 and b2; and center and scale, which the optimiser leaves alone: no gradient reaches them
    pub parameters: Parameters,
}

impl Head {
    /// A head of this hidden width for features of this width, that knows nothing: every value is 0.
    pub fn new(gpu: &Gpu, width: usize, hidden: usize, seed: u64) -> Head {
        let mut random = Random::new(seed);
        // As linear layers begin in PyTorch.
        let bound = 1.0 / (width as f64).sqrt();
        let mut drawn = || ((2.0 * random.uniform() - 1.0) * bound) as f32;
        let tensors: Vec<NamedValues> = NAMES
            .iter()
            .zip(shapes(width, hidden))
            .map(|(name, shape)| {
                let count = shape.iter().product();
                let values = match *name {
                    "critic.hidden.weight" => (0..count).map(|_| drawn()).collect(),
                    "critic.scale" => vec![1.0],
                    _ => vec![0.0; count],
                };
                ((*name).to_owned(), shape, values)
            })
            .collect();
        Head {
            parameters: Parameters::new(gpu, &tensors),
        }
    }

    /// Numbers in such a head.
    pub fn numbers(width: usize, hidden: usize) -> u64 {
        let count = |shape: Vec<usize>| shape.iter().product::<usize>() as u64;
        shapes(width, hidden).map(count).iter().sum()
    }

    /// Of features (N, C) the values (N, 1), tracked.
    pub fn values(&self, hidden: &Tensor) -> Tensor {
        let [w1, b1, w2, b2, center, scale] = NAMES.map(|name| self.parameters.get(name));
        let (w1, w2) = (Matrix::Trained(w1), Matrix::Trained(w2));
        let x = hidden.sub(&center.detach()).div(&scale.detach());
        let hidden = x.linear(&w1, Some(&b1), None, None).silu(); // (N, H)
        hidden.linear(&w2, Some(&b2), None, None)
    }

    /// Takes center and scale from these features (N, C), before it has learned anything.
    ///
    /// # Errors
    /// If the device fails.
    pub fn settle(&self, hidden: &Tensor) -> Result<(), GpuError> {
        let (count, width) = (hidden.rows(), hidden.cols());
        let hidden = hidden.to_vec()?;
        let mut center = vec![0.0; width];
        for row in hidden.chunks(width) {
            let each = center.iter_mut().zip(row);
            each.for_each(|(mean, h)| *mean += f64::from(*h) / count as f64);
        }
        let apart = |(h, mean): (&f32, &f64)| (f64::from(*h) - mean).powi(2);
        let of_row = |row: &[f32]| row.iter().zip(&center).map(apart).sum::<f64>();
        let squares: f64 = hidden.chunks(width).map(of_row).sum();
        let scale = (squares / (count * width) as f64).sqrt();
        let write = |name, values: &[f32]| self.parameters.get(name).detach().write(values);
        let center: Vec<f32> = center.iter().map(|mean| *mean as f32).collect();
        write("critic.center", &center);
        // Of a single state nothing is left.
        write(
            "critic.scale",
            &[if scale > 1e-6 { scale as f32 } else { 1.0 }],
        );
        Ok(())
    }
}

fn shapes(width: usize, hidden: usize) -> [Vec<usize>; 6] {
    let layers = [vec![hidden, width], vec![hidden], vec![1, hidden], vec![1]];
    let [w1, b1, w2, b2] = layers;
    [w1, b1, w2, b2, vec![width], vec![1]]
}
