//! Resolution of host names, exchangeable in tests.

use std::net::IpAddr;

use async_trait::async_trait;
use tokio::net::lookup_host;

use crate::types::probe::IoError;

/// Resolves names.
#[async_trait]
pub(crate) trait Resolver: Send + Sync {
    /// Fails, or names one address at least.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, IoError>;
}

/// The system's resolver.
pub(crate) struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, IoError> {
        // The port does not matter here, yet the call asks for one.
        let found = lookup_host((host, 0)).await.map_err(|_| IoError::Unresolved)?;
        Ok(found.map(|address| address.ip()).collect())
    }
}
