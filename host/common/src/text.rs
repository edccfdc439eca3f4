//! Text for logs and operators: bounded, on one line, with control characters escaped.

use std::{borrow::Cow, fmt::Write};

/// Whether a character is invisible but changes how a terminal or a browser displays others:
/// control characters, bidirectional formatting characters, line and paragraph separators, and
/// zero-width characters.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Text for a terminal or a log line: hidden characters, including line breaks, are escaped, as in
/// `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push_printable(&mut line, c);
    }
    Cow::Owned(line)
}

/// Appends one character, escaped as in [`printable`].
pub fn push_printable(line: &mut String, c: char) {
    if is_hidden(c) {
        // Writing into a String does not fail.
        let _ = write!(line, "\\u{{{:x}}}", u32::from(c));
    } else {
        line.push(c);
    }
}

/// JSON text with every hidden character written as a `\uXXXX` escape: a parser reads the same
/// document, and a terminal interprets none of it. JSON itself requires that only for characters
/// below U+0020.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // White space between the members of a document stays; within a string, JSON has escaped
    // these characters already.
    let hidden = |c: char| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t');
    if !json.contains(hidden) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Text from the engine or a guest as one line of bounded length without terminal control characters.
pub fn one_line(text: &str) -> String {
    const MAX: usize = 500;
    let mut line = String::new();
    for word in text.split_whitespace() {
        let word = printable(word);
        if line.len() + word.len() > MAX {
            line.push_str(" ...");
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    line
}

/// The beginning of a text, at most `max_bytes` bytes including the mark `…` of a cut. Cuts at a
/// character boundary.
pub fn clip(text: &str, max_bytes: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let mut end = max_bytes.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
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
    fn one_line_joins_escapes_and_truncates_text() {
        for (text, line) in [
            ("", ""),
            (" a\n\tb  c ", "a b c"),
            ("red \u{1b}[31m", "red \\u{1b}[31m"),
            ("a\u{202e}b\u{7f}\u{9b}2J", "a\\u{202e}b\\u{7f}\\u{9b}2J"),
            ("a\u{2028}b", "a b"),
            (&"x".repeat(1000), " ..."),
        ] {
            assert_eq!(one_line(text), line, "{text:?}");
        }
        assert!(one_line(&"word ".repeat(10_000)).len() <= 510);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, max_bytes, expected) in [
            ("", 3, ""),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abc…"),
            ("äöüäöü", 8, "äö…"),
            ("abcdefg", 3, "…"),
        ] {
            assert_eq!(clip(text, max_bytes), expected, "{text:?} {max_bytes}");
        }
        assert!(clip(&"ä".repeat(1 << 20), 4096).len() <= 4096);
    }

    #[test]
    fn hidden_characters_are_escaped_and_letters_stay() {
        for (text, expected) in [
            ("plain", "plain"),
            ("Größe, 大きさ, قياس, \u{1f600}", "Größe, 大きさ, قياس, \u{1f600}"),
            ("a\nb\r\u{1b}[2J", "a\\u{a}b\\u{d}\\u{1b}[2J"),
            ("\u{2067}x\u{2069}", "\\u{2067}x\\u{2069}"),
            ("\u{200b}\u{feff}\u{e0041}", "\\u{200b}\\u{feff}\\u{e0041}"),
        ] {
            assert_eq!(printable(text), expected, "{text:?}");
        }
    }

    #[test]
    fn escaped_json_is_the_same_document() {
        let document = serde_json::json!({"a\u{202e}": ["\u{9b}2J", "\n\u{7f}", "\u{e0041}", "ä"]});
        let text = serde_json::to_string_pretty(&document).unwrap();
        let escaped = printable_json(&text);
        assert!(
            !escaped.contains(|c: char| is_hidden(c) && c != '\n'),
            "{escaped}"
        );
        assert!(
            escaped.contains("\\u202e") && escaped.contains("\\udb40\\udc41"),
            "{escaped}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
            document
        );
    }
}
