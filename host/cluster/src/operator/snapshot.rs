//! What SUBSCRIBED lists, read entry by entry: of a large cluster it is never there as a whole but as its text.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Agent, Framework};
use crate::error::{Error, Result};
use crate::v1::Task;

/// Who is told what a snapshot lists: agents first, then frameworks, then tasks that have not ended.
pub trait Snapshot {
    /// An agent that is registered.
    fn agent(&mut self, agent: &Agent);
    /// A framework that is registered.
    fn framework(&mut self, framework: &Framework);
    /// A task.
    fn task(&mut self, task: &Task);
    /// An entry that cannot be read, and is left out.
    fn unreadable(&mut self);
}

/// The event as it comes, with its lists' entries as they stand in the text.
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

/// What a snapshot says of its stream.
pub(super) struct Told {
    /// The interval of heartbeats, in seconds.
    pub(super) interval: Option<f64>,
}

/// Reads one record of the stream; none when it is no SUBSCRIBED.
///
/// Bytes that are no text count as unknown characters: whatever one task is called, the others are told.
pub(super) fn read<S: Snapshot>(record: &[u8], into: &mut S) -> Result<Option<Told>> {
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
    each(get_state.get_agents.and_then(|it| it.agents), into, S::agent);
    each(
        get_state.get_frameworks.and_then(|it| it.frameworks),
        into,
        S::framework,
    );
    each(get_state.get_tasks.and_then(|it| it.tasks), into, S::task);
    Ok(Some(Told {
        interval: heartbeat_interval_seconds,
    }))
}

fn each<S: Snapshot, T: DeserializeOwned>(entries: Entries<'_>, into: &mut S, tell: fn(&mut S, &T)) {
    for entry in entries.into_iter().flatten() {
        match serde_json::from_str(entry.get()) {
            Ok(entry) => tell(into, &entry),
            Err(error) => {
                tracing::warn!(%error, "an entry of what the cluster told cannot be read and is left out");
                into.unreadable();
            }
        }
    }
}
