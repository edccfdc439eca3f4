//! How a call into a component fails.

use std::time::Duration;

use crate::error::CallError;

/// Why a call failed. The instance cannot be entered again after any of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Trapped(String),
    TimedOut(Duration),
    CpuExhausted(Duration),
    OutOfMemory(u64),
    Malformed(String),
}

impl Fault {
    /// As the caller of plugin `name` sees it.
    pub(crate) fn into_error(self, name: &str) -> CallError {
        let name = name.to_owned();
        match self {
            Fault::Trapped(message) => CallError::Trapped { name, message },
            Fault::TimedOut(limit) => CallError::TimedOut { name, limit },
            Fault::CpuExhausted(limit) => CallError::CpuExhausted { name, limit },
            Fault::OutOfMemory(limit) => CallError::OutOfMemory { name, limit },
            Fault::Malformed(message) => CallError::Malformed { name, message },
        }
    }
}
