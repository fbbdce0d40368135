//! Seeds of all random numbers of a run, derived from the run's seed by name and number.

use lapwing_tensor::random::Random;

/// Returns the seed `name` with these numbers, derived from a run's seed. Different names or numbers give unrelated
/// seeds.
pub fn derive(seed: u64, name: &str, numbers: &[usize]) -> u64 {
    // The first number of a state's stream: unlike `mix` alone, it does not map 0 to 0.
    let stir = |state| Random::new(state).next_u64();
    let mut state = seed;
    for byte in name.bytes() {
        state = stir(state ^ u64::from(byte));
    }
    for number in numbers {
        // The complement distinguishes a number from a letter of a name.
        state = stir(state ^ !(*number as u64));
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run repeated from its config must play the same episodes, so these values must not change.
    #[test]
    fn seeds_stay_what_they_were() {
        assert_eq!(derive(1, "adapter", &[]), 0x5a17_bdf3_daab_b25d);
        assert_eq!(derive(1, "scene", &[0, 0]), 0x0832_a438_9a52_4d20);
        assert_eq!(
            derive((1 << 63) - 1, "reply", &[3, 7]),
            0x500a_c5e4_e25c_3693
        );
    }

    #[test]
    fn seeds_differ_by_run_name_and_number() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..4 {
            for name in ["scene", "luck", "reply"] {
                for a in 0..8 {
                    for b in 0..8 {
                        assert!(seen.insert(derive(seed, name, &[a, b])));
                    }
                }
            }
        }
    }
}
