//! Regular expressions of LIKE and UNLIKE: they match the whole text or not at all.
//!
//! The engine's time is at most proportional to the length of the pattern times that of the text,
//! whatever pattern an app's author writes. Its `\d`, `\w` and `\s` match ASCII only, as users of the
//! constraint language expect. It has no look-around and no back references; a pattern with them is
//! rejected when the definition is posted.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use regex_lite::Regex;
use rustc_hash::FxBuildHasher;

/// Maximum number of compiled patterns in the cache. A cluster uses few; when the cache is full it is
/// cleared, and patterns are compiled again when they are next used.
const MAX_PATTERNS: usize = 256;

/// Maximum number of texts whose result a pattern caches. Agents share the values of an attribute, and
/// a match takes ten times as long as a look-up of its result. Further texts are matched each time.
const MAX_CACHED_RESULTS: usize = 512;
/// The longest text whose result is cached, in bytes.
const MAX_CACHED_TEXT_BYTES: usize = 64;

/// A pattern that matches whole texts.
#[derive(Clone, Debug)]
pub struct Pattern(Rc<CompiledPattern>);

#[derive(Debug)]
struct CompiledPattern {
    regex: Regex,
    results: RefCell<HashMap<Box<str>, bool, FxBuildHasher>>,
}

impl Pattern {
    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        if let Some(result) = self.0.results.borrow().get(text) {
            return *result;
        }
        let result = self.0.regex.is_match(text);
        let mut results = self.0.results.borrow_mut();
        if results.len() < MAX_CACHED_RESULTS && text.len() <= MAX_CACHED_TEXT_BYTES {
            results.insert(text.into(), result);
        }
        result
    }
}

/// Compiled patterns by their source. Compiling one costs more than hundreds of matches.
#[derive(Debug, Default)]
pub struct PatternCache(RefCell<BTreeMap<String, Pattern>>);

impl PatternCache {
    /// Returns the compiled pattern for this source, or the error in the source.
    pub fn get(&self, source: &str) -> Result<Pattern, String> {
        if let Some(pattern) = self.0.borrow().get(source) {
            return Ok(pattern.clone());
        }
        // The source is compiled alone first: `a)|(b` is invalid, but would be valid inside the brackets
        // of the second expression.
        let regex = Regex::new(source)
            .and_then(|_| Regex::new(&format!(r"\A(?:{source})\z")))
            .map_err(|e| e.to_string())?;
        let pattern = Pattern(Rc::new(CompiledPattern {
            regex,
            results: RefCell::default(),
        }));
        let mut patterns = self.0.borrow_mut();
        if patterns.len() >= MAX_PATTERNS {
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
        let cache = PatternCache::default();
        for (source, text, expected) in cases {
            // The second match uses the cached result.
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
    fn invalid_pattern_is_rejected() {
        for source in ["*", "(", "[a", "a)|(b", "(?!a)b", r"(a)\1"] {
            assert!(PatternCache::default().get(source).is_err(), "{source:?}");
        }
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = PatternCache::default();
        for number in 0..3 * MAX_PATTERNS {
            cache.get(&format!("a{number}")).unwrap();
            assert!(cache.0.borrow().len() <= MAX_PATTERNS);
        }
    }

    #[test]
    fn results_are_bounded_in_number_and_size() {
        let pattern = PatternCache::default().get("a[0-9]+").unwrap();
        let long = format!("a{}", "1".repeat(MAX_CACHED_TEXT_BYTES));
        assert!(pattern.matches(&long));
        assert_eq!(pattern.0.results.borrow().len(), 0);
        for number in 0..3 * MAX_CACHED_RESULTS {
            assert!(pattern.matches(&format!("a{number}")));
            assert!(!pattern.matches(&format!("b{number}")));
        }
        assert_eq!(pattern.0.results.borrow().len(), MAX_CACHED_RESULTS);
    }
}
