//! Layer normalisation (Ba, Kiros and Hinton 2016) of the rows of the last axis.
//!
//! n = (x - mean(x)) r with r = 1 / √(variance(x) + eps), the variance being that of the whole row; y = n w + b
//! dx = r (dy w - mean(dy w) - n mean(dy w n)), dw = Σ over rows of dy n, db = Σ over rows of dy

use crate::gpu::{Groups, Kernel};
use crate::{Gpu, Tensor};

const FORWARD: Kernel = Kernel::new("layer_norm", "forward");
const BACKWARD: Kernel = Kernel::new("layer_norm", "backward");
const WEIGHT_BACKWARD: Kernel = Kernel::new("layer_norm", "weight_backward");

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
    /// Each row of the last axis (length C) less its mean, divided by its standard deviation, multiplied by `weight` (C)
    /// and shifted by `bias` (C). `eps` is added to the variance. Gradients for all three.
    ///
    /// # Panics
    /// If weight or bias is not as long as a row.
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f32) -> Tensor {
        let row = [self.cols()];
        assert!(
            weight.shape() == row && bias.shape() == row && self.cols() > 0,
            "layer_norm: rows of {:?}, a weight of {:?} and a bias of {:?}",
            self.shape(),
            weight.shape(),
            bias.shape()
        );
        let y = Tensor::empty(self.gpu(), self.shape());
        let moments = Tensor::empty(self.gpu(), &[self.rows(), 2]);
        let (x, w) = (self.detach(), weight.detach());
        launch_rows(&FORWARD, eps, &x, &[&x, &w, bias, &y, &moments]);
        let wanted = [self, weight, bias].map(Tensor::is_tracked);
        y.recorded("layer_norm", &[self, weight, bias], move |dy| {
            let dx = || {
                let dx = Tensor::empty(x.gpu(), x.shape());
                launch_rows(&BACKWARD, eps, &x, &[&x, &w, &moments, dy, &dx]);
                dx
            };
            vec![
                wanted[0].then(dx),
                wanted[1].then(|| weight_gradient(&x, &moments, dy)),
                wanted[2].then(|| dy.sum_to(w.shape())),
            ]
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

fn weight_gradient(x: &Tensor, moments: &Tensor, dy: &Tensor) -> Tensor {
    let chunks = x.rows().div_ceil(CHUNK);
    let sums = Tensor::empty(x.gpu(), &[chunks, x.cols()]);
    WEIGHT_BACKWARD.launch(
        x.gpu(),
        &[],
        &[
            &x.binding(),
            &sums.binding(),
            &moments.binding(),
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
    use crate::check::reference::{LAYER_EPS as EPS, LAYER_NORM, layer_norm};
    use crate::testing::{Array, check, gpu};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 100, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_its_reference(
            rows in prop_oneof![Just(1usize), Just(31), Just(32), Just(33), Just(65), 2usize..130],
            cols in prop_oneof![Just(8usize), Just(63), Just(64), Just(65), 2usize..300],
            seed: u64,
        ) {
            let inputs = [
                Array::random(&[rows, cols], seed, -2.0..2.0),
                Array::random(&[cols], seed ^ 1, 0.5..1.5),
                Array::random(&[cols], seed ^ 2, -1.0..1.0),
            ];
            check(
                &|t| t[0].layer_norm(&t[1], &t[2], EPS),
                &|a| layer_norm(&a[0], &a[1], &a[2]),
                &inputs,
                LAYER_NORM,
            );
        }
    }

    /// What makes it a normalisation: neither a shift nor a stretch of a row shows in it.
    #[test]
    fn a_shift_and_a_stretch_of_a_row_leave_no_trace() {
        let gpu = gpu();
        let x = Array::random(&[5, 96], 3, -1.0..1.0);
        let normal = |x: &Array| {
            let (one, zero) = (Tensor::full(&gpu, &[96], 1.0), Tensor::zeros(&gpu, &[96]));
            let y = x.tensor(&gpu).layer_norm(&one, &zero, 1e-9);
            y.to_vec().unwrap()
        };
        let (before, after) = (normal(&x), normal(&x.map(|v| 3.0 * v + 2.0)));
        for (a, b) in before.iter().zip(&after) {
            // x rounds to 1e-7 of its size of 5, a stretch of 3 makes that 1e-6 of a deviation.
            assert!((a - b).abs() < 5e-6, "{a} {b}");
        }
        for row in before.chunks(96) {
            let mean = row.iter().sum::<f32>() / 96.0;
            let variance = row.iter().map(|v| v * v).sum::<f32>() / 96.0;
            assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        let gpu = gpu();
        let x = Array::random(&[70, 96], 3, -1.0..1.0);
        let (w, b) = (
            Array::random(&[96], 4, 0.5..1.5),
            Array::random(&[96], 5, -1.0..1.0),
        );
        let of = |x: &Array| {
            let y = x
                .tensor(&gpu)
                .layer_norm(&w.tensor(&gpu), &b.tensor(&gpu), EPS);
            y.to_vec().unwrap()
        };
        let last = Array {
            shape: vec![1, 96],
            values: x.values[69 * 96..].to_vec(),
        };
        assert_eq!(of(&x)[69 * 96..], of(&last));
    }

    #[test]
    #[should_panic(expected = "layer_norm: rows of [2, 3], a weight of [3] and a bias of [4]")]
    fn a_bias_of_another_length_is_refused() {
        let gpu = gpu();
        let (x, w) = (Tensor::zeros(&gpu, &[2, 3]), Tensor::zeros(&gpu, &[3]));
        x.layer_norm(&w, &Tensor::zeros(&gpu, &[4]), EPS);
    }
}
