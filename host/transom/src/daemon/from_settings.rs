//! Builds the configurations of services from the settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use transom_discovery::config::check;

use super::process;
use crate::{config, sources};

/// The command with which the daemon starts itself to compile a component.
pub(crate) const COMPILE_COMMAND: [&str; 2] = ["plugin", "compile"];
/// The interval of checks of a store that does not answer yet.
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Opens the store and waits until it answers. Without the store, the daemon does not know its running
/// tasks.
pub(super) async fn open_store(
    section: &config::Store,
    token: &CancellationToken,
) -> anyhow::Result<Arc<dyn transom_store::Store>> {
    let store = store_config(section).open().await?;
    let mut is_warned = false;
    loop {
        match store.get("transom/reachable").await {
            Ok(_) => return Ok(store),
            // The store logs the cause and retries.
            Err(transom_store::Error::Unavailable { .. }) => {
                if !is_warned {
                    tracing::warn!("waiting for the store; the daemon serves no requests until it responds");
                    if !section.server.starts_with("file:") {
                        tracing::warn!(
                            "if there is no Redis: `store.server = \"file:DIR\"` keeps everything in an embedded store in \
                             the directory DIR, for one daemon alone"
                        );
                    }
                    is_warned = true;
                }
            }
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = token.cancelled() => bail!("stopped while waiting for the store"),
            () = tokio::time::sleep(STORE_POLL_INTERVAL) => {}
        }
    }
}

pub(crate) fn store_config(section: &config::Store) -> transom_store::Config {
    transom_store::Config {
        user: section.user.clone(),
        password: section.password.clone(),
        database: section.database,
        tls: section.ssl.then_some(transom_store::Tls {
            verify: !section.skip_ssl,
            authorities: None,
        }),
        ..transom_store::Config::new(&section.server)
    }
}

pub(crate) fn cluster_config(section: &config::Cluster) -> anyhow::Result<transom_cluster::Config> {
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
pub(crate) fn warn_of_unverified_masters(section: &config::Cluster) {
    if section.ssl && section.skip_ssl {
        tracing::warn!(
            "the certificates of the masters are not verified: `cluster.skip_ssl` (SKIP_SSL) is true, its default where \
             only CLUSTER_SSL asks for TLS; set SKIP_SSL=false, and `cluster.ca_file` for a private \
             certificate authority"
        );
    }
}

fn tls(section: &config::Cluster) -> anyhow::Result<transom_cluster::Tls> {
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
pub(super) const FILE_PREFIX: &str = "file://";

/// The masters: `host:port`, separated by commas, or one address of ZooKeeper.
pub(super) fn masters(master: &str) -> anyhow::Result<Vec<String>> {
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

const ZOOKEEPER: &str = "zk://";

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

/// Minimum wall-clock time after which a compilation is given up and retried.
const COMPILE_WALL_CLOCK: Duration = Duration::from_mins(5);

/// `store`: the store of the admission records, and the prefix of their keys. Each daemon has its own
/// prefix, because it has its own plugin directory. `reserved`: addresses that neither probes nor
/// registry clients may connect to.
pub(super) fn plugins_config(
    section: config::Plugins,
    store: Option<(Arc<dyn transom_store::Store>, String)>,
    reserved: transom_plugin_host::Reserved,
) -> anyhow::Result<transom_plugin_host::Config> {
    let bindings = section.bindings;
    let (store, prefix) = store.unzip();
    let recording = section.recording;
    let state_dir = section.state_dir.unwrap_or_else(|| section.dir.join(".transom"));
    let calls = recording.dir.unwrap_or_else(|| state_dir.join("calls"));
    Ok(transom_plugin_host::Config {
        recording: recording.enabled.then(|| transom_plugin_host::Recording {
            sample_percent: recording.sample_percent,
            max_size: recording.max_bytes,
            max_age: Duration::from_secs(recording.max_age_seconds),
            ..transom_plugin_host::Recording::new(calls)
        }),
        registries: sources::registries(&section.oci)?,
        signatures: sources::signatures(&section.signatures)?,
        reserved,
        store,
        prefix: prefix.unwrap_or_default(),
        bindings: transom_plugin_host::Bindings {
            matchers: bindings.matcher.names().to_vec(),
            filters: bindings.filter.names().to_vec(),
            bootstrap: bindings.bootstrap,
            http: bindings.http,
            tcp: bindings.tcp,
            exec: bindings.exec,
        },
        compile_timeout: Duration::from_secs(section.compile_timeout_seconds),
        compile_wall_clock: COMPILE_WALL_CLOCK.max(Duration::from_secs(section.compile_timeout_seconds * 10)),
        compiler: transom_plugin_host::Compiler::Process(transom_plugin_host::CompileProcess {
            program: "/proc/self/exe".into(),
            arguments: COMPILE_COMMAND.map(Into::into).to_vec(),
            memory: section.compile_memory_bytes,
        }),
        private: Some(state_dir),
        ..transom_plugin_host::Config::new(section.dir)
    })
}

/// `masters`: the resolved addresses of the masters; `file`: the file with the settings.
pub(super) fn discovery_config(
    section: config::Discovery,
    cluster: &config::Cluster,
    masters: &[String],
    file: &Path,
) -> anyhow::Result<transom_discovery::Config> {
    let mut problems = Vec::new();
    let zookeeper = masters.first().filter(|master| master.starts_with(ZOOKEEPER));
    // The masters for the zone's `master` names. With ZooKeeper, these are the masters that it names,
    // and the fallback masters before that.
    let named_masters = if zookeeper.is_some() {
        &cluster.fallback_masters[..]
    } else {
        masters
    };
    let resolvers = if section.external_on {
        valid(&mut problems, "resolvers", check::resolvers(&section.resolvers))
    } else {
        // The resolvers are not used without forwarding. They are only shown.
        section
            .resolvers
            .iter()
            .filter_map(|text| check::resolver(text))
            .collect()
    };
    let zones = section.zone_resolvers.iter();
    let zones = zones.map(|(zone, resolvers)| (zone.as_str(), resolvers.as_slice()));
    let zone_resolvers = if section.external_on {
        let zones = check::zone_resolvers(zones, &section.domain.to_ascii_lowercase());
        valid(&mut problems, "zone_resolvers", zones)
    } else {
        BTreeMap::new()
    };
    let masters = check::masters(named_masters).unwrap_or_else(|problem| {
        problems.push(format!("`cluster.master`: {problem}"));
        Vec::new()
    });
    let ip_sources = valid(
        &mut problems,
        "ip_sources",
        check::ip_sources(&section.ip_sources),
    );
    let forward_policy = forward_policy(&section.forward_policy).unwrap_or_else(|problem| {
        problems.push(problem);
        transom_discovery::Config::default().forward_policy
    });
    let also_notify = valid(
        &mut problems,
        "also_notify",
        check::resolvers(&section.also_notify),
    );
    let config = transom_discovery::Config {
        listener: section.listener,
        port: section.port,
        http_listener: section.http_listener,
        http_port: section.http_port,
        allowed_hosts: section
            .allowed_hosts
            .into_iter()
            .chain(process::hostname().parse())
            .collect(),
        dns_on: section.dns_on,
        http_on: section.http_on,
        domain: section.domain,
        ttl: section.ttl,
        refresh_seconds: section.refresh_seconds,
        masters,
        ip_sources,
        enforce_rfc952: section.enforce_rfc952,
        recurse_on: section.recurse_on,
        enumeration_on: section.enumeration_on,
        srv_record_default_weight: section.srv_record_default_weight,
        weight_label: section.weight_label,
        soa_mname: section.soa_mname,
        soa_rname: section.soa_rname,
        soa_refresh: section.soa_refresh,
        soa_retry: section.soa_retry,
        soa_expire: section.soa_expire,
        reverse_dns_on: section.reverse_dns_on,
        resolv_subnet_first: section.resolv_subnet_first,
        external_on: section.external_on,
        resolvers,
        zone_resolvers,
        timeout: section.timeout,
        forward_policy,
        forward_cache_bytes: section.forward_cache_bytes,
        forward_max_inflight: section.forward_max_inflight,
        forward_max_sockets: section.forward_max_sockets,
        set_truncate_bit: section.set_truncate_bit,
        allow_recursion: section.allow_recursion,
        responses_per_second: section.responses_per_second,
        healthy_only: section.healthy_only,
        include_staging: section.include_staging,
        framework_ttl: section.framework_ttl,
        tls_port: section.tls_port,
        https_port: section.https_port,
        tls_certificate: section.tls_certificate,
        tls_key: section.tls_key,
        also_notify,
        allow_transfer: section.allow_transfer,
        stream_timeouts: transom_discovery::source::StreamTimeouts::default(),
        cluster_settings: cluster_settings(cluster, zookeeper, file),
    };
    add_problems(&mut problems, &config);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(config)
}

/// Adds the problems of the configuration, except for keys that have one already.
fn add_problems(problems: &mut Vec<String>, config: &transom_discovery::Config) {
    let invalid_keys: Vec<String> = problems.iter().map(|text| key_of(text).to_owned()).collect();
    let others = config.problems().into_iter().map(|(keys, what)| {
        let keys: Vec<_> = keys.split(", ").map(|key| format!("`discovery.{key}`")).collect();
        format!("{}: {what}", keys.join(" and "))
    });
    problems.extend(others.filter(|text| !invalid_keys.iter().any(|key| key == key_of(text))));
}

/// The key at the beginning of a problem.
fn key_of(problem: &str) -> &str {
    problem.split('`').nth(1).unwrap_or_default()
}

/// The value, or the default and a problem of this key of `[discovery]`.
fn valid<T: Default>(problems: &mut Vec<String>, key: &str, checked: check::Checked<T>) -> T {
    checked.unwrap_or_else(|problem| {
        problems.push(format!("`discovery.{key}`: {problem}"));
        T::default()
    })
}

fn forward_policy(text: &str) -> Result<transom_discovery::ForwardPolicy, String> {
    check::forward_policy(text).map_err(|problem| {
        match config::renamed_value("discovery.forward_policy", text) {
            Some(new) => format!("`discovery.forward_policy`: {problem}; `{text}` is now `{new}`"),
            None => format!("`discovery.forward_policy`: {problem}"),
        }
    })
}

fn cluster_settings(
    cluster: &config::Cluster,
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
