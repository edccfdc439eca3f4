//! A cluster manager in one process: a master and its agents, speaking the HTTP API v1 as real ones do, running
//! tasks as local processes.
//!
//! It serves development on one machine and end-to-end tests. Its users reach it over HTTP only, and it shares no
//! type, codec or constant with the client crate: what the two agree on, they agree on over the wire.
//!
//! Promises
//! * Calls, events, status codes, error texts and documents are those recorded from a real master and agents, where
//!   this page does not say otherwise; the `transom-replay` crate compares them.
//! * Every task is a process group of its own, in a sandbox directory of its own. When the token is cancelled and
//!   [`Minicluster::stopped`] returns, none of them is left, whatever they do with signals.
//! * A port is never given to two tasks at a time, not even while the process of an ended framework still ends.
//! * Queues, bodies, connections and what is remembered of the past are bounded.
//! * Each agent writes `agents/<agent id>/journal.jsonl` in the work directory: a line for each process started,
//!   signalled and ended, flushed before the next thing happens, to be held against the process table.
//! * `/minicluster/faults` on the masters' ports, which no real master has, does to the cluster what goes wrong with
//!   real ones: GET lists it, and what is in force.
//!
//! Not done
//! * JSON only, no protobuf. No quota, maintenance or custom executors; messages for executors end in the agent's
//!   journal; offer constraints are shown again and not acted upon.
//! * Resources can be reserved, and persistent volumes created and destroyed; volumes do not grow, shrink or get
//!   shared, and only tasks use them, not the executors of groups. Other operations are answered with
//!   `OPERATION_ERROR`. `GET_OPERATIONS` shows none.
//! * No isolation: no container images (such a task fails and says why), no limits on cpu or memory, no networks. A
//!   process that leaves its process group escapes.
//! * Tasks run as another user only when this process is root; else as itself.
//! * `HEAD` is answered without a body, where real masters send one. A killed or paused process still accepts
//!   connections; they end, or wait. A standby master changes the leader only when a fault says so.
//! * State is in memory: a new start is a new cluster.
//!
//! ```no_run
//! # async fn run() -> transom_minicluster::Result<()> {
//! let token = tokio_util::sync::CancellationToken::new();
//! let cluster = transom_minicluster::Config::three_agents("work").start(token.clone()).await?;
//! println!("http://{}", cluster.master());
//! token.cancel();
//! cluster.stopped().await;
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a failing test may say so"
    )
)]

mod agent;
mod cluster;
mod config;
mod error;
mod http;
mod master;
mod shared;
mod state;
mod wire;

pub use cluster::Minicluster;
pub use config::{AgentConfig, Config, Registry};
pub use error::{Error, Result};
