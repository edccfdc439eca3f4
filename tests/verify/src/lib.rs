//! The daemon's acceptance test, run against any cluster manager's master.
//!
//! [`run`] checks the master ([`preflight`]), starts the real binary as a process with frameworks of its own, and runs
//! [stories](Name) one after the other. What the daemon claims is compared with what the master, the agents and DNS clients
//! see. Nothing is used that only the embedded cluster manager has: no faults, no journals, no process table.
//!
//! # Promises
//!
//! * Every framework's name begins with the name of the run, `transom-verify-` and eight hexadecimal digits. No other
//!   framework's task is touched.
//! * When [`run`] returns, also after a failure or a signal, the daemons are stopped and their frameworks torn down; the
//!   report says which of that did not work. After SIGKILL the master itself removes the frameworks when
//!   [`FAILOVER_TIMEOUT`] is over.
//! * Each story has a time limit. A story that fails or runs into its limit does not keep the others from running.
//!
//! # Errors
//!
//! A story that does not hold is part of the [`Report`]. An error means that the run could not begin.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a test that fails may panic"
    )
)]

mod cleanup;
mod daemon;
mod judge;
mod master;
mod options;
mod preflight;
mod progress;
mod report;
mod run;
mod sandbox;
mod site;
mod stories;

pub use options::Options;
pub use report::{Outcome, Report, Verdict};
pub use run::run;
pub use site::FAILOVER_TIMEOUT;
pub use stories::Name;
