//! Leases as one process sees them. The caller passes the time.
//!
//! Those of an embedded store are in memory only: the directory belongs to one process, so the leases
//! of an earlier process are void, and later leases have other numbers. Only the last granted number is
//! on disk. In a ZooKeeper the log has all grants, each of which counts from when this process learns
//! of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::{Error, Fence, Lease, Result, limits};

/// An operation on a lease.
#[derive(Debug)]
pub(crate) enum LeaseOperation {
    Acquire { holder: String, ttl: Duration },
    Renew { fencing: u64, ttl: Duration },
    Release { fencing: u64 },
    Read,
}

/// A store that carries out operations on leases in the order of its other requests. It offers them
/// as the functions of [`Store`](crate::Store).
#[async_trait]
pub(crate) trait LeaseStore: Send + Sync {
    /// Carries out an operation; returns the resulting lease. `what` ends the sentence "the store cannot
    /// …".
    async fn operate(
        &self,
        what: &'static str,
        name: &str,
        operation: LeaseOperation,
    ) -> Result<Option<HeldLease>>;

    async fn acquire_lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        limits::acquire(name, holder, ttl)?;
        let expires = tokio::time::Instant::now() + ttl;
        let holder = holder.to_owned();
        let operation = LeaseOperation::Acquire { holder, ttl };
        let held = self.operate("grant a lease", name, operation).await?;
        Ok(held.ok_or(Error::Closed)?.lease(name, ttl, expires))
    }

    async fn renew_lease(&self, lease: &Lease) -> Result<Lease> {
        limits::acquire(&lease.name, &lease.holder, lease.ttl)?;
        let (fencing, ttl) = (lease.fencing, lease.ttl);
        let expires = tokio::time::Instant::now() + ttl;
        let operation = LeaseOperation::Renew { fencing, ttl };
        self.operate("renew a lease", &lease.name, operation).await?;
        Ok(Lease {
            expires,
            ..lease.clone()
        })
    }

    async fn release_lease(&self, lease: &Lease) -> Result<()> {
        limits::lease(&lease.name)?;
        let fencing = lease.fencing;
        let operation = LeaseOperation::Release { fencing };
        self.operate("release a lease", &lease.name, operation)
            .await
            .map(drop)
    }

    async fn read_lease(&self, name: &str) -> Result<Option<Lease>> {
        limits::lease(name)?;
        let held = self.operate("read a lease", name, LeaseOperation::Read).await?;
        Ok(held.map(|held| {
            let remaining = held.expires.saturating_duration_since(Instant::now());
            held.lease(name, remaining, tokio::time::Instant::now() + remaining)
        }))
    }
}

/// A held lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldLease {
    pub(crate) holder: String,
    pub(crate) fencing: u64,
    pub(crate) ttl: Duration,
    pub(crate) expires: Instant,
}

impl HeldLease {
    fn lease(self, name: &str, ttl: Duration, expires: tokio::time::Instant) -> Lease {
        Lease {
            name: name.to_owned(),
            holder: self.holder,
            fencing: self.fencing,
            ttl,
            expires,
        }
    }
}

/// All held leases, and the last granted number.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    held: BTreeMap<String, HeldLease>,
    last: u64,
}

impl Leases {
    pub(crate) fn new(last: u64) -> Self {
        Self {
            held: BTreeMap::new(),
            last,
        }
    }

    /// The last granted number.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Performs the operation and returns the resulting lease.
    pub(crate) fn apply(
        &mut self,
        name: &str,
        operation: &LeaseOperation,
        now: Instant,
    ) -> Result<Option<HeldLease>> {
        self.held.retain(|_, held| held.expires > now);
        let held = self.held.get_mut(name);
        match (operation, held) {
            (LeaseOperation::Acquire { holder, .. }, Some(held)) if held.holder != *holder => {
                return Err(Error::Held {
                    lease: name.to_owned(),
                    holder: held.holder.clone(),
                    remaining: held.expires.saturating_duration_since(now),
                });
            }
            (LeaseOperation::Acquire { holder, ttl }, _) => {
                self.last += 1;
                let held = HeldLease {
                    holder: holder.clone(),
                    fencing: self.last,
                    ttl: *ttl,
                    expires: now + *ttl,
                };
                self.held.insert(name.to_owned(), held);
            }
            (LeaseOperation::Renew { fencing, ttl }, Some(held)) if held.fencing == *fencing => {
                (held.ttl, held.expires) = (*ttl, now + *ttl);
            }
            (LeaseOperation::Renew { fencing, .. }, held) => {
                return Err(Error::Fenced {
                    lease: name.to_owned(),
                    fencing: *fencing,
                    current: held.map(|held| held.fencing),
                });
            }
            (LeaseOperation::Release { fencing }, Some(held)) if held.fencing == *fencing => {
                self.held.remove(name);
            }
            (LeaseOperation::Release { .. } | LeaseOperation::Read, _) => {}
        }
        Ok(self.held.get(name).cloned())
    }

    /// A lease was granted or renewed.
    pub(crate) fn granted(&mut self, name: String, held: HeldLease) {
        self.last = self.last.max(held.fencing);
        self.held.insert(name, held);
    }

    /// A lease was released.
    pub(crate) fn released(&mut self, name: &str) {
        self.held.remove(name);
    }

    /// Numbers up to `last` were granted before.
    pub(crate) fn continue_after(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// All leases, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &HeldLease)> {
        self.held.iter()
    }

    /// Whether the fence holds.
    pub(crate) fn check(&self, fence: &Fence, now: Instant) -> Result<()> {
        let held = self.held.get(&fence.lease).filter(|held| held.expires > now);
        let current = held.map(|held| held.fencing);
        if current == Some(fence.fencing) {
            return Ok(());
        }
        Err(Error::Fenced {
            lease: fence.lease.clone(),
            fencing: fence.fencing,
            current,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    /// The expected result of one step.
    #[derive(Debug, PartialEq)]
    enum Answer {
        Number(u64),
        Nobody,
        HeldBy(&'static str),
        Fenced(Option<u64>),
    }

    fn answer(result: Result<Option<HeldLease>>) -> Answer {
        match result {
            Ok(Some(held)) => Answer::Number(held.fencing),
            Ok(None) => Answer::Nobody,
            Err(Error::Held { holder, .. }) => Answer::HeldBy(if holder == "a" { "a" } else { "b" }),
            Err(Error::Fenced { current, .. }) => Answer::Fenced(current),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn lease_has_one_holder_at_a_time() {
        use Answer::{Fenced, HeldBy, Nobody, Number};
        let acquire = |holder: &str| LeaseOperation::Acquire {
            holder: holder.to_owned(),
            ttl: TTL,
        };
        let renew = |fencing| LeaseOperation::Renew { fencing, ttl: TTL };
        let release = |fencing| LeaseOperation::Release { fencing };
        let (start, mut leases) = (Instant::now(), Leases::new(7));
        for (second, operation, expected) in [
            (0, LeaseOperation::Read, Nobody),
            (0, acquire("a"), Number(8)),
            (1, acquire("b"), HeldBy("a")),
            (9, renew(8), Number(8)),
            (18, acquire("b"), HeldBy("a")),
            (19, renew(8), Fenced(None)),
            (19, LeaseOperation::Read, Nobody),
            (19, acquire("b"), Number(9)),
            (20, renew(8), Fenced(Some(9))),
            (20, release(8), Number(9)),
            (20, acquire("a"), HeldBy("b")),
            (20, acquire("b"), Number(10)),
            (21, renew(9), Fenced(Some(10))),
            (22, release(10), Nobody),
            (22, renew(10), Fenced(None)),
            (22, acquire("a"), Number(11)),
        ] {
            let found = answer(leases.apply("l", &operation, start + Duration::from_secs(second)));
            assert_eq!(found, expected, "second {second}: {operation:?}");
        }
        assert_eq!(leases.last(), 11);
    }

    #[test]
    fn a_fence_holds_while_the_lease_is_held() {
        let (now, mut leases) = (Instant::now(), Leases::new(0));
        let operation = LeaseOperation::Acquire {
            holder: "a".to_owned(),
            ttl: TTL,
        };
        leases.apply("l", &operation, now).unwrap();
        for (lease, fencing, at, holds) in [
            ("l", 1, now, true),
            ("l", 1, now + TTL / 2, true),
            ("l", 1, now + TTL, false),
            ("l", 2, now, false),
            ("l", 0, now, false),
            ("m", 1, now, false),
        ] {
            let lease = lease.to_owned();
            let result = leases.check(&Fence { lease, fencing }, at);
            assert_eq!(result.is_ok(), holds, "{result:?}");
        }
    }
}
