//! Budgets of a port that no single user can take completely: streams, kinds of streams, requests,
//! and bodies and answers in memory.
//!
//! | user | at most |
//! |---|---|
//! | the user with all rights | everything |
//! | the user who may only read | half |
//! | clients of trusted networks without credentials | half |
//! | both of these together | three quarters |
//! | a network, on a port without users | half |
//!
//! On a port without credentials, its trusted clients have all rights, and so the whole budget.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{ConnectInfo, FromRequestParts};
use http::Extensions;
use http::request::Parts;

use crate::Network;
use crate::port_metrics::PORT_METRICS;
use crate::throttle::Throttle;

/// Whose share a request uses; an extension of each request to a port with credentials or trusted
/// networks, and of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The user with all rights.
    Full,
    /// The user who may only read.
    Reader,
    /// A client without credentials, on a port that has some.
    Anonymous,
    /// A client of a port without users.
    Network(Network),
}

impl Owner {
    /// The owner of a request or a response with these extensions. Without any, a part of this daemon
    /// itself has sent the request.
    pub fn of(extensions: &Extensions) -> Self {
        if let Some(owner) = extensions.get() {
            return *owner;
        }
        let client = extensions.get::<ConnectInfo<SocketAddr>>();
        client.map_or(Self::Full, |client| Self::Network(Network::of(client.0.ip())))
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Reader => "read_only",
            Self::Anonymous => "anonymous",
            Self::Network(_) => "network",
        }
    }

    fn is_user(self) -> bool {
        matches!(self, Self::Reader | Self::Anonymous)
    }
}

/// An argument of a handler: the owner of its request.
impl<S: Sync> FromRequestParts<S> for Owner {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// A budget. Clones are the same.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    port: &'static str,
    resource: &'static str,
    max: usize,
    used: Mutex<Used>,
    log: Throttle,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_owner: HashMap<Owner, usize>,
}

impl Used {
    fn of(&self, owner: Owner) -> usize {
        self.by_owner.get(&owner).copied().unwrap_or_default()
    }
}

/// A taken part of a budget, until it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    owner: Owner,
    amount: usize,
}

impl Shares {
    /// `port` and `resource` are names for logs and metrics.
    pub fn new(port: &'static str, resource: &'static str, max: usize) -> Self {
        Self(Arc::new(Budget {
            port,
            resource,
            max,
            used: Mutex::default(),
            log: Throttle::once(),
        }))
    }

    /// Takes a part of the budget, if enough is left for its owner. An amount larger than the share
    /// of its owner counts as the whole share.
    pub fn take(&self, owner: Owner, amount: usize) -> Option<Share> {
        let budget = &self.0;
        let half = budget.max.div_ceil(2);
        let limit = if owner == Owner::Full { budget.max } else { half };
        let amount = amount.min(limit).max(1);
        let fits = {
            let mut used = budget.used();
            let users = used.of(Owner::Reader) + used.of(Owner::Anonymous);
            let fits = used.total + amount <= budget.max
                && used.of(owner) + amount <= limit
                && (!owner.is_user() || users + amount <= budget.max - budget.max / 4);
            if fits {
                used.total += amount;
                *used.by_owner.entry(owner).or_default() += amount;
            }
            fits
        };
        if !fits {
            self.record_rejection(owner);
            return None;
        }
        Some(Share {
            budget: Arc::clone(budget),
            owner,
            amount,
        })
    }

    fn record_rejection(&self, owner: Owner) {
        let Budget { port, resource, .. } = *self.0;
        PORT_METRICS.quota(port, resource, owner);
        if let Some(earlier) = self.0.log.pass() {
            let user = owner.as_str();
            tracing::warn!(
                listener = port,
                resource,
                max = self.0.max,
                user,
                earlier,
                "request rejected: the limit is reached"
            );
        }
    }
}

impl Budget {
    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        used.total -= self.amount;
        if let Some(of_owner) = used.by_owner.get_mut(&self.owner) {
            *of_owner -= self.amount;
            if *of_owner == 0 {
                used.by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_gets_its_share_and_the_full_user_a_reserve() {
        let network = |last| Owner::Network(Network::of([10, 0, last, 1].into()));
        let (full, reader, anonymous) = (Owner::Full, Owner::Reader, Owner::Anonymous);
        // The budget; amounts that owners take; how much each takes then one by one.
        for (max, taken, expected) in [
            (8, &[][..], &[(full, 8)][..]),
            (8, &[], &[(reader, 4), (anonymous, 2), (full, 2)]),
            (8, &[], &[(anonymous, 4), (reader, 2), (full, 2)]),
            (8, &[(full, 7)], &[(reader, 1), (full, 0)]),
            (8, &[(reader, 100)], &[(reader, 0), (anonymous, 2), (full, 2)]),
            (8, &[(full, 100)], &[(full, 0)]),
            (8, &[], &[(network(1), 4), (network(2), 4), (network(3), 0)]),
            (1, &[], &[(reader, 1), (full, 0)]),
            (2, &[], &[(reader, 1), (anonymous, 1)]),
            (0, &[], &[(full, 0), (reader, 0)]),
        ] {
            let shares = Shares::new("test", "tests", max);
            let mut held = Vec::new();
            for (owner, amount) in taken {
                held.extend(shares.take(*owner, *amount));
            }
            assert_eq!(held.len(), taken.len(), "{max} {taken:?}");
            for (owner, expected) in expected {
                let mut count = 0;
                while let Some(share) = shares.take(*owner, 1) {
                    held.push(share);
                    count += 1;
                }
                assert_eq!(count, *expected, "{max} {taken:?} {owner:?}");
            }
            drop(held);
            let used = shares.0.used();
            assert_eq!((used.total, used.by_owner.len()), (0, 0));
        }
    }
}
