//! Simulation: several daemons in one process on one thread, in virtual time, under a seed.
//!
//! What the daemons run is their real code: the services for apps, workflow engines, Kubernetes and discovery,
//! with the routes of their ports, the election of a leader with its terms and fenced writes, the
//! scheduler, and the client of the cluster's API. No components run: a matcher takes the first agents
//! with room on the wanted host, and the world answers checks. The store that the daemons share is simulated: it has the
//! contract of every store, and the worst behaviour that the contract allows. Masters and agents are the
//! state and the rules of the embedded cluster manager, behind connections that are slow, cut and silent.
//! The same [`Options`] always give the same [`Report`].
//!
//! * `machine`, `process`, `clock`: the machine of a daemon, its tasks, and the time that they see
//! * `store`: the shared store
//! * `network`, `zookeeper`, `agents`, `calls`: the masters' connections and registrations, the
//!   processes of tasks, calls to the masters
//! * `orchestrator`: the Kubernetes cluster that some of these processes form
//! * `http`: requests to the daemons' ports
//! * `candidate`, `services`: the daemon
//! * `clients`: those who use its APIs
//! * `faults`: what happens to all of them, and when
//! * `invariants`, `zones`: what must hold after each step
//! * `trace`: what happened, and its digest
//! * `run`: one simulation. `simplify`: a simpler one that violates the same invariant

#![forbid(unsafe_code)]

mod agents;
mod calls;
mod candidate;
mod clients;
mod clock;
mod faults;
mod holders;
mod http;
mod invariants;
mod machine;
mod network;
mod orchestrator;
mod process;
mod run;
mod services;
mod simplify;
mod store;
mod trace;
mod watchdog;
mod zones;
mod zookeeper;

pub use invariants::Violation;
pub use run::{Options, Report, conforms, faults, run};
pub use simplify::simplified;
pub use store::Sabotage;

/// The version of the world. With another one, a seed gives another run: increase it when the world
/// makes other choices.
pub const WORLD: u32 = 3;
