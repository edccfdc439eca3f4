//! The maximum lengths of the lists and maps in requests, by the name of the member.
//!
//! They are far above what clients use: they bound what one definition may cost, in each place that
//! handles it. The description of the API contains them as `maxItems` and `maxProperties`.

use serde_json::{Value, json};

/// The maximum of members that are not listed below.
const DEFAULT: usize = 1_000;

/// The schema of one constraint, a list of its field, its operator and perhaps a value.
const CONSTRAINT: &str = "Constraint";

/// Members with another maximum.
const OTHERS: &[(&str, usize)] = &[
    // Whole installations are described by one document.
    ("apps", 20_000),
    ("groups", 20_000),
    ("dependencies", 5_000),
    // Ids of tasks or instances.
    ("ids", 100_000),
    // Command lines and environments, which the operating system limits in bytes.
    ("args", 10_000),
    ("argv", 10_000),
    ("env", 5_000),
    ("environment", 5_000),
    ("labels", 5_000),
    // Each condition is evaluated for every offer.
    ("constraints", 200),
    (CONSTRAINT, 3),
    ("acceptedResourceRoles", 100),
    ("httpStatusCodesForReady", 900),
];

/// The maximum number of elements of a list or map.
pub(crate) fn max_length(member: &str) -> usize {
    let other = OTHERS.iter().find(|(name, _)| *name == member);
    let max = other.map_or(DEFAULT, |(_, max)| *max);
    #[cfg(test)]
    let max = if tests::LIFTED.get() { usize::MAX } else { max };
    max
}

/// The problem of a list or map with that many elements; `None` if these are not too many.
pub(crate) fn too_long(member: &str, length: usize) -> Option<String> {
    let max = max_length(member);
    (length > max).then(|| format!("has {length} elements, expected at most {max}"))
}

/// Adds the maximum lengths to a schema of a request. `member` is the name of the member with this
/// schema.
pub(crate) fn describe(schema: &mut Value, member: &str) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    let is = |kind: &str| match members.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    };
    let keyword = if is("array") {
        Some("maxItems")
    } else {
        let is_map = members
            .get("additionalProperties")
            .is_some_and(|more| *more != false);
        (is("object") && is_map).then_some("maxProperties")
    };
    if let Some(keyword) = keyword {
        members
            .entry(keyword)
            .or_insert_with(|| json!(max_length(member)));
    }
    for (name, below) in members.iter_mut() {
        match (name.as_str(), below) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    describe(property, name);
                }
            }
            // The only lists of lists are those of constraints.
            ("items", items) => describe(items, CONSTRAINT),
            ("anyOf" | "oneOf" | "allOf", Value::Array(alternatives)) => {
                for alternative in alternatives {
                    describe(alternative, member);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Whether this thread has no maximum lengths, to measure the cost of the rules themselves.
        pub(crate) static LIFTED: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn maximum_depends_on_the_member() {
        assert_eq!(too_long("constraints", 200), None);
        let expected = "has 201 elements, expected at most 200";
        assert_eq!(too_long("constraints", 201).as_deref(), Some(expected));
        assert_eq!(too_long("volumes", 1_000), None);
        assert!(too_long("volumes", 1_001).is_some());
    }
}
