//! Readiness checks: a deployment counts a new instance only after it has answered that it is
//! ready.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::port_input::read_name;
use super::reader::Reader;
use super::reader::read_choice;
use transom_web::Problems;

/// Maximum length of a path, as upstream has it.
const MAX_PATH: usize = 1024;

/// A readiness check with all defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadinessCheck {
    pub(crate) name: String,
    pub(crate) protocol: Scheme,
    pub(crate) path: String,
    /// The name of one of the app's ports.
    pub(crate) port_name: String,
    /// Seconds from the end of one attempt to the next.
    pub(crate) interval_seconds: u32,
    pub(crate) timeout_seconds: u32,
    /// Statuses that mean ready, never empty.
    pub(crate) http_status_codes_for_ready: Vec<u16>,
    /// Whether the last response is shown.
    pub(crate) preserve_last_response: bool,
}

/// The scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Scheme {
    #[serde(rename = "HTTP")]
    Http,
    #[serde(rename = "HTTPS")]
    Https,
}

/// Parses one member of `readinessChecks`.
#[expect(clippy::unnecessary_wraps, reason = "as the readers of other lists")]
pub(super) fn read(check: &mut Reader<'_>) -> Option<ReadinessCheck> {
    let schemes = [("HTTP", Scheme::Http), ("HTTPS", Scheme::Https)];
    for key in ["name", "path"] {
        if check.raw(key).and_then(|value| value.as_str()) == Some("") {
            check.problem(key, "error.minLength");
        }
    }
    let path = check.string("path");
    if path.as_ref().is_some_and(|path| path.len() > MAX_PATH) {
        check.problem("path", "error.maxLength");
    }
    let timeout = check.count("timeoutSeconds").unwrap_or(10);
    if timeout == 0 {
        check.problem("timeoutSeconds", "error.min");
        check.problem("timeoutSeconds", "got 0, expected 1 or more");
    }
    Some(ReadinessCheck {
        name: check
            .string("name")
            .unwrap_or_else(|| "readinessCheck".to_owned()),
        protocol: read_choice(check, "protocol", &schemes).unwrap_or(Scheme::Http),
        path: path.unwrap_or_else(|| "/".to_owned()),
        port_name: read_name(check, "portName").unwrap_or_else(|| "http-api".to_owned()),
        interval_seconds: check.count("intervalSeconds").unwrap_or(30),
        timeout_seconds: timeout,
        http_status_codes_for_ready: read_codes(check).unwrap_or_else(|| vec![200]),
        preserve_last_response: check.boolean("preserveLastResponse").unwrap_or(false),
    })
}

fn read_codes(check: &mut Reader<'_>) -> Option<Vec<u16>> {
    const KEY: &str = "httpStatusCodesForReady";
    let items = check.array(KEY)?;
    if items.is_empty() {
        check.problem(KEY, "error.minLength");
    }
    let mut codes = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match item.as_u64().map(u16::try_from) {
            Some(Ok(code)) => codes.push(code),
            Some(Err(_)) => check.problem(&format!("{KEY}({index})"), "error.max"),
            None => check.problem(&format!("{KEY}({index})"), "error.expected.jsnumber"),
        }
    }
    if codes.iter().collect::<BTreeSet<_>>().len() != codes.len() {
        check.problem(KEY, "error.uniqueItems");
    }
    Some(codes)
}

/// The rules on the readiness checks of an app whose ports have these names.
pub(super) fn rules<'a>(
    checks: &[ReadinessCheck],
    ports: impl Iterator<Item = &'a str>,
    problems: &mut Problems,
) {
    let ports: BTreeSet<&str> = ports.collect();
    if checks.len() > 1 {
        let text = format!("got {} readiness checks, expected at most 1", checks.len());
        problems.add("/readinessChecks", text);
    }
    for (index, check) in checks.iter().enumerate() {
        let path = format!("/readinessChecks({index})");
        if !ports.contains(check.port_name.as_str()) {
            problems.add(
                format!("{path}/portName"),
                format!("No port definition reference for portName {}", check.port_name),
            );
        }
        if check.timeout_seconds >= check.interval_seconds {
            problems.add(
                format!("{path}/timeoutSeconds"),
                format!(
                    "got {}, expected less than intervalSeconds, which is {}",
                    check.timeout_seconds, check.interval_seconds
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::app;
    use serde_json::{Value, json};

    fn stored(check: &Value) -> Value {
        let body = json!({
            "id": "/a", "cmd": "sleep 1", "portDefinitions": [{"name": "http-api"}], "readinessChecks": [check],
        });
        json!(app(&body))["readinessChecks"][0].clone()
    }

    #[test]
    fn defaults_are_shown_and_codes_are_normalized_as_in_the_fixtures() {
        let defaults = json!({
            "name": "readinessCheck", "protocol": "HTTP", "path": "/", "portName": "http-api", "intervalSeconds": 30,
            "timeoutSeconds": 10, "httpStatusCodesForReady": [200], "preserveLastResponse": false,
        });
        assert_eq!(stored(&json!({})), defaults);
        let suite: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/normalization.json")).unwrap();
        let mut replayed = 0;
        for case in suite["cases"].as_array().unwrap() {
            if let Some(check) = case["input"]["readinessChecks"].get(0) {
                let expected = &case["expect"]["readinessChecks"][0]["httpStatusCodesForReady"];
                assert_eq!(
                    &stored(check)["httpStatusCodesForReady"],
                    expected,
                    "{}",
                    case["id"]
                );
                replayed += 1;
            }
        }
        assert_eq!(replayed, 2);
    }

    #[test]
    fn second_readiness_check_and_timeout_over_the_interval_are_rejected() {
        let check = |timeout| ReadinessCheck {
            name: "r".to_owned(),
            protocol: Scheme::Http,
            path: "/".to_owned(),
            port_name: "p".to_owned(),
            interval_seconds: 5,
            timeout_seconds: timeout,
            http_status_codes_for_ready: vec![200],
            preserve_last_response: false,
        };
        let found = |checks: &[ReadinessCheck], ports: &[&str]| {
            let mut problems = Problems::default();
            rules(checks, ports.iter().copied(), &mut problems);
            problems
        };
        assert!(found(&[check(4)], &["p"]).is_empty());
        assert!(found(&[check(4), check(4)], &["p"]).contains("/readinessChecks", "at most 1"));
        assert!(found(&[check(5)], &["p"]).contains("/readinessChecks(0)/timeoutSeconds", "less than"));
        assert!(found(&[check(4)], &["q"]).contains("/readinessChecks(0)/portName", "No port definition"));
    }
}
