//! Rotary position embedding (Su et al. 2021) in the rotate-half order of transformers: channel i of a head is rotated
//! with channel i + D/2.
//!
//! θ = position · f_i, y_i = x_i cos θ - x_{i+D/2} sin θ, y_{i+D/2} = x_{i+D/2} cos θ + x_i sin θ
//! dx is dy rotated by -θ.

use std::sync::{Arc, Mutex};

use crate::gpu::{Bind, Binding, Groups, Kernel, params};
use crate::{Gpu, Indices, Tensor};

const ROTATE: Kernel = Kernel::new("rope", "rotate");
const ROTATE_BOTH: Kernel = Kernel::new("rope", "rotate_both");
const ROTATE_AND_STORE: Kernel = Kernel::new("rope", "rotate_and_store");

/// A table of cosines and sines by position, which grows to the largest position used. Clones share it.
///
/// WGSL guarantees its own functions only to 2⁻¹¹ and only within [-π, π], so the host computes them: the angle is
/// rounded to f32 as in transformers, the rest is in f64.
#[derive(Clone, Debug)]
pub struct Rotations {
    inverse_frequencies: Arc<[f32]>,
    /// (positions, D/2, 2)
    table: Arc<Mutex<Tensor>>,
}

impl Rotations {
    /// Makes a table for heads with two channels for each of the `inverse_frequencies` (radians per position).
    ///
    /// # Panics
    /// If the number of frequencies is odd: the kernels read two at once.
    #[track_caller]
    pub fn new(gpu: &Gpu, inverse_frequencies: &[f32]) -> Rotations {
        let count = inverse_frequencies.len();
        assert!(
            count.is_multiple_of(2),
            "rope: {count} frequencies, wanted an even number; pad the heads with zeros to a multiple of 4 channels"
        );
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
        let turns = rotations.at(positions, &[(self, heads)]);
        let y = turns.rotated(self, heads, 1.0);
        y.recorded("rope", [self], move |dy, _| {
            [Some(turns.rotated(dy, heads, -1.0))]
        })
    }
}

/// Queries, keys and values of T tokens before their rotation, (T, heads · D) and twice (T, kv_heads · D).
#[derive(Debug)]
pub struct Unrotated {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values, which are not rotated.
    pub v: Tensor,
}

impl Unrotated {
    /// [`Tensor::rope`] of queries and keys. Results of one [`Tensor::linears`] are rotated in place, so other uses of them
    /// get rotated values.
    ///
    /// # Panics
    /// As [`Tensor::rope`].
    #[track_caller]
    pub fn rope(
        self,
        positions: &Indices,
        rotations: &Rotations,
        heads: [usize; 2],
    ) -> [Tensor; 3] {
        let Unrotated { q, k, v } = self;
        let turns = rotations.at(positions, &[(&q, heads[0]), (&k, heads[1])]);
        let Some((buffer, at)) = Binding::union(&[q.binding(), k.binding()]) else {
            let [q, k] =
                [(q, heads[0]), (k, heads[1])].map(|(x, h)| x.rope(positions, rotations, h));
            return [q, k, v];
        };
        turns.launch(&ROTATE_BOTH, [&q, &k], heads, [at[1], 0], &[&buffer]);
        let [q, k] = [(q, heads[0]), (k, heads[1])].map(|(x, heads)| {
            let turns = turns.clone();
            let y = x.detach();
            y.recorded("rope", [&x], move |dy, _| {
                [Some(turns.rotated(dy, heads, -1.0))]
            })
        });
        [q, k, v]
    }

    /// Returns rotated queries, and writes rotated keys, and values, to `rows` of the caches (S, kv_heads · D). For untracked
    /// tensors.
    ///
    /// # Panics
    /// As [`Tensor::rope`] and [`Tensor::write_rows`].
    #[track_caller]
    pub fn store(
        self,
        positions: &Indices,
        rotations: &Rotations,
        heads: [usize; 2],
        rows: &Indices,
        [keys, values]: [&Tensor; 2],
    ) -> Tensor {
        let Unrotated { q, k, v } = &self;
        let Some((buffer, at)) = Binding::union(&[q.binding(), k.binding(), v.binding()]) else {
            keys.write_rows(rows, &k.rope(positions, rotations, heads[1]));
            values.write_rows(rows, v);
            return q.rope(positions, rotations, heads[0]);
        };
        keys.check_rows(rows, k);
        values.check_rows(rows, v);
        let turns = rotations.at(positions, &[(q, heads[0]), (k, heads[1])]);
        let rotated = q.empty_like();
        let buffers: [&dyn Bind; 5] = [&buffer, rows, keys, values, &rotated];
        turns.launch(&ROTATE_AND_STORE, [q, k], heads, [at[1], at[2]], &buffers);
        rotated
    }
}

/// The rotations of some tokens.
#[derive(Clone)]
struct Turns {
    positions: Indices,
    half: usize,
    table: Tensor,
}

impl Rotations {
    /// `tensors` with their numbers of heads must have rows of that size, one for each position.
    #[track_caller]
    fn at(&self, positions: &Indices, tensors: &[(&Tensor, usize)]) -> Turns {
        let half = self.inverse_frequencies.len();
        for (x, heads) in tensors {
            assert!(
                x.cols() == 2 * heads * half && x.rows() == positions.len(),
                "rope: {heads} heads of {} channels at {} positions do not fit {:?}",
                2 * half,
                positions.len(),
                x.shape()
            );
        }
        let Some(host) = positions.host() else {
            panic!("rope: the positions are on the device only; make them with Indices::new")
        };
        let reach = host.iter().max().map_or(0, |last| *last as usize + 1);
        Turns {
            positions: positions.clone(),
            half,
            table: self.reaching(positions.gpu(), reach),
        }
    }
}

impl Turns {
    /// A rotated copy of x.
    fn rotated(&self, x: &Tensor, heads: usize, sign: f32) -> Tensor {
        let y = x.empty_like();
        let params = self.params([x.len() / 2, 0], [heads, 0], sign, [0, 0]);
        let buffers: [&dyn Bind; 4] = [x, &self.positions, &self.table, &y];
        ROTATE.launch(&[], &buffers, &params, Groups::of(x.len() / 4, 64));
        y
    }

    /// Rotates q and k. `buffers` begins with theirs; `at` has the places of k and v in it.
    fn launch(
        &self,
        kernel: &Kernel,
        tensors: [&Tensor; 2],
        heads: [usize; 2],
        at: [usize; 2],
        buffers: &[&dyn Bind],
    ) {
        let counts = tensors.map(|x| x.len() / 2);
        let own: [&dyn Bind; 3] = [buffers[0], &self.positions, &self.table];
        let buffers = [&own, &buffers[1..]].concat();
        let params = self.params(counts, heads, 1.0, at);
        kernel.launch(
            &[],
            &buffers,
            &params,
            Groups::of((counts[0] + counts[1]) / 2, 64),
        );
    }

    fn params(
        &self,
        counts: [usize; 2],
        heads: [usize; 2],
        sign: f32,
        at: [usize; 2],
    ) -> impl bytemuck::Pod {
        params! {
            count: u32 = counts[0],
            heads: u32 = heads[0],
            half: u32 = self.half,
            sign: f32 = sign,
            key_count: u32 = counts[1],
            kv_heads: u32 = heads[1],
            k_at: u32 = at[0],
            v_at: u32 = at[1],
        }
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
            positions in proptest::collection::vec(0u32..5000, 1..20), quarter in 1usize..10, heads in 1usize..4, seed: u64,
        ) {
            let (gpu, half) = (gpu(), 2 * quarter);
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

    #[test]
    #[should_panic(expected = "rope: 3 frequencies, wanted an even number")]
    fn heads_of_two_channels_more_are_refused() {
        Rotations::new(&gpu(), &frequencies(3));
    }
}
