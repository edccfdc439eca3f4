//! Which daemon holds the lease of a framework.

use std::time::Duration;

use transom_framework::Framework;

use crate::candidate::LEASE;
use crate::services;
use crate::store::Server;

/// Who holds the leases.
#[derive(Default)]
pub(crate) struct Holders {
    by_framework: Vec<(&'static str, Option<String>)>,
    /// The number of changes of leases that they are from.
    changes: u64,
    /// When they change without one.
    until: Duration,
}

impl Holders {
    /// Brings them up to date.
    pub(crate) fn update(&mut self, server: &Server, now: Duration) {
        if self.changes == server.lease_changes() && now < self.until {
            return;
        }
        let holder = |lease: &str| server.lease_holder(lease, now).map(str::to_owned);
        self.by_framework = vec![("writes", holder(LEASE))];
        let frameworks = services::FRAMEWORKS.map(|name| (name, holder(&Framework::lease(name))));
        self.by_framework.extend(frameworks);
        self.changes = server.lease_changes();
        self.until = server.next_expiry(now).unwrap_or(Duration::MAX);
    }

    pub(crate) fn leads(&self, host: &str, framework: &str) -> bool {
        let found = self.by_framework.iter().find(|(name, _)| *name == framework);
        found.is_some_and(|(_, holder)| holder.as_deref() == Some(host))
    }

    /// Only the leader writes the records of a framework.
    pub(crate) fn may_write(&self, host: &str, key: &str) -> bool {
        self.leads(host, key.split('/').next().unwrap_or_default())
    }
}
