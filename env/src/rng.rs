//! Independent streams of random numbers, each with a seed and a name.
//!
//! A stream depends only on its seed and its name, so draws of one part of a game never shift those of another. The
//! numbers are the same on every platform. The distributions of `rand` are not used because their values may change with
//! its version.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// Returns the stream `name` of a seed.
    ///
    /// # Panics
    /// If the name is longer than 24 bytes.
    pub fn new(seed: u64, name: &str) -> Stream {
        assert!(
            name.len() <= 24,
            "stream name `{name}` is {} bytes long, at most 24 fit",
            name.len()
        );
        // The key consists of seed and name, so different streams have different keys.
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..8 + name.len()].copy_from_slice(name.as_bytes());
        Stream(ChaCha8Rng::from_seed(key))
    }

    /// Draws an integer from 0 to `count - 1` evenly.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "cannot draw one of 0 things");
        let count = count as u64;
        // 2^64 is not a multiple of `count`: the surplus would favour low numbers, so it is drawn again.
        let surplus = (u64::MAX % count + 1) % count;
        loop {
            let bits = self.0.next_u64();
            if bits <= u64::MAX - surplus {
                return (bits % count) as usize;
            }
        }
    }

    /// Returns true with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Draws a number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles items evenly (Fisher and Yates, from the last item to the first).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
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
    fn streams_differ_by_seed_and_by_name() {
        assert_eq!(draws(1, "map"), draws(1, "map"));
        assert_ne!(draws(1, "map"), draws(2, "map"));
        assert_ne!(draws(1, "map"), draws(1, "maps"));
    }

    /// Reports and papers name scenes by their seed, so the numbers must never change.
    #[test]
    fn the_numbers_are_pinned() {
        insta::assert_snapshot!(format!("{:?}", draws(7, "map")), @"[512, 742, 786, 787, 536, 434, 772, 399]");
    }

    #[test]
    fn a_shuffle_is_pinned_too() {
        let mut items: Vec<usize> = (0..8).collect();
        Stream::new(7, "map").shuffle(&mut items);
        insta::assert_snapshot!(format!("{items:?}"), @"[1, 3, 4, 5, 2, 7, 6, 0]");
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
