//! Observability for operators: metrics, the status of plugins, health and guests' logs.
//!
//! A call is measured once, in its version's [`version_metrics::VersionMetrics`]; the metrics and
//! [`status::Status`] are derived from that.

pub(crate) mod guest_log;
pub(crate) mod health;
pub(crate) mod latency_histogram;
pub(crate) mod metrics;
pub(crate) mod recent_log;
pub(crate) mod status;
pub(crate) mod version_metrics;
