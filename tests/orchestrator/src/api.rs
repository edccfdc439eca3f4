//! A client of the control plane's API with the calls that a node needs.

use std::time::Duration;

use anyhow::Context;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use crate::shared::announced;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// A client with the token of the agents.
pub(crate) struct Api {
    client: Client,
    url: String,
    token: String,
}

impl Api {
    pub(crate) fn new(url: &str, token: &str) -> anyhow::Result<Self> {
        // An error means that a provider is installed already, which is used then.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            // An agent has only the token and no certificate authority, as with a short token of
            // k3s.
            .tls_danger_accept_invalid_certs(true)
            .timeout(TIMEOUT)
            .build()
            .context("a client")?;
        Ok(Self {
            client,
            url: url.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
        })
    }

    /// Waits until the API is ready. It polls, because nothing can be subscribed to before. SIGTERM
    /// and the end of a program of the control plane cancel the wait.
    pub(crate) async fn ready(&self) {
        while !self.is_ready().await {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Switches to the next announced API after one does not respond.
    pub(crate) fn switch_server(&mut self) {
        let all = announced();
        let position = all.iter().position(|url| *url == self.url);
        let next = position.map_or(0, |position| position + 1) % all.len().max(1);
        if let Some(url) = all.into_iter().nth(next) {
            self.url = url;
        }
    }

    async fn is_ready(&self) -> bool {
        let answer = self.client.get(format!("{}/readyz", self.url));
        let answer = answer.bearer_auth(&self.token).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Sends a document of this media type; returns the status, also of an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        document: &Value,
    ) -> anyhow::Result<StatusCode> {
        let request = self.client.request(method, format!("{}{path}", self.url));
        let request = request.bearer_auth(&self.token);
        let request = request.header("Content-Type", media_type);
        let answer = request.body(document.to_string()).send().await?;
        Ok(answer.status())
    }
}
