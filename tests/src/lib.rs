//! The common part of the end-to-end tests: the real binary as a child process, its HTTP and DNS
//! clients, and waiting.
//!
//! Nothing here depends on a crate's internals: programs are started, used over the network, and
//! killed. Every wait is for a condition, with a deadline; every child ends when its handle is
//! dropped.
#![forbid(unsafe_code)]
// A helper of tests may panic, and its fields are named after their meaning.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used
)]

pub mod airflow;
pub mod authors;
pub mod dns;
pub mod events;
pub mod gate;
pub mod lossy;
pub mod master;
pub mod plugin;
pub mod process;
pub mod program;
pub mod redis;
pub mod registry;
pub mod site;

/// The examples on the page about plugins compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/plugins.md")]
pub struct PluginsPage;

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// The timeout of everything: generous, as test machines are small and busy.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Calls `look` until it returns `Some`, for at most [`PATIENCE`]; else fails with `what` and the
/// last value.
pub async fn eventually<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let deadline = Instant::now() + PATIENCE;
    until(deadline, Duration::from_millis(50), what, &mut look)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Calls `look` every `pause` until it returns `Ok`. After `deadline` the error contains `what` and
/// the last result of `look`.
pub async fn until<T, F, Fut>(
    deadline: Instant,
    pause: Duration,
    what: &str,
    mut look: F,
) -> Result<T, String>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let mut tick = tokio::time::interval(pause);
    loop {
        tick.tick().await;
        match look().await {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() >= deadline => {
                return Err(format!("waited for {what}; last seen: {seen}"));
            }
            Err(_) => {}
        }
    }
}

/// An HTTP client for loopback.
pub fn http() -> reqwest::Client {
    http_builder().build().expect("a client")
}

/// An HTTP client without proxy and TLS, to be configured further.
pub fn http_builder() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}
