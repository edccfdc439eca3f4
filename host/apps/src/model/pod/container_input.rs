//! Parses the containers of a pod.

use super::checks::{read_check, read_health_check};
use super::{Endpoint, Exec, Image, ImageKind, Lifecycle, PodContainer, PodResources, VolumeMount};
use crate::model::Artifact;
use crate::model::check_input::read_command;
use crate::model::container_input::{read_linux_info, read_pull_config};
use crate::model::input::read_artifact;
use crate::model::limits_input::{read_env, read_limits};
use crate::model::port_input::{read_name, read_names};
use crate::model::reader::Reader;
use crate::model::reader::read_choice;
use transom_web::Problems;

/// Maximum length of a name.
const MAX_NAME: usize = 63;

/// Maximum length of a path and of a URI.
const MAX_PATH: usize = 1024;

/// Parses a required name; `why` is its purpose, for the error.
pub(super) fn required_name(reader: &mut Reader<'_>, key: &str, why: &str) -> Option<String> {
    if reader.raw(key).is_none() {
        reader.problem(key, format!("is undefined: {why}"));
    }
    let name = read_name(reader, key)?;
    if name.len() > MAX_NAME {
        reader.problem(key, "error.maxLength");
    }
    Some(name)
}

/// Parses a required path; `why` is its purpose, for the error.
fn required_path(reader: &mut Reader<'_>, key: &str, why: &str) -> Option<String> {
    if reader.raw(key).is_none() {
        reader.problem(key, format!("is undefined: {why}"));
    }
    reader.text(key, MAX_PATH)
}

/// Parses one container. Returns `None` if a required member is missing, and records the problem.
pub(super) fn read_container(container: &mut Reader<'_>, broken: &mut Problems) -> Option<PodContainer> {
    let name = required_name(container, "name", "a container needs its name");
    if container.raw("resources").is_none() {
        container.problem("resources", "is undefined: a container needs its resources");
    }
    let exec = container.nested("exec", read_exec).flatten();
    let resources = container.nested("resources", read_resources);
    let resource_limits = read_limits(container);
    let endpoints = container.list("endpoints", read_endpoint);
    let linux_info = container.nested("linuxInfo", read_linux_info);
    let image = container.nested("image", read_image).flatten();
    let environment = read_env(container, "environment");
    let user = container.string("user");
    let health_check = container.nested("healthCheck", |check| read_health_check(check, broken));
    let check = container.nested("check", read_check);
    let volume_mounts = container.list("volumeMounts", read_mount);
    let artifacts = container.list("artifacts", read_bounded_artifact);
    let labels = container.texts("labels");
    let lifecycle = container.nested("lifecycle", |lifecycle| Lifecycle {
        kill_grace_period_seconds: lifecycle.number("killGracePeriodSeconds", 0.0),
    });
    let tty = container.boolean("tty");
    Some(PodContainer {
        name: name?,
        exec,
        resources: resources?,
        resource_limits,
        endpoints: endpoints.unwrap_or_default(),
        linux_info,
        image,
        environment: environment.unwrap_or_default(),
        user,
        health_check: health_check.flatten(),
        check: check.flatten(),
        volume_mounts: volume_mounts.unwrap_or_default(),
        artifacts: artifacts.unwrap_or_default(),
        labels: labels.unwrap_or_default(),
        lifecycle,
        tty,
    })
}

fn read_exec(exec: &mut Reader<'_>) -> Option<Exec> {
    let command = read_command(exec, "an exec needs its command");
    let override_entrypoint = exec.boolean("overrideEntrypoint");
    Some(Exec {
        command: command?,
        override_entrypoint,
    })
}

fn read_resources(resources: &mut Reader<'_>) -> PodResources {
    PodResources {
        cpus: resources.number("cpus", 0.0).unwrap_or(1.0),
        mem: resources.number("mem", 0.0).unwrap_or(128.0),
        disk: resources.number("disk", 0.0).unwrap_or(0.0),
        gpus: resources.count("gpus").unwrap_or(0),
    }
}

fn read_endpoint(endpoint: &mut Reader<'_>) -> Option<Endpoint> {
    let name = required_name(endpoint, "name", "an endpoint needs its name");
    let protocol = read_names(endpoint, "protocol");
    if protocol.as_ref().is_some_and(Vec::is_empty) {
        endpoint.problem("protocol", "error.minLength");
    }
    let container_port = endpoint.port("containerPort");
    let host_port = endpoint.port("hostPort");
    let labels = endpoint.texts("labels").unwrap_or_default();
    let network_names = read_names(endpoint, "networkNames").unwrap_or_default();
    Some(Endpoint {
        name: name?,
        container_port,
        host_port,
        protocol: protocol.unwrap_or_else(|| vec!["tcp".to_owned()]),
        labels,
        network_names,
    })
}

fn read_image(image: &mut Reader<'_>) -> Option<Image> {
    if image.raw("kind").is_none() {
        image.problem("kind", "is undefined: expected the kind of the image, DOCKER");
    }
    let kind = read_choice(image, "kind", &[("DOCKER", ImageKind::Docker)]);
    let id = required_path(image, "id", "an image needs its name, the id");
    let pull_config = read_pull_config(image);
    let force_pull = image.boolean("forcePull");
    let labels = image.texts("labels").unwrap_or_default();
    Some(Image {
        kind: kind?,
        id: id?,
        pull_config,
        force_pull,
        labels,
    })
}

fn read_mount(mount: &mut Reader<'_>) -> Option<VolumeMount> {
    let name = required_name(mount, "name", "a mount names a volume of the pod");
    let mount_path = required_path(mount, "mountPath", "a mount needs its path in the container");
    let read_only = mount.boolean("readOnly");
    Some(VolumeMount {
        name: name?,
        mount_path: mount_path?,
        read_only,
    })
}

fn read_bounded_artifact(artifact: &mut Reader<'_>) -> Option<Artifact> {
    let read = read_artifact(artifact);
    artifact.text("uri", MAX_PATH);
    artifact.text("destPath", MAX_PATH);
    read
}
