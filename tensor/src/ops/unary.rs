//! Functions of one number, applied to each element.
//!
//! y = f(x), dx = dy f'(x)
//!
//! As in PyTorch, f' of a clamp is 1 on its bounds, and f' of relu is 0 at 0.

use crate::Tensor;
use crate::gpu::{Groups, Kernel, params};

const FORWARD: Kernel = Kernel::new("unary", "forward");
const BACKWARD: Kernel = Kernel::new("unary", "backward");

/// The numbering is that of `FUNCTION` in the shader.
#[derive(Clone, Copy)]
enum UnaryFunction {
    Neg,
    Exp,
    Silu,
    Square,
    Clamp,
    Relu,
    Huber,
    MulScalar,
}

/// The methods of functions without a parameter, each with its case of [`UnaryFunction`].
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $case:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(&self) -> Tensor {
            self.unary(stringify!($name), UnaryFunction::$case, [0.0; 2])
        })*
    };
}

impl Tensor {
    functions! {
        /// -x
        neg = Neg;
        /// e^x
        exp = Exp;
        /// x / (1 + e^-x)
        silu = Silu;
        /// x²
        square = Square;
        /// max(x, 0). If x is not a number, the result depends on the device.
        relu = Relu;
    }

    /// x s
    pub fn mul_scalar(&self, s: f32) -> Tensor {
        self.unary("mul_scalar", UnaryFunction::MulScalar, [s, 0.0])
    }

    /// The Huber loss (Huber 1964): x²/2 where |x| ≤ `delta`, delta (|x| - delta/2) elsewhere.
    ///
    /// # Panics
    /// If `delta` is not above 0.
    #[track_caller]
    pub fn huber(&self, delta: f32) -> Tensor {
        assert!(delta > 0.0, "huber: delta is {delta}, wanted more than 0");
        self.unary("huber", UnaryFunction::Huber, [-delta, delta])
    }

    /// Limits each element to the range from `low` to `high`.
    ///
    /// # Panics
    /// If `low` is above `high`, or one of them is not a number.
    #[track_caller]
    pub fn clamp(&self, low: f32, high: f32) -> Tensor {
        assert!(
            low <= high,
            "clamp: the bounds are {low} and {high}, wanted the lower one first"
        );
        self.unary("clamp", UnaryFunction::Clamp, [low, high])
    }

    fn unary(&self, name: &'static str, function: UnaryFunction, [low, high]: [f32; 2]) -> Tensor {
        let x = self.detach();
        let constants = [("FUNCTION", function as u32)];
        let params = params! { count: u32 = x.len(), low: f32 = low, high: f32 = high };
        let groups = Groups::of(x.len(), 64);
        let y = x.empty_like();
        FORWARD.launch(&constants, &[&x, &y], &params, groups);
        y.recorded(name, [self], move |dy, _| {
            let dx = x.empty_like();
            BACKWARD.launch(&constants, &[&x, dy, &dx], &params, groups);
            [Some(dx)]
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Tensor;
    use crate::check::reference::{UNARY as TOLERANCE, huber};
    use crate::testing::{Array, check, gpu};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

        #[test]
        fn every_function_agrees_with_its_reference(rows in 1usize..4, cols in 1usize..140, seed: u64) {
            type UnaryCase = (fn(&Tensor) -> Tensor, fn(f64) -> f64, f64);
            let cases: [UnaryCase; 5] = [
                (|x| x.neg(), |v| -v, -4.0),
                (|x| x.exp(), f64::exp, -4.0),
                (|x| x.silu(), |v| v / (1.0 + (-v).exp()), -4.0),
                (|x| x.square(), |v| v * v, -4.0),
                (|x| x.mul_scalar(-2.5), |v| -2.5 * v, -4.0),
            ];
            for (op, reference, low) in cases {
                let x = Array::random(&[rows, cols], seed, low..4.0);
                check(&|t| op(&t[0]), &|a| a[0].map(reference), &[x], TOLERANCE);
            }
            // None on a bound, where there is no slope.
            let x = Array::random(&[rows, cols], seed, -4.0..4.0).map(|v| (64.0 * v).floor() / 64.0 + 1.0 / 128.0);
            check(&|t| t[0].clamp(-1.5, 2.5), &|a| a[0].map(|v| v.clamp(-1.5, 2.5)), std::slice::from_ref(&x), TOLERANCE);
            check(&|t| t[0].relu(), &|a| a[0].map(|v| v.max(0.0)), std::slice::from_ref(&x), TOLERANCE);
            check(&|t| t[0].huber(1.5), &|a| a[0].map(|v| huber(v, 1.5)), &[x], TOLERANCE);
        }
    }

    #[test]
    fn the_bounds_of_a_clamp_let_the_gradient_pass() {
        let x = Tensor::from_slice(&gpu(), &[-2.0, -1.0, 0.0, 3.0, 4.0], &[5]).tracked();
        let y = x.clamp(-1.0, 3.0);
        assert_eq!(y.to_vec().unwrap(), [-1.0, -1.0, 0.0, 3.0, 3.0]);
        let gradients = y.sum().backward();
        assert_eq!(
            gradients.get(&x).unwrap().to_vec().unwrap(),
            [0.0, 1.0, 1.0, 1.0, 0.0]
        );
    }

    #[test]
    fn beyond_delta_the_huber_function_goes_on_straight() {
        let x = Tensor::from_slice(&gpu(), &[-4.0, -2.0, -1.0, 0.0, 2.0, 10.0], &[6]).tracked();
        let y = x.huber(2.0);
        assert_eq!(y.to_vec().unwrap(), [6.0, 2.0, 0.5, 0.0, 2.0, 18.0]);
        let gradients = y.sum().backward();
        assert_eq!(
            gradients.get(&x).unwrap().to_vec().unwrap(),
            [-2.0, -2.0, -1.0, 0.0, 2.0, 2.0]
        );
    }

    #[test]
    #[should_panic(expected = "huber: delta is 0")]
    fn a_delta_of_nothing_is_refused() {
        Tensor::zeros(&gpu(), &[1]).huber(0.0);
    }

    #[test]
    #[should_panic(expected = "clamp: the bounds are 1 and -1")]
    fn bounds_in_the_wrong_order_are_refused() {
        Tensor::zeros(&gpu(), &[1]).clamp(1.0, -1.0);
    }
}
