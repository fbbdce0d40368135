//! The network of a value learner: from a board and the turns left to what each action is worth.
//!
//! ```text
//! for each of value.channels     board  <- relu(norm(patches(board) W + b))       3 x 3 cells, zeros beyond the edge
//! for each of value.hidden       h      <- relu(norm(h W + turns t + b))          t in the first of them alone
//! out = h W + b
//! Q   = out, or V + A - mean(A) of out = (V, A)                                   dueling (Wang et al. 2016)
//! ```
//!
//! norm is layer normalisation where the learner wants it ([`Heads::layer_norm`]) and nothing otherwise. A convolution is a
//! product of matrices: the nine cells around each are gathered into a row.

use std::collections::HashMap;

use lapwing_tensor::random::Random;
use lapwing_tensor::{Gpu, GpuError, Indices, NamedValues, Parameters, Tensor};

use crate::config::Value;
use crate::value::sight::{Shape, Sight};

/// Added to the variance that a row is divided by.
const EPS: f32 = 1e-5;
/// Cells of a patch.
const PATCH: usize = 9;

/// What a learner wants of its network beyond layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Actions.
    pub actions: usize,
    /// Whether the worth of a state and of its actions are told apart.
    pub dueling: bool,
    /// Whether every layer is normalised before its relu.
    pub layer_norm: bool,
}

/// Layers and their sizes.
#[derive(Debug, Clone, PartialEq)]
struct Design {
    /// of a board
    cells: [usize; 2],
    planes: usize,
    channels: Vec<usize>,
    hidden: Vec<usize>,
    heads: Heads,
}

impl Design {
    /// The numbers that come out of the last layer.
    fn outputs(&self) -> usize {
        self.heads.actions + usize::from(self.heads.dueling)
    }

    /// Name, inputs and outputs of each matrix, first to last.
    fn matrices(&self) -> Vec<(String, usize, usize)> {
        let mut matrices = Vec::new();
        let mut width = self.planes;
        for (number, &channels) in self.channels.iter().enumerate() {
            matrices.push((format!("conv.{number}"), PATCH * width, channels));
            width = channels;
        }
        width *= self.cells[0] * self.cells[1];
        for (number, &hidden) in self.hidden.iter().enumerate() {
            matrices.push((format!("dense.{number}"), width, hidden));
            width = hidden;
        }
        matrices.push(("out".to_owned(), width, self.outputs()));
        matrices
    }

    /// Name and shape of each tensor, and what it begins with: mean and standard deviation. He et al. (2015) before a relu,
    /// a hundredth of that in the last layer, so that at first no action looks better than another.
    fn tensors(&self) -> Vec<(String, Vec<usize>, [f64; 2])> {
        let mut tensors = Vec::new();
        for (name, inputs, outputs) in self.matrices() {
            let is_last = name == "out";
            let deviation = (2.0 / inputs as f64).sqrt() * if is_last { 0.01 } else { 1.0 };
            let mut add = |part: &str, shape: Vec<usize>, begin| {
                tensors.push((format!("{name}.{part}"), shape, begin));
            };
            add("weight", vec![inputs, outputs], [0.0, deviation]);
            if name == "dense.0" {
                add("turns", vec![outputs], [0.0, deviation]);
            }
            if self.heads.layer_norm && !is_last {
                add("norm", vec![outputs], [1.0, 0.0]);
            }
            add("bias", vec![outputs], [0.0, 0.0]);
        }
        tensors
    }

    fn initial(&self, seed: u64) -> Vec<NamedValues> {
        let mut random = Random::new(seed);
        let tensors = self.tensors().into_iter();
        let drawn = |(name, shape, [mean, deviation]): (String, Vec<usize>, [f64; 2])| {
            let count = shape.iter().product();
            let mut one = || match deviation {
                0.0 => mean as f32,
                _ => (mean + deviation * random.normal()) as f32,
            };
            (name, shape, (0..count).map(|_| one()).collect())
        };
        tensors.map(drawn).collect()
    }
}

/// Some states on the device, as a network wants them.
pub struct Batch {
    count: usize,
    /// (count * cells, planes): the cells of one board after the other, and before a convolution a row of zeros behind them
    boards: Tensor,
    /// (count, 1): the share of turns left
    turns: Tensor,
}

/// A network at work: its layers and its weights.
pub struct Network {
    gpu: Gpu,
    design: Design,
    tensors: HashMap<String, Tensor>,
}

impl Network {
    /// One that is trained, with fresh weights that follow from the seed.
    pub fn fresh(
        gpu: &Gpu,
        shape: &Shape,
        value: &Value,
        heads: Heads,
        seed: u64,
    ) -> (Network, Parameters) {
        let design = Design {
            cells: [shape.height, shape.width],
            planes: shape.names.len(),
            channels: value.channels.clone(),
            hidden: value.hidden.clone(),
            heads,
        };
        let parameters = Parameters::new(gpu, &design.initial(seed));
        let tensors = parameters
            .names()
            .map(|name| (name.to_owned(), parameters.get(name)))
            .collect();
        let network = Network {
            gpu: gpu.clone(),
            design,
            tensors,
        };
        (network, parameters)
    }

    /// The same weights, cut off from the tape: to play with, and to value what is not learned from.
    pub fn without_gradients(&self) -> Network {
        self.with(|tensor| tensor.detach())
    }

    /// The same layers with weights of their own, all 0 until they are written.
    pub fn apart(&self) -> Network {
        self.with(|tensor| Tensor::zeros(&self.gpu, tensor.shape()))
    }

    fn with(&self, of: impl Fn(&Tensor) -> Tensor) -> Network {
        let tensors = self.tensors.iter();
        Network {
            gpu: self.gpu.clone(),
            design: self.design.clone(),
            tensors: tensors.map(|(name, t)| (name.clone(), of(t))).collect(),
        }
    }

    /// A weight.
    ///
    /// # Panics
    /// If there is none of this name.
    #[cfg(test)]
    pub fn tensor(&self, name: &str) -> &Tensor {
        &self.tensors[name]
    }

    /// Overwrites a weight.
    ///
    /// # Panics
    /// If there is none of this name, or it has another size.
    #[track_caller]
    pub fn write(&self, name: &str, values: &[f32]) {
        self.tensors[name].write(values);
    }

    /// Overwrites some of the weights.
    ///
    /// # Panics
    /// As [`Network::write`].
    #[track_caller]
    pub fn write_all(&self, weights: &[NamedValues]) {
        for (name, _, values) in weights {
            self.write(name, values);
        }
    }

    /// Its weights.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn values(&self) -> Result<Vec<NamedValues>, GpuError> {
        let shapes = self.shapes().into_iter();
        let of = |(name, shape): (String, Vec<usize>)| {
            let values = self.tensors[&name].to_vec()?;
            Ok((name, shape, values))
        };
        shapes.map(of).collect()
    }

    /// Numbers that it learns.
    pub fn size(&self) -> usize {
        self.tensors.values().map(Tensor::len).sum()
    }

    /// Names and shapes of its weights, first to last.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let tensors = self.design.tensors().into_iter();
        tensors.map(|(name, shape, _)| (name, shape)).collect()
    }

    /// Puts some states on the device.
    pub fn batch<'a>(&self, sights: impl ExactSizeIterator<Item = &'a Sight>) -> Batch {
        let (count, planes) = (sights.len(), self.design.planes);
        let cells = self.design.cells[0] * self.design.cells[1];
        let rows = count * cells + usize::from(!self.design.channels.is_empty());
        let mut board = vec![0.0; rows * planes];
        let mut turns = Vec::with_capacity(count);
        for (number, sight) in sights.enumerate() {
            let first = number * cells * planes;
            for one in &sight.ones {
                board[first + *one as usize] = 1.0;
            }
            turns.push(sight.turns_left);
        }
        Batch {
            count,
            boards: Tensor::from_slice(&self.gpu, &board, &[rows, planes]),
            turns: Tensor::from_slice(&self.gpu, &turns, &[count, 1]),
        }
    }

    /// Q (count, actions) of these states.
    pub fn forward(&self, batch: &Batch) -> Tensor {
        let heads = self.design.heads;
        let mut h = self.convolved(batch);
        h = h.reshape(&[batch.count, h.len() / batch.count]);
        for number in 0..self.design.hidden.len() {
            let name = format!("dense.{number}");
            h = h.matmul(self.weight(&name, "weight"));
            if number == 0 {
                h = h.add(&batch.turns.mul(self.weight(&name, "turns")));
            }
            h = self.activated(&name, &h);
        }
        let out = h.matmul(self.weight("out", "weight"));
        let out = out.add(self.weight("out", "bias"));
        match heads.dueling {
            true => out.matmul(&dueling(&self.gpu, heads.actions)),
            false => out,
        }
    }

    /// Q (count, 1) of one action in each of these states.
    ///
    /// # Panics
    /// If there are fewer or more actions than states.
    #[track_caller]
    pub fn forward_of(&self, batch: &Batch, actions: impl Iterator<Item = usize>) -> Tensor {
        let count = self.design.heads.actions;
        let mut chosen = Vec::with_capacity(batch.count * count);
        for action in actions {
            chosen.extend((0..count).map(|other| f32::from(other == action)));
        }
        let chosen = Tensor::from_slice(&self.gpu, &chosen, &[batch.count, count]);
        self.forward(batch).mul(&chosen).sum_last()
    }

    /// The boards after the convolutions: (count * cells, channels).
    fn convolved(&self, batch: &Batch) -> Tensor {
        let mut boards = batch.boards.clone();
        if self.design.channels.is_empty() {
            return boards;
        }
        let rows = boards.rows() - 1;
        let patches = Indices::new(&self.gpu, &patches(batch.count, self.design.cells));
        // The row of zeros must be one after a layer, too, which adds its bias to it.
        let mut kept = vec![1.0; rows + 1];
        kept[rows] = 0.0;
        let kept = Tensor::from_slice(&self.gpu, &kept, &[rows + 1, 1]);
        for number in 0..self.design.channels.len() {
            let name = format!("conv.{number}");
            let width = PATCH * boards.cols();
            let around = boards.gather_rows(&patches).reshape(&[rows + 1, width]);
            let next = around.matmul(self.weight(&name, "weight"));
            boards = self.activated(&name, &next).mul(&kept);
        }
        let all: Vec<u32> = (0..rows as u32).collect();
        boards.gather_rows(&Indices::new(&self.gpu, &all))
    }

    fn activated(&self, name: &str, h: &Tensor) -> Tensor {
        let bias = self.weight(name, "bias");
        let h = match self.design.heads.layer_norm {
            true => h.layer_norm(self.weight(name, "norm"), bias, EPS),
            false => h.add(bias),
        };
        h.relu()
    }

    fn weight(&self, layer: &str, name: &str) -> &Tensor {
        &self.tensors[&format!("{layer}.{name}")]
    }
}

/// The matrix that makes V + A - mean(A) of (V, A): a row of ones, and the identity less 1/n.
fn dueling(gpu: &Gpu, actions: usize) -> Tensor {
    let share = 1.0 / actions as f32;
    let mut matrix = vec![1.0; actions];
    for row in 0..actions {
        matrix.extend((0..actions).map(|column| f32::from(row == column) - share));
    }
    Tensor::from_slice(gpu, &matrix, &[actions + 1, actions])
}

/// For each cell of each board the rows of the nine cells around it, row by row; what lies beyond the edge is the row of
/// zeros behind all boards, whose own patch is nine of it.
fn patches(boards: usize, [height, width]: [usize; 2]) -> Vec<u32> {
    let cells = height * width;
    let zeros = (boards * cells) as u32;
    let mut rows = Vec::with_capacity((boards * cells + 1) * PATCH);
    for cell in 0..boards * cells {
        let (first, row, column) = (cell - cell % cells, cell % cells / width, cell % width);
        for (down, right) in (0..PATCH).map(|i| (i / 3, i % 3)) {
            // One more than where it is, so that nothing is below 0.
            let (row, column) = (row + down, column + right);
            let inside = (1..=height).contains(&row) && (1..=width).contains(&column);
            rows.push(match inside {
                true => (first + (row - 1) * width + column - 1) as u32,
                false => zeros,
            });
        }
    }
    rows.extend([zeros; PATCH]);
    rows
}
