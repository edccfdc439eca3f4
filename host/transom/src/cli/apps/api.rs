//! Requests to the apps port, and its errors with advice for an operator.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use transom_plugin_host::shown;

use crate::cli::http::{self, Client, Failure, Place};
use crate::exit::{Misconfigured, Unavailable};
use crate::output::{self, Output};

/// Timeout of one request. A list of all apps may be long.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The options for the daemon's address, its credentials and the output format.
#[derive(Debug, Args)]
#[command(next_help_heading = "Daemon and output")]
pub(super) struct Daemon {
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
    user: Option<String>,
    /// `api_password` of the daemon. Prefer the environment variable: other users can read command
    /// lines.
    #[arg(long, env = "TRANSOM_APPS_API_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Output,
}

impl Daemon {
    /// The client for this daemon.
    pub(super) fn api(&self) -> anyhow::Result<Api> {
        let credentials = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (None, None) => None,
            // For a daemon, this variable is `apps.user`, the user of tasks.
            (Some(user), None) if std::env::var("TRANSOM_APPS_API_USERNAME").as_ref() == Ok(user) => None,
            _ => {
                let text = "--user and --password go together (TRANSOM_APPS_API_USERNAME and TRANSOM_APPS_API_PASSWORD)";
                return Err(anyhow::anyhow!(text).context(Misconfigured));
            }
        };
        let url = http::url("--url", &self.url, "http://127.0.0.1:8080").context(Misconfigured)?;
        let place = Place {
            url,
            credentials,
            certificates: None,
        };
        Client::new(place, TIMEOUT).map(Api)
    }
}

/// A successful response.
#[derive(Debug)]
pub(super) struct Answer {
    /// Null if there is no body.
    pub(super) document: Value,
    /// The deployment that the request has started.
    pub(super) deployment: Option<String>,
}

/// A rejection by the daemon.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) status: StatusCode,
    /// The body, if it is JSON.
    document: Value,
    text: String,
}

impl std::error::Error for Rejected {}

/// The parameters of a request.
pub(super) type Query = Vec<(&'static str, String)>;

/// A client of the apps port.
pub(super) struct Api(Client);

impl Api {
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.send(Method::GET, path, &Query::new(), None).await?;
        Ok(answer.document)
    }

    /// The document at a path; `None` for 404.
    pub(super) async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if is_missing(&error) => Ok(None),
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
    ) -> anyhow::Result<Answer> {
        let (path, given) = path.split_once('?').unwrap_or((path, ""));
        let given = given.split('&').filter_map(|pair| pair.split_once('='));
        let request = self.0.request(method, path.split('/'));
        let request = request.query(&given.collect::<Vec<_>>()).query(query);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = self.0.send(request).await;
        let answer = answer.map_err(|failure| self.unavailable(failure))?;
        self.read(answer).await
    }

    /// Opens an event stream.
    pub(super) async fn open(&self, query: &Query, last: Option<&str>) -> anyhow::Result<reqwest::Response> {
        let request = self.0.stream(Method::GET, ["v2", "events"]).query(query);
        let request = request.header(reqwest::header::ACCEPT, "text/event-stream");
        let request = match last {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        };
        let opened = tokio::time::timeout(TIMEOUT, self.0.send(request)).await;
        let failure = || Failure::Unreachable("the daemon does not answer".to_owned());
        let answer = opened
            .unwrap_or_else(|_| Err(failure()))
            .map_err(|failure| self.unavailable(failure))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        match self.read(answer).await {
            Ok(_) => anyhow::bail!("{} is no event stream", self.0.base()),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, answer: reqwest::Response) -> anyhow::Result<Answer> {
        let status = answer.status();
        let deployment = answer.headers().get("marathon-deployment-id");
        let deployment = deployment.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let text = http::text(answer).await;
        let text = text.map_err(|failure| self.unavailable(failure))?;
        let document = serde_json::from_str::<Value>(&text);
        if !status.is_success() {
            let rejected = Rejected {
                status,
                document: document.unwrap_or_default(),
                text,
            };
            let unavailable = matches!(
                status,
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
            );
            let error = anyhow::Error::new(rejected);
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
                let text = format!("{} is no apps port: its response is not JSON", self.0.base());
                return Err(anyhow::Error::new(error).context(text));
            }
        };
        // Responses to changes of apps and groups contain the deployment's id in the body too.
        let named = document["deploymentId"].as_str().map(str::to_owned);
        Ok(Answer {
            deployment: deployment.or(named),
            document,
        })
    }

    fn unavailable(&self, failure: Failure) -> anyhow::Error {
        let url = self.0.base();
        match failure {
            Failure::Unreachable(why) => anyhow::anyhow!(
                "no daemon answers at {url}: {why}\nIs one running (`transom dev` starts one to try things out), and is \
                 {url} its apps port? --url or TRANSOM_APPS_URL names another."
            )
            .context(Unavailable),
            Failure::Refused(why) => anyhow::anyhow!("{url}: {why}"),
        }
    }
}

/// Whether the daemon answered 404.
pub(super) fn is_missing(error: &anyhow::Error) -> bool {
    let rejected = error.downcast_ref::<Rejected>();
    rejected.is_some_and(|rejected| rejected.status == StatusCode::NOT_FOUND)
}

impl Rejected {
    fn message(&self) -> String {
        match self.document["message"].as_str() {
            Some(message) => message.to_owned(),
            None => self.text.chars().take(500).collect(),
        }
    }
}

impl fmt::Display for Rejected {
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
                    .map(shown)
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

    fn rejected(status: u16, document: Value) -> String {
        Rejected {
            status: StatusCode::from_u16(status).expect("a status"),
            text: document.to_string(),
            document,
        }
        .to_string()
    }

    #[test]
    fn rejection_is_shown_with_the_next_step() {
        let text = rejected(401, Value::Null);
        assert!(text.contains("TRANSOM_APPS_API_USERNAME"), "{text}");
        let text = rejected(409, json!({"message": "locked", "deployments": [{"id": "d1"}]}));
        assert!(
            text.contains("transom apps wait d1") && text.contains("--force"),
            "{text}"
        );
        let text = rejected(409, json!({"message": "An app exists."}));
        assert_eq!(text, "An app exists. (409)");
        let details = json!([{"path": "/cpus", "errors": ["is negative", "is \u{1b}[31m"]}, {"path": "/id", "errors": []}]);
        let text = rejected(422, json!({"message": "Object is not valid", "details": details}));
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[0], "Object is not valid (422)");
        assert_eq!(lines[2].trim(), "/cpus  is negative");
        assert!(lines[3].contains("\\u{1b}[31m"), "{text}");
    }
}
