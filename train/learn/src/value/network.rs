//! The network of a value learner: from an encoded state to the value Q of each action.
//!
//! ```text
//! for each of value.channels     board  <- relu(norm(patches(board) W + b))       3 x 3 cells, zeros beyond the edge
//! for each of value.hidden       h      <- relu(norm(h W + turns t + b))          t in the first of them alone
//! out = h W + b
//! Q   = out, or V + A - mean(A) of out = (V, A)                                   dueling (Wang et al. 2016)
//! ```
//!
//! norm is layer normalisation with [`QHead::layer_norm`] and nothing otherwise. A convolution is a matrix product: the nine
//! cells around each cell are gathered into a row.

use std::collections::HashMap;
use std::path::Path;

use lapwing_model::{ModelError, read_file, write_atomically};
use lapwing_tensor::random::Random;
use lapwing_tensor::{Gpu, GpuError, Indices, NamedValues, Parameters, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::LearnError;
use crate::config::ValueConfig;
use crate::value::encoder::{EncodedState, PlaneEncoder};

/// Added to the variance that a row is divided by.
const EPS: f32 = 1e-5;
/// Cells of a patch.
const PATCH: usize = 9;

/// The output and normalisation of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QHead {
    /// Actions.
    pub(crate) actions: usize,
    /// Whether the outputs are the value of the state and the advantages of the actions.
    pub(crate) dueling: bool,
    /// Whether every layer is normalised before its relu.
    pub(crate) layer_norm: bool,
}

/// The layers and their sizes.
#[derive(Debug, Clone, PartialEq)]
struct Layers {
    /// height and width
    cells: [usize; 2],
    planes: usize,
    channels: Vec<usize>,
    hidden: Vec<usize>,
    head: QHead,
}

impl Layers {
    /// Returns name, inputs and outputs of each matrix, first to last.
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
        let outputs = self.head.actions + usize::from(self.head.dueling);
        matrices.push(("out".to_owned(), width, outputs));
        matrices
    }

    /// Returns name, shape, and initial mean and standard deviation of each tensor: He et al. (2015) before a relu, and a
    /// hundredth of that in the last layer, so that all actions have nearly equal values at first.
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
            if self.head.layer_norm && !is_last {
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

/// Encoded states on the device.
pub(crate) struct StateBatch {
    count: usize,
    /// (count * cells, planes): the cells of all boards; for convolutions followed by a row of zeros
    boards: Tensor,
    /// share of turns left (count, 1)
    turns: Tensor,
}

/// A network: its layers and weights.
pub(crate) struct Network {
    gpu: Gpu,
    layers: Layers,
    tensors: HashMap<String, Tensor>,
}

impl Network {
    /// Makes a network to train, with random weights.
    pub(crate) fn fresh(
        gpu: &Gpu,
        encoder: &PlaneEncoder,
        value: &ValueConfig,
        head: QHead,
        seed: u64,
    ) -> (Network, Parameters) {
        let layers = Layers {
            cells: [encoder.height, encoder.width],
            planes: encoder.names.len(),
            channels: value.channels.clone(),
            hidden: value.hidden.clone(),
            head,
        };
        let parameters = Parameters::new(gpu, &layers.initial(seed));
        let tensors = parameters
            .names()
            .map(|name| (name.to_owned(), parameters.get(name)))
            .collect();
        let network = Network {
            gpu: gpu.clone(),
            layers,
            tensors,
        };
        (network, parameters)
    }

    /// Returns a network that shares the weights but records no gradients.
    pub(crate) fn without_gradients(&self) -> Network {
        self.with(|tensor| tensor.detach())
    }

    /// Returns a network of the same layers with its own weights, all 0.
    pub(crate) fn zeroed(&self) -> Network {
        self.with(|tensor| Tensor::zeros(&self.gpu, tensor.shape()))
    }

    fn with(&self, of: impl Fn(&Tensor) -> Tensor) -> Network {
        let tensors = self.tensors.iter();
        Network {
            gpu: self.gpu.clone(),
            layers: self.layers.clone(),
            tensors: tensors.map(|(name, t)| (name.clone(), of(t))).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn tensor(&self, name: &str) -> &Tensor {
        &self.tensors[name]
    }

    /// Overwrites a weight.
    #[track_caller]
    pub(crate) fn write(&self, name: &str, values: &[f32]) {
        self.tensors[name].detach().write(values);
    }

    /// Overwrites some of the weights.
    #[track_caller]
    pub(crate) fn write_all(&self, weights: &[NamedValues]) {
        for (name, _, values) in weights {
            self.write(name, values);
        }
    }

    /// Copies the weights from the device.
    pub(crate) fn values(&self) -> Result<Vec<NamedValues>, GpuError> {
        let shapes = self.shapes().into_iter();
        let of = |(name, shape): (String, Vec<usize>)| {
            let values = self.tensors[&name].to_vec()?;
            Ok((name, shape, values))
        };
        shapes.map(of).collect()
    }

    /// Returns names and shapes of the weights, first to last.
    pub(crate) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let tensors = self.layers.tensors().into_iter();
        tensors.map(|(name, shape, _)| (name, shape)).collect()
    }

    /// Copies states to the device.
    pub(crate) fn batch<'a>(
        &self,
        states: impl ExactSizeIterator<Item = &'a EncodedState>,
    ) -> StateBatch {
        let (count, planes) = (states.len(), self.layers.planes);
        let cells = self.layers.cells[0] * self.layers.cells[1];
        let rows = count * cells + usize::from(!self.layers.channels.is_empty());
        let mut board = vec![0.0; rows * planes];
        let mut turns = Vec::with_capacity(count);
        for (number, state) in states.enumerate() {
            let first = number * cells * planes;
            for one in &state.ones {
                board[first + *one as usize] = 1.0;
            }
            turns.push(state.turns_left);
        }
        StateBatch {
            count,
            boards: Tensor::from_slice(&self.gpu, &board, &[rows, planes]),
            turns: Tensor::from_slice(&self.gpu, &turns, &[count, 1]),
        }
    }

    /// Computes Q (count, actions).
    pub(crate) fn forward(&self, batch: &StateBatch) -> Tensor {
        let head = self.layers.head;
        let mut h = self.convolved(batch);
        h = h.reshape(&[batch.count, h.len() / batch.count]);
        for number in 0..self.layers.hidden.len() {
            let name = format!("dense.{number}");
            h = h.matmul(self.weight(&name, "weight"));
            if number == 0 {
                h = h.add(&batch.turns.mul(self.weight(&name, "turns")));
            }
            h = self.activated(&name, &h);
        }
        let out = h.matmul(self.weight("out", "weight"));
        let out = out.add(self.weight("out", "bias"));
        match head.dueling {
            true => out.matmul(&dueling(&self.gpu, head.actions)),
            false => out,
        }
    }

    /// Computes Q (count, 1) of one action in each state.
    #[track_caller]
    pub(crate) fn forward_of(
        &self,
        batch: &StateBatch,
        actions: impl Iterator<Item = usize>,
    ) -> Tensor {
        let count = self.layers.head.actions;
        let mut chosen = Vec::with_capacity(batch.count * count);
        for action in actions {
            chosen.extend((0..count).map(|other| f32::from(other == action)));
        }
        let chosen = Tensor::from_slice(&self.gpu, &chosen, &[batch.count, count]);
        self.forward(batch).mul(&chosen).sum_last()
    }

    /// Computes the convolutions (count * cells, channels).
    fn convolved(&self, batch: &StateBatch) -> Tensor {
        let mut boards = batch.boards.clone();
        if self.layers.channels.is_empty() {
            return boards;
        }
        let rows = boards.rows() - 1;
        let patches = Indices::new(&self.gpu, &patches(batch.count, self.layers.cells));
        // The bias of a layer must not reach the row of zeros.
        let mut kept = vec![1.0; rows + 1];
        kept[rows] = 0.0;
        let kept = Tensor::from_slice(&self.gpu, &kept, &[rows + 1, 1]);
        for number in 0..self.layers.channels.len() {
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
        let h = match self.layers.head.layer_norm {
            true => h.layer_norm(self.weight(name, "norm"), bias, EPS),
            false => h.add(bias),
        };
        h.relu()
    }

    fn weight(&self, layer: &str, name: &str) -> &Tensor {
        &self.tensors[&format!("{layer}.{name}")]
    }
}

/// Returns the matrix that maps (V, A) to V + A - mean(A): a row of ones, and the identity minus 1/n.
fn dueling(gpu: &Gpu, actions: usize) -> Tensor {
    let share = 1.0 / actions as f32;
    let mut matrix = vec![1.0; actions];
    for row in 0..actions {
        matrix.extend((0..actions).map(|column| f32::from(row == column) - share));
    }
    Tensor::from_slice(gpu, &matrix, &[actions + 1, actions])
}

/// Returns, for each cell of each board, the rows of the nine cells around it. Cells beyond the edge, and the patch of the row
/// of zeros, are the row of zeros.
fn patches(boards: usize, [height, width]: [usize; 2]) -> Vec<u32> {
    let cells = height * width;
    let zeros = (boards * cells) as u32;
    let mut rows = Vec::with_capacity((boards * cells + 1) * PATCH);
    for cell in 0..boards * cells {
        let (first, row, column) = (cell - cell % cells, cell % cells / width, cell % width);
        for (down, right) in (0..PATCH).map(|i| (i / 3, i % 3)) {
            // Shifted by one, so that nothing is below 0.
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

/// Writes weights to a safetensors file.
pub(crate) fn write_weights(path: &Path, weights: &[NamedValues]) -> Result<(), ModelError> {
    let views = weights.iter().map(|(name, shape, values)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice(values));
        (name, view.expect("values of this shape"))
    });
    let bytes = safetensors::serialize(views, None).expect("valid names and shapes");
    write_atomically(path, &bytes)
}

/// Reads the weights of these names and shapes, in this order.
pub(crate) fn read_weights(
    path: &Path,
    wanted: &[(String, Vec<usize>)],
) -> Result<Vec<NamedValues>, LearnError> {
    let wrong =
        |problem: String| LearnError::Network(format!("the network {}: {problem}", path.display()));
    let bytes = read_file(path, 4 << 30).map_err(|error| wrong(error.to_string()))?;
    let unreadable =
        |error: safetensors::SafeTensorError| wrong(format!("not a safetensors file: {error}"));
    let tensors = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
    let one = |(name, shape): &(String, Vec<usize>)| {
        let view = tensors.tensor(name).map_err(|_| {
            wrong(format!(
                "{name} is missing; it has other layers, or is of another learner"
            ))
        })?;
        if view.shape() != shape || view.dtype() != Dtype::F32 {
            return Err(wrong(format!(
                "{name} has the shape {:?}, wanted {shape:?} for this config and game",
                view.shape()
            )));
        }
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(view.data());
        match values.iter().all(|value| value.is_finite()) {
            true => Ok((name.clone(), shape.clone(), values)),
            false => Err(wrong(format!("{name} has a value that is not finite"))),
        }
    };
    wanted.iter().map(one).collect()
}
