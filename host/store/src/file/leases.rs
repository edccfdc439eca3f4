//! The leases of an embedded store.
//!
//! They are in memory only: the directory belongs to one process, so the leases of an earlier
//! process are void, and later leases have other numbers. Only the last granted number is on disk.
//! The caller passes the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{Error, Fence, Result};

/// An operation on a lease.
#[derive(Debug)]
pub(super) enum Work {
    Acquire { holder: String, ttl: Duration },
    Renew { fencing: u64, ttl: Duration },
    Release { fencing: u64 },
    Look,
}

/// A held lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) holder: String,
    pub(super) fencing: u64,
    pub(super) until: Instant,
}

/// All held leases, and the last granted number.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    held: BTreeMap<String, Held>,
    last: u64,
}

impl Leases {
    pub(super) fn new(last: u64) -> Self {
        Self {
            held: BTreeMap::new(),
            last,
        }
    }

    /// The last granted number.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Performs the operation and returns the resulting lease.
    pub(super) fn apply(&mut self, name: &str, work: &Work, now: Instant) -> Result<Option<Held>> {
        self.held.retain(|_, held| held.until > now);
        let held = self.held.get_mut(name);
        match (work, held) {
            (Work::Acquire { holder, .. }, Some(held)) if held.holder != *holder => {
                return Err(Error::Held {
                    lease: name.to_owned(),
                    holder: held.holder.clone(),
                    left: held.until.saturating_duration_since(now),
                });
            }
            (Work::Acquire { holder, ttl }, _) => {
                self.last += 1;
                let held = Held {
                    holder: holder.clone(),
                    fencing: self.last,
                    until: now + *ttl,
                };
                self.held.insert(name.to_owned(), held);
            }
            (Work::Renew { fencing, ttl }, Some(held)) if held.fencing == *fencing => {
                held.until = now + *ttl;
            }
            (Work::Renew { fencing, .. }, held) => {
                return Err(Error::Fenced {
                    lease: name.to_owned(),
                    fencing: *fencing,
                    current: held.map(|held| held.fencing),
                });
            }
            (Work::Release { fencing }, Some(held)) if held.fencing == *fencing => {
                self.held.remove(name);
            }
            (Work::Release { .. } | Work::Look, _) => {}
        }
        Ok(self.held.get(name).cloned())
    }

    /// Whether the fence holds.
    pub(super) fn check(&self, fence: &Fence, now: Instant) -> Result<()> {
        let held = self.held.get(&fence.lease).filter(|held| held.until > now);
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

    fn answer(result: Result<Option<Held>>) -> Answer {
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
        let acquire = |holder: &str| Work::Acquire {
            holder: holder.to_owned(),
            ttl: TTL,
        };
        let renew = |fencing| Work::Renew { fencing, ttl: TTL };
        let release = |fencing| Work::Release { fencing };
        let (start, mut leases) = (Instant::now(), Leases::new(7));
        for (second, work, expected) in [
            (0, Work::Look, Nobody),
            (0, acquire("a"), Number(8)),
            (1, acquire("b"), HeldBy("a")),
            (9, renew(8), Number(8)),
            (18, acquire("b"), HeldBy("a")),
            (19, renew(8), Fenced(None)),
            (19, Work::Look, Nobody),
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
            let told = answer(leases.apply("l", &work, start + Duration::from_secs(second)));
            assert_eq!(told, expected, "second {second}: {work:?}");
        }
        assert_eq!(leases.last(), 11);
    }

    #[test]
    fn a_fence_holds_while_the_lease_is_held() {
        let (now, mut leases) = (Instant::now(), Leases::new(0));
        let work = Work::Acquire {
            holder: "a".to_owned(),
            ttl: TTL,
        };
        leases.apply("l", &work, now).unwrap();
        for (lease, fencing, at, holds) in [
            ("l", 1, now, true),
            ("l", 1, now + TTL / 2, true),
            ("l", 1, now + TTL, false),
            ("l", 2, now, false),
            ("l", 0, now, false),
            ("m", 1, now, false),
        ] {
            let lease = lease.to_owned();
            let told = leases.check(&Fence { lease, fencing }, at);
            assert_eq!(told.is_ok(), holds, "{told:?}");
        }
    }
}
