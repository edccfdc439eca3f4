//! The overview as text. All text from the document is escaped before it reaches the terminal.

use std::fmt::Write as _;

use transom_plugin_host::printable;

use super::sections;
use super::style::Style;
use crate::output::table;
use crate::overview::rounded_duration;
use crate::overview::{Overview, Problem, Severity};

/// The whole overview, with a line break at its end.
pub(crate) fn of(overview: &Overview, style: Style) -> String {
    let mut text = format!("{}\n", header(overview, style));
    for (headings, rows) in [
        sections::services(overview),
        sections::cluster(overview),
        sections::parts(overview),
        sections::waiting(overview),
        sections::deployments(overview),
    ] {
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{}", headed(&table(headings, rows), style));
        }
    }
    text += "\n";
    if overview.problems.is_empty() {
        text += &style.green("No problems.");
        text += "\n";
    }
    for problem in &overview.problems {
        text += &self::problem(problem, style);
    }
    text
}

/// One line: version, host, time and whether it is ready.
pub(crate) fn header(overview: &Overview, style: Style) -> String {
    let ready = if overview.ready {
        style.green("ready")
    } else {
        style.red("not ready")
    };
    format!(
        "transom {} on {}, up {}: {ready}",
        printable(&overview.version),
        printable(&overview.hostname),
        rounded_duration(overview.uptime_seconds)
    )
}

/// A problem, and the advice on the line below it.
pub(crate) fn problem(problem: &Problem, style: Style) -> String {
    let severity = match problem.severity {
        Severity::Error => style.red("ERROR"),
        Severity::Warning => style.yellow("WARNING"),
    };
    let mut text = format!(
        "{severity} {}: {}\n",
        printable(&problem.source),
        printable(&problem.message)
    );
    if !problem.advice.is_empty() {
        let _ = writeln!(text, "  {}", printable(&problem.advice));
    }
    text
}

/// A table whose first line is bold.
pub(crate) fn headed(table: &str, style: Style) -> String {
    match table.split_once('\n') {
        Some((first, rest)) => format!("{}\n{rest}", style.bold(first)),
        None => style.bold(table),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overview(name: &str) -> Overview {
        let document = json!({
            "version": "0.1.0", "hostname": "master1", "uptime_seconds": 4000, "ready": true,
            "services": [{
                "name": "apps", "ready": true, "ports": [{"name": "apps", "address": "127.0.0.1:8080"}],
                "framework": {"name": "marathon", "leader": "master1:8080", "leading": true, "subscribed": true},
                "summary": {"apps": 2, "instances_wanted": 3, "instances_running": 1, "instances_queued": 2},
                "waiting": [{
                    "name": name, "instances": 2, "since": "2026-01-01T00:00:00Z",
                    "why": "2 of 2 offers have too few CPUs",
                }],
            }],
            "now": "2026-01-01T01:00:00Z",
            "cluster": {"masters": ["m:5050"], "reachable": true, "leader": "m:5050", "version": "1.11.0",
                "agents": {"total": 2, "active": 2},
                "resources": {"cpus": {"total": 8.0, "used": 2.5, "offered": 0.0}}},
            "store": {"kind": "redis", "server": "r:6379", "reachable": true, "durability": "appended"},
            "problems": [{"severity": "warning", "source": "apps", "message": name, "advice": "do it"}],
        });
        serde_json::from_value(document).expect("an overview")
    }

    #[test]
    fn tables_have_services_cluster_and_problems() {
        let text = of(&overview("/shop/web"), Style::PLAIN);
        for part in [
            "transom 0.1.0 on master1, up 66 min: ready",
            "SERVICE",
            "marathon",
            "1 of 3 instances",
            "2.5 of 8",
            "r:6379",
            "/shop/web",
            "2 of 2 offers have too few CPUs",
            "WARNING apps: /shop/web\n  do it\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn escape_sequences_in_names_do_not_reach_the_terminal() {
        let text = of(&overview("/\u{1b}]0;gone\u{7}\u{202e}x\n/y"), Style::PLAIN);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("/y")), "{text}");
    }
}
