//! Sizes and durations in the form that operators write.

use std::time::Duration;

/// Parses a size in bytes: `64MiB`, `512KiB`, `2GiB`, `10MB` (decimal: a million bytes each),
/// `100B`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Parses a duration: `500us`, `50ms`, `5s`, `2m`, `1h`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    Some(match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3600)?),
        _ => return None,
    })
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_invalid_ones_rejected() {
        for (text, size) in [
            ("64MiB", Some(64 << 20)),
            ("1 KiB", Some(1024)),
            ("3", Some(3)),
            ("2MB", Some(2_000_000)),
            ("MiB", None),
            ("1.5MiB", None),
            ("99999999999999999999", None),
            ("-1", None),
        ] {
            assert_eq!(parse_size(text), size, "{text}");
        }
    }

    #[test]
    fn durations_are_parsed_and_invalid_ones_rejected() {
        for (text, duration) in [
            ("50ms", Some(Duration::from_millis(50))),
            ("2m", Some(Duration::from_mins(2))),
            ("7us", Some(Duration::from_micros(7))),
            ("5", None),
            ("s", None),
        ] {
            assert_eq!(parse_duration(text), duration, "{text}");
        }
    }
}
