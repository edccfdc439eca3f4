//! The life of a plugin's versions as a pure rule: which one serves, which one may return, which one
//! runs as a shadow.
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
//! [`transition`] knows neither the clock nor the table; the directory's task executes the effects in
//! their order.

use crate::{
    observe::health::{Generation, HealthAction},
    storage::admission_record::Outcome,
};

/// The versions of one plugin. `V`: an admitted version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PluginState<V> {
    /// No version was admitted.
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
    /// The files in the directory passed admission. `as_shadow`: they are compared first, if another
    /// version serves.
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

impl<V> Default for PluginState<V> {
    fn default() -> Self {
        PluginState::Absent
    }
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
            let (state, mut effects) = activate(state, start(version), predecessor);
            effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
            (state, effects)
        }
        (Event::Restored { version }, state) => {
            // It is recorded already.
            let report = report(Outcome::Admitted, &version, "directory", None);
            let (state, mut effects) = activate(state, start(version), None);
            effects.push(Effect::Publish(report));
            (state, effects)
        }
        (Event::RolledBack { version, by, reason }, state) => roll_back(state, start(version), by, reason),
        (Event::Promoted { by }, PluginState::ServingWithShadow { serving, shadow, .. }) => {
            promote(serving.version, start(shadow.version), by, None)
        }
        (
            Event::ShadowAgreed { generation, reason },
            PluginState::ServingWithShadow { serving, shadow, .. },
        ) if shadow.generation == generation => promote(
            serving.version,
            start(shadow.version),
            "shadow".to_owned(),
            Some(reason),
        ),
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
    state: PluginState<V>,
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
    by: String,
    reason: Option<String>,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = report(Outcome::Admitted, &promoted.version, &by, reason);
    let (state, mut effects) = activate(PluginState::Absent, promoted, Some(predecessor));
    effects.extend([Effect::Record(report.clone()), Effect::Publish(report)]);
    (state, effects)
}

fn roll_back<V: Clone>(
    state: PluginState<V>,
    to: Running<V>,
    by: String,
    reason: String,
) -> (PluginState<V>, Vec<Effect<V>>) {
    let report = Report {
        from: state.serving().map(|it| it.version.clone()),
        ..report(Outcome::RolledBack, &to.version, &by, Some(reason))
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
            return roll_back(serving, start(predecessor), "probation".to_owned(), reason);
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
mod tests {
    use super::*;

    type State = PluginState<&'static str>;

    /// The version that this event starts.
    const NEXT: u64 = 9;

    fn running(version: &'static str, generation: u64) -> Running<&'static str> {
        Running {
            version,
            generation: Generation(generation),
        }
    }

    fn serving(version: &'static str, generation: u64) -> State {
        PluginState::Serving(running(version, generation))
    }

    fn on_probation(version: &'static str, generation: u64, predecessor: &'static str) -> State {
        PluginState::OnProbation {
            serving: running(version, generation),
            predecessor,
        }
    }

    /// "b" of generation 1 serves, "s" of generation 2 is its shadow.
    fn shadowed(predecessor: Option<&'static str>) -> State {
        PluginState::ServingWithShadow {
            serving: running("b", 1),
            shadow: running("s", 2),
            predecessor,
        }
    }

    fn admitted(as_shadow: bool) -> Event<&'static str> {
        Event::Admitted {
            version: "new",
            as_shadow,
        }
    }

    fn failed(generation: u64, action: HealthAction) -> Event<&'static str> {
        Event::Failed {
            generation: Generation(generation),
            action,
            reason: "faults".to_owned(),
        }
    }

    fn agreed(generation: u64) -> Event<&'static str> {
        Event::ShadowAgreed {
            generation: Generation(generation),
            reason: "agreed".to_owned(),
        }
    }

    fn rolled_back() -> Event<&'static str> {
        Event::RolledBack {
            version: "old",
            by: "me".to_owned(),
            reason: "why".to_owned(),
        }
    }

    /// Effects in short.
    fn shown(effects: &[Effect<&'static str>]) -> String {
        let one = |effect: &Effect<&'static str>| match effect {
            Effect::Activate {
                running,
                on_probation,
            } => {
                assert_eq!(running.generation, Generation(NEXT));
                let probation = if *on_probation { " on probation" } else { "" };
                format!("activate {}{probation}", running.version)
            }
            Effect::StartShadow(running) => {
                assert_eq!(running.generation, Generation(NEXT));
                format!("shadow {}", running.version)
            }
            Effect::ShadowDropped => "drop shadow".to_owned(),
            Effect::Disable { .. } => "disable".to_owned(),
            Effect::ShowRefusal { .. } => "refuse".to_owned(),
            Effect::Forget => "forget".to_owned(),
            Effect::Record(report) => format!(
                "record {:?} {} by {}",
                report.outcome,
                report.version.unwrap_or("-"),
                report.by
            ),
            Effect::Publish(report) => format!(
                "publish {:?}{}",
                report.outcome,
                report
                    .from
                    .map(|from| format!(" from {from}"))
                    .unwrap_or_default()
            ),
        };
        effects.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn plugin_state_follows_events() {
        use HealthAction::{Disable, Revert};
        let admitted_effects = "record Admitted new by directory, publish Admitted";
        let shadow_effects = "shadow new, record Shadowing new by directory, publish Shadowing";
        let cases: Vec<(State, Event<&'static str>, State, String)> = vec![
            // New files.
            (
                PluginState::Absent,
                admitted(false),
                serving("new", NEXT),
                format!("activate new, {admitted_effects}"),
            ),
            (
                PluginState::Absent,
                admitted(true),
                serving("new", NEXT),
                format!("activate new, {admitted_effects}"),
            ),
            (
                serving("a", 1),
                admitted(false),
                on_probation("new", NEXT, "a"),
                format!("activate new on probation, {admitted_effects}"),
            ),
            (
                on_probation("b", 1, "a"),
                admitted(false),
                on_probation("new", NEXT, "b"),
                format!("activate new on probation, {admitted_effects}"),
            ),
            (
                shadowed(None),
                admitted(false),
                on_probation("new", NEXT, "b"),
                format!("activate new on probation, drop shadow, {admitted_effects}"),
            ),
            (
                PluginState::Disabled("a"),
                admitted(false),
                serving("new", NEXT),
                format!("activate new, {admitted_effects}"),
            ),
            (
                PluginState::Disabled("a"),
                admitted(true),
                serving("new", NEXT),
                format!("activate new, {admitted_effects}"),
            ),
            // As a shadow.
            (
                serving("a", 1),
                admitted(true),
                PluginState::ServingWithShadow {
                    serving: running("a", 1),
                    shadow: running("new", NEXT),
                    predecessor: None,
                },
                shadow_effects.to_owned(),
            ),
            (
                on_probation("b", 1, "a"),
                admitted(true),
                PluginState::ServingWithShadow {
                    serving: running("b", 1),
                    shadow: running("new", NEXT),
                    predecessor: Some("a"),
                },
                shadow_effects.to_owned(),
            ),
            (
                shadowed(Some("a")),
                admitted(true),
                PluginState::ServingWithShadow {
                    serving: running("b", 1),
                    shadow: running("new", NEXT),
                    predecessor: Some("a"),
                },
                shadow_effects.to_owned(),
            ),
            // Promotion.
            (
                shadowed(None),
                agreed(2),
                on_probation("s", NEXT, "b"),
                "activate s on probation, record Admitted s by shadow, publish Admitted".to_owned(),
            ),
            (shadowed(None), agreed(3), shadowed(None), String::new()),
            (serving("a", 2), agreed(2), serving("a", 2), String::new()),
            (
                shadowed(Some("a")),
                Event::Promoted { by: "me".to_owned() },
                on_probation("s", NEXT, "b"),
                "activate s on probation, record Admitted s by me, publish Admitted".to_owned(),
            ),
            (
                serving("a", 1),
                Event::Promoted { by: "me".to_owned() },
                serving("a", 1),
                String::new(),
            ),
            // Faults.
            (
                on_probation("b", 1, "a"),
                failed(1, Revert),
                serving("a", NEXT),
                "activate a, record RolledBack a by probation, publish RolledBack from b".to_owned(),
            ),
            (
                shadowed(Some("a")),
                failed(1, Revert),
                serving("a", NEXT),
                "activate a, drop shadow, record RolledBack a by probation, publish RolledBack from b"
                    .to_owned(),
            ),
            (
                serving("b", 1),
                failed(1, Revert),
                PluginState::Disabled("b"),
                "disable, record Disabled b by probation, publish Disabled".to_owned(),
            ),
            (
                on_probation("b", 1, "a"),
                failed(1, Disable),
                PluginState::Disabled("b"),
                "disable, record Disabled b by probation, publish Disabled".to_owned(),
            ),
            (
                shadowed(None),
                failed(1, Disable),
                PluginState::Disabled("b"),
                "disable, record Disabled b by probation, publish Disabled".to_owned(),
            ),
            (
                on_probation("b", 1, "a"),
                failed(7, Revert),
                on_probation("b", 1, "a"),
                String::new(),
            ),
            (
                PluginState::Disabled("b"),
                failed(1, Disable),
                PluginState::Disabled("b"),
                String::new(),
            ),
            (
                PluginState::Absent,
                failed(1, Disable),
                PluginState::Absent,
                String::new(),
            ),
            // Rollbacks by an operator.
            (
                on_probation("b", 1, "a"),
                rolled_back(),
                serving("old", NEXT),
                "activate old, record RolledBack old by me, publish RolledBack from b".to_owned(),
            ),
            (
                PluginState::Disabled("b"),
                rolled_back(),
                serving("old", NEXT),
                "activate old, record RolledBack old by me, publish RolledBack".to_owned(),
            ),
            (
                shadowed(None),
                rolled_back(),
                serving("old", NEXT),
                "activate old, drop shadow, record RolledBack old by me, publish RolledBack from b"
                    .to_owned(),
            ),
            // A restart adds no record.
            (
                PluginState::Absent,
                Event::Restored { version: "old" },
                serving("old", NEXT),
                "activate old, publish Admitted".to_owned(),
            ),
            // The end of probation.
            (
                on_probation("b", 1, "a"),
                Event::ProbationPassed,
                serving("b", 1),
                String::new(),
            ),
            (
                shadowed(Some("a")),
                Event::ProbationPassed,
                shadowed(None),
                String::new(),
            ),
            (
                serving("b", 1),
                Event::ProbationPassed,
                serving("b", 1),
                String::new(),
            ),
            // Refused and removed files.
            (
                shadowed(Some("a")),
                Event::Refused {
                    reason: "x".to_owned(),
                },
                shadowed(Some("a")),
                "refuse, record Refused - by directory, publish Refused".to_owned(),
            ),
            (
                shadowed(Some("a")),
                Event::Removed,
                PluginState::Absent,
                "forget, record Removed - by directory, publish Removed".to_owned(),
            ),
        ];
        for (state, event, expected, effects) in cases {
            let case = format!("{state:?}, {event:?}");
            let (found, done) = transition(state, event, Generation(NEXT));
            assert_eq!(found, expected, "{case}");
            assert_eq!(shown(&done), effects, "{case}");
        }
    }

    #[test]
    fn serving_and_current_version_of_each_state() {
        for (state, serving, current, predecessor) in [
            (PluginState::Absent, None, None, false),
            (serving("a", 1), Some("a"), Some("a"), false),
            (on_probation("b", 1, "a"), Some("b"), Some("b"), true),
            (shadowed(None), Some("b"), Some("b"), false),
            (shadowed(Some("a")), Some("b"), Some("b"), true),
            (PluginState::Disabled("a"), None, Some("a"), false),
        ] {
            assert_eq!(state.serving().map(|it| it.version), serving, "{state:?}");
            assert_eq!(state.current().copied(), current, "{state:?}");
            assert_eq!(state.has_predecessor(), predecessor, "{state:?}");
        }
    }
}
