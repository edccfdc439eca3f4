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

/// The beginning of a text, at most `most` bytes of it, cut between two characters; what is left out is marked.
pub(crate) fn clip(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
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

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, most, expected) in [
            ("", 3, ""),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abc…"),
            ("äöüäöü", 8, "äö…"),
            ("abcdefg", 3, "…"),
        ] {
            assert_eq!(clip(text, most), expected, "{text:?} {most}");
        }
        assert!(clip(&"ä".repeat(1 << 20), 4096).len() <= 4096);
    }
}
