//! Rules between the fields of a definition. Pure: rules that depend on other apps or on the
//! attributes component are checked elsewhere.

use super::{
    App, Check, CheckKind, CheckPort, DefinitionSettings, Engine, ResourceLimit, ResourceLimits,
    container_rules, health_check, network_rules, readiness, resident_rules,
};
use crate::settings::Feature;
use transom_web::Problems;

pub(crate) use super::resident_rules::check_update;

/// Apps with this label run at most one instance, even during an upgrade.
const SINGLE_INSTANCE: &str = "MARATHON_SINGLE_INSTANCE_APP";

/// All problems of `app`. Parts that are not supported yet are reported only for a definition that
/// has no other problem.
pub(crate) fn check(app: &App, settings: &DefinitionSettings) -> Problems {
    let mut problems = Problems::default();
    program(app, &mut problems);
    network_rules::check(app, &mut problems);
    container_rules::check(app, settings, &mut problems);
    container_rules::secrets(app, settings, &mut problems);
    roles(&app.role, &app.accepted_resource_roles, settings, &mut problems);
    strategy(app, &mut problems);
    resident_rules::check(app, &mut problems);
    resources(app, settings, &mut problems);
    if let Some(check) = &app.check {
        check_times(check, "/check", &mut problems);
        check_port(check, app.port_count(), &mut problems);
    }
    health_check::rules(
        &app.health_checks,
        app.port_count(),
        app.engine() == Some(Engine::Docker),
        &mut problems,
    );
    readiness::rules(&app.readiness_checks, app.port_names(), &mut problems);
    for (index, artifact) in app.fetch.iter().enumerate() {
        if !is_uri(&artifact.uri) {
            problems.add(format!("/fetch({index})/uri"), "URI has invalid syntax.");
        }
    }
    problems
}

fn program(app: &App, problems: &mut Problems) {
    let image = app.container.as_ref().is_some_and(|it| it.docker.is_some());
    let (cmd, args) = (app.cmd.is_some(), !app.args.is_empty());
    if cmd && args || !cmd && !args && !image {
        problems.add(
            "/",
            "AppDefinition must either contain one of 'cmd' or 'args', and/or a 'container'.",
        );
    }
    // Upstream rejects a single character too. No real program has such a name, and tests of
    // clients depend on the rejection.
    if app.cmd.as_ref().is_some_and(|cmd| cmd.chars().count() <= 1) {
        problems.add("/", "must not be an empty string");
    }
    if !is_executor(&app.executor) {
        problems.add("/executor", "error.pattern");
        problems.add(
            "/executor",
            format!("must fully match regular expression '{EXECUTOR}'"),
        );
    }
}

/// The name of the command executor; an empty name has the same meaning.
pub(crate) const COMMAND_EXECUTOR: &str = "//cmd";

/// Upstream's pattern of executors.
const EXECUTOR: &str = "^(//cmd)|(/?[^/]+(/[^/]+)*)|$";

/// Empty, the command executor, or a path without empty parts.
fn is_executor(executor: &str) -> bool {
    let path = executor.strip_prefix('/').unwrap_or(executor);
    matches!(executor, "" | COMMAND_EXECUTOR) || path.split('/').all(|part| !part.is_empty())
}

fn resources(app: &App, settings: &DefinitionSettings, problems: &mut Problems) {
    if app.gpus > 0 {
        settings.require(Feature::GpuResources, "/gpus", problems);
        if app.engine() == Some(Engine::Docker) {
            problems.add("/gpus", "GPU resources only work with the Mesos containerizer");
        }
    }
    if let Some(limits) = app.resource_limits {
        resource_limits(limits, app.cpus, app.mem, "/resourceLimits", problems);
    }
}

/// Adds the problems of limits for a task that requests these amounts.
pub(super) fn resource_limits(
    limits: ResourceLimits,
    cpus: f64,
    mem: f64,
    path: &str,
    problems: &mut Problems,
) {
    for (name, limit, requested) in [("cpus", limits.cpus, cpus), ("mem", limits.mem, mem)] {
        if let Some(ResourceLimit::Amount(limit)) = limit
            && limit < requested
        {
            problems.add(
                format!("{path}/{name}"),
                format!("resource limit must be greater than or equal to requested resource ({requested:?})"),
            );
        }
    }
}

/// Adds the problems of the role of an app or a pod, and of the roles whose resources it accepts.
pub(super) fn roles(role: &str, accepted: &[String], settings: &DefinitionSettings, problems: &mut Problems) {
    let allowed = settings.allowed_roles();
    if !allowed.contains(&role) {
        let expected = allowed.join(", ");
        problems.add("/role", format!("got {role}, expected one of: [{expected}]"));
    }
    if accepted
        .iter()
        .any(|accepted| accepted != "*" && accepted != role)
    {
        let allowed = if role == "*" {
            "*".to_owned()
        } else {
            format!("* and {role}")
        };
        problems.add(
            "/acceptedResourceRoles",
            format!("acceptedResourceRoles can only contain {allowed}"),
        );
    }
}

fn strategy(app: &App, problems: &mut Problems) {
    migration(app, problems);
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

/// Adds the problems of the labels of packages that can be migrated: these must describe how.
fn migration(app: &App, problems: &mut Problems) {
    let label = |name: &str| app.labels.get(name).filter(|value| !value.is_empty());
    let Some(version) = label("DCOS_MIGRATION_API_VERSION") else {
        return;
    };
    let complete =
        label("DCOS_PACKAGE_FRAMEWORK_NAME").is_some() && label("DCOS_MIGRATION_API_PATH").is_some();
    if version != "v1" || !complete {
        problems.add(
            "/",
            "DCOS_PACKAGE_FRAMEWORK_NAME and DCOS_MIGRATION_API_PATH must be defined when using \
             DCOS_MIGRATION_API_VERSION",
        );
    }
}

/// Adds the problems of a check's times and path.
pub(super) fn check_times<P>(check: &Check<P>, path: &str, problems: &mut Problems) {
    if let CheckKind::Http { path: Some(at), .. } = &check.kind
        && !at.starts_with('/')
    {
        problems.add(format!("{path}/http/path"), "must start with /");
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

fn check_port(check: &Check, ports: usize, problems: &mut Problems) {
    if let Some(CheckPort::PortIndex(index)) = check.port()
        && usize::from(index) >= ports
    {
        problems.add(
            format!("/check/{}/portIndex", check.kind_name()),
            "check port index must address an element of the ports array or container port mappings.",
        );
    }
    if let Some(CheckPort::Port(0)) = check.port() {
        problems.add("/check", "the port of a check must be 1 or more");
    }
}

/// Whether Java's URI class, which upstream uses, accepts the text: no blanks, control characters
/// or other characters that URIs exclude.
fn is_uri(text: &str) -> bool {
    !text.is_empty()
        && !text
            .chars()
            .any(|char| char.is_control() || char.is_whitespace() || "\"<>\\^`{|}".contains(char))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
pub(super) mod tests;
