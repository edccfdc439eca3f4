//! Resources beyond those that a task requests: its limits, and the resources of its executor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::app::short_number;

/// The maximum resources of a task; absent: the requested ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ResourceLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<ResourceLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mem: Option<ResourceLimit>,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ResourceLimit {
    Amount(#[serde(serialize_with = "short_number")] f64),
    Unlimited(Unlimited),
}

/// The word `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Unlimited {
    #[serde(rename = "unlimited")]
    Unlimited,
}

/// The resources of a task's executor, in addition to those of the task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExecutorResources {
    #[serde(serialize_with = "short_number")]
    pub(crate) cpus: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) mem: f64,
    #[serde(serialize_with = "short_number")]
    pub(crate) disk: f64,
}
