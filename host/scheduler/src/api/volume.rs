//! Persistent volumes: what a run spec requests, and the reservation that holds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use transom_cluster::{TaskId, v1};
use transom_common::ambient;

use crate::{AgentLocation, Error, Result};

/// A persistent volume of an instance.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// Its path in the sandbox of the task. For a group it is in the sandbox of the executor, from
    /// which the members mount it. Unique among the volumes of the run spec.
    pub container_path: String,
    /// Size in MB; for a mount disk the minimum size.
    pub size: u64,
    /// The kind of disk.
    pub disk: DiskKind,
    /// Conditions on the directory of a path or mount disk. A root disk has no directory, so it
    /// satisfies no condition.
    pub constraints: Vec<PathConstraint>,
}

/// The kind of disk that a volume is created on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DiskKind {
    /// A part of the agent's own file system.
    #[default]
    Root,
    /// A part of another file system of the agent.
    Path {
        /// The profile that a storage provider must have assigned to the disk; `None` accepts any
        /// disk.
        profile: Option<String>,
    },
    /// A whole disk: the smallest one that fits.
    Mount {
        /// The maximum size in MB; unlimited if `None`.
        max_size: Option<u64>,
        /// As for a path disk.
        profile: Option<String>,
    },
}

/// A condition on the directory of a disk. The pattern must match the whole path.
#[derive(Clone, Debug)]
pub struct PathConstraint {
    pattern: Regex,
    like: bool,
}

impl PathConstraint {
    /// The path matches the regular expression.
    pub fn like(pattern: &str) -> Result<Self> {
        Self::new(pattern, true)
    }

    /// The path does not match the regular expression.
    pub fn unlike(pattern: &str) -> Result<Self> {
        Self::new(pattern, false)
    }

    fn new(pattern: &str, like: bool) -> Result<Self> {
        let compiled = Regex::new(&format!("^(?:{pattern})$"));
        let pattern = compiled.map_err(|source| Error::BadPattern {
            pattern: pattern.to_owned(),
            source,
        })?;
        Ok(Self { pattern, like })
    }

    pub(crate) fn allows(&self, path: &str) -> bool {
        self.pattern.is_match(path) == self.like
    }
}

/// All reservations by key: one immutable snapshot.
pub type Reservations = BTreeMap<String, Arc<Reservation>>;

/// The resources and volumes of one instance on one agent. Stored as JSON under
/// `<prefix>/reservations/<key>`, before the resources are reserved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// [`TaskRequest::reservation`](crate::TaskRequest::reservation).
    pub key: String,
    /// Differs for each attempt to reserve; the resources are labelled with it and with the key.
    /// Empty: the resources have the labels of Marathon, and were reserved by it.
    #[serde(default)]
    pub id: String,
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: String,
    /// The role of the reservation.
    pub role: String,
    /// The agent, to which the instance is bound.
    pub agent: Arc<AgentLocation>,
    /// The agent's attributes at the time of the reservation.
    #[serde(default)]
    pub agent_attributes: Arc<[v1::Attribute]>,
    /// The volumes, in the order of [`RunSpec::volumes`](crate::RunSpec::volumes).
    pub volumes: Vec<LocalVolume>,
    /// When it was decided and stored.
    pub since: Timestamp,
    /// Whether the master has offered the resources with their volumes. Until then the reservation
    /// is dropped if they do not appear in time.
    #[serde(default)]
    pub created: bool,
    /// The task or group that was last launched with it.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// Whether it is released: volumes and reservation are removed as soon as the task has ended
    /// and the master offers them.
    #[serde(default)]
    pub releasing: bool,
}

/// A persistent volume on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalVolume {
    /// [`VolumeRequest::container_path`].
    pub container_path: String,
    /// The last part of the persistence id.
    pub uuid: String,
    /// The master's id of the volume: run spec id, path and UUID, separated by `#`; slashes and
    /// backslashes are written as `_`, and a leading one is left out.
    pub persistence_id: String,
}

impl LocalVolume {
    pub(crate) fn new(run_spec: &str, container_path: &str) -> Self {
        let uuid = ambient::uuid().to_string();
        let safe = |text: &str| text.trim_start_matches('/').replace(['/', '\\'], "_");
        let name = format!("{}#{}", safe(run_spec), safe(container_path));
        // The master accepts at most 255 bytes.
        let end = name.floor_char_boundary(MAX_NAME);
        Self {
            container_path: container_path.to_owned(),
            persistence_id: format!("{}#{uuid}", &name[..end]),
            uuid,
        }
    }
}

/// Maximum bytes of a persistence id before the UUID.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistence_id_is_a_path_component() {
        let volume = LocalVolume::new("/web/api", "data");
        assert_eq!(volume.persistence_id, format!("web_api#data#{}", volume.uuid));
        let volume = LocalVolume::new("/web", "/var\\lib/x");
        assert_eq!(volume.persistence_id, format!("web#var_lib_x#{}", volume.uuid));
        let volume = LocalVolume::new(&"é".repeat(300), "data");
        assert!(volume.persistence_id.len() <= 255 && volume.persistence_id.ends_with(&volume.uuid));
        assert_ne!(
            LocalVolume::new("/a", "b").persistence_id,
            LocalVolume::new("/a", "b").persistence_id
        );
    }

    #[test]
    fn path_constraints_match_the_whole_path() {
        for (constraint, path, allowed) in [
            (PathConstraint::like("/mnt/ssd.*"), "/mnt/ssd1", true),
            (PathConstraint::like("/mnt"), "/mnt/ssd1", false),
            (PathConstraint::like("/a|/b"), "/b", true),
            (PathConstraint::unlike("/mnt/ssd.*"), "/mnt/ssd1", false),
            (PathConstraint::unlike("/mnt"), "/mnt/ssd1", true),
        ] {
            let constraint = constraint.unwrap();
            assert_eq!(constraint.allows(path), allowed, "{constraint:?} and {path}");
        }
        assert!(matches!(PathConstraint::like("("), Err(Error::BadPattern { .. })));
    }
}
