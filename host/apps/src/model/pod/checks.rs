//! Checks and health checks of containers. They name a port by its endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::check_input::{read_exec, read_with};
use crate::model::port_input::read_name;
use crate::model::reader::Reader;
use crate::model::reader::read_choice;
use crate::model::{Check, CheckCommand, Scheme};
use transom_web::Problems;

/// Maximum length of a path, as upstream has it.
const MAX_PATH: usize = 1024;

/// A check of a container.
pub(crate) type PodCheck = Check<AtEndpoint>;

/// The port of a check: an endpoint of its container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AtEndpoint {
    pub(crate) endpoint: String,
}

/// A health check that the agent makes. After enough failures the agent ends the container, and so
/// its instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodHealthCheck {
    #[serde(flatten)]
    pub(crate) probe: HealthProbe,
    /// Seconds from the start of the task during which failures before the first success are
    /// ignored.
    pub(crate) grace_period_seconds: u32,
    pub(crate) interval_seconds: u32,
    /// Consecutive failures that kill the container; 0: failures never kill it.
    pub(crate) max_consecutive_failures: u32,
    pub(crate) timeout_seconds: u32,
    /// Seconds from the start of the task to the first attempt.
    pub(crate) delay_seconds: u32,
}

/// What a health check does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HealthProbe {
    /// A GET; statuses from 200 to 399 are healthy.
    Http {
        endpoint: String,
        /// Shown as given; the default is `/`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        scheme: Scheme,
    },
    /// A connection.
    Tcp { endpoint: String },
    /// A command in the container; the exit code 0 is healthy.
    Exec { command: CheckCommand },
}

impl HealthProbe {
    /// The name of its kind in the document, and its endpoint.
    pub(crate) fn target(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Http { endpoint, .. } => Some(("http", endpoint)),
            Self::Tcp { endpoint } => Some(("tcp", endpoint)),
            Self::Exec { .. } => None,
        }
    }
}

/// Parses a check. Returns `None` if its kind is not clear, and records the problem.
pub(super) fn read_check(check: &mut Reader<'_>) -> Option<PodCheck> {
    read_with(check, read_endpoint)
}

fn read_endpoint(check: &mut Reader<'_>) -> Option<AtEndpoint> {
    if check.raw("endpoint").is_none() {
        check.problem(
            "endpoint",
            "is undefined: the name of an endpoint of the container",
        );
    }
    let endpoint = read_name(check, "endpoint")?;
    Some(AtEndpoint { endpoint })
}

/// Parses a health check. Returns `None` if its kind is not clear, and records the problem.
pub(super) fn read_health_check(check: &mut Reader<'_>, broken: &mut Problems) -> Option<PodHealthCheck> {
    let kinds: Vec<&str> = ["http", "tcp", "exec"]
        .into_iter()
        .filter(|kind| check.raw(kind).is_some())
        .collect();
    if kinds.len() != 1 {
        broken.add(
            check.object_path(),
            "Only one of http, tcp, or command may be specified",
        );
    }
    let http = check.nested("http", read_http).flatten();
    let tcp = check.nested("tcp", read_endpoint).flatten();
    let exec = read_exec(check);
    let probe = http
        .or_else(|| tcp.map(|AtEndpoint { endpoint }| HealthProbe::Tcp { endpoint }))
        .or_else(|| exec.map(|command| HealthProbe::Exec { command }));
    let grace_period_seconds = check.count("gracePeriodSeconds").unwrap_or(300);
    let interval_seconds = check.count("intervalSeconds").unwrap_or(60);
    let max_consecutive_failures = check.count("maxConsecutiveFailures").unwrap_or(3);
    let timeout_seconds = check.count("timeoutSeconds").unwrap_or(20);
    let delay_seconds = check.count("delaySeconds").unwrap_or(15);
    if timeout_seconds >= interval_seconds {
        broken.add(
            check.path("timeoutSeconds"),
            format!("got {timeout_seconds}, expected less than {interval_seconds}"),
        );
    }
    Some(PodHealthCheck {
        probe: probe?,
        grace_period_seconds,
        interval_seconds,
        max_consecutive_failures,
        timeout_seconds,
        delay_seconds,
    })
}

fn read_http(http: &mut Reader<'_>) -> Option<HealthProbe> {
    let schemes = [("HTTP", Scheme::Http), ("HTTPS", Scheme::Https)];
    let at = read_endpoint(http);
    let path = http.text("path", MAX_PATH);
    let scheme = read_choice(http, "scheme", &schemes).unwrap_or(Scheme::Http);
    Some(HealthProbe::Http {
        endpoint: at?.endpoint,
        path,
        scheme,
    })
}
