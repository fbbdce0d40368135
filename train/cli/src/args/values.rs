//! Values that are typed.

use lapwing_train::config::MOST_EPISODES;

/// A whole number that TOML can hold.
pub fn number(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number <= i64::MAX as u64 => Ok(number),
        _ => Err(format!("wanted a whole number from 0 to {}", i64::MAX)),
    }
}

/// So many episodes as an evaluation may have.
pub fn episodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MOST_EPISODES).contains(&number) => Ok(number),
        _ => Err(format!("wanted a whole number from 1 to {MOST_EPISODES}")),
    }
}

/// So many tokens as a reply may have.
pub fn tokens(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number as usize),
        _ => Err(format!("wanted a whole number from 1 to {}", u32::MAX)),
    }
}

pub fn tries(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(tries) if (1..=10_000).contains(&tries) => Ok(tries),
        _ => Err("wanted a whole number from 1 to 10000".to_owned()),
    }
}

pub fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if (1..=86_400).contains(&seconds) => Ok(seconds),
        _ => Err("wanted a whole number from 1 to 86400".to_owned()),
    }
}

pub fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs) if (1..=256).contains(&jobs) => Ok(jobs),
        _ => Err("wanted a whole number from 1 to 256".to_owned()),
    }
}

pub fn waiting(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(waiting) if waiting <= 100_000 => Ok(waiting),
        _ => Err("wanted a whole number from 0 to 100000".to_owned()),
    }
}

pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= 1.0 => Ok(rate),
        _ => Err("wanted a number above 0, at most 1".to_owned()),
    }
}

pub fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x == 0.0 || (1e-3..=1e3).contains(&x) => Ok(x),
        _ => Err("wanted 0, or a number from 0.001 to 1000".to_owned()),
    }
}

pub fn share(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        _ => Err("wanted a number above 0, at most 1".to_owned()),
    }
}

pub fn chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err("wanted a number from 0 to 1".to_owned()),
    }
}
