use proptest::prelude::*;

use super::*;
use crate::check::reference::{gumbel, philox};
use crate::ops::weight::Matrix;
use crate::testing::{Array, gpu};

/// A head with these logits for the hidden row [1].
fn head(logits: &[f64]) -> LmHead {
    let weight = Array {
        shape: vec![logits.len(), 1],
        values: logits.to_vec(),
    };
    LmHead {
        weight: Matrix::Trained(weight.tensor(&gpu())),
        lora: None,
    }
}

fn keys(count: usize) -> Vec<[u32; 2]> {
    (0..count as u32).map(|i| [i, 0x1a9]).collect()
}

/// Draws from the hidden row [1], one for each key.
fn draw(logits: &[f64], keys: &[[u32; 2]], temperature: f32, cut: VocabularyCut) -> Vec<u32> {
    let one = Tensor::from_slice(&gpu(), &[1.0], &[1, 1]);
    let rows = Indices::new(&gpu(), &vec![0; keys.len()]);
    one.draw_cut(&head(logits), &rows, keys, temperature, cut)
        .tokens
        .to_vec()
        .unwrap()
}

fn probabilities(logits: &[f64], temperature: f64) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::MIN, f64::max);
    let weights: Vec<f64> = logits
        .iter()
        .map(|z| ((z - largest) / temperature).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

fn chi_square(counts: &[f64], expected: &[f64]) -> f64 {
    counts
        .iter()
        .zip(expected)
        .map(|(c, e)| (c - e) * (c - e) / e)
        .sum()
}

/// The test vectors of Random123, the library of the authors (tests/kat_vectors).
#[test]
fn the_reference_generator_gives_the_published_words() {
    assert_eq!(
        philox([0; 4], [0; 2]),
        [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
    );
    assert_eq!(
        philox([u32::MAX; 4], [u32::MAX; 2]),
        [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
    );
    let digits_of_pi = philox(
        [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
        [0xa409_3822, 0x299f_31d0],
    );
    assert_eq!(
        digits_of_pi,
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Checks the generator on the device: a wrong token would miss the best score by about 1.
    #[test]
    fn every_draw_is_the_best_by_the_reference(
        vocabulary in prop::sample::select(vec![2usize, 63, 64, 65, 259, 1000]),
        chunk in prop::sample::select(vec![1usize, 3, 100]),
        temperature in prop::sample::select(vec![1.0f32, 0.7, 1.5]),
        seed: u64,
    ) {
        let logits = Array::random(&[vocabulary], seed, -2.0..2.0).values;
        let keys: Vec<[u32; 2]> = (0..60u32).map(|i| [i.wrapping_mul(seed as u32 | 1), (seed >> 32) as u32]).collect();
        let tokens = draw(&logits, &keys, temperature, VocabularyCut { block: 64, budget: 4 * 64 * chunk });
        for (key, token) in keys.iter().zip(tokens) {
            let score = |v: usize| logits[v] / f64::from(temperature) + gumbel(*key, v);
            let best = (0..vocabulary).map(score).fold(f64::MIN, f64::max);
            // The error of f32 noise is about 1e-6, at most 1e-4 where the logarithm of WGSL has that error.
            prop_assert!(best - score(token as usize) < 1e-3, "key {key:?} token {token}");
        }
    }

    #[test]
    fn a_draw_depends_on_its_key_and_row_alone(
        vocabulary in prop::sample::select(vec![5usize, 64, 65, 300]),
        rows in 1usize..20,
        seed: u64,
    ) {
        let weight = Array::random(&[vocabulary, 8], seed, -1.0..1.0).tensor(&gpu());
        let head = LmHead { weight: Matrix::Trained(weight), lora: None };
        let hidden = Array::random(&[rows, 8], seed ^ 1, -2.0..2.0);
        let keys = keys(3 * rows);
        let asked: Vec<u32> = (0..3 * rows as u32).map(|i| i % rows as u32).collect();
        let together = hidden.tensor(&gpu()).draw(&head, &Indices::new(&gpu(), &asked), &keys, 0.9);
        let (tokens, log_probs) = (together.tokens.to_vec().unwrap(), together.log_probs.to_vec().unwrap());
        for i in [0, rows, 3 * rows - 1] {
            let row = asked[i] as usize;
            let alone = Array { shape: vec![1, 8], values: hidden.values[8 * row..8 * (row + 1)].to_vec() };
            let cut = VocabularyCut { block: 64, budget: 1 };
            let alone = alone.tensor(&gpu()).draw_cut(&head, &Indices::new(&gpu(), &[0]), &keys[i..=i], 0.9, cut);
            prop_assert_eq!(alone.tokens.to_vec().unwrap()[0], tokens[i]);
            // Different blocks: equal up to rounding.
            prop_assert!((alone.log_probs.to_vec().unwrap()[0] - log_probs[i]).abs() < 1e-5);
        }
        // One read returns the same values as three.
        let read = together.read().unwrap();
        prop_assert_eq!(read.iter().map(|draw| draw.token).collect::<Vec<_>>(), tokens);
        prop_assert_eq!(read.iter().map(|draw| draw.log_prob).collect::<Vec<_>>(), &log_probs[..]);
        let entropy = together.entropy.to_vec().unwrap();
        prop_assert_eq!(read.iter().map(|draw| draw.entropy).collect::<Vec<_>>(), entropy);
        // The stored log-probs equal those of the update.
        let again = hidden.tensor(&gpu()).log_probs(&head, &Indices::new(&gpu(), &asked), &together.tokens, &[], 0.9);
        prop_assert_eq!(again.log_probs.to_vec().unwrap(), log_probs);
        prop_assert_eq!(again.entropy.to_vec().unwrap(), together.entropy.to_vec().unwrap());
    }
}

/// Also at extreme temperatures, and among pairs of the same row with other sets.
#[test]
fn a_head_of_some_tokens_draws_only_these() {
    let logits = Array::random(&[5000], 7, -2.0..2.0).values;
    let sets: [&[u32]; 4] = [&[17], &[2, 4999], &[63, 64, 2047, 2048], &[]];
    let one = Tensor::from_slice(&gpu(), &[1.0], &[1, 1]);
    let (head, keys, rows) = (head(&logits), keys(100), Indices::new(&gpu(), &[0; 100]));
    for temperature in [0.0, 1e-3, 1.0, 1e3] {
        let (mut tokens, mut allowed, mut log_probs) = (Vec::new(), Vec::new(), Vec::new());
        for set in sets {
            let only = head.only(&Indices::new(&gpu(), set));
            let head = if set.is_empty() { &head } else { &only };
            for draw in one.draw(head, &rows, &keys, temperature).read().unwrap() {
                tokens.push(*set.get(draw.token as usize).unwrap_or(&draw.token));
                allowed.push(set.into());
                log_probs.push(draw.log_prob);
                assert!(draw.log_prob > if temperature == 1e3 { -9.0 } else { -100.0 });
                assert!(draw.entropy.is_finite());
                // The entropy may have a rounding error, as in the tests of log-probs.
                assert!(set.len() != 1 || draw.log_prob == 0.0 && draw.entropy.abs() < 1e-6);
            }
        }
        let scale = if temperature == 0.0 { 1.0 } else { temperature };
        let [rows, targets] = [&[0; 400][..], &tokens].map(|ids| Indices::new(&gpu(), ids));
        let again = one.log_probs(&head, &rows, &targets, &allowed, scale);
        assert_eq!(again.log_probs.to_vec().unwrap(), log_probs);
        if temperature == 1.0 {
            assert!(
                [2, 4999]
                    .iter()
                    .all(|token| tokens[100..200].contains(token))
            );
        }
    }
}

/// The keys are consecutive, as in a rollout, and fixed. One of a million samples of chi-square with 19 degrees of freedom
/// exceeds the bound.
#[test]
fn frequencies_follow_softmax() {
    let logits = Array::random(&[20], 3, -2.0..2.0).values;
    for temperature in [1.0, 0.5] {
        let mut counts = vec![0.0; 20];
        for token in draw(&logits, &keys(20_000), temperature as f32, CUT) {
            counts[token as usize] += 1.0;
        }
        let expected: Vec<f64> = probabilities(&logits, temperature)
            .iter()
            .map(|p| p * 20_000.0)
            .collect();
        let distance = chi_square(&counts, &expected);
        assert!(distance < 65.0, "temperature {temperature}: {distance}");
    }
}

/// With many equal tokens the maximum is far in the tail of the noise. Coarse noise would prefer low ids, which win ties.
/// There are a hundred bins of forty expected draws; one of a million samples of chi-square with 99 degrees of freedom
/// exceeds 178.
#[test]
fn the_tail_of_the_noise_favours_nobody() {
    let mut counts = vec![0.0; 100];
    for token in draw(&[0.5; 3000], &keys(4000), 1.0, CUT) {
        counts[token as usize / 30] += 1.0;
    }
    let distance = chi_square(&counts, &[40.0; 100]);
    assert!(distance < 178.0, "{distance}");
}

#[test]
fn temperature_zero_takes_the_likeliest_and_of_equals_the_first() {
    let mut logits = Array::random(&[5000], 4, -2.0..2.0).values;
    for token in [4999, 3000, 2999, 70] {
        logits[token] = 3.0;
        for block in [64, 2048] {
            assert_eq!(
                draw(&logits, &keys(3), 0.0, VocabularyCut { block, budget: 1 }),
                [token as u32; 3]
            );
        }
    }
}

/// A token 50 nats below has a probability of e^-50; noise of 32 bits is at most 26.
#[test]
fn an_impossible_token_is_never_drawn() {
    for low in [-50.0, -1e9] {
        let logits: Vec<f64> = (0..300)
            .map(|v| if v % 100 == 7 { 1.0 } else { low })
            .collect();
        let tokens = draw(&logits, &keys(2000), 1.0, CUT);
        assert!(tokens.iter().all(|token| token % 100 == 7));
        assert!([7, 107, 207].iter().all(|wanted| tokens.contains(wanted)));
    }
}

#[test]
fn logits_that_are_not_numbers_give_a_valid_token_and_show_in_the_log_prob() {
    let nan = Tensor::from_slice(&gpu(), &[f32::NAN], &[1, 1]);
    let rows = Indices::new(&gpu(), &[0]);
    for block in [64, 2048] {
        let drawn = nan.draw_cut(
            &head(&[0.1; 100]),
            &rows,
            &keys(1),
            1.0,
            VocabularyCut { block, budget: 1 },
        );
        assert!(drawn.tokens.to_vec().unwrap()[0] < 100);
        assert!(drawn.log_probs.to_vec().unwrap()[0].is_nan());
    }
}

#[test]
#[should_panic(expected = "draw: 1 rows and 2 keys")]
fn a_key_for_each_row_is_demanded() {
    let one = Tensor::from_slice(&gpu(), &[1.0], &[1, 1]);
    one.draw(&head(&[0.0; 3]), &Indices::new(&gpu(), &[0]), &keys(2), 1.0);
}
