use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::Gpu;
use crate::check::reference::{
    LORA_SCALE as SCALE, MATMUL as TOLERANCE, held, linear as reference, linear_inputs as inputs,
    linear_op as linear,
};
use crate::ops::matmul::tests::{length, with_each_variant};
use crate::ops::weight::{Weight, WeightFormat};
use crate::testing::{Array, assert_agree, bits, check, gpu, narrow};

/// Checks a layer of a frozen matrix. The reference uses the values as the format holds them.
fn check_frozen(w: &Array, format: WeightFormat, inputs: &[Array]) {
    let held = held(w, format);
    with_each_variant(|_| {
        let weight = Weight::from_f32(&gpu(), &w.to_f32(), w.shape[0], w.shape[1], format);
        assert_eq!(weight.to_vec().unwrap(), held.to_f32());
        let matrix = Matrix::Frozen(weight);
        let op = |t: &[Tensor]| linear(t, &matrix);
        check(&op, &|x| reference(x, &held), inputs, TOLERANCE);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_frozen_matrix_with_everything(
        m in length(), n in length(), k in length(), r in select(vec![1, 4, 6, 8, 20]),
        format in select(vec![WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16]), seed: u64,
    ) {
        let w = Array::random(&[n, k], seed, -1.0..1.0);
        check_frozen(&w, format, &inputs(m, n, k, r, seed));
    }

    #[test]
    fn layers_computed_together_have_the_bits_of_each_alone(
        m in prop_oneof![1usize..20, 20usize..80], rows in [length(), length(), length()], k in length(),
        r in select(vec![0, 4, 6, 20]), has_bias: bool, seed: u64,
    ) {
        let gpu = gpu();
        let random = |shape: &[usize]| Array::random(shape, seed, -1.0..1.0).tensor(&gpu);
        let together = |shapes: [[usize; 2]; 3]| Tensor::together(&shapes.map(|shape| random(&shape)));
        let (a, b) = (together([[r, k]; 3]), together(rows.map(|n| [n, r])));
        let bias: Vec<Tensor> = together(rows.map(|n| [1, n])).iter().map(|b| b.reshape(&[b.len()])).collect();
        let loras = [0, 1, 2].map(|i| Lora { a: a[i].clone(), b: b[i].clone(), scale: SCALE });
        let frozen = |n: usize| {
            let values = Array::random(&[n, k], seed, -1.0..1.0).to_f32();
            Matrix::Frozen(Weight::from_f32(&gpu, &values, n, k, WeightFormat::Bf16))
        };
        let half = |seed: u64| {
            let values = Array::random(&[rows[0], k], seed, -1.0..1.0).to_f32();
            Matrix::Frozen(Weight::from_f32(&gpu, &values, rows[0], k, WeightFormat::Bf16))
        };
        let x = random(&[m, k]);
        let alone = |layer: LinearLayer<'_>| x.linear(layer.weight, layer.bias, layer.lora, None);
        with_each_variant(|_| {
            let weights = Matrix::together(rows.map(frozen).into()).unwrap();
            let beside = Matrix::together(vec![half(seed), half(!seed)]).unwrap();
            let layer = |i: usize| LinearLayer {
                weight: &weights[i],
                bias: has_bias.then_some(&bias[i]),
                lora: (r > 0).then_some(&loras[i]),
                residual: None,
            };
            let layers = [0, 1, 2].map(layer);
            assert!(Stack::new(&x, &layers).is_some() == r.is_multiple_of(4));
            let together = x.linears(layers);
            let room: usize = rows.map(|n| (m * n).next_multiple_of(ALIGNMENT)).iter().sum();
            let into = Tensor::zeros(&gpu, &[room]);
            let written = x.linears_into(layers, &into);
            for (i, y) in together.iter().enumerate() {
                assert!(bits(y) == bits(&alone(layer(i))), "layer {i}");
                assert!(bits(y) == bits(&written[i]), "layer {i}, written");
            }
            assert!(bits(&into)[..m * rows[0]] == bits(&together[0]), "where it was written");
            // A second layer with as many rows as the first.
            let up = LinearLayer { weight: &beside[1], ..layer(0) };
            let gate = LinearLayer { weight: &beside[0], ..layer(0) };
            let gated = x.gated_linear(gate, up);
            let wanted = alone(gate).swiglu(&alone(up));
            assert!(bits(&gated) == bits(&wanted), "gated");
        });
    }

    #[test]
    fn a_trained_matrix_gets_its_gradient(m in length(), n in length(), k in length(), seed: u64) {
        let mut inputs = inputs(m, n, k, 4, seed);
        inputs.push(Array::random(&[n, k], seed, -1.0..1.0));
        with_each_variant(|_| {
            check(
                &|t| linear(&t[..5], &Matrix::Trained(t[5].clone())),
                &|x| reference(&x[..5], &x[5]),
                &inputs,
                TOLERANCE,
            );
        });
    }

    #[test]
    fn the_bits_of_a_row_do_not_depend_on_the_other_rows(
        m in 1usize..40, more in 1usize..100, format in prop::sample::select(WeightFormat::ALL.to_vec()), seed: u64,
    ) {
        let (gpu, n, k, r) = (gpu(), 64, 64, 8);
        let all = inputs(m + more, n, k, r, seed);
        let mut few = all.clone();
        for (i, cols) in [(0, k), (2, n)] {
            few[i] = Array { shape: vec![m, cols], values: all[i].values[..m * cols].to_vec() };
        }
        let values = Array::random(&[n, k], seed, -1.0..1.0).to_f32();
        with_each_variant(|_| {
            let w = Matrix::Frozen(Weight::from_f32(&gpu, &values, n, k, format));
            let layer = |x: &[Array]| {
                let t: Vec<_> = x.iter().map(|a| a.tensor(&gpu)).collect();
                bits(&linear(&t, &w))
            };
            assert_eq!(layer(&all)[..m * n], layer(&few));
        });
    }
}

/// With a rank of 4 the layers are computed in one launch, with 6 in one each.
#[test]
fn known_results_have_the_gradients_of_computed_ones() {
    let (gpu, m, n, k) = (gpu(), 9, 20, 12);
    for r in [4, 6] {
        let random = |shape: &[usize], seed| Array::random(shape, seed, -1.0..1.0).tensor(&gpu);
        let [x, residual] = [([m, k], 1), ([m, n], 2)].map(|(s, i)| random(&s, i).tracked());
        let (a, b) = (random(&[r, k], 3).tracked(), random(&[n, r], 4).tracked());
        let w = Matrix::Trained(random(&[n, k], 5).tracked());
        let lora = Lora {
            a: a.clone(),
            b: b.clone(),
            scale: SCALE,
        };
        let layer = LinearLayer {
            weight: &w,
            bias: None,
            lora: Some(&lora),
            residual: None,
        };
        let added = LinearLayer {
            residual: Some(&residual),
            ..layer
        };
        let leaves = [&x, &residual, &a, &b, w.trained().unwrap()];
        let gradients = |results: [Tensor; 3]| {
            // Each with slopes of its own.
            let [y, z, o] = results.each_ref().map(|y| y.mul(y).sum());
            let gradients = y.add(&z.mul(&z)).add(&o).backward();
            leaves.map(|leaf| gradients.get(leaf).unwrap().to_vec().unwrap())
        };
        let [y, z] = x.linears([layer; 2]);
        let [o] = x.linears([added]);
        let values = [&y, &z, &o].map(Tensor::detach);
        let wanted = gradients([y, z, o]);
        let [y, z, o] = values.clone();
        let into = Tensor::zeros(&gpu, &[m * n]);
        let [written] = x.linears_into([added], &into);
        assert_eq!(written.to_vec().unwrap(), o.to_vec().unwrap());
        assert!(!written.is_tracked());
        let [y, z] = x.known_linears([layer; 2], [y, z]);
        let [o] = x.known_linears([added], [o]);
        for (known, value) in [&y, &z, &o].into_iter().zip(&values) {
            assert_eq!(known.to_vec().unwrap(), value.to_vec().unwrap());
        }
        assert!(gradients([y, z, o]) == wanted, "rank {r}");
    }
}

/// Matrices in textures interleave 32 rows, and quantised rows have chunks of 256 numbers. Here the last ones are incomplete. Up to 16
/// rows of the input have a kernel of their own.
#[test]
fn a_quantised_matrix() {
    let (n, k, r) = (68, 320, 4);
    let w = Array::random(&[n, k], 4, -1.0..1.0);
    for (m, format) in [
        (1, WeightFormat::Q4),
        (5, WeightFormat::Q8Short),
        (16, WeightFormat::Q8),
        (17, WeightFormat::Q4),
    ] {
        check_frozen(&w, format, &inputs(m, n, k, r, 5));
    }
}

/// 4 KiB hold 32 rows of 64 numbers of 16 bits: 70 rows are three shards, the last of 6. Only the matrix is split;
/// the largest tensor here is smaller than 4 KiB.
#[test]
fn a_split_matrix_gives_what_a_whole_one_gives() {
    let (m, n, k, r) = (9, 70, 61, 4);
    let values = Array::random(&[n, k], 3, -1.0..1.0).to_f32();
    let narrow = narrow(4096);
    let run = |gpu: &Gpu| -> Vec<Vec<f32>> {
        let weight = Weight::from_f32(gpu, &values, n, k, WeightFormat::Bf16);
        let w = Matrix::Frozen(weight);
        assert_eq!(
            w.pieces(0..n).len(),
            if gpu.caps().max_binding == 4096 { 3 } else { 1 }
        );
        let t: Vec<_> = inputs(m, n, k, r, 7)
            .iter()
            .map(|a| a.tensor(gpu).tracked())
            .collect();
        let y = linear(&t, &w);
        let gradients = y.square().sum().backward();
        let mut results: Vec<_> = t
            .iter()
            .map(|t| gradients.get(t).unwrap().to_vec().unwrap())
            .collect();
        results.push(y.to_vec().unwrap());
        // A range of rows that ends inside a shard.
        let (x, lora) = (
            t[0].detach(),
            Lora {
                a: t[3].detach(),
                b: t[4].detach(),
                scale: SCALE,
            },
        );
        let low = lora.down(&x);
        let part = w.project(&x, 32..67, Some((&lora, &low)), None, None);
        let dx = Tensor::full(gpu, &[m, k], 0.5);
        let dx = w.input_gradient(&part, 32..67, Some(&dx), None);
        results.extend([part.to_vec().unwrap(), dx.to_vec().unwrap()]);
        results
    };
    with_each_variant(|_| {
        for (got, wanted) in run(&narrow).iter().zip(run(&gpu())) {
            assert_agree("split", got, &wanted, TOLERANCE.value);
        }
    });
}

/// Three results of 9 x 40 numbers take 4.6 KB, and a binding holds 4 KiB.
#[test]
fn layers_whose_results_do_not_fit_together_are_computed_one_after_the_other() {
    let values = Array::random(&[40, 16], 3, -1.0..1.0).to_f32();
    let run = |gpu: &Gpu| {
        let x = Array::random(&[9, 16], 4, -1.0..1.0).tensor(gpu);
        let weight = || Matrix::Frozen(Weight::from_f32(gpu, &values, 40, 16, WeightFormat::Bf16));
        let weights = Matrix::together(vec![weight(), weight(), weight()]).unwrap();
        let layers = [0, 1, 2].map(|i| LinearLayer {
            weight: &weights[i],
            bias: None,
            lora: None,
            residual: None,
        });
        assert!(Stack::new(&x, &layers).is_some());
        x.linears(layers).map(|y| y.to_vec().unwrap())
    };
    with_each_variant(|_| assert_eq!(run(&narrow(4096)), run(&gpu())));
}

/// The results for chunks of rows, combined, equal those of the whole matrix.
#[test]
fn chunks_of_rows_add_up_to_the_gradients() {
    let (gpu, m, n, k, r) = (gpu(), 11, 50, 20, 4);
    let inputs = inputs(m, n, k, r, 1);
    let w = Array::random(&[n, k], 2, -1.0..1.0);
    let dy = Array::random(&[m, n], 3, -1.0..1.0);
    let columns = |rows: Range<usize>| {
        let values = (0..m)
            .flat_map(|i| dy.values[i * n..][rows.clone()].to_vec())
            .collect();
        Array {
            shape: vec![m, rows.len()],
            values,
        }
        .tensor(&gpu)
    };
    with_each_variant(|_| {
        let tracked: Vec<_> = inputs.iter().map(|a| a.tensor(&gpu).tracked()).collect();
        let trained = w.tensor(&gpu).tracked();
        let matrix = Matrix::Trained(trained.clone());
        let y = linear(&tracked, &matrix);
        let gradients = y.mul(&dy.tensor(&gpu)).sum().backward();

        let x = tracked[0].detach();
        let lora = Lora {
            a: tracked[3].detach(),
            b: tracked[4].detach(),
            scale: SCALE,
        };
        let low = lora.down(&x);
        let (mut dx, mut dlow) = (None, None);
        let (db, dw) = (Tensor::empty(&gpu, &[n, r]), Tensor::empty(&gpu, &[n, k]));
        for rows in [0..16, 16..21, 21..n] {
            let dy = columns(rows.clone());
            dlow = Some(lora.low_gradient(&dy, rows.clone(), dlow.as_ref()));
            let low_sum = dlow.as_ref().filter(|_| rows.end == n);
            let low_sum = low_sum.map(|dlow| (&lora, dlow));
            dx = Some(matrix.input_gradient(&dy, rows.clone(), dx.as_ref(), low_sum));
            write_weight_gradient(&db, &dy, &low, rows.clone());
            write_weight_gradient(&dw, &dy, &x, rows);
        }
        let (dx, dlow) = (dx.unwrap(), dlow.unwrap());
        let da = lora.a_gradient(&dlow, &x);
        for (got, leaf) in [
            (&dx, &tracked[0]),
            (&da, &tracked[3]),
            (&db, &tracked[4]),
            (&dw, &trained),
        ] {
            let wanted = gradients.get(leaf).unwrap().to_vec().unwrap();
            assert_agree("chunks", &got.to_vec().unwrap(), &wanted, TOLERANCE.value);
        }
    });
}

#[test]
fn what_is_not_tracked_gets_no_gradient() {
    let gpu = gpu();
    let t: Vec<_> = inputs(3, 8, 4, 4, 9)
        .iter()
        .map(|a| a.tensor(&gpu))
        .collect();
    let w = Matrix::Frozen(Weight::from_f32(&gpu, &[0.5; 32], 8, 4, WeightFormat::F16));
    assert!(!linear(&t, &w).is_tracked());
    for tracked in 0..t.len() {
        let mut some = t.clone();
        some[tracked] = some[tracked].tracked();
        let gradients = linear(&some, &w).sum().backward();
        for (i, leaf) in some.iter().enumerate() {
            assert_eq!(gradients.get(leaf).is_some(), i == tracked);
        }
    }
}

#[test]
#[should_panic(
    expected = "linear: A has the shape [4, 5] and B [8, 4], wanted [r, 4] and [8, r] for the matrix [8, 4]"
)]
fn an_adapter_of_another_layer_is_refused() {
    let gpu = gpu();
    let x = Tensor::zeros(&gpu, &[2, 4]);
    let w = Matrix::Trained(Tensor::zeros(&gpu, &[8, 4]));
    let lora = Lora {
        a: Tensor::zeros(&gpu, &[4, 5]),
        b: Tensor::zeros(&gpu, &[8, 4]),
        scale: 1.0,
    };
    x.linear(&w, None, Some(&lora), None);
}
