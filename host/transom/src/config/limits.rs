//! The bounds of the limits in `[apps]`.

use super::settings::Apps;
use super::workflow::Workflow;

/// Upstream's counts are 32-bit integers with a sign.
const MAX_INSTANCES: usize = i32::MAX as usize;
/// All versions of an app are in one record of the store, so their number is limited.
const MAX_VERSIONS: usize = 1000;
/// The whole body of a request is in memory, so its size is limited.
const MAX_BODY_BYTES: usize = 256 << 20;
/// The budgets must have room for one definition of any size.
const MIN_DEFINITIONS_BYTES: usize = 16 << 20;
const MIN_JOBS_BYTES: usize = 1 << 20;
const MAX_LAUNCH_SECONDS: usize = 86_400;
/// A week.
const MAX_DRAINING_SECONDS: usize = 604_800;

/// Limits that are out of bounds, one line each.
pub(super) fn problems(apps: &Apps) -> Vec<String> {
    let unlimited = usize::MAX;
    let launch_seconds = usize::try_from(apps.task_launch_timeout_seconds).unwrap_or(unlimited);
    let max_instances = usize::try_from(apps.max_instances).unwrap_or(unlimited);
    let draining_seconds = usize::try_from(apps.draining_seconds).unwrap_or(unlimited);
    let mut problems = Vec::new();
    for (key, value, min, max) in [
        (
            "max_concurrent_requests",
            apps.max_concurrent_requests.unwrap_or(unlimited),
            1,
            unlimited,
        ),
        ("max_body", apps.max_body, 1024, MAX_BODY_BYTES),
        (
            "max_running_deployments",
            apps.max_running_deployments,
            1,
            unlimited,
        ),
        ("max_apps", apps.max_apps.unwrap_or(unlimited), 1, unlimited),
        ("max_instances", max_instances, 1, MAX_INSTANCES),
        ("max_versions", apps.max_versions, 1, MAX_VERSIONS),
        (
            "max_definitions_bytes",
            apps.max_definitions_bytes,
            MIN_DEFINITIONS_BYTES,
            unlimited,
        ),
        (
            "max_versions_bytes",
            apps.max_versions_bytes,
            MIN_DEFINITIONS_BYTES,
            unlimited,
        ),
        (
            "task_launch_timeout_seconds",
            launch_seconds,
            1,
            MAX_LAUNCH_SECONDS,
        ),
        ("draining_seconds", draining_seconds, 0, MAX_DRAINING_SECONDS),
    ] {
        if value < min || value > max {
            let expected = if max == unlimited {
                format!("at least {min}")
            } else {
                format!("between {min} and {max}")
            };
            problems.push(format!("`apps.{key}` is {value}: it must be {expected}"));
        }
    }
    let (first, last) = (apps.local_port_min, apps.local_port_max);
    if first == 0 || first > last {
        problems.push(format!(
            "`apps.local_port_min` is {first}: it must be between 1 and `apps.local_port_max`, which is {last}"
        ));
    }
    if let Err(text) = transom_apps::destinations(&apps.callbacks.allow) {
        problems.push(format!(
            "`apps.callbacks.allow` contains {text:?}: expected a host, an address or a network, each with or \
             without a port"
        ));
    }
    problems
}

/// The limit of `[workflow]`, if it is out of bounds.
pub(super) fn workflow_problem(workflow: &Workflow) -> Option<String> {
    let bytes = workflow.max_jobs_bytes;
    (bytes < MIN_JOBS_BYTES)
        .then(|| format!("`workflow.max_jobs_bytes` is {bytes}: it must be at least {MIN_JOBS_BYTES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_out_of_bounds_are_named_with_their_bounds() {
        for (text, expected) in [
            ("", None),
            (
                "max_versions = 1\nmax_apps = 1\nlocal_port_min = 1\nlocal_port_max = 1",
                None,
            ),
            (
                "max_concurrent_requests = 0",
                Some("`apps.max_concurrent_requests` is 0: it must be at least 1"),
            ),
            (
                "max_apps = 0",
                Some("`apps.max_apps` is 0: it must be at least 1"),
            ),
            (
                "max_instances = 0",
                Some("`apps.max_instances` is 0: it must be between 1 and 2147483647"),
            ),
            (
                "max_running_deployments = 0",
                Some("`apps.max_running_deployments` is 0: it must be at least 1"),
            ),
            (
                "max_versions = 1001",
                Some("`apps.max_versions` is 1001: it must be between 1 and 1000"),
            ),
            (
                "max_definitions_bytes = 1",
                Some("`apps.max_definitions_bytes` is 1: it must be at least 16777216"),
            ),
            (
                "max_versions_bytes = 1",
                Some("`apps.max_versions_bytes` is 1: it must be at least 16777216"),
            ),
            (
                "max_body = 1023",
                Some("`apps.max_body` is 1023: it must be between 1024 and 268435456"),
            ),
            (
                "draining_seconds = 604801",
                Some("`apps.draining_seconds` is 604801: it must be between 0 and 604800"),
            ),
            (
                "task_launch_timeout_seconds = 0",
                Some("`apps.task_launch_timeout_seconds` is 0: it must be between 1 and 86400"),
            ),
            (
                "local_port_min = 20001",
                Some(
                    "`apps.local_port_min` is 20001: it must be between 1 and `apps.local_port_max`, which is 20000",
                ),
            ),
            (
                "local_port_min = 0",
                Some(
                    "`apps.local_port_min` is 0: it must be between 1 and `apps.local_port_max`, which is 20000",
                ),
            ),
        ] {
            let actual = problems(&toml::from_str(text).expect(text));
            assert_eq!(
                actual,
                expected.map(str::to_owned).into_iter().collect::<Vec<_>>(),
                "{text}"
            );
        }
    }
}
