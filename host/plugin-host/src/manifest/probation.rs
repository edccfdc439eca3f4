//! The section `[probation]`.

use std::time::Duration;

use serde::Serialize;

/// When a failing version is rolled back or disabled. A manifest's `[probation]` overrides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Probation {
    /// How long after a swap the previous version can be restored.
    pub window: Duration,
    /// Faults that a new version may have within the window. A version with more consecutive faults
    /// and no predecessor is disabled.
    pub max_faults: u32,
}

impl Default for Probation {
    fn default() -> Self {
        Probation {
            window: Duration::from_mins(10),
            max_faults: 10,
        }
    }
}
