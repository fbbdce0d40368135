//! Dates for chat templates: the part of C's `strftime` that they use, in UTC.

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The moment so many seconds after 1970 began, written as `format` says.
pub(crate) fn strftime(format: &str, seconds: u64) -> Result<String, String> {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days as i64);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (weekday, month_name) = (DAYS[(days as usize + 4) % 7], MONTHS[month as usize - 1]);
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => text += &year.to_string(),
            Some('y') => text += &format!("{:02}", year % 100),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('H') => text += &format!("{hour:02}"),
            Some('M') => text += &format!("{minute:02}"),
            Some('S') => text += &format!("{second:02}"),
            Some('B') => text += month_name,
            Some('b') => text += &month_name[..3],
            Some('A') => text += weekday,
            Some('a') => text += &weekday[..3],
            Some('%') => text.push('%'),
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!("strftime_now: %{other} is not supported"));
            }
        }
    }
    Ok(text)
}

/// Year, month and day of a day counted from 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
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
        assert!(strftime("%Q", 0).is_err());
    }
}
