//! Metrics of the limits of all ports: a client that reaches one is seen here.
//!
//! They are the same for the whole process, because ports are bound before there is a registry.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::Owner;

pub(crate) static PORT_METRICS: LazyLock<PortMetrics> = LazyLock::new(PortMetrics::default);

/// Registers the metrics of the limits of all ports of this process.
pub fn register_port_metrics(registry: &mut Registry) {
    PORT_METRICS.add_to(registry);
}

/// What happened to a connection of a port with its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    Evicted,
    Rejected,
}

impl ConnectionAction {
    const ALL: &'static [Self] = &[Self::Evicted, Self::Rejected];

    fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Rejected => "rejected",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    port: &'static str,
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabels {
    port: &'static str,
    resource: &'static str,
    user: &'static str,
}

transom_common::metrics! {
    /// The counters of all ports.
    pub(crate) struct PortMetrics {
        connections: Family<ActionLabels, Counter>
            => "transom_web_connections_over_limit",
            "Connections that a port with its maximum closed while they were idle (evicted) or did not accept (rejected)";
        quotas: Family<QuotaLabels, Counter>
            => "transom_web_quota_rejections",
            "Requests rejected with 503, by the limit of the port or of the user: streams, requests, bodies, answers, queries, watches, explanations, logs";
        credentials: Family<ActionLabels, Counter>
            => "transom_web_wrong_credentials",
            "Requests with wrong credentials, answered immediately (answered), after a delay (delayed) or with 429 (rejected)";
    }
}

impl PortMetrics {
    /// Creates the series of a port, so that the first change is an increase.
    pub(crate) fn describe_connections(&self, port: &'static str) {
        for &action in ConnectionAction::ALL {
            let action = action.as_str();
            drop(self.connections.get_or_create(&ActionLabels { port, action }));
        }
    }

    pub(crate) fn connection(&self, port: &'static str, action: ConnectionAction) {
        let action = action.as_str();
        self.connections
            .get_or_create(&ActionLabels { port, action })
            .inc();
    }

    pub(crate) fn quota(&self, port: &'static str, resource: &'static str, owner: Owner) {
        let labels = QuotaLabels {
            port,
            resource,
            user: owner.as_str(),
        };
        self.quotas.get_or_create(&labels).inc();
    }

    pub(crate) fn wrong_credentials(&self, port: &'static str, action: &'static str) {
        self.credentials
            .get_or_create(&ActionLabels { port, action })
            .inc();
    }
}
