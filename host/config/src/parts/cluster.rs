//! The configuration of the client of the cluster manager, from `[cluster]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::Cluster;

/// The configuration.
///
/// # Errors
/// A file cannot be read, or keys contradict each other.
pub fn config(section: &Cluster) -> anyhow::Result<transom_cluster::Config> {
    let credentials = match (&section.username, &section.password) {
        (Some(username), Some(password)) => Some(transom_cluster::Credentials {
            username: username.clone(),
            password: password.clone(),
        }),
        (None, None) => None,
        // Checked when the settings are read.
        _ => bail!("cluster.username and cluster.password go together; only one of them is set"),
    };
    if credentials.is_some() && section.iam_config_file.is_some() {
        bail!("cluster.iam_config_file and cluster.username are both set; set only one of them");
    }
    let tls = tls(section)?;
    // Checked even if TLS is off, so that an invalid file is reported immediately.
    tls.check()?;
    let defaults = transom_cluster::Config::default();
    let state_timeout = Duration::from_secs(section.state_timeout_seconds);
    let credential_keys = match section.iam_config_file {
        Some(_) => "`iam_config_file` in [cluster]".to_owned(),
        None => defaults.credential_keys.clone(),
    };
    Ok(transom_cluster::Config {
        masters: masters(&section.master)?,
        fallback_masters: section.fallback_masters.clone(),
        principal: section.principal.clone(),
        credentials,
        credential_keys,
        service_account: section
            .iam_config_file
            .as_deref()
            .map(|file| service_account(file, &tls))
            .transpose()?,
        tls: section.ssl.then_some(tls),
        state_timeout,
        // No call may take longer than reading the state document.
        call_timeout: defaults.call_timeout.min(state_timeout),
        ..defaults
    })
}

/// Logs a warning if the certificates of the masters are not verified.
pub fn warn_of_unverified_masters(section: &Cluster) {
    if section.ssl && section.skip_ssl {
        tracing::warn!(
            "the certificates of the masters are not verified: `cluster.skip_ssl` (SKIP_SSL) is true, its default where \
             only CLUSTER_SSL asks for TLS; set SKIP_SSL=false, and `cluster.ca_file` for a private \
             certificate authority"
        );
    }
}

fn tls(section: &Cluster) -> anyhow::Result<transom_cluster::Tls> {
    let read = |key: &str, file: &Option<PathBuf>| {
        let content = file.as_deref().map(|file| read(file, key));
        content.transpose()
    };
    let certificate = read("cluster.certificate_file", &section.certificate_file)?;
    let key = read("cluster.key_file", &section.key_file)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some([certificate, b"\n".to_vec(), key].concat()),
        (None, None) => None,
        _ => bail!("cluster.certificate_file and cluster.key_file go together; only one of them is set"),
    };
    Ok(transom_cluster::Tls {
        verify: !section.skip_ssl,
        authorities: read("cluster.ca_file", &section.ca_file)?,
        identity,
    })
}

fn read(file: &Path, key: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("{key}: cannot read {}", file.display()))
}

fn service_account(
    file: &Path,
    tls: &transom_cluster::Tls,
) -> anyhow::Result<transom_cluster::ServiceAccount> {
    #[derive(Deserialize)]
    struct Account {
        uid: String,
        private_key: String,
        login_endpoint: String,
    }
    let key = "cluster.iam_config_file";
    // The parser's error is not used, because its text may quote a secret.
    let account: Account = serde_json::from_slice(&read(file, key)?).map_err(|_| {
        anyhow::anyhow!(
            "{key}: {} must be a JSON object with the texts uid, private_key and login_endpoint",
            file.display()
        )
    })?;
    if account.uid.is_empty() || account.private_key.is_empty() || account.login_endpoint.is_empty() {
        bail!(
            "{key}: uid, private_key or login_endpoint in {} is empty",
            file.display()
        );
    }
    Ok(transom_cluster::ServiceAccount {
        uid: account.uid,
        private_key: account.private_key.into_bytes(),
        login_endpoint: account.login_endpoint,
        tls: tls.clone(),
    })
}

/// The prefix of a file's name in `cluster.master`.
pub(crate) const FILE_PREFIX: &str = "file://";

/// The masters: `host:port`, separated by commas, or one address of ZooKeeper.
pub fn masters(master: &str) -> anyhow::Result<Vec<String>> {
    let mut master = master.trim().to_owned();
    if let Some(file) = master.strip_prefix(FILE_PREFIX) {
        let content = read(Path::new(file), &format!("the masters' address {master}"))?;
        let content = String::from_utf8_lossy(&content).trim().to_owned();
        if content.starts_with(FILE_PREFIX) {
            bail!(
                "the masters' address {master}: the file names another file; it must contain zk://… or \
                 host:port"
            );
        }
        master = content;
    }
    if let Some(rest) = master.strip_prefix(ZOOKEEPER) {
        return Ok(vec![format!("{ZOOKEEPER}{}", with_default_ports(rest))]);
    }
    let masters = master
        .split(',')
        .map(str::trim)
        .filter(|master| !master.is_empty());
    // Of a process id (`master@host:port`) only the address is used.
    let address = |master: &str| master.strip_prefix("master@").unwrap_or(master).to_owned();
    Ok(masters.map(address).collect())
}

/// The beginning of an address of ZooKeeper.
pub(crate) const ZOOKEEPER: &str = "zk://";

/// Servers without a port get ZooKeeper's default port.
fn with_default_ports(address: &str) -> String {
    let (servers, path) = address.split_at(address.find('/').unwrap_or(address.len()));
    let (credentials, servers) = match servers.rsplit_once('@') {
        Some((credentials, servers)) => (format!("{credentials}@"), servers),
        None => (String::new(), servers),
    };
    let servers: Vec<_> = servers
        .split(',')
        .map(str::trim)
        .map(|server| match server.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => server.to_owned(),
            _ if server.is_empty() => String::new(),
            _ => format!("{server}:2181"),
        })
        .collect();
    format!("{credentials}{}{path}", servers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_read_from_a_list_a_zookeeper_address_or_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |content: &str| {
            let path = dir.path().join("masters");
            std::fs::write(&path, content).expect("written");
            format!("file://{}", path.display())
        };
        for (master, expected) in [
            (
                "10.0.0.1:5050, 10.0.0.2:5050",
                &["10.0.0.1:5050", "10.0.0.2:5050"][..],
            ),
            ("master@10.0.0.1:5050", &["10.0.0.1:5050"]),
            ("zk://a:1,b:2/mesos", &["zk://a:1,b:2/mesos"]),
            ("zk://u:p@a,b:2/mesos", &["zk://u:p@a:2181,b:2/mesos"]),
            ("zk://[::1],[::2]:3/mesos", &["zk://[::1]:2181,[::2]:3/mesos"]),
        ] {
            assert_eq!(masters(master).expect(master), expected, "{master}");
            assert_eq!(
                masters(&file(&format!("{master}\n"))).expect(master),
                expected,
                "{master} in a file"
            );
        }
        let error = masters("file:///nope").expect_err("no file").to_string();
        assert!(
            error.contains("file:///nope") && error.contains("cannot read"),
            "{error}"
        );
        let error = masters(&file("file:///etc/zk")).expect_err("a file in a file");
        assert!(error.to_string().contains("names another file"), "{error}");
    }
}
