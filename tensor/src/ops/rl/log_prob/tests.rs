use proptest::prelude::*;

use super::*;
use crate::check::reference::{
    LOG_PROB as TOLERANCE, TokenQuery, cut, log_prob as reference, log_prob_inputs,
};
use crate::ops::weight::{Weight, WeightFormat};
use crate::testing::{Array, assert_agree, assert_close, bits, check, check_value, gpu, narrow};

fn frozen(weight: &Array) -> Matrix {
    Matrix::Frozen(Weight::from_f32(
        &gpu(),
        &weight.to_f32(),
        weight.shape[0],
        weight.shape[1],
        WeightFormat::F32,
    ))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn values_and_gradients_agree_with_the_reference(
        rows in prop::sample::select(vec![1usize, 2, 7, 17]),
        vocabulary in prop::sample::select(vec![2usize, 63, 64, 65, 300]),
        width in prop::sample::select(vec![1usize, 8, 13, 40]),
        rank in prop::sample::select(vec![1usize, 4]),
        pairs in 1usize..40,
        chunk in prop::sample::select(vec![1usize, 2, 100]),
        temperature in prop::sample::select(vec![1.0f32, 0.6]),
        is_free: bool,
        seed: u64,
    ) {
        let [hidden, weight, a, b] = log_prob_inputs(rows, vocabulary, width, rank, seed);
        let question = TokenQuery::random(pairs, rows, vocabulary, temperature, seed);
        let question = if is_free { question } else { question.restricted(vocabulary, seed) };
        let cut = cut(rows, chunk);

        // All weights trained.
        let trained = |t: &[Tensor]| question.head(Matrix::Trained(t[1].clone()), Some((&t[2], &t[3])));
        let all = [hidden.clone(), weight.clone(), a.clone(), b.clone()];
        check(&|t| question.log_probs(&t[0], &trained(t), cut).log_probs, &|x| reference(x, &question)[0].clone(), &all, TOLERANCE);
        check_value(&|t| question.log_probs(&t[0], &trained(t), cut).entropy, &|x| reference(x, &question)[1].clone(), &all, TOLERANCE);

        // An adapter on a frozen weight.
        let head = |t: &[Tensor]| question.head(frozen(&weight), Some((&t[1], &t[2])));
        let with_weight = |x: &[Array]| [x[0].clone(), weight.clone(), x[1].clone(), x[2].clone()];
        let adapter = [hidden.clone(), a, b];
        check(&|t| question.log_probs(&t[0], &head(t), cut).log_probs, &|x| reference(&with_weight(x), &question)[0].clone(), &adapter, TOLERANCE);

        // A frozen head.
        let with_weight = |x: &[Array]| [x[0].clone(), weight.clone()];
        let op = |t: &[Tensor]| question.log_probs(&t[0], &question.head(frozen(&weight), None), cut).log_probs;
        check(&op, &|x| reference(&with_weight(x), &question)[0].clone(), &[hidden], TOLERANCE);
    }

    /// Rollout and update use different rows in different batches, and must get the same bits.
    #[test]
    fn the_bits_of_a_log_prob_depend_on_its_row_alone(
        rows in 2usize..40,
        vocabulary in prop::sample::select(vec![5usize, 64, 65, 300]),
        width in prop::sample::select(vec![7usize, 32]),
        is_free: bool,
        seed: u64,
    ) {
        let [hidden, weight, a, b] = log_prob_inputs(rows, vocabulary, width, 4, seed);
        let question = TokenQuery::random(3 * rows, rows, vocabulary, 0.8, seed);
        let question = if is_free { question } else { question.restricted(vocabulary, seed) };
        let (a, b) = (a.tensor(&gpu()), b.tensor(&gpu()));
        let head = question.head(frozen(&weight), Some((&a, &b)));
        let together = question.log_probs(&hidden.tensor(&gpu()), &head, cut(rows, 1));
        let (log_probs, entropy) = (bits(&together.log_probs), bits(&together.entropy));
        for pair in [0, rows, 3 * rows - 1] {
            let row = question.rows[pair] as usize;
            let alone = Array { shape: vec![1, width], values: hidden.values[row * width..(row + 1) * width].to_vec() };
            let allowed = question.allowed.get(pair).cloned().into_iter().collect();
            let one = TokenQuery { rows: vec![0], targets: vec![question.targets[pair]], allowed, ..question.clone() };
            let alone = one.log_probs(&alone.tensor(&gpu()), &head, cut(1, 100));
            prop_assert_eq!(bits(&alone.log_probs)[0], log_probs[pair]);
            prop_assert_eq!(bits(&alone.entropy)[0], entropy[pair]);
        }
    }
}

/// A vocabulary of several blocks and chunks of the default size.
#[test]
fn chunks_of_a_large_vocabulary_change_no_bit_and_gradients_only_by_rounding() {
    let (rows, vocabulary) = (3, 5000);
    let arrays = log_prob_inputs(rows, vocabulary, 8, 2, 5);
    let question = TokenQuery::random(10, rows, vocabulary, 1.0, 6);
    let results = [CUT.budget, 4 * rows * CUT.block].map(|budget| {
        let leaves = arrays.clone().map(|array| array.tensor(&gpu()).tracked());
        let [hidden, weight, a, b] = &leaves;
        let head = question.head(Matrix::Trained(weight.clone()), Some((a, b)));
        let result = question.log_probs(hidden, &head, VocabularyCut { budget, ..CUT });
        let entropy = result.entropy.to_vec().unwrap();
        let gradients = result.log_probs.sum().backward();
        let gradients = leaves.map(|leaf| gradients.get(&leaf).unwrap().to_vec().unwrap());
        (result.log_probs.to_vec().unwrap(), entropy, gradients)
    });
    let [whole, chunked] = results;
    let [log_probs, entropy] = reference(&arrays, &question);
    assert_close("log-probs", &whole.0, &log_probs.values, TOLERANCE.value);
    assert_close("entropy", &whole.1, &entropy.values, TOLERANCE.value);
    assert_eq!((whole.0, whole.1), (chunked.0, chunked.1));
    for (whole, chunked) in whole.2.iter().zip(&chunked.2) {
        assert_agree("gradient", chunked, whole, TOLERANCE.gradient);
    }
}

/// A binding of 64 KiB holds a block of 64 logits for 256 rows, so 600 rows are processed in parts; some rows occur in several.
#[test]
fn rows_that_exceed_a_binding_go_by_in_parts() {
    let narrow = narrow(64 << 10);
    let (rows, vocabulary, width, rank) = (600, 150, 8, 4);
    let arrays = log_prob_inputs(rows, vocabulary, width, rank, 21);
    let mut question = TokenQuery::random(700, rows, vocabulary, 0.9, 22);
    for (row, asked) in (0..).zip(question.rows.iter_mut().take(rows)) {
        *asked = (row * 7) % rows as u32;
    }
    let cut = cut(rows, 1);
    assert_eq!(cut.most_rows(&narrow, vocabulary), 256);
    let upstream = Array::random(&[700], 23, -1.0..1.0);
    let results = [gpu(), narrow].map(|gpu| {
        let leaves = arrays.clone().map(|array| array.tensor(&gpu).tracked());
        let [hidden, weight, a, b] = &leaves;
        let head = question.head(Matrix::Trained(weight.clone()), Some((a, b)));
        let result = question.log_probs(hidden, &head, cut);
        let values = (bits(&result.log_probs), bits(&result.entropy));
        let gradients = result
            .log_probs
            .mul(&upstream.tensor(&gpu))
            .sum()
            .backward();
        let gradients = leaves.map(|leaf| gradients.get(&leaf).unwrap().to_vec().unwrap());
        (values, gradients)
    });
    let [whole, parts] = results;
    assert!(whole.0 == parts.0, "other bits in parts");
    for (whole, parts) in whole.1.iter().zip(&parts.1) {
        assert_agree("gradient", parts, whole, TOLERANCE.gradient);
    }
}

#[test]
fn the_probabilities_of_all_tokens_sum_to_one() {
    let [hidden, weight, ..] = log_prob_inputs(1, 100, 16, 1, 8);
    let question = TokenQuery {
        rows: vec![0; 100],
        targets: (0..100).collect(),
        temperature: 0.5,
        scale: 1.0,
        ..TokenQuery::default()
    };
    let result = question.log_probs(
        &hidden.tensor(&gpu()),
        &question.head(frozen(&weight), None),
        CUT,
    );
    let sum: f64 = result
        .log_probs
        .to_vec()
        .unwrap()
        .iter()
        .map(|l| f64::from(*l).exp())
        .sum();
    // A hundred errors of about 1e-6 with random signs, each times a probability.
    assert!((sum - 1.0).abs() < 2e-6, "{sum}");
}

#[test]
fn logits_are_those_that_log_probs_come_from() {
    let arrays = log_prob_inputs(3, 70, 16, 2, 9);
    let [hidden, weight, a, b] = &arrays;
    let question = TokenQuery::random(5, 3, 70, 1.0, 9);
    let (a, b) = (a.tensor(&gpu()), b.tensor(&gpu()));
    let head = question.head(frozen(weight), Some((&a, &b)));
    let logits = hidden.tensor(&gpu()).logits(&head);
    assert_eq!(logits.shape(), [3, 70]);
    let logits = logits.to_vec().unwrap();
    let [wanted, _] = reference(&arrays, &question);
    let got: Vec<f32> = question
        .rows
        .iter()
        .zip(&question.targets)
        .map(|(row, target)| {
            let row = &logits[*row as usize * 70..][..70];
            row[*target as usize] - row.iter().map(|z| z.exp()).sum::<f32>().ln()
        })
        .collect();
    assert_close("log-probs", &got, &wanted.values, TOLERANCE.value);
}

#[test]
#[should_panic(expected = "log_probs: token 70 of 70")]
fn a_token_beyond_the_vocabulary_is_refused() {
    let [hidden, weight, ..] = log_prob_inputs(3, 70, 16, 2, 9);
    let question = TokenQuery {
        rows: vec![0],
        targets: vec![70],
        temperature: 1.0,
        scale: 1.0,
        ..TokenQuery::default()
    };
    question.log_probs(
        &hidden.tensor(&gpu()),
        &question.head(frozen(&weight), None),
        CUT,
    );
}

#[test]
#[should_panic(expected = "log_probs: row 3 of 3")]
fn a_row_that_does_not_exist_is_refused() {
    let [hidden, weight, ..] = log_prob_inputs(3, 70, 16, 2, 9);
    let question = TokenQuery {
        rows: vec![3],
        targets: vec![0],
        temperature: 1.0,
        scale: 1.0,
        ..TokenQuery::default()
    };
    question.log_probs(
        &hidden.tensor(&gpu()),
        &question.head(frozen(&weight), None),
        CUT,
    );
}

#[test]
fn a_forced_token_is_certain_and_forbidden_ones_have_no_gradient() {
    let (rows, vocabulary) = (2, 5000);
    let [hidden, weight, ..] = log_prob_inputs(rows, vocabulary, 8, 2, 5);
    let question = TokenQuery {
        rows: vec![0, 1, 1],
        targets: vec![4321, 70, 2500],
        allowed: vec![[4321].into(), [70, 2500].into(), [70, 2500].into()],
        temperature: 0.7,
        scale: 1.0,
    };
    let [hidden, weight] = [hidden, weight].map(|array| array.tensor(&gpu()).tracked());
    let head = question.head(Matrix::Trained(weight.clone()), None);
    let result = question.log_probs(&hidden, &head, CUT);
    let entropy = result.entropy.to_vec().unwrap();
    let log_probs = result.log_probs.to_vec().unwrap();
    assert_eq!(log_probs[0], 0.0);
    // A driver may fuse the scaling of a logit with the subtraction of the largest, which then leaves a rounding error.
    assert!(entropy[0].abs() < 1e-6, "{}", entropy[0]);
    let sum = log_probs[1].exp() + log_probs[2].exp();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    let upstream = Tensor::from_slice(&gpu(), &[1.0, 1.0, 0.0], &[3]);
    let gradients = result.log_probs.mul(&upstream).sum().backward();
    let of_hidden = gradients.get(&hidden).unwrap().to_vec().unwrap();
    assert!(of_hidden[..8].iter().all(|g| *g == 0.0), "{of_hidden:?}");
    let of_weight = gradients.get(&weight).unwrap().to_vec().unwrap();
    for (token, row) in of_weight.chunks(8).enumerate() {
        let moves = row.iter().any(|g| *g != 0.0);
        assert_eq!(moves, [70, 2500].contains(&token), "{token}: {row:?}");
    }
}
