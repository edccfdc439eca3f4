//! Progress on standard error: on a terminal one line that is overwritten, otherwise a line for each
//! change.

use std::io::{IsTerminal, Write};

use serde_json::Value;
use transom_plugin_host::printable;

use crate::output::print_note;

/// Prints progress.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
    last: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            last: String::new(),
        }
    }

    /// Shows the progress, if the text changed. Returns whether it did.
    pub(super) fn show(&mut self, text: &str) -> bool {
        if text == self.last || text.is_empty() {
            return false;
        }
        text.clone_into(&mut self.last);
        let text = printable(text);
        if self.terminal {
            // The control characters return to the beginning of the line and clear it. A line that
            // wraps could not be cleared, so it is cut to the width of the terminal.
            let line: String = text.chars().take(columns().saturating_sub(1)).collect();
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\u{1b}[2K{line}").and_then(|()| stderr.flush());
        } else {
            print_note(&text);
        }
        true
    }

    /// Prints a line that is not overwritten.
    pub(super) fn note(&mut self, text: &str) {
        self.end();
        print_note(printable(text));
    }

    /// Ends the line that is overwritten.
    pub(super) fn end(&mut self) {
        if self.terminal && !self.last.is_empty() {
            print_note("");
        }
        self.last.clear();
    }
}

/// The width of the terminal, if the shell exports it.
fn columns() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    columns.and_then(|text| text.parse().ok()).unwrap_or(80)
}

/// A deployment in one line: its step, and the actions of that step. `counts` contains texts about the
/// instances of some apps, by id.
pub(super) fn line(deployment: &Value, counts: &[(String, String)]) -> String {
    const MAX_ACTIONS: usize = 3;
    let number = |key: &str| deployment[key].as_u64().unwrap_or(0);
    let actions = deployment["currentActions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut parts: Vec<String> = actions
        .iter()
        .take(MAX_ACTIONS)
        .filter_map(|action| {
            let (verb, id) = verb(action)?;
            let count = counts.iter().find(|(app, _)| app == id);
            Some(match count {
                Some((_, count)) => format!("{verb} {id} ({count})"),
                None => format!("{verb} {id}"),
            })
        })
        .collect();
    if actions.len() > MAX_ACTIONS {
        parts.push(format!("{} more", actions.len() - MAX_ACTIONS));
    }
    let mut text = format!("step {} of {}", number("currentStep"), number("totalSteps"));
    if !parts.is_empty() {
        text = format!("{text}: {}", parts.join(", "));
    }
    if deployment["canary"]["state"] == "held" {
        text += "; the canary is healthy; the remaining instances are paused";
    }
    text
}

/// A word for an action of a deployment, such as `scale`, and the id that it changes.
pub(super) fn verb(action: &Value) -> Option<(&'static str, &str)> {
    let id = action["app"].as_str().or_else(|| action["pod"].as_str())?;
    let verb = match action["action"].as_str()? {
        "StartApplication" | "StartPod" => "start",
        "StopApplication" | "StopPod" => "stop",
        "ScaleApplication" | "ScalePod" => "scale",
        "RestartApplication" | "RestartPod" => "restart",
        _ => "change",
    };
    Some((verb, id))
}

/// The instances of an app in a few words: `2 of 3 running, 1 healthy`.
pub(super) fn instances(app: &Value) -> String {
    let number = |key: &str| app[key].as_u64().unwrap_or(0);
    let mut text = format!("{} of {} running", number("tasksRunning"), number("instances"));
    if app["healthChecks"]
        .as_array()
        .is_some_and(|checks| !checks.is_empty())
    {
        text = format!("{text}, {} healthy", number("tasksHealthy"));
    }
    // During a restart some tasks still run the previous configuration. All timestamps have the same
    // form, so they sort as text.
    let changed = app["versionInfo"]["lastConfigChangeAt"]
        .as_str()
        .unwrap_or_default();
    let tasks = app["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let versions = tasks.iter().filter_map(|task| task["version"].as_str());
    let old = versions.filter(|version| *version < changed).count();
    if old > 0 {
        text = format!("{text}, {old} to replace");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deployment_is_shown_with_its_step_and_some_actions() {
        let action = |verb: &str, id: &str| json!({"action": verb, "app": id});
        let deployment = json!({"currentStep": 2, "totalSteps": 3, "currentActions": [
            action("ScaleApplication", "/a"), action("RestartApplication", "/b"), {"action": "StopPod", "pod": "/c"},
            action("StartApplication", "/d"),
        ]});
        let counts = [("/a".to_owned(), "1 of 3 running".to_owned())];
        assert_eq!(
            line(&deployment, &counts),
            "step 2 of 3: scale /a (1 of 3 running), restart /b, stop /c, 1 more"
        );
    }

    #[test]
    fn instances_are_counted_with_health_and_earlier_versions() {
        let app = json!({
            "instances": 3, "tasksRunning": 2, "tasksHealthy": 1, "healthChecks": [{}],
            "tasks": [{"version": "1"}, {"version": "2"}], "versionInfo": {"lastConfigChangeAt": "2"},
        });
        assert_eq!(instances(&app), "2 of 3 running, 1 healthy, 1 to replace");
        assert_eq!(instances(&json!({"instances": 0})), "0 of 0 running");
    }
}
