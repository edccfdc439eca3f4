//! Translates a `TaskInfo` into a [`Spec`], by the rules of a real agent. Does no I/O.
//!
//! The error messages are those of a real agent.

mod command;
mod network;
mod volumes;

use super::{
    limits,
    spec::{Containerizer, Image, Spec},
};
use crate::{agent::process, config::Images, state::Launch, wire::json as doc};
use base64::Engine;
use serde_json::{Value, json};

pub(super) use command::{exec, variables};
pub(super) use network::of_executor;

/// Labels of all containers, by which a later run finds them.
pub(super) const CLUSTER_LABEL: &str = "transom.cluster";
const TASK_LABEL: &str = "transom.task";
const FRAMEWORK_LABEL: &str = "transom.framework";
const AGENT_LABEL: &str = "transom.agent";

/// How a task runs.
#[derive(Debug)]
pub(crate) enum Plan {
    /// As a process, because it names no image.
    Process,
    /// As a process with this changed `TaskInfo`, although it names an image.
    ProcessInstead { info: Value, notice: String },
    /// In a container.
    Container,
    /// It cannot run; the text is the reason.
    Rejected(String),
}

/// Decides how a task runs.
pub(crate) fn plan(images: Images, info: &Value) -> Plan {
    let Some(containerizer) = containerizer(info) else {
        return Plan::Process;
    };
    match images {
        Images::Auto | Images::Podman | Images::Docker => Plan::Container,
        Images::None => Plan::Rejected(
            "container images are disabled in this cluster, which runs local processes only".to_owned(),
        ),
        Images::Process => command::without_image(info, containerizer).map_or_else(
            || {
                Plan::Rejected(
                    "this cluster runs commands as processes without images, and the task has no command of its own"
                        .to_owned(),
                )
            },
            |without| {
                let name = image_name(info).unwrap_or_default();
                Plan::ProcessInstead {
                    info: without,
                    notice: format!("The command runs as a process, without its image {name}"),
                }
            },
        ),
    }
}

/// Whether the task names an image.
pub(crate) fn has_image(info: &Value) -> bool {
    containerizer(info).is_some()
}

/// The containerizer of a task with an image.
fn containerizer(info: &Value) -> Option<Containerizer> {
    let container = info.get("container")?;
    match doc::text(container, &["type"]) {
        Some("DOCKER") => Some(Containerizer::Docker),
        _ if container.pointer("/mesos/image").is_some() => Some(Containerizer::Mesos),
        _ => None,
    }
}

fn image_name(info: &Value) -> Option<&str> {
    doc::text(info, &["container", "docker", "image"])
        .or_else(|| doc::text(info, &["container", "mesos", "image", "docker", "name"]))
}

/// The name of a container, as an agent names it.
pub(super) fn container_name(id: &str) -> String {
    format!("mesos-{id}")
}

/// The labels of a container of this cluster.
pub(super) fn labels(launch: &Launch, cluster: &str) -> Vec<(&'static str, String)> {
    vec![
        (CLUSTER_LABEL, cluster.to_owned()),
        (AGENT_LABEL, launch.agent.to_string()),
        (FRAMEWORK_LABEL, launch.key.framework.to_string()),
        (TASK_LABEL, launch.key.task.to_string()),
    ]
}

/// The specification of the container of a task with an image. `cluster` is the value of the label
/// [`CLUSTER_LABEL`], `user` the numeric user and group for the Mesos containerizer.
pub(super) fn spec(launch: &Launch, cluster: &str, user: Option<(u32, u32)>) -> Result<Spec, String> {
    let info = &launch.info;
    let containerizer = containerizer(info).ok_or("The task has no image")?;
    let container = &info["container"];
    let image = image(container, containerizer)?;
    let name = container_name(&launch.container);
    let command = command::of(&info["command"], containerizer)?;
    let volumes = volumes::of(launch, containerizer)?;
    let network = match containerizer {
        Containerizer::Docker => network::of_docker(launch)?,
        Containerizer::Mesos => network::of_mesos(launch)?,
    };
    let docker = &container["docker"];
    let is_docker = containerizer == Containerizer::Docker;
    let parameters = doc::list(docker, &["parameters"]).iter();
    let parameters = parameters.filter(|_| is_docker).filter_map(|parameter| {
        let (key, value) = (parameter["key"].as_str()?, parameter["value"].as_str()?);
        Some((key.to_owned(), value.to_owned()))
    });
    Ok(Spec {
        environment: command::environment(launch, containerizer, &name)?,
        labels: labels(launch, cluster),
        hostname: doc::text(container, &["hostname"])
            .filter(|_| network.network.has_address() || is_docker)
            .map(str::to_owned),
        network: network.network,
        published: network.published,
        network_info: doc::list(container, &["network_infos"]).first().cloned(),
        mounts: volumes.mounts,
        volume_driver: volumes.driver,
        directories: volumes.directories,
        limits: limits::of(info),
        // For Docker's containerizer, the user comes from the image or from a parameter.
        user: user
            .filter(|_| !is_docker)
            .map(|(user, group)| format!("{user}:{group}")),
        workdir: None,
        privileged: is_docker && docker["privileged"] == true,
        parameters: parameters.collect(),
        shm_size_mb: doc::number(container, &["linux_info", "shm_size"])
            .filter(|_| !is_docker)
            .map(|size| size as u64),
        entrypoint: command.entrypoint,
        arguments: command.arguments,
        containerizer,
        name,
        image,
    })
}

fn image(container: &Value, containerizer: Containerizer) -> Result<Image, String> {
    if containerizer == Containerizer::Docker {
        let docker = &container["docker"];
        return Ok(Image {
            name: doc::text(docker, &["image"])
                .filter(|name| !name.is_empty())
                .ok_or("No image is specified in the DockerInfo of the task")?
                .to_owned(),
            force_pull: docker["force_pull_image"] == true,
            config: None,
        });
    }
    let image = &container["mesos"]["image"];
    let kind = doc::text(image, &["type"]).unwrap_or_default();
    if kind != "DOCKER" {
        return Err(format!("Unsupported container image type: {kind}"));
    }
    let docker = &image["docker"];
    let config = docker.get("config").map(decode_secret).transpose()?;
    Ok(Image {
        name: doc::text(docker, &["name"])
            .filter(|name| !name.is_empty())
            .ok_or("No name is specified in the image of the task")?
            .to_owned(),
        force_pull: image["cached"] == false,
        config,
    })
}

/// The value of a `Secret`. This cluster cannot resolve references to secrets.
fn decode_secret(secret: &Value) -> Result<Vec<u8>, String> {
    let Some(data) = doc::text(secret, &["value", "data"]) else {
        let name = doc::text(secret, &["reference", "name"]).unwrap_or_default();
        return Err(format!(
            "Secret '{name}' cannot be resolved: this cluster takes secrets by value only"
        ));
    };
    base64::engine::general_purpose::STANDARD
        .decode(data)
        .map_err(|error| format!("A secret is not valid base64: {error}"))
}

/// A port number, which JSON may contain as a float.
fn parse_port(value: &Value) -> Option<u16> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    (0.0..=65535.0).contains(&number).then_some(number as u16)
}

/// The `labels` of a status with the container's address, which old frameworks read there.
pub(super) fn address_label(ip: &str) -> Value {
    json!({"labels": [{"key": "Docker.NetworkSettings.IPAddress", "value": ip}]})
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
