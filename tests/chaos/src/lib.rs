//! Chaos test: a seeded run of writes and faults against the real binary.
//!
//! [`run`] starts a cluster manager with three agents and a daemon as processes, and executes a
//! schedule: apps and pods, some of them in groups, are posted, scaled, changed and deleted over
//! the HTTP API, while the daemon is killed, stopped and frozen, its store and tasks are killed,
//! and the cluster injects its own faults. The same daemons run a Kubernetes framework, whose
//! agents are scaled. At intervals the schedule stops all faults. At these quiet moments all
//! invariants must hold; some of them must hold at any time:
//!
//! | invariant | judged by |
//! |---|---|
//! | every wanted task runs exactly once | the process table, at quiet moments |
//! | every checked task becomes healthy | the daemon's count, once the wanted tasks run |
//! | no unwanted task runs | the process table, at quiet moments |
//! | no acknowledged write is lost | the definitions after faults, and the processes launched from them |
//! | no terminal task comes back | the agents' journals and the process table, at all times |
//! | no task has two processes | the process table, at all times |
//! | the Kubernetes framework has one id | the process table, at all times |
//! | nothing is left running at the end | the process table |
//!
//! # Guarantees
//!
//! * The sequence of writes and faults depends on the seed only, not on their outcome or the
//!   machine's speed. Their timing does not repeat to the millisecond: a failing seed may have to
//!   be run more than once.
//! * Running tasks are observed without the daemon. A task's process is identified by its
//!   environment.
//! * Only an acknowledged write can be lost. The outcome of a write without an answer is unknown,
//!   and both outcomes are valid.
//! * All programs and tasks end with the run, also after a failure or a signal, except SIGKILL.
//!
//! # Failures
//!
//! A violated invariant is part of the [`Report`], with the command that repeats the run; logs,
//! journals and the views of daemon and master are kept. An error means that the run could not be
//! executed.

mod client;
mod fault;
mod framework;
mod invariants;
mod model;
mod observer;
mod report;
mod run;
mod schedule;
mod site;
mod spec;
mod task_processes;

pub use report::{InvariantReport, Report, Writes};
pub use run::{Options, run};
pub use site::Store;
