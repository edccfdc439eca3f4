//! The results of checks, as tasks and events show them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use transom_cluster::v1::CheckStatusInfo;
use transom_plugin_host::printable;
use transom_plugin_host::probe::Outcome;

/// The last result of a check, by its kind. Shown as `checkResult`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(crate) enum CheckResult {
    /// A GET was answered.
    Http { status_code: u32 },
    /// Whether a connection was accepted.
    Tcp { succeeded: bool },
    /// A command has ended.
    Command { exit_code: i32 },
    /// The object that a probe of the kind `plugin` has reported.
    Plugin(Value),
}

impl CheckResult {
    /// The result of the agent's check; `None` before the first one.
    pub(crate) fn of_agent(status: &CheckStatusInfo) -> Option<Self> {
        let http = status.http.as_ref().and_then(|http| http.status_code);
        let http = http.map(|status_code| Self::Http { status_code });
        let tcp = || status.tcp.as_ref().and_then(|tcp| tcp.succeeded);
        let tcp = || tcp().map(|succeeded| Self::Tcp { succeeded });
        let command = || status.command.as_ref().and_then(|command| command.exit_code);
        let command = || command().map(|exit_code| Self::Command { exit_code });
        http.or_else(tcp).or_else(command)
    }

    /// Whether it is a success. The service cannot interpret the result of a custom probe, so any
    /// such result is a success.
    pub(crate) fn is_success(&self) -> bool {
        match self {
            Self::Http { status_code } => (200..400).contains(status_code),
            Self::Tcp { succeeded } => *succeeded,
            Self::Command { exit_code } => *exit_code == 0,
            Self::Plugin(_) => true,
        }
    }
}

impl From<&Outcome> for CheckResult {
    /// The result of this daemon's probe.
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Http(status) => Self::Http {
                status_code: (*status).into(),
            },
            Outcome::Tcp(succeeded) => Self::Tcp {
                succeeded: *succeeded,
            },
            Outcome::Command(code) => Self::Command { exit_code: *code },
            Outcome::Custom(text) => Self::Plugin(serde_json::from_str(text).map_or(Value::Null, escaped)),
        }
    }
}

/// A component's document with terminal control characters escaped.
fn escaped(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(printable(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (printable(&name).into_owned(), escaped(value)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    #[test]
    fn check_results_of_agent_and_plugin_have_the_same_shape() {
        let suite: Value = serde_json::from_str(include_str!("../tests/fixtures/checks.json")).unwrap();
        let mut replayed = 0;
        for case in suite["cases"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|case| case["kind"] == "check-result")
        {
            let given = &case["input"]["mesos_check_status"];
            let snake = given
                .to_string()
                .replace("statusCode", "status_code")
                .replace("exitCode", "exit_code");
            let agent: CheckStatusInfo = serde_json::from_str(&snake).unwrap();
            let ours = match (&given["http"], &given["tcp"], &given["command"]) {
                (Value::Object(http), _, _) => Outcome::Http(http["statusCode"].as_u64().unwrap() as u16),
                (_, Value::Object(tcp), _) => Outcome::Tcp(tcp["succeeded"].as_bool().unwrap()),
                (_, _, command) => Outcome::Command(command["exitCode"].as_i64().unwrap() as i32),
            };
            let expected = &case["expect"]["task_json_field"]["checkResult"];
            assert_eq!(&json!(CheckResult::of_agent(&agent)), expected, "{}", case["id"]);
            assert_eq!(&json!(CheckResult::from(&ours)), expected, "{}", case["id"]);
            replayed += 1;
        }
        assert_eq!(replayed, 4);
        let empty: CheckStatusInfo = serde_json::from_str(r#"{"type":"HTTP","http":{}}"#).unwrap();
        assert_eq!(CheckResult::of_agent(&empty), None);
    }

    #[test]
    fn success_of_a_check_result_depends_on_its_kind() {
        let http = |status_code| CheckResult::Http { status_code };
        let tcp = |succeeded| CheckResult::Tcp { succeeded };
        let command = |exit_code| CheckResult::Command { exit_code };
        for (result, expected) in [
            (http(200), true),
            (http(302), true),
            (http(503), false),
            (tcp(true), true),
            (tcp(false), false),
            (command(0), true),
            (command(1), false),
            (CheckResult::Plugin(json!({"lag": 3})), true),
        ] {
            assert_eq!(result.is_success(), expected, "{result:?}");
        }
    }

    #[test]
    fn control_characters_in_a_plugin_result_are_escaped() {
        let found =
            Outcome::Custom(r#"{"a\u202e": ["\u001b[2J", {"b": "\u009b2J ä\n"}], "n": 1}"#.to_owned());
        let expected = json!({"plugin": {"a\\u{202e}": ["\\u{1b}[2J", {"b": "\\u{9b}2J ä\\u{a}"}], "n": 1}});
        assert_eq!(json!(CheckResult::from(&found)), expected);
    }
}
