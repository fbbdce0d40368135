//! Random numbers on the host, for initial weights, derived seeds and tests. They are the same on every platform and in
//! every version. Tokens are drawn on the device with another generator: `ops/rl/sample.rs`.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the stream of a seed. All streams are parts of one sequence of 2^64 numbers. The streams of seeds that are
    /// random, or results of [`mix`], start far apart.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a uniform number from 0 to 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a nearly normal number with mean 0 and variance 1: a sum of twelve uniform numbers. It uses no logarithm or
    /// cosine, whose bits differ between platforms, so a base model made from a seed is the same file everywhere.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// The output function of SplitMix64: each bit of the result depends on all bits of the input. 0 gives 0.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_are_reproduced() {
        let mut random = Random::new(1234567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423
            ]
        );
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut random = Random::new(7);
        let drawn: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
        // Five standard errors: 1/sqrt(20000) and sqrt(2/20000).
        assert!(
            mean.abs() < 0.036 && (variance - 1.0).abs() < 0.05,
            "{mean} {variance}"
        );
    }
}
