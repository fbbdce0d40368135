//! Statistics of samples.

/// The quantile 0.975 of the normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;
/// That of Student's t for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
    2.262_157, 2.228_139,
];

/// Returns the 95 % confidence interval of the mean of independent values, by Student's t. It is infinite for one value.
pub(crate) fn interval(values: &[f64]) -> [f64; 2] {
    if values.len() < 2 {
        return [f64::NEG_INFINITY, f64::INFINITY];
    }
    let (mean, deviation) = mean_and_deviation(values);
    let half = student(values.len() - 1) * deviation / (values.len() as f64).sqrt();
    [mean - half, mean + half]
}

/// Returns the quantile 0.975 of Student's t, to 0.003 (Abramowitz and Stegun 26.7.5 above the table).
fn student(freedom: usize) -> f64 {
    let (z, n) = (NORMAL, 4.0 * freedom as f64);
    let wide =
        z + (z.powi(3) + z) / n + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (6.0 * n * n);
    STUDENT.get(freedom - 1).copied().unwrap_or(wide)
}

/// Returns the 95 % interval of a rate from this number of independent trials (Wilson 1927). Unlike a multiple of the
/// standard error it has a width at the rates 0 and 1, too.
pub fn wilson(rate: f64, trials: f64) -> [f64; 2] {
    let z = NORMAL / trials.sqrt();
    let middle = (rate + z * z / 2.0) / (1.0 + z * z);
    let half = z * (rate * (1.0 - rate) + z * z / 4.0).sqrt() / (1.0 + z * z);
    [(middle - half).max(0.0), (middle + half).min(1.0)]
}

/// Returns the 95 % interval of a success rate, given that of each game. Agents of a game are not independent, so their
/// outcomes count as fewer trials than there are `agents`: as many as explain the variance between games, and at least
/// one for each game if all games agree.
pub(crate) fn success_interval(games: &[f64], agents: usize) -> [f64; 2] {
    let (rate, count) = (mean(games), games.len() as f64);
    let spread = games.iter().map(|game| (game - rate).powi(2)).sum::<f64>() / count;
    // Not a number if all agents of all games win, or none does.
    let trials = (rate * (1.0 - rate) / spread).max(1.0).min(agents as f64);
    wilson(rate, count * trials)
}

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
pub fn range(values: &[f64]) -> Option<[f64; 2]> {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
    Some([fold(f64::min)?, fold(f64::max)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    use lapwing_env::rng::Stream;

    /// Each interval contains the mean in about 95 of 100 samples. The percentile bootstrap did so in 53, 76, 84 and 88.
    #[test]
    fn intervals_of_few_normal_values_cover_their_mean() {
        const SAMPLES: usize = 10_000;
        let mut random = Stream::new(1, "normal");
        let mut normal = || {
            let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
            radius * (std::f64::consts::TAU * random.unit()).cos()
        };
        for count in [2, 3, 5, 8, 20] {
            let mut sample = || interval(&(0..count).map(|_| normal()).collect::<Vec<_>>());
            let is_inside = |[low, high]: [f64; 2]| low < 0.0 && 0.0 < high;
            let covered = (0..SAMPLES).filter(|_| is_inside(sample())).count();
            // Four standard errors.
            let share = covered as f64 / SAMPLES as f64;
            assert!((share - 0.95).abs() < 0.009, "{share} with {count} values");
        }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, known) in [(7, 2.3646), (11, 2.2010), (30, 2.0423), (120, 1.9799)] {
            assert!((student(freedom) - known).abs() < 3e-3, "{freedom}");
        }
        let [low, high] = interval(&[1.0, 2.0, 3.0]);
        assert!((low + 0.484).abs() < 1e-3 && (high - 4.484).abs() < 1e-3);
        assert_eq!(interval(&[2.0, 2.0]), [2.0, 2.0]);
        assert_eq!(interval(&[2.0]), [f64::NEG_INFINITY, f64::INFINITY]);
    }

    /// Known intervals: 30 of 100, and 0 and 10 of 10 (Brown, Cai and DasGupta 2001).
    #[test]
    fn rates_of_zero_and_one_have_a_width() {
        let near = |found: [f64; 2], known: [f64; 2]| {
            let is_near = |end: usize| (found[end] - known[end]).abs() < 5e-4;
            assert!(is_near(0) && is_near(1), "{found:?}, wanted {known:?}");
        };
        near(wilson(0.3, 100.0), [0.2189, 0.3958]);
        near(wilson(0.0, 10.0), [0.0, 0.2775]);
        near(wilson(1.0, 10.0), [0.7225, 1.0]);
        // Two agents that always win or lose together are one trial; those that are independent are two.
        let together: Vec<f64> = (0..100).map(|i| f64::from(u8::from(i < 30))).collect();
        near(success_interval(&together, 2), wilson(0.3, 100.0));
        let apart = [0.0, 0.5, 0.5, 1.0].repeat(25);
        near(success_interval(&apart, 2), wilson(0.5, 200.0));
        near(success_interval(&[1.0; 10], 2), wilson(1.0, 10.0));
    }
}
