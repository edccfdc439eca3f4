//! Checks the addresses in the settings, and the keys that go together, as the services would when they
//! start. Nothing is connected, and no file is read.

use std::path::Path;

use crate::parts::cluster::{FILE_PREFIX, masters};
use crate::parts::{discovery, store};
use crate::{Cluster, Plugins, Settings, Workflow};

/// Invalid addresses and incomplete pairs of keys, one line each.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    let cluster = &settings.cluster;
    let mut problems = cluster_problems(cluster);
    let with_master = problems.is_empty();
    if let Err(error) = store::config(&settings.store).addresses() {
        problems.push(format!("`store.server`: {error}"));
    }
    problems.extend(registry_problems(&settings.plugins));
    if let Some(section) = &settings.discovery {
        // A wrong master is told once.
        let masters = if with_master {
            listed_masters(&cluster.master)
        } else {
            Vec::new()
        };
        let config = discovery::config(section.clone(), cluster, &masters, Path::new(""), "");
        problems.extend(config.err().iter().flat_map(lines));
    }
    let workflow = settings.workflow.iter();
    problems.extend(workflow.flat_map(|section| workflow_problems(section, cluster.ssl)));
    problems
}

fn lines(error: &anyhow::Error) -> Vec<String> {
    error.to_string().lines().map(str::to_owned).collect()
}

/// The masters, unless a file contains them.
fn listed_masters(master: &str) -> Vec<String> {
    if master.trim().starts_with(FILE_PREFIX) {
        return Vec::new();
    }
    masters(master).unwrap_or_default()
}

fn cluster_problems(cluster: &Cluster) -> Vec<String> {
    let mut problems = Vec::new();
    for ((one, has_one), (other, has_other)) in [
        (
            ("username", cluster.username.is_some()),
            ("password", cluster.password.is_some()),
        ),
        (
            ("certificate_file", cluster.certificate_file.is_some()),
            ("key_file", cluster.key_file.is_some()),
        ),
    ] {
        let (missing, present) = match (has_one, has_other) {
            (true, false) => (other, one),
            (false, true) => (one, other),
            _ => continue,
        };
        problems.push(format!(
            "`cluster.{missing}` is missing: `cluster.{present}` is set, and each needs the other"
        ));
    }
    if cluster.username.is_some() && cluster.iam_config_file.is_some() {
        problems.push(
            "`cluster.iam_config_file` and `cluster.username` are both set; set only one of them".to_owned(),
        );
    }
    if cluster.state_timeout_seconds == 0 {
        problems.push("`cluster.state_timeout_seconds` is 0: it must be at least 1".to_owned());
    }
    problems.extend(master_problem("cluster.master", &cluster.master, cluster.ssl));
    for master in &cluster.fallback_masters {
        problems.extend(master_problem("cluster.fallback_masters", master, cluster.ssl));
    }
    problems
}

/// An address of masters that no client can use.
fn master_problem(key: &str, master: &str, ssl: bool) -> Option<String> {
    if master.trim().starts_with(FILE_PREFIX) {
        return None;
    }
    let config = transom_cluster::Config {
        masters: listed_masters(master),
        tls: ssl.then(transom_cluster::Tls::default),
        ..transom_cluster::Config::default()
    };
    let error = config.check_masters().err()?;
    Some(format!("`{key}`: {error}"))
}

/// Registries that no source can name.
fn registry_problems(plugins: &Plugins) -> Vec<String> {
    let oci = &plugins.oci;
    let insecure = oci
        .insecure_registries
        .iter()
        .map(|name| ("insecure_registries", name));
    let credentials = oci.credentials.iter();
    let credentials = credentials.flat_map(|login| {
        let server = login
            .auth_server
            .iter()
            .map(|name| ("credentials.auth_server", name));
        [("credentials.registry", &login.registry)]
            .into_iter()
            .chain(server)
    });
    let mut problems: Vec<_> = insecure
        .chain(credentials)
        .filter(|(_, name)| !is_host(name))
        .map(|(key, name)| format!("`plugins.oci.{key}` is {name:?}; expected `host` or `host:port`"))
        .collect();
    for login in &oci.credentials {
        if login.password.is_some() == login.password_file.is_some() {
            problems.push(format!(
                "`plugins.oci.credentials` for {:?}: expected exactly one of password and password_file",
                login.registry
            ));
        }
    }
    problems
}

/// Whether this is `host` or `host:port`.
fn is_host(name: &str) -> bool {
    let (host, port) = match name.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (name, None),
    };
    let has_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
    let is_allowed =
        |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_' | '[' | ']' | ':');
    has_port && !host.is_empty() && host.chars().all(is_allowed)
}

fn workflow_problems(workflow: &Workflow, ssl: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(master) = &workflow.master {
        problems.extend(master_problem(
            "workflow.master",
            master,
            ssl || workflow.cluster_ssl,
        ));
    }
    if let Some(text) = &workflow.operator_api_url {
        let url = reqwest::Url::parse(text).ok();
        let is_http = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        if !url.as_ref().is_some_and(is_http) {
            problems.push(
                "`workflow.operator_api_url` is not a URL of this API; expected one such as \
                 `http://transom.example.com:11000`"
                    .to_owned(),
            );
        }
    }
    problems
}
