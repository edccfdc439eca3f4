//! Lists in a workflow engine's file. They are Python literals, which are parsed and never executed.

use std::iter::Peekable;
use std::str::Chars;

use toml::{Table, Value};

/// The maximum depth of nested lists.
const MAX_DEPTH: u32 = 8;

/// Parses a list, a dictionary, a string, a number or a boolean.
///
/// # Errors
/// The expected value, and the position.
pub(super) fn parse(input: &str) -> Result<Value, String> {
    let mut parser = Parser {
        chars: input.chars().peekable(),
    };
    let value = parser.value(0)?;
    parser.skip_whitespace();
    match parser.chars.next() {
        None => Ok(value),
        Some(char) => Err(format!("unexpected `{char}` after its end")),
    }
}

/// A string without its quotes.
pub(super) fn unquoted(text: &str) -> &str {
    ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(text)
}

/// A value without its comments (`// …` after a blank, outside of quotes), and whether it had any.
pub(super) fn without_comment(text: &str) -> (String, bool) {
    let (mut kept, mut has_comment) = (String::new(), false);
    let (mut quote, mut before) = (None, ' ');
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let starts_comment = char == '/' && chars.peek() == Some(&'/') && before.is_whitespace();
        if starts_comment && quote.is_none() {
            has_comment = true;
            while chars.next_if(|char| *char != '\n').is_some() {}
            continue;
        }
        match char {
            '\\' if quote.is_some() => {
                kept.push(char);
                kept.extend(chars.next());
                continue;
            }
            '"' | '\'' if quote == Some(char) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(char),
            _ => {}
        }
        kept.push(char);
        before = char;
    }
    (kept.trim().to_owned(), has_comment)
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
}

impl Parser<'_> {
    fn value(&mut self, depth: u32) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err("it is nested too deeply".to_owned());
        }
        self.skip_whitespace();
        match self.chars.peek() {
            Some('[') => self.list(']', depth).map(Value::Array),
            Some('(') => self.list(')', depth).map(Value::Array),
            Some('{') => self.object(depth).map(Value::Table),
            Some('"' | '\'') => self.strings().map(Value::String),
            Some(_) => self.bare_word(),
            None => Err("it ends too early".to_owned()),
        }
    }

    fn list(&mut self, end: char, depth: u32) -> Result<Vec<Value>, String> {
        self.chars.next();
        let mut items = Vec::new();
        loop {
            self.skip_whitespace();
            if self.chars.next_if_eq(&end).is_some() {
                return Ok(items);
            }
            items.push(self.value(depth + 1)?);
            self.expect_separator(end)?;
        }
    }

    fn object(&mut self, depth: u32) -> Result<Table, String> {
        self.chars.next();
        let mut fields = Table::new();
        loop {
            self.skip_whitespace();
            if self.chars.next_if_eq(&'}').is_some() {
                return Ok(fields);
            }
            let Value::String(name) = self.value(depth + 1)? else {
                return Err("a name is not a string".to_owned());
            };
            self.skip_whitespace();
            if self.chars.next() != Some(':') {
                return Err(format!("expected `:` after {name:?}"));
            }
            let value = self.value(depth + 1)?;
            fields.insert(name, value);
            self.expect_separator('}')?;
        }
    }

    fn expect_separator(&mut self, end: char) -> Result<(), String> {
        self.skip_whitespace();
        match self.chars.peek() {
            Some(',') => {
                self.chars.next();
                Ok(())
            }
            Some(char) if *char == end => Ok(()),
            Some(char) => Err(format!("expected `,` or `{end}`, found `{char}`")),
            None => Err("it ends too early".to_owned()),
        }
    }

    /// Adjacent strings are concatenated.
    fn strings(&mut self) -> Result<String, String> {
        let mut all = String::new();
        loop {
            all.push_str(&self.string()?);
            self.skip_whitespace();
            if !matches!(self.chars.peek(), Some('"' | '\'')) {
                return Ok(all);
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.chars.next();
        let mut text = String::new();
        while let Some(char) = self.chars.next() {
            match char {
                char if Some(char) == quote => return Ok(text),
                '\\' => match self.chars.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(escaped @ ('\\' | '\'' | '"')) => text.push(escaped),
                    Some(other) => text.extend(['\\', other]),
                    None => break,
                },
                char => text.push(char),
            }
        }
        Err("a string is not terminated".to_owned())
    }

    fn bare_word(&mut self) -> Result<Value, String> {
        let mut word = String::new();
        while let Some(char) = self
            .chars
            .next_if(|char| char.is_ascii_alphanumeric() || "+-._".contains(*char))
        {
            word.push(char);
        }
        match word.as_str() {
            "True" | "true" => Ok(Value::Boolean(true)),
            "False" | "false" => Ok(Value::Boolean(false)),
            number => number
                .parse()
                .map(Value::Integer)
                .or_else(|_| number.parse().map(Value::Float))
                .map_err(|_| format!("expected a text, a number or a list, found {word:?}")),
        }
    }

    fn skip_whitespace(&mut self) {
        while self.chars.next_if(|char| char.is_whitespace()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_literals_are_parsed_and_other_expressions_rejected() {
        for (text, expected) in [
            ("[]", "[]"),
            ("['a', \"b\",]", "[\"a\", \"b\"]"),
            ("('a', 1, 2.5, True)", "[\"a\", 1, 2.5, true]"),
            (
                "[{'name': 'A', 'value': 'it\\'s'}]",
                "[{ name = \"A\", value = \"it's\" }]",
            ),
            ("'a' 'b'", "\"ab\""),
        ] {
            let expected: Table = format!("it = {expected}").parse().expect(expected);
            assert_eq!(parse(text).expect(text), expected["it"], "{text}");
        }
        for text in [
            "[",
            "['a' 1]",
            "[a]",
            "{1: 2}",
            "{'a' 1}",
            "['a",
            "[] x",
            "__import__('os')",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100)).is_err());
        assert_eq!((unquoted("\"a\""), unquoted("a'")), ("a", "a'"));
    }
}
