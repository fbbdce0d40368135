//! Dates for chat templates, in UTC.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::Offset;

/// The moment so many seconds after 1970 began, written as C's `strftime` does.
pub(crate) fn strftime(format: &str, seconds: i64) -> Result<String, String> {
    let moment = Timestamp::from_second(seconds).map_err(|e| e.to_string())?;
    let date = Offset::UTC.to_datetime(moment);
    strtime::format(format, date).map_err(|e| format!("strftime_now: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_c_writes_them() {
        let leap_day = 1_709_210_096; // date -u -d @1709210096
        assert_eq!(
            strftime("%a %d %b %Y %H:%M:%S", leap_day).unwrap(),
            "Thu 29 Feb 2024 12:34:56"
        );
        assert_eq!(
            strftime("%A, %d %B %y%%", 0).unwrap(),
            "Thursday, 01 January 70%"
        );
        assert!(strftime("%E", 0).is_err());
        assert!(strftime("%Y", i64::MAX).is_err());
    }
}
