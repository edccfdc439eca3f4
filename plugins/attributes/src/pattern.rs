//! Regular expressions of LIKE and UNLIKE: they match the whole text or not at all.
//!
//! The engine takes time in proportion to pattern and text, whatever an app's author writes, and
//! its `\d`, `\w` and `\s` are ASCII, as users of the language know them. It has no look-around and
//! no back references; a pattern with them is refused when the definition is posted.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use foldhash::fast::FixedState;
use regex_lite::Regex;

/// Patterns kept ready. A cluster has few; beyond this all are forgotten and made again as they are
/// asked for.
const MOST: usize = 256;

/// Texts whose result a pattern keeps, and bytes of the longest. Agents share the values of an
/// attribute, and a match takes ten times as long as looking up its result. Further texts are
/// matched each time.
const MOST_TEXTS: usize = 512;
const LONGEST_TEXT: usize = 64;

/// A pattern that matches whole texts.
#[derive(Clone, Debug)]
pub struct Pattern(Rc<Compiled>);

#[derive(Debug)]
struct Compiled {
    regex: Regex,
    results: RefCell<HashMap<Box<str>, bool, FixedState>>,
}

impl Pattern {
    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        if let Some(known) = self.0.results.borrow().get(text) {
            return *known;
        }
        let result = self.0.regex.is_match(text);
        let mut results = self.0.results.borrow_mut();
        if results.len() < MOST_TEXTS && text.len() <= LONGEST_TEXT {
            results.insert(text.into(), result);
        }
        result
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
        let pattern = Pattern(Rc::new(Compiled {
            regex: whole,
            results: RefCell::default(),
        }));
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
            // The second time from the results that are kept.
            for _ in 0..2 {
                assert_eq!(
                    cache.get(source).unwrap().matches(text),
                    expected,
                    "{source:?} and {text:?}"
                );
            }
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

    #[test]
    fn results_are_bounded_in_number_and_size() {
        let pattern = Cache::default().get("a[0-9]+").unwrap();
        let long = format!("a{}", "1".repeat(LONGEST_TEXT));
        assert!(pattern.matches(&long));
        assert_eq!(pattern.0.results.borrow().len(), 0);
        for number in 0..3 * MOST_TEXTS {
            assert!(pattern.matches(&format!("a{number}")));
            assert!(!pattern.matches(&format!("b{number}")));
        }
        assert_eq!(pattern.0.results.borrow().len(), MOST_TEXTS);
    }
}
