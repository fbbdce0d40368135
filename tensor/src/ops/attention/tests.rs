use std::cell::Cell;

use super::*;
use crate::Indices;
use crate::check::LEAST;
use crate::check::reference::{
    ATTENTION as TOLERANCE, AttentionHeads, attend, attention as reference,
    attention_inputs as inputs, forest, visible,
};
use crate::testing::{Array, Tolerance, assert_agree, assert_close, bits, check, gpu, numbers};
use proptest::prelude::*;

thread_local! {
    /// Whether attention on this thread uses the kernels for a processor.
    pub(super) static FORCED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs `test` with each variant.
fn with_each_variant(test: impl Fn()) {
    for lanes in [true, false] {
        FORCED.set(Some(lanes));
        test();
        FORCED.set(None);
    }
}

/// Few, since each is compiled: one head, groups, an odd group, and sizes that are not powers of two.
fn any_heads() -> impl Strategy<Value = AttentionHeads> {
    prop_oneof![
        Just(AttentionHeads(1, 1, 4)),
        Just(AttentionHeads(4, 2, 16)),
        Just(AttentionHeads(3, 3, 20)),
        Just(AttentionHeads(7, 1, 8)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_reference(
        rows in prop_oneof![Just(7usize), Just(8), Just(9), Just(33), 2usize..60], heads in any_heads(), seed: u64,
    ) {
        let until = forest(rows, seed);
        let visibility = Visibility::tree(&gpu(), &until);
        let inputs = inputs(rows, heads, seed);
        let op = |t: &[Tensor]| attend(t, &visibility, heads);
        with_each_variant(|| check(&op, &|a| reference(a, &until, heads), &inputs, TOLERANCE));
    }

    #[test]
    fn the_packed_tree_is_the_same_as_separate_sequences(rows in 2usize..50, heads in any_heads(), seed: u64) {
        with_each_variant(|| check_against_separate_sequences(rows, heads, seed));
    }

    #[test]
    fn decoding_from_an_arena_gives_the_bits_of_the_packed_tree(
        rows in prop_oneof![2usize..60, 100usize..200], heads in any_heads(), run in 1usize..6, keep in 1usize..4, seed: u64,
    ) {
        with_each_variant(|| check_decoding(rows, heads, run, keep, seed));
    }
}

fn rows_of(indices: impl Iterator<Item = usize>) -> Indices {
    Indices::new(&gpu(), &indices.map(|i| i as u32).collect::<Vec<_>>())
}

/// Compares a loss on each token in the packed tree with one on separate sequences, the path of each token.
fn check_against_separate_sequences(rows: usize, heads: AttentionHeads, seed: u64) {
    let gpu = gpu();
    let until = forest(rows, seed);
    let leaves = inputs(rows, heads, seed).map(|a| a.tensor(&gpu).tracked());
    let upstream = Array::random(&[rows, heads.0 * heads.2], seed ^ 9, -1.0..1.0).tensor(&gpu);

    let packed = attend(&leaves, &Visibility::tree(&gpu, &until), heads);
    let packed_values = packed.to_vec().unwrap();
    let gradients = packed.mul(&upstream).sum().backward();

    let mut separate_values = Vec::new();
    let mut loss = Tensor::zeros(&gpu, &[]);
    for query in 0..rows {
        let length = visible(&until, query).count();
        let path = rows_of(visible(&until, query));
        let sequence = leaves.each_ref().map(|leaf| leaf.gather_rows(&path));
        let chain = Visibility::tree(&gpu, &vec![length as u32; length]);
        let own = rows_of([length - 1].into_iter());
        let last = attend(&sequence, &chain, heads).gather_rows(&own);
        separate_values.extend(last.to_vec().unwrap());
        let weight = upstream.gather_rows(&rows_of([query].into_iter()));
        loss = loss.add(&last.mul(&weight).sum());
    }
    assert!(
        packed_values == separate_values,
        "{packed_values:?} {separate_values:?}"
    );
    let separate = loss.backward();
    for (name, leaf) in ["q", "k", "v"].iter().zip(&leaves) {
        let wanted = separate.get(leaf).unwrap().to_vec().unwrap();
        let got = gradients.get(leaf).unwrap().to_vec().unwrap();
        assert_agree(name, &got, &wanted, TOLERANCE.gradient);
    }
}

/// The keys are in scattered rows of a large arena that is NaN elsewhere; only some queries decode.
fn check_decoding(rows: usize, heads: AttentionHeads, run: usize, keep: usize, seed: u64) {
    let gpu = gpu();
    let until = forest(rows, seed);
    let leaves = inputs(rows, heads, seed).map(|a| a.tensor(&gpu));
    let packed = attend(&leaves, &Visibility::tree(&gpu, &until), heads);

    // Runs of `run` rows in reverse order with gaps between.
    let runs = rows.div_ceil(run);
    let place = |key: usize| (runs - 1 - key / run) * (run + 2) + key % run;
    let [q, k, v] = leaves;
    let [keys, values] = [k, v].map(|packed| {
        let arena = Tensor::full(&gpu, &[runs * (run + 2), packed.cols()], f32::NAN);
        arena.write_rows(&rows_of((0..rows).map(place)), &packed);
        arena
    });
    let queries: Vec<_> = (0..rows).rev().step_by(keep).collect();
    let range = |key| (place(key) as u32, place(key) as u32 + 1);
    let ranges: Vec<Vec<_>> = queries
        .iter()
        .map(|query| visible(&until, *query).map(range).collect())
        .collect();
    let chosen = rows_of(queries.into_iter());
    let inputs = [q.gather_rows(&chosen), keys, values];
    let decoded = attend(&inputs, &Visibility::ranges(&gpu, &ranges), heads);
    // One query alone has a workgroup for few.
    let [_, keys, values] = inputs;
    let first = rows_of(std::iter::once(rows - 1));
    let alone = [q.gather_rows(&first), keys, values];
    let alone = attend(&alone, &Visibility::ranges(&gpu, &ranges[..1]), heads);
    assert_eq!(bits(&decoded), bits(&packed.gather_rows(&chosen)));
    assert_eq!(bits(&alone), bits(&packed.gather_rows(&first)));
}

/// Long enough that the walks over the first tokens are split.
#[test]
fn a_rules_text_that_hundreds_of_tokens_see_gets_the_right_gradient() {
    let observation_end = |token: u32| (20 + (token / 23 + 1) * 23).min(701);
    let until: Vec<_> = std::iter::repeat_n(701, 20)
        .chain((0..681).map(observation_end))
        .collect();
    let visibility = Visibility::tree(&gpu(), &until);
    for per_block in [8, 32] {
        let walk = visibility.by_key(per_block);
        assert!(
            walk.items > walk.blocks,
            "the test is too short to cut a walk"
        );
    }
    let heads = AttentionHeads(4, 2, 16);
    let arrays = inputs(until.len(), heads, 5);
    let upstream = Array::random(&arrays[0].shape, 6, -1.0..1.0);
    let value = reference(&arrays, &until, heads);
    let slopes = reference_gradients(&arrays, &upstream, &until, heads);
    let gpu = gpu();
    with_each_variant(|| {
        let leaves = arrays.each_ref().map(|a| a.tensor(&gpu).tracked());
        let y = attend(&leaves, &visibility, heads);
        assert_close(
            "value",
            &y.to_vec().unwrap(),
            &value.values,
            TOLERANCE.value,
        );
        let gradients = y.mul(&upstream.tensor(&gpu)).sum().backward();
        for (name, (leaf, wanted)) in ["q", "k", "v"].iter().zip(leaves.iter().zip(&slopes)) {
            let got = gradients.get(leaf).unwrap().to_vec().unwrap();
            assert_close(name, &got, &wanted.values, TOLERANCE.gradient);
        }
    });
}

/// The formulas in the docs of attention.rs.
fn reference_gradients(
    a: &[Array; 3],
    dy: &Array,
    until: &[u32],
    heads: AttentionHeads,
) -> [Array; 3] {
    let AttentionHeads(count, kv_heads, size) = heads;
    let y = reference(a, until, heads);
    let mut d = a.each_ref().map(|x| x.map(|_| 0.0));
    let root = (size as f64).sqrt();
    for query in 0..until.len() {
        for head in 0..count {
            let (own, shared) = (head * size, head / (count / kv_heads) * size);
            let dot = |b: &Array, key: usize, by: &Array, at: usize| -> f64 {
                (0..size)
                    .map(|c| by.at(query, own + c) * b.at(key, at + c))
                    .sum()
            };
            let exps: Vec<_> = visible(until, query)
                .map(|key| (key, (dot(&a[1], key, &a[0], shared) / root).exp()))
                .collect();
            let total: f64 = exps.iter().map(|(_, e)| e).sum();
            let delta = dot(&y, query, dy, own);
            for (key, e) in exps {
                let p = e / total;
                let s = p * (dot(&a[2], key, dy, shared) - delta) / root;
                for c in 0..size {
                    let (i, j) = (
                        query * count * size + own + c,
                        key * kv_heads * size + shared + c,
                    );
                    d[0].values[i] += s * a[1].values[j];
                    d[1].values[j] += s * a[0].values[i];
                    d[2].values[j] += p * dy.values[i];
                }
            }
        }
    }
    d
}

#[test]
fn a_token_alone_gets_its_own_value() {
    let gpu = gpu();
    let [q, k, v] = inputs(1, AttentionHeads(3, 3, 20), 1).map(|a| a.tensor(&gpu));
    let y = q.attention(&k, &v, &Visibility::tree(&gpu, &[1]), 3, 3);
    assert_eq!(y.to_vec().unwrap(), v.to_vec().unwrap());
}

/// Numbers from PyTorch, in f64.
#[test]
fn agrees_with_pytorch() {
    let text = include_str!("../../../../fixtures/golden/tree_attention.json");
    let golden: serde_json::Value = serde_json::from_str(text).unwrap();
    let gpu = gpu();
    for case in golden["cases"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let list = |key: &str| numbers(&case[key]);
        let heads = AttentionHeads(number("heads"), number("kv_heads"), number("head_dim"));
        let until: Vec<_> = list("visible_until").iter().map(|v| *v as u32).collect();
        let array = |key: &str| {
            let values = list(key);
            Array {
                shape: vec![until.len(), values.len() / until.len()],
                values,
            }
        };
        let check = || {
            let leaves = ["q", "k", "v"].map(|key| array(key).tensor(&gpu).tracked());
            let y = attend(&leaves, &Visibility::tree(&gpu, &until), heads);
            assert_close("out", &y.to_vec().unwrap(), &list("out"), TOLERANCE.value);
            let gradients = y.mul(&array("dout").tensor(&gpu)).sum().backward();
            for (key, leaf) in ["dq", "dk", "dv"].iter().zip(&leaves) {
                let got = gradients.get(leaf).unwrap().to_vec().unwrap();
                assert_close(key, &got, &list(key), TOLERANCE.gradient);
            }
        };
        with_each_variant(check);
    }
}

/// Large heads, which drivers do not unroll, with scores that are far apart.
#[test]
fn wide_heads_and_large_scores() {
    for (heads, rows) in [
        (AttentionHeads(2, 1, 128), 40),
        (AttentionHeads(1, 1, 256), 20),
    ] {
        let until = forest(rows, 3);
        let visibility = Visibility::tree(&gpu(), &until);
        let mut arrays = inputs(rows, heads, 4);
        arrays[0] = arrays[0].map(|v| 6.0 * v);
        // Scores of about ±60 have errors of 60 · 6e-8 · √256.
        let tolerance = Tolerance {
            value: 1e-4,
            gradient: 2e-4,
            least: LEAST,
        };
        let op = |t: &[Tensor]| attend(t, &visibility, heads);
        check(&op, &|a| reference(a, &until, heads), &arrays, tolerance);
    }
}

#[test]
#[should_panic(expected = "Visibility::ranges has no gradient")]
fn a_gradient_over_ranges_is_refused() {
    let gpu = gpu();
    let x = Tensor::zeros(&gpu, &[1, 4]);
    x.tracked()
        .attention(&x, &x, &Visibility::ranges(&gpu, &[vec![(0, 1)]]), 1, 1);
}

#[test]
#[should_panic(expected = "a head of 6 channels, wanted a multiple of 4 up to 256")]
fn a_head_size_without_a_kernel_is_refused() {
    let gpu = gpu();
    let x = Tensor::zeros(&gpu, &[1, 6]);
    x.attention(&x, &x, &Visibility::tree(&gpu, &[1]), 1, 1);
}

#[test]
#[should_panic(expected = "1 queries and 1 keys, the visibility is for 2 and at least 2")]
fn a_visibility_of_another_length_is_refused() {
    let gpu = gpu();
    let x = Tensor::zeros(&gpu, &[1, 4]);
    x.attention(&x, &x, &Visibility::tree(&gpu, &[2, 2]), 1, 1);
}
