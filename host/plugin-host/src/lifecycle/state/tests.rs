use RolloutKind::{Canary, Shadow};

use super::*;

type State = PluginState<&'static str>;

/// The generation of the version that an event starts.
const NEW_GENERATION: u64 = 9;

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

/// State in which "b" of generation 1 serves and "s" of generation 2 runs alongside it.
fn with_candidate(kind: RolloutKind, predecessor: Option<&'static str>) -> State {
    PluginState::ServingWithCandidate(Candidacy {
        serving: running("b", 1),
        candidate: running("s", 2),
        kind,
        predecessor,
    })
}

/// State in which "new" runs alongside `serving`.
fn with_new(serving: Running<&'static str>, kind: RolloutKind, predecessor: Option<&'static str>) -> State {
    PluginState::ServingWithCandidate(Candidacy {
        serving,
        candidate: running("new", NEW_GENERATION),
        kind,
        predecessor,
    })
}

fn shadowed(predecessor: Option<&'static str>) -> State {
    with_candidate(Shadow, predecessor)
}

fn with_canary(predecessor: Option<&'static str>) -> State {
    with_candidate(Canary, predecessor)
}

fn admitted(candidate_kind: Option<RolloutKind>) -> Event<&'static str> {
    Event::Admitted {
        version: "new",
        candidate_kind,
        by: FilesFrom::Directory,
    }
}

fn failed(generation: u64, action: HealthAction) -> Event<&'static str> {
    Event::Failed {
        generation: Generation(generation),
        action,
        reason: "faults".to_owned(),
    }
}

fn exceeded(generation: u64) -> Event<&'static str> {
    Event::CandidateFailed {
        generation: Generation(generation),
        reason: "slow".to_owned(),
    }
}

fn by_operator(event: fn(String) -> Event<&'static str>) -> Event<&'static str> {
    event("me".to_owned())
}

fn promoted() -> Event<&'static str> {
    by_operator(|by| Event::Promoted { by })
}

fn aborted() -> Event<&'static str> {
    by_operator(|by| Event::Aborted { by })
}

fn agreed(generation: u64) -> Event<&'static str> {
    Event::CandidateAgreed {
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

/// Formats effects in short form.
fn describe_effects(effects: &[Effect<&'static str>]) -> String {
    let one = |effect: &Effect<&'static str>| match effect {
        Effect::Activate {
            running,
            on_probation,
        } => {
            assert_eq!(running.generation, Generation(NEW_GENERATION));
            let probation = if *on_probation { " on probation" } else { "" };
            format!("activate {}{probation}", running.version)
        }
        Effect::StartCandidate { running, kind } => {
            assert_eq!(running.generation, Generation(NEW_GENERATION));
            format!("{kind:?} {}", running.version)
        }
        Effect::EndCandidate => "end candidate".to_owned(),
        Effect::CandidateDropped(kind) => format!("drop {kind:?}"),
        Effect::Disable { .. } => "disable".to_owned(),
        Effect::ShowRejection { .. } => "reject".to_owned(),
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
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn plugin_state_follows_events() {
    use HealthAction::{Disable, Revert};
    let admitted_effects = "record Admitted new by directory, publish Admitted";
    let shadow_effects = "Shadow new, record Shadowing new by directory, publish Shadowing";
    let cases: Vec<(State, Event<&'static str>, State, String)> = vec![
        // New files.
        (
            PluginState::Absent,
            admitted(None),
            serving("new", NEW_GENERATION),
            format!("activate new, {admitted_effects}"),
        ),
        (
            PluginState::Absent,
            admitted(Some(Shadow)),
            serving("new", NEW_GENERATION),
            format!("activate new, {admitted_effects}"),
        ),
        (
            serving("a", 1),
            admitted(None),
            on_probation("new", NEW_GENERATION, "a"),
            format!("activate new on probation, {admitted_effects}"),
        ),
        (
            on_probation("b", 1, "a"),
            admitted(None),
            on_probation("new", NEW_GENERATION, "b"),
            format!("activate new on probation, {admitted_effects}"),
        ),
        (
            shadowed(None),
            admitted(None),
            on_probation("new", NEW_GENERATION, "b"),
            format!("activate new on probation, drop Shadow, {admitted_effects}"),
        ),
        (
            PluginState::Disabled("a"),
            admitted(None),
            serving("new", NEW_GENERATION),
            format!("activate new, {admitted_effects}"),
        ),
        (
            PluginState::Disabled("a"),
            admitted(Some(Shadow)),
            serving("new", NEW_GENERATION),
            format!("activate new, {admitted_effects}"),
        ),
        // As a shadow.
        (
            serving("a", 1),
            admitted(Some(Shadow)),
            with_new(running("a", 1), Shadow, None),
            shadow_effects.to_owned(),
        ),
        (
            on_probation("b", 1, "a"),
            admitted(Some(Shadow)),
            with_new(running("b", 1), Shadow, Some("a")),
            shadow_effects.to_owned(),
        ),
        (
            shadowed(Some("a")),
            admitted(Some(Shadow)),
            with_new(running("b", 1), Shadow, Some("a")),
            shadow_effects.to_owned(),
        ),
        // Promotion.
        (
            shadowed(None),
            agreed(2),
            on_probation("s", NEW_GENERATION, "b"),
            "activate s on probation, record Promoted s by shadow, publish Promoted from b".to_owned(),
        ),
        (shadowed(None), agreed(3), shadowed(None), String::new()),
        (serving("a", 2), agreed(2), serving("a", 2), String::new()),
        (
            shadowed(Some("a")),
            promoted(),
            on_probation("s", NEW_GENERATION, "b"),
            "activate s on probation, record Promoted s by me, publish Promoted from b".to_owned(),
        ),
        (serving("a", 1), promoted(), serving("a", 1), String::new()),
        // Faults.
        (
            on_probation("b", 1, "a"),
            failed(1, Revert),
            serving("a", NEW_GENERATION),
            "activate a, record RolledBack a by probation, publish RolledBack from b".to_owned(),
        ),
        (
            shadowed(Some("a")),
            failed(1, Revert),
            serving("a", NEW_GENERATION),
            "activate a, drop Shadow, record RolledBack a by probation, publish RolledBack from b".to_owned(),
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
            serving("old", NEW_GENERATION),
            "activate old, record RolledBack old by me, publish RolledBack from b".to_owned(),
        ),
        (
            PluginState::Disabled("b"),
            rolled_back(),
            serving("old", NEW_GENERATION),
            "activate old, record RolledBack old by me, publish RolledBack".to_owned(),
        ),
        (
            shadowed(None),
            rolled_back(),
            serving("old", NEW_GENERATION),
            "activate old, drop Shadow, record RolledBack old by me, publish RolledBack from b".to_owned(),
        ),
        // A restart adds no record.
        (
            PluginState::Absent,
            Event::Restored { version: "old" },
            serving("old", NEW_GENERATION),
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
        // Rejected and removed files.
        (
            shadowed(Some("a")),
            Event::Rejected {
                reason: "x".to_owned(),
                by: FilesFrom::Directory,
            },
            shadowed(Some("a")),
            "reject, record Rejected - by directory, publish Rejected".to_owned(),
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
        let (found, done) = transition(state, event, Generation(NEW_GENERATION));
        assert_eq!(found, expected, "{case}");
        assert_eq!(describe_effects(&done), effects, "{case}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn canary_is_promoted_aborted_or_dropped() {
    use HealthAction::{Disable, Revert};
    let started = "Canary new, record Canary new by directory, publish Canary";
    let promoted_by =
        |by: &str| format!("activate s on probation, record Promoted s by {by}, publish Promoted from b");
    let aborted_by = |by: &str| format!("end candidate, record Aborted s by {by}, publish Aborted");
    let cases: Vec<(State, Event<&'static str>, State, String)> = vec![
        // New files replace a shadow or another canary.
        (
            serving("a", 1),
            admitted(Some(Canary)),
            with_new(running("a", 1), Canary, None),
            started.to_owned(),
        ),
        (
            shadowed(Some("a")),
            admitted(Some(Canary)),
            with_new(running("b", 1), Canary, Some("a")),
            started.to_owned(),
        ),
        (
            with_canary(None),
            admitted(Some(Canary)),
            with_new(running("b", 1), Canary, None),
            started.to_owned(),
        ),
        (
            with_canary(None),
            admitted(None),
            on_probation("new", NEW_GENERATION, "b"),
            "activate new on probation, drop Canary, record Admitted new by directory, publish Admitted"
                .to_owned(),
        ),
        // No version serves, so the new one serves immediately.
        (
            PluginState::Absent,
            admitted(Some(Canary)),
            serving("new", NEW_GENERATION),
            "activate new, record Admitted new by directory, publish Admitted".to_owned(),
        ),
        // Promotion.
        (
            with_canary(Some("a")),
            agreed(2),
            on_probation("s", NEW_GENERATION, "b"),
            promoted_by("canary"),
        ),
        (
            with_canary(None),
            promoted(),
            on_probation("s", NEW_GENERATION, "b"),
            promoted_by("me"),
        ),
        (with_canary(None), agreed(3), with_canary(None), String::new()),
        // Return: by too many faults, by another limit, by an operator.
        (
            with_canary(None),
            failed(2, Revert),
            serving("b", 1),
            aborted_by("canary"),
        ),
        (
            with_canary(Some("a")),
            exceeded(2),
            on_probation("b", 1, "a"),
            aborted_by("canary"),
        ),
        (with_canary(None), aborted(), serving("b", 1), aborted_by("me")),
        (
            shadowed(Some("a")),
            aborted(),
            on_probation("b", 1, "a"),
            aborted_by("me"),
        ),
        (with_canary(None), exceeded(3), with_canary(None), String::new()),
        (serving("b", 1), exceeded(2), serving("b", 1), String::new()),
        (serving("b", 1), aborted(), serving("b", 1), String::new()),
        (
            PluginState::Disabled("b"),
            aborted(),
            PluginState::Disabled("b"),
            String::new(),
        ),
        // The serving version fails. The canary has not met its plan, so it does not take over.
        (
            with_canary(Some("a")),
            failed(1, Revert),
            serving("a", NEW_GENERATION),
            "activate a, drop Canary, record RolledBack a by probation, publish RolledBack from b".to_owned(),
        ),
        (
            with_canary(None),
            failed(1, Disable),
            PluginState::Disabled("b"),
            "disable, record Disabled b by probation, publish Disabled".to_owned(),
        ),
        (
            with_canary(None),
            rolled_back(),
            serving("old", NEW_GENERATION),
            "activate old, drop Canary, record RolledBack old by me, publish RolledBack from b".to_owned(),
        ),
        (
            with_canary(Some("a")),
            Event::ProbationPassed,
            with_canary(None),
            String::new(),
        ),
        (
            with_canary(None),
            Event::Rejected {
                reason: "x".to_owned(),
                by: FilesFrom::Upload,
            },
            with_canary(None),
            "reject, record Rejected - by upload, publish Rejected".to_owned(),
        ),
        (
            with_canary(Some("a")),
            Event::Removed,
            PluginState::Absent,
            "forget, record Removed - by directory, publish Removed".to_owned(),
        ),
    ];
    for (state, event, expected, effects) in cases {
        let case = format!("{state:?}, {event:?}");
        let (found, done) = transition(state, event, Generation(NEW_GENERATION));
        assert_eq!(found, expected, "{case}");
        assert_eq!(describe_effects(&done), effects, "{case}");
    }
}

/// After a restart of the daemon the version that served is restored, and the files run alongside
/// it again.
#[test]
fn canary_continues_after_a_restart() {
    let restored = Event::Restored { version: "b" };
    let (state, effects) = transition(PluginState::Absent, restored, Generation(NEW_GENERATION));
    assert_eq!(describe_effects(&effects), "activate b, publish Admitted");
    let (state, effects) = transition(state, admitted(Some(Canary)), Generation(NEW_GENERATION));
    assert_eq!(
        describe_effects(&effects),
        "Canary new, record Canary new by directory, publish Canary"
    );
    assert_eq!(state.serving().map(|it| it.version), Some("b"));
}

#[test]
fn each_state_has_its_serving_and_current_version() {
    for (state, serving, current, predecessor) in [
        (PluginState::Absent, None, None, false),
        (serving("a", 1), Some("a"), Some("a"), false),
        (on_probation("b", 1, "a"), Some("b"), Some("b"), true),
        (shadowed(None), Some("b"), Some("b"), false),
        (shadowed(Some("a")), Some("b"), Some("b"), true),
        (with_canary(None), Some("b"), Some("b"), false),
        (with_canary(Some("a")), Some("b"), Some("b"), true),
        (PluginState::Disabled("a"), None, Some("a"), false),
    ] {
        assert_eq!(state.serving().map(|it| it.version), serving, "{state:?}");
        assert_eq!(state.current().copied(), current, "{state:?}");
        assert_eq!(state.has_predecessor(), predecessor, "{state:?}");
    }
}
