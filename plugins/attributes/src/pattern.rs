//! Regular expressions of LIKE and UNLIKE: they match the whole text or not at all.
//!
//! The engine takes time in proportion to pattern and text, whatever an app's author writes, and
//! its `\d`, `\w` and `\s` are ASCII, as users of the language know them. It has no look-around and
//! no back references; a pattern with them is refused when the definition is posted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use regex_lite::Regex;

/// Patterns kept ready. A cluster has few; beyond this all are forgotten and made again as they are
/// asked for.
const MOST: usize = 256;

/// A pattern that matches whole texts.
#[derive(Clone, Debug)]
pub struct Pattern(Rc<Regex>);

impl Pattern {
    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Patterns by their source. Making one costs more than hundreds of matches.
#[derive(Debug, Default)]
pub struct Cache(RefCell<BTreeMap<String, Pattern>>);

impl Cache {
    /// The pattern of this source, or what is wrong with it.
    pub fn get(&self, source: &str) -> Result<Pattern, String> {
        if let Some(pattern) = self.0.borrow().get(source) {
            return Ok(pattern.clone());
        }
        // Alone first: `a)|(b` would be a pattern between the brackets below, but is none.
        let whole = Regex::new(source)
            .and_then(|_| Regex::new(&format!(r"\A(?:{source})\z")))
            .map_err(|e| e.to_string())?;
        let pattern = Pattern(Rc::new(whole));
        let mut patterns = self.0.borrow_mut();
        if patterns.len() >= MOST {
            patterns.clear();
        }
        patterns.insert(source.to_owned(), pattern.clone());
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_texts() {
        let cases = [
            ("7", "7", true),
            ("7", "17", false),
            ("a|ab", "ab", true),
            ("rack-[1-3]", "rack-2", true),
            ("rack-[1-3]", "rack-22", false),
            (r"\{0,1\}", "{0,1}", true),
            (r"\[6-7\]", "[6-7]", true),
            (".*", "", true),
            ("(?i)RACK.*", "rack-1", true),
            (r"\d+", "\u{663}", false),
        ];
        let cache = Cache::default();
        for (source, text, expected) in cases {
            assert_eq!(
                cache.get(source).unwrap().matches(text),
                expected,
                "{source:?} and {text:?}"
            );
        }
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for source in ["*", "(", "[a", "a)|(b", "(?!a)b", r"(a)\1"] {
            assert!(Cache::default().get(source).is_err(), "{source:?}");
        }
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = Cache::default();
        for number in 0..3 * MOST {
            cache.get(&format!("a{number}")).unwrap();
            assert!(cache.0.borrow().len() <= MOST);
        }
    }
}
