//! The state of a Marathon, as its API returns it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::report::Finding;

/// The responses of a Marathon. The caller has checked that lists are arrays. What Marathon
/// [stored](super::stored) is brought into the same form.
#[derive(Clone, Debug, Default)]
pub struct Marathon {
    /// `GET /v2/info`
    pub info: Value,
    /// `GET /v2/groups?embed=group.groups`
    pub groups: Value,
    /// `apps` of `GET /v2/apps?embed=apps.tasks&embed=apps.lastTaskFailure`
    pub apps: Vec<Value>,
    /// `GET /v2/pods`
    pub pods: Vec<Value>,
    /// `GET /v2/pods/::status`
    pub pod_statuses: Vec<Value>,
    /// `GET /v2/deployments`
    pub deployments: Vec<Value>,
    /// The past definitions of apps and pods, by their ids.
    pub versions: BTreeMap<String, Vec<Value>>,
    /// What cannot be read of a stored state.
    pub findings: Vec<Finding>,
}
