//! Statistics of samples.

use lapwing_env::rng::Stream;

/// With this many resamples the ends of an interval vary by about a hundredth of its length.
const RESAMPLES: usize = 10_000;

/// Returns the 95 % percentile bootstrap interval of the mean (Efron 1979): 95 % of the means of samples of the same size,
/// drawn with replacement, lie in it. Equal values give equal intervals.
/// Panics if there are no values.
pub(crate) fn interval(values: &[f64]) -> [f64; 2] {
    let mut random = Stream::new(0, "bootstrap");
    let mut resampled = || {
        let drawn = (0..values.len()).map(|_| values[random.below(values.len())]);
        drawn.sum::<f64>() / values.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| resampled()).collect();
    means.sort_by(f64::total_cmp);
    [means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40]]
}

/// Returns the mean.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the mean and the standard deviation of a sample (n - 1), which is 0 for a single value.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (values.len() as f64 - 1.0).max(1.0);
    (mean, variance.sqrt())
}

/// Returns the smallest and the largest value, or `None` if there are no values.
pub(crate) fn range(values: &[f64]) -> Option<[f64; 2]> {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
    Some([fold(f64::min)?, fold(f64::max)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The normal approximation for 30 heads of 100 throws is 0.3 +- 1.96 sqrt(0.21 / 100), 0.210 to 0.390.
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
