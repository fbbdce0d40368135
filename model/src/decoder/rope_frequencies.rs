//! The frequencies of rotary position embedding (Su et al. 2021).

/// The base of the frequencies and their scaling.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Pair `i` of a head of size D turns by `theta^(-2i/D)` radians per position.
    pub theta: f64,
    /// The scaling for long texts.
    pub scaling: RopeScaling,
}

/// The scaling of the frequencies for texts longer than those of the first training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// All frequencies are divided by the factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: low frequencies are divided by the factor, high ones kept, those between interpolated.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Frequencies below this many turns per original context are divided.
        low: f64,
        /// Frequencies above this many turns per original context are kept.
        high: f64,
        /// Context length of the first training.
        original_positions: f64,
    },
}

impl Rope {
    /// Returns the radians per position of each pair of a head of size D, as transformers computes them: D/2 numbers.
    pub(crate) fn inverse_frequencies(&self, head_size: usize) -> Vec<f32> {
        let pairs = head_size / 2;
        let plain = (0..pairs).map(|i| self.theta.powf(-2.0 * i as f64 / head_size as f64));
        plain
            .map(|frequency| self.scaling.apply(frequency) as f32)
            .collect()
    }
}

impl RopeScaling {
    fn apply(&self, frequency: f64) -> f64 {
        match *self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original_positions,
            } => {
                let turns = original_positions * frequency / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_fall_from_one_by_a_constant_ratio() {
        let rope = Rope {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        };
        assert_eq!(rope.inverse_frequencies(8), [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn llama3_keeps_fast_turns_and_divides_slow_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original_positions: 64.0,
        };
        let turns = |n: f64| n * std::f64::consts::TAU / 64.0;
        assert_eq!(scaling.apply(turns(5.0)), turns(5.0));
        assert_eq!(scaling.apply(turns(0.5)), turns(0.5) / 8.0);
        // Half-way between the factors: the mean of kept and divided.
        let middle = scaling.apply(turns(2.5));
        assert!((middle - turns(2.5) * (1.0 + 0.125) / 2.0).abs() < 1e-12);
    }
}
