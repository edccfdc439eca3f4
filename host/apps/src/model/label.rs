//! Label selectors: `key`, `key==v`, `key!=v`, `key in (a, b)`, `key notin (a, b)`, joined by
//! commas; all terms must match. `\` escapes the next character. `!=` and `notin` require the key.

use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of terms, each of which is compared with each app.
const MAX_TERMS: usize = 100;

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Exists,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

impl Selector {
    /// Parses a selector; the error contains the problem and its position.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text };
        let mut terms = Vec::new();
        loop {
            terms.push(parser.term()?);
            if terms.len() > MAX_TERMS {
                return Err(format!("the selector has more than {MAX_TERMS} terms"));
            }
            parser.space();
            if parser.rest.is_empty() {
                return Ok(Self(terms));
            }
            parser.expect(",")?;
        }
    }

    /// Whether `labels` match all terms.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| {
            labels.get(&term.key).is_some_and(|value| match &term.rule {
                Rule::Exists => true,
                Rule::In(values) => values.contains(value),
                Rule::NotIn(values) => !values.contains(value),
            })
        })
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn term(&mut self) -> Result<Term, String> {
        let key = self.word()?;
        self.space();
        let rule = if self.take("==") {
            Rule::In([self.word()?].into())
        } else if self.take("!=") {
            Rule::NotIn([self.word()?].into())
        } else if self.take("in") {
            Rule::In(self.set()?)
        } else if self.take("notin") {
            Rule::NotIn(self.set()?)
        } else {
            Rule::Exists
        };
        Ok(Term { key, rule })
    }

    fn set(&mut self) -> Result<BTreeSet<String>, String> {
        self.space();
        self.expect("(")?;
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.word()?);
            self.space();
            if self.take(")") {
                return Ok(values);
            }
            self.expect(",")?;
        }
    }

    fn word(&mut self) -> Result<String, String> {
        self.space();
        let mut word = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, char)) = chars.next() {
            if char == '\\' {
                let (_, escaped) = chars
                    .next()
                    .ok_or("a \\ at the end of the selector escapes nothing")?;
                word.push(escaped);
            } else if char.is_alphanumeric() || "-_./:".contains(char) {
                word.push(char);
            } else {
                end = at;
                break;
            }
        }
        self.rest = &self.rest[end..];
        if word.is_empty() {
            return Err(format!("a label or value was expected before '{}'", self.rest));
        }
        Ok(word)
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) {
            Ok(())
        } else {
            Err(format!("'{token}' was expected before '{}'", self.rest))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn selectors_match_labels_as_in_the_fixtures() {
        let suite: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/fixtures/label-selector.json")).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            let text = case["input"]["selector"].as_str().unwrap();
            let Some(expected) = case["expect"]["cases"].as_array() else {
                assert!(Selector::parse(text).is_err(), "{case}");
                continue;
            };
            let selector = Selector::parse(text).unwrap();
            for row in expected {
                let labels = serde_json::from_value(row["labels"].clone()).unwrap();
                assert_eq!(
                    selector.matches(&labels),
                    row["match"].as_bool().unwrap(),
                    "{} {row}",
                    case["id"]
                );
            }
        }
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for text in ["", "a,", "a in b", "a in (b", "a ==", "a b", "\\"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
        let terms = |count: usize| vec!["a"; count].join(",");
        assert!(Selector::parse(&terms(MAX_TERMS)).is_ok());
        let error = Selector::parse(&terms(MAX_TERMS + 1)).unwrap_err();
        assert!(error.contains("more than 100 terms"), "{error}");
    }
}
