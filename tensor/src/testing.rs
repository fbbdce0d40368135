//! Assertions for unit tests of the ops, which compare them with their f64 references (see [`crate::check`]), and what else
//! several of them need.

use serde_json::Value;

pub(crate) use crate::check::{Array, Tolerance, gpu};
use crate::check::{Compared, LEAST, OpCase, compare};
use crate::{Gpu, GpuOptions, Tensor};

/// Panics if a value differs by more than `tolerance` times the largest magnitude wanted, or is not a number.
#[track_caller]
pub(crate) fn assert_close(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    if let Err(wrong) = compare(what, got, wanted, tolerance, LEAST) {
        panic!("{wrong}");
    }
}

/// [`assert_close`] to numbers that the device computed in another way.
#[track_caller]
pub(crate) fn assert_agree(what: &str, got: &[f32], wanted: &[f32], tolerance: f64) {
    let wanted: Vec<f64> = wanted.iter().map(|v| f64::from(*v)).collect();
    assert_close(what, got, &wanted, tolerance);
}

/// The bits of each number.
pub(crate) fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = tensor.to_vec().unwrap().into_iter();
    values.map(f32::to_bits).collect()
}

/// A separate device with bindings of at most this many bytes.
pub(crate) fn narrow(max_binding: u64) -> Gpu {
    let options = GpuOptions {
        checked: true,
        poison: true,
        max_binding: Some(max_binding),
        ..GpuOptions::default()
    };
    Gpu::open(options).unwrap()
}

/// The numbers of a list in JSON.
pub(crate) fn numbers(list: &Value) -> Vec<f64> {
    let list = list.as_array().unwrap().iter();
    list.map(|v| v.as_f64().unwrap()).collect()
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
