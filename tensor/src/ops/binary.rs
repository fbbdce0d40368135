//! Two tensors, element by element, with broadcasting: shapes are aligned at their last axis, and an axis of length
//! one, or a missing one, is repeated.
//!
//! da = dy ∂f/∂a and db = dy ∂f/∂b, each summed over the axes along which that input was repeated.

use crate::Tensor;
use crate::gpu::{Groups, Kernel};

const FORWARD: Kernel = Kernel::new("binary", "forward");
const FORWARD_FLAT: Kernel = Kernel::new("binary", "forward_flat");

/// The numbering is that of `FUNCTION` in the shader.
#[derive(Clone, Copy)]
enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    shape: [u32; 4],
    a_steps: [u32; 4],
    b_steps: [u32; 4],
    count: u32,
    padding: [u32; 3],
}

impl Tensor {
    /// a + b
    ///
    /// # Panics
    /// Like all four: if the shapes cannot be broadcast against each other, or have more than four axes.
    #[track_caller]
    pub fn add(&self, other: &Tensor) -> Tensor {
        let (a, b) = (self.shape().to_vec(), other.shape().to_vec());
        self.binary("add", other, Binary::Add)
            .recorded("add", &[self, other], move |dy| {
                vec![Some(dy.sum_to(&a)), Some(dy.sum_to(&b))]
            })
    }

    /// a - b
    #[track_caller]
    pub fn sub(&self, other: &Tensor) -> Tensor {
        let (a, b) = (self.shape().to_vec(), other.shape().to_vec());
        self.binary("sub", other, Binary::Sub)
            .recorded("sub", &[self, other], move |dy| {
                vec![Some(dy.sum_to(&a)), Some(dy.neg().sum_to(&b))]
            })
    }

    /// a b
    #[track_caller]
    pub fn mul(&self, other: &Tensor) -> Tensor {
        let (a, b) = (self.detach(), other.detach());
        let (a_wanted, b_wanted) = (self.is_tracked(), other.is_tracked());
        self.binary("mul", other, Binary::Mul)
            .recorded("mul", &[self, other], move |dy| {
                vec![
                    a_wanted.then(|| dy.mul(&b).sum_to(a.shape())),
                    b_wanted.then(|| dy.mul(&a).sum_to(b.shape())),
                ]
            })
    }

    /// a / b
    #[track_caller]
    pub fn div(&self, other: &Tensor) -> Tensor {
        let (a, b) = (self.detach(), other.detach());
        let (a_wanted, b_wanted) = (self.is_tracked(), other.is_tracked());
        self.binary("div", other, Binary::Div)
            .recorded("div", &[self, other], move |dy| {
                let slope = dy.div(&b);
                vec![
                    a_wanted.then(|| slope.sum_to(a.shape())),
                    b_wanted.then(|| slope.mul(&a).div(&b).neg().sum_to(b.shape())),
                ]
            })
    }

    #[track_caller]
    fn binary(&self, name: &str, other: &Tensor, function: Binary) -> Tensor {
        let Some(shape) = broadcast(self.shape(), other.shape()) else {
            panic!(
                "{name}: the shapes {:?} and {:?} cannot be broadcast",
                self.shape(),
                other.shape()
            )
        };
        let y = Tensor::empty(self.gpu(), &shape);
        let flat = self.shape() == other.shape();
        let params = Params {
            shape: right_aligned(&shape),
            a_steps: steps(self.shape(), &shape),
            b_steps: steps(other.shape(), &shape),
            count: y.len() as u32,
            padding: [0; 3],
        };
        let kernel = if flat { FORWARD_FLAT } else { FORWARD };
        let bindings = [&self.binding(), &other.binding(), &y.binding()];
        kernel.launch(
            y.gpu(),
            &[("FUNCTION", function as u32)],
            &bindings,
            &params,
            Groups::of(y.len(), 64),
        );
        y
    }
}

/// The shape of both together; `None` if they do not fit or have more than four axes.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
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

/// How far `shape` moves in memory along each axis of `result`; 0 where it is repeated.
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
    use crate::testing::{Array, Tolerance, check, gpu};
    use proptest::prelude::*;

    /// Two or three roundings in the value; sums over up to 4 x 5 repeats in the gradient.
    const TOLERANCE: Tolerance = Tolerance {
        value: 1e-6,
        gradient: 1e-5,
    };

    fn reference(f: fn(f64, f64) -> f64, a: &Array, b: &Array) -> Array {
        let shape = super::broadcast(&a.shape, &b.shape).unwrap();
        let pick = |array: &Array, mut flat: usize| {
            let mut index = 0;
            let mut step = 1;
            for (i, length) in shape.iter().enumerate().rev() {
                let at = flat % length;
                flat /= length;
                if let Some(axis) = (i + array.shape.len()).checked_sub(shape.len()) {
                    index += if array.shape[axis] == 1 { 0 } else { at * step };
                    step *= array.shape[axis];
                }
            }
            array.values[index]
        };
        let values = (0..shape.iter().product())
            .map(|i| f(pick(a, i), pick(b, i)))
            .collect();
        Array { shape, values }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

        #[test]
        fn every_operation_agrees_with_its_reference(
            shape in proptest::collection::vec(1usize..6, 1..5), repeat_a in 0u8..16, repeat_b in 0u8..16,
            drop in 0usize..3, seed: u64,
        ) {
            type Case = (fn(&Tensor, &Tensor) -> Tensor, fn(f64, f64) -> f64);
            let cases: [Case; 4] = [
                (|a, b| a.add(b), |a, b| a + b),
                (|a, b| a.sub(b), |a, b| a - b),
                (|a, b| a.mul(b), |a, b| a * b),
                (|a, b| a.div(b), |a, b| a / b),
            ];
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
        }
    }

    #[test]
    #[should_panic(expected = "add: the shapes [2, 3] and [2] cannot be broadcast")]
    fn shapes_that_do_not_fit_are_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[2, 3]).add(&Tensor::zeros(&gpu, &[2]));
    }
}
