//! The life of a version, from its files to its replacement.
//!
//! `directory` is the actor: it watches the files, starts admissions, and executes the decisions of
//! `state`, which is a pure function. `admission` validates a component, `replay` repeats recorded
//! calls on it, and `table` is the snapshot for calls and operators.

pub(crate) mod admission;
pub(crate) mod directory;
pub(crate) mod replay;
mod state;
pub(crate) mod table;
