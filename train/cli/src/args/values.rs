//! Parsers of option values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Any whole number that TOML can hold.
pub const WHOLE: RangeInclusive<u64> = 0..=i64::MAX as u64;
/// Numbers of tokens.
pub const TOKENS: RangeInclusive<usize> = 1..=u32::MAX as usize;

/// Returns a parser of whole numbers in this range.
pub fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let (least, most) = range.clone().into_inner();
            Err(format!("wanted a whole number from {least} to {most}"))
        }
    }
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
