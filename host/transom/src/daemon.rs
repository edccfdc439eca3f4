//! The daemon: settings become running parts, parts are watched, and all of them are stopped again.
//!
//! Parts are built from below: store, plugins, connection to the cluster manager, scheduler, jobs, admin port. Sockets are
//! bound while building, so that a port that is taken is said before anything is promised. A part that ends by itself
//! ends the daemon with an error; a supervisor starts it again, and it takes its framework and its tasks back.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_apps::Apps;
use transom_cluster::{Client, v1};
use transom_discovery::Discovery;
use transom_plugins::Plugins;
use transom_scheduler::Scheduler;

use crate::admin::{self, Admin};
use crate::config::{self, Looker, Settings};
use crate::exit::{Misconfigured, Unavailable};

/// How long the parts may take to stop before the daemon says which one did not.
const DRAIN: Duration = Duration::from_secs(15);

/// Between two looks at a store that does not answer yet.
const STORE_POLL: Duration = Duration::from_millis(250);

/// A running daemon.
pub(crate) struct Daemon {
    apps: Option<Apps>,
    discovery: Option<Discovery>,
    scheduler: Option<Scheduler>,
    plugins: Plugins,
    cluster: Client,
    admin: JoinHandle<transom_web::Result<()>>,
    addresses: Addresses,
}

/// Where the daemon can be reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) apps: Option<SocketAddr>,
    pub(crate) dns: Option<SocketAddr>,
    pub(crate) discovery: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("apps", self.apps),
            ("dns", self.dns),
            ("discovery", self.discovery),
            ("admin", self.admin),
        ];
        let mut first = true;
        for (name, address) in named {
            if let Some(address) = address {
                write!(f, "{}{name}={address}", if first { "" } else { " " })?;
                first = false;
            }
        }
        Ok(())
    }
}

impl Daemon {
    /// Builds and starts every part that `settings` switch on.
    ///
    /// # Errors
    /// A port that is taken, a store that another process holds, a plugin directory that is not there. A master that
    /// cannot be reached is no error: the parts keep trying and say so.
    pub(crate) async fn start(settings: Settings, token: CancellationToken) -> anyhow::Result<Daemon> {
        // Whatever was started before a later part failed is stopped again.
        let guard = token.clone().drop_guard();
        let mut registry = Registry::default();
        let admin_listener = transom_web::Listener::bind(
            "admin",
            SocketAddr::new(settings.admin.listener, settings.admin.port),
        )
        .context(Unavailable)?;
        let mut addresses = Addresses {
            admin: Some(admin_listener.local_addr()),
            ..Addresses::default()
        };

        let cluster =
            Client::new(cluster_config(&settings.cluster).context(Misconfigured)?).context(Misconfigured)?;
        let plugins = plugins_config(settings.plugins)
            .start(&mut registry, token.child_token())
            .await
            .context(Unavailable)?;

        let (mut apps, mut scheduler) = (None, None);
        if let Some(section) = settings.apps {
            let store = open_store(&settings.store, &token).await.context(Unavailable)?;
            let (handle, events) = transom_scheduler::Config::new(
                cluster.clone(),
                framework(&section, settings.cluster.principal.clone()),
                store.clone(),
                section.framework_name.clone(),
                plugins.clone(),
            )
            .start(&mut registry, token.child_token())
            .await
            .context(Unavailable)?;
            let job = apps_config(section)
                .start(
                    handle.clone(),
                    events,
                    store,
                    plugins.clone(),
                    cluster.clone(),
                    &mut registry,
                    token.child_token(),
                )
                .await
                .context(Unavailable)?;
            addresses.apps = Some(job.addr());
            (apps, scheduler) = (Some(job), Some(handle));
        }

        let mut discovery = None;
        if let Some(section) = settings.discovery {
            let job = discovery_config(section, named_masters(&settings.cluster))
                .start(cluster.clone(), &mut registry, token.child_token())
                .await
                .context(Unavailable)?;
            (addresses.dns, addresses.discovery) = (job.dns_addr(), job.http_addr());
            discovery = Some(job);
        }

        let admin = admin::serve(
            admin_listener,
            Admin::new(
                registry,
                plugins.clone(),
                scheduler.clone(),
                apps.clone(),
                discovery.clone(),
            ),
            token.child_token(),
        );
        guard.disarm();
        Ok(Daemon {
            apps,
            discovery,
            scheduler,
            plugins,
            cluster,
            admin,
            addresses,
        })
    }

    /// Where the daemon can be reached.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until `token` is cancelled, then waits until every part has stopped.
    ///
    /// # Errors
    /// A part ended by itself, or did not stop in time.
    pub(crate) async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        // Parts stop when the token is cancelled, which is no reason to call them broken: it is looked at first.
        let ended = tokio::select! {
            biased;
            () = token.cancelled() => None,
            name = self.first_to_end() => Some(name),
        };
        token.cancel();
        let stopped = tokio::time::timeout(DRAIN, self.all_ended()).await;
        match (ended, stopped) {
            (Some(name), _) => bail!("the part `{name}` ended by itself; the log says why"),
            (None, Err(_)) => bail!("not every part stopped within {DRAIN:?}"),
            (None, Ok(())) => Ok(()),
        }
    }

    async fn first_to_end(&mut self) -> &'static str {
        let apps = self.apps.clone();
        let discovery = self.discovery.clone();
        let scheduler = self.scheduler.clone();
        tokio::select! {
            () = ended(apps.as_ref().map(|part| boxed(part.stopped()))) => "apps",
            () = ended(discovery.as_ref().map(|part| boxed(part.stopped()))) => "discovery",
            () = ended(scheduler.as_ref().map(|part| boxed(part.stopped()))) => "scheduler",
            _ = &mut self.admin => "admin",
        }
    }

    async fn all_ended(&mut self) {
        if let Some(apps) = &self.apps {
            apps.stopped().await;
        }
        if let Some(discovery) = &self.discovery {
            discovery.stopped().await;
        }
        if let Some(scheduler) = &self.scheduler {
            scheduler.stopped().await;
        }
        self.plugins.stopped().await;
        self.cluster.close().await;
        if !self.admin.is_finished() {
            let _ = (&mut self.admin).await;
        }
    }
}

fn boxed<'a>(future: impl Future<Output = ()> + Send + 'a) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(future)
}

/// A part that does not run does not end.
async fn ended(part: Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    match part {
        Some(part) => part.await,
        None => std::future::pending().await,
    }
}

/// Opens the store and waits until it answers: without it nothing is known of what runs.
async fn open_store(
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

fn cluster_config(section: &config::Cluster) -> anyhow::Result<transom_cluster::Config> {
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
fn named_masters(section: &config::Cluster) -> Vec<String> {
    if section.master.trim_start().starts_with("zk://") {
        Vec::new()
    } else {
        masters(section)
    }
}

fn plugins_config(section: config::Plugins) -> transom_plugins::Config {
    let uses = section.uses;
    transom_plugins::Config {
        uses: transom_plugins::Uses {
            matcher: uses.matcher,
            filter: uses.filter,
            bootstrap: uses.bootstrap,
            http: uses.http,
            tcp: uses.tcp,
            exec: uses.exec,
        },
        ..transom_plugins::Config::new(section.dir)
    }
}

fn framework(section: &config::Apps, principal: Option<String>) -> v1::FrameworkInfo {
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

fn hostname(section: &config::Apps) -> String {
    if section.hostname.is_empty() {
        section.listener.to_string()
    } else {
        section.hostname.clone()
    }
}

fn apps_config(section: config::Apps) -> transom_apps::Config {
    transom_apps::Config {
        listener: section.listener,
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

fn discovery_config(section: config::Discovery, masters: Vec<String>) -> transom_discovery::Config {
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
