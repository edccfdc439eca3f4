//! Text for logs and operators: bounded, on one line.

/// Text of the engine or of a guest as one line of bounded length.
pub(crate) fn one_line(text: &str) -> String {
    const MAX: usize = 500;
    let mut line = String::new();
    for word in text.split_whitespace() {
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
