//! Mounts in a container's file system.

use std::collections::BTreeMap;

use transom_cluster::v1::{self, DockerVolume, Parameter, Parameters, VolumeHostPath, VolumeMode};

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
}

impl Volume {
    /// The volume for Docker's containerizer, which takes host paths in a field of their own.
    pub(crate) fn into_docker(self) -> v1::Volume {
        match self.source {
            VolumeSource::HostPath(path) => v1::Volume {
                container_path: self.container_path,
                mode: Some(mode(self.read_only)),
                host_path: Some(path),
                ..v1::Volume::default()
            },
            VolumeSource::Docker { .. } => self.into_mesos(),
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
    use serde_json::{Value, json};

    fn volume(read_only: bool, source: VolumeSource) -> Volume {
        Volume {
            container_path: "/data".to_owned(),
            read_only,
            source,
        }
    }

    fn shown(volume: v1::Volume) -> Value {
        serde_json::to_value(volume).unwrap()
    }

    #[test]
    fn host_path_is_mounted_by_both_containerizers() {
        for (read_only, mode) in [(true, "RO"), (false, "RW")] {
            let path = volume(read_only, VolumeSource::HostPath("/srv".to_owned()));
            let docker = json!({"container_path": "/data", "mode": mode, "host_path": "/srv"});
            assert_eq!(shown(path.clone().into_docker()), docker);
            let source = json!({"type": "HOST_PATH", "host_path": {"path": "/srv"}});
            let mesos = json!({"container_path": "/data", "mode": mode, "source": source});
            assert_eq!(shown(path.into_mesos()), mesos);
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
            assert_eq!(shown(named.clone().into_docker()), expected);
            assert_eq!(shown(named.into_mesos()), expected);
        }
    }
}
