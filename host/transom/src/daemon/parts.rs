//! What the sections of the configuration mean for the parts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio_util::sync::CancellationToken;
use transom_cluster::v1;

use super::Ground;
use crate::config::{self, Looker};
use crate::sources;

/// Between two looks at a store that does not answer yet.
const STORE_POLL: Duration = Duration::from_millis(250);

/// Opens the store and waits until it answers: without it nothing is known of what runs.
pub(super) async fn open_store(
    section: &config::Store,
    token: &CancellationToken,
) -> anyhow::Result<Arc<dyn transom_store::Store>> {
    let store = transom_store::Config {
        user: section.user.clone(),
        password: section
            .password
            .as_ref()
            .map(|password| password.reveal().to_owned().into()),
        database: section.database,
        tls: section.ssl.then_some(transom_store::Tls {
            verify: !section.skip_ssl,
            authorities: None,
        }),
        ..transom_store::Config::new(&section.server)
    }
    .open()
    .await?;
    let mut said = false;
    loop {
        match store.get("transom/reachable").await {
            Ok(_) => return Ok(store),
            // The store itself says in the log what is wrong and goes on trying.
            Err(transom_store::Error::Unavailable { .. }) => {
                if !said {
                    tracing::warn!("waiting for the store; nothing is served before it answers");
                    said = true;
                }
            }
            Err(error) => return Err(error.into()),
        }
        tokio::select! {
            () = token.cancelled() => bail!("stopped while waiting for the store"),
            () = tokio::time::sleep(STORE_POLL) => {}
        }
    }
}

pub(super) fn cluster_config(section: &config::Cluster) -> anyhow::Result<transom_cluster::Config> {
    let credentials = match (&section.username, &section.password) {
        (Some(username), Some(password)) => Some(transom_cluster::Credentials {
            username: username.clone(),
            password: password.reveal().to_owned(),
        }),
        (None, None) => None,
        (Some(_), None) => bail!("cluster.username is set and cluster.password is not; set both or neither"),
        (None, Some(_)) => bail!("cluster.password is set and cluster.username is not; set both or neither"),
    };
    Ok(transom_cluster::Config {
        masters: masters(section),
        principal: section.principal.clone(),
        credentials,
        tls: section.ssl.then_some(transom_cluster::Tls {
            verify: !section.skip_ssl,
            authorities: None,
        }),
        ..transom_cluster::Config::default()
    })
}

fn masters(section: &config::Cluster) -> Vec<String> {
    section
        .master
        .split(',')
        .map(str::trim)
        .filter(|master| !master.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The masters for the zone's `master` names: those that the configuration lists. Where ZooKeeper knows them the zone has the leader.
pub(super) fn named_masters(section: &config::Cluster) -> Vec<String> {
    if section.master.trim_start().starts_with("zk://") {
        Vec::new()
    } else {
        masters(section)
    }
}

/// `ground`: where records of admissions are kept, for each daemon its own, since each has a plugin directory of its own.
pub(super) fn plugins_config(
    section: config::Plugins,
    ground: Option<&Ground>,
) -> anyhow::Result<transom_plugins::Config> {
    let uses = section.uses;
    Ok(transom_plugins::Config {
        registries: sources::registries(&section.oci)?,
        signatures: sources::signatures(&section.signatures)?,
        store: ground.map(|ground| ground.store.clone()),
        prefix: ground.map_or_else(String::new, |ground| {
            format!("{}/daemons/{}", ground.prefix, ground.daemon)
        }),
        uses: transom_plugins::Uses {
            matcher: uses.matcher,
            filter: uses.filter,
            bootstrap: uses.bootstrap,
            http: uses.http,
            tcp: uses.tcp,
            exec: uses.exec,
        },
        ..transom_plugins::Config::new(section.dir)
    })
}

pub(super) fn framework(section: &config::Apps, principal: Option<String>) -> v1::FrameworkInfo {
    v1::FrameworkInfo {
        user: section.user.clone(),
        name: section.framework_name.clone(),
        roles: vec![section.role.clone()],
        failover_timeout: Some(section.failover_timeout as f64),
        checkpoint: Some(true),
        hostname: Some(hostname(section)),
        webui_url: Some(format!("http://{}:{}", hostname(section), section.port)),
        principal,
        ..v1::FrameworkInfo::default()
    }
}

pub(super) fn hostname(section: &config::Apps) -> String {
    if section.hostname.is_empty() {
        section.listener.to_string()
    } else {
        section.hostname.clone()
    }
}

pub(super) fn apps_config(section: config::Apps) -> transom_apps::Config {
    transom_apps::Config {
        listener: section.listener,
        trusted_networks: section.trusted_networks.clone(),
        port: section.port,
        hostname: hostname(&section),
        prefix: section.framework_name.clone(),
        framework_name: section.framework_name,
        role: section.role,
        checks: transom_apps::Checks {
            network: match section.checks.network {
                Looker::Host => transom_apps::Network::Host,
                Looker::Cluster => transom_apps::Network::Cluster,
            },
            exec: match section.checks.exec {
                Looker::Host => transom_apps::Exec::Host,
                Looker::Cluster => transom_apps::Exec::Cluster,
            },
        },
        ..transom_apps::Config::default()
    }
}

pub(super) fn discovery_config(
    section: config::Discovery,
    masters: Vec<String>,
) -> transom_discovery::Config {
    transom_discovery::Config {
        listener: section.listener,
        port: section.port,
        http_listener: section.http_listener,
        http_port: section.http_port,
        dns_on: section.dns_on,
        http_on: section.http_on,
        domain: section.domain,
        ttl: section.ttl,
        refresh_seconds: section.refresh_seconds,
        masters,
        enforce_rfc952: section.enforce_rfc952,
        recurse_on: section.recurse_on,
        enumeration_on: section.enumeration_on,
        srv_record_default_weight: section.srv_record_default_weight,
        soa_mname: section.soa_mname,
        soa_rname: section.soa_rname,
        soa_refresh: section.soa_refresh,
        soa_retry: section.soa_retry,
        soa_expire: section.soa_expire,
        ..transom_discovery::Config::default()
    }
}
