//! Seeded chance: independent streams of random numbers, told apart by name.
//!
//! A stream depends on its seed and its name and on nothing else, so what one part of a game draws never shifts what
//! another part draws. The numbers are the same on every platform. Drawing is done here rather than by `rand`'s
//! distributions because those may change their values from version to version, and scenes must not.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream called `name` of a seed.
    ///
    /// # Panics
    /// If the name is longer than 24 bytes.
    pub fn new(seed: u64, name: &str) -> Stream {
        assert!(
            name.len() <= 24,
            "stream name `{name}` is {} bytes long, at most 24 fit",
            name.len()
        );
        // Seed and name side by side are the whole key: two streams share a key only if they are the same stream.
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..8 + name.len()].copy_from_slice(name.as_bytes());
        Stream(ChaCha8Rng::from_seed(key))
    }

    /// A whole number from 0 to `count - 1`, each as likely as the others.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "cannot draw one of 0 things");
        let count = count as u64;
        // What is left over when 2^64 is dealt out in equal parts would favour the low numbers: draw again.
        let surplus = (u64::MAX % count + 1) % count;
        loop {
            let bits = self.0.next_u64();
            if bits <= u64::MAX - surplus {
                return (bits % count) as usize;
            }
        }
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, name: &str) -> Vec<usize> {
        let mut stream = Stream::new(seed, name);
        (0..8).map(|_| stream.below(1000)).collect()
    }

    #[test]
    fn seed_and_name_both_tell_streams_apart() {
        assert_eq!(draws(1, "map"), draws(1, "map"));
        assert_ne!(draws(1, "map"), draws(2, "map"));
        assert_ne!(draws(1, "map"), draws(1, "maps"));
    }

    /// Scenes are named by their seed in reports and papers, so the numbers may never change.
    #[test]
    fn the_numbers_are_pinned() {
        insta::assert_snapshot!(format!("{:?}", draws(7, "map")), @"[512, 742, 786, 787, 536, 434, 772, 399]");
    }

    #[test]
    fn every_number_is_equally_likely() {
        let mut stream = Stream::new(3, "fair");
        let mut counts = [0; 6];
        for _ in 0..60_000 {
            counts[stream.below(6)] += 1;
        }
        // The standard deviation of a count is 91; five of them.
        assert!(
            counts.iter().all(|count| (9_545..10_455).contains(count)),
            "{counts:?}"
        );
    }
}
