//! Rows of a table by token id.
//!
//! y[t] = table[ids[t]]      dtable[v] = Σ of dy[t] over all t with ids[t] = v, in ascending order of t

use super::rows::gather_gradient;
use super::weight::Matrix;
use crate::gpu::{Groups, Kernel, params};
use crate::{Indices, Tensor};

const GATHER: Kernel = Kernel::new("embedding", "gather");
const GATHER_TEXTURE: Kernel = Kernel::new("embedding_texture", "gather");

impl Tensor {
    /// (T, C): the row of the table (V, C) for each of T ids. The gradient goes to a tracked [`Matrix::Trained`].
    ///
    /// # Panics
    /// If an id known to the host is beyond the rows of the table.
    #[track_caller]
    pub fn embedding(table: &Matrix, ids: &Indices) -> Tensor {
        let (rows, cols) = (table.rows(), table.cols());
        ids.check_below(rows, "embedding", "id");
        let y = Tensor::empty(ids.gpu(), &[ids.len(), cols]);
        for piece in table.pieces(0..rows) {
            let params = params! {
                count: u32 = y.len(),
                cols: u32 = cols,
                step: u32 = piece.step,
                first: u32 = piece.rows.start,
                rows: u32 = piece.rows.len(),
                at: u32 = piece.at + piece.seen_at(),
            };
            let constants = [("FORMAT", piece.format as u32)];
            let groups = Groups::of(y.len(), 64);
            let kernel = match piece.binding.is_texture() {
                true => GATHER_TEXTURE,
                false => GATHER,
            };
            kernel.launch(&constants, &[ids, &piece.binding, &y], &params, groups);
        }
        let Some(trained) = table.trained() else {
            return y;
        };
        let ids = ids.clone();
        y.recorded("embedding", [trained], move |dy, _| {
            // Ids that were drawn on the device are read back here; training has them on the host.
            let ids = ids.to_vec().expect("the ids of an embedding");
            [Some(gather_gradient(dy, &ids, &[rows, cols]))]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::reference::{EMBEDDING as TOLERANCE, gather as reference};
    use crate::ops::{Weight, WeightFormat};
    use crate::testing::{Array, check, gpu, narrow};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

        #[test]
        fn a_trained_table(rows in 1usize..20, cols in 1usize..70, len in 1usize..60, seed: u64) {
            let table = Array::random(&[rows, cols], seed, -1.0..1.0);
            let ids = Array::random(&[len], seed, 0.0..rows as f64).values;
            let ids: Vec<u32> = ids.iter().map(|v| (*v as u32).min(rows as u32 - 1)).collect();
            let on_device = Indices::new(&gpu(), &ids);
            let op = |t: &[Tensor]| Tensor::embedding(&Matrix::Trained(t[0].clone()), &on_device);
            check(&op, &|a| reference(&a[0], &ids), &[table], TOLERANCE);
        }
    }

    /// 4 KiB hold 32 rows of 64 numbers of 16 bits: the table is split.
    #[test]
    fn a_frozen_table_in_every_format_split_or_not() {
        let values: Vec<f32> = (0..50 * 64).map(|i| (i % 101) as f32 * 0.1).collect();
        let ids = [0, 49, 15, 16, 31, 32, 48, 16];
        for gpu in [gpu(), narrow(4096)] {
            for format in WeightFormat::ALL {
                let held = format.rounded(&values, 64);
                let row = |id: &u32| held[*id as usize * 64..][..64].to_vec();
                let wanted: Vec<f32> = ids.iter().flat_map(row).collect();
                let table = Matrix::Frozen(Weight::from_f32(&gpu, &values, 50, 64, format));
                let y = Tensor::embedding(&table, &Indices::new(&gpu, &ids));
                assert!(!y.is_tracked());
                assert_eq!(y.to_vec().unwrap(), wanted);
            }
        }
    }

    #[test]
    #[should_panic(expected = "embedding: id 3 of 3")]
    fn an_id_beyond_the_table_is_refused() {
        let table = Matrix::Trained(Tensor::zeros(&gpu(), &[3, 2]));
        Tensor::embedding(&table, &Indices::new(&gpu(), &[1, 3]));
    }
}
