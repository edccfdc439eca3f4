//! Parses members of a JSON object and collects all problems of shape.
//!
//! The first text of each problem is the code that upstream's clients know
//! (`error.expected.jsstring`, `error.min`); if there is an explanation, it follows. A member that
//! is `null` counts as absent. The elements of a list or map that is too long ([`lengths`]) are not
//! parsed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::lengths;
use transom_web::Problems;

/// One JSON object and its path in the document.
pub(super) struct Reader<'a> {
    members: &'a Map<String, Value>,
    path: String,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    /// A reader of `members`; `path` is empty for the root object of a document.
    pub(super) fn new(
        members: &'a Map<String, Value>,
        path: impl Into<String>,
        problems: &'a mut Problems,
    ) -> Self {
        Self {
            members,
            path: path.into(),
            problems,
        }
    }

    /// The path of a member.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}/{key}", self.path)
    }

    /// Adds a problem with a member.
    pub(super) fn problem(&mut self, key: &str, text: impl Into<String>) {
        let path = self.path(key);
        self.problems.add(path, text);
    }

    /// The path of the object itself.
    pub(super) fn object_path(&self) -> String {
        if self.path.is_empty() {
            "/".to_owned()
        } else {
            self.path.clone()
        }
    }

    /// Adds a problem with the object itself.
    pub(super) fn problem_with_object(&mut self, text: impl Into<String>) {
        let path = self.object_path();
        self.problems.add(path, text);
    }

    /// The unparsed member, if it is present.
    pub(super) fn raw(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn string(&mut self, key: &str) -> Option<String> {
        let text = self.raw(key)?.as_str().map(str::to_owned);
        self.require_type(key, text, "error.expected.jsstring")
    }

    /// A text that must be present and not empty; `why` is its purpose, for the error.
    pub(super) fn required(&mut self, key: &str, why: &str) -> Option<String> {
        if self.raw(key).is_none() {
            self.problem(key, format!("is undefined: {why}"));
            return None;
        }
        let text = self.string(key)?;
        if text.is_empty() {
            self.problem(key, "error.minLength");
            return None;
        }
        Some(text)
    }

    /// A text that is not empty and has at most that many characters.
    pub(super) fn text(&mut self, key: &str, max: usize) -> Option<String> {
        let text = self.string(key)?;
        if text.is_empty() {
            self.problem(key, "error.minLength");
        }
        if text.chars().count() > max {
            self.problem(key, "error.maxLength");
        }
        Some(text)
    }

    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        let flag = self.raw(key)?.as_bool();
        self.require_type(key, flag, "error.expected.jsboolean")
    }

    /// A number of `min` or more.
    pub(super) fn number(&mut self, key: &str, min: f64) -> Option<f64> {
        let number = self.raw(key)?.as_f64();
        let number = self.require_type(key, number, "error.expected.jsnumber")?;
        if number < min {
            self.problem(key, "error.min");
            self.problem(key, format!("got {number:?}, expected {min:?} or more"));
            return None;
        }
        Some(number)
    }

    /// A number from 0 to 1.
    pub(super) fn fraction(&mut self, key: &str) -> Option<f64> {
        let number = self.raw(key)?.as_f64();
        let number = self.require_type(key, number, "error.expected.jsnumber")?;
        if !(0.0..=1.0).contains(&number) {
            self.problem(key, if number < 0.0 { "error.min" } else { "error.max" });
            self.problem(key, format!("got {number:?}, expected between 0.0 and 1.0"));
            return None;
        }
        Some(number)
    }

    /// An integer from 0 to upstream's maximum for most integers.
    pub(super) fn count(&mut self, key: &str) -> Option<u32> {
        let number = self.integer_up_to(key, i64::from(i32::MAX))?;
        u32::try_from(number).ok()
    }

    /// An integer of 0 or more.
    pub(super) fn integer(&mut self, key: &str) -> Option<u64> {
        let number = self.integer_up_to(key, i64::MAX)?;
        u64::try_from(number).ok()
    }

    /// An integer from 0 to `max`.
    fn integer_up_to(&mut self, key: &str, max: i64) -> Option<i64> {
        let value = self.raw(key)?;
        self.number_of(key, value, max)
    }

    /// `value`, the value of `key`, as an integer from 0 to `max`.
    pub(super) fn number_of(&mut self, key: &str, value: &Value, max: i64) -> Option<i64> {
        // 2.0 is an integer too, as in upstream's parser.
        let integer_up_to = value.as_i64().or_else(|| {
            value
                .as_f64()
                .filter(|n| n.fract() == 0.0 && n.abs() < 1e15)
                .map(|n| n as i64)
        });
        let Some(number) = integer_up_to else {
            self.problem(key, "error.expected.jsnumber");
            self.problem(key, format!("got {}, expected a whole number", shown(value)));
            return None;
        };
        if number < 0 {
            self.problem(key, "error.min");
            self.problem(key, format!("got {number}, expected 0 or more"));
            return None;
        }
        if number > max {
            self.problem(key, "error.max");
            self.problem(key, format!("got {number}, expected {max} or less"));
            return None;
        }
        Some(number)
    }

    /// A port number, 0 included.
    pub(super) fn port(&mut self, key: &str) -> Option<u16> {
        let number = self.integer_up_to(key, i64::from(u16::MAX))?;
        u16::try_from(number).ok()
    }

    pub(super) fn strings(&mut self, key: &str) -> Option<Vec<String>> {
        let items = self.array(key)?;
        Some(self.texts_of(key, items).unwrap_or_default())
    }

    /// The texts in the list `key`; `None`, and a problem of each item that is no text, if there is
    /// one.
    pub(super) fn texts_of(&mut self, key: &str, items: &[Value]) -> Option<Vec<String>> {
        let texts: Option<Vec<String>> = items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect();
        if texts.is_none() {
            for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.is_string()) {
                self.wrong_type(&format!("{key}({index})"), item, "error.expected.jsstring");
            }
        }
        texts
    }

    /// An object whose values are texts.
    pub(super) fn texts(&mut self, key: &str) -> Option<BTreeMap<String, String>> {
        let members = self.map(key)?;
        let mut texts = BTreeMap::new();
        for (name, value) in members {
            match value.as_str() {
                Some(text) => drop(texts.insert(name.clone(), text.to_owned())),
                None => self.wrong_type(&format!("{key}/{name}"), value, "error.expected.jsstring"),
            }
        }
        Some(texts)
    }

    pub(super) fn array(&mut self, key: &str) -> Option<&'a Vec<Value>> {
        let items = self.raw(key)?.as_array();
        let items = self.require_type(key, items, "error.expected.jsarray")?;
        self.bounded(key, items.len()).then_some(items)
    }

    /// An object whose members the client names.
    pub(super) fn map(&mut self, key: &str) -> Option<&'a Map<String, Value>> {
        let members = self.object(key)?;
        self.bounded(key, members.len()).then_some(members)
    }

    fn bounded(&mut self, key: &str, length: usize) -> bool {
        let problem = lengths::too_long(key, length);
        if let Some(text) = &problem {
            self.problem(key, "error.maxLength");
            self.problem(key, text.as_str());
        }
        problem.is_none()
    }

    pub(super) fn object(&mut self, key: &str) -> Option<&'a Map<String, Value>> {
        let members = self.raw(key)?.as_object();
        self.require_type(key, members, "error.expected.jsobject")
    }

    /// An object, parsed by `read`.
    pub(super) fn nested<T>(&mut self, key: &str, read: impl FnOnce(&mut Reader<'_>) -> T) -> Option<T> {
        let members = self.object(key)?;
        let path = self.path(key);
        Some(read(&mut Reader {
            members,
            path,
            problems: self.problems,
        }))
    }

    /// An array of objects, each parsed by `read`.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(&mut Reader<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.array(key)?;
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = self.path(&format!("{key}({index})"));
            match item.as_object() {
                Some(members) => list.extend(read(&mut Reader {
                    members,
                    path,
                    problems: self.problems,
                })),
                None => self.wrong_type(&format!("{key}({index})"), item, "error.expected.jsobject"),
            }
        }
        Some(list)
    }

    fn require_type<T>(&mut self, key: &str, value: Option<T>, error: &str) -> Option<T> {
        if value.is_none() {
            let found = self.raw(key).unwrap_or(&Value::Null);
            self.wrong_type(key, found, error);
        }
        value
    }

    /// Adds the problem of a value of another type: upstream's code, and what was found and
    /// expected.
    pub(super) fn wrong_type(&mut self, key: &str, found: &Value, error: &str) {
        let expected = match error {
            "error.expected.jsstring" => "a string",
            "error.expected.jsnumber" => "a number",
            "error.expected.jsboolean" => "true or false",
            "error.expected.jsarray" => "a list",
            _ => "an object",
        };
        self.problem(key, error);
        self.problem(key, format!("got {}, expected {expected}", shown(found)));
    }
}

/// A value for the text of a problem.
pub(super) fn shown(value: &Value) -> String {
    const MAX_CHARACTERS: usize = 60;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => match text.char_indices().nth(MAX_CHARACTERS) {
            Some((end, _)) => format!("the string {:?}…", &text[..end]),
            None => format!("the string {text:?}"),
        },
        other => other.to_string(),
    }
}

/// The problems of all strings and names of members that contain a NUL character: no command line,
/// environment or path can have one, so a task would run without the rest of the text.
pub(super) fn nul_characters(document: &Value) -> Problems {
    const TEXT: &str = "must not contain a NUL character";
    let mut problems = Problems::default();
    let mut open = vec![(String::new(), document)];
    // Most documents have none, and need no paths.
    if !has_nul(document) {
        return problems;
    }
    while let Some((path, value)) = open.pop() {
        match value {
            Value::String(text) if text.contains('\0') => problems.add(path, TEXT),
            Value::Array(items) => {
                let items = items.iter().enumerate().filter(|(_, item)| has_nul(item));
                open.extend(items.map(|(index, item)| (format!("{path}({index})"), item)));
            }
            Value::Object(members) => {
                for (index, (name, value)) in members.iter().enumerate() {
                    if name.contains('\0') {
                        problems.add(format!("{path}/keys({index})"), TEXT);
                    }
                    if has_nul(value) {
                        open.push((format!("{path}/{}", name.replace('\0', "\u{fffd}")), value));
                    }
                }
            }
            _ => {}
        }
    }
    problems.sorted()
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// Parses one of several texts.
pub(super) fn read_choice<T: Copy>(reader: &mut Reader<'_>, key: &str, choices: &[(&str, T)]) -> Option<T> {
    let text = reader.string(key)?;
    let choice = choices
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value);
    if choice.is_none() {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        reader.problem(key, "error.unknown.enum.literal");
        reader.problem(key, format!("got {text}, expected one of: {}", names.join(", ")));
    }
    choice
}
