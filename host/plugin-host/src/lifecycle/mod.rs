//! From files to a serving version, and its life from then on.
//!
//! `directory` is the actor: it watches the files, starts admissions, and executes what `state`,
//! the pure rule, decides. `admission` validates a component, `replay` asks it recorded calls, and
//! `table` is what calls and operators read.

pub(crate) mod admission;
pub(crate) mod directory;
pub(crate) mod replay;
mod state;
pub(crate) mod table;
