//! Recorded calls, and their export to the cases of a file.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ANSWER_KEYS;

/// A recorded call of a plugin and its answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CallRecord {
    /// Milliseconds since 1970.
    pub at: u64,
    /// The plugin.
    pub plugin: String,
    /// Its own version.
    pub version: String,
    /// `sha256:` and the component's digest.
    pub digest: String,
    /// `sha256:` and the manifest's digest.
    pub manifest: String,
    /// `check-probe` and so on.
    pub world: String,
    /// The version of the world's interface.
    pub interface: String,
    /// The call in its world: `evaluate`, `decide` and so on.
    pub call: String,
    /// The call as a case, with the keys of a `[[self-test]]`. The recorded answer is the expected
    /// one; it is missing after a fault. A matcher's agents are in [`RecordedCalls::agents`].
    pub case: Map<String, Value>,
    /// The number of the agent set of a matcher's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<u64>,
    /// The error that the caller received, if the call ended in a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Duration for the caller in microseconds, including the wait for an instance.
    pub micros: u64,
    /// Peak linear memory of the version's largest instance so far: bytes.
    pub memory: u64,
    /// Whether secrets in the call were masked, so that it cannot be repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked_call: bool,
    /// Whether secrets in the answer were masked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked_answer: bool,
}

/// Recorded calls, oldest first.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RecordedCalls {
    /// The calls.
    pub calls: Vec<CallRecord>,
    /// Agent sets by their numbers.
    #[serde(default)]
    pub agents: BTreeMap<u64, Arc<Value>>,
    /// Number of records that could not be read, because their file was truncated or changed.
    #[serde(default)]
    pub damaged: u64,
    /// Whether there are older calls, which were left out.
    #[serde(default)]
    pub more: bool,
}

impl CallRecord {
    /// Returns the case with its agents. `None` if the agents are missing.
    pub fn full_case(&self, agents: &BTreeMap<u64, Arc<Value>>) -> Option<Value> {
        let mut case = self.case.clone();
        if let Some(set) = self.agents {
            case.insert("agents".to_owned(), Value::clone(agents.get(&set)?));
        }
        Some(Value::Object(case))
    }
}

/// The cases, and the numbers of calls that were left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exported {
    /// The cases: objects with a name and the keys of a `[[self-test]]`.
    pub cases: Vec<Value>,
    /// Number of calls that are equal to another one.
    pub repeated: u64,
    /// Number of calls with masked secrets.
    pub masked: u64,
    /// Number of calls that ended in a fault, so that there is no answer to expect.
    pub failed: u64,
    /// Number of calls whose agents are missing.
    pub incomplete: u64,
}

/// Converts recorded calls to cases, in their order.
pub fn export(recorded: &RecordedCalls) -> Exported {
    let mut exported = Exported::default();
    let mut unique = HashSet::new();
    for call in &recorded.calls {
        if call.masked_call || call.masked_answer {
            exported.masked += 1;
        } else if call.fault.is_some() || !ANSWER_KEYS.iter().any(|key| call.case.contains_key(*key)) {
            exported.failed += 1;
        } else if let Some(mut case) = call.full_case(&recorded.agents) {
            if unique.insert(case.to_string()) {
                case["name"] = name(call).into();
                exported.cases.push(case);
            } else {
                exported.repeated += 1;
            }
        } else {
            exported.incomplete += 1;
        }
    }
    exported
}

fn name(call: &CallRecord) -> String {
    let subject = call.case.get("run-spec").or_else(|| call.case.get("task"));
    match subject.and_then(Value::as_str) {
        Some(subject) => format!("{} {subject} at {}", call.call, call.at),
        None => format!("{} at {}", call.call, call.at),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_calls_with_a_whole_answer_become_cases() {
        let call = |more: Value| {
            let mut call = json!({
                "at": 7, "plugin": "p", "version": "1", "digest": "", "manifest": "", "world": "event-filter",
                "interface": "0.1.0", "call": "open", "micros": 1, "memory": 1, "case": {"expect": []}
            });
            for (key, value) in more.as_object().into_iter().flatten() {
                call[key] = value.clone();
            }
            serde_json::from_value::<CallRecord>(call).unwrap()
        };
        let recorded = RecordedCalls {
            calls: vec![
                call(json!({})),
                call(json!({"at": 8})),
                call(json!({"case": {"run-spec": "/a", "refused": true}})),
                call(json!({"masked_answer": true})),
                call(json!({"masked_call": true})),
                call(json!({"fault": "trapped", "case": {}})),
                call(json!({"case": {}})),
                call(json!({"agents": 3})),
            ],
            ..RecordedCalls::default()
        };
        let exported = export(&recorded);
        let expected = [
            json!({"name": "open at 7", "expect": []}),
            json!({"name": "open /a at 7", "run-spec": "/a", "refused": true}),
        ];
        assert_eq!(exported.cases, expected);
        let Exported {
            repeated,
            masked,
            failed,
            incomplete,
            ..
        } = exported;
        assert_eq!((repeated, masked, failed, incomplete), (1, 2, 2, 1));
    }
}
