//! The HTTP client of the collector.
//!
//! A separate thread exports spans; it waits for one request at a time. After a failure of the
//! collector, no requests are sent until the backoff has passed, and the spans of that time are
//! dropped; the first failure and the recovery are logged. No other part of the daemon waits for the
//! collector.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;
use transom_common::{Backoff, error_chain};

/// The maximum number of bytes that are read of a response.
const MAX_RESPONSE: usize = 64 << 10;
/// The backoff after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The HTTP client that the exporter uses.
#[derive(Debug)]
pub(super) struct Collector {
    http: reqwest::Client,
    runtime: Handle,
    url: String,
    failures: Mutex<Failures>,
}

/// The failures since the last success.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    retry_at: Option<Instant>,
}

impl Failures {
    fn is_waiting(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| now < at)
    }

    /// Records a failure. Returns whether it is the first one since the last success.
    fn record_failure(&mut self, now: Instant) -> bool {
        self.retry_at = Some(now + BACKOFF.after(self.count));
        self.count = self.count.saturating_add(1);
        self.count == 1
    }

    /// Records a success. Returns whether there were failures before.
    fn record_success(&mut self) -> bool {
        std::mem::take(self).count > 0
    }
}

impl Collector {
    /// Creates the client. Must be called on the Tokio runtime that makes the requests.
    pub(super) fn new(url: &str, timeout: Duration) -> anyhow::Result<Self> {
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(timeout);
        if !url.starts_with("https:") {
            // Without TLS no root certificates are needed, and the machine may have none.
            http = http.tls_certs_only([]);
        }
        let http = http.build().context("the client of telemetry.otlp_endpoint")?;
        Ok(Self {
            http,
            runtime: Handle::current(),
            url: url.to_owned(),
            failures: Mutex::default(),
        })
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_result(&self, result: &Result<Response<Bytes>, HttpError>) {
        let reason = match result {
            Ok(response) if response.status().is_success() => {
                if self.failures().record_success() {
                    tracing::info!(url = self.url, "exporting spans resumed");
                }
                return;
            }
            Ok(response) => format!("status {}", response.status()),
            Err(error) => error_chain(&**error),
        };
        if self.failures().record_failure(Instant::now()) {
            tracing::warn!(
                url = self.url,
                error = reason,
                "exporting spans failed; they are dropped until the collector accepts them"
            );
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        if self.failures().is_waiting(Instant::now()) {
            return Err("the collector has failed; waiting before the next request".into());
        }
        let http = self.http.clone();
        let sent = self.runtime.spawn(async move { send(&http, request).await });
        let result = sent.await.unwrap_or_else(|error| Err(error.into()));
        self.report_result(&result);
        result
    }
}

async fn send(http: &reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut response = http.execute(request.try_into()?).await?;
    let mut head = Response::builder().status(response.status());
    if let Some(headers) = head.headers_mut() {
        headers.clone_from(response.headers());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_RESPONSE {
            return Err(format!("the collector's answer has more than {MAX_RESPONSE} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(head.body(body.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_once_and_delay_the_next_request() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        assert!(!failures.is_waiting(now) && !failures.record_success());
        assert!(failures.record_failure(now), "the first one is reported");
        assert!(failures.is_waiting(now));
        assert!(!failures.is_waiting(now + BACKOFF.max));
        assert!(!failures.record_failure(now), "a further one is not");
        assert!(failures.record_success(), "the recovery is reported");
        assert!(!failures.is_waiting(now) && !failures.record_success());
    }
}
