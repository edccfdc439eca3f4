//! Differences of definitions, field by field.

use serde_json::{Value, json};

use super::document;
use super::id::Kind;

/// A field with different values. None: the field is missing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) path: String,
    pub(super) old: Option<Value>,
    pub(super) new: Option<Value>,
}

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All fields of both documents.
    AllFields,
    /// Only the fields of the new document, because an update changes no others.
    NewFields,
}

/// The differences between two definitions.
pub(super) fn compare(old: &Value, new: &Value, scope: Scope) -> Vec<Difference> {
    let mut differences = Vec::new();
    walk("", Some(old), Some(new), scope, &mut differences);
    differences
}

fn walk(
    path: &str,
    old: Option<&Value>,
    new: Option<&Value>,
    scope: Scope,
    differences: &mut Vec<Difference>,
) {
    let child_path = |name: &str| {
        // The form of a key that `--set` accepts.
        let name = name.replace('\\', r"\\").replace('.', r"\.");
        if path.is_empty() {
            name
        } else {
            format!("{path}.{name}")
        }
    };
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut names: Vec<&String> = new.keys().collect();
            if scope == Scope::AllFields {
                names.extend(old.keys().filter(|name| !new.contains_key(*name)));
            }
            names.sort();
            for name in names {
                walk(
                    &child_path(name),
                    old.get(name),
                    new.get(name),
                    scope,
                    differences,
                );
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                walk(
                    &child_path(&index.to_string()),
                    old.get(index),
                    new.get(index),
                    scope,
                    differences,
                );
            }
        }
        (old, new) if is_same(old, new) => {}
        // Each member of a new or removed object is a difference.
        (None | Some(Value::Null), Some(Value::Object(_))) => {
            walk(path, Some(&json!({})), new, Scope::AllFields, differences);
        }
        (Some(Value::Object(_)), None | Some(Value::Null)) => {
            walk(path, old, Some(&json!({})), Scope::AllFields, differences);
        }
        (old, new) => differences.push(Difference {
            path: path.to_owned(),
            old: old.filter(|value| !value.is_null()).cloned(),
            new: new.filter(|value| !value.is_null()).cloned(),
        }),
    }
}

/// Whether two values are equal. Numbers are compared by value; null, an empty list and an empty object
/// are equal to a missing value.
fn is_same(old: Option<&Value>, new: Option<&Value>) -> bool {
    let is_empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(members)) => members.is_empty(),
        Some(_) => false,
    };
    if let (Some(old), Some(new)) = (old.and_then(Value::as_f64), new.and_then(Value::as_f64)) {
        return (old - new).abs() < f64::EPSILON;
    }
    old == new || is_empty(old) && is_empty(new)
}

/// The differences between existing apps, pods and groups and a group's document. Lists in the document
/// are complete: existing members that they do not name would be deleted.
pub(super) fn compare_group(old: Option<&Value>, new: &Value) -> Vec<(String, Vec<Difference>)> {
    let base = document::id(new).unwrap_or_else(|| "/".to_owned());
    let mut differences_by_id = Vec::new();
    compare_members(&base, old, new, &mut differences_by_id);
    differences_by_id
}

fn compare_members(
    base: &str,
    old: Option<&Value>,
    new: &Value,
    differences_by_id: &mut Vec<(String, Vec<Difference>)>,
) {
    let resolved = |one: &Value| {
        let id = one["id"].as_str().unwrap_or_default();
        if id.starts_with('/') {
            id.to_owned()
        } else {
            format!("{}/{id}", base.trim_end_matches('/'))
        }
    };
    let list = |document: Option<&Value>, key: &str| -> Vec<Value> {
        let list = document.and_then(|document| document[key].as_array());
        list.cloned().unwrap_or_default()
    };
    for (key, kind) in [("apps", Kind::App), ("pods", Kind::Pod), ("groups", Kind::Group)] {
        let Some(wanted) = new[key].as_array() else {
            continue;
        };
        let present = list(old, key);
        for one in wanted {
            let id = resolved(one);
            let existing = present.iter().find(|present| present["id"] == id.as_str());
            if kind == Kind::Group {
                compare_members(&id, existing, one, differences_by_id);
                continue;
            }
            let spec = |one: &Value| {
                let spec = one.get("spec").unwrap_or(one);
                let mut spec = document::comparable(spec.clone());
                spec["id"] = json!(id);
                // Dependencies are not compared, because a document may contain them as relative ids.
                if let Some(members) = spec.as_object_mut() {
                    members.remove("dependencies");
                }
                spec
            };
            let differences = match existing {
                Some(existing) => compare(&spec(existing), &spec(one), Scope::NewFields),
                None => vec![whole_difference(kind, None, Some(one))],
            };
            if !differences.is_empty() {
                differences_by_id.push((id, differences));
            }
        }
        for one in present {
            let id = one["id"].as_str().unwrap_or_default().to_owned();
            if wanted.iter().all(|wanted| resolved(wanted) != id) {
                differences_by_id.push((id, vec![whole_difference(kind, Some(&one), None)]));
            }
        }
    }
}

/// The difference for an app, pod or group that is new or deleted as a whole.
fn whole_difference(kind: Kind, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let present = |one: Option<&Value>| one.map(|_| json!(kind.name()));
    Difference {
        path: String::new(),
        old: present(old),
        new: present(new),
    }
}

/// The differences as lines: `+` for a new field, `-` for a removed one, `~` for another value.
pub(super) fn lines(differences: &[Difference]) -> Vec<String> {
    let width = differences
        .iter()
        .map(|one| one.path.chars().count())
        .max()
        .unwrap_or(0);
    let line = |one: &Difference| {
        let path = format!("{:width$}", one.path);
        match (&one.old, &one.new) {
            (Some(old), Some(new)) => format!("~ {path}  {old} → {new}"),
            (None, Some(new)) => format!("+ {path}  {new}"),
            (Some(old), None) => format!("- {path}  {old}"),
            (None, None) => format!("  {path}"),
        }
    };
    differences
        .iter()
        .map(line)
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// The differences as JSON.
pub(super) fn document(differences: &[Difference]) -> Value {
    let differences = differences
        .iter()
        .map(|one| json!({"path": one.path, "old": one.old, "new": one.new}));
    Value::Array(differences.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_listed_field_by_field() {
        let old = json!({"cpus": 1.0, "env": {"A": "1", "B": "2"}, "args": ["a"], "mem": 32, "labels": {}, "check": {"tcp": {}}});
        let new = json!({"cpus": 1, "env": {"A": "1", "C.D": "3"}, "args": ["b", "c"], "mem": 64, "upgrade": {"a": {"b": 1}}});
        assert_eq!(
            lines(&compare(&old, &new, Scope::AllFields)),
            [
                r#"~ args.0       "a" → "b""#,
                r#"+ args.1       "c""#,
                r#"- env.B        "2""#,
                r#"+ env.C\.D     "3""#,
                "~ mem          32 → 64",
                "+ upgrade.a.b  1",
            ]
        );
        let differences = compare(&old, &json!({"mem": 64, "cpus": 1}), Scope::NewFields);
        assert_eq!(lines(&differences), ["~ mem  32 → 64"]);
        assert_eq!(
            document(&differences),
            json!([{"path": "mem", "old": 32, "new": 64}])
        );
        assert!(compare(&old, &old, Scope::AllFields).is_empty());
    }

    #[test]
    fn group_is_compared_with_what_it_names_and_deletes() {
        let old = json!({
            "id": "/shop", "apps": [{"id": "/shop/a", "cpus": 1}, {"id": "/shop/b"}],
            "groups": [{"id": "/shop/kept", "apps": []}],
        });
        let new = json!({"id": "/shop", "apps": [{"id": "a", "cpus": 2}, {"id": "c"}]});
        let actual: Vec<(String, Vec<String>)> = compare_group(Some(&old), &new)
            .into_iter()
            .map(|(id, differences)| (id, lines(&differences)))
            .collect();
        let expected = [
            ("/shop/a", "~ cpus  1 → 2"),
            ("/shop/c", r#"+   "app""#),
            ("/shop/b", r#"-   "app""#),
        ];
        assert_eq!(actual.len(), expected.len(), "{actual:?}");
        for ((id, lines), (expected_id, line)) in actual.iter().zip(expected) {
            assert_eq!((id.as_str(), lines[0].as_str()), (expected_id, line));
        }
    }
}
