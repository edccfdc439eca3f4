//! `mem_limit`: the memory of a job.

use serde_json::Value;

/// The expected format, for messages.
const EXPECTED: &str =
    "expected a number of megabytes, or a string such as \"512m\", \"2g\", \"1.5G\", \"262144k\" or \"2048\"";

/// Parses an amount of memory in megabytes. Numbers, and strings without a unit, are megabytes; a
/// string may end in `k`, `m` or `g` in any case, optionally followed by `b`. Zero is accepted, as
/// upstream does.
///
/// # Errors
/// The problem and the expected format.
pub(crate) fn megabytes(value: &Value) -> Result<f64, String> {
    let found = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => of_text(text),
        _ => None,
    };
    match found {
        Some(amount) if amount.is_finite() && amount >= 0.0 => Ok(amount),
        Some(_) => Err(format!("{value} is negative or too large; {EXPECTED}")),
        None => Err(format!("{value} is not an amount of memory; {EXPECTED}")),
    }
}

fn of_text(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let text = match text.strip_suffix('b') {
        Some(rest) if rest.ends_with(['k', 'm', 'g']) => rest,
        Some(_) => return None,
        None => text.as_str(),
    };
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 1.0 / 1024.0),
        (at, 'm') => (&text[..at], 1.0),
        (at, 'g') => (&text[..at], 1024.0),
        _ => (text, 1.0),
    };
    let digits = digits.trim();
    // Rust also parses `inf` and `1e3`, which are not accepted.
    let plain = digits
        .chars()
        .all(|char| char.is_ascii_digit() || matches!(char, '.' | '-'));
    plain
        .then(|| digits.parse::<f64>().ok())
        .flatten()
        .map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn valid_amounts_are_parsed() {
        for (value, expected) in [
            (json!("1g"), 1024.0),
            (json!("1.5G"), 1536.0),
            (json!("2048"), 2048.0),
            (json!("512k"), 0.5),
            (json!(2048), 2048.0),
            (json!(0.5), 0.5),
            (json!("128M"), 128.0),
            (json!("128mb"), 128.0),
            (json!("2Gb"), 2048.0),
            (json!("1024KB"), 1.0),
            (json!(" 64 m "), 64.0),
            (json!(0), 0.0),
            (json!("0"), 0.0),
            (json!("0m"), 0.0),
            (json!("0.0G"), 0.0),
        ] {
            assert_eq!(megabytes(&value), Ok(expected), "{value}");
        }
    }

    #[test]
    fn invalid_amounts_are_rejected() {
        for (value, expected) in [
            (json!(""), "not an amount"),
            (json!("m"), "not an amount"),
            (json!("12b"), "not an amount"),
            (json!("1t"), "not an amount"),
            (json!("inf"), "not an amount"),
            (json!("1e3m"), "not an amount"),
            (json!("much"), "not an amount"),
            (json!(true), "not an amount"),
            (json!([1]), "not an amount"),
            (json!(-1), "is negative"),
            (json!("-5m"), "is negative"),
        ] {
            let error = megabytes(&value).unwrap_err();
            assert!(error.contains(expected) && error.contains("512m"), "{error}");
        }
    }
}
