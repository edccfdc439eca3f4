//! How commands reach the admin port of a running daemon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use crate::exit::Misconfigured;
use crate::http::{self, Client, Endpoint, Failure, PortName};

/// Timeout of one request. It is long because a rollback compiles the earlier version again if its
/// compiled form is not cached.
const TIMEOUT: Duration = Duration::from_mins(5);

const PORT: PortName = PortName {
    service: "admin",
    setting: "admin.port",
    options: "--admin, --config or TRANSOM_ADMIN_URL",
};

/// The options that select the daemon.
#[derive(Debug, Args)]
pub struct Connection {
    #[command(flatten)]
    admin: AdminPort,
    /// The daemon's configuration file; its section [admin] sets the address and credentials that no
    /// option sets.
    #[arg(long, env = "TRANSOM_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The admin port and its credentials.
#[derive(Debug, Args)]
pub(super) struct AdminPort {
    /// URL of the daemon's admin port. Default: `http://127.0.0.1:9990`, or what `--config` names.
    #[arg(long, visible_alias = "url", env = "TRANSOM_ADMIN_URL", value_name = "URL")]
    admin: Option<String>,
    /// `admin.username` of the daemon, if it requires credentials.
    #[arg(long, env = "TRANSOM_ADMIN_USERNAME")]
    username: Option<String>,
    /// `admin.password` of the daemon. Prefer the environment variable: other users can read
    /// command lines.
    #[arg(long, env = "TRANSOM_ADMIN_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

/// The options that select the admin port, for commands that also use another port.
#[derive(Debug, Args)]
pub(super) struct OtherAdminPort {
    /// URL of the daemon's admin port, which reads the output of tasks. Default:
    /// `http://127.0.0.1:9990`.
    #[arg(long, env = "TRANSOM_ADMIN_URL", value_name = "URL")]
    admin: Option<String>,
    /// `admin.username` of the daemon, if it requires credentials.
    #[arg(long, env = "TRANSOM_ADMIN_USERNAME", value_name = "NAME")]
    admin_username: Option<String>,
    /// `admin.password` of the daemon. Prefer the environment variable: other users can read command
    /// lines.
    #[arg(
        long,
        env = "TRANSOM_ADMIN_PASSWORD",
        value_name = "PASSWORD",
        hide_env_values = true
    )]
    admin_password: Option<String>,
}

impl From<OtherAdminPort> for Connection {
    fn from(other: OtherAdminPort) -> Self {
        Self {
            admin: AdminPort {
                admin: other.admin,
                username: other.admin_username,
                password: other.admin_password,
            },
            config: None,
        }
    }
}

impl Connection {
    /// A client of the port, each of whose requests may take `timeout`.
    pub(super) fn client(&self, timeout: Duration) -> anyhow::Result<Client> {
        Client::new(self.endpoint()?, timeout)
    }

    /// Sends a request to a path below `/v1/plugins`.
    pub(super) async fn request(
        &self,
        method: reqwest::Method,
        path: &[&str],
        body: Option<Value>,
    ) -> anyhow::Result<Value> {
        let config = self.config.as_deref();
        self.admin
            .request_with_query(config, method, path, &[], body)
            .await
    }

    /// Requests a path of the port, with `timeout`; returns the body of a successful response.
    pub async fn get_text(&self, path: &[&str], timeout: Duration) -> anyhow::Result<String> {
        let client = Client::new(self.endpoint()?, timeout)?;
        let (status, text) = send_request(
            &client,
            client.request(reqwest::Method::GET, path.iter().copied()),
        )
        .await?;
        check_status(&client, status, &text)?;
        Ok(text)
    }

    /// As [`Self::get_text`], but returns the status and the body of any response.
    pub async fn get_any_status(
        &self,
        path: &[&str],
        timeout: Duration,
    ) -> anyhow::Result<(reqwest::StatusCode, String)> {
        let client = Client::new(self.endpoint()?, timeout)?;
        send_request(
            &client,
            client.request(reqwest::Method::GET, path.iter().copied()),
        )
        .await
    }

    /// The daemon's configuration file, if one is named.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The daemon with this configuration file. Environment variables are ignored.
    pub fn from_config_file(file: &Path) -> Self {
        Self {
            admin: AdminPort {
                admin: None,
                username: None,
                password: None,
            },
            config: Some(file.to_owned()),
        }
    }

    /// The number of the port, if its address is valid.
    pub fn port(&self) -> Option<u16> {
        self.endpoint().ok()?.url.port_or_known_default()
    }

    fn endpoint(&self) -> anyhow::Result<Endpoint> {
        self.admin.endpoint(self.config()).context(Misconfigured)
    }

    /// Sends a body that is not JSON to a path below `/v1/plugins`.
    pub(super) async fn put(&self, path: &[&str], body: Vec<u8>) -> anyhow::Result<Value> {
        let client = Client::new(self.endpoint()?, TIMEOUT)?;
        let path = ["v1", "plugins"].iter().chain(path).copied();
        // No content type is set, because the port rejects those of a web page's form.
        request_document(&client, client.request(reqwest::Method::PUT, path).body(body)).await
    }

    /// The document at a path below `/v1/plugins`, with a query.
    pub(super) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> anyhow::Result<Value> {
        let config = self.config.as_deref();
        self.admin
            .request_with_query(config, reqwest::Method::GET, path, query, None)
            .await
    }
}

impl AdminPort {
    /// The port's address and credentials. The options take precedence over the configuration.
    fn endpoint(&self, config: Option<&Path>) -> anyhow::Result<Endpoint> {
        let section = config.map(transom_config::admin).transpose()?.unwrap_or_default();
        let url = self.admin.clone().unwrap_or_else(|| {
            let address = match section.listener {
                address if !address.is_unspecified() => address,
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            let scheme = if section.tls_certificate.is_some() {
                "https"
            } else {
                "http"
            };
            format!("{scheme}://{}", SocketAddr::new(address, section.port))
        });
        // Only the daemon's own certificate is trusted, or one that was issued by it.
        let certificates = match &section.tls_certificate {
            None => None,
            Some(file) => {
                let content = std::fs::read(file)
                    .with_context(|| format!("admin.tls_certificate: cannot read {}", file.display()))?;
                let bundle = reqwest::Certificate::from_pem_bundle(&content);
                let not_pem = || format!("admin.tls_certificate: {} is not a PEM file", file.display());
                Some(bundle.with_context(not_pem)?)
            }
        };
        let username = self.username.clone().or(section.username);
        let password = self.password.clone();
        let password = password.or_else(|| section.password.map(|password| password.reveal().to_owned()));
        let credentials = match (username, password) {
            (Some(username), Some(password)) => Some((username, password)),
            (None, None) => None,
            _ => anyhow::bail!(
                "--username and --password go together (TRANSOM_ADMIN_USERNAME and TRANSOM_ADMIN_PASSWORD)"
            ),
        };
        Ok(Endpoint {
            url: http::url("--admin", &url, "http://127.0.0.1:9990")?,
            credentials,
            certificates,
        })
    }

    /// Sends a request to a path below `/v1/plugins`; `config`: the daemon's configuration file.
    pub(super) async fn request_with_query(
        &self,
        config: Option<&Path>,
        method: reqwest::Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<Value>,
    ) -> anyhow::Result<Value> {
        let client = Client::new(self.endpoint(config).context(Misconfigured)?, TIMEOUT)?;
        let path = ["v1", "plugins"].iter().chain(path).copied();
        let mut request = client.request(method, path).query(query);
        if let Some(body) = body {
            request = request.json(&body);
        }
        request_document(&client, request).await
    }
}

/// Sends a request; returns the document of a successful response.
async fn request_document(client: &Client, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let (status, text) = send_request(client, request).await?;
    check_status(client, status, &text)?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Sends a request; returns the status and the body.
async fn send_request(
    client: &Client,
    request: reqwest::RequestBuilder,
) -> anyhow::Result<(reqwest::StatusCode, String)> {
    let to_error = |failure| no_answer(client, failure);
    let response = client.send(request).await.map_err(to_error)?;
    let status = response.status();
    Ok((status, http::body_text(response).await.map_err(to_error)?))
}

/// The error of a request without a response.
pub(super) fn no_answer(client: &Client, failure: Failure) -> anyhow::Error {
    PORT.no_answer(client.base_url(), failure)
}

/// Returns the error of an unsuccessful response.
pub(super) fn check_status(client: &Client, status: reqwest::StatusCode, text: &str) -> anyhow::Result<()> {
    if status.is_success() {
        return Ok(());
    }
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    match document["message"].as_str() {
        Some(message) => anyhow::bail!("{message}"),
        None => anyhow::bail!("{} answered {status}", client.base_url()),
    }
}
