//! The mounts of a container.

use super::super::spec::{Containerizer, Mount, SANDBOX_PATH};
use crate::{state::Launch, wire::json as doc};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Volumes {
    pub(super) mounts: Vec<Mount>,
    pub(super) driver: Option<String>,
    pub(super) directories: Vec<PathBuf>,
}

/// The sandbox, the persistent volumes and the volumes of a task.
pub(super) fn of(launch: &Launch, containerizer: Containerizer) -> Result<Volumes, String> {
    let sandbox = launch.directory.display().to_string();
    let mut volumes = Volumes::default();
    volumes.mounts.push(Mount {
        source: Some(sandbox),
        target: SANDBOX_PATH.to_owned(),
        read_only: false,
    });
    for (directory, name) in &launch.volumes {
        volumes.mounts.push(Mount {
            source: Some(directory.display().to_string()),
            target: Path::new(SANDBOX_PATH).join(name).display().to_string(),
            read_only: false,
        });
    }
    for volume in doc::list(&launch.info, &["container", "volumes"]) {
        volumes.add(launch, containerizer, volume)?;
    }
    let separator = volumes.mounts.iter().find(|mount| {
        mount.target.contains(':') || mount.source.as_ref().is_some_and(|source| source.contains(':'))
    });
    if let Some(mount) = separator {
        let source = mount.source.as_deref().unwrap_or_default();
        return Err(format!(
            "A volume's path must not contain a colon: '{source}' at '{}'",
            mount.target
        ));
    }
    Ok(volumes)
}

impl Volumes {
    fn add(&mut self, launch: &Launch, containerizer: Containerizer, volume: &Value) -> Result<(), String> {
        let container_path = doc::text(volume, &["container_path"])
            .filter(|path| !path.is_empty())
            .ok_or("A volume has no container_path")?;
        // A relative path is inside the sandbox.
        let target = Path::new(SANDBOX_PATH).join(container_path).display().to_string();
        let source = match doc::text(volume, &["host_path"]) {
            Some(path) => Some(self.host_path(launch, containerizer, path, container_path)?),
            None => self.source(launch, containerizer, &volume["source"], container_path)?,
        };
        self.mounts.push(Mount {
            source,
            target,
            read_only: volume["mode"] == "RO",
        });
        Ok(())
    }

    /// A path on the agent. A relative path is inside the sandbox.
    fn host_path(
        &mut self,
        launch: &Launch,
        containerizer: Containerizer,
        path: &str,
        container_path: &str,
    ) -> Result<String, String> {
        if Path::new(path).is_absolute() {
            // Docker creates a missing directory.
            if containerizer == Containerizer::Docker {
                self.directories.push(PathBuf::from(path));
            }
            return Ok(path.to_owned());
        }
        if !container_path.starts_with('/') {
            return Err(format!(
                "Both host_path '{path}' and container_path '{container_path}' of a volume are relative"
            ));
        }
        self.sandbox_directory(&launch.directory, path)
    }

    fn source(
        &mut self,
        launch: &Launch,
        containerizer: Containerizer,
        source: &Value,
        container_path: &str,
    ) -> Result<Option<String>, String> {
        match doc::text(source, &["type"]) {
            None => Ok(None),
            Some("HOST_PATH") => {
                let path = doc::text(source, &["host_path", "path"]).ok_or("A volume has no host path")?;
                self.host_path(launch, containerizer, path, container_path)
                    .map(Some)
            }
            Some("SANDBOX_PATH") => {
                let path = doc::text(source, &["sandbox_path", "path"]).unwrap_or_default();
                let base = match doc::text(source, &["sandbox_path", "type"]) {
                    Some("PARENT") => launch
                        .group
                        .as_ref()
                        .map(|group| group.directory.as_path())
                        .ok_or("SANDBOX_PATH volume with the type PARENT: the task is in no group")?,
                    _ => launch.directory.as_path(),
                };
                self.sandbox_directory(base, path).map(Some)
            }
            Some("DOCKER_VOLUME") => {
                let volume = &source["docker_volume"];
                // Docker treats the name of a volume as a path if it begins with a slash.
                if let Some(path) = doc::text(volume, &["name"]).filter(|name| name.starts_with('/'))
                    && containerizer == Containerizer::Docker
                {
                    return self
                        .host_path(launch, containerizer, path, container_path)
                        .map(Some);
                }
                let name = doc::text(volume, &["name"])
                    .filter(|name| !name.is_empty() && !name.contains('/'))
                    .ok_or("A Docker volume has no name, or an invalid one")?;
                let driver = doc::text(volume, &["driver"]).filter(|driver| *driver != "local");
                if let Some(driver) = driver {
                    if self.driver.as_deref().is_some_and(|other| other != driver) {
                        return Err("Only one volume driver is supported".to_owned());
                    }
                    self.driver = Some(driver.to_owned());
                }
                Ok(Some(name.to_owned()))
            }
            Some(other) => Err(format!("Unsupported volume type '{other}'")),
        }
    }

    /// A path below `base`. The directory is created before the start.
    fn sandbox_directory(&mut self, base: &Path, path: &str) -> Result<String, String> {
        let is_inside = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_inside {
            return Err(format!("'{path}' is not a path inside the sandbox"));
        }
        let directory = base.join(path);
        self.directories.push(directory.clone());
        Ok(directory.display().to_string())
    }
}
