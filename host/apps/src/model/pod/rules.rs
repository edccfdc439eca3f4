//! Rules between the fields of a pod. Pure: the attributes component validates constraints, and the
//! tree of groups validates ids.

use std::collections::BTreeSet;

use super::container_rules;
use super::{Pod, PodVolume};
use crate::model::network_rules::{networks, repeats};
use crate::model::volume_rules::persistent_volume;
use crate::model::{
    DefinitionSettings, UnreachableStrategy, container_rules as app_container_rules, rules as app_rules,
};
use crate::settings::Feature;
use transom_web::Problems;

/// All problems of `pod`. Parts that are not supported yet are reported only for a definition that
/// has no other problem.
pub(crate) fn check(pod: &Pod, settings: &DefinitionSettings) -> Problems {
    let mut problems = Problems::default();
    if pod.user.as_deref() == Some("") {
        problems.add("/user", "must not be empty");
    }
    app_container_rules::defined_secrets(&pod.secrets, settings, &mut problems);
    container_rules::environment(&pod.environment, pod, settings, "/environment", &mut problems);
    networks(&pod.networks, &mut problems);
    volumes(pod, settings, &mut problems);
    let shared = container_rules::Shared::of(pod);
    for (index, container) in pod.containers.iter().enumerate() {
        let path = format!("/containers({index})");
        container_rules::check(container, pod, &shared, settings, &path, &mut problems);
    }
    unique(pod, &mut problems);
    checks(pod, &mut problems);
    app_rules::roles(&pod.role, pod.accepted_resource_roles(), settings, &mut problems);
    if let Some(info) = &pod.linux_info {
        if info.seccomp.is_some() {
            problems.add(
                "/linuxInfo/seccomp",
                "Seccomp configuration on executor level is not supported",
            );
        }
        app_container_rules::ipc_info(info, "/linuxInfo", &mut problems);
    }
    resident(pod, &mut problems);
    problems
}

fn volumes(pod: &Pod, settings: &DefinitionSettings, problems: &mut Problems) {
    if repeats(pod.volumes.iter().map(PodVolume::name)) {
        problems.add("/volumes", "volume names must be unique");
    }
    let mounts = pod.containers.iter().flat_map(|it| &it.volume_mounts);
    let mounted: BTreeSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
    for (index, volume) in pod.volumes.iter().enumerate() {
        let path = format!("/volumes({index})");
        if !mounted.contains(volume.name()) {
            problems.add(&*path, "volume must be referenced by at least one container");
        }
        match volume {
            PodVolume::Ephemeral { .. } => {}
            PodVolume::Host { host, .. } => {
                if host.is_empty() {
                    problems.add(format!("{path}/host"), "must not be empty");
                }
            }
            PodVolume::Secret { secret, .. } => {
                settings.require(Feature::Secrets, &path, problems);
                if !pod.secrets.contains_key(secret) {
                    let text = "volume.secret must refer to an existing secret";
                    problems.add(format!("{path}/secret"), text);
                }
            }
            PodVolume::Persistent { persistent, .. } => {
                persistent_volume(persistent, &format!("{path}/persistent"), problems);
            }
        }
    }
}

/// Adds the problems of names and ports that are not unique. The texts are upstream's.
fn unique(pod: &Pod, problems: &mut Problems) {
    if repeats(pod.containers.iter().map(|container| &container.name)) {
        problems.add("/containers", "container names must be unique");
    }
    let endpoints = || pod.containers.iter().flat_map(|it| &it.endpoints);
    if repeats(endpoints().map(|endpoint| &endpoint.name)) {
        problems.add("/", "endpoint names nust be unique across all containers");
    }
    let fixed = |port: &u16| *port != 0;
    if repeats(endpoints().filter_map(|it| it.container_port).filter(fixed)) {
        problems.add("/", "container ports must be unique across all containers");
    }
    if repeats(endpoints().filter_map(|it| it.host_port).filter(fixed)) {
        problems.add("/", "host ports must be unique across all containers");
    }
}

/// Adds the problems of the pod's own check, which is that of the first container.
fn checks(pod: &Pod, problems: &mut Problems) {
    let (Some(check), Some(first)) = (&pod.check, pod.containers.first()) else {
        return;
    };
    container_rules::pod_check(check, first, "/check", problems);
    if first.check.is_some() {
        problems.add(
            "/check",
            "the check of a pod is that of its first container, which has one already",
        );
    }
}

fn resident(pod: &Pod, problems: &mut Problems) {
    if !pod.is_resident() {
        return;
    }
    if pod.role == "*" {
        problems.add("/role", "Resident pods cannot have the role *");
    }
    let roles = pod.accepted_resource_roles();
    if !roles.is_empty() && roles != ["*"] {
        problems.add(
            "/acceptedResourceRoles",
            "A resident pod must have `acceptedResourceRoles = [\"*\"]`.",
        );
    }
    if !matches!(pod.unreachable_strategy(), UnreachableStrategy::Disabled(_)) {
        problems.add(
            "/",
            "unreachableStrategy must be disabled for pods with persistent volumes",
        );
    }
    over_capacity(pod, "/upgrade", problems);
}

fn over_capacity(pod: &Pod, path: &str, problems: &mut Problems) {
    let over = pod.upgrade_strategy().maximum_over_capacity;
    if over != 0.0 {
        problems.add(
            format!("{path}/maximumOverCapacity"),
            format!("got {over:?}, expected 0.0"),
        );
    }
}

/// All problems of a change from `present` to `next`. The reserved resources and volumes of a pod
/// with persistent volumes cannot change. Its role can, with `force`.
#[expect(
    clippy::float_cmp,
    reason = "a number that a client did not change is the same"
)]
pub(crate) fn check_update(present: &Pod, next: &Pod, force: bool) -> Problems {
    let mut problems = Problems::default();
    if !present.is_resident() && !next.is_resident() {
        return problems;
    }
    let persistent = |pod: &Pod| -> Vec<_> {
        let volumes = pod.persistent_volumes();
        let mut volumes: Vec<_> = volumes
            .map(|(name, volume)| (name.to_owned(), volume.clone()))
            .collect();
        volumes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        volumes
    };
    if persistent(present) != persistent(next) {
        problems.add("/", "persistent volumes cannot be updated");
    }
    let (old, new) = (present.resources(), next.resources());
    for (name, same) in [
        ("cpus", old.cpus == new.cpus),
        ("mem", old.mem == new.mem),
        ("disk", old.disk == new.disk),
        ("gpus", old.gpus == new.gpus),
    ] {
        if !same {
            let text = format!("{name} cannot be updated if a pod has persistent volumes");
            problems.add("/", text);
        }
    }
    if host_ports(present) != host_ports(next) {
        problems.add(
            "/",
            "host ports cannot be updated if a pod has persistent volumes",
        );
    }
    over_capacity(next, "/upgradeStrategy", &mut problems);
    if present.role != next.role && !force {
        problems.add(
            "/role",
            "The role of a service with persistent volumes may only be changed with force",
        );
    }
    problems
}

/// The ports of the agent that a pod requests, sorted; 0: any.
fn host_ports(pod: &Pod) -> Vec<u16> {
    let endpoints = pod.containers.iter().flat_map(|it| &it.endpoints);
    let mut ports: Vec<u16> = endpoints.filter_map(|endpoint| endpoint.host_port).collect();
    ports.sort_unstable();
    ports
}
