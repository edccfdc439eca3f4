//! Does it hold when things go wrong? A seeded run of writes and faults against the real binary.
//!
//! [`run`] starts a cluster manager with three agents and a daemon as processes, and carries out a schedule: apps are
//! posted, scaled, changed and deleted over the HTTP API, while the daemon is killed, stopped and frozen, its store and
//! tasks are killed, and the cluster has faults of its own. From time to time the schedule lets everything come to rest;
//! then, and some of it always, the invariants have to hold:
//!
//! | invariant | judged by |
//! |---|---|
//! | every wanted task runs exactly once | the process table, at quiet moments |
//! | no unwanted task runs | the process table, at quiet moments |
//! | no acknowledged write is lost | the definitions after faults, and the processes launched from them |
//! | no terminal task comes back | the agents' journals and the process table, at all times |
//! | no task has two processes | the process table, at all times |
//! | nothing is left running at the end | the process table |
//!
//! # Promises
//!
//! * The sequence of writes and faults comes from the seed alone, whatever comes of them and however fast the machine is.
//!   The moments at which they fall do not repeat to the millisecond: a seed that fails may have to be run more than once.
//! * What runs is never asked of the daemon. A task's process is known by its environment.
//! * A write counts as lost only when it was acknowledged. What became of one without an answer is unknown, and both
//!   outcomes are right.
//! * All programs and tasks are gone when a run ends, also by failing or by a signal, short of SIGKILL.
//!
//! # How it fails
//!
//! A broken invariant is part of the [`Report`], with the command that repeats the run; logs, journals and what daemon and
//! master said of it are kept. An error means that the run could not be carried out.
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

mod client;
mod fault;
mod judge;
mod model;
mod observe;
mod report;
mod run;
mod schedule;
mod site;
mod spec;
mod watch;

pub use report::{Held, Report, Writes};
pub use run::{Options, run};
pub use site::Store;
