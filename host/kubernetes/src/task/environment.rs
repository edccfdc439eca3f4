//! The variables of the containers. None of them holds the password of the state store.

use transom_common::HostPort;

use super::Launch;
use super::container;
use super::ports::API_PORT;
use crate::config::{Config, KindConfig, items};
use crate::kind::Kind;
use crate::secrets::Secrets;
use crate::settings::Engine;

/// The name of the orchestrator's database.
pub(super) const DATABASE: &str = "k3s";
/// The directory of the certificates for the SQL server.
const CERTIFICATES: &str = "/var/lib/rancher/k3s";

/// The addresses that tasks use to reach each other. Empty if containers use each other's names and
/// the kind has only one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// The datastore's members.
    pub(crate) datastore: Vec<HostPort>,
    /// The server's API.
    pub(crate) server: Option<HostPort>,
}

/// The variables without secrets.
pub(super) fn public_variables(
    config: &Config,
    settings: &KindConfig,
    kind: Kind,
    endpoints: &Endpoints,
    task: &str,
) -> Vec<(String, String)> {
    let mut variables = Variables(Vec::new());
    variables.set("SERVICE_NAME", Launch::name(config, kind));
    variables.set("TZ", &config.settings.tz);
    variables.set("MESOS_TASK_ID", task);
    match kind {
        Kind::Datastore => match config.settings.engine() {
            Engine::Sql => variables.set("MYSQL_DATABASE", DATABASE),
            Engine::Kvstore => {
                variables.set("ALLOW_NONE_AUTHENTICATION", "yes");
                variables.set("ETCD_ADVERTISE_CLIENT_URLS", advertised_url(config, "http"));
            }
        },
        Kind::Server | Kind::Agent => {
            variables.set("KUBERNETES_VERSION", &config.settings.orch_version);
            variables.set("K3SFRAMEWORK_TYPE", kind.as_str());
            variables.set("K3S_URL", server_url(config, endpoints));
            variables.set("MESOS_SANDBOX_VAR", "");
            // The kubelet reads the machine's resources, not those of the container.
            variables.set(
                "K3SFRAMEWORK_CPU_MILLIS",
                format!("{:.0}", settings.cpus * 1000.0),
            );
            variables.set("K3SFRAMEWORK_MEM_MIB", format!("{:.0}", settings.mem.floor()));
            if kind == Kind::Server {
                // The file contains a client key, so only its owner may read it.
                variables.set("K3S_KUBECONFIG_MODE", "600");
                variables.set("KUBECONFIG", &config.settings.kubeconfig);
            }
            variables.0.extend(items(&config.settings.orch_node_env));
            variables.0.extend(settings.node_env.iter().cloned());
        }
    }
    if !config.settings.containers && kind == Kind::Datastore {
        variables.set("DATA_DIR", &config.settings.volume_ds);
    }
    variables.0
}

/// The variables with secrets, which are never passed to components.
pub(super) fn secret_variables(
    config: &Config,
    kind: Kind,
    secrets: &Secrets,
    endpoints: &Endpoints,
) -> Vec<(String, String)> {
    let section = &config.settings;
    let mut variables = Variables(Vec::new());
    if kind == Kind::Datastore {
        if section.engine() == Engine::Sql {
            variables.set("MYSQL_ROOT_PASSWORD", secrets.password.reveal());
        } else if secrets.tls.is_some() {
            variables.set(
                "ETCD_ADVERTISE_CLIENT_URLS",
                advertised_url(config, secrets.kvstore_scheme()),
            );
        }
        return variables.0;
    }
    variables.set("K3S_TOKEN", secrets.token.reveal());
    if kind == Kind::Server {
        variables.set(
            "K3S_DATASTORE_ENDPOINT",
            datastore_endpoint(config, secrets, endpoints),
        );
        if section.engine() == Engine::Sql && section.ds_mysql_ssl {
            for (name, file) in [
                ("K3S_DATASTORE_CAFILE", "ca.pem"),
                ("K3S_DATASTORE_CERTFILE", "client-cert.pem"),
                ("K3S_DATASTORE_KEYFILE", "client-key.pem"),
            ] {
                variables.set(name, format!("{CERTIFICATES}/{file}"));
            }
        }
    }
    variables.0
}

/// The URL of the only member of a kvstore.
fn advertised_url(config: &Config, scheme: &str) -> String {
    let host = container::hostname(config, Kind::Datastore, 0);
    format!("{scheme}://{host}:{}", config.settings.ds_port)
}

/// The address of the server's API for agents.
fn server_url(config: &Config, endpoints: &Endpoints) -> String {
    match &endpoints.server {
        Some(address) => format!("https://{address}"),
        None => format!(
            "https://{}:{API_PORT}",
            container::hostname(config, Kind::Server, 0)
        ),
    }
}

/// The datastore's address with its password.
fn datastore_endpoint(config: &Config, secrets: &Secrets, endpoints: &Endpoints) -> String {
    let section = &config.settings;
    if let Some(endpoint) = &section.ds_endpoint {
        return endpoint.reveal().to_owned();
    }
    let members = datastore_members(config, endpoints);
    match section.engine() {
        Engine::Sql => {
            let address = members.first().map(ToString::to_string).unwrap_or_default();
            let (user, password) = (&section.ds_mysql_username, secrets.password.reveal());
            format!("mysql://{user}:{password}@tcp({address})/{DATABASE}")
        }
        Engine::Kvstore => {
            let scheme = secrets.kvstore_scheme();
            let urls: Vec<String> = members
                .iter()
                .map(|member| format!("{scheme}://{member}"))
                .collect();
            urls.join(",")
        }
    }
}

/// The addresses of the datastore's members.
pub(super) fn datastore_members(config: &Config, endpoints: &Endpoints) -> Vec<HostPort> {
    if !endpoints.datastore.is_empty() {
        return endpoints.datastore.clone();
    }
    let host = container::hostname(config, Kind::Datastore, 0);
    vec![HostPort::new(host, config.settings.ds_port)]
}

struct Variables(Vec<(String, String)>);

impl Variables {
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }
}
