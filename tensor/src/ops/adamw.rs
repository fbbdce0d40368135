//! Trained parameters in flat arenas, and AdamW (Loshchilov and Hutter 2019) for a whole arena at once; `adamw/muon.rs` has
//! Muon, for matrices.
//!
//! ```text
//! g = gradient * min(1, max_norm / (norm + 1e-6))          norm of all gradients, as in PyTorch's clip_grad_norm_
//! m = beta1 m + (1 - beta1) g
//! v = beta2 v + (1 - beta2) g^2
//! value = (1 - lr weight_decay) value - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//! ```
//!
//! The gradients have their own buffer, since a dispatch must not read a buffer that it writes, even at other slots.

mod muon;
mod parameter_state;

use std::collections::HashMap;
use std::ops::Range;

use super::threads_together;
use crate::gpu::{Bind, Gpu, GpuError, Groups, Kernel, params};
use crate::{ALIGNMENT, Gradients, Tensor};
pub use muon::Muon;
pub use parameter_state::ParameterState;

const GROUP: usize = 64;
/// Elements whose squares one workgroup sums.
const SPAN: usize = 4096;
/// Tensors that one dispatch adds: with the arena these are seven bindings, the limit.
const AT_ONCE: usize = 6;

const ADD: Kernel = Kernel::new("adamw_add", "add");
const SQUARE_SUMS: Kernel = Kernel::new("adamw", "square_sums");
const FINISH_NORM: Kernel = Kernel::new("adamw", "finish_norm");
const UPDATE: Kernel = Kernel::new("adamw", "update");

/// The settings of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the divisor.
    pub eps: f64,
    /// Decoupled weight decay, a factor of the learning rate.
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to this norm; infinity disables clipping.
    pub max_norm: f64,
}

impl Default for AdamW {
    /// The settings of PyTorch's Adam: a rate of 1e-3, no weight decay, no clipping.
    fn default() -> AdamW {
        AdamW {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            max_norm: f64::INFINITY,
        }
    }
}

/// A tensor on the host: its name, the length of each axis, its values.
pub type NamedValues = (String, Vec<usize>, Vec<f32>);

/// Tensors that share a binding.
#[derive(Debug)]
struct ParameterArena {
    values: Tensor,
    gradients: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
}

#[derive(Debug)]
struct ParameterSlot {
    name: String,
    arena: usize,
    /// Its elements of the arena.
    range: Range<usize>,
    /// The tracked view of the values.
    leaf: Tensor,
}

/// Trained tensors with their gradients and AdamW moments.
///
/// An update has three dispatches for any number of tensors (per 128 MiB on a device with that limit of a binding), and
/// reads nothing back. To save them, keep [`Parameters::values`], which [`Parameters::new`] takes; to resume training,
/// keep [`Parameters::state`] and [`Parameters::steps`], which [`Parameters::restore`] takes.
#[derive(Debug)]
pub struct Parameters {
    gpu: Gpu,
    arenas: Vec<ParameterArena>,
    slots: Vec<ParameterSlot>,
    by_name: HashMap<String, usize>,
    steps: u64,
}

impl Parameters {
    /// Copies tensors to the device, with zero moments and no steps taken.
    ///
    /// # Panics
    /// If there are no tensors, a name occurs twice, or the number of values is not that of the shape.
    #[track_caller]
    pub fn new(gpu: &Gpu, tensors: &[NamedValues]) -> Parameters {
        Parameters::packed(gpu, tensors, gpu.caps().max_binding as usize / 4)
    }

    /// As `new`, with arenas of at most `limit` elements, or of one longer tensor.
    #[track_caller]
    fn packed(gpu: &Gpu, tensors: &[NamedValues], limit: usize) -> Parameters {
        assert!(
            !tensors.is_empty(),
            "parameters: there are no tensors to train"
        );
        let mut contents: Vec<Vec<f32>> = vec![Vec::new()];
        let mut starts = Vec::new();
        for (name, shape, values) in tensors {
            let wanted: usize = shape.iter().product();
            assert!(
                values.len() == wanted,
                "parameters: {name} has {} values for the shape {shape:?}",
                values.len()
            );
            let room = wanted.next_multiple_of(ALIGNMENT);
            let last = contents.last().expect("one arena").len();
            if last > 0 && last + room > limit {
                contents.push(Vec::new());
            }
            let arena = contents.len() - 1;
            let content = &mut contents[arena];
            starts.push((arena, content.len()));
            content.extend_from_slice(values);
            content.resize(content.len().next_multiple_of(ALIGNMENT), 0.0);
        }
        let arenas = contents
            .iter()
            .map(|values| ParameterArena::new(gpu, values));
        let mut parameters = Parameters {
            gpu: gpu.clone(),
            arenas: arenas.collect(),
            slots: Vec::new(),
            by_name: HashMap::new(),
            steps: 0,
        };
        for ((name, shape, values), (arena, offset)) in tensors.iter().zip(starts) {
            let range = offset..offset + values.len();
            let view = parameters.arenas[arena].values.window(range.clone());
            let index = parameters.slots.len();
            let before = parameters.by_name.insert(name.clone(), index);
            assert!(
                before.is_none(),
                "parameters: two tensors are called {name}"
            );
            parameters.slots.push(ParameterSlot {
                name: name.clone(),
                arena,
                range,
                leaf: view.reshape(shape).tracked(),
            });
        }
        parameters
    }

    /// The names, in the order of [`Parameters::new`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// The number of trained elements.
    pub fn count(&self) -> u64 {
        self.slots.iter().map(|slot| slot.leaf.len() as u64).sum()
    }

    /// Returns a tracked view of a tensor. Later updates change its values.
    ///
    /// # Panics
    /// If no tensor has that name.
    #[track_caller]
    pub fn get(&self, name: &str) -> Tensor {
        match self.by_name.get(name) {
            Some(&slot) => self.slots[slot].leaf.clone(),
            None => panic!(
                "parameters: none of the {} tensors is called {name}",
                self.slots.len()
            ),
        }
    }

    /// The number of updates, including those that were skipped because the norm was not finite.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds the gradients of a loss to those accumulated since the last step. Tensors that the loss does not depend on keep
    /// theirs, and gradients of other tensors are ignored.
    pub fn accumulate(&mut self, gradients: &Gradients) {
        for (index, arena) in self.arenas.iter().enumerate() {
            let added: Vec<(usize, &Tensor)> = self
                .slots
                .iter()
                .filter(|slot| slot.arena == index)
                .filter_map(|slot| Some((slot.range.start, gradients.get(&slot.leaf)?)))
                .collect();
            for some in added.chunks(AT_ONCE) {
                arena.add(some);
            }
        }
    }

    /// Returns the accumulated gradients, tensor after tensor with zeros as padding, in a fixed layout.
    ///
    /// # Errors
    /// An error of the device.
    pub fn gathered(&self) -> Result<Vec<f32>, GpuError> {
        Ok(self.read(|arena| &arena.gradients)?.concat())
    }

    /// Adds gradients that another process [gathered](Parameters::gathered), as [`Parameters::accumulate`] adds those of
    /// this one.
    ///
    /// # Panics
    /// If they are of other parameters.
    #[track_caller]
    pub fn add(&mut self, gathered: &[f32]) {
        for (arena, gradients) in self.arenas.iter().zip(self.of_arenas(gathered)) {
            let gradients = Tensor::from_slice(&self.gpu, gradients, &[gradients.len()]);
            arena.add(&[(0, &gradients)]);
        }
    }

    /// Sets the accumulated gradients to zero.
    pub fn discard(&mut self) {
        for arena in &self.arenas {
            arena.gradients.binding().fill(0);
        }
    }

    /// Makes an AdamW update with the accumulated gradients, which are zero afterwards. Returns their norm before clipping.
    ///
    /// If the norm is infinite or not a number, values and moments stay as they are and only the number of steps changes,
    /// so that one bad batch does not destroy the run.
    ///
    /// Values change in place, so call `backward` on losses of the old values first.
    pub fn step(&mut self, settings: AdamW) -> Tensor {
        // After a failure nothing is computed until the caller has got the error.
        self.steps += u64::from(!self.gpu.has_failed());
        let norm = self.norm();
        for arena in &self.arenas {
            arena.update(0..arena.values.len(), settings, self.steps, &norm);
        }
        norm
    }

    /// The norm of all accumulated gradients: sums of SPAN squares first, then the sum of those.
    fn norm(&self) -> Tensor {
        let spans: Vec<usize> = self
            .arenas
            .iter()
            .map(|arena| arena.values.len().div_ceil(SPAN))
            .collect();
        let count = spans.iter().sum();
        let partials = Tensor::empty(&self.gpu, &[count]);
        let together = [("GROUP", threads_together(&self.gpu) as u32)];
        let params = |count: usize, first: usize| {
            // The rest is of the update.
            params! { count: u32 = count, first: u32 = first, rest: [f32; 9] = [0f32; 9] }
        };
        let mut first = 0;
        for (arena, spans) in self.arenas.iter().zip(spans) {
            let params = params(arena.values.len(), first);
            let buffers: [&dyn Bind; 2] = [&arena.gradients, &partials];
            SQUARE_SUMS.launch(&together, &buffers, &params, Groups::count(spans));
            first += spans;
        }
        let norm = Tensor::empty(&self.gpu, &[]);
        let buffers: [&dyn Bind; 2] = [&partials, &norm];
        FINISH_NORM.launch(&together, &buffers, &params(count, 0), Groups::count(1));
        norm
    }
}

impl ParameterArena {
    fn new(gpu: &Gpu, values: &[f32]) -> ParameterArena {
        let zeros = || Tensor::zeros(gpu, &[values.len()]);
        ParameterArena {
            values: Tensor::from_slice(gpu, values, &[values.len()]),
            gradients: zeros(),
            first_moment: zeros(),
            second_moment: zeros(),
        }
    }

    /// Updates a range, whose gradients are zero afterwards.
    fn update(&self, range: Range<usize>, settings: AdamW, steps: u64, norm: &Tensor) {
        let correction = |beta: f64| 1.0 - beta.powf(steps as f64);
        let params = params! {
            count: u32 = range.len(),
            // Of the other kernels.
            first: u32 = 0,
            // A shader may assume that there is no infinity.
            max_norm: f32 = settings.max_norm.min(1e30),
            decay: f32 = 1.0 - settings.lr * settings.weight_decay,
            rate: f32 = settings.lr / correction(settings.beta1),
            correction: f32 = correction(settings.beta2).sqrt().recip(),
            eps: f32 = settings.eps,
            beta1: f32 = settings.beta1,
            one_minus_beta1: f32 = 1.0 - settings.beta1,
            beta2: f32 = settings.beta2,
            one_minus_beta2: f32 = 1.0 - settings.beta2,
        };
        let part = |tensor: &Tensor| tensor.window(range.clone());
        let (gradients, values) = (part(&self.gradients), part(&self.values));
        let (first, second) = (part(&self.first_moment), part(&self.second_moment));
        let buffers: [&dyn Bind; 5] = [&gradients, &values, &first, &second, norm];
        UPDATE.launch(&[], &buffers, &params, Groups::of(range.len(), GROUP));
    }

    /// Adds up to AT_ONCE gradients, each at an offset.
    fn add(&self, added: &[(usize, &Tensor)]) {
        let (mut offsets, mut lengths) = ([0u32; AT_ONCE], [0u32; AT_ONCE]);
        for (i, (offset, gradient)) in added.iter().enumerate() {
            (offsets[i], lengths[i]) = (*offset as u32, gradient.len() as u32);
        }
        // A kernel binds all of its buffers: the last gradient fills the unused bindings, with length 0.
        let mut buffers: Vec<&dyn Bind> = vec![&self.gradients];
        buffers.extend((0..AT_ONCE).map(|i| added[i.min(added.len() - 1)].1 as &dyn Bind));
        let total: u32 = lengths.iter().sum();
        let params =
            params! { offsets: [u32; AT_ONCE] = offsets, lengths: [u32; AT_ONCE] = lengths };
        ADD.launch(&[], &buffers, &params, Groups::of(total as usize, GROUP));
    }
}

#[cfg(test)]
mod tests;
