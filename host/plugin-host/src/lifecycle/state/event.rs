//! What happens to a plugin, and what follows from it.

use super::Running;
use crate::{
    observe::{
        health::{Generation, HealthAction},
        status::RolloutKind,
    },
    storage::admission_record::Outcome,
};

/// What happens to a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) enum Event<V> {
    /// The files in the directory passed admission. `beside`: how they run first, if another version
    /// serves. `by`: how they came there.
    Admitted {
        version: V,
        beside: Option<RolloutKind>,
        by: FilesFrom,
    },
    /// After a restart: the version that served before it, in place of the files in the directory.
    Restored { version: V },
    /// The files in the directory did not pass admission.
    Refused { reason: String, by: FilesFrom },
    /// An operator returns to an earlier version.
    RolledBack { version: V, by: String, reason: String },
    /// An operator promotes the candidate.
    Promoted { by: String },
    /// An operator stops the candidate.
    Returned { by: String },
    /// The candidate of this generation met its plan.
    CandidateAgreed { generation: Generation, reason: String },
    /// The candidate of this generation exceeds a limit of its plan.
    CandidateFailed { generation: Generation, reason: String },
    /// The version of this generation has too many faults. It serves, or is a canary.
    Failed {
        generation: Generation,
        action: HealthAction,
        reason: String,
    },
    /// The predecessor is no longer needed.
    ProbationPassed,
    /// The files, or the manifest, were removed.
    Removed,
}

/// How the files came into the directory, as the cause in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) enum FilesFrom {
    /// Copied there, or fetched from a registry.
    Directory,
    /// The host wrote them for an operator.
    Upload,
}

impl FilesFrom {
    pub(super) fn name(self) -> &'static str {
        match self {
            FilesFrom::Directory => "directory",
            FilesFrom::Upload => "upload",
        }
    }
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) enum Effect<V> {
    /// Start the version and put it into the table.
    Activate { running: Running<V>, on_probation: bool },
    /// Start the version beside the serving one.
    StartCandidate { running: Running<V>, kind: RolloutKind },
    /// The candidate ends, and the serving version answers all calls.
    EndCandidate,
    /// The candidate ends, because another version serves than the one beside which it ran.
    CandidateDropped(RolloutKind),
    /// Take the serving version out of service.
    Disable { reason: String },
    /// Show why the files were refused.
    ShowRefusal { reason: String },
    /// Forget the plugin.
    Forget,
    /// Add an admission record.
    Record(Report<V>),
    /// Inform subscribers and the log.
    Publish(Report<V>),
}

/// A change of a plugin, for the history, subscribers and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) struct Report<V> {
    pub(in crate::lifecycle) outcome: Outcome,
    /// None: it is of no admitted version.
    pub(in crate::lifecycle) version: Option<V>,
    /// The version that served before, for a rollback and a promotion.
    pub(in crate::lifecycle) from: Option<V>,
    pub(in crate::lifecycle) by: String,
    pub(in crate::lifecycle) reason: Option<String>,
}
