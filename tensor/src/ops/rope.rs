//! Rotary position embedding (Su et al. 2021) in the rotate-half order of transformers: channel i of a head is rotated
//! with channel i + D/2.
//!
//! θ = position · f_i, y_i = x_i cos θ - x_{i+D/2} sin θ, y_{i+D/2} = x_{i+D/2} cos θ + x_i sin θ
//! dx is dy rotated by -θ.

use std::sync::{Arc, Mutex};

use crate::gpu::{Bind, Groups, Kernel, params};
use crate::{Gpu, Indices, Tensor};

const ROTATE: Kernel = Kernel::new("rope", "rotate");

/// A table of cosines and sines by position, which grows to the largest position used. Clones share it.
///
/// WGSL guarantees its own functions only to 2⁻¹¹ and only within [-π, π], so the host computes them: the angle is
/// rounded to f32 as in transformers, the rest is in f64.
#[derive(Clone)]
pub struct Rotations {
    inverse_frequencies: Arc<[f32]>,
    /// (positions, D/2, 2)
    table: Arc<Mutex<Tensor>>,
}

impl Rotations {
    /// Makes a table for heads with two channels for each of the `inverse_frequencies` (radians per position).
    pub fn new(gpu: &Gpu, inverse_frequencies: &[f32]) -> Rotations {
        let none = Tensor::zeros(gpu, &[0, inverse_frequencies.len(), 2]);
        Rotations {
            inverse_frequencies: inverse_frequencies.into(),
            table: Arc::new(Mutex::new(none)),
        }
    }

    /// Returns the table with all positions below `positions`.
    fn reaching(&self, gpu: &Gpu, positions: usize) -> Tensor {
        const SMALLEST: usize = 256;
        let mut table = self.table.lock().expect("rotations");
        if table.shape()[0] < positions {
            let positions = positions.next_power_of_two().max(SMALLEST);
            let frequencies = &self.inverse_frequencies;
            let rotation = |position: usize, frequency: &f32| {
                let (sine, cosine) = f64::from(position as f32 * frequency).sin_cos();
                [cosine as f32, sine as f32]
            };
            let values: Vec<f32> = (0..positions)
                .flat_map(|position| frequencies.iter().flat_map(move |f| rotation(position, f)))
                .collect();
            *table = Tensor::from_slice(gpu, &values, &[positions, frequencies.len(), 2]);
        }
        table.clone()
    }
}

impl Tensor {
    /// self (T, heads · D), each head rotated according to the position of its token.
    ///
    /// # Panics
    /// If `positions` does not have T entries or is not known on the host, or if a row is not `heads` times as long
    /// as twice the number of frequencies.
    #[track_caller]
    pub fn rope(&self, positions: &Indices, rotations: &Rotations, heads: usize) -> Tensor {
        let half = rotations.inverse_frequencies.len();
        assert!(
            self.cols() == 2 * heads * half && self.rows() == positions.len(),
            "rope: {heads} heads of {} channels at {} positions do not fit {:?}",
            2 * half,
            positions.len(),
            self.shape()
        );
        let Some(host) = positions.host() else {
            panic!("rope: the positions are on the device only; make them with Indices::new")
        };
        let reach = host.iter().max().map_or(0, |last| *last as usize + 1);
        let table = rotations.reaching(self.gpu(), reach);
        let positions = positions.clone();
        let rotate = move |x: &Tensor, sign: f32| {
            let y = x.empty_like();
            let count = x.len() / 2;
            let params = params! { count: u32 = count, heads: u32 = heads, half: u32 = half, sign: f32 = sign };
            let buffers: [&dyn Bind; 4] = [x, &positions, &table, &y];
            ROTATE.launch(&[], &buffers, &params, Groups::of(count, 64));
            y
        };
        rotate(self, 1.0).recorded("rope", [self], move |dy, _| [Some(rotate(dy, -1.0))])
    }
}

#[cfg(test)]
mod tests {
    use super::Rotations;
    use crate::check::reference::{ROPE as TOLERANCE, frequencies, rope as reference};
    use crate::testing::{Array, check, gpu};
    use crate::{Indices, Tensor};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_its_reference(
            positions in proptest::collection::vec(0u32..5000, 1..20), half in 1usize..20, heads in 1usize..4, seed: u64,
        ) {
            let gpu = gpu();
            let x = [Array::random(&[positions.len(), heads * 2 * half], seed, -2.0..2.0)];
            let (f, at) = (frequencies(half), Indices::new(&gpu, &positions));
            let rotations = Rotations::new(&gpu, &f);
            check(&|t| t[0].rope(&at, &rotations, heads), &|a| reference(&a[0], &positions, &f, heads), &x, TOLERANCE);
        }
    }

    #[test]
    fn a_table_that_grew_gives_the_same_bits() {
        let gpu = gpu();
        let x = Array::random(&[3, 16], 1, -1.0..1.0).tensor(&gpu);
        let (near, far) = (
            Indices::new(&gpu, &[0, 7, 255]),
            Indices::new(&gpu, &[1, 4095, 9]),
        );
        let rotations = Rotations::new(&gpu, &frequencies(8));
        let before = x.rope(&near, &rotations, 1).to_vec().unwrap();
        x.rope(&far, &rotations, 1);
        assert_eq!(before, x.rope(&near, &rotations, 1).to_vec().unwrap());
    }

    #[test]
    #[should_panic(expected = "rope: 2 heads of 4 channels at 3 positions do not fit [3, 6]")]
    fn rows_of_another_length_are_refused() {
        let gpu = gpu();
        let rotations = Rotations::new(&gpu, &frequencies(2));
        Tensor::zeros(&gpu, &[3, 6]).rope(&Indices::new(&gpu, &[0, 1, 2]), &rotations, 2);
    }
}
