//! For tests: the comparison of an op with its f64 reference (see [`crate::check`]).

use crate::Tensor;
pub use crate::check::{Array, Tolerance, gpu};
use crate::check::{OpCase, compare};

/// Compares values with what is wanted.
///
/// # Panics
/// If a value is further away than `tolerance` times the largest magnitude wanted, or not a number.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    if let Err(wrong) = compare(what, got, wanted, tolerance, LEAST) {
        panic!("{wrong}");
    }
}

/// What an error is relative to at the least.
const LEAST: f64 = 1e-6;

/// Compares the value of an op with its reference, and demands the same bits of a second run.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn check_value(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
) {
    check_value_at(op, reference, inputs, tolerance, LEAST);
}

/// The same, with a least magnitude that the tolerance is relative to.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn check_value_at(
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
    if let Err(wrong) = case.value(&gpu()) {
        panic!("{wrong}");
    }
}

/// Compares value and gradient of an op with its reference. The op stands in the middle of a graph: its inputs are
/// results and its upstream gradient is random.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn check(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    reference: &dyn Fn(&[Array]) -> Array,
    inputs: &[Array],
    tolerance: Tolerance,
) {
    check_at(op, reference, inputs, tolerance, LEAST);
}

/// The same, with a least magnitude that the tolerance is relative to: for results that are small because large things
/// cancel in them, such as the log-probability of what is nearly certain.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn check_at(
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
    if let Err(wrong) = case.value_and_gradient(&gpu()) {
        panic!("{wrong}");
    }
}
