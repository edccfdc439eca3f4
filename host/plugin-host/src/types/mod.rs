//! What is asked and answered, in plain types that know nothing of how that is done. [`crate`]
//! re-exports those that callers use.

pub(crate) mod about;
pub mod bootstrap;
pub(crate) mod events;
pub(crate) mod matcher;
pub mod probe;
pub(crate) mod step;
