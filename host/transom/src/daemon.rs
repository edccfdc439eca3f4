//! The daemon: settings become running parts, parts are watched, and all of them are stopped again.
//!
//! Parts are built from below: store, plugins, connection to the cluster manager, jobs, admin port. Sockets are bound while
//! building, so that a port that is taken is said before anything is promised. Of the daemons that share a store one runs a
//! framework, with its scheduler ([`leadership`]); the others serve what they can. A part that ends by itself ends the daemon
//! with an error; a supervisor starts it again, and it takes its framework and its tasks back.

mod leadership;
mod lookups;
mod parts;

pub(crate) use lookups::serve_discovery;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
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
use transom_store::{Election, Store};

use crate::admin::{self, Admin};
use crate::config::{self, Settings};
use crate::exit::{Misconfigured, Unavailable};
use leadership::Framework;

/// How long the parts may take to stop before the daemon says which one did not.
const DRAIN: Duration = Duration::from_secs(15);

/// A running daemon.
pub(crate) struct Daemon {
    apps: Option<Apps>,
    /// Runs the apps' framework while this daemon leads it.
    framework: Option<JoinHandle<anyhow::Result<()>>>,
    discovery: Option<Discovery>,
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
    ///
    /// `file` is where the settings came from.
    pub(crate) async fn start(
        settings: Settings,
        file: &Path,
        token: CancellationToken,
    ) -> anyhow::Result<Daemon> {
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

        let cluster = Client::new(parts::cluster_config(&settings.cluster).context(Misconfigured)?)
            .context(Misconfigured)?;
        let ground = match &settings.apps {
            Some(section) => Some(
                Ground::take(section, &settings.store, &token)
                    .await
                    .context(Unavailable)?,
            ),
            None => None,
        };
        let plugins = parts::plugins_config(settings.plugins, ground.as_ref())
            .context(Misconfigured)?
            .start(&mut registry, token.child_token())
            .await
            .context(Unavailable)?;

        let (mut apps, mut framework) = (None, None);
        if let (Some(section), Some(ground)) = (settings.apps, ground) {
            let info = parts::framework(&section, settings.cluster.principal.clone());
            let (job, running) = ground
                .start_apps(info, &cluster, &plugins, &mut registry, &token)
                .await
                .context(Unavailable)?;
            addresses.apps = Some(job.addr());
            (apps, framework) = (Some(job), Some(running));
        }

        let mut discovery = None;
        if let Some(section) = settings.discovery {
            let masters = &cluster.config().masters;
            let job = parts::discovery_config(section, &settings.cluster, masters, file)
                .context(Misconfigured)?
                .start(cluster.clone(), &mut registry, token.child_token())
                .await
                .context(Unavailable)?;
            (addresses.dns, addresses.discovery) = (job.dns_addr(), job.http_addr());
            discovery = Some(job);
        }

        let admin = admin::serve(
            admin_listener,
            Admin::new(registry, Some(plugins.clone()), apps.clone(), discovery.clone()),
            token.child_token(),
        );
        guard.disarm();
        Ok(Daemon {
            apps,
            framework,
            discovery,
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
        tokio::select! {
            () = ended(apps.as_ref().map(|part| boxed(part.stopped()))) => "apps",
            () = ended(discovery.as_ref().map(|part| boxed(part.stopped()))) => "discovery",
            () = ended(self.framework.as_mut().map(|part| boxed(said(part)))) => "framework",
            _ = &mut self.admin => "admin",
        }
    }

    async fn all_ended(&mut self) {
        if let Some(framework) = self
            .framework
            .as_mut()
            .filter(|framework| !framework.is_finished())
        {
            said(framework).await;
        }
        if let Some(apps) = &self.apps {
            apps.stopped().await;
        }
        if let Some(discovery) = &self.discovery {
            discovery.stopped().await;
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

/// Says why the framework is no longer run.
async fn said(framework: &mut JoinHandle<anyhow::Result<()>>) {
    match framework.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(error = format!("{error:#}"), "the framework cannot be run"),
        Err(error) => tracing::error!(%error, "running the framework broke off"),
    }
}

/// What the apps stand on, taken before anything is built: their port and the store.
struct Ground {
    port: transom_apps::Bound,
    store: Arc<dyn Store>,
    lease: Duration,
    /// What the framework's keys in the store begin with.
    prefix: String,
    /// What tells this daemon's own keys from those of others on the same store, also after a restart.
    daemon: String,
}

impl Ground {
    async fn take(
        section: &config::Apps,
        store: &config::Store,
        token: &CancellationToken,
    ) -> anyhow::Result<Ground> {
        Ok(Ground {
            port: parts::apps_config(section.clone()).bind()?,
            store: parts::open_store(store, token).await?,
            lease: Duration::from_secs(store.lease_seconds),
            prefix: section.framework_name.clone(),
            daemon: format!("{}:{}", parts::hostname(section), section.port),
        })
    }

    /// Starts the apps, and what runs their framework.
    async fn start_apps(
        self,
        info: v1::FrameworkInfo,
        cluster: &Client,
        plugins: &Plugins,
        registry: &mut Registry,
        token: &CancellationToken,
    ) -> anyhow::Result<(Apps, JoinHandle<anyhow::Result<()>>)> {
        let Ground {
            port,
            store,
            lease,
            prefix,
            daemon: _,
        } = self;
        let office = format!("{prefix}/leader");
        let election = Election::new(store.clone(), office, &port.advertised(), lease);
        let (apps, role) = port
            .start(
                store,
                plugins.clone(),
                election.standing(),
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
        Ok((apps, tokio::spawn(framework.run(token.child_token()))))
    }
}
