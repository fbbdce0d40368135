//! How sure a mean is.

use lapwing_env::rng::Stream;

/// Resamples of a bootstrap: the ends of the interval then move by about a hundredth of its length.
const RESAMPLES: usize = 10_000;

/// The 95 % percentile bootstrap interval of the mean of these values (Efron 1979): the means of samples of the same size,
/// drawn from them with replacement, lie in it 95 times of 100. The same values give the same interval.
///
/// # Panics
/// If there are none.
pub fn interval(values: &[f64]) -> [f64; 2] {
    let mut chance = Stream::new(0, "bootstrap");
    let mut mean = || {
        let drawn = (0..values.len()).map(|_| values[chance.below(values.len())]);
        drawn.sum::<f64>() / values.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| mean()).collect();
    means.sort_by(f64::total_cmp);
    [means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40]]
}

/// Mean and standard deviation of a sample (n - 1), which is 0 of a single value.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 100 throws with 30 heads the normal approximation is 0.3 +- 1.96 sqrt(0.21 / 100), 0.210 to 0.390.
    #[test]
    fn intervals_are_those_of_the_normal_approximation_where_it_holds() {
        let throws: Vec<f64> = (0..100).map(|i| f64::from(u8::from(i < 30))).collect();
        let [low, high] = interval(&throws);
        assert!(
            (low - 0.21).abs() < 0.011 && (high - 0.39).abs() < 0.011,
            "{low} {high}"
        );
        assert_eq!(interval(&throws), [low, high]);
        assert_eq!(interval(&[2.0, 2.0]), [2.0, 2.0]);
    }
}
