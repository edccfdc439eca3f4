//! The configuration of discovery, from `[discovery]` and `[cluster]`.

use std::path::{Path, PathBuf};

use anyhow::bail;
use transom_discovery::config::check;
use transom_web::AllowedHost;

use super::cluster::ZOOKEEPER;
use crate::renamed::value as renamed_value;
use crate::{Cluster, Discovery};

/// The configuration. `masters`: the resolved addresses of the masters; `file`: the file with the
/// settings; `hostname`: the name of this machine.
///
/// # Errors
/// The faults of the section, one line each.
pub fn config(
    mut section: Discovery,
    cluster: &Cluster,
    masters: &[String],
    file: &Path,
    hostname: &str,
) -> anyhow::Result<transom_discovery::Config> {
    let mut problems = section.problems();
    let key = "discovery.forward_policy";
    if let Some(new) = renamed_value(key, &section.forward_policy)
        && let Some(problem) = problems.iter_mut().find(|text| text.contains(key))
    {
        *problem = format!("{problem}; `{}` is now `{new}`", section.forward_policy);
    }
    let zookeeper = masters.first().filter(|master| master.starts_with(ZOOKEEPER));
    // The masters for the zone's `master` names. With ZooKeeper, these are the masters that it names,
    // and the fallback masters before that.
    let named_masters = if zookeeper.is_some() {
        &cluster.fallback_masters[..]
    } else {
        masters
    };
    let masters = check::masters(named_masters).unwrap_or_else(|problem| {
        problems.push(format!("`cluster.master`: {problem}"));
        Vec::new()
    });
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    section.allowed_hosts.extend(hostname.parse::<AllowedHost>());
    Ok(transom_discovery::Config {
        masters,
        cluster_settings: cluster_settings(cluster, zookeeper, file),
        ..section.into()
    })
}

fn cluster_settings(
    cluster: &Cluster,
    zookeeper: Option<&String>,
    file: &Path,
) -> transom_discovery::ClusterSettings {
    let path_text = |path: &Option<PathBuf>| {
        path.as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default()
    };
    let principal = cluster.username.as_ref().or(cluster.principal.as_ref());
    transom_discovery::ClusterSettings {
        file: std::path::absolute(file)
            .map(|file| file.display().to_string())
            .unwrap_or_default(),
        zk: zookeeper.cloned().unwrap_or_default(),
        state_timeout_seconds: cluster.state_timeout_seconds,
        zk_detection_timeout: cluster.detection_timeout_seconds,
        mesos_https_on: cluster.ssl,
        ca_cert_file: path_text(&cluster.ca_file),
        cert_file: path_text(&cluster.certificate_file),
        key_file: path_text(&cluster.key_file),
        principal: principal.cloned().unwrap_or_default(),
        mesos_authentication: match (&cluster.username, &cluster.iam_config_file) {
            (Some(_), _) => "basic".to_owned(),
            (None, Some(_)) => "iam".to_owned(),
            (None, None) => String::new(),
        },
        iam_config_file: path_text(&cluster.iam_config_file),
    }
}
