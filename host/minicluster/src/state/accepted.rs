//! The offers of an ACCEPT, and the rules for tasks that are launched from them.

use super::{AgentId, FrameworkId};
use crate::wire::{json as doc, resources::Resources};
use serde_json::Value;

/// What remains of the accepted offers while the operations allocate from them.
pub(super) struct Accepted {
    pub(super) framework: FrameworkId,
    pub(super) agent: AgentId,
    pub(super) role: String,
    pub(super) remaining: Resources,
}

/// `ExecutorInfo` with the id of its framework.
pub(super) fn with_framework(info: &Value, framework: &FrameworkId) -> Value {
    let mut info = doc::object(info.clone());
    info.insert("framework_id".to_owned(), doc::id(framework.as_str()));
    Value::Object(info)
}

/// Whether an id is usable as a directory name.
pub(super) fn is_valid_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 255
        && id != "."
        && id != ".."
        && !id.contains(|c: char| c == '/' || c == '\\' || c.is_control())
}
