//! Text for logs and operators: bounded, on one line.

/// Text of the engine or of a guest as one line of bounded length that cannot drive a terminal.
pub(crate) fn one_line(text: &str) -> String {
    const MAX: usize = 500;
    let mut line = String::new();
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    for word in words.filter(|word| !word.is_empty()) {
        if line.len() + word.len() > MAX {
            line.push_str(" ...");
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing into a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_and_ends() {
        for (text, line) in [
            ("", ""),
            (" a\n\tb  c ", "a b c"),
            ("red \u{1b}[31m", "red [31m"),
            (&"x".repeat(1000), " ..."),
        ] {
            assert_eq!(one_line(text), line, "{text:?}");
        }
        assert!(one_line(&"word ".repeat(10_000)).len() <= 510);
    }
}
