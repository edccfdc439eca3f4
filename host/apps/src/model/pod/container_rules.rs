//! Rules of the containers of a pod.

use std::collections::{BTreeMap, BTreeSet};

use super::{Endpoint, Pod, PodCheck, PodContainer, PodVolume};
use crate::model::container_rules::{linux_info, pull_config, references};
use crate::model::network_rules::{NetworkNames, repeats};
use crate::model::rules::{check_times, resource_limits};
use crate::model::{DefinitionSettings, EnvValue, NetworkMode};
use crate::settings::Feature;
use transom_common::text::clip;
use transom_web::Problems;

/// Upstream's own name for the container of an app.
const RESERVED: &str = "container";

/// The pattern of the names of variables.
const VARIABLE: &str = "^[a-zA-Z_][a-zA-Z0-9_]*$";

/// Maximum length of the name of a variable.
const MAX_VARIABLE: usize = 254;

/// Maximum length in bytes of the name of a variable in the path of a problem.
const MAX_NAME_IN_PATH: usize = 64;

/// The parts of a pod that its containers refer to.
pub(super) struct Shared<'a> {
    networks: NetworkNames<'a>,
    on_host_network: bool,
    on_container_network: bool,
    volumes: BTreeSet<&'a str>,
}

impl<'a> Shared<'a> {
    pub(super) fn of(pod: &'a Pod) -> Self {
        let has = |mode: NetworkMode| pod.networks.iter().any(|network| network.mode == mode);
        Self {
            networks: NetworkNames::of(&pod.networks),
            on_host_network: has(NetworkMode::Host),
            on_container_network: has(NetworkMode::Container),
            volumes: pod.volumes.iter().map(PodVolume::name).collect(),
        }
    }
}

/// Adds the problems of one container of `pod`.
pub(super) fn check(
    container: &PodContainer,
    pod: &Pod,
    shared: &Shared<'_>,
    settings: &DefinitionSettings,
    path: &str,
    problems: &mut Problems,
) {
    if container.name == RESERVED {
        let text = format!("equals {RESERVED}, which is a reserved name");
        problems.add(format!("{path}/name"), text);
    }
    if container.user.as_deref() == Some("") {
        problems.add(format!("{path}/user"), "must not be empty");
    }
    resources(container, pod, settings, path, problems);
    for (index, endpoint) in container.endpoints.iter().enumerate() {
        let path = format!("{path}/endpoints({index})");
        endpoint_rules(endpoint, shared, &path, problems);
    }
    if let Some(config) = container.image.as_ref().and_then(|it| it.pull_config.as_ref()) {
        let path = format!("{path}/image/pullConfig");
        pull_config(config, &pod.secrets, settings, &path, problems);
    }
    let at = format!("{path}/environment");
    environment(&container.environment, pod, settings, &at, problems);
    health_check(container, path, problems);
    if let Some(check) = &container.check {
        pod_check(check, container, &format!("{path}/check"), problems);
    }
    mounts(container, shared, path, problems);
    if let Some(info) = &container.linux_info {
        linux_info(info, &format!("{path}/linuxInfo"), problems);
    }
}

fn resources(
    container: &PodContainer,
    pod: &Pod,
    settings: &DefinitionSettings,
    path: &str,
    problems: &mut Problems,
) {
    let resources = container.resources;
    if resources.gpus > 0 {
        settings.require(Feature::GpuResources, &format!("{path}/resources/gpus"), problems);
    }
    let Some(limits) = container.resource_limits else {
        return;
    };
    let path = format!("{path}/resourceLimits");
    resource_limits(limits, resources.cpus, resources.mem, &path, problems);
    if pod.legacy_shared_cgroups {
        problems.add(
            path,
            "resourceLimits cannot be defined if legacySharedCgroups is enabled",
        );
    }
}

fn endpoint_rules(endpoint: &Endpoint, shared: &Shared<'_>, path: &str, problems: &mut Problems) {
    let (names, on_agent) = (&endpoint.network_names, endpoint.host_port.is_some());
    shared.networks.check(names, on_agent, path, problems);
    if shared.on_host_network && endpoint.container_port.is_some() {
        problems.add(
            format!("{path}/containerPort"),
            "is not allowed when using host-mode networking",
        );
    }
    if shared.on_container_network && endpoint.container_port.is_none() {
        problems.add(
            format!("{path}/containerPort"),
            "is required when using container-mode networking",
        );
    }
    if repeats(endpoint.protocol.iter()) {
        problems.add(
            format!("{path}/protocol"),
            "Duplicate protocols within the same endpoint are not allowed",
        );
    }
}

/// Adds the problems of an environment of `pod` or one of its containers.
pub(super) fn environment(
    env: &BTreeMap<String, EnvValue>,
    pod: &Pod,
    settings: &DefinitionSettings,
    path: &str,
    problems: &mut Problems,
) {
    for (index, name) in env.keys().enumerate() {
        if name.is_empty() {
            problems.add(format!("{path}/keys({index})"), "must not be empty");
            continue;
        }
        let path = format!("{path}/{}", clip(name, MAX_NAME_IN_PATH));
        if name.len() > MAX_VARIABLE {
            problems.add(&*path, format!("has more than {MAX_VARIABLE} characters"));
        }
        if !is_variable(name) {
            let text = format!("must fully match regular expression '{VARIABLE}'");
            problems.add(path, text);
        }
    }
    references(env, &pod.secrets, settings, path, problems);
}

fn is_variable(name: &str) -> bool {
    let letter = |char: char| char.is_ascii_alphabetic() || char == '_';
    name.starts_with(letter) && name.chars().all(|char| letter(char) || char.is_ascii_digit())
}

fn health_check(container: &PodContainer, path: &str, problems: &mut Problems) {
    let check = container.health_check.as_ref();
    if let Some((kind, endpoint)) = check.and_then(|check| check.probe.target()) {
        let path = format!("{path}/healthCheck/{kind}/endpoint");
        is_endpoint(endpoint, container, path, problems);
    }
}

/// Adds the problems of a check of `container`.
pub(super) fn pod_check(check: &PodCheck, container: &PodContainer, path: &str, problems: &mut Problems) {
    check_times(check, path, problems);
    if let Some(at) = check.target() {
        let path = format!("{path}/{}/endpoint", check.kind_name());
        is_endpoint(&at.endpoint, container, path, problems);
    }
}

fn is_endpoint(name: &str, container: &PodContainer, path: String, problems: &mut Problems) {
    if !container.endpoints.iter().any(|endpoint| endpoint.name == name) {
        problems.add(path, "must be contained in the container endpoints");
    }
}

fn mounts(container: &PodContainer, shared: &Shared<'_>, path: &str, problems: &mut Problems) {
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        if !shared.volumes.contains(mount.name.as_str()) {
            problems.add(
                format!("{path}/volumeMounts({index})/name"),
                "Referenced Volume in VolumeMount should exist",
            );
        }
    }
}
