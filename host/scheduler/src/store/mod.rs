//! Stored data: the task records and the framework id.

pub(crate) mod intern;
pub(crate) mod ledger;
pub(crate) mod records;
pub(crate) mod reservations;
pub(crate) mod transition;
