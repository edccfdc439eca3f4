//! Requests to the apps port, and its errors with advice for an operator.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use transom_plugin_host::printable;

use crate::exit::{Misconfigured, Unavailable};
use crate::http::{self, Client, Endpoint, Failure, PortName};
use crate::output::{self, Output};

/// Timeout of one request. A list of all apps may be long.
const TIMEOUT: Duration = Duration::from_mins(2);

const PORT: PortName = PortName {
    service: "apps",
    setting: "apps.port",
    options: "--url or TRANSOM_APPS_URL",
};

/// The options for the daemon's address, its credentials and the output format.
#[derive(Debug, Args)]
#[command(next_help_heading = "Daemon and output")]
pub(super) struct Daemon {
    #[command(flatten)]
    port: Port,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Output,
}

impl Daemon {
    /// The client for this daemon.
    pub(super) fn api(&self) -> anyhow::Result<Api> {
        self.port.api()
    }
}

/// The options for the daemon's address and its credentials.
#[derive(Debug, Args)]
#[command(next_help_heading = "Daemon and output")]
pub(super) struct Port {
    /// URL of the daemon's apps port.
    #[arg(
        long,
        env = "TRANSOM_APPS_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    url: String,
    /// `api_username` of the daemon, if it requires credentials.
    #[arg(long, env = "TRANSOM_APPS_API_USERNAME", value_name = "NAME")]
    username: Option<String>,
    /// `api_password` of the daemon. Prefer the environment variable: other users can read command
    /// lines.
    #[arg(long, env = "TRANSOM_APPS_API_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

impl Port {
    /// The client for this daemon.
    pub(super) fn api(&self) -> anyhow::Result<Api> {
        let credentials = match (&self.username, &self.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (None, None) => None,
            // For a daemon, this variable is `apps.user`, the user of tasks.
            (Some(user), None) if std::env::var("TRANSOM_APPS_API_USERNAME").as_ref() == Ok(user) => None,
            _ => {
                let text = "--username and --password go together (TRANSOM_APPS_API_USERNAME and TRANSOM_APPS_API_PASSWORD)";
                return Err(anyhow::anyhow!(text).context(Misconfigured));
            }
        };
        let url = http::url("--url", &self.url, "http://127.0.0.1:8080").context(Misconfigured)?;
        let endpoint = Endpoint {
            url,
            credentials,
            certificates: None,
        };
        Client::new(endpoint, TIMEOUT).map(Api)
    }
}

/// A successful response.
#[derive(Debug)]
pub(super) struct ApiResponse {
    /// Null if there is no body.
    pub(super) document: Value,
    /// The deployment that the request has started.
    pub(super) deployment: Option<String>,
}

/// A rejection by the daemon.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    /// The body, if it is JSON.
    document: Value,
    text: String,
}

impl std::error::Error for Rejection {}

/// The parameters of a request.
pub(super) type Query = Vec<(&'static str, String)>;

/// A client of the apps port.
pub(super) struct Api(Client);

impl Api {
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let response = self.send(Method::GET, path, &Query::new(), None).await?;
        Ok(response.document)
    }

    /// The document at a path; `None` for 404.
    pub(super) async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request. `path` may contain a query.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &Query,
        body: Option<&Value>,
    ) -> anyhow::Result<ApiResponse> {
        let (path, path_query) = path.split_once('?').unwrap_or((path, ""));
        let path_query = path_query.split('&').filter_map(|pair| pair.split_once('='));
        let request = self.0.request(method, path.split('/'));
        let request = request.query(&path_query.collect::<Vec<_>>()).query(query);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = self.0.send(request).await;
        let response = response.map_err(|failure| self.request_error(failure))?;
        self.parse_response(response).await
    }

    /// Opens an event stream.
    pub(super) async fn open(
        &self,
        query: &Query,
        last_event_id: Option<&str>,
    ) -> anyhow::Result<reqwest::Response> {
        let request = self
            .0
            .streaming_request(Method::GET, ["v2", "events"])
            .query(query);
        let request = request.header(reqwest::header::ACCEPT, "text/event-stream");
        let request = match last_event_id {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        };
        let result = tokio::time::timeout(TIMEOUT, self.0.send(request)).await;
        let failure = || Failure::Unreachable(format!("the request timed out after {} s", TIMEOUT.as_secs()));
        let response = result
            .unwrap_or_else(|_| Err(failure()))
            .map_err(|failure| self.request_error(failure))?;
        if response.status().is_success() {
            return Ok(response);
        }
        match self.parse_response(response).await {
            Ok(_) => anyhow::bail!("the response of {} is not an event stream", self.0.base_url()),
            Err(error) => Err(error),
        }
    }

    async fn parse_response(&self, response: reqwest::Response) -> anyhow::Result<ApiResponse> {
        let status = response.status();
        let deployment = response.headers().get("marathon-deployment-id");
        let deployment = deployment.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let text = http::body_text(response).await;
        let text = text.map_err(|failure| self.request_error(failure))?;
        let document = serde_json::from_str::<Value>(&text);
        if !status.is_success() {
            let rejection = Rejection {
                status,
                document: document.unwrap_or_default(),
                text,
            };
            let unavailable = matches!(
                status,
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
            );
            let error = anyhow::Error::new(rejection);
            return Err(if unavailable {
                error.context(Unavailable)
            } else {
                error
            });
        }
        let document = match document {
            Ok(document) => document,
            Err(_) if text.trim().is_empty() => Value::Null,
            Err(error) => {
                let text = format!(
                    "{} is not an apps port: its response is not JSON",
                    self.0.base_url()
                );
                return Err(anyhow::Error::new(error).context(text));
            }
        };
        // Responses to changes of apps and groups contain the deployment's id in the body too.
        let id_in_body = document["deploymentId"].as_str().map(str::to_owned);
        Ok(ApiResponse {
            deployment: deployment.or(id_in_body),
            document,
        })
    }

    fn request_error(&self, failure: Failure) -> anyhow::Error {
        PORT.no_answer(self.0.base_url(), failure)
    }
}

/// Whether the daemon answered 404.
pub(super) fn is_not_found(error: &anyhow::Error) -> bool {
    let rejection = error.downcast_ref::<Rejection>();
    rejection.is_some_and(|rejection| rejection.status == StatusCode::NOT_FOUND)
}

impl Rejection {
    fn message(&self) -> String {
        match self.document["message"].as_str() {
            Some(message) => message.to_owned(),
            None => self.text.chars().take(500).collect(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, message) = (self.status.as_u16(), self.message());
        match self.status {
            StatusCode::UNAUTHORIZED => f.write_str(
                "the daemon requires credentials, and these are missing or wrong (401): set TRANSOM_APPS_API_USERNAME and \
                 TRANSOM_APPS_API_PASSWORD to `api_username` and `api_password` of its section [apps]",
            ),
            StatusCode::UNPROCESSABLE_ENTITY if self.document["details"].is_array() => {
                writeln!(f, "{message} (422)")?;
                f.write_str(&problems(&self.document["details"]))
            }
            StatusCode::CONFLICT if self.document["deployments"].is_array() => {
                let deployments = self.document["deployments"].as_array();
                let ids: Vec<_> = deployments
                    .into_iter()
                    .flatten()
                    .filter_map(|deployment| deployment["id"].as_str())
                    .map(printable)
                    .collect();
                write!(
                    f,
                    "locked by deployment {} (409): wait for it with `transom apps wait {}`, or cancel it and go on \
                     with --force",
                    ids.join(", "),
                    ids.first().map_or("ID", |id| id),
                )
            }
            _ => write!(f, "{message} ({status})"),
        }
    }
}

/// A table of the problems of a definition: each path with its errors.
fn problems(details: &Value) -> String {
    let entries = details.as_array().into_iter().flatten();
    let rows = entries.flat_map(|entry| {
        let path = entry["path"].as_str().unwrap_or("/").to_owned();
        let errors = entry["errors"].as_array().cloned().unwrap_or_default();
        errors
            .into_iter()
            .map(move |error| vec![path.clone(), error.as_str().unwrap_or_default().to_owned()])
    });
    output::table(&["path", "problem"], rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rejection(status: u16, document: Value) -> String {
        Rejection {
            status: StatusCode::from_u16(status).expect("a status"),
            text: document.to_string(),
            document,
        }
        .to_string()
    }

    #[test]
    fn rejection_is_shown_with_the_next_step() {
        let text = rejection(401, Value::Null);
        assert!(text.contains("TRANSOM_APPS_API_USERNAME"), "{text}");
        let text = rejection(409, json!({"message": "locked", "deployments": [{"id": "d1"}]}));
        assert!(
            text.contains("transom apps wait d1") && text.contains("--force"),
            "{text}"
        );
        let text = rejection(409, json!({"message": "An app exists."}));
        assert_eq!(text, "An app exists. (409)");
        let details = json!([{"path": "/cpus", "errors": ["is negative", "is \u{1b}[31m"]}, {"path": "/id", "errors": []}]);
        let text = rejection(422, json!({"message": "Object is not valid", "details": details}));
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[0], "Object is not valid (422)");
        assert_eq!(lines[2].trim(), "/cpus  is negative");
        assert!(lines[3].contains("\\u{1b}[31m"), "{text}");
    }
}
