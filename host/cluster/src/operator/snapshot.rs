//! The snapshot in SUBSCRIBED, parsed entry by entry: only its text is in memory as a whole.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Agent, Framework};
use crate::error::{Error, Result};
use crate::v1::{AgentInfo, Task};

/// Receives the entries of a snapshot: agents, recovered agents, frameworks, and then tasks that
/// have not ended.
pub trait Snapshot {
    /// A registered agent.
    fn agent(&mut self, agent: &Agent);
    /// A registered framework.
    fn framework(&mut self, framework: &Framework);
    /// A task.
    fn task(&mut self, task: &Task);
    /// An agent that the master knows from its registry and that has not registered since the
    /// master became the leader. The snapshot lacks its tasks.
    fn recovered_agent(&mut self, agent: &AgentInfo);
    /// An invalid entry, which is skipped.
    fn unreadable(&mut self);
}

/// The event with the entries of its lists as unparsed text.
#[derive(Deserialize)]
struct Wire<'d> {
    #[serde(borrow)]
    subscribed: Option<Subscribed<'d>>,
}

#[derive(Deserialize)]
struct Subscribed<'d> {
    #[serde(borrow, default)]
    get_state: State<'d>,
    heartbeat_interval_seconds: Option<f64>,
}

#[derive(Default, Deserialize)]
#[allow(clippy::struct_field_names, reason = "fields are named as on the wire")]
struct State<'d> {
    #[serde(borrow)]
    get_agents: Option<Agents<'d>>,
    #[serde(borrow)]
    get_frameworks: Option<Frameworks<'d>>,
    #[serde(borrow)]
    get_tasks: Option<Tasks<'d>>,
}

#[derive(Deserialize)]
struct Agents<'d> {
    #[serde(borrow)]
    agents: Entries<'d>,
    #[serde(borrow)]
    recovered_agents: Entries<'d>,
}

#[derive(Deserialize)]
struct Frameworks<'d> {
    #[serde(borrow)]
    frameworks: Entries<'d>,
}

#[derive(Deserialize)]
struct Tasks<'d> {
    #[serde(borrow)]
    tasks: Entries<'d>,
}

type Entries<'d> = Option<Vec<&'d RawValue>>;

/// The settings of the stream in a snapshot.
pub(super) struct SnapshotHeader {
    /// The interval of heartbeats, in seconds.
    pub(super) interval: Option<f64>,
}

/// Parses one record of the stream; none if it is not SUBSCRIBED. Invalid UTF-8 becomes replacement
/// characters, so that one invalid task name does not hide the others.
pub(super) fn read<S: Snapshot>(record: &[u8], into: &mut S) -> Result<Option<SnapshotHeader>> {
    let text = String::from_utf8_lossy(record);
    let wire: Wire<'_> = serde_json::from_str(&text)
        .map_err(|error| Error::decode("an operator event's snapshot".to_owned(), error))?;
    let Some(Subscribed {
        get_state,
        heartbeat_interval_seconds,
    }) = wire.subscribed
    else {
        return Ok(None);
    };
    if let Some(agents) = get_state.get_agents {
        add_each(agents.agents, into, S::agent);
        add_each(agents.recovered_agents, into, S::recovered_agent);
    }
    add_each(
        get_state.get_frameworks.and_then(|it| it.frameworks),
        into,
        S::framework,
    );
    add_each(get_state.get_tasks.and_then(|it| it.tasks), into, S::task);
    Ok(Some(SnapshotHeader {
        interval: heartbeat_interval_seconds,
    }))
}

fn add_each<S: Snapshot, T: DeserializeOwned>(entries: Entries<'_>, into: &mut S, add: fn(&mut S, &T)) {
    for entry in entries.into_iter().flatten() {
        match serde_json::from_str(entry.get()) {
            Ok(entry) => add(into, &entry),
            Err(error) => {
                tracing::warn!(%error, "skipping an invalid entry of the cluster's snapshot");
                into.unreadable();
            }
        }
    }
}
