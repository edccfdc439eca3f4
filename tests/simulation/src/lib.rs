//! Simulation: several daemons in one process on one thread, in virtual time, under a seed.
//!
//! What the daemons run is their real code; so far this is the election of a leader
//! ([`transom_store::Election`]) with its terms and fenced writes. The store that they share is
//! simulated: it has the contract of every store, and the worst behaviour that the contract allows.
//! The same [`Options`] always give the same [`Report`].
//!
//! * `process`: the tasks of a daemon and its clock
//! * `store`: the shared store
//! * `candidate`: the daemon, as a program around the real election
//! * `faults`: what happens to daemons and store, and when
//! * `invariants`: what must hold after each step
//! * `trace`: what happened, and its digest
//! * `run`: one simulation

#![forbid(unsafe_code)]

mod candidate;
mod faults;
mod invariants;
mod process;
mod run;
mod store;
mod trace;

pub use invariants::Violation;
pub use run::{Options, Report, conforms, run};
pub use store::Sabotage;
