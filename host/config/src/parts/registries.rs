//! Converts `[plugins.oci]` and `[plugins.signatures]` for the plugin host, and reads the files that
//! these sections name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use transom_plugin_host::{Login, PublicKey, Registries, Signatures};

use crate::{Oci, OciCredentials, Signatures as SignatureSettings};

/// Reads certificates and passwords.
///
/// # Errors
/// An unreadable file, or a login without a password; each is named.
pub fn registries(section: &Oci) -> anyhow::Result<Registries> {
    let mut logins = section
        .credentials
        .iter()
        .map(login)
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(file) = &section.docker_config {
        let text = read(file, "plugins.oci.docker_config")?;
        let file_logins =
            docker_logins(&text).with_context(|| format!("plugins.oci.docker_config: {}", file.display()))?;
        // The logins of this configuration are first, because they take precedence.
        logins.extend(file_logins);
    }
    let authorities = section
        .ca_file
        .as_ref()
        .map(|file| read(file, "plugins.oci.ca_file"));
    Ok(Registries {
        refresh: Duration::from_secs(section.refresh_seconds),
        timeout: Duration::from_secs(section.timeout_seconds),
        plain_http: section.insecure_registries.clone(),
        authorities: authorities.transpose()?.unwrap_or_default(),
        logins,
        ..Registries::default()
    })
}

/// Reads public keys. A key's name is its file's name.
///
/// # Errors
/// An unreadable file. The plugin host checks the keys.
pub fn signatures(section: &SignatureSettings) -> anyhow::Result<Signatures> {
    let keys = section.keys.iter().map(|file| {
        let name = file.file_name().unwrap_or(file.as_os_str());
        Ok(PublicKey {
            name: name.to_string_lossy().into_owned(),
            pem: read(file, "plugins.signatures.keys")?,
        })
    });
    Ok(Signatures {
        keys: keys.collect::<anyhow::Result<_>>()?,
        required: section.required,
    })
}

fn read(file: &Path, key: &str) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("{key}: cannot read {}", file.display()))
}

fn login(section: &OciCredentials) -> anyhow::Result<Login> {
    let key = format!(
        "the credentials for {} (plugins.oci.credentials)",
        section.registry
    );
    let password = match (&section.password, &section.password_file) {
        (Some(password), None) => password.reveal().to_owned(),
        (None, Some(file)) => {
            let text =
                fs::read_to_string(file).with_context(|| format!("{key}: cannot read {}", file.display()))?;
            text.trim_end_matches(['\n', '\r']).to_owned()
        }
        _ => bail!("{key}: expected exactly one of password and password_file"),
    };
    Ok(Login {
        registry: section.registry.clone(),
        user: section.user.clone(),
        password,
        token_server: section.auth_server.clone(),
    })
}

/// A file in the format of `docker login`. Credential helpers are not supported.
#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    auth: Option<String>,
}

fn docker_logins(text: &[u8]) -> anyhow::Result<Vec<Login>> {
    // The parser's error is not used, because its text may quote a secret.
    let config: DockerConfig =
        serde_json::from_slice(text).map_err(|_| anyhow::anyhow!("expected JSON with `auths`"))?;
    let mut logins = Vec::new();
    for (server, auth) in config.auths {
        let registry = server
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        let registry = registry.split('/').next().unwrap_or_default().to_owned();
        let Some(auth) = auth.auth.filter(|it| !it.is_empty()) else {
            tracing::warn!(
                registry,
                "credential helpers are not supported; no password for this registry"
            );
            continue;
        };
        let decoded = BASE64_STANDARD.decode(auth).ok();
        let decoded = decoded.and_then(|it| String::from_utf8(it).ok());
        let Some((user, password)) = decoded.as_deref().and_then(|it| it.split_once(':')) else {
            bail!("the `auth` of {registry} is not user and password in base64");
        };
        logins.push(Login {
            token_server: (registry == "index.docker.io").then(|| "auth.docker.io".to_owned()),
            registry,
            user: user.to_owned(),
            password: password.to_owned(),
        });
    }
    Ok(logins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_passwords_are_read_from_files_and_docker_config() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, content: &str| {
            let path = dir.path().join(name);
            fs::write(&path, content).expect("written");
            path
        };
        let auth = BASE64_STANDARD.encode("me:from docker: yes");
        let docker = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{auth}"}}, "r.example": {{"auth": "{auth}"}}, "h.example": {{}}}}}}"#
        );
        let toml = format!(
            "docker_config = {:?}\n[[credentials]]\nregistry = \"r.example\"\nuser = \"u\"\npassword_file = {:?}\n",
            file("config.json", &docker),
            file("password", "from a file\r\n"),
        );
        let section: Oci = toml::from_str(&toml).expect("a section");
        let passwords: Vec<(String, String)> = registries(&section)
            .expect("registries")
            .logins
            .into_iter()
            .map(|it| (it.registry, it.password))
            .collect();
        let expected = [
            ("r.example", "from a file"),
            ("index.docker.io", "from docker: yes"),
            ("r.example", "from docker: yes"),
        ];
        assert_eq!(passwords, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn errors_name_the_setting_and_hide_the_password() {
        for (toml, expected) in [
            ("ca_file = \"/none\"", "plugins.oci.ca_file: cannot read /none"),
            (
                "docker_config = \"/none\"",
                "plugins.oci.docker_config: cannot read /none",
            ),
            (
                "[[credentials]]\nregistry = \"r\"\nuser = \"u\"",
                "expected exactly one of password and password_file",
            ),
            (
                "[[credentials]]\nregistry = \"r\"\nuser = \"u\"\npassword_file = \"/none\"",
                "the credentials for r (plugins.oci.credentials): cannot read /none",
            ),
        ] {
            let section: Oci = toml::from_str(toml).expect("a section");
            let error = registries(&section).expect_err(toml).to_string();
            assert!(error.contains(expected), "{toml}: {error}");
        }
        for text in [
            "hunter2",
            r#"{"auths": {"r": {"auth": "hunter2"}}}"#,
            r#"{"auths": "hunter2"}"#,
        ] {
            let error = format!("{:#}", docker_logins(text.as_bytes()).expect_err(text));
            assert!(!error.contains("hunter2"), "{error}");
        }
        let keys = SignatureSettings {
            keys: vec!["/none".into()],
            required: true,
        };
        let error = signatures(&keys).expect_err("no file").to_string();
        assert!(
            error.contains("plugins.signatures.keys: cannot read /none"),
            "{error}"
        );
    }
}
