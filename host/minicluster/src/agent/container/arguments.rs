//! Builds the arguments of the runtime's commands. Does no I/O.

use super::{limits::CPU_PERIOD, spec::Spec};

/// The options with which a runtime can run containers on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuntimeOptions {
    /// Options of every command.
    pub(super) global_options: Vec<String>,
    /// Options of `run`.
    pub(super) run: Vec<String>,
    /// Whether limits on memory and CPUs can be set.
    pub(super) supports_limits: bool,
}

/// The `run` command that starts a container in the foreground from an image that is already present.
pub(super) fn run(spec: &Spec, image: &str, options: &RuntimeOptions) -> Vec<String> {
    let mut args = options.global_options.clone();
    args.extend(["run", "--name", &spec.name, "--pull", "never"].map(str::to_owned));
    for (key, value) in &spec.labels {
        push_option(&mut args, "--label", &format!("{key}={value}"));
    }
    args.extend(options.run.iter().cloned());
    if options.supports_limits {
        limits(spec, &mut args);
    }
    for (name, value) in &spec.environment {
        push_option(&mut args, "--env", &format!("{name}={value}"));
    }
    for mount in &spec.mounts {
        let mode = if mount.read_only { "ro" } else { "rw" };
        let value = match &mount.source {
            Some(source) => format!("{source}:{}:{mode}", mount.target),
            None => mount.target.clone(),
        };
        push_option(&mut args, "--volume", &value);
    }
    if let Some(driver) = &spec.volume_driver {
        push_option(&mut args, "--volume-driver", driver);
    }
    push_option(&mut args, "--network", &spec.network.argument());
    for port in &spec.published {
        let address = match port.address {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let value = format!("{address}:{}:{}/{}", port.host, port.container, port.protocol);
        push_option(&mut args, "--publish", &value);
    }
    let named = [
        ("--hostname", spec.hostname.clone()),
        ("--user", spec.user.clone()),
        ("--workdir", spec.workdir.clone()),
        ("--shm-size", spec.shm_size_mb.map(|size| format!("{size}m"))),
        ("--entrypoint", spec.entrypoint.clone()),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            push_option(&mut args, name, &value);
        }
    }
    if spec.privileged {
        args.push("--privileged".to_owned());
    }
    let parameters = spec.parameters.iter();
    args.extend(parameters.filter_map(|(key, value)| parameter(key, value, options)));
    args.push(image.to_owned());
    args.extend(spec.arguments.iter().cloned());
    args
}

/// An option of `docker run` that the task sets, as far as this machine permits it.
fn parameter(key: &str, value: &str, options: &RuntimeOptions) -> Option<String> {
    match key {
        // The runtime rejects `--memory-swap` without a memory limit.
        "memory-swap" if !options.supports_limits => None,
        "ulimit" => Some(format!("--ulimit={}", lower_limit(value, &options.run))),
        _ => Some(format!("--{key}={value}")),
    }
}

/// Lowers a process limit such as `nofile=1024:2048` to the limit of the same name in the options
/// of `run`.
fn lower_limit(limit: &str, run: &[String]) -> String {
    let Some((name, amounts)) = limit.split_once('=') else {
        return limit.to_owned();
    };
    let machine_limit = run
        .iter()
        .filter_map(|option| option.strip_prefix(name)?.strip_prefix('=')?.rsplit(':').next())
        .find_map(|max| max.parse::<u64>().ok());
    let Some(max) = machine_limit else {
        return limit.to_owned();
    };
    // A value that does not parse as an unsigned number, such as -1, means no limit.
    let at_most = |amount: &str| amount.parse().unwrap_or(u64::MAX).min(max).to_string();
    let amounts: Vec<String> = amounts.split(':').map(at_most).collect();
    format!("{name}={}", amounts.join(":"))
}

fn limits(spec: &Spec, args: &mut Vec<String>) {
    let limits = &spec.limits;
    let options = [
        ("--cpu-shares", limits.cpu_shares.map(|shares| shares.to_string())),
        ("--cpu-period", limits.cpu_quota.map(|_| CPU_PERIOD.to_string())),
        ("--cpu-quota", limits.cpu_quota.map(|quota| quota.to_string())),
        ("--memory", limits.memory.map(|bytes| format!("{bytes}b"))),
        (
            "--memory-reservation",
            limits.memory_reservation.map(|bytes| format!("{bytes}b")),
        ),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            push_option(args, name, &value);
        }
    }
}

/// The `exec` command that runs a program in a container.
pub(super) fn exec(
    container: &str,
    environment: &[(String, String)],
    command_line: &[String],
    options: &RuntimeOptions,
) -> Vec<String> {
    let mut args = options.global_options.clone();
    args.push("exec".to_owned());
    for (name, value) in environment {
        push_option(&mut args, "--env", &format!("{name}={value}"));
    }
    args.push(container.to_owned());
    args.extend(command_line.iter().cloned());
    args
}

fn push_option(args: &mut Vec<String>, name: &str, value: &str) {
    args.push(name.to_owned());
    args.push(value.to_owned());
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
