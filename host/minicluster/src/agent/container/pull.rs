//! Pulls images. An image that is present is used, unless the task requests a pull.

use super::{
    runtime::{Runtime, RuntimeKind},
    spec::Image,
};
use serde_json::{Value, json};
use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{io::AsyncReadExt, sync::Semaphore};

/// Timeout of one pull.
const PULL_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum bytes that are read of a file with credentials.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Ensures that an image is present and returns the name to run it by. The credentials come from
/// the task, or from the Docker configuration in its sandbox. They are in a private file below
/// `work_dir` for as long as the pull runs.
pub(super) async fn ensure_image(
    runtime: &Runtime,
    image: &Image,
    sandbox: &Path,
    work_dir: &Path,
    pulls: &Semaphore,
) -> Result<String, String> {
    if !image.force_pull && runtime.inspect_image(&image.name).await.is_some() {
        return Ok(image.name.clone());
    }
    let _permit = pulls.acquire().await.map_err(|error| error.to_string())?;
    let name = match runtime.kind {
        RuntimeKind::Podman => full_name(&image.name),
        RuntimeKind::Docker => image.name.clone(),
    };
    let config = match &image.config {
        Some(config) => Some(config.clone()),
        None => fetched_config(sandbox).await,
    };
    let config = config.map(|config| auth_document(&config)).transpose()?;
    let credentials = match &config {
        Some(config) => Some(
            Credentials::write(work_dir, config)
                .map_err(|error| format!("cannot write the credentials of '{name}': {error}"))?,
        ),
        None => None,
    };
    let arguments = pull_arguments(runtime.kind, &name, credentials.as_ref().map(|it| it.0.as_path()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    runtime.call(&arguments, PULL_TIMEOUT).await?;
    Ok(name)
}

/// The arguments of a pull. `credentials` is the directory with the Docker configuration.
fn pull_arguments(kind: RuntimeKind, name: &str, credentials: Option<&Path>) -> Vec<String> {
    let mut args = Vec::new();
    let directory = credentials.map(|directory| directory.display().to_string());
    match kind {
        RuntimeKind::Podman => {
            args.extend(["pull", "--quiet"].map(str::to_owned));
            if let Some(directory) = directory {
                args.extend(["--authfile".to_owned(), format!("{directory}/config.json")]);
            }
            // As with Docker, a registry on a loopback address needs no TLS.
            if is_loopback(name) {
                args.push("--tls-verify=false".to_owned());
            }
        }
        RuntimeKind::Docker => {
            args.extend(directory.into_iter().flat_map(|it| ["--config".to_owned(), it]));
            args.extend(["pull", "--quiet"].map(str::to_owned));
        }
    }
    args.push(name.to_owned());
    args
}

/// The registry in an image's name, if it has one.
fn registry(name: &str) -> Option<&str> {
    let (first, _) = name.split_once('/')?;
    (first.contains(['.', ':']) || first == "localhost").then_some(first)
}

/// The image's name with its registry, by default Docker Hub.
fn full_name(name: &str) -> String {
    if registry(name).is_some() {
        name.to_owned()
    } else if name.contains('/') {
        format!("docker.io/{name}")
    } else {
        format!("docker.io/library/{name}")
    }
}

fn is_loopback(name: &str) -> bool {
    registry(name).is_some_and(|registry| {
        let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
        host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    })
}

/// The Docker configuration that the task fetched into its sandbox, under its new or its old name.
async fn fetched_config(sandbox: &Path) -> Option<Vec<u8>> {
    for name in [".docker/config.json", ".dockercfg"] {
        let Ok(file) = tokio::fs::File::open(sandbox.join(name)).await else {
            continue;
        };
        let mut config = Vec::new();
        if file.take(MAX_CONFIG_BYTES).read_to_end(&mut config).await.is_ok() {
            return Some(config);
        }
    }
    None
}

/// Reduces a Docker configuration to the credentials of registries. The old format has them at the
/// top level.
fn auth_document(config: &[u8]) -> Result<Value, String> {
    let config: Value = serde_json::from_slice(config)
        .map_err(|error| format!("The Docker configuration of the image is not valid JSON: {error}"))?;
    if !config.is_object() {
        return Err("The Docker configuration of the image is not a JSON object".to_owned());
    }
    let auths = config.get("auths").unwrap_or(&config);
    Ok(json!({ "auths": auths }))
}

/// A directory with the file `config.json`, which only this user can read. Dropping it deletes the
/// directory.
#[derive(Debug)]
struct Credentials(PathBuf);

impl Credentials {
    fn write(work_dir: &Path, config: &Value) -> io::Result<Self> {
        use std::{
            io::Write,
            os::unix::fs::{DirBuilderExt, OpenOptionsExt},
        };
        let directory = work_dir.join(format!("credentials-{}", uuid::Uuid::new_v4()));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let credentials = Self(directory);
        std::fs::File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(credentials.0.join("config.json"))?
            .write_all(config.to_string().as_bytes())?;
        Ok(credentials)
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(directory = %self.0.display(), %error, "cannot remove the credentials of a pull");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_registry_get_docker_hub() {
        let cases = [
            ("alpine", "docker.io/library/alpine", false),
            ("alpine:3.20", "docker.io/library/alpine:3.20", false),
            ("team/app", "docker.io/team/app", false),
            ("quay.io/team/app", "quay.io/team/app", false),
            ("localhost/app", "localhost/app", true),
            ("localhost:5000/app", "localhost:5000/app", true),
            ("127.0.0.1:5000/app:1", "127.0.0.1:5000/app:1", true),
            ("[::1]:5000/app:1", "[::1]:5000/app:1", true),
            ("registry:5000/app", "registry:5000/app", false),
        ];
        for (name, full, loopback) in cases {
            assert_eq!(full_name(name), full);
            assert_eq!(is_loopback(name), loopback, "{name}");
        }
    }

    #[test]
    fn credentials_are_taken_from_both_forms() {
        let auths = json!({"registry.internal": {"auth": "dTpw"}});
        let expected = json!({ "auths": auths });
        let new = json!({"auths": auths, "credsStore": "secretservice"}).to_string();
        assert_eq!(auth_document(new.as_bytes()), Ok(expected.clone()));
        assert_eq!(auth_document(auths.to_string().as_bytes()), Ok(expected));
        assert!(auth_document(b"{").unwrap_err().contains("not valid JSON"));
        assert!(auth_document(b"[]").unwrap_err().contains("not a JSON object"));
    }

    #[test]
    fn each_runtime_gets_credentials_in_its_own_way() {
        let credentials = Some(Path::new("/w/c"));
        let cases = [
            (RuntimeKind::Podman, "quay.io/a", None, "pull --quiet quay.io/a"),
            (
                RuntimeKind::Podman,
                "127.0.0.1:5000/a",
                credentials,
                "pull --quiet --authfile /w/c/config.json --tls-verify=false 127.0.0.1:5000/a",
            ),
            (RuntimeKind::Docker, "a", None, "pull --quiet a"),
            (
                RuntimeKind::Docker,
                "a",
                credentials,
                "--config /w/c pull --quiet a",
            ),
        ];
        for (kind, name, credentials, expected) in cases {
            assert_eq!(pull_arguments(kind, name, credentials).join(" "), expected);
        }
    }

    #[test]
    fn credentials_are_private_and_are_removed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let credentials = Credentials::write(dir.path(), &json!({"auths": {}})).unwrap();
        let file = credentials.0.join("config.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&credentials.0), mode(&file)), (0o700, 0o600));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), r#"{"auths":{}}"#);
        drop(credentials);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
