//! Durations as text, as in flags, environment variables and messages of real agents.

use std::time::Duration;

const UNITS: &[(&str, u128)] = &[
    ("weeks", 604_800_000_000_000),
    ("days", 86_400_000_000_000),
    ("hrs", 3_600_000_000_000),
    ("mins", 60_000_000_000),
    ("secs", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// The duration as an integer in the largest unit in which it is an integer.
pub(crate) fn text(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let unit = UNITS
        .iter()
        .find(|(_, unit)| nanoseconds != 0 && nanoseconds.is_multiple_of(*unit));
    unit.map_or_else(
        || format!("{nanoseconds}ns"),
        |(name, unit)| format!("{}{name}", nanoseconds / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_numbers_of_the_largest_unit() {
        let cases = [
            (Duration::from_secs(5), "5secs"),
            (Duration::from_mins(1), "1mins"),
            (Duration::from_secs(75), "75secs"),
            (Duration::from_millis(1500), "1500ms"),
            (Duration::from_hours(48), "2days"),
            (Duration::from_nanos(3), "3ns"),
            (Duration::ZERO, "0ns"),
        ];
        for (duration, expected) in cases {
            assert_eq!(text(duration), expected);
        }
    }
}
