//! Parsers of option values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Any integer that TOML can hold.
pub const WHOLE: RangeInclusive<u64> = 0..=i64::MAX as u64;
/// Numbers of tokens.
pub const TOKENS: RangeInclusive<usize> = 1..=u32::MAX as usize;

/// Returns a parser of integers in this range.
pub fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let (least, most) = range.clone().into_inner();
            // Nobody means such a limit.
            Err(match most.to_string() {
                most if most.len() < 10 => format!("wanted an integer from {least} to {most}"),
                most if is_above(text, &most) => "wanted a smaller number".to_owned(),
                _ => format!("wanted an integer, {least} or more"),
            })
        }
    }
}

/// Compares two numbers of digits.
fn is_above(text: &str, other: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (text.len(), text) > (other.len(), other)
}

/// Returns a parser of the numbers that `is_allowed` accepts.
pub fn number<T: FromStr + Copy>(
    is_allowed: fn(T) -> bool,
    wanted: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|&number| is_allowed(number));
        number.ok_or_else(|| format!("wanted {wanted}"))
    }
}

/// Text of the range of [`number`]s above 0.
pub const SHARE: &str = "a number above 0, at most 1";
