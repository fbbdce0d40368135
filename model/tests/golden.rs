//! Four tiny checkpoints against transformers and PEFT in float64.

use lapwing_model::{GenerationRequest, KvArena, SamplingOptions, Tokens};
use lapwing_tensor::Tensor;

use crate::support::*;

/// Of the spread (largest less smallest) of the logits: the 16-bit checkpoints may round where f16 meets bf16, the one
/// stored in f32 only in sums of at most 160 products.
fn tolerance(name: &str) -> f32 {
    if name == "qwen2-sharded" { 1e-4 } else { 2e-3 }
}

/// The largest less the smallest.
fn spread(logits: &[f32]) -> f32 {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    largest - logits.iter().copied().fold(f32::MAX, f32::min)
}

fn assert_logits(what: &str, got: &[f32], wanted: &[f32], tolerance: f32) {
    let relative = distance(got, wanted) / spread(wanted);
    println!("{what}: {relative:e} of the spread");
    assert!(
        relative <= tolerance,
        "{what}: off by {relative:e} of the spread, allowed {tolerance:e}"
    );
}

#[test]
fn logits_of_every_position() {
    for name in CHECKPOINTS {
        let (model, expected) = (load(name), Expected::of(name));
        for case in ["ids0", "ids1", "ids2", "ids3"] {
            let tokens = Tokens::sequence(model.gpu(), &expected.ids(case));
            let logits = model
                .forward(&tokens, None)
                .logits(&model.head(None))
                .to_vec()
                .unwrap();
            let wanted = expected.floats(&format!("{case}.logits"));
            assert_logits(&format!("{name} {case}"), &logits, &wanted, tolerance(name));
        }
    }
}

#[test]
fn logits_with_an_adapter() {
    for name in CHECKPOINTS {
        let ((model, adapter, _), expected) = (load_adapted(name), Expected::of(name));
        let tokens = Tokens::sequence(model.gpu(), &expected.ids("ids3"));
        let hidden = model.forward(&tokens, Some(&adapter));
        let logits = hidden.logits(&model.head(Some(&adapter))).to_vec().unwrap();
        let wanted = expected.floats("lora.ids3.logits");
        assert_logits(
            &format!("{name} adapted"),
            &logits,
            &wanted,
            tolerance(name),
        );
    }
}

#[test]
fn greedy_tokens() {
    for name in CHECKPOINTS {
        let (model, expected) = (load(name), Expected::of(name));
        let wanted = expected.ids("greedy.ids2");
        let request = GenerationRequest {
            prompt: expected.ids("ids2"),
            key: 0,
        };
        let sampling = SamplingOptions {
            temperature: 0.0,
            max_new_tokens: wanted.len(),
            ..SamplingOptions::default()
        };
        let mut arena = KvArena::new(&model, 8, 1024);
        let requests = [request];
        let replies = replies_of(&model, None, &mut arena, &requests, &sampling).unwrap();
        let got = &replies[0].ids;
        assert_eq!(got.len(), wanted.len(), "{name}");
        // The log-probs of two tokens may be so close that rounding decides, which differs between devices; the text that
        // follows then differs.
        let same = got.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        println!("{name}: {same} of {} tokens", wanted.len());
        if same < wanted.len() {
            let before = [&requests[0].prompt[..], &wanted[..same]].concat();
            let hidden = model.forward(&Tokens::sequence(model.gpu(), &before), None);
            let logits = hidden.logits(&model.head(None)).to_vec().unwrap();
            let last = &logits[logits.len() - model.config().vocab..];
            let [one, other] = [got[same], wanted[same]].map(|id| last[id as usize]);
            let allowed = tolerance(name) * spread(last);
            assert!(
                (one - other).abs() <= allowed,
                "{name}: {got:?}, wanted {wanted:?}: at {same} the logits are {one} and {other}"
            );
        }
    }
}

#[test]
fn adapted_log_probs_and_every_gradient() {
    for name in CHECKPOINTS {
        let ((model, adapter, parameters), expected) = (load_adapted(name), Expected::of(name));
        let ids = expected.ids("ids3");
        let log_probs = log_probs(&model, Some(&adapter), &ids);
        let got = log_probs.to_vec().unwrap();
        let worst = distance(&got, &expected.floats("lora.logprobs"));
        println!("{name}: log-probs off by {worst:e}");
        // A log-prob, of the order of ten, errs as the logits do: sums of up to 160 products round by 1e-6 of that, a few
        // layers one after the other by ten times as much, and a driver's exp and log (3 units in the last place and
        // more) are as coarse again: 6e-5 on the software driver. A wrong term is far above 1e-3.
        assert!(worst <= 1e-3, "{name}: log-probs off by {worst:e}");

        let weights = expected.floats("lora.weights");
        let weights = Tensor::from_slice(model.gpu(), &weights, &[weights.len()]);
        let gradients = log_probs.mul(&weights).sum().backward();
        // Recomputation in the backward pass is bit-identical.
        let sparing = model.clone().with_recomputation(true);
        let again = crate::support::log_probs(&sparing, Some(&adapter), &ids);
        assert_eq!(again.to_vec().unwrap(), got, "{name}");
        let again = again.mul(&weights).sum().backward();
        let names = expected.names("grad.");
        assert_eq!(names.len(), 14 * model.config().layers);
        for tensor in names {
            let leaf = parameters.get(&format!("base_model.model.{tensor}"));
            let got = gradients
                .get(&leaf)
                .unwrap_or_else(|| panic!("{name}: no gradient of {tensor}"));
            let recomputed = again.get(&leaf).unwrap();
            assert_eq!(recomputed.to_vec().unwrap(), got.to_vec().unwrap());
            let wanted = expected.floats(&format!("grad.{tensor}"));
            // Relative to the largest gradient: a small one is the rounding left by larger ones that cancel.
            assert_near(
                &format!("{name}: gradient of {tensor}"),
                &got.to_vec().unwrap(),
                &wanted,
                1e-2,
            );
        }
    }
}
