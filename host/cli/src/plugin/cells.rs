//! Formats documents of the admin port as tables, with units and readable times.

use serde_json::Value;

use super::input::{bytes, micros};

/// Every value in a document, one row each: `last_trap.fault`, and its value.
pub(super) fn flatten(key: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    let child_key = |name: &str| {
        if key.is_empty() {
            name.to_owned()
        } else {
            format!("{key}.{name}")
        }
    };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| flatten(&child_key(name), value, rows)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&child_key(&index.to_string()), item, rows);
            }
        }
        value => {
            let last = key.rsplit('.').next().unwrap_or(key);
            // The cell contains the unit, so the key is shown without it.
            let label = UNITS
                .iter()
                .find_map(|unit| key.strip_suffix(unit))
                .unwrap_or(key);
            rows.push(vec![label.to_owned(), cell(last, value)]);
        }
    }
}

/// Suffixes of keys that name a unit.
const UNITS: &[&str] = &["_micros", "_millis"];

/// A value for a table: times and figures in readable form, digests abbreviated.
pub(super) fn cell(key: &str, value: &Value) -> String {
    match (key, value) {
        (_, Value::Null) => "-".into(),
        // The state of fetching from the registry, or its error.
        ("source", Value::Object(source)) => {
            let error = source.get("error").and_then(Value::as_str);
            let state = source.get("state").and_then(Value::as_str);
            error.or(state).unwrap_or("-").to_owned()
        }
        ("rollout", Value::Object(_)) => rollout(value),
        ("at" | "since" | "admitted_at" | "checked_at" | "admitting", Value::Number(seconds)) => seconds
            .as_i64()
            .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
            .map_or_else(|| seconds.to_string(), |timestamp| timestamp.to_string()),
        ("digest", Value::String(digest)) => digest.chars().take("sha256:".len() + 12).collect(),
        (_, Value::String(text)) => text.clone(),
        (key, Value::Number(number)) => match number.as_u64() {
            Some(number) => figure(key, number),
            None => number.to_string(),
        },
        (_, other) => other.to_string(),
    }
}

/// A number with the unit that its key names.
fn figure(key: &str, number: u64) -> String {
    if key.ends_with("_micros") {
        micros(number as f64)
    } else if key.ends_with("_millis") {
        micros(number as f64 * 1000.0)
    } else {
        match key {
            "memory_peak" => bytes(number),
            "percent" => format!("{number} %"),
            "probation" => format!("{} left", seconds(number)),
            _ => number.to_string(),
        }
    }
}

/// Whole seconds in readable form.
fn seconds(number: u64) -> String {
    match number {
        0..60 => format!("{number} s"),
        60..3600 => format!("{} min {} s", number / 60, number % 60),
        _ => format!("{} h {} min", number / 3600, number % 3600 / 60),
    }
}

/// A few words about the shadow or canary of a plugin.
fn rollout(it: &Value) -> String {
    let text = |key: &str| it[key].as_str().unwrap_or("-").to_owned();
    let (kind, version) = (text("kind"), text("version"));
    match (kind.as_str(), it["percent"].as_u64()) {
        ("canary", Some(percent)) => format!("canary {version}, {percent} %"),
        _ => format!("{kind} {version}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_with_units_and_times() {
        let document = json!({
            "admitted_at": 1_700_000_000, "probation": 552, "p99_micros": 1234, "cpu_millis": 12_345,
            "memory_peak": 3 << 20, "calls": 7, "refusal": null,
            "rollout": {"kind": "canary", "percent": 10, "since": 0, "p99_micros": 31, "missing": ["a", "b"]},
        });
        let mut rows = Vec::new();
        flatten("", &document, &mut rows);
        let mut actual: Vec<String> = rows.iter().map(|row| row.join("=")).collect();
        actual.sort();
        assert_eq!(
            actual,
            [
                "admitted_at=2023-11-14T22:13:20Z",
                "calls=7",
                "cpu=12.3 s",
                "memory_peak=3.0 MiB",
                "p99=1.2 ms",
                "probation=9 min 12 s left",
                "rollout.kind=canary",
                "rollout.missing.0=a",
                "rollout.missing.1=b",
                "rollout.p99=31.0 us",
                "rollout.percent=10 %",
                "rollout.since=1970-01-01T00:00:00Z",
            ]
        );
    }

    #[test]
    fn rollout_is_shown_in_a_few_words() {
        for (document, expected) in [
            (
                json!({"kind": "canary", "version": "1.2.0", "percent": 10}),
                "canary 1.2.0, 10 %",
            ),
            (
                json!({"kind": "shadow", "version": "1.2.0", "percent": 100}),
                "shadow 1.2.0",
            ),
            (Value::Null, "-"),
        ] {
            assert_eq!(cell("rollout", &document), expected);
        }
        for (number, expected) in [(59, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min")] {
            assert_eq!(seconds(number), expected);
        }
    }
}
