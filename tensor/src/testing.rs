//! Assertions for unit tests of the ops, which compare them with their f64 references (see [`crate::check`]).

use crate::Tensor;
pub(crate) use crate::check::{Array, Tolerance, gpu};
use crate::check::{Compared, OpCase, compare};

/// Panics if a value differs by more than `tolerance` times the largest magnitude wanted, or is not a number.
#[track_caller]
pub(crate) fn assert_close(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    if let Err(wrong) = compare(what, got, wanted, tolerance, LEAST) {
        panic!("{wrong}");
    }
}

/// Errors are relative to at least this magnitude.
const LEAST: f64 = 1e-6;

/// Compares the value of an op with its reference, and requires the same bits from a second run.
#[track_caller]
pub(crate) fn check_value(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
) {
    check_value_at(op, reference, inputs, tolerance, LEAST);
}

/// As [`check_value`], with errors relative to at least `least`.
#[track_caller]
pub(crate) fn check_value_at(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
    least: f64,
) {
    let case = OpCase {
        op,
        reference,
        inputs,
        tolerance,
        least,
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
    check_at(op, reference, inputs, tolerance, LEAST);
}

/// As [`check`], with errors relative to at least `least`.
#[track_caller]
pub(crate) fn check_at(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
    least: f64,
) {
    let case = OpCase {
        op,
        reference,
        inputs,
        tolerance,
        least,
    };
    if let Err(wrong) = case.run(&gpu(), Compared::Gradient) {
        panic!("{wrong}");
    }
}
