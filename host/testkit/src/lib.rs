//! Helpers for the tests of several crates. The crates of the daemon depend on this one only in
//! their tests.
//!
//! * [`assert_checked_in`]: a generated file is checked in as the code generates it
//! * [`containers`]: real containers, if a container runtime works
//! * [`assert_linear`]: the cost of a function grows as its input does
//! * [`eventually`], [`wait_for`], [`retry_until`]: wait for a condition, with a deadline
//! * [`free_port`], [`free_ports`]: ports that no process uses
//! * [`marathon_state`]: nodes of a Marathon's state in ZooKeeper
//! * [`redis`]: a real Redis server (feature `redis`)
//! * [`ScriptedScheduler`]: a scheduler without a master (feature `scheduler`)
//! * [`HeldStore`]: a store whose commits the test can hold (feature `store`)
//! * [`usage`]: processor time and memory of a process, for benchmarks
//! * [`zookeeper`]: a real ZooKeeper server, and the masters' registrations (feature `zookeeper`)
//!
//! Servers listen on loopback, keep their data in a temporary directory and end when their handle
//! is dropped. A server that does not start fails the test; the message names the Debian package.

#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure fails the test"
)]

mod checked_in;
pub mod containers;
mod growth;
pub mod marathon_state;
mod ports;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod proxies;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "scheduler")]
mod scheduler;
#[cfg(feature = "store")]
mod store;
pub mod usage;
mod wait;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use checked_in::assert_checked_in;
pub use growth::assert_linear;
pub use ports::{free_port, free_ports};
#[cfg(feature = "scheduler")]
pub use scheduler::ScriptedScheduler;
#[cfg(feature = "store")]
pub use store::HeldStore;
pub use wait::{WAIT_TIMEOUT, eventually, retry_until, wait_for};
