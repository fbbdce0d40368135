//! Gathering rows by number, and writing rows in place.
//!
//! y_i = x_{rows[i]}, dx_r = Σ of dy_i over all i with rows[i] = r, in the order of i. The host lists these i for each
//! row, so no two threads add to one number.

use super::by_key::by_key;
use crate::gpu::{Bind, Groups, Kernel};
use crate::{Indices, Tensor};

const GATHER: Kernel = Kernel::new("rows", "gather");
const SCATTER: Kernel = Kernel::new("rows", "scatter");
const GATHER_BACKWARD: Kernel = Kernel::new("rows", "gather_backward");

impl Tensor {
    /// self (N, C) -> (R, C): the rows with these numbers, which may repeat.
    ///
    /// # Panics
    /// If a row does not exist (checked if the numbers are known on the host), or if self is tracked and the numbers
    /// are not known on the host.
    #[track_caller]
    pub fn gather_rows(&self, rows: &Indices) -> Tensor {
        rows.check_below(self.rows(), "gather_rows", "row");
        assert!(
            rows.host().is_some() || !self.is_tracked(),
            "gather_rows: the gradient needs row numbers that are known on the host; make them with Indices::new"
        );
        let y = Tensor::empty(self.gpu(), &[rows.len(), self.cols()]);
        let cols = self.cols();
        copy(&GATHER, rows, [cols, cols], &[self, rows, &y]);
        let (rows, shape) = (rows.clone(), self.shape().to_vec());
        y.recorded("gather_rows", [self], move |dy, _| {
            let rows = rows.host().expect("checked when the rows were gathered");
            [Some(gather_gradient(dy, rows, &shape))]
        })
    }

    /// Returns slices of `cols` numbers of a flat tensor, from each of these places on, without gradients: (R, cols).
    ///
    /// # Panics
    /// If a slice reaches beyond the end.
    #[track_caller]
    pub fn gather_slices(&self, starts: &Indices, cols: usize) -> Tensor {
        let places = (self.len() + 1).saturating_sub(cols);
        starts.check_below(places, "gather_slices", "start");
        let y = Tensor::empty(self.gpu(), &[starts.len(), cols]);
        copy(&GATHER, starts, [cols, 1], &[self, starts, &y]);
        y
    }

    /// Overwrites rows of self (N, C) in place with those of `values` (R, C), after all work recorded so far.
    /// Tensors that share self's values change too; no gradient flows.
    ///
    /// # Panics
    /// If the sizes do not fit, a row does not exist or occurs twice, the numbers are not known on the host, or self
    /// is tracked.
    #[track_caller]
    pub fn write_rows(&self, rows: &Indices, values: &Tensor) {
        self.check_rows(rows, values);
        let cols = self.cols();
        copy(&SCATTER, rows, [cols, cols], &[values, rows, self]);
    }

    #[track_caller]
    pub(super) fn check_rows(&self, rows: &Indices, values: &Tensor) {
        assert!(
            !self.is_tracked(),
            "write_rows: the tensor is tracked, and tracked values must not change; detach it"
        );
        assert!(
            values.rows() == rows.len() && values.cols() == self.cols(),
            "write_rows: {:?} does not fit {} rows of {:?}",
            values.shape(),
            rows.len(),
            self.shape()
        );
        rows.check_below(self.rows(), "write_rows", "row");
        let Some(host) = rows.host() else {
            panic!(
                "write_rows: the row numbers are on the device only; make them with Indices::new"
            )
        };
        let mut sorted = host.to_vec();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            assert!(
                pair[0] < pair[1],
                "write_rows: row {} occurs twice",
                pair[0]
            );
        }
    }
}

/// Returns the gradient of a tensor of this shape from that of rows gathered from it.
pub(super) fn gather_gradient(dy: &Tensor, rows: &[u32], shape: &[usize]) -> Tensor {
    let dx = Tensor::empty(dy.gpu(), shape);
    let (starts, places) = by_key(rows.iter().copied(), dx.rows());
    let [starts, places] = [starts, places].map(|list| Indices::new(dy.gpu(), &list));
    let params = [dx.len(), dx.cols(), 0].map(|size| size as u32);
    let groups = Groups::of(dx.len(), 64);
    GATHER_BACKWARD.launch(&[], &[dy, &starts, &places, &dx], &params, groups);
    dx
}

/// `step`: the distance of two numbered rows.
fn copy(kernel: &Kernel, rows: &Indices, [cols, step]: [usize; 2], buffers: &[&dyn Bind]) {
    let params = [rows.len(), cols, step].map(|size| size as u32);
    kernel.launch(&[], buffers, &params, Groups::count(rows.len()));
}

#[cfg(test)]
mod tests {
    use crate::check::reference::{ROWS as TOLERANCE, gather};
    use crate::testing::{Array, check, gpu};
    use crate::{Indices, Tensor};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, ..ProptestConfig::default() })]

        #[test]
        fn gathering_agrees_with_its_reference(
            count in 1usize..70, cols in 1usize..40, picks in proptest::collection::vec(any::<u32>(), 1..40), seed: u64,
        ) {
            let gpu = gpu();
            let rows: Vec<u32> = picks.iter().map(|p| p % count as u32).collect();
            let device_rows = Indices::new(&gpu, &rows);
            let x = [Array::random(&[count, cols], seed, -1.0..1.0)];
            check(&|t| t[0].gather_rows(&device_rows), &|a| gather(&a[0], &rows), &x, TOLERANCE);
        }
    }

    #[test]
    fn only_the_rows_named_are_written() {
        let gpu = gpu();
        let (x, values) = (
            Tensor::zeros(&gpu, &[5, 3]),
            Tensor::from_slice(&gpu, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]),
        );
        x.write_rows(&Indices::new(&gpu, &[4, 1]), &values);
        let z = [0.0; 3];
        let wanted = [z, [4.0, 5.0, 6.0], z, z, [1.0, 2.0, 3.0]].concat();
        assert_eq!(x.to_vec().unwrap(), wanted);
    }

    #[test]
    fn slices_begin_anywhere() {
        let gpu = gpu();
        let x = Tensor::from_slice(&gpu, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[6]);
        let slices = x.gather_slices(&Indices::new(&gpu, &[3, 0, 2]), 3);
        assert_eq!(slices.shape(), [3, 3]);
        assert_eq!(
            slices.to_vec().unwrap(),
            [3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0]
        );
    }

    #[test]
    #[should_panic(expected = "gather_slices: start 4 of 4")]
    fn a_slice_beyond_the_end_is_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[6]).gather_slices(&Indices::new(&gpu, &[0, 4]), 3);
    }

    #[test]
    #[should_panic(expected = "write_rows: row 1 occurs twice")]
    fn a_row_written_twice_is_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[5, 3])
            .write_rows(&Indices::new(&gpu, &[1, 1]), &Tensor::zeros(&gpu, &[2, 3]));
    }

    #[test]
    #[should_panic(expected = "gather_rows: row 5 of 5")]
    fn a_row_that_does_not_exist_is_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[5, 3]).gather_rows(&Indices::new(&gpu, &[0, 5]));
    }
}
