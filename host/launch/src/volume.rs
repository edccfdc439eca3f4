//! Mounts in a container's file system.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use transom_cluster::v1::{
    self, DockerVolume, Parameter, Parameters, VolumeHostPath, VolumeMode, VolumeSandboxPath,
};

use crate::command::secret;

/// A mount in a container's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// An absolute path in the container.
    pub container_path: String,
    /// Whether the container may not write to it.
    pub read_only: bool,
    /// The source of the mount.
    pub source: VolumeSource,
}

/// The source of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path on the agent.
    HostPath(String),
    /// A volume of a Docker volume driver.
    Docker {
        /// The name of the volume.
        name: String,
        /// The driver; `None`: the agent's default.
        driver: Option<String>,
        /// Options of the driver.
        options: BTreeMap<String, String>,
    },
    /// A file with a secret. The value is the name of the secret in the cluster's secret store.
    Secret(String),
    /// A volume of a CSI plugin.
    Csi(CsiVolume),
    /// A path in the sandbox of the executor that runs the task's group, which all tasks of the
    /// group share. The agent creates it. For the Mesos containerizer.
    Group(String),
}

/// An existing volume of a CSI plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    /// The name of the plugin.
    pub plugin: String,
    /// The volume's id.
    pub id: String,
    /// Its access mode in the CSI specification, such as `SINGLE_NODE_WRITER`.
    pub access_mode: String,
    /// The form in which the container sees it.
    pub access: CsiAccess,
    /// The secrets for staging the volume: by the plugin's key, the name of the secret in the
    /// cluster's secret store.
    pub stage_secrets: BTreeMap<String, String>,
    /// The secrets for publishing the volume, in the same form.
    pub publish_secrets: BTreeMap<String, String>,
    /// The volume context that the plugin receives.
    pub context: BTreeMap<String, String>,
}

/// The form in which a container sees a CSI volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsiAccess {
    /// As a block device.
    Block,
    /// As a file system.
    Mount {
        /// Its type; `None`: the plugin's default.
        fs_type: Option<String>,
        /// Options of the mount.
        flags: Vec<String>,
    },
}

impl CsiVolume {
    fn into_json(self, read_only: bool) -> Value {
        let mut capability = json!({"access_mode": {"mode": self.access_mode}});
        match self.access {
            CsiAccess::Block => capability["block"] = json!({}),
            CsiAccess::Mount { fs_type, flags } => {
                capability["mount"] = json!({"mount_flags": flags});
                if let Some(fs_type) = fs_type {
                    capability["mount"]["fs_type"] = json!(fs_type);
                }
            }
        }
        let secrets = |names: BTreeMap<String, String>| -> BTreeMap<String, v1::Secret> {
            names.into_iter().map(|(key, name)| (key, secret(name))).collect()
        };
        json!({
            "plugin_name": self.plugin,
            "static_provisioning": {
                "volume_id": self.id,
                "volume_capability": capability,
                "readonly": read_only,
                "node_stage_secrets": secrets(self.stage_secrets),
                "node_publish_secrets": secrets(self.publish_secrets),
                "volume_context": self.context,
            },
        })
    }
}

impl Volume {
    /// The volume for Docker's containerizer. Its message has a separate field for host paths.
    pub(crate) fn into_docker(self) -> v1::Volume {
        match self.source {
            VolumeSource::HostPath(path) => v1::Volume {
                container_path: self.container_path,
                mode: Some(mode(self.read_only)),
                host_path: Some(path),
                ..v1::Volume::default()
            },
            _ => self.into_mesos(),
        }
    }

    /// The volume for the cluster manager's own containerizer.
    pub(crate) fn into_mesos(self) -> v1::Volume {
        let source = match self.source {
            VolumeSource::HostPath(path) => v1::VolumeSource {
                r#type: Some("HOST_PATH".to_owned()),
                host_path: Some(VolumeHostPath { path }),
                ..v1::VolumeSource::default()
            },
            VolumeSource::Secret(name) => v1::VolumeSource {
                r#type: Some("SECRET".to_owned()),
                secret: Some(secret(name)),
                ..v1::VolumeSource::default()
            },
            VolumeSource::Group(path) => v1::VolumeSource {
                r#type: Some("SANDBOX_PATH".to_owned()),
                sandbox_path: Some(VolumeSandboxPath {
                    path,
                    r#type: Some("PARENT".to_owned()),
                }),
                ..v1::VolumeSource::default()
            },
            VolumeSource::Csi(volume) => v1::VolumeSource {
                r#type: Some("CSI_VOLUME".to_owned()),
                csi_volume: Some(volume.into_json(self.read_only)),
                ..v1::VolumeSource::default()
            },
            VolumeSource::Docker {
                name,
                driver,
                options,
            } => {
                let parameters = options
                    .into_iter()
                    .map(|(key, value)| Parameter { key, value })
                    .collect::<Vec<_>>();
                let driver_options = (!parameters.is_empty()).then_some(Parameters {
                    parameter: parameters,
                });
                v1::VolumeSource {
                    r#type: Some("DOCKER_VOLUME".to_owned()),
                    docker_volume: Some(DockerVolume {
                        name,
                        driver,
                        driver_options,
                    }),
                    ..v1::VolumeSource::default()
                }
            }
        };
        v1::Volume {
            container_path: self.container_path,
            mode: Some(mode(self.read_only)),
            source: Some(source),
            ..v1::Volume::default()
        }
    }
}

fn mode(read_only: bool) -> VolumeMode {
    if read_only {
        VolumeMode::ReadOnly
    } else {
        VolumeMode::ReadWrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(read_only: bool, source: VolumeSource) -> Volume {
        Volume {
            container_path: "/data".to_owned(),
            read_only,
            source,
        }
    }

    fn to_json(volume: v1::Volume) -> Value {
        serde_json::to_value(volume).unwrap()
    }

    #[test]
    fn host_path_is_mounted_by_both_containerizers() {
        for (read_only, mode) in [(true, "RO"), (false, "RW")] {
            let path = volume(read_only, VolumeSource::HostPath("/srv".to_owned()));
            let docker = json!({"container_path": "/data", "mode": mode, "host_path": "/srv"});
            assert_eq!(to_json(path.clone().into_docker()), docker);
            let source = json!({"type": "HOST_PATH", "host_path": {"path": "/srv"}});
            let mesos = json!({"container_path": "/data", "mode": mode, "source": source});
            assert_eq!(to_json(path.into_mesos()), mesos);
        }
    }

    #[test]
    fn secret_volume_is_a_reference() {
        let secret = json!({"type": "REFERENCE", "reference": {"name": "/tls/key"}});
        let expected = json!({
            "container_path": "/data", "mode": "RO", "source": {"type": "SECRET", "secret": secret},
        });
        let volume = volume(true, VolumeSource::Secret("/tls/key".to_owned()));
        assert_eq!(to_json(volume.into_mesos()), expected);
    }

    #[test]
    fn volume_of_a_group_is_in_the_sandbox_of_the_executor() {
        let path = json!({"type": "PARENT", "path": "volumes/v"});
        let expected = json!({
            "container_path": "/data", "mode": "RW", "source": {"type": "SANDBOX_PATH", "sandbox_path": path},
        });
        let volume = volume(false, VolumeSource::Group("volumes/v".to_owned()));
        assert_eq!(to_json(volume.into_mesos()), expected);
    }

    #[test]
    fn csi_volume_has_its_capability_and_secrets() {
        let secrets = BTreeMap::from([("user".to_owned(), "/nfs".to_owned())]);
        let csi = |access| CsiVolume {
            plugin: "nfs.csi.k8s.io".to_owned(),
            id: "v1".to_owned(),
            access_mode: "MULTI_NODE_MULTI_WRITER".to_owned(),
            access,
            stage_secrets: secrets.clone(),
            publish_secrets: BTreeMap::new(),
            context: BTreeMap::from([("share".to_owned(), "/s".to_owned())]),
        };
        let mount = CsiAccess::Mount {
            fs_type: Some("nfs".to_owned()),
            flags: vec!["ro".to_owned()],
        };
        for (access, key, expected) in [
            (CsiAccess::Block, "block", json!({})),
            (mount, "mount", json!({"fs_type": "nfs", "mount_flags": ["ro"]})),
        ] {
            let json = to_json(volume(true, VolumeSource::Csi(csi(access))).into_mesos());
            assert_eq!(json["source"]["type"], "CSI_VOLUME");
            let volume = &json["source"]["csi_volume"];
            assert_eq!(volume["plugin_name"], "nfs.csi.k8s.io");
            let provisioning = &volume["static_provisioning"];
            assert_eq!(provisioning["volume_id"], "v1");
            assert_eq!(provisioning["readonly"], true);
            assert_eq!(provisioning["volume_context"], json!({"share": "/s"}));
            assert_eq!(
                provisioning["volume_capability"],
                json!({"access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}, key: expected})
            );
            let secret = json!({"type": "REFERENCE", "reference": {"name": "/nfs"}});
            assert_eq!(provisioning["node_stage_secrets"], json!({"user": secret}));
        }
    }

    #[test]
    fn driver_volume_is_equal_for_both_containerizers() {
        let options = BTreeMap::from([("size".to_owned(), "5".to_owned())]);
        for (driver, options, expected) in [
            (None, BTreeMap::new(), json!({"name": "v"})),
            (
                Some("nfs"),
                BTreeMap::new(),
                json!({"name": "v", "driver": "nfs"}),
            ),
            (
                Some("rexray"),
                options,
                json!({
                    "name": "v", "driver": "rexray",
                    "driver_options": {"parameter": [{"key": "size", "value": "5"}]},
                }),
            ),
        ] {
            let named = volume(
                false,
                VolumeSource::Docker {
                    name: "v".to_owned(),
                    driver: driver.map(str::to_owned),
                    options,
                },
            );
            let source = json!({"type": "DOCKER_VOLUME", "docker_volume": expected});
            let expected = json!({"container_path": "/data", "mode": "RW", "source": source});
            assert_eq!(to_json(named.clone().into_docker()), expected);
            assert_eq!(to_json(named.into_mesos()), expected);
        }
    }
}
