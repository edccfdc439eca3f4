//! The state of a plugin's versions as a pure function: which one serves, which one can be
//! restored, and which one runs alongside it as a shadow or as a canary.
//!
//! ```text
//!              admitted                       admitted
//!   Absent ---------------> Serving -----------------------> OnProbation
//!                             ^  ^                            |    |
//!                             |  +-- faults: predecessor -----+    | probation passed
//!                             +------------------------------------+
//!   Serving, OnProbation -- admitted beside --> ServingWithCandidate -- agreed, promoted --> OnProbation
//!   ServingWithCandidate -- canary failed, aborted --> Serving, OnProbation
//!   any state that serves -- faults, no predecessor --> Disabled -- admitted --> Serving
//!   any state -- rollback --> Serving        any state -- files removed --> Absent
//! ```
//!
//! A rejection and an unfinished admission do not change the state: the serving version continues.
//! [`transition`] reads neither the clock nor the table; the directory's task executes the effects
//! in their order.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod event;

use crate::{
    observe::{
        health::{Generation, HealthAction},
        status::RolloutKind,
    },
    storage::admission_record::AdmissionOutcome,
};
pub(super) use event::{ChangeReport, Effect, Event, FilesFrom};

/// The versions of one plugin. `V`: an admitted version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PluginState<V> {
    /// No version was admitted.
    #[default]
    Absent,
    Serving(Running<V>),
    /// The predecessor is restored after too many faults.
    OnProbation {
        serving: Running<V>,
        predecessor: V,
    },
    ServingWithCandidate(Candidacy<V>),
    /// This version failed, and none serves.
    Disabled(V),
}

/// A version that runs alongside the serving one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidacy<V> {
    pub(super) serving: Running<V>,
    pub(super) candidate: Running<V>,
    pub(super) kind: RolloutKind,
    /// Set while the serving version is on probation.
    pub(super) predecessor: Option<V>,
}

/// A version that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running<V> {
    pub(super) version: V,
    pub(super) generation: Generation,
}

impl<V> PluginState<V> {
    /// The version that serves.
    pub(super) fn serving(&self) -> Option<&Running<V>> {
        match self {
            PluginState::Serving(serving)
            | PluginState::OnProbation { serving, .. }
            | PluginState::ServingWithCandidate(Candidacy { serving, .. }) => Some(serving),
            PluginState::Absent | PluginState::Disabled(_) => None,
        }
    }

    /// The version that serves, or served until it was disabled.
    pub(super) fn current(&self) -> Option<&V> {
        match self {
            PluginState::Disabled(version) => Some(version),
            other => other.serving().map(|it| &it.version),
        }
    }

    pub(super) fn has_predecessor(&self) -> bool {
        match self {
            PluginState::OnProbation { .. } => true,
            PluginState::ServingWithCandidate(candidacy) => candidacy.predecessor.is_some(),
            PluginState::Absent | PluginState::Serving(_) | PluginState::Disabled(_) => false,
        }
    }

    fn into_predecessor(self) -> Option<V> {
        match self {
            PluginState::OnProbation { predecessor, .. } => Some(predecessor),
            PluginState::ServingWithCandidate(candidacy) => candidacy.predecessor,
            PluginState::Absent | PluginState::Serving(_) | PluginState::Disabled(_) => None,
        }
    }
}

/// Returns the next state and the effects. `next`: the generation of a version that this event
/// starts.
pub(super) fn transition<V: Clone>(
    state: PluginState<V>,
    event: Event<V>,
    next: Generation,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let start = |version| Running {
        version,
        generation: next,
    };
    match (event, state) {
        (
            Event::Admitted {
                version,
                candidate_kind: Some(kind),
                by,
            },
            state @ (PluginState::Serving(_)
            | PluginState::OnProbation { .. }
            | PluginState::ServingWithCandidate(_)),
        ) => add_candidate(state, start(version), kind, by),
        (Event::Admitted { version, by, .. }, state) => {
            let report = report(AdmissionOutcome::Admitted, &version, by.name(), None);
            let predecessor = state.serving().map(|it| it.version.clone());
            let (state, mut effects) = activate(&state, start(version), predecessor);
            effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
            (state, effects)
        }
        (Event::Restored { version }, state) => {
            // The version has a record already.
            let by = FilesFrom::Directory.name();
            let report = report(AdmissionOutcome::Admitted, &version, by, None);
            let (state, mut effects) = activate(&state, start(version), None);
            effects.push(Effect::Publish(report));
            (state, effects)
        }
        (Event::RolledBack { version, by, reason }, state) => roll_back(&state, start(version), &by, reason),
        (Event::Promoted { by }, PluginState::ServingWithCandidate(candidacy)) => {
            let reason = format!("promoted by {by}");
            promote(candidacy, start, &by, reason)
        }
        (Event::CandidateAgreed { generation, reason }, PluginState::ServingWithCandidate(candidacy))
            if candidacy.candidate.generation == generation =>
        {
            let by = name_of(candidacy.kind);
            promote(candidacy, start, by, reason)
        }
        (Event::Aborted { by }, PluginState::ServingWithCandidate(candidacy)) => {
            let reason = format!("aborted by {by}");
            abort_candidate(candidacy, &by, reason)
        }
        (
            Event::CandidateFailed { generation, reason }
            | Event::Failed {
                generation, reason, ..
            },
            PluginState::ServingWithCandidate(candidacy),
        ) if candidacy.candidate.generation == generation => {
            let by = name_of(candidacy.kind);
            abort_candidate(candidacy, by, reason)
        }
        (
            Event::Failed {
                generation,
                action,
                reason,
            },
            state,
        ) if state.serving().is_some_and(|it| it.generation == generation) => {
            fail(state, action, reason, start)
        }
        (Event::ProbationPassed, PluginState::OnProbation { serving, .. }) => {
            (PluginState::Serving(serving), Vec::new())
        }
        (Event::ProbationPassed, PluginState::ServingWithCandidate(candidacy)) => {
            let candidacy = Candidacy {
                predecessor: None,
                ..candidacy
            };
            (PluginState::ServingWithCandidate(candidacy), Vec::new())
        }
        (Event::Rejected { reason, by }, state) => reject(state, reason, by),
        (Event::Removed, _) => remove(),
        // The event concerns a version that was replaced or a candidate that ended in the meantime.
        (
            Event::Promoted { .. }
            | Event::Aborted { .. }
            | Event::CandidateAgreed { .. }
            | Event::CandidateFailed { .. }
            | Event::Failed { .. }
            | Event::ProbationPassed,
            state,
        ) => (state, Vec::new()),
    }
}

fn report<V: Clone>(
    outcome: AdmissionOutcome,
    version: &V,
    by: &str,
    reason: Option<String>,
) -> ChangeReport<V> {
    ChangeReport {
        outcome,
        version: Some(version.clone()),
        from: None,
        by: by.to_owned(),
        reason,
    }
}

/// Another version serves now. A candidate alongside the previous one ends.
fn activate<V: Clone>(
    state: &PluginState<V>,
    running: Running<V>,
    predecessor: Option<V>,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let mut effects = vec![Effect::Activate {
        running: running.clone(),
        on_probation: predecessor.is_some(),
    }];
    if let PluginState::ServingWithCandidate(candidacy) = state {
        effects.push(Effect::CandidateDropped(candidacy.kind));
    }
    let state = match predecessor {
        Some(predecessor) => PluginState::OnProbation {
            serving: running,
            predecessor,
        },
        None => PluginState::Serving(running),
    };
    (state, effects)
}

/// A new version runs alongside the serving one, in place of an earlier candidate.
fn add_candidate<V: Clone>(
    state: PluginState<V>,
    candidate: Running<V>,
    kind: RolloutKind,
    by: FilesFrom,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let Some(serving) = state.serving().cloned() else {
        return (state, Vec::new());
    };
    let outcome = match kind {
        RolloutKind::Shadow => AdmissionOutcome::Shadowing,
        RolloutKind::Canary => AdmissionOutcome::Canary,
    };
    let report = report(outcome, &candidate.version, by.name(), None);
    let effects = vec![
        Effect::StartCandidate {
            running: candidate.clone(),
            kind,
        },
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    let candidacy = Candidacy {
        serving,
        candidate,
        kind,
        predecessor: state.into_predecessor(),
    };
    (PluginState::ServingWithCandidate(candidacy), effects)
}

fn promote<V: Clone>(
    candidacy: Candidacy<V>,
    start: impl FnOnce(V) -> Running<V>,
    by: &str,
    reason: String,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let (before, promoted) = (candidacy.serving.version, start(candidacy.candidate.version));
    let report = ChangeReport {
        from: Some(before.clone()),
        ..report(AdmissionOutcome::Promoted, &promoted.version, by, Some(reason))
    };
    let (state, mut effects) = activate(&PluginState::Absent, promoted, Some(before));
    effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
    (state, effects)
}

/// The candidate is stopped, and its files are not admitted again.
fn abort_candidate<V: Clone>(
    candidacy: Candidacy<V>,
    by: &str,
    reason: String,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = report(
        AdmissionOutcome::Aborted,
        &candidacy.candidate.version,
        by,
        Some(reason),
    );
    let effects = vec![
        Effect::EndCandidate,
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    let serving = candidacy.serving;
    let state = match candidacy.predecessor {
        Some(predecessor) => PluginState::OnProbation { serving, predecessor },
        None => PluginState::Serving(serving),
    };
    (state, effects)
}

fn reject<V: Clone>(
    state: PluginState<V>,
    reason: String,
    by: FilesFrom,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = ChangeReport {
        outcome: AdmissionOutcome::Rejected,
        version: None,
        from: None,
        by: by.name().to_owned(),
        reason: Some(reason.clone()),
    };
    let effects = vec![
        Effect::ShowRejection { reason },
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    (state, effects)
}

fn remove<V: Clone>() -> (PluginState<V>, Vec<Effect<V>>) {
    let report = ChangeReport {
        outcome: AdmissionOutcome::Removed,
        version: None,
        from: None,
        by: FilesFrom::Directory.name().to_owned(),
        reason: None,
    };
    let effects = vec![
        Effect::Forget,
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    (PluginState::Absent, effects)
}

/// The name of the cause in records.
fn name_of(kind: RolloutKind) -> &'static str {
    match kind {
        RolloutKind::Shadow => "shadow",
        RolloutKind::Canary => "canary",
    }
}

fn roll_back<V: Clone>(
    state: &PluginState<V>,
    to: Running<V>,
    by: &str,
    reason: String,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = ChangeReport {
        from: state.serving().map(|it| it.version.clone()),
        ..report(AdmissionOutcome::RolledBack, &to.version, by, Some(reason))
    };
    let (state, mut effects) = activate(state, to, None);
    effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
    (state, effects)
}

/// Restores the predecessor. Without a predecessor the plugin is disabled.
fn fail<V: Clone>(
    state: PluginState<V>,
    action: HealthAction,
    reason: String,
    start: impl FnOnce(V) -> Running<V>,
) -> (PluginState<V>, Vec<Effect<V>>) {
    if action == HealthAction::Revert && state.has_predecessor() {
        let serving = state.clone();
        if let Some(predecessor) = state.into_predecessor() {
            return roll_back(&serving, start(predecessor), "probation", reason);
        }
        return (serving, Vec::new());
    }
    let Some(Running { version, .. }) = state.serving().cloned() else {
        return (state, Vec::new());
    };
    let report = report(
        AdmissionOutcome::Disabled,
        &version,
        "probation",
        Some(reason.clone()),
    );
    let effects = vec![
        Effect::Disable { reason },
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    (PluginState::Disabled(version), effects)
}

#[cfg(test)]
mod tests;
