//! Generates values of the types that the worlds share: texts, bytes, numbers, documents.

use serde_json::{Map, Value, json};
use transom_common::text::hex;

use super::random::Random;

/// Texts that often reveal errors, such as empty and very long ones, control characters and unusual
/// Unicode.
const TEXTS: &[&str] = &[
    "",
    " ",
    "/",
    "//",
    "/app",
    "/group/app",
    "a",
    "A",
    "0",
    "-1",
    "1.5",
    "18446744073709551616",
    "true",
    "null",
    "{}",
    "[]",
    "*",
    "(",
    "a:b",
    "a\nb",
    "\0",
    "\u{feff}",
    "\u{202e}x",
    "é",
    "😀",
    "%00",
];

/// Generates values. Texts of the plugin's configuration and self-tests occur often, so that the
/// code paths for them are reached.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) random: Random,
    words: Vec<String>,
}

impl Values {
    /// `examples`: documents whose texts and keys are used as words.
    pub(super) fn new(seed: u64, examples: &[&Value]) -> Values {
        let mut words = Vec::new();
        for example in examples {
            collect_words(example, &mut words);
        }
        words.sort();
        words.dedup();
        Values {
            random: Random::new(seed),
            words,
        }
    }

    pub(super) fn text(&mut self) -> String {
        match self.random.below(10) {
            0..4 if !self.words.is_empty() => self.random.pick(&self.words).clone(),
            0..8 => (*self.random.pick(TEXTS)).to_owned(),
            8 => {
                let length = *self.random.pick(&[2, 63, 64, 255, 256, 4096]);
                "x".repeat(length)
            }
            _ => {
                let length = 1 + self.random.below(12);
                let letter = |random: &mut Random| char::from(b'a' + random.below(26) as u8);
                (0..length).map(|_| letter(&mut self.random)).collect()
            }
        }
    }

    /// Generates a text, or `None` in one of two cases.
    pub(super) fn maybe_text(&mut self) -> Option<String> {
        self.random.one_in(2).then(|| self.text())
    }

    pub(super) fn texts(&mut self, max: usize) -> Vec<String> {
        (0..self.random.below(max + 1)).map(|_| self.text()).collect()
    }

    pub(super) fn pairs(&mut self, max: usize) -> Vec<(String, String)> {
        let number = self.random.below(max + 1);
        (0..number).map(|_| (self.text(), self.text())).collect()
    }

    /// Generates at most `max` bytes, as a text or as `{ hex = … }`.
    pub(super) fn bytes(&mut self, max: usize) -> Value {
        if self.random.one_in(3) {
            let length = (1 + self.random.below(16)).min(max);
            let bytes: Vec<u8> = (0..length).map(|_| self.random.below(256) as u8).collect();
            return json!({ "hex": hex(&bytes) });
        }
        let mut text = self.text();
        while text.len() > max {
            text.pop();
        }
        text.into()
    }

    /// Generates an integer within these bounds, often at a bound. `max` is not 0.
    pub(super) fn integer(&mut self, min: u64, max: u64) -> u64 {
        let span = (max - min).saturating_add(1);
        let bounds = [min, min.saturating_add(1), 2, 10, max / 2, max - 1, max];
        let found = match self.random.below(3) {
            0 => min + self.random.next() % span,
            1 => min.saturating_add(self.random.next() % 16),
            _ => *self.random.pick(&bounds),
        };
        found.clamp(min, max)
    }

    pub(super) fn number(&mut self) -> f64 {
        *self
            .random
            .pick(&[0.0, -0.0, 1.0, -1.0, 0.1, 8.0, 1e21, f64::MAX, f64::MIN_POSITIVE])
    }

    /// Generates any JSON value, nested to a depth of at most `depth`.
    pub(super) fn document(&mut self, depth: usize) -> Value {
        match self.random.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => self.random.one_in(2).into(),
            2 => self.integer(0, u64::MAX).into(),
            3 => i64::try_from(self.integer(0, 1 << 40)).map_or(Value::Null, |it| (-it).into()),
            4 => json!(self.number()),
            5 => self.text().into(),
            6 => {
                let number = self.random.below(4);
                (0..number).map(|_| self.document(depth - 1)).collect()
            }
            _ => Value::Object(self.members(depth - 1)),
        }
    }

    /// Generates any JSON object.
    pub(super) fn members(&mut self, depth: usize) -> Map<String, Value> {
        let number = self.random.below(4);
        (0..number).map(|_| (self.text(), self.document(depth))).collect()
    }
}

fn collect_words(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::String(text) => words.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|it| collect_words(it, words)),
        Value::Object(members) => {
            for (key, item) in members {
                words.push(key.clone());
                collect_words(item, words);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_within_their_bounds_and_reach_both() {
        let mut values = Values::new(5, &[]);
        for (min, max) in [(0, 1), (1, 65_535), (7, 7), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let found: Vec<u64> = (0..300).map(|_| values.integer(min, max)).collect();
            assert!(found.iter().all(|it| (min..=max).contains(it)), "{min} {max}");
            assert!(found.contains(&min) && found.contains(&max), "{min} {max}");
        }
    }

    #[test]
    fn words_of_the_examples_occur_and_bytes_are_not_more_than_allowed() {
        let example = serde_json::json!({ "rack": ["r1", { "zone": "z1" }] });
        let mut values = Values::new(5, &[&example]);
        let found: Vec<String> = (0..300).map(|_| values.text()).collect();
        for word in ["rack", "r1", "zone", "z1", "", "\0"] {
            assert!(found.iter().any(|it| it == word), "{word:?}");
        }
        for max in [0, 1, 3] {
            for _ in 0..100 {
                let bytes = match values.bytes(max) {
                    Value::String(text) => text.len(),
                    hex => hex["hex"].as_str().unwrap().len() / 2,
                };
                assert!(bytes <= max);
            }
        }
    }
}
