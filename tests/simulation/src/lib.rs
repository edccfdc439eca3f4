//! Simulation: several daemons in one process on one thread, in virtual time, under a seed.
//!
//! What the daemons run is their real code: the election of a leader
//! ([`transom_store::Election`]) with its terms and fenced writes, the scheduler
//! ([`transom_scheduler`]) and the client of the cluster's API; the matcher and the service on top
//! are simple ones. The store that they share is simulated: it has the contract of every store, and
//! the worst behaviour that the contract allows. Master and agents are the state and the rules of
//! the embedded cluster manager, behind connections that are slow, cut and silent. The same
//! [`Options`] always give the same [`Report`].
//!
//! * `process`, `clock`: the tasks of a daemon, and the time that they see
//! * `store`: the shared store
//! * `network`, `agents`, `calls`: the master's connections, the processes of tasks, calls to the
//!   master
//! * `candidate`, `jobs`: the daemon, as a program around the real election and scheduler
//! * `clients`: those who send jobs
//! * `faults`: what happens to all of them, and when
//! * `invariants`: what must hold after each step
//! * `trace`: what happened, and its digest
//! * `run`: one simulation

#![forbid(unsafe_code)]

mod agents;
mod calls;
mod candidate;
mod clients;
mod clock;
mod faults;
mod invariants;
mod jobs;
mod network;
mod process;
mod run;
mod store;
mod trace;

pub use invariants::Violation;
pub use run::{Options, Report, conforms, run};
pub use store::Sabotage;
