//! Finds a container runtime and the options with which it can run a container on this machine.
//!
//! The trial container comes from an image that is made here and needs no network. Machines differ
//! in what they allow, so the trial is repeated with other options until one works: another OCI
//! runtime, another cgroup manager, process limits (ulimits) that this process may pass on, and
//! finally containers without resource limits.

use super::{
    arguments::RuntimeOptions,
    runtime::{Kind, Runtime, call, is_installed},
    trial_image,
};
use crate::config::Images;
use std::time::Duration;

/// Timeout of one call of a trial.
const TRIAL: Duration = Duration::from_secs(20);
/// Timeout of the whole search.
const SEARCH: Duration = Duration::from_mins(2);

/// Finds the runtime that the setting allows. The error gives the reason why each candidate failed.
pub(super) async fn find(images: Images) -> Result<Runtime, String> {
    let kinds: &[Kind] = match images {
        Images::Auto => &[Kind::Podman, Kind::Docker],
        Images::Podman => &[Kind::Podman],
        Images::Docker => &[Kind::Docker],
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
    tokio::time::timeout(SEARCH, search)
        .await
        .unwrap_or_else(|_| Err(format!("no trial ended within {} s", SEARCH.as_secs())))
}

async fn try_kind(kind: Kind) -> Result<Runtime, String> {
    let program = kind.program();
    if !is_installed(kind) {
        return Err(format!("{program} is not installed"));
    }
    let version = version(kind).await?;
    make_image(kind).await?;
    let processes = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let mut first_reason = None;
    for options in candidates(kind, &processes) {
        match trial(kind, &options, "none").await {
            Ok(()) => {
                let no_bridge = trial(kind, &options, "bridge").await.err();
                return Ok(Runtime {
                    kind,
                    version,
                    options,
                    no_bridge,
                });
            }
            Err(why) => {
                first_reason.get_or_insert(why);
            }
        }
    }
    Err(first_reason.unwrap_or_else(|| format!("{program} cannot be tried")))
}

/// The version of the runtime. For Docker it is the daemon's, so the daemon must be reachable.
async fn version(kind: Kind) -> Result<String, String> {
    let arguments: &[&str] = match kind {
        Kind::Podman => &["version", "--format", "{{.Client.Version}}"],
        Kind::Docker => &["version", "--format", "{{.Server.Version}}"],
    };
    let version = call(kind, &owned(arguments), None, TRIAL).await?;
    Ok(version.trim().to_owned())
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}

/// Imports the image of the trial container, unless an earlier run did.
async fn make_image(kind: Kind) -> Result<(), String> {
    let name = trial_image::NAME;
    if call(kind, &owned(&["image", "inspect", name]), None, TRIAL)
        .await
        .is_ok()
    {
        return Ok(());
    }
    let processor = std::env::consts::ARCH;
    let archive = trial_image::archive(processor)
        .ok_or_else(|| format!("there is no trial program for processors of the kind {processor}"))?;
    call(kind, &owned(&["import", "-", name]), Some(&archive), TRIAL)
        .await
        .map(|_| ())
}

/// The options to try, in order. `processes` is the content of `/proc/self/limits`.
fn candidates(kind: Kind, processes: &str) -> Vec<RuntimeOptions> {
    let (globals, runs): (Vec<Vec<String>>, Vec<Vec<String>>) = match kind {
        Kind::Docker => (vec![Vec::new()], vec![Vec::new()]),
        Kind::Podman => {
            let quiet = ["--log-level", "error"];
            let more: [&[&str]; 3] = [
                &[],
                &["--cgroup-manager", "cgroupfs"],
                &["--runtime", "runc", "--cgroup-manager", "cgroupfs"],
            ];
            let globals = more.map(|more| owned(&[&quiet, more].concat()));
            let bounds = [u64::MAX, 16_384, 1024].map(|bound| own_limits(processes, bound));
            (
                globals.to_vec(),
                std::iter::once(Vec::new()).chain(bounds).collect(),
            )
        }
    };
    let mut all: Vec<RuntimeOptions> = Vec::new();
    for limits in [true, false] {
        for globals in &globals {
            for run in &runs {
                let options = RuntimeOptions {
                    globals: globals.clone(),
                    run: run.clone(),
                    limits,
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
fn own_limits(processes: &str, bound: u64) -> Vec<String> {
    let hard = |label: &str| {
        let line = processes.lines().find_map(|line| line.strip_prefix(label))?;
        let hard = line.split_whitespace().nth(1)?;
        if hard == "unlimited" && bound == u64::MAX {
            return Some("-1".to_owned());
        }
        let hard = hard.parse().unwrap_or(u64::MAX);
        Some(hard.min(bound).to_string())
    };
    let mut all = Vec::new();
    for (name, label) in [("nofile", "Max open files"), ("nproc", "Max processes")] {
        if let Some(hard) = hard(label) {
            all.push("--ulimit".to_owned());
            all.push(format!("{name}={hard}:{hard}"));
        }
    }
    all
}

async fn trial(kind: Kind, options: &RuntimeOptions, network: &str) -> Result<(), String> {
    let name = format!("transom-trial-{}", uuid::Uuid::new_v4());
    let mut arguments = options.globals.clone();
    arguments.extend(owned(&[
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
    if options.limits {
        arguments.extend(owned(&["--memory", "64m", "--cpu-shares", "128"]));
    }
    arguments.extend(owned(&[trial_image::NAME, trial_image::EXIT]));
    let outcome = call(kind, &arguments, None, TRIAL).await.map(|_| ());
    if outcome.is_err() {
        // A container that could not start, or whose trial timed out, still exists.
        let mut remove = options.globals.clone();
        remove.extend(owned(&["rm", "--force", &name]));
        let _ = call(kind, &remove, None, TRIAL).await;
    }
    outcome
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
            assert_eq!(own_limits(LIMITS, bound).join(" "), expected);
        }
        assert!(own_limits("", 1024).is_empty());
    }

    #[test]
    fn options_without_container_limits_are_tried_last() {
        for (kind, processes, count) in [
            (Kind::Podman, LIMITS, 24),
            (Kind::Podman, "", 6),
            (Kind::Docker, LIMITS, 2),
        ] {
            let all = candidates(kind, processes);
            assert_eq!(all.len(), count, "{kind:?}");
            let limited = all.iter().take_while(|options| options.limits).count();
            assert_eq!(limited * 2, count, "{kind:?}");
            assert!(all[limited..].iter().all(|options| !options.limits), "{kind:?}");
        }
        let first = &candidates(Kind::Podman, LIMITS)[0];
        assert_eq!(first.globals, ["--log-level", "error"]);
        assert!(first.run.is_empty());
    }

    #[tokio::test]
    async fn settings_without_a_runtime_find_no_runtime() {
        for images in [Images::Process, Images::None] {
            assert_eq!(find(images).await.unwrap_err(), "");
        }
    }
}
