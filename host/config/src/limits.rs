//! The bounds of numbers, and the forms of names, in `[apps]`, `[plugins]`, `[store]` and `[workflow]`.

use std::ops::RangeInclusive;

use super::settings::{Apps, Plugins, Store};
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

/// The bounds of a lease's duration: a very short lease expires after any delay, and a very long one
/// delays a failover.
const LEASE_SECONDS: RangeInclusive<u64> = 1..=600;
/// The bounds of the times in `plugins.oci`.
const OCI_SECONDS: RangeInclusive<u64> = 1..=86_400;
/// The bounds of `plugins.compile_timeout_seconds`.
const COMPILE_SECONDS: RangeInclusive<u64> = 1..=3600;
/// The bounds of `plugins.compile_memory_bytes`: 256 MiB to 64 GiB.
const COMPILE_BYTES: RangeInclusive<u64> = 256 << 20..=64 << 30;
/// The bounds of `plugins.recording.sample_percent`.
const SAMPLE_PERCENT: RangeInclusive<u64> = 1..=100;
/// The bounds of `plugins.recording.max_bytes`: at most one TiB.
const RECORDED_BYTES: RangeInclusive<u64> = transom_plugin_host::Recording::MIN_SIZE..=1 << 40;
/// The bounds of `plugins.recording.max_age_seconds`: a minute to a year.
const RECORDED_SECONDS: RangeInclusive<u64> = 60..=31_536_000;

/// Limits and names in `[apps]` that are invalid, one line each.
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
    problems.extend(prefix_problem(&apps.env_vars_prefix));
    problems.extend(network_problem(&apps.default_network_name));
    problems
}

/// Checks that names of variables with the prefix are valid.
fn prefix_problem(prefix: &str) -> Option<String> {
    let starts_well = !prefix.starts_with(|char: char| char.is_ascii_digit());
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || char == '_';
    (!starts_well || !prefix.chars().all(is_allowed)).then(|| {
        format!(
            "`apps.env_vars_prefix` is {prefix:?}; expected letters, digits and underscores, not beginning with \
             a digit, as in \"MARATHON_\""
        )
    })
}

/// Checks the network's name as in definitions, except that capital letters are accepted, as Marathon
/// accepts them in this setting.
fn network_problem(name: &str) -> Option<String> {
    let is_alphanumeric = |char: char| char.is_ascii_alphanumeric();
    let is_allowed = |char: char| is_alphanumeric(char) || matches!(char, '-' | '_');
    let valid =
        name.starts_with(is_alphanumeric) && name.ends_with(is_alphanumeric) && name.chars().all(is_allowed);
    (!name.is_empty() && (!valid || name.len() > 63)).then(|| {
        format!(
            "`apps.default_network_name` is {name:?}; expected at most 63 letters and digits, with hyphens and \
             underscores only inside, as in \"dcos\""
        )
    })
}

/// The numbers of `[plugins]` that are out of bounds, one line each.
pub(super) fn plugin_problems(plugins: &Plugins) -> Vec<String> {
    let (oci, recording) = (&plugins.oci, &plugins.recording);
    [
        (
            "compile_timeout_seconds",
            plugins.compile_timeout_seconds,
            COMPILE_SECONDS,
            " seconds",
        ),
        (
            "compile_memory_bytes",
            plugins.compile_memory_bytes,
            COMPILE_BYTES,
            " bytes",
        ),
        (
            "oci.refresh_seconds",
            oci.refresh_seconds,
            OCI_SECONDS,
            " seconds",
        ),
        (
            "oci.timeout_seconds",
            oci.timeout_seconds,
            OCI_SECONDS,
            " seconds",
        ),
        (
            "recording.sample_percent",
            recording.sample_percent,
            SAMPLE_PERCENT,
            "",
        ),
        ("recording.max_bytes", recording.max_bytes, RECORDED_BYTES, ""),
        (
            "recording.max_age_seconds",
            recording.max_age_seconds,
            RECORDED_SECONDS,
            "",
        ),
    ]
    .into_iter()
    .filter_map(|(key, value, bounds, unit)| out_of_bounds(&format!("plugins.{key}"), value, &bounds, unit))
    .collect()
}

/// The duration of leases, if it is out of bounds.
pub(super) fn store_problem(store: &Store) -> Option<String> {
    out_of_bounds(
        "store.lease_seconds",
        store.lease_seconds,
        &LEASE_SECONDS,
        " seconds",
    )
}

fn out_of_bounds(key: &str, value: u64, bounds: &RangeInclusive<u64>, unit: &str) -> Option<String> {
    let (min, max) = (bounds.start(), bounds.end());
    (!bounds.contains(&value))
        .then(|| format!("`{key}` is {value}: it must be between {min} and {max}{unit}"))
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
