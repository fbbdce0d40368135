//! The estimates against what they estimate.

use super::*;
use lapwing_tensor::check::gpu;
use proptest::prelude::*;

use crate::learn::rollout::rollout;
use crate::run::config::{Config, Sampling};
use crate::run::state::Purpose;

/// As normal as twelve uniform numbers make it.
fn normal(chance: &mut Stream) -> f64 {
    (0..12).map(|_| chance.unit()).sum::<f64>() - 6.0
}

/// Gradients with a known mean and noise: the estimates are right on average.
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
        all.push(told(&mean(&first), &mean(&second), &together, Some(&truth)).unwrap());
    }
    let mean_of =
        |of: &dyn Fn(&Measured) -> f64| all.iter().map(of).sum::<f64>() / f64::from(draws);
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
fn nothing_is_told_of_nothing() {
    let zeros = vec![0.0; SUMS];
    assert_eq!(
        told(&zeros, &zeros, std::slice::from_ref(&zeros), None),
        None
    );
    let one = sketch(&[1.0], 1.0);
    let told = told(&one, &one, std::slice::from_ref(&one), Some(&zeros)).unwrap();
    assert_eq!(
        (told.gradient_agreement, told.gradient_variance),
        (1.0, 0.0)
    );
    assert_eq!(
        (told.gradient_variance_scenes, told.gradient_alignment),
        (None, None)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Products of projections are near those of the gradients: within five standard deviations, which are at most
    /// sqrt(2 / 1024) of the lengths.
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

/// It leaves no trace in what is learned, and its gradients are those that an update would use.
#[test]
fn measuring_changes_nothing() {
    let settings = ["train.groups=4", "train.group_size=16", "eval.episodes=4"];
    let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    let mut config = Config::load("frozen-lake", &settings).unwrap();
    (config.train.measure, config.train.sampling) = (true, Sampling::All);
    let mut state = State::new(&gpu(), config, Purpose::Train, &()).unwrap();
    let groups = rollout(&mut state, &()).unwrap().groups;
    let before = state.snapshot().unwrap();
    let told = measured(&mut state, &groups)
        .unwrap()
        .expect("returns that differ");
    assert_eq!(state.snapshot().unwrap(), before);
    let gathered = state.parameters.as_ref().unwrap().gathered().unwrap();
    assert!(gathered.iter().all(|number| *number == 0.0));
    assert!(told.gradient_variance > 0.0, "{told:?}");
    assert_eq!(told.gradient_alignment, None);
    // The same groups again have the same gradient.
    let again = measured(&mut state, &groups).unwrap().unwrap();
    assert!(
        (again.gradient_alignment.unwrap() - 1.0).abs() < 1e-9,
        "{again:?}"
    );
    // The gradient is a mean over groups: a group that is there twice counts as once.
    let mut signal = |groups: &[Group]| {
        let told = measured(&mut state, groups).unwrap().unwrap();
        told.gradient_signal
    };
    let (once, twice) = (
        signal(&groups[..1]),
        signal(&[groups[0].clone(), groups[0].clone()]),
    );
    assert!((twice / once - 1.0).abs() < 1e-5, "{once} and {twice}");
}
