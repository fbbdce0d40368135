//! Functions of two tensors, element by element, with broadcasting: shapes are aligned at their last axis, and an axis
//! that is missing or has length one is repeated.
//!
//! da = dy ∂f/∂a and db = dy ∂f/∂b, each summed over the axes along which that input was repeated.
//!
//! As in PyTorch, min(a, b) and max(a, b) pass their gradient to the selected input, and half to each where a = b.

use crate::Tensor;
use crate::gpu::{Groups, Kernel, params};

const FORWARD: Kernel = Kernel::new("binary", "forward");
const FORWARD_FLAT: Kernel = Kernel::new("binary", "forward_flat");

/// The numbering is that of `FUNCTION` in the shader.
#[derive(Clone, Copy)]
enum BinaryFunction {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    /// The derivative of min(a, b) with respect to a.
    MinSlope,
}

/// The methods, each with the one that records it and its case of [`BinaryFunction`].
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $recorded:ident of $case:ident;)*) => {
        $($(#[$doc])*
        #[track_caller]
        pub fn $name(&self, other: &Tensor) -> Tensor {
            self.$recorded(stringify!($name), other, BinaryFunction::$case)
        })*
    };
}

/// Each op panics if the shapes cannot be broadcast, or have more than four axes.
impl Tensor {
    functions! {
        /// a + b
        add = sum_or_difference of Add;
        /// a - b
        sub = sum_or_difference of Sub;
        /// a b
        mul = binary of Mul;
        /// a / b
        div = binary of Div;
        /// The smaller of a and b. If one is not a number, the result depends on the device.
        min = binary of Min;
        /// The larger of a and b. If one is not a number, the result depends on the device.
        max = binary of Max;
    }

    /// Records the functions whose gradients need only the shapes of a and b.
    #[track_caller]
    fn sum_or_difference(&self, op: &'static str, b: &Tensor, function: BinaryFunction) -> Tensor {
        let y = self.apply(op, b, function);
        let shapes = [self, b].map(|x| x.shape().to_vec());
        y.recorded(op, [self, b], move |dy, [to_a, to_b]| {
            let db = || match function {
                BinaryFunction::Sub => dy.neg().sum_to(&shapes[1]),
                _ => dy.sum_to(&shapes[1]),
            };
            [to_a.then(|| dy.sum_to(&shapes[0])), to_b.then(db)]
        })
    }

    /// Records the other functions.
    #[track_caller]
    fn binary(&self, op: &'static str, other: &Tensor, function: BinaryFunction) -> Tensor {
        use BinaryFunction::{Div, Max, Min, MinSlope};
        let y = self.apply(op, other, function);
        let (a, b) = (self.detach(), other.detach());
        y.recorded(op, [self, other], move |dy, [to_a, to_b]| {
            // The slope of max(a, b) in a is that of min(b, a) in b.
            let slope = |x: &Tensor, y| dy.mul(&x.apply(op, y, MinSlope));
            let da = || match function {
                Div => dy.div(&b),
                Min => slope(&a, &b),
                Max => slope(&b, &a),
                _ => dy.mul(&b),
            };
            let db = || match function {
                Div => dy.div(&b).mul(&a).div(&b).neg(),
                Min => slope(&b, &a),
                Max => slope(&a, &b),
                _ => dy.mul(&a),
            };
            [
                to_a.then(|| da().sum_to(a.shape())),
                to_b.then(|| db().sum_to(b.shape())),
            ]
        })
    }

    /// Computes a function without recording it.
    #[track_caller]
    fn apply(&self, op: &str, other: &Tensor, function: BinaryFunction) -> Tensor {
        let Some(shape) = broadcast(self.shape(), other.shape()) else {
            panic!(
                "{op}: the shapes {:?} and {:?} cannot be broadcast, or have more than four axes",
                self.shape(),
                other.shape()
            )
        };
        let y = Tensor::empty(self.gpu(), &shape);
        let params = params! {
            shape: [u32; 4] = right_aligned(&shape),
            a_steps: [u32; 4] = steps(self.shape(), &shape),
            b_steps: [u32; 4] = steps(other.shape(), &shape),
            count: u32 = y.len(),
        };
        let kernel = match self.shape() == other.shape() {
            true => FORWARD_FLAT,
            false => FORWARD,
        };
        let constants = [("FUNCTION", function as u32)];
        let groups = Groups::of(y.len(), 64);
        kernel.launch(&constants, &[self, other, &y], &params, groups);
        y
    }
}

/// Returns the shape of the result; `None` if the shapes do not fit or have more than four axes.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let axis =
        |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let shape = (0..rank).map(|i| match (axis(a, i), axis(b, i)) {
        (m, n) if m == n => Some(m),
        (1, n) => Some(n),
        (m, 1) => Some(m),
        _ => None,
    });
    shape.collect::<Option<Vec<_>>>().filter(|_| rank <= 4)
}

pub(super) fn right_aligned(shape: &[usize]) -> [u32; 4] {
    let mut aligned = [1; 4];
    for (to, from) in aligned.iter_mut().rev().zip(shape.iter().rev()) {
        *to = *from as u32;
    }
    aligned
}

/// The distance in memory between neighbours along each axis of `result`; 0 where `shape` is repeated.
fn steps(shape: &[usize], result: &[usize]) -> [u32; 4] {
    let (shape, result) = (right_aligned(shape), right_aligned(result));
    let mut steps = [0; 4];
    let mut step = 1;
    for i in (0..4).rev() {
        if shape[i] == result[i] {
            steps[i] = step;
        }
        step *= shape[i];
    }
    steps
}

#[cfg(test)]
mod tests {
    use crate::Tensor;
    use crate::check::reference::{BINARY as TOLERANCE, binary as reference};
    use crate::testing::{Array, check, gpu};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

        #[test]
        fn every_operation_agrees_with_its_reference(
            shape in proptest::collection::vec(1usize..6, 1..5), repeat_a in 0u8..16, repeat_b in 0u8..16,
            drop in 0usize..3, seed: u64,
        ) {
            type BinaryCase = (fn(&Tensor, &Tensor) -> Tensor, fn(f64, f64) -> f64);
            let cases: [BinaryCase; 4] = [
                (|a, b| a.add(b), |a, b| a + b),
                (|a, b| a.sub(b), |a, b| a - b),
                (|a, b| a.mul(b), |a, b| a * b),
                (|a, b| a.div(b), |a, b| a / b),
            ];
            let extremes: [BinaryCase; 2] = [(|a, b| a.min(b), f64::min), (|a, b| a.max(b), f64::max)];
            let ones = |mask: u8| -> Vec<usize> {
                shape.iter().enumerate().map(|(i, n)| if mask >> i & 1 == 1 { 1 } else { *n }).collect()
            };
            let a = Array::random(&ones(repeat_a), seed, -2.0..2.0);
            // away from zero for the division; the first axes of b may be missing
            let b = Array::random(&ones(repeat_b)[drop.min(shape.len() - 1)..], seed ^ 1, 0.5..2.0);
            for (op, f) in cases {
                let inputs = [a.clone(), b.clone()];
                check(&|t| op(&t[0], &t[1]), &|r| reference(f, &r[0], &r[1]), &inputs, TOLERANCE);
            }
            for (op, f) in extremes {
                // None equal, where there is no slope.
                let a = a.map(|v| (64.0 * v).floor() / 64.0);
                let b = b.map(|v| (64.0 * v).floor() / 64.0 + 1.0 / 128.0);
                check(&|t| op(&t[0], &t[1]), &|r| reference(f, &r[0], &r[1]), &[a, b], TOLERANCE);
            }
        }
    }

    /// The convention at ties. The powers of two are exact.
    #[test]
    fn equal_numbers_share_the_gradient() {
        let gpu = gpu();
        let tensor = |values: [f32; 3]| Tensor::from_slice(&gpu, &values, &[3]).tracked();
        let (a, b) = (tensor([1.0, 2.0, 4.0]), tensor([2.0, 2.0, 2.0]));
        let gradients = |y: Tensor| {
            let upstream = Tensor::from_slice(&gpu, &[8.0, 16.0, 32.0], &[3]);
            let gradients = y.mul(&upstream).sum().backward();
            [&a, &b].map(|x| gradients.get(x).unwrap().to_vec().unwrap())
        };
        assert_eq!(
            gradients(a.min(&b)),
            [[8.0, 8.0, 0.0], [0.0, 8.0, 32.0]].map(Vec::from)
        );
        assert_eq!(
            gradients(a.max(&b)),
            [[0.0, 8.0, 32.0], [8.0, 8.0, 0.0]].map(Vec::from)
        );
    }

    #[test]
    #[should_panic(expected = "add: the shapes [2, 3] and [2] cannot be broadcast, or")]
    fn shapes_that_do_not_fit_are_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[2, 3]).add(&Tensor::zeros(&gpu, &[2]));
    }
}
