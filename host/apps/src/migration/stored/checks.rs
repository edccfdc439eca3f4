//! Health checks, the check and readiness checks of apps.

use serde_json::{Value, json};

use super::messages::{Check, Command, HealthCheck, ReadinessCheck};
use super::{StoredError, unsupported, values};

const HEALTH_PROTOCOLS: &[&str] = &[
    "HTTP",
    "TCP",
    "COMMAND",
    "HTTPS",
    "MESOS_HTTP",
    "MESOS_HTTPS",
    "MESOS_TCP",
];

/// A health check in the form of the API. Absent numbers are the defaults of the message, which differ
/// from those of the API.
pub(super) fn health(check: &HealthCheck) -> Result<Value, StoredError> {
    let protocol = values::named(HEALTH_PROTOCOLS, check.protocol, "protocol of a health check")?;
    let is_command = protocol == "COMMAND";
    let ip = values::named(
        &["", "IPv4", "IPv6"],
        check.ip_protocol.unwrap_or(1),
        "IP protocol",
    )?;
    if check.port_name.is_some() {
        return Err(unsupported(
            "one of its health checks names a port, as only those of pods do",
        ));
    }
    let command = is_command.then(|| shell(check.command.as_ref())).transpose()?;
    let is_http = matches!(protocol, "HTTP" | "HTTPS");
    Ok(json!({
        "protocol": protocol,
        "command": command.map(|command| json!({"value": command})),
        "gracePeriodSeconds": check.grace_period_seconds.unwrap_or(15),
        "intervalSeconds": check.interval_seconds.unwrap_or(10),
        "timeoutSeconds": check.timeout_seconds.unwrap_or(20),
        "maxConsecutiveFailures": check.max_consecutive_failures.unwrap_or(3),
        "delaySeconds": check.delay_seconds.unwrap_or(15),
        "path": check.path,
        "port": check.port,
        "portIndex": if is_command { None } else { port_index(check.port_index, check.port) },
        "ignoreHttp1xx": is_http.then(|| check.ignore_http_1xx.unwrap_or_default()),
        "ipProtocol": ip,
    }))
}

/// A check in the form of the API.
pub(super) fn check(check: &Check) -> Result<Value, StoredError> {
    let index = port_index(check.port_index, check.port);
    let (name, target) = match check.protocol {
        0 => (
            "http",
            json!({"port": check.port, "portIndex": index, "path": check.path, "scheme": "HTTP"}),
        ),
        1 => ("tcp", json!({"port": check.port, "portIndex": index})),
        2 => (
            "exec",
            json!({"command": {"shell": shell(check.command.as_ref())?}}),
        ),
        other => return Err(unsupported(format!("its check has the protocol {other}"))),
    };
    Ok(json!({
        "intervalSeconds": check.interval_seconds.unwrap_or(60),
        "timeoutSeconds": check.timeout_seconds.unwrap_or(20),
        "delaySeconds": check.delay_seconds.unwrap_or(15),
        name: target,
    }))
}

/// A readiness check in the form of the API.
pub(super) fn readiness(check: &ReadinessCheck) -> Result<Value, StoredError> {
    let protocol = check
        .protocol
        .map(|protocol| values::named(&["HTTP", "HTTPS"], protocol, "protocol"));
    Ok(json!({
        "name": check.name,
        "protocol": protocol.transpose()?,
        "path": check.path,
        "portName": check.port_name,
        "intervalSeconds": check.interval_millis.map(|millis| millis / 1000),
        "timeoutSeconds": check.timeout_millis.map(|millis| millis / 1000),
        "httpStatusCodesForReady": (!check.http_status_codes.is_empty()).then_some(&check.http_status_codes),
        "preserveLastResponse": check.preserve_last_response,
    }))
}

/// A check with neither port nor index uses the first port.
fn port_index(index: Option<u32>, port: Option<u32>) -> Option<u32> {
    index.or_else(|| port.is_none().then_some(0))
}

fn shell(command: Option<&Command>) -> Result<&str, StoredError> {
    match command {
        Some(command) if command.shell != Some(false) => Ok(command.value.as_deref().unwrap_or_default()),
        _ => Err(unsupported("the command of one of its checks is not for a shell")),
    }
}
