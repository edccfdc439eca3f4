//! The daemon: starts its services from the settings, watches them, and stops them.
//!
//! Services are started bottom-up: store, plugins, connection to the cluster manager, services, admin
//! port. Sockets are bound first, so that a port in use is reported before anything runs. Of the daemons
//! that share a store, one is the leader of a framework and runs its scheduler ([`leadership`]); the
//! others serve what they can. A service that ends unexpectedly ends the daemon with an error; after a
//! restart by its supervisor it takes its framework and tasks over again.

mod discovery_only;
mod from_settings;
mod leadership;
mod reserved;

pub(crate) use discovery_only::serve_discovery;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use transom_apps::Apps;
use transom_cluster::{Client, v1};
use transom_discovery::Discovery;
use transom_plugin_host::{Plugins, Reserved};
use transom_store::{Election, Store};
use transom_workflow::Workflow;

use crate::admin::{self, Admin};
use crate::config::Settings;
use crate::exit::{Misconfigured, Unavailable};
use leadership::Framework;

/// For all services to stop after a shutdown request.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// A running daemon.
pub(crate) struct Daemon {
    apps: Option<Apps>,
    workflow: Option<Workflow>,
    /// Runs each framework while this daemon is its leader.
    frameworks: JoinSet<anyhow::Result<()>>,
    discovery: Option<Discovery>,
    plugins: Plugins,
    clusters: Vec<Client>,
    admin: JoinHandle<transom_web::Result<()>>,
    addresses: Addresses,
}

/// Where the daemon can be reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) apps: Option<SocketAddr>,
    pub(crate) dns: Option<SocketAddr>,
    pub(crate) discovery: Option<SocketAddr>,
    pub(crate) workflow: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("apps", self.apps),
            ("dns", self.dns),
            ("discovery", self.discovery),
            ("workflow", self.workflow),
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
    /// Starts every service that `settings` enable.
    ///
    /// # Errors
    /// A port in use, a store that another process has open, a missing plugin directory. An unreachable master
    /// is not an error: the services log it and retry.
    ///
    /// `file` is where the settings came from.
    #[allow(
        clippy::too_many_lines,
        reason = "the order in which services start is clearest in one place"
    )]
    pub(crate) async fn start(
        settings: Settings,
        file: &Path,
        token: CancellationToken,
    ) -> anyhow::Result<Daemon> {
        // Stops what was started if a later service fails.
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

        let guard_of_admin = from_settings::admin_guard(&settings);
        let cluster = Client::new(from_settings::cluster_config(&settings.cluster).context(Misconfigured)?)
            .context(Misconfigured)?;
        let apps_port = settings
            .apps
            .clone()
            .map(|section| from_settings::apps_config(section).bind());
        let apps_port = apps_port.transpose().context(Unavailable)?;
        let workflow_port = settings
            .workflow
            .as_ref()
            .map(|section| from_settings::workflow_config(section).bind());
        let workflow_port = workflow_port.transpose().context(Unavailable)?;
        let reserved = Reserved::default();
        reserved::listener(&reserved, "admin", addresses.admin);
        if let Some(port) = &apps_port {
            reserved::listener(&reserved, "apps", Some(port.addr()));
            reserved::advertised(&reserved, "apps", &port.advertised());
        }
        if let Some(port) = &workflow_port {
            reserved::listener(&reserved, "workflow", Some(port.addr()));
            reserved::advertised(&reserved, "workflow", &port.advertised());
        }
        reserved::store(&reserved, &settings.store);
        reserved::masters(&reserved, &cluster);
        let store_context = StoreContext::open(&settings, &token).await.context(Unavailable)?;
        let plugins =
            from_settings::plugins_config(settings.plugins, store_context.as_ref(), reserved.clone())
                .context(Misconfigured)?
                .start(&mut registry, token.child_token())
                .await
                .context(Unavailable)?;

        let (mut frameworks, mut clusters) = (JoinSet::new(), vec![cluster.clone()]);
        let mut apps = None;
        if let (Some(section), Some(store_context), Some(port)) = (&settings.apps, &store_context, apps_port)
        {
            let info = from_settings::framework(section, settings.cluster.principal.clone());
            let (job, framework) = store_context
                .start_apps(port, info, &cluster, &plugins, &mut registry, &token)
                .await
                .context(Unavailable)?;
            addresses.apps = Some(job.addr());
            apps = Some(job);
            frameworks.spawn(framework.run(token.child_token()));
        }
        let mut workflow = None;
        if let (Some(section), Some(store_context), Some(port)) =
            (&settings.workflow, &store_context, workflow_port)
        {
            let own = from_settings::workflow_cluster(section, &settings.cluster).context(Misconfigured)?;
            let cluster = match own {
                Some(own) => {
                    clusters.push(Client::new(own).context(Misconfigured)?);
                    let own = clusters[clusters.len() - 1].clone();
                    reserved::masters(&reserved, &own);
                    own
                }
                None => cluster.clone(),
            };
            let info = from_settings::workflow_framework(section, settings.cluster.principal.clone());
            let (job, framework) = store_context
                .start_workflow(port, info, &cluster, &plugins, &mut registry, &token)
                .await
                .context(Unavailable)?;
            addresses.workflow = Some(job.addr());
            workflow = Some(job);
            frameworks.spawn(framework.run(token.child_token()));
        }

        let mut discovery = None;
        if let Some(section) = settings.discovery {
            let masters = &cluster.config().masters;
            let job = from_settings::discovery_config(section, &settings.cluster, masters, file)
                .context(Misconfigured)?
                .start(cluster.clone(), &mut registry, token.child_token())
                .await
                .context(Unavailable)?;
            (addresses.dns, addresses.discovery) = (job.dns_addr(), job.http_addr());
            for (name, address) in [
                ("dns", addresses.dns),
                ("discovery", addresses.discovery),
                ("dns-tls", job.tls_addr()),
                ("dns-https", job.https_addr()),
                ("dns-quic", job.quic_addr()),
            ] {
                reserved::listener(&reserved, name, address);
            }
            discovery = Some(job);
        }

        let admin = admin::serve(
            admin_listener,
            Admin::new(
                registry,
                Some(plugins.clone()),
                apps.clone(),
                discovery.clone(),
                workflow.clone(),
            ),
            guard_of_admin,
            token.child_token(),
        );
        guard.disarm();
        Ok(Daemon {
            apps,
            workflow,
            frameworks,
            discovery,
            plugins,
            clusters,
            admin,
            addresses,
        })
    }

    /// Where the daemon can be reached.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until `token` is cancelled, then waits until every service has stopped.
    ///
    /// # Errors
    /// A service ended unexpectedly or did not stop in time.
    pub(crate) async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        // Checked first: services stop when the token is cancelled, which is not an error.
        let ended = tokio::select! {
            biased;
            () = token.cancelled() => None,
            name = self.first_to_end() => Some(name),
        };
        token.cancel();
        let stopped = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.all_ended()).await;
        match (ended, stopped) {
            (Some(name), _) => bail!("the service `{name}` stopped unexpectedly; see the log"),
            (None, Err(_)) => {
                bail!("shutdown timeout: not every service stopped within {SHUTDOWN_TIMEOUT:?}")
            }
            (None, Ok(())) => Ok(()),
        }
    }

    async fn first_to_end(&mut self) -> &'static str {
        let apps = self.apps.clone();
        let discovery = self.discovery.clone();
        let workflow = self.workflow.clone();
        tokio::select! {
            () = part_ended(apps.as_ref().map(|part| boxed(part.stopped()))) => "apps",
            () = part_ended(discovery.as_ref().map(|part| boxed(part.stopped()))) => "discovery",
            () = part_ended(workflow.as_ref().map(|part| boxed(part.stopped()))) => "workflow",
            Some(outcome) = self.frameworks.join_next() => {
                log_exit(outcome);
                "framework"
            }
            _ = &mut self.admin => "admin",
        }
    }

    async fn all_ended(&mut self) {
        while let Some(outcome) = self.frameworks.join_next().await {
            log_exit(outcome);
        }
        if let Some(workflow) = &self.workflow {
            workflow.stopped().await;
        }
        if let Some(apps) = &self.apps {
            apps.stopped().await;
        }
        if let Some(discovery) = &self.discovery {
            discovery.stopped().await;
        }
        self.plugins.stopped().await;
        for cluster in &self.clusters {
            cluster.close().await;
        }
        if !self.admin.is_finished() {
            let _ = (&mut self.admin).await;
        }
    }
}

fn boxed<'a>(future: impl Future<Output = ()> + Send + 'a) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(future)
}

/// Waits for a service to end; never returns if it does not run.
async fn part_ended(part: Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    match part {
        Some(part) => part.await,
        None => std::future::pending().await,
    }
}

/// Logs why a framework stopped.
fn log_exit(outcome: Result<anyhow::Result<()>, JoinError>) {
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(error = format!("{error:#}"), "running the framework failed"),
        Err(error) => tracing::error!(%error, "panic while running the framework"),
    }
}

/// The store and lease settings of services with a framework, and the key prefixes of this daemon.
struct StoreContext {
    store: Arc<dyn Store>,
    lease: Duration,
    /// The prefix of this daemon's own keys in the store, stable over restarts.
    daemon_prefix: String,
    apps_prefix: String,
    workflow_prefix: String,
}

impl StoreContext {
    /// `None` if no service needs a store.
    async fn open(settings: &Settings, token: &CancellationToken) -> anyhow::Result<Option<StoreContext>> {
        let named = |name: &str, host: String, port: u16| format!("{name}/daemons/{host}:{port}");
        let apps = settings.apps.as_ref().map(|section| {
            named(
                &section.framework_name,
                from_settings::hostname(section),
                section.port,
            )
        });
        let workflow = settings.workflow.as_ref().map(|section| {
            named(
                &section.framework_name,
                from_settings::workflow_hostname(section),
                section.port,
            )
        });
        let Some(daemon_prefix) = apps.or(workflow) else {
            return Ok(None);
        };
        let apps = settings
            .apps
            .as_ref()
            .map(|section| section.framework_name.clone());
        let workflow = settings
            .workflow
            .as_ref()
            .map(|section| section.framework_name.clone());
        Ok(Some(StoreContext {
            store: from_settings::open_store(&settings.store, token).await?,
            lease: Duration::from_secs(settings.store.lease_seconds),
            daemon_prefix,
            apps_prefix: apps.unwrap_or_default(),
            workflow_prefix: workflow.unwrap_or_default(),
        }))
    }

    fn election(&self, prefix: &str, address: &str) -> Election {
        Election::new(
            self.store.clone(),
            format!("{prefix}/leader"),
            address,
            self.lease,
        )
    }

    /// Starts the apps; what runs their framework is to be spawned.
    async fn start_apps(
        &self,
        port: transom_apps::Bound,
        info: v1::FrameworkInfo,
        cluster: &Client,
        plugins: &Plugins,
        registry: &mut Registry,
        token: &CancellationToken,
    ) -> anyhow::Result<(Apps, Framework<transom_apps::Runner>)> {
        let prefix = self.apps_prefix.clone();
        let election = self.election(&prefix, &port.advertised());
        let (apps, role) = port
            .start(
                self.store.clone(),
                plugins.clone(),
                election.leadership(),
                registry,
                token.child_token(),
            )
            .await?;
        let framework = Framework {
            election,
            role,
            metrics: transom_scheduler::Metrics::register(registry, &prefix),
            info,
            prefix,
            cluster: cluster.clone(),
            plugins: plugins.clone(),
        };
        Ok((apps, framework))
    }

    /// Starts the workflow; what runs its framework is to be spawned.
    async fn start_workflow(
        &self,
        port: transom_workflow::Bound,
        info: v1::FrameworkInfo,
        cluster: &Client,
        plugins: &Plugins,
        registry: &mut Registry,
        token: &CancellationToken,
    ) -> anyhow::Result<(Workflow, Framework<transom_workflow::Runner>)> {
        let prefix = self.workflow_prefix.clone();
        let election = self.election(&prefix, &port.advertised());
        let started = port.start(
            plugins.clone(),
            cluster.clone(),
            election.leadership(),
            registry,
            token.child_token(),
        );
        let (workflow, role) = started.await?;
        let framework = Framework {
            election,
            role,
            metrics: transom_scheduler::Metrics::register(registry, &prefix),
            info,
            prefix,
            cluster: cluster.clone(),
            plugins: plugins.clone(),
        };
        Ok((workflow, framework))
    }
}
