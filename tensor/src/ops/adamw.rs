//! Trained parameters in flat arenas, and AdamW (Loshchilov and Hutter 2019) over a whole arena at once:
//!
//! ```text
//! g = gradient * min(1, max_norm / (norm + 1e-6))          norm over all parameters, as clip_grad_norm_ in PyTorch
//! m = beta1 m + (1 - beta1) g
//! v = beta2 v + (1 - beta2) g^2
//! value = (1 - lr weight_decay) value - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//! ```
//!
//! The gradients live in a buffer of their own: the API forbids reading a buffer that the same dispatch writes, even at
//! another place, so a forward pass that reads values could not run beside an update otherwise.

mod parameter_state;

use std::collections::HashMap;
use std::sync::Arc;

use super::threads_together;
use crate::gpu::{Bind, Gpu, GpuError, Groups, Kernel, Storage};
use crate::{Gradients, Tensor};
pub use parameter_state::ParameterState;

const GROUP: usize = 64;
/// Elements whose squares one workgroup sums.
const SPAN: usize = 4096;
/// Tensors that one dispatch adds: with the arena that makes seven bindings, the most there may be.
const AT_ONCE: usize = 6;
/// Every tensor begins at a multiple of this many elements, 256 bytes, as a binding must.
const ALIGNMENT: usize = 64;

const ADD: Kernel = Kernel::new("adamw_add", "add");
const SQUARE_SUMS: Kernel = Kernel::new("adamw", "square_sums");
const FINISH_NORM: Kernel = Kernel::new("adamw", "finish_norm");
const UPDATE: Kernel = Kernel::new("adamw", "update");

#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    first: u32,
    max_norm: f32,
    decay: f32,
    rate: f32,
    correction: f32,
    eps: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct AddParams {
    offsets: [u32; AT_ONCE],
    lengths: [u32; AT_ONCE],
}

/// The knobs of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Keeps the division finite.
    pub eps: f64,
    /// Share of the learning rate by which values shrink, apart from the gradient.
    pub weight_decay: f64,
    /// Longer gradients are scaled down to this norm; infinity leaves them alone.
    pub max_norm: f64,
}

/// A tensor on the host: its name, the length of each axis, its values.
pub type NamedValues = (String, Vec<usize>, Vec<f32>);

/// As many tensors as fit into one binding.
struct ParameterArena {
    values: Arc<Storage>,
    len: usize,
    gradients: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
}

struct ParameterSlot {
    name: String,
    arena: usize,
    /// in elements
    offset: usize,
    /// the tracked view that the model computes with
    leaf: Tensor,
}

/// What is trained, with gradients and AdamW moments.
///
/// An update costs three dispatches however many tensors there are (three per 128 MiB on a device that binds no more
/// at once). Nothing is read back: the caller may read the norm that [`Parameters::step`] gives, or not.
pub struct Parameters {
    gpu: Gpu,
    arenas: Vec<ParameterArena>,
    places: Vec<ParameterSlot>,
    by_name: HashMap<String, usize>,
    steps: u64,
}

impl Parameters {
    /// Copies tensors to the device, with zero moments and no steps taken.
    ///
    /// # Panics
    /// If there are none, a name occurs twice, or a shape does not hold the values given.
    #[track_caller]
    pub fn new(gpu: &Gpu, tensors: &[NamedValues]) -> Parameters {
        Parameters::packed(gpu, tensors, gpu.caps().max_binding as usize / 4)
    }

    /// As `new`, with arenas of at most `limit` elements unless a single tensor is longer.
    #[track_caller]
    fn packed(gpu: &Gpu, tensors: &[NamedValues], limit: usize) -> Parameters {
        assert!(
            !tensors.is_empty(),
            "parameters: there are no tensors to train"
        );
        let mut contents: Vec<Vec<f32>> = vec![Vec::new()];
        let mut spots = Vec::new();
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
            spots.push((arena, content.len()));
            content.extend_from_slice(values);
            content.resize(content.len().next_multiple_of(ALIGNMENT), 0.0);
        }
        let arenas: Vec<ParameterArena> = contents
            .iter()
            .map(|values| ParameterArena::new(gpu, values))
            .collect();
        let mut parameters = Parameters {
            gpu: gpu.clone(),
            arenas,
            places: Vec::new(),
            by_name: HashMap::new(),
            steps: 0,
        };
        for ((name, shape, _), (arena, offset)) in tensors.iter().zip(spots) {
            let leaf = Tensor::view(
                parameters.arenas[arena].values.clone(),
                4 * offset as u64,
                shape,
            )
            .tracked();
            let before = parameters
                .by_name
                .insert(name.clone(), parameters.places.len());
            assert!(
                before.is_none(),
                "parameters: two tensors are called {name}"
            );
            parameters.places.push(ParameterSlot {
                name: name.clone(),
                arena,
                offset,
                leaf,
            });
        }
        parameters
    }

    /// The names, in the order given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| place.name.as_str())
    }

    /// How many numbers are trained.
    pub fn count(&self) -> u64 {
        self.places
            .iter()
            .map(|place| place.leaf.len() as u64)
            .sum()
    }

    /// A tracked tensor that views the values: it shows every later update.
    ///
    /// # Panics
    /// If nothing has that name.
    #[track_caller]
    pub fn get(&self, name: &str) -> Tensor {
        match self.by_name.get(name) {
            Some(&place) => self.places[place].leaf.clone(),
            None => panic!(
                "parameters: nothing is called {name} among {} tensors",
                self.places.len()
            ),
        }
    }

    /// How many updates were made, those skipped for a norm that was not finite included.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds the gradients of a loss to those gathered since the last step. Tensors that the loss did not depend on are
    /// left alone.
    pub fn accumulate(&mut self, gradients: &Gradients) {
        for (index, arena) in self.arenas.iter().enumerate() {
            let added: Vec<(&ParameterSlot, &Tensor)> = self
                .places
                .iter()
                .filter(|place| place.arena == index)
                .filter_map(|place| Some((place, gradients.get(&place.leaf)?)))
                .collect();
            for some in added.chunks(AT_ONCE) {
                arena.add(some);
            }
        }
    }

    /// The gradients gathered since the last step, tensor after tensor with zeros between them; the same layout each time.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn gathered(&self) -> Result<Vec<f32>, GpuError> {
        let mut all = Vec::new();
        for arena in &self.arenas {
            all.extend(arena.gradients.to_vec()?);
        }
        Ok(all)
    }

    /// Forgets the gradients gathered since the last step.
    pub fn discard(&mut self) {
        for arena in &self.arenas {
            arena.gradients.write(&vec![0.0; arena.len]);
        }
    }

    /// One AdamW update with the gathered gradients, which are zero afterwards. Gives their norm before clipping.
    ///
    /// A norm that is infinite or not a number changes neither values nor moments, only the count of steps: one bad
    /// batch does not spoil the run. The norm shows it.
    pub fn step(&mut self, knobs: AdamW) -> Tensor {
        // After a failure nothing moves until it was told.
        self.steps += u64::from(!self.gpu.has_failed());
        let norm = self.norm();
        let correction = |beta: f64| 1.0 - beta.powf(self.steps as f64);
        let params = Params {
            // Infinity stays out of the shader, which may assume that there is none.
            max_norm: knobs.max_norm.min(1e30) as f32,
            decay: (1.0 - knobs.lr * knobs.weight_decay) as f32,
            rate: (knobs.lr / correction(knobs.beta1)) as f32,
            correction: correction(knobs.beta2).sqrt().recip() as f32,
            eps: knobs.eps as f32,
            beta1: knobs.beta1 as f32,
            one_minus_beta1: (1.0 - knobs.beta1) as f32,
            beta2: knobs.beta2 as f32,
            one_minus_beta2: (1.0 - knobs.beta2) as f32,
            ..Params::default()
        };
        for arena in &self.arenas {
            let (values, gradients) = (&arena.all_values(), &arena.gradients);
            let (first, second) = (&arena.first_moment, &arena.second_moment);
            let params = Params {
                count: arena.len as u32,
                ..params
            };
            let groups = Groups::of(arena.len, GROUP);
            UPDATE.launch(
                &[],
                &[gradients, values, first, second, &norm],
                &params,
                groups,
            );
        }
        norm
    }

    /// The norm of all gathered gradients together: sums of SPAN squares first, then the sum of those.
    fn norm(&self) -> Tensor {
        let spans: Vec<usize> = self
            .arenas
            .iter()
            .map(|arena| arena.len.div_ceil(SPAN))
            .collect();
        let count = spans.iter().sum();
        let partials = Tensor::empty(&self.gpu, &[count]);
        let together = [("GROUP", threads_together(&self.gpu) as u32)];
        let mut first = 0;
        for (arena, spans) in self.arenas.iter().zip(spans) {
            let params = Params {
                count: arena.len as u32,
                first: first as u32,
                ..Params::default()
            };
            let buffers: [&dyn Bind; 2] = [&arena.gradients, &partials];
            SQUARE_SUMS.launch(&together, &buffers, &params, Groups::count(spans));
            first += spans;
        }
        let norm = Tensor::empty(&self.gpu, &[]);
        let params = Params {
            count: count as u32,
            ..Params::default()
        };
        FINISH_NORM.launch(&together, &[&partials, &norm], &params, Groups::count(1));
        norm
    }
}

impl ParameterArena {
    fn new(gpu: &Gpu, values: &[f32]) -> ParameterArena {
        let zeros = || Tensor::zeros(gpu, &[values.len()]);
        ParameterArena {
            values: gpu.upload(values),
            len: values.len(),
            gradients: zeros(),
            first_moment: zeros(),
            second_moment: zeros(),
        }
    }

    fn all_values(&self) -> Tensor {
        Tensor::view(self.values.clone(), 0, &[self.len])
    }

    /// Adds up to AT_ONCE gradients at their places.
    fn add(&self, added: &[(&ParameterSlot, &Tensor)]) {
        let mut params = AddParams::default();
        for (i, (place, gradient)) in added.iter().enumerate() {
            params.offsets[i] = place.offset as u32;
            params.lengths[i] = gradient.len() as u32;
        }
        // A kernel binds all of its buffers: the last gradient stands in, with length 0, where there are fewer.
        let mut buffers: Vec<&dyn Bind> = vec![&self.gradients];
        buffers.extend((0..AT_ONCE).map(|i| added[i.min(added.len() - 1)].1 as &dyn Bind));
        let total: u32 = params.lengths.iter().sum();
        ADD.launch(&[], &buffers, &params, Groups::of(total as usize, GROUP));
    }
}

#[cfg(test)]
mod tests;
