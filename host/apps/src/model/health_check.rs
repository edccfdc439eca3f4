//! Health checks: probes that decide whether an instance is healthy, and when it is killed.
//!
//! The daemon makes those of the protocols HTTP, HTTPS and TCP. Agents make the others, which are
//! part of the task.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reader::Reader;
use super::reader::read_choice;
use transom_web::Problems;

/// Maximum length of a path, as upstream has it.
const MAX_PATH: usize = 1024;

/// A health check with all defaults. Fields that its protocol does not use are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HealthCheck {
    pub(crate) protocol: HealthProtocol,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<HealthCommand>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// The port itself; it takes precedence over the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// An index into the app's ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port_index: Option<u16>,
    pub(crate) ip_protocol: IpProtocol,
    /// Seconds from the start of the task during which failures before the first success are
    /// ignored.
    pub(crate) grace_period_seconds: u32,
    pub(crate) interval_seconds: u32,
    pub(crate) timeout_seconds: u32,
    /// Seconds from the start of the task to the first attempt; only used by agents.
    pub(crate) delay_seconds: u32,
    /// Consecutive failures that are tolerated; the next one kills the task. 0: failures never kill
    /// it.
    pub(crate) max_consecutive_failures: u32,
    /// Whether a status below 200 is ignored, instead of counting as a failure.
    #[serde(rename = "ignoreHttp1xx", default, skip_serializing_if = "Option::is_none")]
    pub(crate) ignore_http_1xx: Option<bool>,
}

/// What a health check does, and who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub(crate) enum HealthProtocol {
    #[serde(rename = "HTTP")]
    Http,
    #[serde(rename = "HTTPS")]
    Https,
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "COMMAND")]
    Command,
    #[serde(rename = "MESOS_HTTP")]
    MesosHttp,
    #[serde(rename = "MESOS_HTTPS")]
    MesosHttps,
    #[serde(rename = "MESOS_TCP")]
    MesosTcp,
}

impl HealthProtocol {
    /// Whether this daemon, and not the agent, makes the check.
    pub(crate) fn is_made_by_daemon(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Tcp)
    }

    /// Whether it is one of the agent's network checks, of which an app has at most one.
    fn is_mesos(self) -> bool {
        matches!(self, Self::MesosHttp | Self::MesosHttps | Self::MesosTcp)
    }

    fn has_path(self) -> bool {
        matches!(
            self,
            Self::Http | Self::Https | Self::MesosHttp | Self::MesosHttps
        )
    }
}

/// The address family of an agent's check in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub(crate) enum IpProtocol {
    IPv4,
    IPv6,
}

/// A line for `/bin/sh -c`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HealthCommand {
    pub(crate) value: String,
}

/// Parses one member of `healthChecks`. The port is not resolved yet.
pub(super) fn read(check: &mut Reader<'_>) -> Option<HealthCheck> {
    const PROTOCOLS: &[(&str, HealthProtocol)] = &[
        ("HTTP", HealthProtocol::Http),
        ("HTTPS", HealthProtocol::Https),
        ("TCP", HealthProtocol::Tcp),
        ("COMMAND", HealthProtocol::Command),
        ("MESOS_HTTP", HealthProtocol::MesosHttp),
        ("MESOS_HTTPS", HealthProtocol::MesosHttps),
        ("MESOS_TCP", HealthProtocol::MesosTcp),
    ];
    let families = [("IPv4", IpProtocol::IPv4), ("IPv6", IpProtocol::IPv6)];
    let protocol = match check.raw("protocol") {
        Some(_) => read_choice(check, "protocol", PROTOCOLS)?,
        None => HealthProtocol::Http,
    };
    let command = check.nested("command", read_command).flatten();
    let path = check.string("path");
    if path.as_ref().is_some_and(|path| path.len() > MAX_PATH) {
        check.problem("path", "error.maxLength");
    }
    let ignore_http_1xx = check.boolean("ignoreHttp1xx");
    let (port, port_index) = (check.port("port"), check.port("portIndex"));
    let networked = protocol != HealthProtocol::Command;
    Some(HealthCheck {
        protocol,
        command: command.filter(|_| !networked),
        path: path.filter(|_| protocol.has_path()),
        port: port.filter(|_| networked),
        port_index: port_index.filter(|_| networked),
        ip_protocol: read_choice(check, "ipProtocol", &families).unwrap_or(IpProtocol::IPv4),
        grace_period_seconds: check.count("gracePeriodSeconds").unwrap_or(300),
        interval_seconds: check.count("intervalSeconds").unwrap_or(60),
        timeout_seconds: check.count("timeoutSeconds").unwrap_or(20),
        delay_seconds: check.count("delaySeconds").unwrap_or(15),
        max_consecutive_failures: check.count("maxConsecutiveFailures").unwrap_or(3),
        ignore_http_1xx: ignore_http_1xx.filter(|_| protocol == HealthProtocol::Http),
    })
}

fn read_command(command: &mut Reader<'_>) -> Option<HealthCommand> {
    let value = command.string("value");
    if command.raw("value").is_none() {
        command.problem("value", "is undefined: the command line of the health check");
    }
    Some(HealthCommand { value: value? })
}

/// Resolves the ports of checks. Checks with neither port nor index use the first port, and their
/// documents show that index.
pub(super) fn resolve(checks: &mut [HealthCheck], ports: usize) {
    for check in checks {
        let names_none = check.port.is_none() && check.port_index.is_none();
        if names_none && ports > 0 && check.protocol != HealthProtocol::Command {
            check.port_index = Some(0);
        }
    }
}

/// The rules on the health checks of an app with that number of ports. `docker`: whether Docker's
/// containerizer runs it.
pub(super) fn rules(checks: &[HealthCheck], ports: usize, docker: bool, problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (index, check) in checks.iter().enumerate() {
        let path = format!("/healthChecks({index})");
        if !seen.insert(check) {
            problems.add("/healthChecks", "error.uniqueItems");
        }
        if check.ip_protocol == IpProtocol::IPv6 && !(docker && check.protocol.is_mesos()) {
            problems.add(
                &*path,
                "IPv6 can only be used for container type DOCKER and Mesos http/https/tcp health checks",
            );
        }
        if check.port == Some(0) {
            problems.add(&*path, "the port of a health check must be 1 or more");
        }
        let reachable = match (check.port, check.port_index) {
            (_, Some(index)) => usize::from(index) < ports,
            (port, None) => port.is_some() || check.protocol == HealthProtocol::Command,
        };
        if !reachable {
            problems.add(
                path,
                "Health check port indices must address an element of the ports array or container port mappings.",
            );
        }
    }
    if checks.iter().filter(|check| check.protocol.is_mesos()).count() > 1 {
        problems.add("/", "AppDefinition can contain at most one Mesos health check");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::model::{Invalid, read as read_app, rules as definition_rules};
    use crate::testing::{app, settings};
    use serde_json::{Value, json};

    fn stored(check: &Value) -> Value {
        let app = app(&json!({"id": "/a", "cmd": "sleep 1", "healthChecks": [check]}));
        json!(app)["healthChecks"][0].clone()
    }

    #[test]
    fn defaults_are_shown_and_fields_of_other_protocols_are_dropped() {
        let times = json!({
            "gracePeriodSeconds": 300, "intervalSeconds": 60, "maxConsecutiveFailures": 3, "timeoutSeconds": 20,
            "delaySeconds": 15, "ipProtocol": "IPv4",
        });
        for (given, own) in [
            (json!({}), json!({"protocol": "HTTP", "portIndex": 0})),
            (
                json!({"path": "/h", "port": 88, "ignoreHttp1xx": true}),
                json!({"protocol": "HTTP", "path": "/h", "port": 88, "ignoreHttp1xx": true}),
            ),
            (
                json!({"protocol": "HTTPS", "path": "/h", "ignoreHttp1xx": true}),
                json!({"protocol": "HTTPS", "path": "/h", "portIndex": 0}),
            ),
            (
                json!({"protocol": "TCP", "path": "/h", "portIndex": 0}),
                json!({"protocol": "TCP", "portIndex": 0}),
            ),
            (
                json!({"protocol": "COMMAND", "command": {"value": "true"}, "portIndex": 0, "path": "/"}),
                json!({"protocol": "COMMAND", "command": {"value": "true"}}),
            ),
            (
                json!({"protocol": "MESOS_TCP", "command": {"value": "true"}}),
                json!({"protocol": "MESOS_TCP", "portIndex": 0}),
            ),
        ] {
            let mut expected = times.clone();
            expected
                .as_object_mut()
                .unwrap()
                .extend(own.as_object().unwrap().clone());
            assert_eq!(stored(&given), expected, "{given}");
        }
    }

    #[test]
    fn definition_is_normalized_as_in_the_fixtures() {
        let suite: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/normalization.json")).unwrap();
        let mut replayed = 0;
        for case in suite["cases"].as_array().unwrap() {
            let mut check = case["input"]["healthChecks"][0].clone();
            let id = case["id"].as_str().unwrap();
            if !id.contains("/hc-") {
                continue;
            }
            let mut expected = case["expect"]["healthChecks"][0].clone();
            if check["protocol"] == "COMMAND" {
                // The fixture omits the command, which is required here.
                check["command"] = json!({"value": "true"});
                expected["command"] = json!({"value": "true"});
            }
            let found = stored(&check);
            for key in ["protocol", "port", "portIndex", "command"] {
                assert_eq!(found.get(key), expected.get(key), "{id}: {key}");
            }
            replayed += 1;
        }
        assert_eq!(replayed, 7);
    }

    #[test]
    fn bad_health_checks_are_rejected_with_their_path() {
        let address = "Health check port indices must address an element of the ports array";
        for (checks, ports, path, text) in [
            (
                json!([{"protocol": "FTP"}]),
                json!([]),
                "/healthChecks(0)/protocol",
                "error.unknown.enum.literal",
            ),
            (
                json!([{"protocol": "COMMAND", "command": {}}]),
                json!([]),
                "/healthChecks(0)/command/value",
                "undefined",
            ),
            (
                json!([{"intervalSeconds": -1}]),
                json!([]),
                "/healthChecks(0)/intervalSeconds",
                "error.min",
            ),
            (
                json!([{"port": 65536}]),
                json!([]),
                "/healthChecks(0)/port",
                "error.max",
            ),
            (
                json!([{"port": 0}]),
                json!([]),
                "/healthChecks(0)",
                "must be 1 or more",
            ),
            (json!([{}]), json!([]), "/healthChecks(0)", address),
            (
                json!([{}, {"portIndex": 1}]),
                json!([{"port": 0}]),
                "/healthChecks(1)",
                address,
            ),
            (
                json!([{}, {}]),
                json!([{"port": 0}]),
                "/healthChecks",
                "error.uniqueItems",
            ),
            (
                json!([{"port": 1, "ipProtocol": "IPv6"}]),
                json!([]),
                "/healthChecks(0)",
                "IPv6 can only be used",
            ),
            (
                json!([{"protocol": "MESOS_TCP", "port": 1}, {"protocol": "MESOS_HTTP", "port": 1}]),
                json!([]),
                "/",
                "at most one Mesos health check",
            ),
        ] {
            let body =
                json!({"id": "/a", "cmd": "sleep 1", "portDefinitions": ports, "healthChecks": checks});
            let problems = match read_app(&body) {
                Err(Invalid::Shape(problems) | Invalid::Rules(problems)) => problems,
                Ok(mut update) => {
                    let id = update.id.clone().unwrap();
                    let app = update.apply(id, None, &settings(), crate::time::Moment::now());
                    definition_rules::check(&app, &settings())
                }
            };
            assert!(problems.contains(path, text), "{checks}: {problems:?}");
        }
    }

    #[test]
    fn ipv6_is_only_allowed_for_agents_checks_of_docker_containers() {
        let allowed = |protocol: &str, docker: bool| {
            let app = app(&json!({
                "id": "/a", "cmd": "sleep 1",
                "healthChecks": [{"protocol": protocol, "port": 80, "command": {"value": "true"}}],
            }));
            let mut check = app.health_checks[0].clone();
            check.ip_protocol = IpProtocol::IPv6;
            let mut problems = Problems::default();
            rules(&[check], 1, docker, &mut problems);
            problems.is_empty()
        };
        assert!(allowed("MESOS_HTTP", true) && allowed("MESOS_TCP", true));
        assert!(!allowed("MESOS_HTTP", false) && !allowed("TCP", true) && !allowed("COMMAND", true));
    }
}
