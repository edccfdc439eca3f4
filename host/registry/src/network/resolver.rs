//! Resolution of host names, replaceable in tests.

use std::net::IpAddr;

use async_trait::async_trait;
use tokio::net::lookup_host;

/// The name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name does not resolve")]
pub struct Unresolved;

/// Resolves names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns at least one address, or fails.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Unresolved> {
        // `lookup_host` requires a port, which is ignored here.
        let found = lookup_host((host, 0)).await.map_err(|_| Unresolved)?;
        Ok(found.map(|address| address.ip()).collect())
    }
}
