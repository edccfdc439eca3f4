//! Runs components: the engine, the instances of a version and their threads, and the calls.
//!
//! `engine` is the only module that uses wasmtime. `pool` has the instances of one version,
//! `active_version` the one way to ask a version, `candidate` another one beside it, `shadow` the
//! repetition of calls and the comparison, `recording` the way of its calls to the log,
//! `version_context` what all parts of a version share, and `thread_priority` the scheduling of
//! threads that may wait.

pub(crate) mod active_version;
pub(crate) mod candidate;
pub(crate) mod engine;
pub(crate) mod executor;
pub(crate) mod fault;
pub(crate) mod pool;
pub(crate) mod recording;
pub(crate) mod shadow;
mod thread_priority;
pub(crate) mod version_context;
