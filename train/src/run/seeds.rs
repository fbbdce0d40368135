//! Where every random number of a run comes from: seeds derived from the run's seed by name and number.

/// The seed called `name` with these numbers, of a run's seed. Different names or numbers give unrelated seeds.
pub fn derive(seed: u64, name: &str, numbers: &[usize]) -> u64 {
    let mut state = seed;
    for byte in name.bytes() {
        state = mix(state ^ u64::from(byte));
    }
    for number in numbers {
        // The complement keeps a number apart from a letter of a name.
        state = mix(state ^ !(*number as u64));
    }
    state
}

/// One step of splitmix64 (Steele, Lea and Flood 2014).
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

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
