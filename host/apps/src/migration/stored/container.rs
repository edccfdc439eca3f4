//! Containers of apps.

use serde_json::{Value, json};

use super::messages::{Container, LinuxInfo, PortMapping, Volume};
use super::{StoredError, unsupported, values};

/// `mesos.ContainerInfo.Type`.
const DOCKER: i32 = 1;
const MESOS: i32 = 2;

/// A container in the form of the API. `has_mappings`: whether the app's networks have port mappings.
pub(super) fn document(container: &Container, has_mappings: bool) -> Result<Value, StoredError> {
    if container.app_c.is_some() {
        return Err(unsupported("it has an AppC image"));
    }
    let volumes = container.volumes.iter().map(volume);
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    let mappings = has_mappings.then(|| container.port_mappings.iter().map(mapping).collect::<Vec<_>>());
    Ok(json!({
        "type": match container.kind {
            DOCKER => "DOCKER",
            MESOS => "MESOS",
            other => return Err(unsupported(format!("its container has the type {other}"))),
        },
        "docker": image(container)?,
        "volumes": volumes,
        "portMappings": mappings,
        "linuxInfo": container.linux_info.as_ref().map(linux_info).transpose()?,
    }))
}

fn linux_info(linux: &LinuxInfo) -> Result<Value, StoredError> {
    let ipc = linux.ipc.as_ref().map(|ipc| {
        let mode = values::named(&["", "PRIVATE", "SHARE_PARENT"], ipc.mode, "IPC mode")?;
        Ok(json!({"mode": mode, "shmSize": ipc.shm_size}))
    });
    let seccomp = linux.seccomp.as_ref().map(|seccomp| {
        let unconfined = seccomp.unconfined.unwrap_or_default();
        json!({"profileName": seccomp.profile_name, "unconfined": unconfined})
    });
    Ok(json!({"seccomp": seccomp, "ipcInfo": ipc.transpose()?}))
}

fn image(container: &Container) -> Result<Option<Value>, StoredError> {
    if let Some(docker) = &container.docker {
        if docker.obsolete_network.is_some() || !docker.obsolete_port_mappings.is_empty() {
            return Err(unsupported(
                "its container has the network of a Marathon before 1.5",
            ));
        }
        return Ok(Some(json!({
            "image": docker.image,
            "privileged": docker.privileged.unwrap_or_default(),
            "parameters": docker.parameters.iter()
                .map(|pair| json!({"key": pair.key, "value": pair.value})).collect::<Vec<_>>(),
            "forcePullImage": docker.force_pull_image.unwrap_or_default(),
        })));
    }
    let Some(docker) = &container.mesos_docker else {
        return Ok(None);
    };
    if docker.obsolete_credential.is_some() {
        return Err(unsupported(
            "its image has a credential, which Marathon replaced by pullConfig",
        ));
    }
    let secret = docker.pull_config.as_ref().map(|config| {
        let secret = config
            .secret
            .as_ref()
            .and_then(|secret| secret.reference.as_ref());
        secret.ok_or_else(|| unsupported("the pullConfig of its image names no secret"))
    });
    Ok(Some(json!({
        "image": docker.image,
        "forcePullImage": docker.force_pull_image.unwrap_or_default(),
        "pullConfig": secret.transpose()?.map(|secret| json!({"secret": secret.value})),
    })))
}

fn mapping(mapping: &PortMapping) -> Value {
    json!({
        "containerPort": mapping.container_port,
        "hostPort": mapping.host_port,
        "servicePort": mapping.service_port.unwrap_or_default(),
        "protocol": mapping.protocol,
        "name": mapping.name,
        "labels": values::pairs(&mapping.labels),
        "networkNames": mapping.network_names,
    })
}

fn volume(volume: &Volume) -> Result<Value, StoredError> {
    let path = &volume.container_path;
    if volume.csi.is_some() || volume.image.is_some() {
        return Err(unsupported(format!(
            "its volume {path:?} is a CSI volume or an image, which is not read from ZooKeeper: import it over \
             Marathon's API"
        )));
    }
    if let Some(secret) = &volume.secret {
        return Ok(json!({"containerPath": path, "secret": secret.value}));
    }
    let mode = values::named(&["", "RW", "RO"], volume.mode, "mode of a volume")?;
    Ok(if let Some(persistent) = &volume.persistent {
        json!({"containerPath": path, "mode": mode, "persistent": {"size": persistent.size}})
    } else if let Some(external) = &volume.external {
        json!({"containerPath": path, "mode": mode, "external": {
            "size": external.size,
            "name": external.name,
            "provider": external.provider,
            "options": values::pairs(&external.options),
            "shared": external.shared.unwrap_or_default(),
        }})
    } else {
        json!({"containerPath": path, "mode": mode, "hostPath": volume.host_path})
    })
}
