//! Reads the fields of a body one by one, so that all errors are reported together, each with its
//! path.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use transom_web::Problems;

/// The maximum lengths of lists and objects, far above what jobs use. The OpenAPI document has them, too.
const MAX_LENGTHS: &[(&str, usize)] = &[
    ("attributes", 200),
    ("command", 10_000),
    ("environment", 5_000),
    ("labels", 5_000),
    ("ports", 64),
    ("volumes", 1_000),
];

/// The maximum number of elements of a list or an object.
pub(super) fn max_length(name: &str) -> usize {
    let found = MAX_LENGTHS.iter().find(|(known, _)| *known == name);
    let max = found.map_or(0, |(_, max)| *max);
    #[cfg(test)]
    let max = if tests::LIFTED.get() { usize::MAX } else { max };
    max
}

/// The fields of a body, with those of `executor_config` as fallback.
pub(super) struct Fields<'a> {
    body: &'a Map<String, Value>,
    fallback: &'a Map<String, Value>,
    pub(super) problems: Problems,
}

impl<'a> Fields<'a> {
    pub(super) fn new(body: &'a Map<String, Value>, fallback: &'a Map<String, Value>) -> Self {
        Self {
            body,
            fallback,
            problems: Problems::default(),
        }
    }

    /// The first of `names` that is present, with its path. `null` counts as missing.
    pub(super) fn get(&self, names: &[&str]) -> Option<(String, &'a Value)> {
        let first_present = |map: &'a Map<String, Value>, prefix: &str| {
            names.iter().find_map(|name| {
                let value = map.get(*name).filter(|value| !value.is_null())?;
                Some((format!("{prefix}/{name}"), value))
            })
        };
        first_present(self.body, "").or_else(|| first_present(self.fallback, "/executor_config"))
    }

    /// Whether both names of a pair are present.
    pub(super) fn has_both(&self, pair: [&str; 2]) -> bool {
        pair.iter()
            .all(|name| self.body.get(*name).is_some_and(|value| !value.is_null()))
    }

    /// Reads a field with a rule that returns the value or an error.
    pub(super) fn read<T>(
        &mut self,
        names: &[&str],
        rule: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let (path, value) = self.get(names)?;
        match rule(value) {
            Ok(found) => Some(found),
            Err(error) => {
                self.problems.add(path, error);
                None
            }
        }
    }

    pub(super) fn flag(&mut self, names: &[&str]) -> Option<bool> {
        self.read(names, |value| {
            value
                .as_bool()
                .ok_or_else(|| format!("is {value}; expected true or false"))
        })
    }

    pub(super) fn text(&mut self, names: &[&str]) -> Option<String> {
        self.read(names, |value| match value.as_str().map(str::trim) {
            Some(text) if has_nul(text) => Err(NUL.to_owned()),
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(format!("is {value}; expected a non-empty string")),
        })
    }

    /// A number, also as a string. `min`: the minimum.
    pub(super) fn number(&mut self, names: &[&str], min: f64) -> Option<f64> {
        self.read(names, |value| {
            let found = match value {
                Value::Number(number) => number.as_f64(),
                Value::String(text) => text.trim().parse().ok(),
                _ => None,
            };
            found
                .filter(|number| number.is_finite() && *number >= min)
                .ok_or_else(|| format!("is {value}; expected a number of at least {min}"))
        })
    }

    /// An integer, also as a string.
    pub(super) fn integer(&mut self, names: &[&str]) -> Option<i32> {
        self.read(names, |value| {
            let found = match value {
                Value::Number(number) => number.as_i64(),
                Value::String(text) => text.trim().parse().ok(),
                _ => None,
            };
            found
                .and_then(|number| i32::try_from(number).ok())
                .ok_or_else(|| {
                    format!(
                        "is {value}; expected a whole number from {} to {}",
                        i32::MIN,
                        i32::MAX
                    )
                })
        })
    }

    /// An object of strings; numbers and booleans are converted.
    pub(super) fn texts(&mut self, names: &[&str]) -> BTreeMap<String, String> {
        let Some((path, value)) = self.get(names) else {
            return BTreeMap::new();
        };
        let Some(object) = value.as_object() else {
            self.problems
                .add(path, format!("is {}; expected an object of strings", kind(value)));
            return BTreeMap::new();
        };
        if !self.bounded(names, &path, object.len()) {
            return BTreeMap::new();
        }
        let mut found = BTreeMap::new();
        for (name, value) in object {
            match scalar(value) {
                Ok(text) if is_name(name) => {
                    found.insert(name.clone(), text);
                }
                Ok(_) => self.problems.add(
                    format!("{path}/{name}"),
                    "is not a valid name: it is empty, or contains `=` or NUL",
                ),
                Err(error) => self.problems.add(format!("{path}/{name}"), error),
            }
        }
        found
    }

    /// Whether a list or object is not too long; adds the problem if it is.
    fn bounded(&mut self, names: &[&str], path: &str, length: usize) -> bool {
        let max = names.first().map_or(0, |name| max_length(name));
        if length > max {
            let text = format!("has {length} elements; expected at most {max}");
            self.problems.add(path, text);
        }
        length <= max
    }

    /// A list, each element read with a rule.
    pub(super) fn list<T>(&mut self, names: &[&str], rule: impl Fn(&Value) -> Result<T, String>) -> Vec<T> {
        let Some((path, value)) = self.get(names) else {
            return Vec::new();
        };
        let Some(items) = value.as_array() else {
            self.problems
                .add(path, format!("is {}; expected a list", kind(value)));
            return Vec::new();
        };
        if !self.bounded(names, &path, items.len()) {
            return Vec::new();
        }
        let mut found = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match rule(item) {
                Ok(item) => found.push(item),
                Err(error) => self.problems.add(format!("{path}({index})"), error),
            }
        }
        found
    }
}

/// The error for a string with a NUL character, which ends arguments, variables and paths in the
/// operating system.
pub(super) const NUL: &str = "contains a NUL character (\\u0000); expected a string without one: arguments, variables and paths \
                              end at a NUL";

pub(super) fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

/// A string, number or boolean as the string for an argument or a variable.
///
/// # Errors
/// The problem. The value is not included because it may be a secret.
pub(super) fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if has_nul(text) => Err(NUL.to_owned()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(format!("is {}; expected a string", kind(other))),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}

/// The type of a value, without the value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Whether this thread has no maximum lengths, to measure the cost of the rules themselves.
        pub(in crate::model) static LIFTED: Cell<bool> = const { Cell::new(false) };
    }
}
