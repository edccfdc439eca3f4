//! Whole numbers in paths.

use transom_web::ApiError;

use super::error::not_acceptable;

/// The maximum number of characters of an invalid number that an error shows.
const MAX_SHOWN_CHARS: usize = 40;

/// Parses a whole number that is not negative. A larger one than [`u32::MAX`] becomes [`u32::MAX`].
///
/// # Errors
/// 406 for everything else.
pub(super) fn parse(name: &str, text: &str) -> Result<u32, ApiError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_zero = || digits.bytes().all(|byte| byte == b'0');
    let valid = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (!text.starts_with('-') || is_zero());
    if !valid {
        return Err(not_acceptable(format!(
            "The {name} is '{}'; expected a whole number that is not negative.",
            shortened(text)
        )));
    }
    // Only digits are left, so the only error is a number that is too large.
    Ok(digits.parse().unwrap_or(u32::MAX))
}

/// Shortens a text for an error.
pub(super) fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_whole_numbers_of_any_length() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+3", Some(3)),
            ("007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", Some(u32::MAX)),
            ("99999999999999999999999999999999999999999999", Some(u32::MAX)),
            ("-1", None),
            ("-99999999999999999999", None),
            ("1.5", None),
            ("1e3", None),
            ("abc", None),
            ("", None),
            ("+", None),
            ("--1", None),
            (" 1", None),
            ("٣", None),
        ] {
            assert_eq!(parse("count", text).ok(), expected, "{text:?}");
        }
        let long = parse("count", &"ä".repeat(5000)).unwrap_err();
        assert!(long.message().chars().count() < 150, "{}", long.message());
    }
}
