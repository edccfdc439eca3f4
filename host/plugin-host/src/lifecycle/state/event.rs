//! Events of a plugin's state, and their effects.

use super::Running;
use crate::{
    observe::{
        health::{Generation, HealthAction},
        status::RolloutKind,
    },
    storage::admission_record::AdmissionOutcome,
};

/// An event that may change a plugin's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) enum Event<V> {
    /// The files in the directory passed admission. `candidate_kind`: how they first run alongside the
    /// serving version, if there is one. `by`: how they came into the directory.
    Admitted {
        version: V,
        candidate_kind: Option<RolloutKind>,
        by: FilesFrom,
    },
    /// After a restart: the version that served before, which is not the one in the directory.
    Restored { version: V },
    /// The files in the directory did not pass admission.
    Rejected { reason: String, by: FilesFrom },
    /// An operator rolled back to an earlier version.
    RolledBack { version: V, by: String, reason: String },
    /// An operator promoted the candidate.
    Promoted { by: String },
    /// An operator stopped the candidate.
    Aborted { by: String },
    /// The candidate of this generation met its plan.
    CandidateAgreed { generation: Generation, reason: String },
    /// The candidate of this generation exceeds a limit of its plan.
    CandidateFailed { generation: Generation, reason: String },
    /// The version of this generation, which serves or is a canary, has too many faults.
    Failed {
        generation: Generation,
        action: HealthAction,
        reason: String,
    },
    /// The predecessor is no longer needed, because the probation has passed.
    ProbationPassed,
    /// The files, or the manifest, were removed.
    Removed,
}

/// How the files came into the directory; recorded as the cause.
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

/// An effect of an event, to be executed by the directory's task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) enum Effect<V> {
    /// Start the version and put it into the table.
    Activate { running: Running<V>, on_probation: bool },
    /// Start the version alongside the serving one.
    StartCandidate { running: Running<V>, kind: RolloutKind },
    /// The candidate ends, and the serving version answers all calls.
    EndCandidate,
    /// The candidate ends, because the version alongside which it ran no longer serves.
    CandidateDropped(RolloutKind),
    /// Take the serving version out of service.
    Disable { reason: String },
    /// Show why the files were rejected.
    ShowRejection { reason: String },
    /// Remove the plugin's data.
    Forget,
    /// Add an admission record.
    Record(ChangeReport<V>),
    /// Notify subscribers and write to the log.
    Publish(ChangeReport<V>),
}

/// A change of a plugin, for the history, subscribers and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) struct ChangeReport<V> {
    pub(in crate::lifecycle) outcome: AdmissionOutcome,
    /// `None` if the change does not concern an admitted version.
    pub(in crate::lifecycle) version: Option<V>,
    /// The version that served before, for a rollback and a promotion.
    pub(in crate::lifecycle) from: Option<V>,
    pub(in crate::lifecycle) by: String,
    pub(in crate::lifecycle) reason: Option<String>,
}
