//! `--set KEY=VALUE` and `--unset KEY`: changes of single values in a definition.
//!
//! A key is a path with dots: `container.docker.image`, `healthChecks.0.path`. A dot that belongs to
//! a name is written `\.`.

use serde_json::{Map, Value};

/// The deepest path.
const MAX_DEPTH: usize = 32;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    path: Vec<String>,
    /// `None`: the member is removed.
    value: Option<String>,
}

/// Members whose values are always strings, even if they look like JSON.
const STRING_MAPS: &[&str] = &["env", "environment", "labels"];

/// Parses `KEY=VALUE`.
pub(super) fn parse(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok(Setting {
        path: parse_path(key)?,
        value: Some(value.to_owned()),
    })
}

/// Parses the key of a value to remove.
pub(super) fn parse_key(text: &str) -> Result<Setting, String> {
    Ok(Setting {
        path: parse_path(text)?,
        value: None,
    })
}

fn parse_path(key: &str) -> Result<Vec<String>, String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut characters = key.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => part.extend(characters.next()),
            '.' => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    if parts.iter().any(String::is_empty) || parts.len() > MAX_DEPTH {
        return Err(format!("{key:?} is not a path such as instances or env.NAME"));
    }
    if parts[0] == "id" {
        return Err("an id cannot be changed".to_owned());
    }
    Ok(parts)
}

impl Setting {
    /// The member of the definition in which the change lies.
    pub(super) fn member(&self) -> &str {
        &self.path[0]
    }

    /// Carries out the change.
    pub(super) fn apply(&self, definition: &mut Value) -> Result<(), String> {
        let in_string_map =
            self.path.len() > 1 && STRING_MAPS.contains(&self.path[self.path.len() - 2].as_str());
        let mut target = definition;
        let (name, parents) = self.path.split_last().ok_or("an empty path")?;
        for (depth, part) in parents.iter().enumerate() {
            let missing = || format!("{} does not exist", self.path[..=depth].join("."));
            target = match target {
                Value::Array(list) => {
                    let index = part.parse::<usize>().ok();
                    index.and_then(|index| list.get_mut(index)).ok_or_else(missing)?
                }
                target => {
                    if target.is_null() && self.value.is_some() {
                        *target = Value::Object(Map::new());
                    }
                    let members = target
                        .as_object_mut()
                        .ok_or_else(|| format!("{} has no members", self.path[..depth].join(".")))?;
                    match (&self.value, members.contains_key(part)) {
                        (None, false) => return Err(missing()),
                        _ => members.entry(part.clone()).or_insert(Value::Null),
                    }
                }
            };
        }
        match target {
            Value::Array(list) => {
                let index = name.parse::<usize>().ok();
                let out_of_range =
                    || format!("{}: the list has {} elements", self.path.join("."), list.len());
                let index = index
                    .filter(|index| *index <= list.len())
                    .ok_or_else(out_of_range)?;
                match (&self.value, index < list.len()) {
                    (Some(text), true) => list[index] = parse_value(text, &list[index], in_string_map),
                    (Some(text), false) => list.push(parse_value(text, &Value::Null, in_string_map)),
                    (None, true) => drop(list.remove(index)),
                    (None, false) => return Err(out_of_range()),
                }
            }
            target => {
                if target.is_null() && self.value.is_some() {
                    *target = Value::Object(Map::new());
                }
                let parent = self.path[..self.path.len() - 1].join(".");
                let members = target
                    .as_object_mut()
                    .ok_or_else(|| format!("{parent} has no members"))?;
                if let Some(text) = &self.value {
                    let present = members.get(name).unwrap_or(&Value::Null);
                    let value = parse_value(text, present, in_string_map);
                    members.insert(name.clone(), value);
                } else {
                    let removed = members.remove(name);
                    removed.ok_or_else(|| format!("{} does not exist", self.path.join(".")))?;
                }
            }
        }
        Ok(())
    }
}

/// Parses a value. It is a string if the present value is one or the place requires one; otherwise it
/// is parsed as JSON, and is a string if it is not valid JSON.
fn parse_value(text: &str, present: &Value, in_string_map: bool) -> Value {
    if in_string_map || present.is_string() {
        return Value::String(text.to_owned());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(definition: Value, text: &str) -> Result<Value, String> {
        let mut definition = definition;
        parse(text)?.apply(&mut definition)?;
        Ok(definition)
    }

    #[test]
    fn value_is_json_unless_a_string_is_expected() {
        for (definition, text, expected) in [
            (json!({"instances": 1}), "instances=3", json!({"instances": 3})),
            (json!({}), "cpus=0.5", json!({"cpus": 0.5})),
            (json!({"cmd": "a"}), "cmd=true", json!({"cmd": "true"})),
            (json!({}), "cmd=sleep 1", json!({"cmd": "sleep 1"})),
            (json!({}), "env.A=1", json!({"env": {"A": "1"}})),
            (json!({}), "env.A=x=y", json!({"env": {"A": "x=y"}})),
            (
                json!({"labels": null}),
                r"labels.a\.b=c",
                json!({"labels": {"a.b": "c"}}),
            ),
            (
                json!({"args": ["a", "b"]}),
                "args.1=c",
                json!({"args": ["a", "c"]}),
            ),
            (json!({"args": ["a"]}), "args.1=c", json!({"args": ["a", "c"]})),
            (
                json!({"container": {"docker": {"image": "a:1"}}}),
                "container.docker.image=a:2",
                json!({"container": {"docker": {"image": "a:2"}}}),
            ),
            (
                json!({}),
                r#"constraints=[["hostname","UNIQUE"]]"#,
                json!({"constraints": [["hostname", "UNIQUE"]]}),
            ),
        ] {
            assert_eq!(set(definition, text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn impossible_setting_is_rejected_with_its_place() {
        for (definition, text, part) in [
            (json!({}), "cpus", "KEY=VALUE"),
            (json!({}), "=1", "is not a path"),
            (json!({}), "a..b=1", "is not a path"),
            (json!({}), "id=/x", "id cannot"),
            (json!({"args": []}), "args.2=x", "0 elements"),
            (json!({"args": []}), "args.0.x=1", "args.0 does not exist"),
            (json!({"cpus": 1}), "cpus.x=1", "cpus has no members"),
        ] {
            let error = set(definition, text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn unset_removes_what_exists() {
        let mut definition = json!({"env": {"A": "1", "B": "2"}, "args": ["a", "b"]});
        for key in ["env.A", "args.0"] {
            parse_key(key)
                .and_then(|key| key.apply(&mut definition))
                .expect("removed");
        }
        assert_eq!(definition, json!({"env": {"B": "2"}, "args": ["b"]}));
        for key in ["env.A", "labels.x", "args.1"] {
            assert!(
                parse_key(key).and_then(|key| key.apply(&mut definition)).is_err(),
                "{key}"
            );
        }
    }
}
