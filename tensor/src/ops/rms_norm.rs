//! RMS normalisation (Zhang and Sennrich 2019) of the rows of the last axis.
//!
//! r = 1 / √(mean(x²) + eps), y = x r w
//! dx = dy w r - x r³ mean(dy w x), dw = Σ over rows of dy x r

use crate::gpu::{Groups, Kernel};
use crate::{Gpu, Tensor};

const FORWARD: Kernel = Kernel::new("rms_norm", "forward");
const BACKWARD: Kernel = Kernel::new("rms_norm", "backward");
const WEIGHT_BACKWARD: Kernel = Kernel::new("rms_norm", "weight_backward");

/// Threads of a group: `GROUP` in the shader.
const GROUP: usize = 64;

/// Rows that one thread adds up for the gradient of the weight.
const CHUNK: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    rows: u32,
    cols: u32,
    eps: f32,
    chunk: u32,
}

impl Tensor {
    /// Each row of the last axis (length C) divided by its root mean square and multiplied by `weight` (C).
    /// `eps` is added to the mean square. Gradients for both.
    ///
    /// # Panics
    /// If the weight is not as long as a row.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f32) -> Tensor {
        assert!(
            weight.shape() == [self.cols()] && self.cols() > 0,
            "rms_norm: rows of {:?} and a weight of {:?}",
            self.shape(),
            weight.shape()
        );
        let y = Tensor::empty(self.gpu(), self.shape());
        let inverse = Tensor::empty(self.gpu(), &[self.rows()]);
        let (x, w) = (self.detach(), weight.detach());
        launch_rows(&FORWARD, eps, &x, &[&x, &w, &y, &inverse]);
        let (x_wanted, weight_wanted) = (self.is_tracked(), weight.is_tracked());
        y.recorded("rms_norm", &[self, weight], move |dy| {
            let dx = x_wanted.then(|| {
                let dx = Tensor::empty(x.gpu(), x.shape());
                launch_rows(&BACKWARD, eps, &x, &[&x, &w, &inverse, dy, &dx]);
                dx
            });
            vec![dx, weight_wanted.then(|| weight_gradient(&x, &inverse, dy))]
        })
    }
}

fn params(x: &Tensor, eps: f32) -> Params {
    Params {
        rows: x.rows() as u32,
        cols: x.cols() as u32,
        eps,
        chunk: CHUNK as u32,
    }
}

fn launch_rows(kernel: &Kernel, eps: f32, x: &Tensor, tensors: &[&Tensor]) {
    if x.is_empty() {
        return;
    }
    let lanes = lanes(x.gpu(), x.cols());
    let bindings: Vec<_> = tensors.iter().map(|t| t.binding()).collect();
    let bindings: Vec<_> = bindings.iter().collect();
    kernel.launch(
        x.gpu(),
        &[("LANES", lanes as u32)],
        &bindings,
        &params(x, eps),
        Groups::of(x.rows() * lanes, GROUP),
    );
}

/// How many threads share a row. A processor has few threads to keep busy and pays for barriers. Must not depend on
/// the number of rows: it decides the order of the sum, and a row's bits are the same in any batch.
fn lanes(gpu: &Gpu, cols: usize) -> usize {
    if gpu.is_software() {
        1
    } else {
        (cols / 8).max(1).next_power_of_two().min(GROUP)
    }
}

fn weight_gradient(x: &Tensor, inverse: &Tensor, dy: &Tensor) -> Tensor {
    let chunks = x.rows().div_ceil(CHUNK);
    let sums = Tensor::empty(x.gpu(), &[chunks, x.cols()]);
    WEIGHT_BACKWARD.launch(
        x.gpu(),
        &[],
        &[
            &x.binding(),
            &sums.binding(),
            &inverse.binding(),
            &dy.binding(),
        ],
        &params(x, 0.0),
        Groups::of(sums.len(), GROUP),
    );
    sums.sum_to(&[x.cols()])
}

#[cfg(test)]
mod tests {
    use crate::Tensor;
    use crate::check::reference::{RMS_EPS as EPS, RMS_NORM, rms_norm};
    use crate::testing::{Array, check, gpu};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 100, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_its_reference(
            rows in prop_oneof![Just(1usize), Just(31), Just(32), Just(33), Just(65), 2usize..130],
            cols in prop_oneof![Just(1usize), Just(8), Just(63), Just(64), Just(65), 2usize..300],
            seed: u64,
        ) {
            let inputs = [Array::random(&[rows, cols], seed, -2.0..2.0), Array::random(&[cols], seed ^ 1, 0.5..1.5)];
            check(&|t| t[0].rms_norm(&t[1], EPS), &|a| rms_norm(&a[0], &a[1]), &inputs, RMS_NORM);
        }
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        let gpu = gpu();
        let (x, w) = (
            Array::random(&[70, 96], 3, -1.0..1.0),
            Array::random(&[96], 4, 0.5..1.5),
        );
        let all = x
            .tensor(&gpu)
            .rms_norm(&w.tensor(&gpu), EPS)
            .to_vec()
            .unwrap();
        let last = Array {
            shape: vec![1, 96],
            values: x.values[69 * 96..].to_vec(),
        };
        let alone = last
            .tensor(&gpu)
            .rms_norm(&w.tensor(&gpu), EPS)
            .to_vec()
            .unwrap();
        assert_eq!(all[69 * 96..], alone);
    }

    #[test]
    #[should_panic(expected = "rms_norm: rows of [2, 3] and a weight of [4]")]
    fn a_weight_of_another_length_is_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[2, 3]).rms_norm(&Tensor::zeros(&gpu, &[4]), EPS);
    }
}
