//! The estimates compared with known gradients and noise.

use proptest::prelude::*;

use super::*;
use crate::ms_grpo::{assign_advantages, rollout, select};
use crate::testing::TestSettings;

/// A normal number, approximately: the sum of twelve uniform ones.
fn normal(chance: &mut Stream) -> f64 {
    (0..12).map(|_| chance.unit()).sum::<f64>() - 6.0
}

/// For gradients with a known mean and noise.
#[test]
fn signal_and_variance_are_right_on_average() {
    let mut chance = Stream::new(3, "measure");
    let truth: Vec<f64> = (0..SUMS).map(|_| 0.1 * normal(&mut chance)).collect();
    let (groups, noise, draws) = (4, 0.5, 200);
    let mut all = Vec::new();
    for _ in 0..draws {
        let mut noisy = || -> Vec<Sketch> {
            let one =
                |chance: &mut Stream| truth.iter().map(|t| t + noise * normal(chance)).collect();
            (0..groups).map(|_| one(&mut chance)).collect()
        };
        let (first, second) = (noisy(), noisy());
        let together: Vec<Sketch> = first
            .iter()
            .zip(&second)
            .map(|(a, b)| mean(&[a.clone(), b.clone()]))
            .collect();
        all.push(estimates(&mean(&first), &mean(&second), &together, Some(&truth)).unwrap());
    }
    let mean_of =
        |of: &dyn Fn(&GradientNoise) -> f64| all.iter().map(of).sum::<f64>() / f64::from(draws);
    let near = |got: f64, wanted: f64| {
        assert!((got / wanted - 1.0).abs() < 0.05, "{got} against {wanted}")
    };
    let length = dot(&truth, &truth);
    // The mean over four groups and two halves has an eighth of the noise.
    let variance = SUMS as f64 * noise * noise / 8.0;
    near(mean_of(&|m| m.gradient_signal), length);
    near(mean_of(&|m| m.gradient_variance), variance);
    near(mean_of(&|m| m.gradient_variance_scenes.unwrap()), variance);
    near(
        mean_of(&|m| m.gradient_agreement),
        length / (length + 2.0 * variance),
    );
    near(
        mean_of(&|m| m.gradient_alignment.unwrap()),
        (length / (length + variance)).sqrt(),
    );
}

#[test]
fn zero_gradients_have_no_estimates() {
    let zeros = vec![0.0; SUMS];
    assert_eq!(
        estimates(&zeros, &zeros, std::slice::from_ref(&zeros), None),
        None
    );
    let one = sketch(&[1.0], 1.0);
    let measured = estimates(&one, &one, std::slice::from_ref(&one), Some(&zeros)).unwrap();
    assert_eq!(
        (measured.gradient_agreement, measured.gradient_variance),
        (1.0, 0.0)
    );
    assert_eq!(
        (
            measured.gradient_variance_scenes,
            measured.gradient_alignment
        ),
        (None, None)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Products of projections are within five standard deviations of those of the gradients; one is at most sqrt(2 / 1024)
    /// of the lengths.
    #[test]
    fn projections_keep_products(count in 1usize..20_000, seed: u64) {
        let mut chance = Stream::new(seed, "projections");
        let mut gradient = || -> Vec<f32> { (0..count).map(|_| chance.unit() as f32 - 0.4).collect() };
        let (a, b) = (gradient(), gradient());
        let product = |x: &[f32], y: &[f32]| -> f64 {
            x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
        };
        let wanted = 3.0 * product(&a, &b);
        let got = dot(&sketch(&a, 3.0), &sketch(&b, 1.0));
        let lengths = 3.0 * (product(&a, &a) * product(&b, &b)).sqrt();
        prop_assert!((got - wanted).abs() < 5.0 * (2.0 / SUMS as f64).sqrt() * lengths, "{} against {}", got, wanted);
    }
}

/// Measuring leaves the weights alone, and its gradients are those of an update.
#[test]
fn measuring_changes_nothing() {
    let changes = [
        "train.groups=4",
        "train.group_size=40",
        "train.sampling=all",
    ];
    let settings = TestSettings::load("frozen-lake", &changes);
    let (mut learner, options) = (settings.language(), settings.options());
    let groups = rollout(&mut learner, &options, 0, &()).unwrap().groups;
    let measured = |learner: &mut LanguageLearner, groups: &[Group]| {
        let prepare = |halves: &mut [Group], train: &TrainConfig| {
            assign_advantages(halves, &options, 0);
            select(halves, train, 0);
        };
        let measured = gradient_noise(learner, &options, groups, &prepare).unwrap();
        measured.expect("returns that differ")
    };
    let before = learner.parameters.as_ref().unwrap().state().unwrap();
    let first = measured(&mut learner, &groups);
    let parameters = learner.parameters.as_ref().unwrap();
    assert_eq!(parameters.state().unwrap(), before);
    let gathered = parameters.gathered().unwrap();
    assert!(gathered.iter().all(|number| *number == 0.0));
    assert!(first.gradient_variance > 0.0, "{first:?}");
    assert_eq!(first.gradient_alignment, None);
    // Equal groups have equal gradients.
    let again = measured(&mut learner, &groups);
    assert!(
        (again.gradient_alignment.unwrap() - 1.0).abs() < 1e-9,
        "{again:?}"
    );
    // The gradient is a mean over groups: a group that occurs twice counts as once.
    let mut signal = |groups: &[Group]| measured(&mut learner, groups).gradient_signal;
    let (once, twice) = (
        signal(&groups[..1]),
        signal(&[groups[0].clone(), groups[0].clone()]),
    );
    assert!((twice / once - 1.0).abs() < 1e-5, "{once} and {twice}");
}
