//! Rules between the fields of a definition. Pure: checks that need other apps or the attributes
//! component are made elsewhere.

use std::collections::BTreeSet;

use super::{App, Check, CheckKind, CheckPort, health_check, readiness};
use transom_web::Problems;

/// Apps with this label run at most one instance, even during an upgrade.
const SINGLE_INSTANCE: &str = "MARATHON_SINGLE_INSTANCE_APP";

/// All problems of `app`; `role` is the framework's.
pub(crate) fn check(app: &App, role: &str) -> Problems {
    let mut problems = Problems::default();
    program(app, &mut problems);
    ports(app, &mut problems);
    roles(app, role, &mut problems);
    strategy(app, &mut problems);
    if let Some(check) = &app.check {
        looks(check, app.port_definitions.len(), &mut problems);
    }
    health_check::rules(
        &app.health_checks,
        app.port_definitions.len(),
        false,
        &mut problems,
    );
    let names = app
        .port_definitions
        .iter()
        .filter_map(|port| port.name.as_deref());
    readiness::rules(&app.readiness_checks, names, &mut problems);
    for (index, artifact) in app.fetch.iter().enumerate() {
        if !is_uri(&artifact.uri) {
            problems.add(format!("/fetch({index})/uri"), "URI has invalid syntax.");
        }
    }
    for (index, _) in app.env.keys().enumerate().filter(|(_, name)| name.is_empty()) {
        problems.add(format!("/env/keys({index})"), "must not be empty");
    }
    if app.gpus > 0 {
        // The framework does not register as one that uses GPUs, so it is offered none.
        let text = "Feature gpu_resources is not enabled. Enable with --enable_features gpu_resources)";
        problems.add("/gpus", text);
    }
    problems
}

fn program(app: &App, problems: &mut Problems) {
    if app.cmd.is_some() != app.args.is_empty() {
        problems.add(
            "/",
            "AppDefinition must either contain one of 'cmd' or 'args', and/or a 'container'.",
        );
    }
    // Upstream rejects one character too. No real program has such a name, and clients' tests rely
    // on it.
    if app.cmd.as_ref().is_some_and(|cmd| cmd.chars().count() <= 1) {
        problems.add("/", "must not be an empty string");
    }
}

fn ports(app: &App, problems: &mut Problems) {
    let numbers: Vec<u16> = app
        .port_definitions
        .iter()
        .map(|port| port.port)
        .filter(|port| *port != 0)
        .collect();
    if numbers.iter().collect::<BTreeSet<_>>().len() != numbers.len() {
        problems.add("/portDefinitions", "Ports must be unique.");
    }
    let names: Vec<&String> = app
        .port_definitions
        .iter()
        .filter_map(|port| port.name.as_ref())
        .collect();
    if names.iter().collect::<BTreeSet<_>>().len() != names.len() {
        problems.add("/portDefinitions", "Port names must be unique.");
    }
}

fn roles(app: &App, role: &str, problems: &mut Problems) {
    if app.role != role && app.role != "*" {
        let expected = if role == "*" {
            "*".to_owned()
        } else {
            format!("*, {role}")
        };
        problems.add(
            "/role",
            format!("got {}, expected one of: [{expected}]", app.role),
        );
    }
    if app
        .accepted_resource_roles
        .iter()
        .any(|accepted| accepted != "*" && *accepted != app.role)
    {
        let allowed = if app.role == "*" {
            "*".to_owned()
        } else {
            format!("* and {}", app.role)
        };
        problems.add(
            "/acceptedResourceRoles",
            format!("acceptedResourceRoles can only contain {allowed}"),
        );
    }
}

fn strategy(app: &App, problems: &mut Problems) {
    if app
        .labels
        .get(SINGLE_INSTANCE)
        .is_none_or(|value| value != "true")
    {
        return;
    }
    if app.instances > 1 {
        problems.add("/instances", "Single instance app may only have one instance");
    }
    if app.upgrade_strategy.maximum_over_capacity != 0.0
        || app.upgrade_strategy.minimum_health_capacity != 0.0
    {
        problems.add(
            "/upgradeStrategy",
            "maximumOverCapacity and minimumHealthCapacity of a single instance app must be 0",
        );
    }
}

fn looks(check: &Check, ports: usize, problems: &mut Problems) {
    if check.timeout_seconds >= check.interval_seconds {
        problems.add(
            "/check/timeoutSeconds",
            format!(
                "got {}, expected less than intervalSeconds, which is {}",
                check.timeout_seconds, check.interval_seconds
            ),
        );
    }
    if let Some(CheckPort::PortIndex(index)) = check.port()
        && usize::from(index) >= ports
    {
        let kind = if matches!(check.kind, CheckKind::Tcp { .. }) {
            "tcp"
        } else {
            "http"
        };
        problems.add(
            format!("/check/{kind}/portIndex"),
            "check port index must address an element of the ports array or container port mappings.",
        );
    }
    if let Some(CheckPort::Port(0)) = check.port() {
        problems.add("/check", "the port of a check must be 1 or more");
    }
    if let CheckKind::Http { path: Some(path), .. } = &check.kind
        && !path.starts_with('/')
    {
        problems.add("/check/http/path", "must start with /");
    }
}

/// Whether Java's URI class, which upstream uses, accepts it: no blanks, controls or characters
/// that URIs do not have.
fn is_uri(text: &str) -> bool {
    !text.is_empty()
        && !text
            .chars()
            .any(|char| char.is_control() || char.is_whitespace() || "\"<>\\^`{|}".contains(char))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
