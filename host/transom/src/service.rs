//! A running service, as the daemon and the admin port see it.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use transom_cli::overview::ServiceState;
use transom_framework::{Explain, FrameworkStatus, Routes};

/// How `/v1/plugins/explain` names what a kind of service runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Explained {
    /// The name of the service, see [`Service::name`].
    pub(crate) service: &'static str,
    /// The query parameter that selects one of its tasks.
    pub(crate) parameter: &'static str,
    pub(crate) example: &'static str,
    /// What the parameter selects, in the plural.
    pub(crate) tasks: &'static str,
    /// Whether the service explains events and checks, too.
    pub(crate) has_decisions: bool,
}

/// A running service.
#[async_trait]
pub(crate) trait Service: Send + Sync {
    /// The name of the service, which is that of its section: `apps`, or `kubernetes.NAME`.
    fn name(&self) -> &'static str;

    /// The addresses of the ports, by the names of the ports.
    fn addresses(&self) -> Vec<(&'static str, SocketAddr)>;

    /// The service's entry in `/ready`.
    fn readiness(&self) -> Readiness;

    /// The service's part of `/v1/overview`, read from snapshots.
    fn summary(&self) -> ServiceState;

    /// Explains the decisions of plugins about the service's tasks; `None` for a service without a
    /// framework.
    fn explainer(&self) -> Option<Arc<dyn Explain>> {
        None
    }

    /// The extension points whose plugins the service calls.
    fn extension_points(&self) -> &'static [&'static str] {
        &[]
    }

    /// The routes of the service's HTTP port, for the admin port, which controls access itself.
    fn routes(&self) -> Option<Routes>;

    /// Returns when the service's ports and its framework have ended.
    async fn stopped(&self);
}

/// The running services.
pub(crate) type Services = Arc<[Box<dyn Service>]>;

/// One service in `/ready`.
#[derive(Debug, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) framework: Option<FrameworkReadiness>,
    /// The present source of discovery's records: `stream`, `polling`, or `none` while no master
    /// can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<&'static str>,
    /// Why discovery's records are incomplete, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FrameworkReadiness {
    pub(crate) name: String,
    /// Host and port of the leader's service; null while there is no leader.
    pub(crate) leader: Option<String>,
    /// Whether this daemon is the leader.
    pub(crate) leading: bool,
    /// Whether the leader is subscribed with the cluster manager; absent on a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscribed: Option<bool>,
}

impl From<FrameworkStatus> for FrameworkReadiness {
    fn from(status: FrameworkStatus) -> Self {
        Self {
            name: status.name,
            leader: status.leader,
            leading: status.leading,
            subscribed: status.subscribed,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_omits_fields_that_a_service_lacks() {
        let with = |framework, source| Readiness {
            ready: true,
            framework,
            source,
            problem: None,
        };
        let standby = FrameworkReadiness {
            name: "marathon".to_owned(),
            leader: Some("other:8080".to_owned()),
            leading: false,
            subscribed: None,
        };
        let expected = json!({"name": "marathon", "leader": "other:8080", "leading": false});
        assert_eq!(
            json!(with(Some(standby), None)),
            json!({"ready": true, "framework": expected})
        );
        assert_eq!(
            json!(with(None, Some("stream"))),
            json!({"ready": true, "source": "stream"})
        );
    }
}
