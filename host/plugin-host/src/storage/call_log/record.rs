//! The records of the call log: a line of JSON for each call, and one for each agent set that calls
//! refer to.

use std::{collections::BTreeMap, io, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::segments::AgentSetNumber;
use crate::{
    runtime::recording::Observation,
    self_test::{ANSWER_KEYS, case_of},
};

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

/// A line of a file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Line {
    Call(Box<CallRecord>),
    Agents { set: u64, agents: Arc<Value> },
}

/// Keys of a case that contain what a component returned: the answer, and a probe's steps.
const RETURNED_KEYS: &[&str] = &[ANSWER_KEYS[0], ANSWER_KEYS[1], "steps"];

impl CallRecord {
    /// Converts a call. `agents` is the number of its agent set.
    pub(super) fn of(observation: &Observation, agents: Option<AgentSetNumber>) -> CallRecord {
        let version = &observation.version;
        let mut case = case_of(&observation.call);
        let mut returned: Map<String, Value> = RETURNED_KEYS
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), case.remove(*key)?)))
            .collect();
        let masked_call = version.masks.apply_to_members(&mut case) | agents.is_some_and(|it| it.is_masked);
        let mut masked_answer = version.masks.apply_to_members(&mut returned);
        if let Some(steps) = returned.get_mut("steps") {
            masked_answer |= version.masks.with_credentials().apply(steps);
        }
        case.append(&mut returned);
        let mut fault = observation.fault.clone().map(Value::from);
        masked_answer |= fault.as_mut().is_some_and(|fault| version.masks.apply(fault));
        CallRecord {
            at: observation.at,
            plugin: version.plugin.clone(),
            version: version.version.clone(),
            digest: version.digest.clone(),
            manifest: version.manifest.clone(),
            world: version.world.short().to_owned(),
            interface: version.world.interface_version().to_owned(),
            call: observation.call.name().to_owned(),
            case,
            agents: agents.map(|it| it.number),
            fault: fault.and_then(|it| it.as_str().map(str::to_owned)),
            micros: u64::try_from(observation.duration.as_micros()).unwrap_or(u64::MAX),
            memory: observation.memory,
            masked_call,
            masked_answer,
        }
    }

    /// Returns the case with its agents. `None` if the agents are missing.
    pub fn full_case(&self, agents: &BTreeMap<u64, Arc<Value>>) -> Option<Value> {
        let mut case = self.case.clone();
        if let Some(set) = self.agents {
            case.insert("agents".to_owned(), Value::clone(agents.get(&set)?));
        }
        Some(Value::Object(case))
    }
}

/// Returns a record as a line. `None` if it exceeds `max_bytes` bytes.
pub(super) fn line(record: &impl Serialize, max_bytes: usize) -> Option<Vec<u8>> {
    let mut line = Bounded {
        bytes: Vec::new(),
        remaining: max_bytes,
    };
    serde_json::to_writer(&mut line, record).ok()?;
    line.bytes.push(b'\n');
    Some(line.bytes)
}

/// A writer that fails as soon as its limit is exceeded, so that a large record costs no more than
/// an allowed one.
struct Bounded {
    bytes: Vec<u8>,
    remaining: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let remaining = self.remaining.checked_sub(bytes.len());
        self.remaining = remaining.ok_or(io::ErrorKind::FileTooLarge)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
