//! The discovery service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;

use transom_cli::{
    exit::{Misconfigured, Unavailable},
    overview::ServiceState,
};
use transom_config::{Settings, parts};
use transom_framework::Routes;
use transom_web::{AccessRules, PortConfig, Requirement};

use super::{BoundService, DevHints, PortName, Readiness, Service, ServiceKind, StartContext};
use crate::daemon::Addresses;
use crate::daemon::reserved::ReservedPort;
use crate::process;

/// `[discovery]`
pub(crate) struct Discovery;

#[async_trait]
impl ServiceKind for Discovery {
    fn name(&self) -> &'static str {
        "discovery"
    }

    fn is_enabled(&self, settings: &Settings) -> bool {
        settings.discovery.is_some()
    }

    fn lists(&self) -> &'static [(&'static str, &'static str)] {
        &[("v1/version", "version of discovery")]
    }

    fn ports(&self) -> &'static [PortName] {
        &[("dns", "discovery.port"), ("discovery", "discovery.http_port")]
    }

    async fn bind(&self, settings: &Settings, file: &Path) -> anyhow::Result<Vec<Box<dyn BoundService>>> {
        let Some(section) = &settings.discovery else {
            return Ok(Vec::new());
        };
        Ok(vec![Box::new(BoundDiscovery {
            section: section.clone(),
            cluster: settings.cluster.clone(),
            file: file.to_owned(),
        })])
    }

    fn dev_section(&self) -> &'static str {
        "[discovery]\nlistener = \"127.0.0.1\"\nport = 8053\nhttp_listener = \"127.0.0.1\"\nhttp_port = 8123\n\
         domain = \"mesos\"\nttl = 5\n"
    }

    fn dev_hints(&self, addresses: &Addresses) -> DevHints {
        let mut hints = DevHints::default();
        if let Some(http) = addresses.get("discovery") {
            let url = format!("http://{http}/v1/enumerate");
            hints.addresses.push(("discovery", url));
        }
        if let Some(dns) = addresses.get("dns") {
            hints.addresses.push(("dns", dns.to_string()));
            let server = format!("@{} -p {}", dns.ip(), dns.port());
            for name in ["http.marathon.mesos", "_http._tcp.marathon.mesos SRV"] {
                hints.commands.push(format!("dig {server} {name} +short"));
            }
        }
        hints
    }
}

/// The configured service. Its ports are only bound when it starts.
struct BoundDiscovery {
    section: transom_config::Discovery,
    cluster: transom_config::Cluster,
    file: PathBuf,
}

#[async_trait]
impl BoundService for BoundDiscovery {
    fn ports(&self) -> Vec<ReservedPort> {
        Vec::new()
    }

    fn daemon_prefix(&self) -> Option<String> {
        None
    }

    async fn start(self: Box<Self>, context: &mut StartContext<'_>) -> anyhow::Result<Vec<Box<dyn Service>>> {
        let masters = &context.cluster.config().masters;
        let config = parts::discovery::config(
            self.section,
            &self.cluster,
            masters,
            &self.file,
            &process::hostname(),
        )
        .context(Misconfigured)?;
        let started = config.start(
            context.cluster.clone(),
            context.registry,
            context.token.child_token(),
        );
        let service = started.await.context(Unavailable)?;
        for (name, address) in service.addresses() {
            ReservedPort::new(name, address).reserve(context.reserved);
        }
        Ok(vec![Box::new(service)])
    }
}

#[async_trait]
impl Service for transom_discovery::Discovery {
    fn name(&self) -> &'static str {
        "discovery"
    }

    fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let named = [
            ("dns", self.dns_addr()),
            ("dns-tls", self.tls_addr()),
            ("dns-https", self.https_addr()),
            ("discovery", self.http_addr()),
        ];
        let bound = named.into_iter();
        bound
            .filter_map(|(name, address)| Some((name, address?)))
            .collect()
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            ready: self.is_ready(),
            framework: None,
            source: Some(self.source().as_str()),
            problem: self.problem().map(|problem| problem.to_string()),
        }
    }

    fn routes(&self) -> Option<Routes> {
        let router = transom_discovery::Discovery::routes(self)?;
        // Everybody may read, and nothing can be changed.
        let rules = AccessRules {
            requirement: |_, _| Requirement::Nothing,
            ..AccessRules::DEFAULT
        };
        let policy = PortConfig::new("discovery", 0).policy();
        Some(Routes {
            router,
            rules,
            policy,
        })
    }

    fn summary(&self) -> ServiceState {
        ServiceState {
            summary: serde_json::json!(transom_discovery::Discovery::summary(self)),
            ..ServiceState::default()
        }
    }

    async fn stopped(&self) {
        transom_discovery::Discovery::stopped(self).await;
    }
}
