//! RMS norm (Zhang and Sennrich 2019) and layer norm (Ba, Kiros and Hinton 2016) of the rows of the last axis.
//!
//! RMS norm:   n = x r with r = 1 / √(mean(x²) + eps), y = n w
//!             dx = dy w r - x r³ mean(dy w x)
//! layer norm: n = (x - mean(x)) r with r = 1 / √(variance(x) + eps), y = n w + b; the variance divides by the length
//!             dx = r (dy w - mean(dy w) - n mean(dy w n)), db = Σ over rows of dy
//! both:       dw = Σ over rows of dy n

use crate::gpu::{Bind, Groups, Kernel, params};
use crate::ops::threads_together;
use crate::{Gpu, Tensor};

const FORWARD: Kernel = Kernel::new("norm", "forward");
const BACKWARD: Kernel = Kernel::new("norm", "backward");
const WEIGHT_BACKWARD: Kernel = Kernel::new("norm", "weight_backward");

/// Threads of a workgroup on a GPU, and of the gradient of the weight: `GROUP` in the shader.
const GROUP: usize = 64;

/// Rows that one thread sums for the gradient of the weight.
const CHUNK: usize = 32;

impl Tensor {
    /// Divides each row of the last axis (length C) by its root mean square and multiplies it by `weight` (C).
    /// `eps` is added to the mean square. Gradients for both.
    ///
    /// # Panics
    /// If the weight is not as long as a row.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f32) -> Tensor {
        self.norm("rms_norm", weight, None, eps)
    }

    /// Subtracts from each row of the last axis (length C) its mean, divides it by its standard deviation, multiplies
    /// it by `weight` (C) and adds `bias` (C). `eps` is added to the variance. Gradients for all three.
    ///
    /// # Panics
    /// If weight or bias is not as long as a row.
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f32) -> Tensor {
        self.norm("layer_norm", weight, Some(bias), eps)
    }

    /// Layer norm if there is a bias, else RMS norm.
    #[track_caller]
    fn norm(&self, op: &'static str, weight: &Tensor, bias: Option<&Tensor>, eps: f32) -> Tensor {
        for (vector, name) in [(Some(weight), "weight"), (bias, "bias")] {
            let fits = |vector: &Tensor| vector.shape() == [self.cols()] && self.cols() > 0;
            assert!(
                vector.is_none_or(fits),
                "{op}: rows of {:?} and a {name} of {:?}",
                self.shape(),
                vector.map(Tensor::shape).unwrap_or_default()
            );
        }
        let centered = ("CENTERED", u32::from(bias.is_some()));
        let (x, w, y) = (self.detach(), weight.detach(), self.empty_like());
        let params = params! { rows: u32 = x.rows(), cols: u32 = x.cols(), eps: f32 = eps, chunk: u32 = CHUNK };
        let (lanes, group) = (lanes(x.gpu(), x.cols()), threads_together(x.gpu()));
        let constants = [
            ("LANES", lanes as u32),
            ("GROUP", group as u32),
            ("STEP", if x.cols().is_multiple_of(4) { 4 } else { 1 }),
            centered,
        ];
        let groups = Groups::of(x.rows() * lanes, group);
        let kept = Tensor::empty(x.gpu(), &[x.rows(), 1 + bias.iter().len()]);
        // RMS norm does not read the bias; the weight takes its binding.
        let buffers: [&dyn Bind; 5] = [&x, &w, bias.unwrap_or(&w), &y, &kept];
        FORWARD.launch(&constants, &buffers, &params, groups);
        let inputs = [Some(self), Some(weight), bias];
        y.recorded(op, inputs, move |dy, [to_x, to_weight, to_bias]| {
            let dx = to_x.then(|| {
                let dx = x.empty_like();
                BACKWARD.launch(&constants, &[&x, &w, &kept, dy, &dx], &params, groups);
                dx
            });
            let dw = to_weight.then(|| {
                let sums = Tensor::empty(x.gpu(), &[x.rows().div_ceil(CHUNK), x.cols()]);
                let groups = Groups::of(sums.len(), GROUP);
                WEIGHT_BACKWARD.launch(&[centered], &[&x, &sums, &kept, dy], &params, groups);
                sums.sum_to(w.shape())
            });
            [dx, dw, to_bias.then(|| dy.sum_to(w.shape()))]
        })
    }
}

/// The number of threads that share a row. A processor has few threads, and barriers are expensive on it. Must not
/// depend on the number of rows: it decides the order of the sum, and the bits of a row must be the same in any batch.
fn lanes(gpu: &Gpu, cols: usize) -> usize {
    match gpu.is_software() {
        true => 1,
        false => (cols / 8).max(1).next_power_of_two().min(GROUP),
    }
}

#[cfg(test)]
mod tests;
