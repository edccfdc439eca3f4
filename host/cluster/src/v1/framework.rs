//! Frameworks.

use super::Labels;
use super::macros::{messages, names};
use crate::ids::FrameworkId;
use std::collections::BTreeMap;

names! {
    /// The capabilities of a framework.
    CapabilityType {
        Unknown = "UNKNOWN",
        RevocableResources = "REVOCABLE_RESOURCES",
        TaskKillingState = "TASK_KILLING_STATE",
        GpuResources = "GPU_RESOURCES",
        SharedResources = "SHARED_RESOURCES",
        PartitionAware = "PARTITION_AWARE",
        MultiRole = "MULTI_ROLE",
        ReservationRefinement = "RESERVATION_REFINEMENT",
        RegionAware = "REGION_AWARE",
    }
}

messages! {
    /// A framework, as it subscribes. `failover_timeout` is in seconds; `roles` needs the
    /// `MULTI_ROLE` capability, `role` is for frameworks without it.
    FrameworkInfo {
        must { user: String, name: String }
        may {
            id: Option<FrameworkId>,
            failover_timeout: Option<f64>,
            checkpoint: Option<bool>,
            role: Option<String>,
            roles: Vec<String>,
            hostname: Option<String>,
            principal: Option<String>,
            webui_url: Option<String>,
            capabilities: Vec<Capability>,
            labels: Option<Labels>,
            offer_filters: BTreeMap<String, serde_json::Value>,
        }
    }
    /// One capability of a framework.
    Capability { may { r#type: Option<CapabilityType> } }
}

impl From<CapabilityType> for Capability {
    fn from(capability: CapabilityType) -> Self {
        Self {
            r#type: Some(capability),
        }
    }
}

impl FrameworkInfo {
    /// Whether the framework declares this capability.
    pub fn can(&self, capability: &CapabilityType) -> bool {
        self.capabilities
            .iter()
            .any(|stated| stated.r#type.as_ref() == Some(capability))
    }
}
