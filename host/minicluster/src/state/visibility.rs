//! What a principal sees that may view neither frameworks nor tasks (`Config::blind_principals`).
//!
//! A real master filters its documents and its operators' events by the ACLs `view_frameworks`,
//! `view_tasks` and `view_executors`: it omits what they deny, with status 200 and without a word.
//! Agents stay visible, with `used_resources`, and so do the metrics (`src/master/readonly_handler.cpp`
//! of Mesos 1.11: `FullFrameworkWriter`, `SlaveWriter`; `Master::Subscribers::send` for events).

use crate::{config::Config, wire::json as doc};
use serde_json::{Value, json};

/// The lists that such a principal sees empty.
const HIDDEN: &[&str] = &[
    "frameworks",
    "completed_frameworks",
    "unregistered_frameworks",
    "tasks",
    "unreachable_tasks",
    "completed_tasks",
    "orphan_tasks",
    "pending_tasks",
    "executors",
];

/// Whether this principal may view frameworks and tasks.
pub(crate) fn sees_tasks(config: &Config, principal: Option<&str>) -> bool {
    let blind = &config.blind_principals;
    principal.is_none_or(|principal| !blind.iter().any(|one| one == principal))
}

/// Empties the hidden lists of a document, and of the documents in it.
pub(crate) fn hide_tasks(document: &mut Value) {
    for (key, value) in document.as_object_mut().into_iter().flatten() {
        if HIDDEN.contains(&key.as_str()) {
            *value = json!([]);
        } else if key.starts_with("get_") {
            hide_tasks(value);
        }
    }
}

/// Whether an event of the operators' stream is about a framework or a task.
pub(crate) fn is_of_tasks(event: &Value) -> bool {
    let kind = doc::text(event, &["type"]).unwrap_or_default();
    kind.starts_with("TASK_") || kind.starts_with("FRAMEWORK_")
}
