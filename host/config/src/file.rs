//! A TOML source of settings, with the lines of its keys.
//!
//! figment's own TOML provider would add a second, older TOML parser to the build.

use std::collections::HashMap;
use std::path::Path;

use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The maximum number of syntax errors that are reported of one file.
const MAX_ERRORS: usize = 20;

/// Settings in TOML. Read and parse errors name the file, and the line if known.
pub(super) enum Toml<'a> {
    File(&'a Path),
    Text(&'a str),
    /// The text of the file with this name.
    Read(&'a Path, &'a str),
}

impl Provider for Toml<'_> {
    fn metadata(&self) -> Metadata {
        match self {
            Toml::File(path) | Toml::Read(path, _) => Metadata::from("TOML file", *path),
            Toml::Text(_) => Metadata::named("TOML"),
        }
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = match self {
            Toml::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
                toml::from_str::<Dict>(&text)
            }
            Toml::Text(text) | Toml::Read(_, text) => toml::from_str(text),
        };
        let dict = dict.map_err(|error| error.to_string())?;
        Ok(Profile::Default.collect(dict))
    }
}

/// A text of settings without the lines that are no TOML.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Readable {
    /// Removed lines are empty, so that the others keep their numbers.
    pub(super) text: String,
    /// The errors of the removed lines.
    pub(super) errors: Vec<String>,
    /// The keys of the removed lines, with their sections.
    pub(super) removed: Vec<String>,
}

/// Removes the lines of `text` that are no TOML.
pub(super) fn without_syntax_errors(text: &str) -> Readable {
    let mut readable = Readable {
        text: text.to_owned(),
        ..Readable::default()
    };
    while let Err(error) = toml::from_str::<Dict>(&readable.text) {
        let start = error.span().map_or(0, |span| span.start).min(readable.text.len());
        let number = line_number(&readable.text, start);
        let mut lines: Vec<&str> = readable.text.lines().collect();
        let line = lines.get(number - 1).copied().unwrap_or_default();
        readable.errors.push(format!(
            "TOML parse error at line {number}: {}{}",
            error.message().replace('\n', ", "),
            hint(line)
        ));
        // After an error in a header, or in a value of several lines, the lines that follow would be
        // misread.
        let key = key_and_value(line).map(|(key, _)| key);
        let (Some(key), true) = (key, readable.errors.len() < MAX_ERRORS) else {
            readable.text.clear();
            break;
        };
        let headers = lines[..number - 1].iter().rev();
        let section = headers.map(|line| line.trim()).find(|line| line.starts_with('['));
        let section = section.map_or("", |header| header.trim_matches(['[', ']']));
        readable.removed.push(format!("{section}.{key}"));
        lines[number - 1] = "";
        readable.text = lines.join("\n");
    }
    readable
}

/// The key and the value of a line.
fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '"');
    (!key.is_empty() && key.chars().all(is_allowed)).then_some((key, value.trim()))
}

/// The advice for a value without quotes. The value is not shown, because it may be a secret.
fn hint(line: &str) -> &'static str {
    let value = key_and_value(line).map_or("", |(_, value)| value);
    let first = value.chars().next().unwrap_or('"');
    if matches!(first, '"' | '\'' | '[' | '{') {
        ""
    } else {
        "; an address or another text needs quotes, as in \"127.0.0.1\""
    }
}

/// The number of the line that contains the byte at `index`.
fn line_number(text: &str, index: usize) -> usize {
    1 + text[..index].matches('\n').count()
}

/// The lines of the keys of a file, by their paths (`apps.port`, `plugins.oci.credentials.0.user`).
#[derive(Default)]
pub(super) struct Lines(HashMap<String, usize>);

impl Lines {
    /// The lines in a valid text.
    pub(super) fn of(text: &str) -> Self {
        let mut lines = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            lines.add_table(text, "", table.get_ref());
        }
        lines
    }

    fn add_table(&mut self, text: &str, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name: &str = key.get_ref();
            let path = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            self.0.insert(path.clone(), line_number(text, key.span().start));
            self.add_value(text, &path, value);
        }
    }

    fn add_value(&mut self, text: &str, path: &str, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.add_table(text, path, table),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}.{index}");
                    self.0.insert(path.clone(), line_number(text, item.span().start));
                    self.add_value(text, &path, item);
                }
            }
            _ => {}
        }
    }

    /// The line of a key, or of the innermost table or list around it.
    pub(super) fn nearest(&self, key: &str) -> Option<usize> {
        let ends = key.match_indices('.').map(|(end, _)| end);
        let mut ends: Vec<_> = ends.chain([key.len()]).collect();
        ends.reverse();
        ends.into_iter().find_map(|end| self.exact(&key[..end]))
    }

    /// The line of a key.
    pub(super) fn exact(&self, key: &str) -> Option<usize> {
        self.0.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_lines_of_their_file() {
        let text = "a = 1\n[b]\nc = [\n  \"x\",\n  \"y\",\n]\nd.e = 2\n[[f]]\ng = 3\n[[f]]\ng = 4\n";
        let lines = Lines::of(text);
        for (key, line) in [
            ("a", 1),
            ("b", 2),
            ("b.c", 3),
            ("b.c.1", 5),
            ("b.d.e", 7),
            ("f.0.g", 9),
            ("f.1.g", 11),
            ("b.missing", 2),
        ] {
            assert_eq!(lines.nearest(key), Some(line), "{key}");
        }
        assert_eq!(lines.nearest("z"), None);
        assert_eq!(lines.exact("b.missing"), None);
    }

    #[test]
    fn lines_with_syntax_errors_are_removed_and_reported() {
        let Readable {
            text,
            errors,
            removed,
        } = without_syntax_errors("[a]\nb = 10.0.0.1\nc = 1\nd = inof\ne = \"x\n[f]\ng = 2\n");
        assert_eq!(removed, ["a.b", "a.d", "a.e"]);
        assert_eq!(errors.len(), 3, "{errors:?}");
        for (error, line, quotes) in [
            (&errors[0], 2, true),
            (&errors[1], 4, true),
            (&errors[2], 5, false),
        ] {
            assert!(
                error.starts_with(&format!("TOML parse error at line {line}: ")),
                "{error}"
            );
            assert_eq!(error.contains("needs quotes"), quotes, "{error}");
        }
        let lines = Lines::of(&text);
        assert_eq!((lines.exact("a.c"), lines.exact("f.g")), (Some(3), Some(7)));
        assert_eq!(lines.exact("a.b"), None);
        // Keys after a wrong header would belong to another section.
        let readable = without_syntax_errors("[a\nb = 1\nc = x\n");
        assert_eq!((readable.text.as_str(), readable.errors.len()), ("", 1));
        let valid = without_syntax_errors("[a]\n");
        assert_eq!((valid.text.as_str(), valid.errors.len()), ("[a]\n", 0));
    }
}
