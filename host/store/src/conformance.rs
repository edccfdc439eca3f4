//! What every store must do, as tests that run against any of them.
//!
//! A store's own tests call [`run`] with an empty store; a failed promise is a panic that names it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc
)] // A test suite: failing is its answer.
