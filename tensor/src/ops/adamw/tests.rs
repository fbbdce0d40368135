use proptest::prelude::*;

use super::*;
use crate::check::compare;
use crate::check::reference::{
    ADAMW, AdamWReference as Reference, all_values, flat, gradients, named,
};
use crate::testing::{Array, assert_close, gpu, numbers};

const MUON: Muon = Muon {
    lr: 0.02,
    momentum: 0.95,
};

#[test]
fn six_steps_agree_with_pytorch() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../fixtures/golden/adamw.json")).unwrap();
    let array = |v: &serde_json::Value| {
        let values = numbers(v);
        Array {
            shape: vec![values.len()],
            values,
        }
    };
    let number = |name: &str| golden[name].as_f64().unwrap();
    let settings = AdamW {
        lr: number("lr"),
        beta1: number("beta1"),
        beta2: number("beta2"),
        eps: number("eps"),
        weight_decay: number("weight_decay"),
        max_norm: number("max_norm"),
    };
    let mut parameters = Parameters::new(&gpu(), &named(&[array(&golden["start"])]));
    for (i, step) in golden["steps"].as_array().unwrap().iter().enumerate() {
        parameters.accumulate(&gradients(&parameters, &[array(&step["grad"])]));
        let norm = parameters.step(settings).to_vec().unwrap();
        // A dozen roundings of 6e-8 per step, six steps.
        assert_close(
            &format!("norm {i}"),
            &norm,
            &[step["norm"].as_f64().unwrap()],
            1e-6,
        );
        assert_close(
            &format!("step {i}"),
            &all_values(&parameters).unwrap(),
            &numbers(&step["after"]),
            2e-6,
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// For any tensors, in any number of arenas and dispatches.
    #[test]
    fn three_steps_agree_with_the_reference(
        lengths in prop::collection::vec(prop::sample::select(vec![1usize, 7, 63, 64, 65, 129, 5000]), 1..9),
        limit in prop::sample::select(vec![64usize, 300, 1 << 20]),
        max_norm in prop::sample::select(vec![0.5, f64::INFINITY]),
        seed: u64,
    ) {
        let random = |which: u64| -> Vec<Array> {
            let one = |(i, n): (usize, &usize)| Array::random(&[*n], seed ^ (which << 40) ^ i as u64, -1.0..1.0);
            lengths.iter().enumerate().map(one).collect()
        };
        let start = random(0);
        let settings = AdamW { max_norm, ..ADAMW };
        let mut parameters = Parameters::packed(&gpu(), &named(&start), limit);
        let mut wanted = Reference::new(flat(&start));
        let largest = |values: &[f64]| values.iter().fold(0f64, |most, v| most.max(v.abs()));
        let mut scale = largest(&wanted.values);
        for step in 1..4 {
            // The gradients of two losses are added.
            let (one, other) = (random(step), random(step + 10));
            parameters.accumulate(&gradients(&parameters, &one));
            parameters.accumulate(&gradients(&parameters, &other));
            let sum: Vec<f64> = flat(&one).iter().zip(flat(&other)).map(|(a, b)| a + b).collect();
            let wanted_norm = wanted.step(&sum, settings);
            let norm = parameters.step(settings).to_vec().unwrap();
            // Up to 40,000 squares: each thread sums 64, the rest are trees.
            assert_close("norm", &norm, &[wanted_norm], 1e-5);
            // A dozen roundings of 6e-8 per step, each relative to its operands. A step may cancel a value to nearly zero, so
            // the scale is the largest value of all steps and the start, not of the result alone.
            scale = scale.max(largest(&wanted.values));
            compare("values", &all_values(&parameters).unwrap(), &wanted.values, 2e-6, scale).unwrap();
        }
    }
}

/// An update of all tensors with AdamW, and one of matrices with Muon.
const STEPS: [fn(&mut Parameters) -> Tensor; 2] = [
    |parameters| parameters.step(ADAMW),
    |parameters| parameters.step_muon(MUON, ADAMW, |name| name == "tensor 0"),
];

#[test]
fn a_gradient_that_is_not_finite_changes_nothing_and_shows() {
    let all = STEPS
        .into_iter()
        .flat_map(|step| [f64::NAN, f64::INFINITY, 1e30].map(|bad| (step, bad)));
    for (step, bad) in all {
        let start = [
            Array::random(&[7, 10], 1, -1.0..1.0),
            Array::random(&[5], 2, -1.0..1.0),
        ];
        let mut parameters = Parameters::new(&gpu(), &named(&start));
        let slopes = [
            Array::random(&[7, 10], 3, -1.0..1.0),
            Array::random(&[5], 4, -1.0..1.0),
        ];
        parameters.accumulate(&gradients(&parameters, &slopes));
        step(&mut parameters);
        let before = parameters.state().unwrap();
        let mut spoilt = slopes.clone();
        spoilt[1].values[3] = bad;
        parameters.accumulate(&gradients(&parameters, &spoilt));
        assert!(
            !step(&mut parameters).to_vec().unwrap()[0].is_finite(),
            "{bad}: the norm"
        );
        assert_eq!(
            parameters.state().unwrap(),
            before,
            "{bad}: values and moments"
        );
        // The gradients are zero before the next batch.
        parameters.accumulate(&gradients(&parameters, &slopes));
        let norm = step(&mut parameters).to_vec().unwrap()[0];
        assert_close(
            "norm",
            &[norm],
            &[flat(&slopes).iter().map(|g| g * g).sum::<f64>().sqrt()],
            1e-6,
        );
    }
}

#[test]
fn a_restored_state_goes_on_bit_for_bit() {
    let start = [
        Array::random(&[3, 30], 1, -1.0..1.0),
        Array::random(&[5], 2, -1.0..1.0),
    ];
    let slopes = |seed| {
        [
            Array::random(&[3, 30], seed, -1.0..1.0),
            Array::random(&[5], seed + 1, -1.0..1.0),
        ]
    };
    for step in STEPS {
        let mut whole = Parameters::packed(&gpu(), &named(&start), 64);
        whole.accumulate(&gradients(&whole, &slopes(10)));
        step(&mut whole);
        let (state, steps) = (whole.state().unwrap(), whole.steps());

        let mut resumed = Parameters::new(&gpu(), &named(&slopes(30)));
        let leaf = resumed.get("tensor 1");
        // Leftovers are not part of the state: moments, steps, and gradients without a step.
        resumed.accumulate(&gradients(&resumed, &slopes(40)));
        step(&mut resumed);
        resumed.accumulate(&gradients(&resumed, &slopes(50)));
        resumed.restore(&state, steps);
        for parameters in [&mut whole, &mut resumed] {
            parameters.accumulate(&gradients(parameters, &slopes(20)));
            step(parameters);
        }
        assert_eq!(whole.state().unwrap(), resumed.state().unwrap());
        assert_eq!(
            leaf.to_vec().unwrap(),
            whole.get("tensor 1").to_vec().unwrap()
        );
    }
}

#[test]
fn a_matrix_without_gradients_stays() {
    let start = [
        Array::random(&[4, 6], 1, -1.0..1.0),
        Array::random(&[6, 4], 2, -1.0..1.0),
    ];
    let zeros = Array {
        shape: vec![6, 4],
        values: vec![0.0; 24],
    };
    let mut parameters = Parameters::new(&gpu(), &named(&start));
    let slopes = [Array::random(&[4, 6], 3, -1.0..1.0), zeros];
    let still = AdamW {
        weight_decay: 0.0,
        ..ADAMW
    };
    parameters.accumulate(&gradients(&parameters, &slopes));
    parameters.step_muon(MUON, still, |_| true);
    let values = parameters.values().unwrap();
    assert_ne!(values[0].2, start[0].to_f32());
    assert_eq!(values[1].2, start[1].to_f32());
}

#[test]
#[should_panic(expected = "step_muon: tensor 0 has the shape [5], and Muon needs a matrix")]
fn muon_refuses_a_vector() {
    let vector = named(&[Array::random(&[5], 1, -1.0..1.0)]);
    Parameters::new(&gpu(), &vector).step_muon(MUON, ADAMW, |_| true);
}

#[test]
fn tensors_keep_their_names_shapes_and_values() {
    let tensors = named(&[
        Array::random(&[2, 3], 1, -1.0..1.0),
        Array::random(&[100], 2, -1.0..1.0),
    ]);
    let parameters = Parameters::new(&gpu(), &tensors);
    assert_eq!(
        parameters.names().collect::<Vec<_>>(),
        ["tensor 0", "tensor 1"]
    );
    assert_eq!(parameters.values().unwrap(), tensors);
    assert!(parameters.get("tensor 0").is_tracked());
    assert_eq!(parameters.get("tensor 0").to_vec().unwrap(), tensors[0].2);
}

#[test]
#[should_panic(expected = "parameters: none of the 1 tensors is called lora")]
fn an_unknown_name_is_refused() {
    Parameters::new(&gpu(), &named(&[Array::random(&[2], 1, -1.0..1.0)])).get("lora");
}
