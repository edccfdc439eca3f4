//! A client's patch of an app (PATCH): objects are merged field by field, lists and other values are
//! replaced, and `null` removes a field that may be absent.
//!
//! A patch is merged with the definition that it changes when the edit is computed, so that no
//! concurrent change is lost. Until then only the members that need no merging are parsed.

use serde_json::{Map, Value};
use transom_web::Problems;

use super::App;

/// The document that a patch of `present` means, and the definition without the removed fields.
pub(super) fn merge(patch: &Value, present: &App) -> Result<(Value, App), Problems> {
    let failed = |error: serde_json::Error| Problems::one("/", error.to_string());
    let mut kept = serde_json::to_value(present).map_err(failed)?;
    let mut document = patch.clone();
    let (Some(fields), Some(members)) = (kept.as_object_mut(), document.as_object_mut()) else {
        return Err(Problems::one("/", "error.expected.jsobject"));
    };
    let replaces_mappings = !patch["container"]["docker"]["portMappings"].is_null();
    for (name, value) in members.iter_mut().filter(|(_, value)| value.is_object()) {
        let mut merged = fields.get(name).cloned().unwrap_or_default();
        // The deprecated place of the mappings, beside which the present ones may not stay.
        if name == "container"
            && replaces_mappings
            && let Some(container) = merged.as_object_mut()
        {
            container.remove("portMappings");
        }
        merge_value(&mut merged, value);
        *value = merged;
    }
    let mut problems = Problems::default();
    for (name, _) in members.iter().filter(|(_, value)| value.is_null()) {
        let Some(before) = fields.remove(name) else {
            continue;
        };
        if serde_json::from_value::<App>(Value::Object(fields.clone())).is_err() {
            let text =
                "cannot be removed, because every app has one: expected another value, or no such member";
            problems.add(format!("/{name}"), text);
            fields.insert(name.clone(), before);
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok((document, serde_json::from_value(kept).map_err(failed)?))
}

/// Merges `patch` into `target`, as RFC 7396 specifies.
fn merge_value(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        return target.clone_from(patch);
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(name);
        } else {
            merge_value(members.entry(name).or_insert(Value::Null), value);
        }
    }
}
