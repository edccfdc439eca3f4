//! Persistent state: compiled components, the files of admitted versions and the call log in the
//! host's private directory, admission records in the store.

pub(crate) mod admission_record;
pub(crate) mod call_log;
pub(crate) mod compiled_cache;
pub(crate) mod history;
pub(crate) mod staged_files;
pub(crate) mod version_store;
