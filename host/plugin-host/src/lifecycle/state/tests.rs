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
#[allow(clippy::too_many_lines, reason = "a table of cases")]
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
            "activate a, drop shadow, record RolledBack a by probation, publish RolledBack from b".to_owned(),
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
            "activate old, drop shadow, record RolledBack old by me, publish RolledBack from b".to_owned(),
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
fn each_state_has_its_serving_and_current_version() {
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
