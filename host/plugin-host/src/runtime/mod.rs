//! Runs components: the engine, the instances of a version and their threads, and the calls.
//!
//! `engine` is the only module that uses wasmtime. `pool` manages the instances of one version.
//! `active_version` is the only way to call a version; `candidate` runs another version alongside
//! it; `shadow` repeats calls and compares the answers; `recording` sends calls to the call log;
//! `version_context` is what all parts of a version share; `child_process` runs what is untrusted or
//! costly, compilations and `config_check`, in separate processes; `thread_priority` lowers the priority of threads whose work is not urgent.

pub(crate) mod active_version;
pub(crate) mod candidate;
mod child_process;
pub(crate) mod config_check;
pub(crate) mod engine;
pub(crate) mod executor;
pub(crate) mod pool;
pub(crate) mod recording;
pub(crate) mod shadow;
mod thread_priority;
pub(crate) mod version_context;
