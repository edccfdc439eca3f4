//! The stored record of a kvstore's members.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;
use transom_common::HostPort;

/// The members of a kvstore, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KvstoreRecord {
    /// The members that vote in the etcd cluster, whether their tasks run or not.
    pub(crate) voters: BTreeMap<u32, Voter>,
    /// The addresses at which servers reach the members.
    pub(crate) addresses: BTreeMap<u32, HostPort>,
}

/// A voting member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Voter {
    pub(crate) task: TaskId,
    /// Its id in the etcd cluster, once it is known.
    #[serde(default)]
    pub(crate) etcd: Option<u64>,
    /// The host that has its data.
    pub(crate) host: String,
    /// Its host ports: the one for clients and the one for other members.
    pub(crate) ports: Vec<u16>,
}

impl KvstoreRecord {
    /// The record of a cluster with this member only. The member's etcd id is removed, because it
    /// changes with the data. `None`: the record of a cluster that starts without data.
    pub(crate) fn reduced(&self, to: Option<u32>) -> Self {
        let is_kept = |number: &u32| Some(*number) == to;
        let mut reduced = self.clone();
        reduced.voters.retain(|number, _| is_kept(number));
        reduced.addresses.retain(|number, _| is_kept(number));
        for voter in reduced.voters.values_mut() {
            voter.etcd = None;
        }
        reduced
    }
}
