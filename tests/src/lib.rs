//! What the end-to-end tests share: the real binary as a child process, its HTTP and DNS clients, and waiting.
//!
//! Nothing here knows the inside of a crate: programs are started, spoken to over the network, and killed. Every wait is
//! for a condition, with a deadline; every child is gone when its handle is dropped.
#![forbid(unsafe_code)]
// A helper of tests may end the test, and its fields say by their names what they are.
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
pub mod redis;
pub mod registry;
pub mod site;

/// The examples on the page about plugins compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/plugins.md")]
pub struct PluginsPage;

use std::future::Future;
use std::time::Duration;

/// How long anything may take: generous, as test machines are small and busy.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Asks `look` again until it answers `Some`, for at most [`PATIENCE`]; else fails with `what` and the last thing seen.
pub async fn eventually<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(
                tokio::time::Instant::now() < deadline,
                "waited for {what}; last seen: {seen}"
            ),
        }
    }
}

/// An HTTP client for loopback.
pub fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()
        .expect("a client")
}
