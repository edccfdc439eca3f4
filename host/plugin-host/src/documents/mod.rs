//! Calls of each world and their answers as documents of [`transom_plugin_cases`], for the call
//! log, for comparisons and for explanations. Parts of a call that a case cannot express are left
//! out.

pub(crate) mod bootstrap;
pub(crate) mod events;
pub(crate) mod matcher;
mod observed;
pub(crate) mod probe;

pub(crate) use observed::ObservedCall;
