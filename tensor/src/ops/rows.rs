//! Rows picked by number, and rows written in place.
//!
//! y_i = x_{rows[i]}, dx_r = Σ of dy_i over the i with rows[i] = r, in the order of i: which those are is listed on the
//! host, so no two threads add to one number.

use super::by_key::by_key;
use crate::gpu::{Groups, Kernel};
use crate::{Gpu, Indices, Tensor};

const GATHER: Kernel = Kernel::new("rows", "gather");
const SCATTER: Kernel = Kernel::new("rows", "scatter");
const GATHER_BACKWARD: Kernel = Kernel::new("rows", "gather_backward");

impl Tensor {
    /// self (N, C) -> (R, C): the rows of these numbers, any number of times each.
    ///
    /// # Panics
    /// If a row does not exist (checked where the numbers are known on the host), or if self is tracked and they are
    /// not.
    #[track_caller]
    pub fn gather_rows(&self, rows: &Indices) -> Tensor {
        check_numbers("gather_rows", rows, self.rows());
        assert!(
            rows.host().is_some() || !self.is_tracked(),
            "gather_rows: the gradient needs row numbers that are known on the host; make them with Indices::new"
        );
        let y = Tensor::empty(self.gpu(), &[rows.len(), self.cols()]);
        launch(
            &GATHER,
            y.len(),
            self.cols(),
            &[&self.binding(), &rows.binding(), &y.binding()],
            self.gpu(),
        );
        let (rows, shape) = (rows.clone(), self.shape().to_vec());
        y.recorded("gather_rows", &[self], move |dy| {
            let rows = rows.host().expect("checked when the rows were gathered");
            vec![Some(gather_gradient(dy, rows, &shape))]
        })
    }

    /// Overwrites rows of self (N, C) in place with those of `values` (R, C), after all work recorded so far.
    /// Tensors that share self's values change too; no gradient flows.
    ///
    /// # Panics
    /// If the sizes do not fit, a row does not exist or is named twice, the numbers are not known on the host, or self
    /// is tracked.
    #[track_caller]
    pub fn write_rows(&self, rows: &Indices, values: &Tensor) {
        assert!(
            !self.is_tracked(),
            "write_rows: the tensor is tracked, and what is on the tape must not change; detach it"
        );
        assert!(
            values.rows() == rows.len() && values.cols() == self.cols(),
            "write_rows: {:?} does not fit {} rows of {:?}",
            values.shape(),
            rows.len(),
            self.shape()
        );
        check_numbers("write_rows", rows, self.rows());
        let Some(host) = rows.host() else {
            panic!(
                "write_rows: the row numbers are on the device only; make them with Indices::new"
            )
        };
        let mut written = vec![false; self.rows()];
        for row in host {
            let before = std::mem::replace(&mut written[*row as usize], true);
            assert!(!before, "write_rows: row {row} is named twice");
        }
        launch(
            &SCATTER,
            values.len(),
            self.cols(),
            &[&values.binding(), &rows.binding(), &self.binding()],
            self.gpu(),
        );
    }
}

#[track_caller]
fn check_numbers(op: &str, rows: &Indices, count: usize) {
    let bad = rows
        .host()
        .and_then(|host| host.iter().find(|row| **row as usize >= count));
    if let Some(row) = bad {
        panic!("{op}: row {row} of {count} rows");
    }
}

/// The gradient of what has this shape, from that of the rows gathered from it. Gathered too, not scattered.
pub(super) fn gather_gradient(dy: &Tensor, rows: &[u32], shape: &[usize]) -> Tensor {
    let gpu = dy.gpu();
    let dx = Tensor::empty(gpu, shape);
    let (starts, places) = by_key(rows.iter().copied(), dx.rows());
    launch(
        &GATHER_BACKWARD,
        dx.len(),
        dx.cols(),
        &[
            &dy.binding(),
            &Indices::new(gpu, &starts).binding(),
            &Indices::new(gpu, &places).binding(),
            &dx.binding(),
        ],
        gpu,
    );
    dx
}

fn launch(
    kernel: &Kernel,
    count: usize,
    cols: usize,
    bindings: &[&crate::gpu::Binding],
    gpu: &Gpu,
) {
    let params = [count as u32, cols as u32];
    kernel.launch(gpu, &[], bindings, &params, Groups::of(count, 64));
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
    #[should_panic(expected = "write_rows: row 1 is named twice")]
    fn a_row_written_twice_is_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[5, 3])
            .write_rows(&Indices::new(&gpu, &[1, 1]), &Tensor::zeros(&gpu, &[2, 3]));
    }

    #[test]
    #[should_panic(expected = "gather_rows: row 5 of 5 rows")]
    fn a_row_that_does_not_exist_is_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[5, 3]).gather_rows(&Indices::new(&gpu, &[0, 5]));
    }
}
