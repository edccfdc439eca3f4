//! Rules of the container, of secrets and of the environment.

use std::collections::BTreeMap;

use super::{
    App, DefinitionSettings, Docker, Engine, EnvValue, IpcMode, LinuxInfo, PullConfig, SecretDef,
    volume_rules,
};
use crate::settings::Feature;
use transom_web::Problems;

/// Adds the problems of the app's container, if it has one.
pub(super) fn check(app: &App, settings: &DefinitionSettings, problems: &mut Problems) {
    let Some(container) = &app.container else { return };
    match (&container.docker, container.engine) {
        (None, Engine::Docker) => problems.add("/container/docker", "not defined"),
        (Some(docker), engine) => image(app, docker, engine, settings, problems),
        (None, Engine::Mesos) => {}
    }
    if let Some(info) = &container.linux_info {
        if container.engine == Engine::Docker {
            let text = "linuxInfo is not supported with the Docker containerizer";
            problems.add("/container/linuxInfo", text);
        }
        linux_info(info, "/container/linuxInfo", problems);
    }
    volume_rules::check(app, container, settings, problems);
}

fn image(app: &App, docker: &Docker, engine: Engine, settings: &DefinitionSettings, problems: &mut Problems) {
    let Some(config) = &docker.pull_config else { return };
    let path = "/container/docker/pullConfig";
    if engine == Engine::Docker {
        problems.add(path, "pullConfig is not supported with Docker containerizer");
        return;
    }
    pull_config(config, &app.secrets, settings, path, problems);
}

/// Adds the problems of the credentials of a registry.
pub(super) fn pull_config(
    config: &PullConfig,
    secrets: &BTreeMap<String, SecretDef>,
    settings: &DefinitionSettings,
    path: &str,
    problems: &mut Problems,
) {
    if !settings.features.contains(&Feature::Secrets) {
        problems.add(path, "must be empty");
        settings.require(Feature::Secrets, path, problems);
    }
    if !secrets.contains_key(&config.secret) {
        problems.add(path, "pullConfig.secret must refer to an existing secret");
    }
}

/// Adds the problems of Linux options.
pub(super) fn linux_info(info: &LinuxInfo, path: &str, problems: &mut Problems) {
    let seccomp = info.seccomp.as_ref();
    match seccomp.map(|seccomp| (&seccomp.profile_name, seccomp.unconfined)) {
        Some((Some(_), true)) => problems.add(
            format!("{path}/seccomp"),
            "Seccomp unconfined can NOT be true when Profile is defined",
        ),
        Some((None, false)) => problems.add(
            format!("{path}/seccomp"),
            "Seccomp unconfined must be true when Profile is NOT defined",
        ),
        _ => {}
    }
    ipc_info(info, path, problems);
}

/// Adds the problems of the IPC options.
pub(super) fn ipc_info(info: &LinuxInfo, path: &str, problems: &mut Problems) {
    if let Some(ipc) = &info.ipc_info
        && ipc.mode == IpcMode::ShareParent
        && ipc.shm_size.is_some()
    {
        problems.add(
            format!("{path}/ipcInfo"),
            "ipcInfo shmSize can NOT be set when mode is SHARE_PARENT",
        );
    }
}

/// Adds the problems of the app's secrets and of references to them in the environment.
pub(super) fn secrets(app: &App, settings: &DefinitionSettings, problems: &mut Problems) {
    defined_secrets(&app.secrets, settings, problems);
    for (index, name) in app.env.keys().enumerate() {
        if name.is_empty() {
            problems.add(format!("/env/keys({index})"), "must not be empty");
        }
        // The agent splits the variable at the first one.
        if name.contains('=') {
            let text = format!("{name:?} is no name of a variable: it must not contain '='");
            problems.add(format!("/env/keys({index})"), text);
        }
    }
    references(&app.env, &app.secrets, settings, "/env", problems);
}

/// Adds the problems of the secrets that an app or a pod defines.
pub(super) fn defined_secrets(
    secrets: &BTreeMap<String, SecretDef>,
    settings: &DefinitionSettings,
    problems: &mut Problems,
) {
    if !secrets.is_empty() && !settings.features.contains(&Feature::Secrets) {
        problems.add("/secrets", "must be empty");
        settings.require(Feature::Secrets, "/secrets", problems);
    }
}

/// Adds the problems of references to secrets in an environment.
pub(super) fn references(
    env: &BTreeMap<String, EnvValue>,
    secrets: &BTreeMap<String, SecretDef>,
    settings: &DefinitionSettings,
    path: &str,
    problems: &mut Problems,
) {
    for (name, value) in env {
        let EnvValue::Secret { secret } = value else {
            continue;
        };
        if !settings.features.contains(&Feature::Secrets) {
            problems.add(
                path,
                "use of secret-references in the environment requires the secrets feature to be enabled",
            );
        }
        if !secrets.contains_key(secret) {
            problems.add(format!("{path}/{name}/secret"), "references an undefined secret");
        }
    }
}
