//! Finds a container runtime and the options with which it can run a container on this machine.
//!
//! The trial container comes from an image that is made here and needs no network. Machines differ
//! in what they allow, so the trial is repeated with other options until one works: another OCI
//! runtime, another cgroup manager, process limits (ulimits) that this process may pass on, and
//! finally containers without resource limits.

use super::{
    arguments::RuntimeOptions,
    runtime::{Runtime, RuntimeKind, call, is_installed},
    trial_image,
};
use crate::config::Images;
use std::time::Duration;

/// Timeout of one call of a trial.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of the whole search.
const SEARCH_TIMEOUT: Duration = Duration::from_mins(2);

/// Finds the runtime that the setting allows. The error gives the reason why each candidate failed.
pub(super) async fn find_runtime(images: Images) -> Result<Runtime, String> {
    let kinds: &[RuntimeKind] = match images {
        Images::Auto => &[RuntimeKind::Podman, RuntimeKind::Docker],
        Images::Podman => &[RuntimeKind::Podman],
        Images::Docker => &[RuntimeKind::Docker],
        Images::Process | Images::None => &[],
    };
    let search = async {
        let mut reasons = Vec::new();
        for kind in kinds {
            match try_kind(*kind).await {
                Ok(runtime) => return Ok(runtime),
                Err(why) => reasons.push(why),
            }
        }
        Err(reasons.join("; "))
    };
    tokio::time::timeout(SEARCH_TIMEOUT, search)
        .await
        .unwrap_or_else(|_| {
            Err(format!(
                "no container runtime passed its trial within {} s",
                SEARCH_TIMEOUT.as_secs()
            ))
        })
}

async fn try_kind(kind: RuntimeKind) -> Result<Runtime, String> {
    let program = kind.program();
    if !is_installed(kind) {
        return Err(format!("{program} is not installed"));
    }
    let version = version(kind).await?;
    import_trial_image(kind).await?;
    let proc_limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let mut first_reason = None;
    for options in candidates(kind, &proc_limits) {
        match run_trial(kind, &options, "none").await {
            Ok(()) => {
                let bridge_error = run_trial(kind, &options, "bridge").await.err();
                return Ok(Runtime {
                    kind,
                    version,
                    options,
                    bridge_error,
                });
            }
            Err(why) => {
                first_reason.get_or_insert(why);
            }
        }
    }
    Err(first_reason.unwrap_or_else(|| format!("no options to try for {program}")))
}

/// The version of the runtime. For Docker it is the daemon's, so the daemon must be reachable.
async fn version(kind: RuntimeKind) -> Result<String, String> {
    let arguments: &[&str] = match kind {
        RuntimeKind::Podman => &["version", "--format", "{{.Client.Version}}"],
        RuntimeKind::Docker => &["version", "--format", "{{.Server.Version}}"],
    };
    let version = call(kind, &to_strings(arguments), None, TRIAL_TIMEOUT).await?;
    Ok(version.trim().to_owned())
}

fn to_strings(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}

/// Imports the image of the trial container, unless an earlier run did.
async fn import_trial_image(kind: RuntimeKind) -> Result<(), String> {
    let name = trial_image::NAME;
    if call(
        kind,
        &to_strings(&["image", "inspect", name]),
        None,
        TRIAL_TIMEOUT,
    )
    .await
    .is_ok()
    {
        return Ok(());
    }
    let processor = std::env::consts::ARCH;
    let archive = trial_image::archive(processor)
        .ok_or_else(|| format!("there is no trial program for processors of the kind {processor}"))?;
    call(
        kind,
        &to_strings(&["import", "-", name]),
        Some(&archive),
        TRIAL_TIMEOUT,
    )
    .await
    .map(|_| ())
}

/// The options to try, in order. `proc_limits` is the content of `/proc/self/limits`.
fn candidates(kind: RuntimeKind, proc_limits: &str) -> Vec<RuntimeOptions> {
    let (global_options, runs): (Vec<Vec<String>>, Vec<Vec<String>>) = match kind {
        RuntimeKind::Docker => (vec![Vec::new()], vec![Vec::new()]),
        RuntimeKind::Podman => {
            let quiet = ["--log-level", "error"];
            let cgroup_options: [&[&str]; 3] = [
                &[],
                &["--cgroup-manager", "cgroupfs"],
                &["--runtime", "runc", "--cgroup-manager", "cgroupfs"],
            ];
            let global_options =
                cgroup_options.map(|cgroup_options| to_strings(&[&quiet, cgroup_options].concat()));
            let bounds = [u64::MAX, 16_384, 1024].map(|bound| inherited_limits(proc_limits, bound));
            // Podman passes the proxies of its own environment to containers, unlike Docker, whose
            // daemon has the environment of no client.
            let without_proxies =
                |limits: Vec<String>| [vec!["--http-proxy=false".to_owned()], limits].concat();
            let runs = std::iter::once(Vec::new()).chain(bounds).map(without_proxies);
            (global_options.to_vec(), runs.collect())
        }
    };
    let mut all: Vec<RuntimeOptions> = Vec::new();
    for supports_limits in [true, false] {
        for global_options in &global_options {
            for run in &runs {
                let options = RuntimeOptions {
                    global_options: global_options.clone(),
                    run: run.clone(),
                    supports_limits,
                };
                if !all.contains(&options) {
                    all.push(options);
                }
            }
        }
    }
    all
}

/// Options that set the container's process limits to this process's hard limits, each capped at
/// `bound`. By default the runtime raises these limits, and some machines permit only a part of the
/// result.
fn inherited_limits(proc_limits: &str, bound: u64) -> Vec<String> {
    let hard = |label: &str| {
        let line = proc_limits.lines().find_map(|line| line.strip_prefix(label))?;
        let hard = line.split_whitespace().nth(1)?;
        if hard == "unlimited" && bound == u64::MAX {
            return Some("-1".to_owned());
        }
        let hard = hard.parse().unwrap_or(u64::MAX);
        Some(hard.min(bound).to_string())
    };
    let mut args = Vec::new();
    for (name, label) in [("nofile", "Max open files"), ("nproc", "Max processes")] {
        if let Some(hard) = hard(label) {
            args.push("--ulimit".to_owned());
            args.push(format!("{name}={hard}:{hard}"));
        }
    }
    args
}

async fn run_trial(kind: RuntimeKind, options: &RuntimeOptions, network: &str) -> Result<(), String> {
    let name = format!("transom-trial-{}", uuid::Uuid::new_v4());
    let mut arguments = options.global_options.clone();
    arguments.extend(to_strings(&[
        "run",
        "--rm",
        "--name",
        &name,
        "--pull",
        "never",
        "--network",
        network,
    ]));
    arguments.extend(options.run.iter().cloned());
    if options.supports_limits {
        arguments.extend(to_strings(&["--memory", "64m", "--cpu-shares", "128"]));
    }
    arguments.extend(to_strings(&[trial_image::NAME, trial_image::EXIT]));
    let result = call(kind, &arguments, None, TRIAL_TIMEOUT).await.map(|_| ());
    if result.is_err() {
        // A container that could not start, or whose trial timed out, still exists.
        let mut remove = options.global_options.clone();
        remove.extend(to_strings(&["rm", "--force", &name]));
        let _ = call(kind, &remove, None, TRIAL_TIMEOUT).await;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max processes             500                  unlimited            processes \n\
                          Max open files            1024                 20000                files     \n";

    #[test]
    fn own_limits_are_passed_on() {
        let cases = [
            (u64::MAX, "--ulimit nofile=20000:20000 --ulimit nproc=-1:-1"),
            (16_384, "--ulimit nofile=16384:16384 --ulimit nproc=16384:16384"),
        ];
        for (bound, expected) in cases {
            assert_eq!(inherited_limits(LIMITS, bound).join(" "), expected);
        }
        assert!(inherited_limits("", 1024).is_empty());
    }

    #[test]
    fn options_without_container_limits_are_tried_last() {
        for (kind, proc_limits, count) in [
            (RuntimeKind::Podman, LIMITS, 24),
            (RuntimeKind::Podman, "", 6),
            (RuntimeKind::Docker, LIMITS, 2),
        ] {
            let all = candidates(kind, proc_limits);
            assert_eq!(all.len(), count, "{kind:?}");
            let limited = all.iter().take_while(|options| options.supports_limits).count();
            assert_eq!(limited * 2, count, "{kind:?}");
            assert!(
                all[limited..].iter().all(|options| !options.supports_limits),
                "{kind:?}"
            );
        }
        let first = &candidates(RuntimeKind::Podman, LIMITS)[0];
        assert_eq!(first.global_options, ["--log-level", "error"]);
        assert_eq!(first.run, ["--http-proxy=false"]);
    }

    #[tokio::test]
    async fn settings_without_a_runtime_find_no_runtime() {
        for images in [Images::Process, Images::None] {
            assert_eq!(find_runtime(images).await.unwrap_err(), "");
        }
    }
}
