//! For tests: a shared device, arrays in f64, and the comparison of an op with its f64 reference.
//!
//! The reference is the oracle of the value; its slope by central differences is the oracle of the gradient. In f64
//! with a step of 1e-5 that slope is good to about 1e-9, so tolerances speak of the f32 kernel alone.

use std::ops::Range;
use std::sync::OnceLock;

use crate::random::Random;
use crate::{Gpu, GpuOptions, Tensor};

/// The device that all tests of a process share: kernels are compiled once, with bounds checks, and new buffers hold
/// NaN. `LAPWING_ADAPTER_INDEX` chooses the adapter.
///
/// # Panics
/// If there is no adapter; the message says what to install.
pub fn gpu() -> Gpu {
    static SHARED: OnceLock<Gpu> = OnceLock::new();
    let open = || {
        let index = std::env::var("LAPWING_ADAPTER_INDEX")
            .ok()
            .and_then(|text| text.parse().ok());
        let options = GpuOptions {
            index,
            checked: true,
            poison: true,
            max_binding: None,
        };
        Gpu::open(options).unwrap_or_else(|e| panic!("{e}"))
    };
    SHARED.get_or_init(open).clone()
}

/// Values in double precision on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// the length of each axis
    pub shape: Vec<usize>,
    /// row by row
    pub values: Vec<f64>,
}

impl Array {
    /// Uniform values that f32 can hold, decided by the seed.
    pub fn random(shape: &[usize], seed: u64, range: Range<f64>) -> Array {
        let mut random = Random::new(seed);
        let mut next = || {
            let value = range.start + random.uniform() * (range.end - range.start);
            f64::from(value as f32)
        };
        let values = (0..shape.iter().product()).map(|_| next()).collect();
        Array {
            shape: shape.to_vec(),
            values,
        }
    }

    /// Applies `f` to every element.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array {
            shape: self.shape.clone(),
            values: self.values.iter().map(|v| f(*v)).collect(),
        }
    }

    /// The element at a row and a column of a matrix.
    pub fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.shape[self.shape.len() - 1] + col]
    }

    /// The values as f32 on the device.
    pub fn tensor(&self, gpu: &Gpu) -> Tensor {
        let values: Vec<f32> = self.values.iter().map(|v| *v as f32).collect();
        Tensor::from_slice(gpu, &values, &self.shape)
    }

    fn dot(&self, other: &Array) -> f64 {
        self.values
            .iter()
            .zip(&other.values)
            .map(|(a, b)| a * b)
            .sum()
    }
}

/// How far a result may be from its reference, relative to the largest magnitude of the reference.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// of the value
    pub value: f64,
    /// of the gradients
    pub gradient: f64,
}

/// Compares values with what is wanted.
///
/// # Panics
/// If a value is further away than `tolerance` times the largest magnitude wanted, or not a number.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: number of values");
    assert_close_at(what, got, wanted, tolerance, 1e-6);
}

/// The same, with a least magnitude to be relative to: for results that are small because large things cancel in them.
#[track_caller]
fn assert_close_at(what: &str, got: &[f32], wanted: &[f64], tolerance: f64, least: f64) {
    let scale = wanted.iter().fold(least, |m, v| m.max(v.abs()));
    for (i, (g, w)) in got.iter().zip(wanted).enumerate() {
        let error = (f64::from(*g) - w).abs() / scale;
        assert!(
            error <= tolerance,
            "{what}[{i}]: got {g}, wanted {w} (relative error {error:.2e} > {tolerance:.0e})"
        );
    }
}

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
    check_value_at(op, reference, inputs, tolerance, 1e-6);
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
    let gpu = gpu();
    let tensors: Vec<_> = inputs.iter().map(|a| a.tensor(&gpu)).collect();
    let wanted = reference(inputs);
    let y = op(&tensors);
    assert_eq!(y.shape(), wanted.shape, "shape of the result");
    let got = y.to_vec().unwrap();
    assert_close_at("value", &got, &wanted.values, tolerance.value, least);
    let again = op(&tensors).to_vec().unwrap();
    assert!(
        got.iter()
            .zip(&again)
            .all(|(a, b)| a.to_bits() == b.to_bits()),
        "two runs gave different bits"
    );
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
    check_at(op, reference, inputs, tolerance, 1e-6);
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
    check_value_at(op, reference, inputs, tolerance, least);
    let gpu = gpu();
    let upstream = Array::random(&reference(inputs).shape, 0x5eed, -1.0..1.0);
    let run = || -> Vec<Vec<f32>> {
        let leaves: Vec<_> = inputs.iter().map(|a| a.tensor(&gpu).tracked()).collect();
        let results: Vec<_> = leaves.iter().map(|leaf| leaf.neg().neg()).collect();
        let gradients = op(&results).mul(&upstream.tensor(&gpu)).sum().backward();
        leaves
            .iter()
            .map(|leaf| {
                gradients
                    .get(leaf)
                    .expect("a gradient for each input")
                    .to_vec()
                    .unwrap()
            })
            .collect()
    };
    let got = run();
    for (which, (input, gradient)) in inputs.iter().zip(&got).enumerate() {
        let chosen = chosen_elements(input.values.len());
        let slope = |i: usize| {
            let moved = |by: f64| {
                let mut moved = inputs.to_vec();
                moved[which].values[i] += by;
                reference(&moved).dot(&upstream)
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        };
        let wanted: Vec<f64> = chosen.iter().map(|i| slope(*i)).collect();
        let picked: Vec<f32> = chosen.iter().map(|i| gradient[*i]).collect();
        assert!(
            gradient.iter().all(|v| v.is_finite()),
            "gradient of input {which} is not finite"
        );
        assert_close_at(
            &format!("gradient of input {which}"),
            &picked,
            &wanted,
            tolerance.gradient,
            least,
        );
    }
    let same =
        |a: &Vec<f32>, b: &Vec<f32>| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(
        got.iter().zip(&run()).all(|(a, b)| same(a, b)),
        "two runs gave gradients of different bits"
    );
}

/// All elements of a small input; of a large one the first, the last and a spread between, by a stride that is prime
/// and so meets every place in a tile.
fn chosen_elements(len: usize) -> Vec<usize> {
    const MOST: usize = 48;
    if len <= MOST {
        return (0..len).collect();
    }
    let mut chosen: Vec<_> = (0..MOST - 2).map(|i| i * 7919 % len).collect();
    chosen.extend([0, len - 1]);
    chosen
}
