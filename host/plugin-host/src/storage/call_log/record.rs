//! The records of the call log: a line of JSON for each call, and one for each agent set that calls
//! refer to.

use std::{io, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use transom_plugin_cases::{ANSWER_KEYS, CallRecord};

use super::segments::AgentSetNumber;
use crate::runtime::recording::Observation;

/// A line of a file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Line {
    Call(Box<CallRecord>),
    Agents { set: u64, agents: Arc<Value> },
}

/// Keys of a case that contain what a component returned: the answer, and a probe's steps.
const RETURNED_KEYS: &[&str] = &[ANSWER_KEYS[0], ANSWER_KEYS[1], "steps"];

/// Converts a call. `agents` is the number of its agent set.
pub(super) fn record(observation: &Observation, agents: Option<AgentSetNumber>) -> CallRecord {
    let version = &observation.version;
    let mut case = observation.call.case();
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
