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
        let pairs = self.values.iter().zip(&other.values);
        pairs.map(|(a, b)| a * b).sum()
    }
}

/// The allowed error, relative to the largest magnitude of the reference or to `least`, whichever is larger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// Of the value.
    pub(crate) value: f64,
    /// Of the gradients.
    pub(crate) gradient: f64,
    /// The magnitude of the terms where they may cancel: a sum of few terms of both signs can be much smaller than its
    /// rounding errors.
    pub(crate) least: f64,
}

/// Errors are relative to at least this magnitude, where no terms cancel.
pub(crate) const LEAST: f64 = 1e-6;

/// A failed check.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Wrong {
    /// The numbers of the device are not those of the reference.
    #[error("{0}")]
    Numbers(String),
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
        let text = format!("{what}: got {got} values, wanted {wanted}");
        return Err(Wrong::Numbers(text));
    }
    let scale = wanted.iter().fold(least, |m, v| m.max(v.abs()));
    let mut worst: f64 = 0.0;
    for (index, (g, w)) in got.iter().zip(wanted).enumerate() {
        let error = (f64::from(*g) - w).abs() / scale;
        if error.is_nan() || error > tolerance {
            return Err(Wrong::Numbers(format!(
                "{what}[{index}]: got {g}, wanted {w} (relative error {error:.2e} > {tolerance:.0e})"
            )));
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

pub(crate) fn same_bits(what: &str, a: &[f32], b: &[f32]) -> Result<(), Wrong> {
    let mut pairs = a.iter().zip(b);
    match a.len() == b.len() && pairs.all(|(a, b)| a.to_bits() == b.to_bits()) {
        true => Ok(()),
        false => Err(Wrong::Numbers(format!(
            "{what}: two runs gave different bits"
        ))),
    }
}

/// What a check compares besides the value.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Compared {
    Value,
    /// The gradients of all inputs.
    Gradient,
    /// The gradient along one direction in all inputs, where the reference is too slow for each element.
    Slope,
}

/// An op, its reference, and inputs for both.
pub(crate) struct OpCase<'a> {
    pub(crate) op: &'a dyn Fn(&[Tensor]) -> Tensor,
    pub(crate) reference: &'a dyn Fn(&[Array]) -> Array,
    pub(crate) inputs: &'a [Array],
    pub(crate) tolerance: Tolerance,
}

impl OpCase<'_> {
    /// Compares the value, and what else is asked for, and requires the same bits from a second run. The inputs of the op
    /// are results of other ops, and its upstream gradient is random. Returns the largest error.
    pub(crate) fn run(&self, gpu: &Gpu, compared: Compared) -> Result<f64, Wrong> {
        let tensors: Vec<_> = self.inputs.iter().map(|a| a.tensor(gpu)).collect();
        let wanted = (self.reference)(self.inputs);
        let y = (self.op)(&tensors);
        if y.shape() != wanted.shape {
            let (got, wanted) = (y.shape(), &wanted.shape);
            let text = format!("shape of the result: got {got:?}, wanted {wanted:?}");
            return Err(Wrong::Numbers(text));
        }
        let (got, tolerance) = (y.to_vec()?, self.tolerance.value);
        let worst = compare(
            "value",
            &got,
            &wanted.values,
            tolerance,
            self.tolerance.least,
        )?;
        same_bits("value", &got, &(self.op)(&tensors).to_vec()?)?;
        let upstream = Array::random(&wanted.shape, 0x5eed, -1.0..1.0);
        let error = match compared {
            Compared::Value => return Ok(worst),
            Compared::Gradient => self.compare_gradients(gpu, &upstream)?,
            Compared::Slope => self.compare_slopes(gpu, &upstream)?,
        };
        Ok(worst.max(error))
    }

    fn compare_gradients(&self, gpu: &Gpu, upstream: &Array) -> Result<f64, Wrong> {
        let mut worst: f64 = 0.0;
        let (got, again) = (
            self.gradients(gpu, upstream)?,
            self.gradients(gpu, upstream)?,
        );
        for (which, (input, gradient)) in self.inputs.iter().zip(&got).enumerate() {
            let what = format!("gradient of input {which}");
            let chosen = chosen_elements(input.values.len());
            let slope = |i: usize| {
                self.slope(upstream, |by| {
                    let mut moved = self.inputs.to_vec();
                    moved[which].values[i] += by;
                    moved
                })
            };
            let wanted: Vec<f64> = chosen.iter().map(|i| slope(*i)).collect();
            let picked: Vec<f32> = chosen.iter().map(|i| gradient[*i]).collect();
            if !gradient.iter().all(|v| v.is_finite()) {
                return Err(Wrong::Numbers(format!("{what} is not finite")));
            }
            let error = compare(
                &what,
                &picked,
                &wanted,
                self.tolerance.gradient,
                self.tolerance.least,
            )?;
            worst = worst.max(error);
            same_bits(&what, gradient, &again[which])?;
        }
        Ok(worst)
    }

    fn compare_slopes(&self, gpu: &Gpu, upstream: &Array) -> Result<f64, Wrong> {
        let random = |(i, x): (usize, &Array)| Array::random(&x.shape, 0xd1 + i as u64, -1.0..1.0);
        let direction: Vec<Array> = self.inputs.iter().enumerate().map(random).collect();
        let slope = self.slope(upstream, |by| {
            let along = self.inputs.iter().zip(&direction);
            along.map(|(x, d)| x.plus(d, by)).collect()
        });
        let (mut along, mut size) = (0.0, 0.0);
        for (gradient, d) in self.gradients(gpu, upstream)?.iter().zip(&direction) {
            for (g, d) in gradient.iter().zip(&d.values) {
                along += f64::from(*g) * d;
                size += (f64::from(*g) * d).powi(2);
            }
        }
        // The terms have both signs: the tolerance is relative to the root of the sum of their squares.
        let (what, tolerance) = ("gradient along a direction", self.tolerance.gradient);
        compare(what, &[along as f32], &[slope], tolerance, size.sqrt())
    }

    /// The slope of the reference, a central difference between inputs that are moved a little.
    fn slope(&self, upstream: &Array, moved: impl Fn(f64) -> Vec<Array>) -> f64 {
        let at = |by: f64| (self.reference)(&moved(by)).dot(upstream);
        (at(1e-5) - at(-1e-5)) / 2e-5
    }

    fn gradients(&self, gpu: &Gpu, upstream: &Array) -> Result<Vec<Vec<f32>>, Wrong> {
        let leaf = |a: &Array| a.tensor(gpu).tracked();
        let leaves: Vec<_> = self.inputs.iter().map(leaf).collect();
        let results: Vec<_> = leaves.iter().map(|leaf| leaf.neg().neg()).collect();
        let y = (self.op)(&results).mul(&upstream.tensor(gpu));
        let gradients = y.sum().backward();
        let one = |leaf: &Tensor| match gradients.get(leaf) {
            Some(gradient) => Ok(gradient.to_vec()?),
            None => Err(Wrong::Numbers("an input got no gradient".to_owned())),
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
