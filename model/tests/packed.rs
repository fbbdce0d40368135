//! The packed tree against separate sequences.

use lapwing_model::Tokens;
use lapwing_tensor::{Indices, Tensor};
use proptest::prelude::*;

use crate::support::*;

proptest! {
    // Each case runs whole models, so few; the tree's own properties are tested without a device.
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packed_tree_equals_separate_sequences(seed: u64, which in 0..CHECKPOINTS.len(), count in 2usize..7) {
        let (model, adapter, parameters) = load_adapted(CHECKPOINTS[which]);
        let gpu = model.gpu();
        let sequences = related_sequences(seed, count, 384);

        // Separate: one forward pass each, gradients added up.
        let mut apart = Vec::new();
        let mut sum: Option<Tensor> = None;
        for sequence in &sequences {
            let log_probs = log_probs(&model, Some(&adapter), sequence);
            apart.extend(log_probs.to_vec().unwrap());
            let weighed = log_probs.mul(&weights(&model, sequence.len() - 1)).sum();
            sum = Some(match sum { Some(before) => before.add(&weighed), None => weighed });
        }
        let apart_gradients = sum.unwrap().backward();

        // Together.
        let (packed, rows) = pack(&sequences);
        let played: usize = sequences.iter().map(|s| s.len() - 1).sum();
        prop_assert!(packed.len() < played, "nothing was shared: {} of {played}", packed.len());
        let hidden = model.forward(&Tokens::new(gpu, &packed), Some(&adapter));
        let targets: Vec<u32> = sequences.iter().flat_map(|s| &s[1..]).copied().collect();
        let (rows, targets) = (Indices::new(gpu, &rows.concat()), Indices::new(gpu, &targets));
        let together = hidden.log_probs(&model.head(Some(&adapter)), &rows, &targets, &[], 1.0).log_probs;
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&together.to_vec().unwrap()), bits(&apart));
        let all: Vec<f32> = sequences.iter().flat_map(|s| ramp(s.len() - 1)).collect();
        let all = Tensor::from_slice(gpu, &all, &[all.len()]);
        let gradients = together.mul(&all).sum().backward();
        for name in parameters.names() {
            let leaf = parameters.get(name);
            let wanted = apart_gradients.get(&leaf).unwrap().to_vec().unwrap();
            let got = gradients.get(&leaf).unwrap().to_vec().unwrap();
            assert_near(name, &got, &wanted, 1e-4);
        }
    }
}

/// Weights that differ from token to token, so that swapped tokens are noticed.
fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| 1.0 - 0.3 * (i % 5) as f32).collect()
}

fn weights(model: &lapwing_model::Model, len: usize) -> Tensor {
    Tensor::from_slice(model.gpu(), &ramp(len), &[len])
}
