//! Why the server is unavailable.

use std::sync::Arc;
use std::time::Duration;

use ::redis::RedisError;

/// Why the server is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Outage {
    #[error("cannot connect to the Redis at {address}")]
    Rejected {
        address: Arc<str>,
        #[source]
        source: RedisError,
    },
    #[error("timeout: the Redis at {address} did not answer within {after:?}")]
    Silent { address: Arc<str>, after: Duration },
    #[error(
        "{confirmed} of {replicas} replicas confirmed what the Redis at {address} wrote; check that its replicas run"
    )]
    Unconfirmed {
        address: Arc<str>,
        confirmed: u32,
        replicas: u32,
    },
    #[error("the Redis at {address} has been replaced as the primary")]
    Replaced { address: Arc<str> },
    #[error("the primary is unknown: {why}")]
    Unlocated { why: Arc<str> },
    #[error(
        "{replicas} of the {connected} replicas of the Redis at {address} are too few to confirm a write: two \
         primaries could have so many; set `store.replicas` to {}", connected.div_ceil(2)
    )]
    Minority {
        address: Arc<str>,
        replicas: u32,
        connected: u32,
    },
    #[error("the Redis at {address} {why}")]
    Unfit { address: Arc<str>, why: &'static str },
    #[error("the store is closed")]
    Closed,
}
