//! The daemon's acceptance test, run against any cluster manager's master.
//!
//! [`run`] checks the master ([`preflight`]), starts the real binary as a process with its own
//! frameworks, and runs [stories](Name) one after the other. It compares the daemon's answers with
//! those of the master, the agents and DNS. It uses no feature that only the embedded cluster
//! manager has: no faults, no journals, no process table.
//!
//! # Guarantees
//!
//! * Every framework's name begins with the name of the run, `transom-verify-` and eight
//!   hexadecimal digits. No other framework's task is touched.
//! * When [`run`] returns, also after a failure or a signal, the daemons are stopped and their
//!   frameworks are torn down; the report contains each of these steps that failed. After SIGKILL
//!   the master itself removes the frameworks after [`FAILOVER_TIMEOUT`].
//! * Each story has a timeout. A failed or late story does not prevent the others.
//!
//! # Errors
//!
//! A failed story is part of the [`Report`]. An error means that the run could not begin.

mod cleanup;
mod comparisons;
mod daemon;
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
