//! Generates configurations: changed copies of the manifest's configuration, and documents made
//! from the schema. Their values are often at the bounds of the schema or outside of them.

use serde_json::{Map, Value};

use super::values::Values;

/// Maximum depth of a document made from a schema.
const MAX_DEPTH: usize = 6;

/// Generates a document for `configure`.
pub(super) fn configuration(schema: Option<&Value>, manifest_config: &Value, values: &mut Values) -> Value {
    let mut document = match schema {
        Some(schema) if values.random.one_in(2) => from_schema(schema, values, MAX_DEPTH),
        _ => manifest_config.clone(),
    };
    for _ in 0..values.random.below(3) {
        change(&mut document, values);
    }
    match document {
        Value::Object(_) => document,
        // `[config]` is always a table.
        _ => Value::Object(Map::new()),
    }
}

/// Generates a document that mostly matches the schema. Keywords that this does not support, such
/// as references, are replaced by any value.
fn from_schema(schema: &Value, values: &mut Values, depth: usize) -> Value {
    let Some(schema) = schema.as_object().filter(|_| depth > 0) else {
        return values.document(1);
    };
    if let Some(constant) = schema
        .get("const")
        .or_else(|| schema.get("default").filter(|_| values.random.one_in(4)))
    {
        return constant.clone();
    }
    for key in ["enum", "examples"] {
        if let Some(options) = schema
            .get(key)
            .and_then(Value::as_array)
            .filter(|it| !it.is_empty())
        {
            return values.random.pick(options).clone();
        }
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(options) = schema
            .get(key)
            .and_then(Value::as_array)
            .filter(|it| !it.is_empty())
        {
            let option = values.random.pick(options).clone();
            return from_schema(&option, values, depth - 1);
        }
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) if !kinds.is_empty() => {
            values.random.pick(kinds).as_str().unwrap_or_default()
        }
        _ if schema.contains_key("properties") => "object",
        _ => "",
    };
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    match kind {
        "object" => object(schema, values, depth),
        "array" => {
            let min = bound("minItems").unwrap_or(0.0) as usize;
            let more = values.random.below(4);
            let number = (min + more)
                .min(bound("maxItems").map_or(usize::MAX, |it| it as usize))
                .min(1000);
            let items = schema.get("items").unwrap_or(&Value::Null);
            (0..number)
                .map(|_| from_schema(items, values, depth - 1))
                .collect()
        }
        "string" => {
            let mut text = values.text();
            let min = bound("minLength").unwrap_or(0.0).min(4096.0) as usize;
            while text.chars().count() < min {
                text.push('x');
            }
            text.into()
        }
        "integer" | "number" => {
            let min = bound("minimum").unwrap_or(0.0);
            let max = bound("maximum").unwrap_or(9.0e15);
            let found = *values
                .random
                .pick(&[min, max, min + 1.0, f64::midpoint(min, max).floor()]);
            match kind {
                "integer" => (found as i64).into(),
                _ => found.into(),
            }
        }
        "boolean" => values.random.one_in(2).into(),
        "null" => Value::Null,
        _ => values.document(1),
    }
}

fn object(schema: &Map<String, Value>, values: &mut Values, depth: usize) -> Value {
    let mut members = Map::new();
    let required: Vec<&str> = match schema.get("required").and_then(Value::as_array) {
        Some(required) => required.iter().filter_map(Value::as_str).collect(),
        None => Vec::new(),
    };
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            if required.contains(&name.as_str()) || values.random.one_in(2) {
                members.insert(name.clone(), from_schema(property, values, depth - 1));
            }
        }
    }
    let others = schema.get("additionalProperties");
    if let Some(others) = others.filter(|it| it.is_object()) {
        for _ in 0..=values.random.below(3) {
            members.insert(values.text(), from_schema(others, values, depth - 1));
        }
    }
    members.into()
}

/// Changes one place: replaces a value, or adds or removes a member.
fn change(document: &mut Value, values: &mut Values) {
    let stop = values.random.one_in(3);
    match document {
        Value::Object(members) if !members.is_empty() && !stop => {
            let names: Vec<String> = members.keys().cloned().collect();
            let name = values.random.pick(&names);
            if values.random.one_in(4) {
                members.remove(name);
            } else if let Some(member) = members.get_mut(name) {
                change(member, values);
            }
        }
        Value::Object(members) => {
            members.insert(values.text(), values.document(2));
        }
        Value::Array(items) if !items.is_empty() && !stop => {
            let at = values.random.below(items.len());
            if values.random.one_in(4) {
                items.remove(at);
            } else {
                change(&mut items[at], values);
            }
        }
        Value::Array(items) => items.push(values.document(1)),
        Value::String(text) if !stop => *text = values.text(),
        Value::Number(_) if !stop => *document = values.integer(0, u64::MAX).into(),
        _ => *document = values.document(1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_have_the_members_and_the_bounds_of_the_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "must": { "type": "string", "minLength": 3 },
                "may": { "type": "integer", "minimum": 5, "maximum": 7 },
                "list": { "type": "array", "items": { "enum": ["a"] }, "minItems": 1, "maxItems": 2 },
            },
            "required": ["must"],
        });
        let mut values = Values::new(1, &[]);
        let (mut min, mut max, mut without) = (false, false, false);
        for _ in 0..200 {
            let document = from_schema(&schema, &mut values, MAX_DEPTH);
            assert!(
                document["must"].as_str().unwrap().chars().count() >= 3,
                "{document}"
            );
            if let Some(list) = document["list"].as_array() {
                assert!(
                    (1..=2).contains(&list.len()) && list.iter().all(|it| it == "a"),
                    "{document}"
                );
            }
            match document["may"].as_i64() {
                Some(5) => min = true,
                Some(7) => max = true,
                Some(other) => assert_eq!(other, 6),
                None => without = true,
            }
        }
        assert!(min && max && without);
        let changed = (0..200).map(|_| configuration(Some(&schema), &json!({"must": "abc"}), &mut values));
        let changed: Vec<Value> = changed.collect();
        assert!(changed.iter().all(Value::is_object));
        assert!(
            changed.iter().any(|it| it.get("must").is_none()),
            "some documents violate the schema"
        );
    }
}
