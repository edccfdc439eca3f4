//! Persistent state: compiled components and the files of admitted versions in the host's private
//! directory, admission records in the store.

pub(crate) mod admission_record;
pub(crate) mod compiled_cache;
pub(crate) mod history;
pub(crate) mod version_store;
