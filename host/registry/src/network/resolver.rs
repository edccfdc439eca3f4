//! Resolution of host names, replaceable in tests.
//!
//! The system's resolver blocks a thread until it has an answer, which takes many seconds if a name
//! server does not answer. The number of its concurrent lookups is therefore limited, separately for
//! probes, whose plugins choose names, and for the rest of the daemon. A lookup counts until its thread
//! has finished, even if nobody waits for the answer any more.

use std::{
    net::{IpAddr, ToSocketAddrs},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

/// Maximum number of concurrent lookups for probes, and for the rest of the daemon.
const MAX_LOOKUPS: usize = 32;

static PROBE_LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);
static OTHER_LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);

/// Why there are no addresses for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name has no address.
    #[error("the name does not resolve")]
    Unresolved,
    /// The lookup did not start before the deadline.
    #[error("the lookup of the name did not start in time: at most {MAX_LOOKUPS} lookups run at once")]
    NotStarted,
}

/// Resolves names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns at least one address, or fails.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError>;
}

/// The system's resolver. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct SystemResolver {
    permits: &'static Semaphore,
    /// No lookup starts after it.
    deadline: Option<Instant>,
}

impl Default for SystemResolver {
    /// The resolver of the daemon itself. Its callers have timeouts.
    fn default() -> SystemResolver {
        SystemResolver {
            permits: &OTHER_LOOKUPS,
            deadline: None,
        }
    }
}

impl SystemResolver {
    /// The resolver of a probe's attempt.
    pub fn for_probe(deadline: Instant) -> SystemResolver {
        SystemResolver {
            permits: &PROBE_LOOKUPS,
            deadline: Some(deadline),
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    async fn permit(&self) -> Result<SemaphorePermit<'static>, LookupError> {
        let permit = match self.deadline {
            _ if self.is_late() => return Err(LookupError::NotStarted),
            Some(deadline) => timeout_at(deadline, self.permits.acquire())
                .await
                .map_err(|_| LookupError::NotStarted)?,
            None => self.permits.acquire().await,
        };
        permit.map_err(|_| LookupError::NotStarted)
    }

    /// Runs a lookup on a thread for blocking work.
    async fn run(
        self,
        lookup: impl FnOnce() -> Result<Vec<IpAddr>, LookupError> + Send + 'static,
    ) -> Result<Vec<IpAddr>, LookupError> {
        let permit = self.permit().await?;
        let lookup = tokio::task::spawn_blocking(move || {
            // The lookup cannot be aborted, so the thread holds the permit until it has ended.
            let _permit = permit;
            if self.is_late() {
                return Err(LookupError::NotStarted);
            }
            lookup()
        });
        lookup.await.unwrap_or(Err(LookupError::Unresolved))
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let host: Arc<str> = host.into();
        // The function requires a port, which is ignored here.
        let lookup = move || match (&*host, 0).to_socket_addrs() {
            Ok(found) => Ok(found.map(|address| address.ip()).collect()),
            Err(_) => Err(LookupError::Unresolved),
        };
        self.run(lookup).await
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    const LIMIT: u32 = 2;

    fn addresses() -> Vec<IpAddr> {
        vec!["10.0.0.1".parse().unwrap()]
    }

    #[tokio::test]
    async fn abandoned_lookups_count_until_they_end() {
        static PERMITS: Semaphore = Semaphore::const_new(LIMIT as usize);
        let resolver = |deadline: Duration| SystemResolver {
            permits: &PERMITS,
            deadline: Some(Instant::now() + deadline),
        };
        let long = Duration::from_mins(1);
        let (started, mut wait_until_started) = tokio::sync::mpsc::unbounded_channel();
        let mut ends = Vec::new();
        for _ in 0..LIMIT {
            let (end, wait_for_end) = mpsc::channel::<()>();
            ends.push(end);
            let started = started.clone();
            let lookup = tokio::spawn(resolver(long).run(move || {
                started.send(()).unwrap();
                let _ = wait_for_end.recv();
                Ok(addresses())
            }));
            wait_until_started.recv().await.unwrap();
            lookup.abort();
            assert!(lookup.await.unwrap_err().is_cancelled());
        }
        assert_eq!(PERMITS.available_permits(), 0);
        let more = resolver(Duration::from_millis(50)).run(|| panic!("started beyond the limit"));
        assert_eq!(more.await, Err(LookupError::NotStarted));
        drop(ends);
        let next = resolver(long).run(|| Ok(addresses()));
        assert_eq!(next.await, Ok(addresses()));
    }

    #[tokio::test]
    async fn no_lookup_starts_after_the_deadline() {
        let late = SystemResolver::for_probe(Instant::now());
        let lookup = late.run(|| panic!("started after the deadline"));
        assert_eq!(lookup.await, Err(LookupError::NotStarted));
        assert_eq!(late.addresses("localhost").await, Err(LookupError::NotStarted));
    }

    #[tokio::test]
    async fn names_are_looked_up() {
        let probe = SystemResolver::for_probe(Instant::now() + Duration::from_mins(1));
        for resolver in [SystemResolver::default(), probe] {
            let found = resolver.addresses("localhost").await.unwrap();
            assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
            let error = resolver.addresses("no such host").await;
            assert_eq!(error, Err(LookupError::Unresolved));
        }
    }
}
