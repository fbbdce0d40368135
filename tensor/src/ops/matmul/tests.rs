use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::select;

use super::product::LARGE;
use super::*;
use crate::check::reference::{MATMUL as TOLERANCE, matmul as reference, transposed};
use crate::ops::weight;
use crate::testing::{Array, bits, check, check_value, gpu};

thread_local! {
    /// Whether products on this thread use the kernel for processors.
    pub(super) static FORCED: Cell<Option<bool>> = const { Cell::new(None) };

    /// The limit above which matrices on this thread are large.
    pub(super) static FORCED_LARGE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `test` with the kernels for processors and for GPUs, each as for small and for large matrices.
pub(in crate::ops) fn with_each_variant(test: impl Fn(bool)) {
    for (lanes, large) in [(true, usize::MAX), (true, 0), (false, LARGE), (false, 0)] {
        FORCED.set(Some(lanes));
        FORCED_LARGE.set(Some(large));
        // The kernels for large matrices also read textures.
        weight::tests::FORCED.set(Some(lanes && large == 0));
        test(lanes);
        FORCED.set(None);
        FORCED_LARGE.set(None);
        weight::tests::FORCED.set(None);
    }
}

/// Lengths around the tiles of both kernels (16, 28, 32 and 64) and around multiples of four.
pub(in crate::ops) fn length() -> impl Strategy<Value = usize> {
    select(vec![
        1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 20, 28, 29, 32, 33, 36, 57, 63, 64, 65, 68,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn all_orientations_agree_with_their_references(m in length(), n in length(), k in length(), seed: u64) {
        let a = Array::random(&[m, k], seed, -1.0..1.0);
        let b = Array::random(&[k, n], seed ^ 1, -1.0..1.0);
        with_each_variant(|_| {
            let reference = |x: &[Array]| reference(&x[0], &x[1]);
            check(&|t| t[0].matmul(&t[1]), &reference, &[a.clone(), b.clone()], TOLERANCE);
            let nt = |x: &[Array]| self::reference(&x[0], &transposed(&x[1]));
            check(&|t| t[0].matmul_nt(&t[1]), &nt, &[a.clone(), transposed(&b)], TOLERANCE);
            let tn = |x: &[Array]| super::tests::reference(&transposed(&x[0]), &x[1]);
            check(&|t| t[0].matmul_tn(&t[1]), &tn, &[transposed(&a), b.clone()], TOLERANCE);
        });
    }

    #[test]
    fn a_row_does_not_know_the_rows_beside_it(m in 1usize..40, more in prop_oneof![1usize..30, 60usize..140], n in length(), k in length(), seed: u64) {
        let all = Array::random(&[m + more, k], seed, -1.0..1.0);
        let few = Array { shape: vec![m, k], values: all.values[..m * k].to_vec() };
        let (w, gpu) = (Array::random(&[n, k], seed ^ 1, -1.0..1.0).tensor(&gpu()), gpu());
        with_each_variant(|_| {
            let product = |x: &Array| bits(&x.tensor(&gpu).matmul_nt(&w));
            assert_eq!(product(&all)[..m * n], product(&few));
        });
    }

    /// Lengths are multiples of four, since others always have the same tiles. Those of 64 columns need a multiple of 64.
    #[test]
    fn nor_does_it_know_the_size_of_the_tiles(m in prop_oneof![1usize..17, 17usize..70], n in prop_oneof![1usize..20, Just(16)], k in 1usize..20, seed: u64) {
        let (n, k) = (4 * n, 4 * k);
        let gpu = gpu();
        let x = Array::random(&[m, k], seed, -1.0..1.0).tensor(&gpu);
        let w = Array::random(&[n, k], seed ^ 1, -1.0..1.0);
        let (nt, nn) = (w.tensor(&gpu), transposed(&w).tensor(&gpu));
        let seen = std::cell::RefCell::new(Vec::new());
        with_each_variant(|lanes| {
            if lanes {
                seen.borrow_mut().push([x.matmul_nt(&nt), x.matmul(&nn)].map(|y| bits(&y)));
            }
        });
        let seen = seen.into_inner();
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

/// Each height and width of tiles, with lengths of the sum that are and are not multiples of eight, the step of the shortest tile.
#[test]
fn tiles_of_each_size_agree_with_the_reference() {
    for (m, n, k) in [
        (1, 36, 20),
        (16, 32, 24),
        (17, 8, 12),
        (33, 36, 4),
        (3, 12, 512),
        (28, 64, 20),
        (32, 128, 12),
        (57, 64, 8),
        (65, 64, 8),
    ] {
        let a = Array::random(&[m, k], 7, -1.0..1.0);
        let b = Array::random(&[k, n], 8, -1.0..1.0);
        with_each_variant(|_| {
            let nn = |x: &[Array]| reference(&x[0], &x[1]);
            check(
                &|t| t[0].matmul(&t[1]),
                &nn,
                &[a.clone(), b.clone()],
                TOLERANCE,
            );
            let nt = |x: &[Array]| reference(&x[0], &transposed(&x[1]));
            let inputs = [a.clone(), transposed(&b)];
            check(&|t| t[0].matmul_nt(&t[1]), &nt, &inputs, TOLERANCE);
        });
    }
}

/// Sums of 300 to 1,100 terms run in slices of at least 256 if the result is small. √1100 · 6e-8 = 2e-6.
#[test]
fn long_sums_are_cut_into_slices() {
    for (m, n, k) in [(8, 12, 1100), (33, 5, 700), (3, 3, 513), (1, 1, 300)] {
        let a = Array::random(&[k, m], 5, -1.0..1.0);
        let b = Array::random(&[k, n], 6, -1.0..1.0);
        with_each_variant(|_| {
            let tn = |x: &[Array]| reference(&transposed(&x[0]), &x[1]);
            check_value(
                &|t| t[0].matmul_tn(&t[1]),
                &tn,
                &[a.clone(), b.clone()],
                TOLERANCE,
            );
        });
    }
}

#[test]
fn products_of_nothing() {
    let gpu = gpu();
    let product = |m: usize, n: usize, k: usize| {
        let (a, b) = (Tensor::zeros(&gpu, &[m, k]), Tensor::zeros(&gpu, &[k, n]));
        a.matmul(&b).to_vec().unwrap()
    };
    with_each_variant(|_| {
        assert!(product(0, 3, 2).is_empty() && product(3, 0, 2).is_empty());
        assert_eq!(product(2, 2, 0), [0.0; 4]);
    });
}

#[test]
#[should_panic(expected = "matmul: the shapes [2, 3] and [2, 4] do not fit: 3 against 2")]
fn shapes_that_do_not_fit_are_refused() {
    let gpu = gpu();
    Tensor::zeros(&gpu, &[2, 3]).matmul(&Tensor::zeros(&gpu, &[2, 4]));
}
