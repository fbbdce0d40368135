use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::check::LEAST;
use crate::check::reference::{
    LossSettings, POLICY_LOSS as TOLERANCE, loss_tokens as tokens, policy_loss as reference,
};
use crate::testing::{Array, Tolerance, assert_close, check, check_value, gpu, numbers};

/// The ratio of the largest sum of magnitudes to the largest sum.
fn cancellation(sums: &[Vec<f64>]) -> f64 {
    let largest = |size: &dyn Fn(&Vec<f64>) -> f64| sums.iter().map(size).fold(0.0, f64::max);
    let terms = largest(&|terms| terms.iter().map(|t| t.abs()).sum());
    let results = largest(&|terms| terms.iter().sum::<f64>().abs());
    // Not a number if all are 0.
    (terms / results).max(1.0)
}

/// Tokens of one pair with ratios below, within and above the bounds, for both signs of the advantage.
fn corners(log_probs: &Array, pair: u32) -> Vec<LossToken> {
    let l = log_probs.values[pair as usize] as f32;
    let of = |old| {
        [-1.0, 0.5].map(|advantage| LossToken {
            pair,
            advantage,
            weight: 0.125,
            old,
            reference: l - 0.25,
        })
    };
    [l + 0.5, l + 0.05, l - 0.05, l - 0.5]
        .into_iter()
        .flat_map(of)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn loss_and_gradient_agree_with_the_reference(
        pairs in prop::sample::select(vec![1usize, 7, 63, 64, 65, 130]),
        count in 1usize..200,
        kl in prop::sample::select(vec![Kl::K2, Kl::K3]),
        beta in prop::sample::select(vec![0.0f32, 0.05, 1.0]),
        seed: u64,
    ) {
        let settings = LossSettings { clip: (0.2, 0.28), beta, kl };
        let log_probs = Array::random(&[pairs], seed, -3.0..-0.01);
        let mut tokens = tokens(&log_probs, count, seed, settings.clip);
        tokens.extend(corners(&log_probs, pairs as u32 / 2));
        let part = |which: usize| {
            let tokens = &tokens;
            move |a: &[Array]| Array { shape: vec![], values: vec![reference(&a[0], tokens, settings)[which]] }
        };
        let terms = |which: usize, moved: f64| -> Vec<f64> {
            let log_probs = log_probs.map(|l| l + moved);
            tokens.iter().map(|token| reference(&log_probs, &[*token], settings)[which]).collect()
        };
        let mut slopes = vec![Vec::new(); pairs];
        for ((token, up), down) in tokens.iter().zip(terms(0, 1e-5)).zip(terms(0, -1e-5)) {
            slopes[token.pair as usize].push((up - down) / 2e-5);
        }
        // k3 is the small rest of three larger terms.
        let kl_terms = tokens.iter().flat_map(|token| {
            let d = log_probs.values[token.pair as usize] - f64::from(token.reference);
            match kl {
                Kl::K2 => vec![d * d / 2.0],
                Kl::K3 => vec![(-d).exp(), -1.0, d],
            }
        });
        let kl_terms: Vec<f64> = kl_terms.collect();
        let tolerance = |which| Tolerance {
            value: TOLERANCE * cancellation(&[if which == 1 { kl_terms.clone() } else { terms(which, 0.0) }]),
            gradient: TOLERANCE * cancellation(&slopes),
            least: LEAST,
        };
        let loss = |t: &[Tensor]| t[0].policy_loss(&tokens, settings.clip, beta, kl);
        let inputs = [log_probs.clone()];
        check(&|t| loss(t).loss, &part(0), &inputs, tolerance(0));
        check_value(&|t| loss(t).kl, &part(1), &inputs, tolerance(1));
        check_value(&|t| loss(t).clip_fraction, &part(2), &inputs, tolerance(2));
    }
}

#[test]
fn an_estimator_is_read_and_written_by_its_name() {
    for (kl, name) in [(Kl::K2, "k2"), (Kl::K3, "k3")] {
        assert_eq!(serde_json::to_value(kl).unwrap(), name);
        assert_eq!(Kl::deserialize(&Value::from(name)).unwrap(), kl);
    }
    let error = |name: &str| Kl::deserialize(&Value::from(name)).unwrap_err().to_string();
    assert_eq!(
        error("k1"),
        "unknown variant `k1`, expected `k2` or `k3`: the gradient of k1 in the loss is zero on average, and k2 has \
         the gradient that k1 in the reward would have"
    );
    assert_eq!(
        error("kl"),
        "unknown variant `kl`, expected one of `k2`, `k3`"
    );
}

/// The tokens of a golden case, with the weights of its aggregation.
fn golden_tokens(case: &Value) -> Vec<LossToken> {
    let (advantages, old, reference) = (
        numbers(&case["advantages"]),
        numbers(&case["logp_old"]),
        numbers(&case["logp_ref"]),
    );
    let episodes: Vec<Vec<f64>> = case["tokens_per_step"]
        .as_array()
        .unwrap()
        .iter()
        .map(numbers)
        .collect();
    let all_steps = episodes.iter().map(Vec::len).sum::<usize>() as f64;
    let mut tokens = Vec::new();
    for (episode, steps) in episodes.iter().enumerate() {
        for length in steps {
            let weight = match case["aggregation"].as_str().unwrap() {
                "token" => 1.0 / old.len() as f64,
                "step" => 1.0 / all_steps / length,
                _ => 1.0 / episodes.len() as f64 / steps.len() as f64 / length,
            };
            for _ in 0..*length as usize {
                let i = tokens.len();
                tokens.push(LossToken {
                    pair: i as u32,
                    advantage: advantages[episode] as f32,
                    weight: weight as f32,
                    old: old[i] as f32,
                    reference: reference[i] as f32,
                });
            }
        }
    }
    tokens
}

#[test]
fn every_aggregation_and_estimator_agrees_with_pytorch() {
    let text = include_str!("../../../../../fixtures/golden/ms_grpo_loss.json");
    let golden: Value = serde_json::from_str(text).unwrap();
    // There is no k1: as a term of the loss it penalises nothing.
    let cases = golden["cases"].as_array().unwrap();
    let of = |kl: &'static str| cases.iter().filter(move |case| case["kl"] == kl);
    assert_eq!(["k2", "k3"].map(|kl| of(kl).count()), [6, 6]);
    for case in of("k2").chain(of("k3")) {
        let what = format!(
            "{} {} beta {}",
            case["aggregation"], case["kl"], case["beta"]
        );
        let log_probs = numbers(&case["logp_new"]);
        let log_probs = Array {
            shape: vec![log_probs.len()],
            values: log_probs,
        }
        .tensor(&gpu())
        .tracked();
        let kl = Kl::deserialize(&case["kl"]).unwrap();
        let number = |name: &str| case[name].as_f64().unwrap();
        let clip = (number("eps_low") as f32, number("eps_high") as f32);
        let result = log_probs.policy_loss(&golden_tokens(case), clip, number("beta") as f32, kl);
        // The inputs are rounded to f32: 6e-8 of log-probs up to 3, amplified by cancellation.
        let tolerance = 1e-5;
        assert_close(
            &what,
            &result.loss.to_vec().unwrap(),
            &[number("loss")],
            tolerance,
        );
        assert_close(
            &what,
            &result.kl.to_vec().unwrap(),
            &[number("mean_kl")],
            tolerance,
        );
        assert_close(
            &what,
            &result.clip_fraction.to_vec().unwrap(),
            &[number("clip_fraction")],
            tolerance,
        );
        let gradient = result
            .loss
            .backward()
            .get(&log_probs)
            .unwrap()
            .to_vec()
            .unwrap();
        assert_close(
            &what,
            &gradient,
            &numbers(&case["grad_logp_new"]),
            tolerance,
        );
    }
}

#[test]
fn a_policy_that_has_not_moved_has_a_ratio_of_exactly_one() {
    let values = Array::random(&[200], 7, -12.0..-0.001);
    let log_probs = values.tensor(&gpu()).tracked();
    let tokens: Vec<LossToken> = (0..200u32)
        .map(|pair| {
            let l = values.values[pair as usize] as f32;
            // The sums of powers of two are exact.
            LossToken {
                pair,
                advantage: 0.5,
                weight: 1.0 / 256.0,
                old: l,
                reference: l,
            }
        })
        .collect();
    let result = log_probs.policy_loss(&tokens, (0.2, 0.2), 1.0, Kl::K3);
    assert_eq!(result.loss.to_vec().unwrap(), [-0.5 * 200.0 / 256.0]);
    assert_eq!(result.kl.to_vec().unwrap(), [0.0]);
    assert_eq!(result.clip_fraction.to_vec().unwrap(), [0.0]);
    let gradients = result.loss.backward();
    assert_eq!(
        gradients.get(&log_probs).unwrap().to_vec().unwrap(),
        [-0.5 / 256.0; 200]
    );
}

/// k3 of a small difference is half its square; computed by its formula, it would be mostly rounding error.
#[test]
fn k3_keeps_its_digits_where_kl_is_small() {
    let log_probs = Tensor::from_slice(&gpu(), &[-1.0], &[1]).tracked();
    let token = LossToken {
        pair: 0,
        advantage: 0.0,
        weight: 1.0,
        old: -1.0,
        reference: -1.0 + 1.0 / 8192.0,
    };
    let result = log_probs.policy_loss(&[token], (0.2, 0.2), 1.0, Kl::K3);
    let d: f64 = 1.0 / 8192.0;
    assert_close(
        "kl",
        &[result.kl.to_vec().unwrap()[0] * 1e9],
        &[(d.exp_m1() - d) * 1e9],
        1e-6,
    );
    let gradient = result
        .loss
        .backward()
        .get(&log_probs)
        .unwrap()
        .to_vec()
        .unwrap();
    assert_close("gradient", &gradient, &[-d.exp_m1()], 1e-6);
}

#[test]
fn a_ratio_beyond_f32_stays_finite() {
    let log_probs = Tensor::from_slice(&gpu(), &[-0.1], &[1]).tracked();
    let token = LossToken {
        pair: 0,
        advantage: 0.0,
        weight: 1.0,
        old: -200.0,
        reference: 100.0,
    };
    let result = log_probs.policy_loss(&[token], (0.2, 0.2), 0.1, Kl::K3);
    assert!(result.loss.to_vec().unwrap()[0].is_finite());
}

#[test]
#[should_panic(expected = "policy_loss: a loss token has the log-prob 3 of 2")]
fn a_pair_that_does_not_exist_is_refused() {
    let token = LossToken {
        pair: 3,
        advantage: 0.0,
        weight: 1.0,
        old: 0.0,
        reference: 0.0,
    };
    Tensor::zeros(&gpu(), &[2]).policy_loss(&[token], (0.2, 0.2), 0.0, Kl::K3);
}
