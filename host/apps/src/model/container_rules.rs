//! Rules of the container, of secrets and of the environment.

use super::{App, Container, Docker, Engine, EnvValue, IpcMode, LinuxInfo, Settings, volume_rules};
use crate::config::Feature;
use transom_web::Problems;

/// Adds the problems of the app's container, if it has one.
pub(super) fn check(app: &App, settings: &Settings, problems: &mut Problems) {
    let Some(container) = &app.container else { return };
    match (&container.docker, container.engine) {
        (None, Engine::Docker) => problems.add("/container/docker", "not defined"),
        (Some(docker), engine) => image(app, docker, engine, settings, problems),
        (None, Engine::Mesos) => {}
    }
    if let Some(info) = &container.linux_info {
        linux_info(info, container, problems);
    }
    volume_rules::check(app, container, settings, problems);
}

fn image(app: &App, docker: &Docker, engine: Engine, settings: &Settings, problems: &mut Problems) {
    let Some(config) = &docker.pull_config else { return };
    let path = "/container/docker/pullConfig";
    if engine == Engine::Docker {
        problems.add(path, "pullConfig is not supported with Docker containerizer");
        return;
    }
    if !settings.features.contains(&Feature::Secrets) {
        problems.add(path, "must be empty");
        settings.require(Feature::Secrets, path, problems);
    }
    if !app.secrets.contains_key(&config.secret) {
        problems.add(path, "pullConfig.secret must refer to an existing secret");
    }
}

fn linux_info(info: &LinuxInfo, container: &Container, problems: &mut Problems) {
    if container.engine == Engine::Docker {
        let text = "linuxInfo is not supported with the Docker containerizer";
        problems.add("/container/linuxInfo", text);
    }
    if let Some(seccomp) = &info.seccomp
        && seccomp.unconfined == seccomp.profile_name.is_some()
    {
        problems.add(
            "/container/linuxInfo/seccomp",
            "either profileName must be given, or unconfined must be true",
        );
    }
    if let Some(ipc) = &info.ipc_info
        && ipc.mode == IpcMode::ShareParent
        && ipc.shm_size.is_some()
    {
        problems.add(
            "/container/linuxInfo/ipcInfo/shmSize",
            "shmSize needs the mode PRIVATE: memory shared with the parent has the parent's size",
        );
    }
}

/// Adds the problems of the app's secrets and of references to them in the environment.
pub(super) fn secrets(app: &App, settings: &Settings, problems: &mut Problems) {
    let enabled = settings.features.contains(&Feature::Secrets);
    if !app.secrets.is_empty() && !enabled {
        problems.add("/secrets", "must be empty");
        settings.require(Feature::Secrets, "/secrets", problems);
    }
    for (index, _) in app.env.keys().enumerate().filter(|(_, name)| name.is_empty()) {
        problems.add(format!("/env/keys({index})"), "must not be empty");
    }
    for (name, value) in &app.env {
        let EnvValue::Secret { secret } = value else {
            continue;
        };
        if !enabled {
            problems.add(
                "/env",
                "use of secret-references in the environment requires the secrets feature to be enabled",
            );
        }
        if !app.secrets.contains_key(secret) {
            problems.add(format!("/env/{name}/secret"), "references an undefined secret");
        }
    }
}
