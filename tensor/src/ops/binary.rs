//! Two tensors, element by element, with broadcasting: shapes are aligned at their last axis, and an axis of length
//! one, or a missing one, is repeated.
//!
//! da = dy ∂f/∂a and db = dy ∂f/∂b, each summed over the axes along which that input was repeated.
//!
//! min(a, b) and max(a, b) give their gradient to the one that they are, half to each where a = b, as in PyTorch.
//! Comparisons are 1 where they hold and 0 elsewhere, and constants: no gradient goes through them.
//! select(mask, a, b) is a where the mask is not 0 and b elsewhere, and so are its gradients.

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
    Min,
    Max,
    Less,
    Greater,
    AtLeast,
    /// How much of min(a, b) is a.
    ShareOfMin,
    /// b where a is not 0, else 0.
    Where,
    /// b where a is 0, else 0.
    Except,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    shape: [u32; 4],
    a_steps: [u32; 4],
    b_steps: [u32; 4],
    count: u32,
}

impl Tensor {
    /// a + b
    ///
    /// # Panics
    /// Like all here: if the shapes cannot be broadcast against each other, or have more than four axes.
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

    /// The smaller of a and b.
    #[track_caller]
    pub fn min(&self, other: &Tensor) -> Tensor {
        self.extreme("min", other, Binary::Min)
    }

    /// The larger of a and b.
    #[track_caller]
    pub fn max(&self, other: &Tensor) -> Tensor {
        self.extreme("max", other, Binary::Max)
    }

    #[track_caller]
    fn extreme(&self, name: &'static str, other: &Tensor, function: Binary) -> Tensor {
        let (a, b) = (self.detach(), other.detach());
        let (a_wanted, b_wanted) = (self.is_tracked(), other.is_tracked());
        self.binary(name, other, function)
            .recorded(name, &[self, other], move |dy| {
                // A number is the larger one as far as the other is the smaller one.
                let [x, y] = match function {
                    Binary::Min => [&a, &b],
                    _ => [&b, &a],
                };
                let share = |x: &Tensor, y| dy.mul(&x.binary(name, y, Binary::ShareOfMin));
                vec![
                    a_wanted.then(|| share(x, y).sum_to(a.shape())),
                    b_wanted.then(|| share(y, x).sum_to(b.shape())),
                ]
            })
    }

    /// 1 where a < b, else 0; untracked.
    #[track_caller]
    pub fn less(&self, other: &Tensor) -> Tensor {
        self.binary("less", other, Binary::Less)
    }

    /// 1 where a > b, else 0; untracked.
    #[track_caller]
    pub fn greater(&self, other: &Tensor) -> Tensor {
        self.binary("greater", other, Binary::Greater)
    }

    /// 1 where a ≥ b, else 0; untracked.
    #[track_caller]
    pub fn at_least(&self, other: &Tensor) -> Tensor {
        self.binary("at_least", other, Binary::AtLeast)
    }

    /// a where `mask` is not 0, b elsewhere, whatever stands in the other one. No gradient goes to the mask.
    #[track_caller]
    pub fn select(mask: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
        let mask = mask.detach();
        let (a_shape, b_shape) = (a.shape().to_vec(), b.shape().to_vec());
        let chosen = mask.binary("select", a, Binary::Where);
        let rest = mask.binary("select", b, Binary::Except);
        chosen
            .binary("select", &rest, Binary::Add)
            .recorded("select", &[a, b], move |dy| {
                let part = |which, shape| Some(mask.binary("select", dy, which).sum_to(shape));
                vec![
                    part(Binary::Where, &a_shape),
                    part(Binary::Except, &b_shape),
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
    use crate::check::reference::{BINARY as TOLERANCE, binary as reference};
    use crate::testing::{Array, check, check_value, gpu};
    use proptest::prelude::*;

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
            let extremes: [Case; 2] = [(|a, b| a.min(b), f64::min), (|a, b| a.max(b), f64::max)];
            let comparisons: [Case; 3] = [
                (|a, b| a.less(b), |a, b| f64::from(u8::from(a < b))),
                (|a, b| a.greater(b), |a, b| f64::from(u8::from(a > b))),
                (|a, b| a.at_least(b), |a, b| f64::from(u8::from(a >= b))),
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
            for (op, f) in extremes {
                // None equal, where there is no slope.
                let a = a.map(|v| (64.0 * v).floor() / 64.0);
                let b = b.map(|v| (64.0 * v).floor() / 64.0 + 1.0 / 128.0);
                check(&|t| op(&t[0], &t[1]), &|r| reference(f, &r[0], &r[1]), &[a, b], TOLERANCE);
            }
            for (op, f) in comparisons {
                let inputs = [a.clone(), b.clone()];
                check_value(&|t| op(&t[0], &t[1]), &|r| reference(f, &r[0], &r[1]), &inputs, TOLERANCE);
            }
            let mask = a.map(|v| f64::from(u8::from(v > 0.3)));
            let on_device = mask.tensor(&gpu());
            let select = |t: &[Tensor]| Tensor::select(&on_device, &t[0], &t[1]);
            let chosen = |r: &[Array]| {
                let a = reference(|m, v| m * v, &mask, &r[0]);
                let b = reference(|m, v| (1.0 - m) * v, &mask, &r[1]);
                reference(|a, b| a + b, &a, &b)
            };
            check(&select, &chosen, &[a, b], TOLERANCE);
        }
    }

    /// The conventions at ties. Powers of two, so that all is exact.
    #[test]
    fn equal_numbers_share_the_gradient_and_comparisons_have_none() {
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
        let masks = [a.less(&b), a.greater(&b), a.at_least(&b)];
        let wanted = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]];
        for (mask, wanted) in masks.iter().zip(wanted) {
            assert!(!mask.is_tracked());
            assert_eq!(mask.to_vec().unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_not_selected_may_be_anything() {
        let gpu = gpu();
        let tensor = |values: [f32; 2]| Tensor::from_slice(&gpu, &values, &[2]).tracked();
        let (mask, a, b) = (
            tensor([1.0, 0.0]),
            tensor([3.0, f32::INFINITY]),
            tensor([f32::INFINITY, 4.0]),
        );
        let y = Tensor::select(&mask, &a, &b);
        assert_eq!(y.to_vec().unwrap(), [3.0, 4.0]);
        let gradients = y.sum().backward();
        assert!(gradients.get(&mask).is_none());
        assert_eq!(gradients.get(&a).unwrap().to_vec().unwrap(), [1.0, 0.0]);
        assert_eq!(gradients.get(&b).unwrap().to_vec().unwrap(), [0.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "add: the shapes [2, 3] and [2] cannot be broadcast")]
    fn shapes_that_do_not_fit_are_refused() {
        let gpu = gpu();
        Tensor::zeros(&gpu, &[2, 3]).add(&Tensor::zeros(&gpu, &[2]));
    }
}
