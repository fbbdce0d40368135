//! The random numbers of the host: initial weights, seeds made from seeds, the arrays of tests. The same on every
//! platform, for ever. (Tokens are drawn on the device, from a generator of its own: `ops/sample.rs`.)

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed. All streams are stretches of one sequence of 2^64 numbers; those of seeds that are random
    /// themselves, or went through [`mix`], begin far apart.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in 0 .. 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Mean 0, variance 1, nearly normal: the sum of twelve uniforms. It has no logarithm or cosine, whose last bits
    /// differ between platforms, so a base model made from a seed is the same file everywhere.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// The finishing step of SplitMix64: one number to another, every bit depending on every bit. 0 stays 0.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_come_out() {
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
