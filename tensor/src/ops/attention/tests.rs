use super::*;
use crate::Indices;
use crate::testing::{Array, Tolerance, assert_close, check, gpu};
use proptest::prelude::*;

/// Sums of up to 100 products and of up to 256 channels, exponentials good to 1e-6: some tens of roundings of 6e-8. A
/// gradient adds differences p (dy·v - dy·y), which cancel; in a small tree all of them may.
const TOLERANCE: Tolerance = Tolerance {
    value: 5e-6,
    gradient: 1e-4,
};

/// The heads of one case: (heads, key heads, channels).
#[derive(Debug, Clone, Copy)]
struct Heads(usize, usize, usize);

/// Few, because each is compiled anew: alone, grouped, in an odd group, and sizes that are not powers of two.
fn any_heads() -> impl Strategy<Value = Heads> {
    prop_oneof![
        Just(Heads(1, 1, 4)),
        Just(Heads(4, 2, 16)),
        Just(Heads(3, 3, 20)),
        Just(Heads(7, 1, 8)),
        Just(Heads(2, 1, 64)),
    ]
}

/// A forest of `count` tokens, decided by the seed. A small one is a tree, or each token might see itself alone and the
/// gradients vanish.
fn forest(count: usize, seed: u64) -> Vec<u32> {
    fn grow(until: &mut [u32], from: usize, to: usize, draw: &mut impl FnMut(usize) -> usize) {
        let mut first = from;
        while first < to {
            let size = 1 + draw(to - first);
            let own = 1 + draw(size);
            until[first..first + own].fill((first + size) as u32);
            grow(until, first + own, first + size, draw);
            first += size;
        }
    }
    let numbers = Array::random(&[4 * count], seed, 0.0..1.0).values;
    let mut numbers = numbers.into_iter().cycle();
    let mut draw = |below: usize| (numbers.next().unwrap() * below as f64) as usize;
    let mut until = vec![0; count];
    if count < 8 {
        until[0] = count as u32;
        grow(&mut until, 1, count, &mut draw);
    } else {
        grow(&mut until, 0, count, &mut draw);
    }
    until
}

/// Queries, keys and values.
fn inputs(rows: usize, Heads(heads, kv_heads, size): Heads, seed: u64) -> [Array; 3] {
    [(0, heads), (1, kv_heads), (2, kv_heads)]
        .map(|(i, h)| Array::random(&[rows, h * size], seed ^ i, -1.5..1.5))
}

fn visible(until: &[u32], query: usize) -> impl Iterator<Item = usize> {
    (0..=query).filter(move |key| query < until[*key] as usize)
}

fn reference(a: &[Array], until: &[u32], Heads(heads, kv_heads, size): Heads) -> Array {
    let mut y = Array {
        shape: a[0].shape.clone(),
        values: vec![0.0; a[0].values.len()],
    };
    for query in 0..until.len() {
        for head in 0..heads {
            let (own, shared) = (head * size, head / (heads / kv_heads) * size);
            let score = |key: usize| -> f64 {
                let products =
                    (0..size).map(|c| a[0].at(query, own + c) * a[1].at(key, shared + c));
                products.sum::<f64>() / (size as f64).sqrt()
            };
            let scores: Vec<_> = visible(until, query).map(|key| (key, score(key))).collect();
            let total: f64 = scores.iter().map(|(_, score)| score.exp()).sum();
            for (key, score) in scores {
                for c in 0..size {
                    y.values[(query * heads * size) + own + c] +=
                        score.exp() / total * a[2].at(key, shared + c);
                }
            }
        }
    }
    y
}

fn attend(t: &[Tensor], visible: &Visibility, heads: Heads) -> Tensor {
    t[0].attention(&t[1], &t[2], visible, heads.0, heads.1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_reference(
        rows in prop_oneof![Just(7usize), Just(8), Just(9), Just(33), 5usize..60], heads in any_heads(), seed: u64,
    ) {
        let until = forest(rows, seed);
        let visibility = Visibility::tree(&gpu(), &until);
        check(&|t| attend(t, &visibility, heads), &|a| reference(a, &until, heads), &inputs(rows, heads, seed), TOLERANCE);
    }

    /// A loss on each token, once in the packed tree and once with each token's path as a sequence of its own.
    #[test]
    fn the_packed_tree_is_the_same_as_separate_sequences(rows in 2usize..50, heads in any_heads(), seed: u64) {
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
            let path: Vec<_> = visible(&until, query).map(|key| key as u32).collect();
            let own = Indices::new(&gpu, &[path.len() as u32 - 1]);
            let chain = Visibility::tree(&gpu, &vec![path.len() as u32; path.len()]);
            let path = Indices::new(&gpu, &path);
            let sequence = leaves.each_ref().map(|leaf| leaf.gather_rows(&path));
            let last = attend(&sequence, &chain, heads).gather_rows(&own);
            separate_values.extend(last.to_vec().unwrap().into_iter().map(f64::from));
            let weight = upstream.gather_rows(&Indices::new(&gpu, &[query as u32]));
            loss = loss.add(&last.mul(&weight).sum());
        }
        assert_close("value", &packed_values, &separate_values, TOLERANCE.value);
        let separate = loss.backward();
        for (name, leaf) in ["q", "k", "v"].iter().zip(&leaves) {
            let wanted: Vec<_> = separate.get(leaf).unwrap().to_vec().unwrap().into_iter().map(f64::from).collect();
            assert_close(name, &gradients.get(leaf).unwrap().to_vec().unwrap(), &wanted, 1e-4);
        }
    }

    /// The keys lie in runs at scattered rows of a large arena that is NaN elsewhere; only some of the queries decode.
    #[test]
    fn decoding_from_an_arena_gives_the_bits_of_the_packed_tree(
        rows in 2usize..60, heads in any_heads(), run in 1usize..6, keep in 1usize..4, seed: u64,
    ) {
        let gpu = gpu();
        let until = forest(rows, seed);
        let [q, k, v] = inputs(rows, heads, seed).map(|a| a.tensor(&gpu));
        let packed = attend(&[q.clone(), k.clone(), v.clone()], &Visibility::tree(&gpu, &until), heads);
        let packed = packed.to_vec().unwrap();

        // Runs of `run` rows in reverse order with gaps between.
        let runs = rows.div_ceil(run);
        let place = |key: usize| ((runs - 1 - key / run) * (run + 2) + key % run) as u32;
        let places = Indices::new(&gpu, &(0..rows).map(place).collect::<Vec<_>>());
        let [keys, values] = [k, v].map(|rows| {
            let arena = Tensor::full(&gpu, &[runs * (run + 2), rows.cols()], f32::NAN);
            arena.write_rows(&places, &rows);
            arena
        });
        let queries: Vec<_> = (0..rows).rev().step_by(keep).collect();
        let ranges: Vec<Vec<_>> = queries
            .iter()
            .map(|query| visible(&until, *query).map(|key| (place(key), place(key) + 1)).collect())
            .collect();
        let chosen = q.gather_rows(&Indices::new(&gpu, &queries.iter().map(|i| *i as u32).collect::<Vec<_>>()));
        let decoded = attend(&[chosen, keys, values], &Visibility::ranges(&gpu, &ranges), heads).to_vec().unwrap();
        let width = heads.0 * heads.2;
        for (at, query) in queries.iter().enumerate() {
            let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(
                bits(&decoded[at * width..(at + 1) * width]), bits(&packed[query * width..(query + 1) * width]),
                "query {}", query
            );
        }
    }
}

/// Long enough that the walks over the rules are cut and added up again.
#[test]
fn a_rules_text_that_hundreds_of_tokens_see_gets_the_right_gradient() {
    let mut until = vec![701; 20];
    until.extend(
        (0..681)
            .map(|i| 20 + (i / 23 + 1) * 23)
            .map(|end: u32| end.min(701)),
    );
    let heads = Heads(2, 1, 8);
    let visibility = Visibility::tree(&gpu(), &until);
    let walk = visibility.by_key(8);
    assert!(
        walk.items > walk.blocks,
        "the test is too short to cut a walk"
    );
    // A sum of 700 slopes of both signs.
    let tolerance = Tolerance {
        value: 5e-6,
        gradient: 1e-4,
    };
    let gpu = gpu();
    let arrays = inputs(until.len(), heads, 5);
    let leaves = arrays.each_ref().map(|a| a.tensor(&gpu).tracked());
    let upstream = Array::random(&arrays[0].shape, 6, -1.0..1.0);
    let y = attend(&leaves, &visibility, heads);
    let wanted = reference(&arrays, &until, heads);
    assert_close(
        "value",
        &y.to_vec().unwrap(),
        &wanted.values,
        tolerance.value,
    );
    let gradients = y.mul(&upstream.tensor(&gpu)).sum().backward();
    let wanted = reference_gradients(&arrays, &upstream, &until, heads);
    for (name, (leaf, wanted)) in ["q", "k", "v"].iter().zip(leaves.iter().zip(wanted)) {
        let got = gradients.get(leaf).unwrap().to_vec().unwrap();
        assert_close(name, &got, &wanted.values, tolerance.gradient);
    }
}

/// The formulas at the head of attention.rs.
fn reference_gradients(a: &[Array; 3], dy: &Array, until: &[u32], heads: Heads) -> [Array; 3] {
    let Heads(count, kv_heads, size) = heads;
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
    let [q, k, v] = inputs(1, Heads(3, 3, 20), 1).map(|a| a.tensor(&gpu));
    let y = q.attention(&k, &v, &Visibility::tree(&gpu, &[1]), 3, 3);
    assert_eq!(y.to_vec().unwrap(), v.to_vec().unwrap());
}

/// PyTorch's numbers, in f64.
#[test]
fn agrees_with_pytorch() {
    let text = include_str!("../../../../fixtures/golden/tree_attention.json");
    let golden: serde_json::Value = serde_json::from_str(text).unwrap();
    let gpu = gpu();
    for case in golden["cases"].as_array().unwrap() {
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let list = |key: &str| -> Vec<f64> {
            case[key]
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_f64().unwrap())
                .collect()
        };
        let heads = Heads(number("heads"), number("kv_heads"), number("head_dim"));
        let until: Vec<_> = list("visible_until").iter().map(|v| *v as u32).collect();
        let array = |key: &str| {
            let values = list(key);
            Array {
                shape: vec![until.len(), values.len() / until.len()],
                values,
            }
        };
        let leaves = ["q", "k", "v"].map(|key| array(key).tensor(&gpu).tracked());
        let y = attend(&leaves, &Visibility::tree(&gpu, &until), heads);
        assert_close("out", &y.to_vec().unwrap(), &list("out"), TOLERANCE.value);
        let gradients = y.mul(&array("dout").tensor(&gpu)).sum().backward();
        for (key, leaf) in ["dq", "dk", "dv"].iter().zip(&leaves) {
            let got = gradients.get(leaf).unwrap().to_vec().unwrap();
            assert_close(key, &got, &list(key), TOLERANCE.gradient);
        }
    }
}

/// Heads as wide as the widest models have, wider than what drivers unroll, scores far apart.
#[test]
fn wide_heads_and_large_scores() {
    for (heads, rows) in [(Heads(2, 1, 128), 40), (Heads(1, 1, 256), 20)] {
        let until = forest(rows, 3);
        let visibility = Visibility::tree(&gpu(), &until);
        let mut arrays = inputs(rows, heads, 4);
        arrays[0] = arrays[0].map(|v| 6.0 * v);
        // Scores of about ±60 differ by roundings of 60 · 6e-8 · √256.
        let tolerance = Tolerance {
            value: 1e-4,
            gradient: 2e-4,
        };
        check(
            &|t| attend(t, &visibility, heads),
            &|a| reference(a, &until, heads),
            &arrays,
            tolerance,
        );
    }
}

#[test]
#[should_panic(expected = "there is none over ranges of an arena")]
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
