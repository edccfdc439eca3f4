//! The life of a plugin's versions as a pure rule: which one serves, which one may return, which
//! one runs as a shadow.
//!
//! ```text
//!              admitted                       admitted
//!   Absent ---------------> Serving -----------------------> OnProbation
//!                             ^  ^                            |    |
//!                             |  +-- faults: predecessor -----+    | probation passed
//!                             +------------------------------------+
//!   Serving, OnProbation -- admitted as shadow --> ServingWithShadow -- agreed, promoted --> OnProbation
//!   any state that serves -- faults, no predecessor --> Disabled -- admitted --> Serving
//!   any state -- rollback --> Serving        any state -- files removed --> Absent
//! ```
//!
//! A refusal and an unfinished admission change nothing here: the version that serves continues.
//! [`transition`] knows neither the clock nor the table; the directory's task executes the effects
//! in their order.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use crate::{
    observe::health::{Generation, HealthAction},
    storage::admission_record::Outcome,
};

/// The versions of one plugin. `V`: an admitted version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PluginState<V> {
    /// No version was admitted.
    #[default]
    Absent,
    Serving(Running<V>),
    /// The predecessor returns after too many faults.
    OnProbation {
        serving: Running<V>,
        predecessor: V,
    },
    ServingWithShadow {
        serving: Running<V>,
        shadow: Running<V>,
        /// Set while the serving version is on probation.
        predecessor: Option<V>,
    },
    /// This version failed, and none serves.
    Disabled(V),
}

/// A version that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running<V> {
    pub(super) version: V,
    pub(super) generation: Generation,
}

/// What happens to a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event<V> {
    /// The files in the directory passed admission. `as_shadow`: they are compared first, if
    /// another version serves.
    Admitted { version: V, as_shadow: bool },
    /// After a restart: the version that served before it, in place of the files in the directory.
    Restored { version: V },
    /// The files in the directory did not pass admission.
    Refused { reason: String },
    /// An operator returns to an earlier version.
    RolledBack { version: V, by: String, reason: String },
    /// An operator promotes the shadow.
    Promoted { by: String },
    /// The shadow of this generation met its plan.
    ShadowAgreed { generation: Generation, reason: String },
    /// The version of this generation has too many faults.
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

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect<V> {
    /// Start the version and put it into the table.
    Activate { running: Running<V>, on_probation: bool },
    /// Start the version as the shadow of the serving one.
    StartShadow(Running<V>),
    /// The shadow ends, because another version serves than the one that it was compared with.
    ShadowDropped,
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
pub(super) struct Report<V> {
    pub(super) outcome: Outcome,
    /// None: it is of no admitted version.
    pub(super) version: Option<V>,
    /// The version that served before, for a rollback.
    pub(super) from: Option<V>,
    pub(super) by: String,
    pub(super) reason: Option<String>,
}

impl<V> PluginState<V> {
    /// The version that serves.
    pub(super) fn serving(&self) -> Option<&Running<V>> {
        match self {
            PluginState::Serving(serving)
            | PluginState::OnProbation { serving, .. }
            | PluginState::ServingWithShadow { serving, .. } => Some(serving),
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
        matches!(
            self,
            PluginState::OnProbation { .. }
                | PluginState::ServingWithShadow {
                    predecessor: Some(_),
                    ..
                }
        )
    }

    fn into_predecessor(self) -> Option<V> {
        match self {
            PluginState::OnProbation { predecessor, .. } => Some(predecessor),
            PluginState::ServingWithShadow { predecessor, .. } => predecessor,
            PluginState::Absent | PluginState::Serving(_) | PluginState::Disabled(_) => None,
        }
    }
}

/// The next state, and what to do. `next`: the generation of a version that this starts.
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
                as_shadow: true,
            },
            state @ (PluginState::Serving(_)
            | PluginState::OnProbation { .. }
            | PluginState::ServingWithShadow { .. }),
        ) => shadow(state, start(version)),
        (Event::Admitted { version, .. }, state) => {
            let report = report(Outcome::Admitted, &version, "directory", None);
            let predecessor = state.serving().map(|it| it.version.clone());
            let (state, mut effects) = activate(&state, start(version), predecessor);
            effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
            (state, effects)
        }
        (Event::Restored { version }, state) => {
            // It is recorded already.
            let report = report(Outcome::Admitted, &version, "directory", None);
            let (state, mut effects) = activate(&state, start(version), None);
            effects.push(Effect::Publish(report));
            (state, effects)
        }
        (Event::RolledBack { version, by, reason }, state) => roll_back(&state, start(version), &by, reason),
        (Event::Promoted { by }, PluginState::ServingWithShadow { serving, shadow, .. }) => {
            promote(serving.version, start(shadow.version), &by, None)
        }
        (
            Event::ShadowAgreed { generation, reason },
            PluginState::ServingWithShadow { serving, shadow, .. },
        ) if shadow.generation == generation => {
            promote(serving.version, start(shadow.version), "shadow", Some(reason))
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
        (Event::ProbationPassed, PluginState::ServingWithShadow { serving, shadow, .. }) => {
            let state = PluginState::ServingWithShadow {
                serving,
                shadow,
                predecessor: None,
            };
            (state, Vec::new())
        }
        (Event::Refused { reason }, state) => {
            let report = Report {
                outcome: Outcome::Refused,
                version: None,
                from: None,
                by: "directory".to_owned(),
                reason: Some(reason.clone()),
            };
            let effects = vec![
                Effect::ShowRefusal { reason },
                Effect::Record(report.clone()),
                Effect::Publish(report),
            ];
            (state, effects)
        }
        (Event::Removed, _) => {
            let report = Report {
                outcome: Outcome::Removed,
                version: None,
                from: None,
                by: "directory".to_owned(),
                reason: None,
            };
            let effects = vec![
                Effect::Forget,
                Effect::Record(report.clone()),
                Effect::Publish(report),
            ];
            (PluginState::Absent, effects)
        }
        // About a version that was replaced in the meantime, or a shadow that is gone.
        (
            Event::Promoted { .. }
            | Event::ShadowAgreed { .. }
            | Event::Failed { .. }
            | Event::ProbationPassed,
            state,
        ) => (state, Vec::new()),
    }
}

fn report<V: Clone>(outcome: Outcome, version: &V, by: &str, reason: Option<String>) -> Report<V> {
    Report {
        outcome,
        version: Some(version.clone()),
        from: None,
        by: by.to_owned(),
        reason,
    }
}

/// Another version serves; a shadow of the previous one ends.
fn activate<V: Clone>(
    state: &PluginState<V>,
    running: Running<V>,
    predecessor: Option<V>,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let mut effects = vec![Effect::Activate {
        running: running.clone(),
        on_probation: predecessor.is_some(),
    }];
    if matches!(state, PluginState::ServingWithShadow { .. }) {
        effects.push(Effect::ShadowDropped);
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

/// A new version runs as a shadow, in place of an earlier shadow.
fn shadow<V: Clone>(state: PluginState<V>, shadow: Running<V>) -> (PluginState<V>, Vec<Effect<V>>) {
    let Some(serving) = state.serving().cloned() else {
        return (state, Vec::new());
    };
    let report = report(Outcome::Shadowing, &shadow.version, "directory", None);
    let effects = vec![
        Effect::StartShadow(shadow.clone()),
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    let state = PluginState::ServingWithShadow {
        serving,
        shadow,
        predecessor: state.into_predecessor(),
    };
    (state, effects)
}

fn promote<V: Clone>(
    predecessor: V,
    promoted: Running<V>,
    by: &str,
    reason: Option<String>,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = report(Outcome::Admitted, &promoted.version, by, reason);
    let (state, mut effects) = activate(&PluginState::Absent, promoted, Some(predecessor));
    effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
    (state, effects)
}

fn roll_back<V: Clone>(
    state: &PluginState<V>,
    to: Running<V>,
    by: &str,
    reason: String,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = Report {
        from: state.serving().map(|it| it.version.clone()),
        ..report(Outcome::RolledBack, &to.version, by, Some(reason))
    };
    let (state, mut effects) = activate(state, to, None);
    effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
    (state, effects)
}

/// The predecessor returns; without one the plugin is disabled.
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
    let report = report(Outcome::Disabled, &version, "probation", Some(reason.clone()));
    let effects = vec![
        Effect::Disable { reason },
        Effect::Record(report.clone()),
        Effect::Publish(report),
    ];
    (PluginState::Disabled(version), effects)
}

#[cfg(test)]
mod tests;
