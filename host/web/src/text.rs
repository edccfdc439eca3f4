//! Texts of clients, cut to a length that a log line or an answer may have.

/// Characters of each text of a client in the log; the rest is cut.
pub(crate) const MAX_CHARS: usize = 1024;

/// The beginning of a client's text, at most 1,024 characters: one request must not fill the log.
pub fn truncated(text: &str) -> &str {
    text.char_indices()
        .nth(MAX_CHARS)
        .map_or(text, |(at, _)| &text[..at])
}

/// A text of at most `max` bytes; the end of a longer one is replaced by `…`.
pub(crate) fn shortened(mut text: String, max: usize) -> String {
    const CUT: char = '…';
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max - CUT.len_utf8()));
        text.push(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(truncated(&"ä".repeat(5000)), "ä".repeat(MAX_CHARS));
        assert_eq!(truncated("ä"), "ä");
        assert_eq!(shortened("ä".repeat(5), 9), "äää…");
        assert_eq!(shortened("ä".repeat(4), 8), "ä".repeat(4));
    }
}
