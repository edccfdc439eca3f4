//! Faults of a call into a component.

use std::{sync::Arc, time::Duration};

use crate::error::CallError;

/// The guest's stack, innermost frame first, a line for each frame.
pub(crate) type Frames = Arc<[String]>;

/// Why a call failed. The instance cannot be entered again after any of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Trapped(String, Frames),
    TimedOut(Duration),
    CpuExhausted(Duration, Frames),
    /// The limit, and the resource that it limits.
    OutOfMemory(u64, &'static str, Frames),
    Malformed(String),
}

impl Fault {
    /// Returns the error for the caller of plugin `name`.
    pub(crate) fn to_error(&self, name: &str) -> CallError {
        let name = name.to_owned();
        match self {
            Fault::Trapped(message, _) => CallError::Trapped {
                name,
                message: message.clone(),
            },
            Fault::TimedOut(limit) => CallError::TimedOut { name, limit: *limit },
            Fault::CpuExhausted(limit, _) => CallError::CpuExhausted { name, limit: *limit },
            Fault::OutOfMemory(limit, what, _) => CallError::OutOfMemory {
                name,
                limit: *limit,
                what,
            },
            Fault::Malformed(message) => CallError::Malformed {
                name,
                message: message.clone(),
            },
        }
    }

    /// The guest's stack; empty if no guest code was running.
    pub(crate) fn frames(&self) -> &[String] {
        match self {
            Fault::Trapped(_, frames) | Fault::CpuExhausted(_, frames) | Fault::OutOfMemory(_, _, frames) => {
                frames
            }
            Fault::TimedOut(_) | Fault::Malformed(_) => &[],
        }
    }
}
