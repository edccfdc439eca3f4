//! Reduces a document while it still causes the same fault.

use serde_json::Value;

/// A path in a document: indices of members and items.
type Path = Vec<usize>;

/// Returns all documents that are one step smaller, the largest steps first.
pub(super) fn smaller(document: &Value) -> Vec<Value> {
    let mut paths = Vec::new();
    collect_paths(document, &mut Vec::new(), &mut paths);
    let mut found = Vec::new();
    // Whole members come first, from the outside in.
    paths.sort_by_key(Vec::len);
    for path in &paths {
        if let Some((at, parent)) = path.split_last() {
            let mut copy = document.clone();
            if remove(value_at(&mut copy, parent), *at) {
                found.push(copy);
            }
        }
    }
    for path in &paths {
        let mut copy = document.clone();
        for simple in simpler(value_at(&mut copy, path)) {
            let mut copy = document.clone();
            *value_at(&mut copy, path) = simple;
            found.push(copy);
        }
    }
    found
}

fn collect_paths(value: &Value, path: &mut Path, paths: &mut Vec<Path>) {
    paths.push(path.clone());
    let children: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    for (at, child) in children.into_iter().enumerate() {
        path.push(at);
        collect_paths(child, path, paths);
        path.pop();
    }
}

/// Returns the value at a path of this document.
fn value_at<'a>(value: &'a mut Value, path: &[usize]) -> &'a mut Value {
    let Some((at, remaining)) = path.split_first() else {
        return value;
    };
    let child = match value {
        Value::Array(items) => items.get_mut(*at),
        Value::Object(members) => members.values_mut().nth(*at),
        _ => None,
    };
    match child {
        Some(child) => value_at(child, remaining),
        None => unreachable!("the place is of this document"),
    }
}

fn remove(parent: &mut Value, at: usize) -> bool {
    match parent {
        Value::Array(items) => {
            items.remove(at);
            true
        }
        Value::Object(members) => {
            let name = members.keys().nth(at).cloned();
            name.is_some_and(|name| members.remove(&name).is_some())
        }
        _ => false,
    }
}

/// Returns simpler values of the same type.
fn simpler(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) if !text.is_empty() => {
            let letters: Vec<char> = text.chars().collect();
            let half = letters.len() / 2;
            let mut found = vec![String::new()];
            if half > 0 {
                found.push(letters[..half].iter().collect());
                found.push(letters[half..].iter().collect());
            }
            found.into_iter().map(Value::from).collect()
        }
        Value::Number(number) => match number.as_u64() {
            Some(0) => Vec::new(),
            Some(1) | None => vec![0.into()],
            Some(number) => vec![0.into(), 1.into(), (number / 2).into()],
        },
        Value::Bool(true) => vec![false.into()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the smallest document found that still satisfies `has`.
    fn shrink(mut document: Value, has: impl Fn(&Value) -> bool) -> Value {
        while let Some(next) = smaller(&document).into_iter().find(|it| has(it)) {
            document = next;
        }
        document
    }

    #[test]
    fn shrinking_leaves_only_the_cause() {
        let document = json!({
            "a": [1, { "b": "xxxxPxxx", "c": null }, [2]],
            "d": { "e": 900 },
        });
        let with_p = shrink(document.clone(), |it| it.to_string().contains('P'));
        assert_eq!(with_p, json!({ "a": [{ "b": "P" }] }));
        let large = |it: &Value| it["d"]["e"].as_u64().is_some_and(|it| it > 100);
        assert_eq!(shrink(document, large), json!({ "d": { "e": 112 } }));
    }
}
