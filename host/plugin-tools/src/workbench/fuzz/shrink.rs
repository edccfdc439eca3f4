//! Reduces a document while it still causes the same fault.

use serde_json::Value;

/// A path in a document: indices of members and items.
type Place = Vec<usize>;

/// Returns all documents that are one step smaller, the largest steps first.
pub(super) fn smaller(document: &Value) -> Vec<Value> {
    let mut places = Vec::new();
    collect(document, &mut Vec::new(), &mut places);
    let mut found = Vec::new();
    // Whole members come first, from the outside in.
    places.sort_by_key(Vec::len);
    for place in &places {
        if let Some((at, parent)) = place.split_last() {
            let mut copy = document.clone();
            if remove(node(&mut copy, parent), *at) {
                found.push(copy);
            }
        }
    }
    for place in &places {
        let mut copy = document.clone();
        for simple in simpler(node(&mut copy, place)) {
            let mut copy = document.clone();
            *node(&mut copy, place) = simple;
            found.push(copy);
        }
    }
    found
}

fn collect(value: &Value, place: &mut Place, places: &mut Vec<Place>) {
    places.push(place.clone());
    let children: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    for (at, child) in children.into_iter().enumerate() {
        place.push(at);
        collect(child, place, places);
        place.pop();
    }
}

/// Returns the value at a path of this document.
fn node<'a>(value: &'a mut Value, place: &[usize]) -> &'a mut Value {
    let Some((at, rest)) = place.split_first() else {
        return value;
    };
    let child = match value {
        Value::Array(items) => items.get_mut(*at),
        Value::Object(members) => members.values_mut().nth(*at),
        _ => None,
    };
    match child {
        Some(child) => node(child, rest),
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
    fn shrunk(mut document: Value, has: impl Fn(&Value) -> bool) -> Value {
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
        let with_p = shrunk(document.clone(), |it| it.to_string().contains('P'));
        assert_eq!(with_p, json!({ "a": [{ "b": "P" }] }));
        let large = |it: &Value| it["d"]["e"].as_u64().is_some_and(|it| it > 100);
        assert_eq!(shrunk(document, large), json!({ "d": { "e": 112 } }));
    }
}
