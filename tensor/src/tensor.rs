//! The tensor type, and reverse-mode autodiff on it.
//!
//! An op with a tracked input records a function from the gradient of its output to those of its inputs. `backward` calls
//! these functions from the newest to the oldest.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::gpu::{Bind, Binding, Gpu, GpuError};

/// A range of a tensor that is bound on its own starts at a multiple of this many numbers: 256 bytes, which suit every device.
pub const ALIGNMENT: usize = 64;

/// A contiguous f32 tensor of any shape on a device.
///
/// Cheap to clone: clones share the values. Only the methods that are documented to do so change values in place.
#[derive(Clone)]
pub struct Tensor {
    values: Binding,
    shape: Arc<[usize]>,
    node: Option<Arc<TapeNode>>,
}

impl Tensor {
    /// Copies `values` to the device.
    ///
    /// # Panics
    /// If the number of values is not that of the shape.
    #[track_caller]
    pub fn from_slice(gpu: &Gpu, values: &[f32], shape: &[usize]) -> Tensor {
        let wanted: usize = shape.iter().product();
        assert!(
            values.len() == wanted,
            "from_slice: {} values for the shape {shape:?} ({wanted})",
            values.len()
        );
        Tensor::view(gpu.upload(values), shape)
    }

    /// Returns a tensor of zeros.
    pub fn zeros(gpu: &Gpu, shape: &[usize]) -> Tensor {
        Tensor::full(gpu, shape, 0.0)
    }

    /// Returns a tensor with every element equal to `value`.
    pub fn full(gpu: &Gpu, shape: &[usize], value: f32) -> Tensor {
        let tensor = Tensor::empty(gpu, shape);
        tensor.values.fill(value.to_bits());
        tensor
    }

    /// Uninitialised: the kernel that gets this must write all of it.
    pub(crate) fn empty(gpu: &Gpu, shape: &[usize]) -> Tensor {
        let bytes = 4 * shape.iter().product::<usize>() as u64;
        Tensor::view(gpu.alloc(bytes), shape)
    }

    /// As [`Tensor::empty`], with the shape of self.
    pub(crate) fn empty_like(&self) -> Tensor {
        Tensor::empty(self.gpu(), self.shape())
    }

    /// Returns a range of a flat tensor, without gradients, that shares its values.
    ///
    /// # Panics
    /// If the range does not start at a multiple of [`ALIGNMENT`], or the tensor is shorter.
    #[track_caller]
    pub fn window(&self, range: Range<usize>) -> Tensor {
        assert!(
            range.start.is_multiple_of(ALIGNMENT)
                && range.start <= range.end
                && range.end <= self.len(),
            "window: {range:?} of {} values, from a multiple of {ALIGNMENT}",
            self.len()
        );
        Tensor::view(self.values.window(range.clone()), &[range.len()])
    }

    /// These values, untracked.
    pub(crate) fn view(values: Binding, shape: &[usize]) -> Tensor {
        Tensor {
            values,
            shape: shape.into(),
            node: None,
        }
    }

    /// The length of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of the last axis; 1 for a single number.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The product of all other axes.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// The device that holds the values.
    pub fn gpu(&self) -> &Gpu {
        self.values.gpu()
    }

    /// Waits for the values and copies them to the host.
    ///
    /// # Errors
    /// An error of the device: lost, out of memory, or refused work.
    pub fn to_vec(&self) -> Result<Vec<f32>, GpuError> {
        self.values.read()
    }

    /// Does so for several tensors of one device, and waits only once.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    ///
    /// # Panics
    /// If they are of several devices.
    #[track_caller]
    pub fn to_vecs(all: &[&Tensor]) -> Result<Vec<Vec<f32>>, GpuError> {
        let bindings: Vec<&Binding> = all.iter().map(|tensor| &tensor.values).collect();
        Binding::read_all(&bindings)
    }

    /// Overwrites the values in place, after all work recorded so far. Tensors that share the values change too.
    ///
    /// # Panics
    /// If the number of values differs, or the tensor is tracked.
    #[track_caller]
    pub fn write(&self, values: &[f32]) {
        assert!(
            !self.is_tracked(),
            "write: the tensor is tracked, and tracked values must not change; detach it"
        );
        assert!(
            values.len() == self.len(),
            "write: {} values for the shape {:?}",
            values.len(),
            self.shape
        );
        self.values.write(0, bytemuck::cast_slice(values));
    }

    /// Returns the same values with another shape.
    ///
    /// # Panics
    /// If the number of elements differs.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Tensor {
        let wanted: usize = shape.iter().product();
        assert!(
            self.len() == wanted,
            "reshape: {:?} has {} elements, {shape:?} has {wanted}",
            self.shape,
            self.len()
        );
        let before = self.shape.clone();
        Tensor::view(self.values.clone(), shape)
            .recorded("reshape", [self], move |dy, _| [Some(dy.reshape(&before))])
    }

    /// Returns copies of the values, without gradients, that lie in one buffer (see [`Tensor::linears`]), as far as one binding
    /// can hold them.
    pub fn together(tensors: &[Tensor]) -> Vec<Tensor> {
        let bindings: Vec<&Binding> = tensors.iter().map(Bind::binding).collect();
        match Binding::together(&bindings) {
            None => tensors.iter().map(Tensor::detach).collect(),
            Some(copies) => {
                let copies = copies.into_iter().zip(tensors);
                copies
                    .map(|(copy, tensor)| Tensor::view(copy, &tensor.shape))
                    .collect()
            }
        }
    }

    /// Returns the same values without a gradient.
    pub fn detach(&self) -> Tensor {
        Tensor {
            node: None,
            ..self.clone()
        }
    }
}

impl Bind for Tensor {
    fn binding(&self) -> &Binding {
        &self.values
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tracked = if self.is_tracked() { " tracked" } else { "" };
        write!(f, "Tensor{:?}{tracked}", self.shape)
    }
}

type Backward = Box<dyn FnOnce(&Tensor, &mut Gradients) -> Vec<Option<Tensor>> + Send>;

/// The op that made a tracked tensor. A leaf has no inputs and no `backward`.
struct TapeNode {
    /// Inputs have smaller numbers than outputs.
    id: u64,
    op: &'static str,
    shape: Arc<[usize]>,
    inputs: Vec<Option<Arc<TapeNode>>>,
    backward: Mutex<Option<Backward>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Drop for TapeNode {
    /// Drops the inputs one after the other: recursion would overflow the stack on a long tape.
    fn drop(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        while let Some(input) = inputs.pop() {
            if let Some(mut node) = input.and_then(Arc::into_inner) {
                inputs.append(&mut node.inputs);
            }
        }
    }
}

/// The gradients of the leaves.
#[derive(Debug, Default)]
pub struct Gradients(HashMap<u64, Tensor>);

impl Gradients {
    /// Returns the gradient of a tensor from [`Tensor::tracked`], or of its clones; `None` if the result does not depend on it.
    /// Each call of `tracked` makes another leaf.
    pub fn get(&self, leaf: &Tensor) -> Option<&Tensor> {
        self.0.get(&leaf.node.as_ref()?.id)
    }

    fn add(&mut self, id: u64, gradient: Tensor) {
        let sum = match self.0.remove(&id) {
            Some(before) => before.add(&gradient),
            None => gradient,
        };
        self.0.insert(id, sum);
    }
}

impl Tensor {
    /// Returns the same values as a leaf, which gets a gradient in `backward`.
    pub fn tracked(&self) -> Tensor {
        self.clone().with_node("leaf", Vec::new(), None)
    }

    /// Whether `backward` computes a gradient for it.
    pub fn is_tracked(&self) -> bool {
        self.node.is_some()
    }

    /// Puts `self`, the untracked output of an op, on the tape if an input is tracked. `backward` gets the gradient of the
    /// output and a flag for each input, and returns a gradient for each tracked input.
    pub(crate) fn recorded<'a, const N: usize>(
        self,
        op: &'static str,
        inputs: [impl Into<Option<&'a Tensor>>; N],
        backward: impl FnOnce(&Tensor, [bool; N]) -> [Option<Tensor>; N] + Send + 'static,
    ) -> Tensor {
        let nodes = inputs.map(|input| input.into().and_then(|tensor| tensor.node.clone()));
        let tracked = nodes.each_ref().map(Option::is_some);
        if !tracked.contains(&true) {
            return self;
        }
        let backward: Backward = Box::new(move |dy, _| backward(dy, tracked).into());
        self.with_node(op, nodes.into(), Some(backward))
    }

    /// As [`Tensor::recorded`], for a list of inputs. `backward` returns a gradient for each.
    pub(crate) fn recorded_parts(
        self,
        op: &'static str,
        inputs: &[Tensor],
        backward: impl FnOnce(&Tensor) -> Vec<Tensor> + Send + 'static,
    ) -> Tensor {
        let nodes: Vec<_> = inputs.iter().map(|input| input.node.clone()).collect();
        if nodes.iter().all(Option::is_none) {
            return self;
        }
        let backward: Backward =
            Box::new(move |dy, _| backward(dy).into_iter().map(Some).collect());
        self.with_node(op, nodes, Some(backward))
    }

    fn with_node(
        self,
        op: &'static str,
        inputs: Vec<Option<Arc<TapeNode>>>,
        backward: Option<Backward>,
    ) -> Tensor {
        let node = TapeNode {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            op,
            shape: self.shape.clone(),
            inputs,
            backward: Mutex::new(backward),
        };
        Tensor {
            node: Some(Arc::new(node)),
            ..self
        }
    }

    /// Computes the gradient of this single number with respect to every leaf that it depends on.
    ///
    /// # Panics
    /// If the tensor is not a single number, does not depend on a tracked tensor, or `backward` was called before.
    #[track_caller]
    pub fn backward(&self) -> Gradients {
        assert!(
            self.len() == 1,
            "backward: wanted a single number, got the shape {:?}",
            self.shape()
        );
        let one = Tensor::full(self.gpu(), self.shape(), 1.0);
        let mut gradients = Gradients::default();
        self.backward_from(one, &mut gradients);
        gradients
    }

    #[track_caller]
    fn backward_from(&self, upstream: Tensor, gradients: &mut Gradients) {
        let Some(root) = self.node.clone() else {
            panic!("backward: the tensor does not depend on a tracked tensor")
        };
        let mut waiting = BTreeMap::from([(root.id, (root, upstream))]);
        while let Some((id, (node, dy))) = waiting.pop_last() {
            if node.inputs.is_empty() {
                gradients.add(id, dy);
                continue;
            }
            let Some(backward) = node.backward.lock().expect("tape").take() else {
                panic!(
                    "backward: the gradient of {} was computed before; a result can be differentiated once",
                    node.op
                )
            };
            let returned = backward(&dy, gradients);
            assert_eq!(
                returned.len(),
                node.inputs.len(),
                "{}: number of gradients and of inputs",
                node.op
            );
            for (input, gradient) in node.inputs.iter().zip(returned) {
                let (Some(input), Some(gradient)) = (input, gradient) else {
                    continue;
                };
                assert_eq!(
                    gradient.shape, input.shape,
                    "{}: shape of the gradient and of the input",
                    node.op
                );
                let sum = match waiting.remove(&input.id) {
                    Some((_, before)) => before.add(&gradient),
                    None => gradient,
                };
                waiting.insert(input.id, (input.clone(), sum));
            }
        }
    }
}

/// Computes `block(input)` without keeping intermediate results: the backward pass computes the block again, which trades
/// time for memory (Chen et al. 2016). Tracked tensors that the block captures get their gradients too.
pub fn recomputed(input: &Tensor, block: impl Fn(&Tensor) -> Tensor + Send + 'static) -> Tensor {
    let output = block(&input.detach());
    match output.is_tracked() || input.is_tracked() {
        true => known_output(input, &output, block),
        false => output,
    }
}

/// Returns `output`, which an earlier pass computed as `block(input)`. The backward pass runs the block, for its gradients as in
/// [`recomputed`].
pub fn known_output(
    input: &Tensor,
    output: &Tensor,
    block: impl FnOnce(&Tensor) -> Tensor + Send + 'static,
) -> Tensor {
    let (kept, wanted) = (input.detach(), input.is_tracked());
    let inputs = vec![input.node.clone()];
    let backward = move |dy: &Tensor, gradients: &mut Gradients| {
        let leaf = kept.tracked();
        block(if wanted { &leaf } else { &kept }).backward_from(dy.clone(), gradients);
        vec![leaf.node.and_then(|node| gradients.0.remove(&node.id))]
    };
    let output = output.detach();
    output.with_node("recomputed", inputs, Some(Box::new(backward)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpu;

    #[test]
    fn a_tensor_used_twice_gets_both_gradients() {
        let x = Tensor::from_slice(&gpu(), &[3.0, -2.0], &[2]).tracked();
        // y = sum(x² + x), dy/dx = 2x + 1
        let gradients = x.mul(&x).add(&x).sum().backward();
        assert_eq!(gradients.get(&x).unwrap().to_vec().unwrap(), [7.0, -3.0]);
    }

    #[test]
    fn what_is_not_tracked_gets_no_gradient_and_records_nothing() {
        let x = Tensor::from_slice(&gpu(), &[3.0], &[1]);
        assert!(!x.mul(&x).is_tracked());
        let y = x.tracked();
        assert!(y.sum().backward().get(&x).is_none());
    }

    #[test]
    fn a_recomputed_block_gives_the_same_gradients() {
        let gpu = gpu();
        let x = Tensor::from_slice(&gpu, &[0.5, -1.5, 2.0], &[3]);
        let w = Tensor::from_slice(&gpu, &[1.0, 2.0, -0.5], &[3]).tracked();
        let block = move |w: &Tensor, x: &Tensor| x.mul(w).silu().mul(x);
        for tracked in [false, true] {
            let x = if tracked { x.tracked() } else { x.clone() };
            let plain = block(&w, &block(&w, &x)).sum().backward();
            let (w1, w2) = (w.clone(), w.clone());
            let once = recomputed(&x, move |x| block(&w1, x));
            let again = recomputed(&once, move |x| block(&w2, x)).sum().backward();
            for leaf in [&w, &x] {
                let values = |g: &Gradients| g.get(leaf).map(|t| t.to_vec().unwrap());
                assert_eq!(values(&plain), values(&again));
            }
        }
    }

    #[test]
    fn a_long_tape_is_dropped() {
        // A test's thread has a stack of 2 MiB.
        let one = Tensor::full(&gpu(), &[1], 1.0);
        let mut x = one.tracked();
        for _ in 0..50_000 {
            x = x.reshape(&[1]);
        }
        drop(x);
    }

    #[test]
    #[should_panic(expected = "the tensors are on several devices")]
    fn tensors_of_two_devices_are_refused() {
        let other = Gpu::open(crate::GpuOptions::default()).unwrap();
        let x = |gpu: &Gpu| Tensor::full(gpu, &[2], 1.0);
        x(&gpu()).add(&x(&other));
    }

    #[test]
    #[should_panic(expected = "the tensors are on several devices")]
    fn reading_from_two_devices_is_refused() {
        let other = Gpu::open(crate::GpuOptions::default()).unwrap();
        let x = |gpu: &Gpu| Tensor::full(gpu, &[2], 1.0);
        let _ = Tensor::to_vecs(&[&x(&gpu()), &x(&other)]);
    }

    #[test]
    #[should_panic(expected = "window: 32..40 of 128 values, from a multiple of 64")]
    fn a_window_that_starts_anywhere_is_refused() {
        Tensor::zeros(&gpu(), &[128]).window(32..40);
    }

    #[test]
    #[should_panic(expected = "backward: wanted a single number, got the shape [2]")]
    fn backward_of_many_numbers_is_refused() {
        Tensor::zeros(&gpu(), &[2]).tracked().backward();
    }

    #[test]
    #[should_panic(expected = "was computed before")]
    fn backward_twice_is_refused() {
        let y = Tensor::zeros(&gpu(), &[2]).tracked().sum();
        y.backward();
        y.backward();
    }
}
