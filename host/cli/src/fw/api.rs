//! Requests to a framework's API, and its errors with advice for an operator.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use reqwest::{Method, StatusCode, Url, header};
use serde_json::Value;
use transom_plugin_host::printable;

use super::config::Config;
use super::framework;
use crate::http::{self, Client, Endpoint, Failure};
use crate::output::print_note;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The path of the API.
const PREFIX: &[&str] = &["api", "fw", "v0"];
/// The maximum number of characters of an error's body in a message.
const MAX_MESSAGE: usize = 500;

/// The argument that selects the framework.
#[derive(Debug, Args)]
pub(super) struct Framework {
    /// Name or id of the framework, as `transom fw list` shows them.
    #[arg(value_name = "NAME")]
    name: String,
}

/// A client of a framework's API.
pub(super) struct Api {
    client: Client,
    /// The framework's name.
    name: String,
    /// The section with the framework's credentials, and the configuration file.
    section: String,
    file: String,
    /// Whether requests carry credentials.
    has_credentials: bool,
}

impl Framework {
    /// Returns a client for the API of the framework, whose address the leading master lists.
    pub(super) async fn api(&self) -> anyhow::Result<Api> {
        let config = Config::read()?;
        let frameworks = framework::list_frameworks(&config).await?;
        let chosen = framework::choose(&frameworks, &self.name, &config)?;
        let name = printable(&chosen.name).into_owned();
        if chosen.webui_url.is_empty() {
            bail!("the framework {name:?} has registered no webui_url, which is the address of its API");
        }
        let url = api_url(&chosen.webui_url)
            .with_context(|| format!("the framework {name:?} has registered {:?}", chosen.webui_url))?;
        let login = config.login(&chosen.name)?;
        if let Some(unused) = &login.unused {
            print_note(format_args!(
                "transom: warning: {} has the sections [{}] and [{unused}]; [{unused}] is ignored",
                config.file().display(),
                login.section
            ));
        }
        let is_https = url.scheme() == "https";
        if is_https && !login.verify {
            framework::warn_of_unverified(&format!("the framework {name:?}"), &config, &login.section);
        }
        let has_credentials = login.credentials.is_some();
        let endpoint = Endpoint {
            url,
            credentials: login
                .credentials
                .map(|(principal, secret)| (principal, secret.reveal().to_owned())),
            certificates: None,
        };
        let client = if is_https && !login.verify {
            Client::unverified(endpoint, TIMEOUT)?
        } else {
            Client::new(endpoint, TIMEOUT)?
        };
        Ok(Api {
            client,
            name,
            section: login.section,
            file: config.file().display().to_string(),
            has_credentials,
        })
    }
}

impl Api {
    pub(super) async fn get(&self, path: &[&str]) -> anyhow::Result<String> {
        self.send(Method::GET, path).await
    }

    /// Sends a request; returns the body of a successful response.
    pub(super) async fn send(&self, method: Method, path: &[&str]) -> anyhow::Result<String> {
        let segments = PREFIX.iter().chain(path).copied();
        let call = format!("{method} /{}/{}", PREFIX.join("/"), path.join("/"));
        let request = self.client.request(method, segments);
        let response = self.client.send(request).await;
        let response = response.map_err(|failure| self.request_error(failure))?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok());
        let text = http::body_text(response).await;
        let text = text.map_err(|failure| self.request_error(failure))?;
        if status.is_success() {
            return Ok(text);
        }
        let message = message(&text);
        let advice = self.advice(status, retry_after);
        let colon = if message.is_empty() { "" } else { ": " };
        Err(anyhow!(
            "the framework {:?} at {} answered {call} with {status}{colon}{message}{advice}",
            self.name,
            self.client.base_url()
        ))
    }

    fn request_error(&self, failure: Failure) -> anyhow::Error {
        let (name, url) = (&self.name, self.client.base_url());
        match failure {
            Failure::Unreachable(reason) => anyhow!(
                "the framework {name:?} cannot be reached at {url}, the address that it registered with the master: {reason}\n\
                 Does it run (`transom fw list --all`), and can this machine reach that address?"
            ),
            Failure::Rejected(reason) => anyhow!("the framework {name:?} at {url}: {reason}"),
        }
    }

    /// Advice about an error.
    fn advice(&self, status: StatusCode, retry_after: Option<u32>) -> String {
        let (section, file) = (&self.section, &self.file);
        match status {
            StatusCode::UNAUTHORIZED if self.has_credentials => format!(
                "\n`principal` and `secret` in [{section}] of {file} are not AUTH_USERNAME and AUTH_PASSWORD of this framework."
            ),
            StatusCode::UNAUTHORIZED => format!(
                "\nIt requires credentials: add the section [{section}] to {file}, with AUTH_USERNAME of this framework as \
                 `principal` and its AUTH_PASSWORD as `secret`."
            ),
            StatusCode::FORBIDDEN => {
                format!("\nThe credentials in [{section}] of {file} do not permit this.")
            }
            StatusCode::NOT_FOUND => {
                "\nIts API does not have this path: is it a framework of this kind, and of this version?"
                    .to_owned()
            }
            StatusCode::SERVICE_UNAVAILABLE => match retry_after {
                Some(seconds) => {
                    format!("\nIt is not ready: try again in {seconds} s, or see `transom fw status`.")
                }
                None => "\nIt is not ready: try again soon, or see `transom fw status`.".to_owned(),
            },
            _ => String::new(),
        }
    }
}

/// The body of a successful response as JSON; a body that is not JSON becomes a JSON string.
pub(super) fn document(text: &str) -> Value {
    let text = text.trim();
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// The address of an API, from the `webui_url` that the framework registered.
fn api_url(registered: &str) -> anyhow::Result<Url> {
    let mut url = http::url("its webui_url", registered, "http://10.0.0.1:10000")?;
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// The message of an error's body.
fn message(text: &str) -> String {
    let document = serde_json::from_str::<Value>(text).unwrap_or_default();
    let message = document["message"].as_str().unwrap_or(text.trim());
    message.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_an_error_is_its_json_member_or_its_beginning() {
        assert_eq!(
            message(r#"{"message": "count -1 is negative"}"#),
            "count -1 is negative"
        );
        assert_eq!(message("\n"), "");
        assert_eq!(message(&"x".repeat(10_000)).len(), MAX_MESSAGE);
    }

    #[test]
    fn address_keeps_the_path_of_the_registered_url() {
        for (registered, expected) in [
            ("http://a:10000", Some("http://a:10000/")),
            ("https://a:10000/prod/", Some("https://a:10000/prod/")),
            ("http://a:1/?x=y#z", Some("http://a:1/")),
            ("a:10000", None),
            ("file:///etc/passwd", None),
        ] {
            let url = api_url(registered).ok();
            assert_eq!(url.as_ref().map(Url::as_str), expected, "{registered}");
        }
    }

    #[test]
    fn successful_body_is_a_document_or_a_text() {
        assert_eq!(document("1\n"), 1);
        assert_eq!(document("nok"), "nok");
        assert_eq!(document(""), "");
        assert_eq!(document(r#"{"API": "ok"}"#)["API"], "ok");
    }
}
