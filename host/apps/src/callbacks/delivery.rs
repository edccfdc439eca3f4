//! Posts events to one subscriber.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, header};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_common::{Backoff, HostPort, error_chain};

use super::Metrics;
use super::destination::{CheckedUrl, Policy};

/// The maximum number of queued events of a subscriber; further ones are dropped.
pub(super) const MAX_QUEUED: usize = 1000;
/// The maximum size of the queued events in bytes; one larger event is queued if it is the only one.
pub(super) const MAX_QUEUED_BYTES: usize = 4 << 20;
/// The backoff between the attempts of one event.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// An event in a subscriber's queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) body: Arc<str>,
    /// The bytes of all events in the queue.
    waiting: Arc<AtomicUsize>,
}

impl Queued {
    /// `None` if the queue has no room for its bytes.
    pub(super) fn new(body: &Arc<str>, waiting: &Arc<AtomicUsize>) -> Option<Self> {
        let before = waiting.fetch_add(body.len(), Ordering::Relaxed);
        // Dropped if it is not returned, and then no longer counted.
        let queued = Self {
            body: Arc::clone(body),
            waiting: Arc::clone(waiting),
        };
        (before == 0 || before + body.len() <= MAX_QUEUED_BYTES).then_some(queued)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.body.len(), Ordering::Relaxed);
    }
}

/// One subscriber.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) checked: CheckedUrl,
    pub(super) policy: Arc<Policy>,
    /// Attempts for each event.
    pub(super) attempts: u32,
    /// Timeout of one attempt.
    pub(super) timeout: Duration,
    pub(super) metrics: Metrics,
}

impl Delivery {
    /// Posts the events, one after the other, until `token` is cancelled.
    pub(super) async fn run(self, mut events: mpsc::Receiver<Queued>, token: CancellationToken) {
        let url = self.checked.url.as_str();
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(
                    url,
                    error,
                    "HTTP client for callback subscriber cannot be created; no events are posted"
                );
                return;
            }
        };
        let mut failing = false;
        let posting = async {
            while let Some(event) = events.recv().await {
                match self.post(&client, &event.body).await {
                    Ok(()) => {
                        self.metrics.record_outcome("delivered");
                        if std::mem::take(&mut failing) {
                            tracing::info!(url, "events are delivered to callback subscriber again");
                        }
                    }
                    Err(error) => {
                        self.metrics.record_outcome("failed");
                        // Only the first failure of a series is logged; the metric counts all.
                        if !std::mem::replace(&mut failing, true) {
                            tracing::warn!(url, error, "event not delivered to callback subscriber");
                        }
                    }
                }
            }
        };
        token.run_until_cancelled(posting).await;
    }

    fn client(&self) -> Result<reqwest::Client, String> {
        let resolver = AllowedAddresses {
            policy: Arc::clone(&self.policy),
            endpoint: self.checked.endpoint.clone(),
        };
        let certificates = match self.checked.url.scheme() {
            "https" => system_certificates(),
            _ => Vec::new(),
        };
        reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(resolver))
            .tls_certs_only(certificates)
            .timeout(self.timeout)
            .user_agent(concat!("transom/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error_chain(&error))
    }

    async fn post(&self, client: &reqwest::Client, body: &str) -> Result<(), String> {
        let mut attempt = 0;
        loop {
            let error = match self.post_once(client, body).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            attempt += 1;
            if attempt >= self.attempts {
                return Err(error);
            }
            tokio::time::sleep(RETRY_BACKOFF.jittered(attempt - 1)).await;
        }
    }

    async fn post_once(&self, client: &reqwest::Client, body: &str) -> Result<(), String> {
        // A host that is an IP address is not resolved by the client, so it is checked here.
        self.policy.addresses(&self.checked.endpoint).await?;
        let request = client
            .post(self.checked.url.clone())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body.to_owned());
        let response = request.send().await.map_err(|error| error_chain(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let redirects = if status.is_redirection() {
            "; redirects are not followed"
        } else {
            ""
        };
        Err(format!("the subscriber answered {status}{redirects}"))
    }
}

/// Resolves the host of a subscriber to the addresses that callbacks may have.
#[derive(Debug)]
struct AllowedAddresses {
    policy: Arc<Policy>,
    endpoint: HostPort,
}

impl Resolve for AllowedAddresses {
    fn resolve(&self, _name: Name) -> Resolving {
        let (policy, endpoint) = (Arc::clone(&self.policy), self.endpoint.clone());
        Box::pin(async move {
            let addresses = policy.addresses(&endpoint).await?;
            let sockets = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(sockets.collect::<Vec<_>>().into_iter()) as Addrs)
        })
    }
}

fn system_certificates() -> Vec<reqwest::Certificate> {
    let loaded = rustls_native_certs::load_native_certs();
    let certificates = loaded.certs.iter();
    certificates
        .filter_map(|certificate| reqwest::Certificate::from_der(certificate).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_bounded_in_bytes() {
        let waiting = Arc::<AtomicUsize>::default();
        let body: Arc<str> = "x".repeat(MAX_QUEUED_BYTES / 2).into();
        let first = Queued::new(&body, &waiting);
        let second = Queued::new(&body, &waiting);
        assert!(first.is_some() && second.is_some());
        assert!(Queued::new(&body, &waiting).is_none());
        drop(first);
        assert!(Queued::new(&body, &waiting).is_some());
        drop(second);
        let largest: Arc<str> = "x".repeat(MAX_QUEUED_BYTES + 1).into();
        assert!(Queued::new(&largest, &waiting).is_some(), "the only one");
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }
}
