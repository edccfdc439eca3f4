//! What the scheduler keeps in the state store: the records of its tasks and the framework's id.

pub(crate) mod intern;
pub(crate) mod ledger;
pub(crate) mod transition;
