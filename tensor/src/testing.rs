//! Assertions for unit tests of the ops, which compare them with their f64 references (see [`crate::check`]).

use crate::Tensor;
pub(crate) use crate::check::{Array, Tolerance, gpu};
use crate::check::{Compared, LEAST, OpCase, compare};

/// Panics if a value differs by more than `tolerance` times the largest magnitude wanted, or is not a number.
#[track_caller]
pub(crate) fn assert_close(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    if let Err(wrong) = compare(what, got, wanted, tolerance, LEAST) {
        panic!("{wrong}");
    }
}

/// Compares the value of an op with its reference, and requires the same bits from a second run.
#[track_caller]
pub(crate) fn check_value(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
) {
    let case = OpCase {
        op,
        reference,
        inputs,
        tolerance,
    };
    if let Err(wrong) = case.run(&gpu(), Compared::Value) {
        panic!("{wrong}");
    }
}

/// Compares value and gradient of an op with its reference.
#[track_caller]
pub(crate) fn check(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
) {
    let case = OpCase {
        op,
        reference,
        inputs,
        tolerance,
    };
    if let Err(wrong) = case.run(&gpu(), Compared::Gradient) {
        panic!("{wrong}");
    }
}
