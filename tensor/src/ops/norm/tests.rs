use proptest::prelude::*;

use crate::Tensor;
use crate::check::reference::{EPS, LAYER_NORM, RMS_NORM, norm as reference};
use crate::testing::{Array, check, gpu};

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn rms_norm_agrees_with_its_reference(
        rows in prop_oneof![Just(1usize), Just(31), Just(32), Just(33), Just(65), 2usize..130],
        cols in prop_oneof![Just(1usize), Just(8), Just(63), Just(64), Just(65), 2usize..300],
        seed: u64,
    ) {
        let inputs = [Array::random(&[rows, cols], seed, -2.0..2.0), Array::random(&[cols], seed ^ 1, 0.5..1.5)];
        check(&|t| t[0].rms_norm(&t[1], EPS), &|a| reference(&a[0], &a[1], None), &inputs, RMS_NORM);
    }

    #[test]
    fn layer_norm_agrees_with_its_reference(
        rows in prop_oneof![Just(1usize), Just(31), Just(32), Just(33), Just(65), 2usize..130],
        cols in prop_oneof![Just(8usize), Just(63), Just(64), Just(65), 2usize..300],
        seed: u64,
    ) {
        let inputs = [
            Array::random(&[rows, cols], seed, -2.0..2.0),
            Array::random(&[cols], seed ^ 1, 0.5..1.5),
            Array::random(&[cols], seed ^ 2, -1.0..1.0),
        ];
        check(
            &|t| t[0].layer_norm(&t[1], &t[2], EPS),
            &|a| reference(&a[0], &a[1], Some(&a[2])),
            &inputs,
            LAYER_NORM,
        );
    }
}

/// Neither a shift nor a scaling of a row changes its layer norm.
#[test]
fn layer_norm_removes_shift_and_scale_of_a_row() {
    let gpu = gpu();
    let x = Array::random(&[5, 96], 3, -1.0..1.0);
    let normal = |x: &Array| {
        let (one, zero) = (Tensor::full(&gpu, &[96], 1.0), Tensor::zeros(&gpu, &[96]));
        let y = x.tensor(&gpu).layer_norm(&one, &zero, 1e-9);
        y.to_vec().unwrap()
    };
    let (before, after) = (normal(&x), normal(&x.map(|v| 3.0 * v + 2.0)));
    for (a, b) in before.iter().zip(&after) {
        // x rounds to 1e-7 of its size of 5; scaling by 3 makes that 1e-6 of a standard deviation.
        assert!((a - b).abs() < 5e-6, "{a} {b}");
    }
    for row in before.chunks(96) {
        let mean = row.iter().sum::<f32>() / 96.0;
        let variance = row.iter().map(|v| v * v).sum::<f32>() / 96.0;
        assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-5);
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let gpu = gpu();
    let x = Array::random(&[70, 96], 3, -1.0..1.0);
    let [w, b] = [(4, 0.5..1.5), (5, -1.0..1.0)]
        .map(|(seed, range)| Array::random(&[96], seed, range).tensor(&gpu));
    let last = Array {
        shape: vec![1, 96],
        values: x.values[69 * 96..].to_vec(),
    };
    let norms: [&dyn Fn(Tensor) -> Tensor; 2] =
        [&|x| x.rms_norm(&w, EPS), &|x| x.layer_norm(&w, &b, EPS)];
    for norm in norms {
        let all = norm(x.tensor(&gpu)).to_vec().unwrap();
        assert_eq!(all[69 * 96..], norm(last.tensor(&gpu)).to_vec().unwrap());
    }
}

#[test]
#[should_panic(expected = "rms_norm: rows of [2, 3] and a weight of [4]")]
fn a_weight_of_another_length_is_refused() {
    let gpu = gpu();
    Tensor::zeros(&gpu, &[2, 3]).rms_norm(&Tensor::zeros(&gpu, &[4]), EPS);
}

#[test]
#[should_panic(expected = "layer_norm: rows of [2, 3] and a bias of [4]")]
fn a_bias_of_another_length_is_refused() {
    let gpu = gpu();
    let (x, w) = (Tensor::zeros(&gpu, &[2, 3]), Tensor::zeros(&gpu, &[3]));
    x.layer_norm(&w, &Tensor::zeros(&gpu, &[4]), EPS);
}
