//! The comparison of an op with its f64 reference, for tests and for the self-test of a device.
//!
//! Gradients are compared with central differences of the reference. With a step of 1e-5 in f64 their error is about
//! 1e-9, so the tolerances cover only the error of the f32 kernel.

use std::ops::Range;

use crate::random::Random;
use crate::{Gpu, GpuError, Tensor};

/// Values in double precision on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The length of each axis.
    pub(crate) shape: Vec<usize>,
    /// Row by row.
    pub(crate) values: Vec<f64>,
}

impl Array {
    /// Uniform values that f32 represents exactly. The same seed gives the same values.
    pub(crate) fn random(shape: &[usize], seed: u64, range: Range<f64>) -> Array {
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
    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array {
            shape: self.shape.clone(),
            values: self.values.iter().map(|v| f(*v)).collect(),
        }
    }

    /// The element at a row and a column of a matrix.
    pub(crate) fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.shape[self.shape.len() - 1] + col]
    }

    /// The values rounded to f32.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        self.values.iter().map(|v| *v as f32).collect()
    }

    /// The values as f32 on the device.
    pub(crate) fn tensor(&self, gpu: &Gpu) -> Tensor {
        Tensor::from_slice(gpu, &self.to_f32(), &self.shape)
    }

    /// self + scale * other
    pub(crate) fn plus(&self, other: &Array, scale: f64) -> Array {
        let sums = self.values.iter().zip(&other.values);
        Array {
            shape: self.shape.clone(),
            values: sums.map(|(a, b)| a + scale * b).collect(),
        }
    }

    pub(crate) fn dot(&self, other: &Array) -> f64 {
        self.values
            .iter()
            .zip(&other.values)
            .map(|(a, b)| a * b)
            .sum()
    }
}

/// The allowed error, relative to the largest magnitude of the reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// Of the value.
    pub(crate) value: f64,
    /// Of the gradients.
    pub(crate) gradient: f64,
}

/// A failed check.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Wrong {
    /// A number differs from the reference.
    #[error(
        "{what}[{index}]: got {got}, wanted {wanted} (relative error {error:.2e} > {tolerance:.0e})"
    )]
    Number {
        /// The result that was compared.
        what: String,
        /// The index of the element.
        index: usize,
        /// The value from the device.
        got: f32,
        /// The value of the reference.
        wanted: f64,
        /// The relative error.
        error: f64,
        /// The allowed relative error.
        tolerance: f64,
    },
    /// Two runs gave different bits.
    #[error("{what}: two runs gave different bits")]
    Bits {
        /// The result that was compared.
        what: String,
    },
    /// Any other difference.
    #[error("{0}")]
    Other(String),
    /// An error of the device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// Compares numbers with the reference. Errors are relative to its largest magnitude, or to `least` if that is larger.
/// Returns the largest error.
/// Errors: The first error above `tolerance`, or the first value that is not a number.
pub(crate) fn compare(
    what: &str,
    got: &[f32],
    wanted: &[f64],
    tolerance: f64,
    least: f64,
) -> Result<f64, Wrong> {
    if got.len() != wanted.len() {
        let (got, wanted) = (got.len(), wanted.len());
        return Err(Wrong::Other(format!(
            "{what}: got {got} values, wanted {wanted}"
        )));
    }
    let scale = wanted.iter().fold(least, |m, v| m.max(v.abs()));
    let mut worst: f64 = 0.0;
    for (index, (g, w)) in got.iter().zip(wanted).enumerate() {
        let error = (f64::from(*g) - w).abs() / scale;
        if error.is_nan() || error > tolerance {
            return Err(Wrong::Number {
                what: what.to_owned(),
                index,
                got: *g,
                wanted: *w,
                error,
                tolerance,
            });
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

pub(crate) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// An op, its reference, and inputs for both.
pub(crate) struct OpCase<'a> {
    pub(crate) op: &'a dyn Fn(&[Tensor]) -> Tensor,
    pub(crate) reference: &'a dyn Fn(&[Array]) -> Array,
    pub(crate) inputs: &'a [Array],
    pub(crate) tolerance: Tolerance,
    /// The tolerance is relative to at least this magnitude. Needed where large terms cancel, as in the log-prob of a
    /// token that is nearly certain.
    pub(crate) least: f64,
}

impl OpCase<'_> {
    /// Compares the value, and requires the same bits from a second run. Returns the largest error.
    pub(crate) fn value(&self, gpu: &Gpu) -> Result<f64, Wrong> {
        let tensors: Vec<_> = self.inputs.iter().map(|a| a.tensor(gpu)).collect();
        let wanted = (self.reference)(self.inputs);
        let y = (self.op)(&tensors);
        if y.shape() != wanted.shape {
            let (got, wanted) = (y.shape(), &wanted.shape);
            return Err(Wrong::Other(format!(
                "shape of the result: got {got:?}, wanted {wanted:?}"
            )));
        }
        let got = y.to_vec()?;
        let worst = compare(
            "value",
            &got,
            &wanted.values,
            self.tolerance.value,
            self.least,
        )?;
        match same_bits(&got, &(self.op)(&tensors).to_vec()?) {
            true => Ok(worst),
            false => Err(Wrong::Bits {
                what: "value".to_owned(),
            }),
        }
    }

    /// Compares value and gradient. The inputs of the op are results of other ops, and its upstream gradient is random.
    /// Returns the largest error.
    pub(crate) fn value_and_gradient(&self, gpu: &Gpu) -> Result<f64, Wrong> {
        let mut worst = self.value(gpu)?;
        let upstream = Array::random(&(self.reference)(self.inputs).shape, 0x5eed, -1.0..1.0);
        let (got, again) = (
            self.gradients(gpu, &upstream)?,
            self.gradients(gpu, &upstream)?,
        );
        for (which, (input, gradient)) in self.inputs.iter().zip(&got).enumerate() {
            let what = format!("gradient of input {which}");
            let chosen = chosen_elements(input.values.len());
            let slope = |i: usize| {
                let moved = |by: f64| {
                    let mut moved = self.inputs.to_vec();
                    moved[which].values[i] += by;
                    (self.reference)(&moved).dot(&upstream)
                };
                (moved(1e-5) - moved(-1e-5)) / 2e-5
            };
            let wanted: Vec<f64> = chosen.iter().map(|i| slope(*i)).collect();
            let picked: Vec<f32> = chosen.iter().map(|i| gradient[*i]).collect();
            if !gradient.iter().all(|v| v.is_finite()) {
                return Err(Wrong::Other(format!("{what} is not finite")));
            }
            let error = compare(&what, &picked, &wanted, self.tolerance.gradient, self.least)?;
            worst = worst.max(error);
            if !same_bits(gradient, &again[which]) {
                return Err(Wrong::Bits { what });
            }
        }
        Ok(worst)
    }

    /// Compares the value, and the slope along one direction in all inputs, which takes two evaluations of the reference.
    /// Returns the largest error.
    pub(crate) fn value_and_slope(&self, gpu: &Gpu) -> Result<f64, Wrong> {
        let worst = self.value(gpu)?;
        let upstream = Array::random(&(self.reference)(self.inputs).shape, 0x5eed, -1.0..1.0);
        let random = |(i, x): (usize, &Array)| Array::random(&x.shape, 0xd1 + i as u64, -1.0..1.0);
        let direction: Vec<Array> = self.inputs.iter().enumerate().map(random).collect();
        let moved = |by: f64| {
            let along = self.inputs.iter().zip(&direction);
            let inputs: Vec<Array> = along.map(|(x, d)| x.plus(d, by)).collect();
            (self.reference)(&inputs).dot(&upstream)
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        let (mut along, mut size) = (0.0, 0.0);
        for (gradient, d) in self.gradients(gpu, &upstream)?.iter().zip(&direction) {
            for (g, d) in gradient.iter().zip(&d.values) {
                along += f64::from(*g) * d;
                size += (f64::from(*g) * d).powi(2);
            }
        }
        // The terms have both signs: the tolerance is relative to the root of the sum of their squares.
        let error = compare(
            "gradient along a direction",
            &[along as f32],
            &[slope],
            self.tolerance.gradient,
            size.sqrt(),
        )?;
        Ok(worst.max(error))
    }

    fn gradients(&self, gpu: &Gpu, upstream: &Array) -> Result<Vec<Vec<f32>>, Wrong> {
        let leaves: Vec<_> = self
            .inputs
            .iter()
            .map(|a| a.tensor(gpu).tracked())
            .collect();
        let results: Vec<_> = leaves.iter().map(|leaf| leaf.neg().neg()).collect();
        let gradients = (self.op)(&results)
            .mul(&upstream.tensor(gpu))
            .sum()
            .backward();
        let one = |leaf: &Tensor| match gradients.get(leaf) {
            Some(gradient) => Ok(gradient.to_vec()?),
            None => Err(Wrong::Other("an input got no gradient".to_owned())),
        };
        leaves.iter().map(one).collect()
    }
}

/// The elements whose gradients are compared: all of a small input; of a large one the first, the last and some between,
/// at a prime stride, so that every position in a tile occurs.
fn chosen_elements(len: usize) -> Vec<usize> {
    const MOST: usize = 48;
    if len <= MOST {
        return (0..len).collect();
    }
    let mut chosen: Vec<_> = (0..MOST - 2).map(|i| i * 7919 % len).collect();
    chosen.extend([0, len - 1]);
    chosen
}
