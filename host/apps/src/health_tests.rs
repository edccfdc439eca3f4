//! Tables of cases of health checks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::*;
use crate::testing::app;

fn check(document: &Value) -> HealthCheck {
    let app = app(&json!({"id": "/a", "cmd": "sleep 1", "healthChecks": [document]}));
    app.health_checks[0].clone()
}

fn at(second: i64) -> Moment {
    "2018-01-01T00:00:00Z"
        .parse::<Moment>()
        .unwrap()
        .plus_millis(second * 1000)
}

/// What the steps of a case are expected to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// There is no event.
    Quiet,
    /// The failure is counted.
    Failed,
    /// The failure is counted, and the task is killed.
    Killed,
    Turned(bool),
    /// The failure is counted, and the health changes.
    Sick,
}

const UP: bool = true;
const DOWN: bool = false;

#[test]
fn restored_health_is_known_and_counts_no_earlier_failure() {
    let known = HealthState {
        first_success: Some(at(1)),
        last_success: Some(at(2)),
        last_failure: Some(at(3)),
        last_failure_cause: Some("503".into()),
        consecutive_failures: 3,
        failing_since: Some(at(2)),
        no_result: None,
        is_restored: false,
    };
    let alive = HealthState {
        last_failure: None,
        failing_since: None,
        ..known.clone()
    };
    for (state, expected) in [(alive, true), (known, false)] {
        let restored = HealthState::of_stored(state.to_stored().unwrap());
        assert!(restored.is_known() && restored.is_restored);
        assert_eq!(restored.is_alive(), expected);
        assert_eq!(
            restored.failing_since, state.failing_since,
            "not the last failure"
        );
        let counted = (restored.first_success, restored.consecutive_failures);
        assert_eq!(counted, (Some(at(1)), 0));
    }
    assert_eq!(HealthState::default().to_stored(), None);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn results_have_the_same_effects_as_in_upstream() {
    use Expected::{Failed, Killed, Quiet, Sick, Turned};
    type Steps<'a> = &'a [(bool, i64, Expected)];
    let lenient = json!({"gracePeriodSeconds": 10, "maxConsecutiveFailures": 2});
    let strict = json!({"gracePeriodSeconds": 0, "maxConsecutiveFailures": 1});
    let never = json!({"gracePeriodSeconds": 0, "maxConsecutiveFailures": 0});
    let cases: [(&str, &Value, bool, Steps<'_>); 9] = [
        (
            "is healthy",
            &lenient,
            true,
            &[(UP, 1, Turned(true)), (UP, 2, Quiet)],
        ),
        (
            "fails in the grace period and recovers",
            &lenient,
            true,
            &[(DOWN, 1, Quiet), (DOWN, 9, Quiet), (UP, 9, Turned(true))],
        ),
        (
            "fails beyond the grace period",
            &lenient,
            true,
            &[
                (DOWN, 9, Quiet),
                (DOWN, 10, Failed),
                (DOWN, 11, Failed),
                (DOWN, 12, Killed),
            ],
        ),
        (
            "fails in the grace period after a success",
            &lenient,
            true,
            &[
                (UP, 1, Turned(true)),
                (DOWN, 2, Sick),
                (DOWN, 3, Failed),
                (DOWN, 4, Killed),
            ],
        ),
        (
            "a success starts the count again",
            &lenient,
            true,
            &[
                (UP, 1, Turned(true)),
                (DOWN, 2, Sick),
                (DOWN, 3, Failed),
                (UP, 4, Turned(true)),
                (DOWN, 5, Sick),
                (DOWN, 6, Failed),
                (DOWN, 7, Killed),
            ],
        ),
        (
            "kills at the failure after the maximum",
            &strict,
            true,
            &[(DOWN, 1, Failed), (DOWN, 2, Killed)],
        ),
        (
            "is killed again until it has ended",
            &strict,
            true,
            &[(DOWN, 1, Failed), (DOWN, 2, Killed), (DOWN, 3, Killed)],
        ),
        (
            "zero never kills",
            &never,
            true,
            &[(DOWN, 1, Failed), (DOWN, 2, Failed), (DOWN, 300, Failed)],
        ),
        (
            "is not killed when unreachable, or by its agent",
            &strict,
            false,
            &[(DOWN, 1, Failed), (DOWN, 2, Failed), (DOWN, 3, Failed)],
        ),
    ];
    for (what, document, may_be_killed, steps) in cases {
        let check = check(document);
        let probed_task = ProbedTask {
            started: at(0),
            may_be_killed,
        };
        let mut state = HealthState::default();
        for (index, (up, second, expected)) in steps.iter().enumerate() {
            let verdict = if *up {
                HealthVerdict::Healthy
            } else {
                HealthVerdict::Unhealthy("down".to_owned())
            };
            let observed = observe(&state, &verdict, &check, probed_task, at(*second));
            let found = match (observed.failed, observed.kill, observed.alive) {
                (false, false, None) => Quiet,
                (true, false, None) => Failed,
                (true, true, None) => Killed,
                (false, false, Some(alive)) => Turned(alive),
                (true, false, Some(false)) => Sick,
                other => panic!("{what}, step {index}: {other:?}"),
            };
            assert_eq!(found, *expected, "{what}, step {index}");
            state = observed.state;
        }
    }
}

#[test]
fn state_shows_first_and_last_results() {
    let check = check(&json!({"gracePeriodSeconds": 0}));
    let probed_task = ProbedTask {
        started: at(0),
        may_be_killed: true,
    };
    let down = HealthVerdict::Unhealthy("refused".to_owned());
    let mut state = HealthState::default();
    assert!(!state.is_known() && !state.is_alive());
    for (verdict, second) in [
        (&HealthVerdict::Healthy, 1),
        (&HealthVerdict::Healthy, 2),
        (&down, 3),
        (&down, 4),
    ] {
        state = observe(&state, verdict, &check, probed_task, at(second)).state;
    }
    let expected = HealthState {
        first_success: Some(at(1)),
        last_success: Some(at(2)),
        last_failure: Some(at(4)),
        last_failure_cause: Some("refused".into()),
        consecutive_failures: 2,
        failing_since: Some(at(3)),
        no_result: None,
        is_restored: false,
    };
    assert_eq!(state, expected);
    assert!(state.is_known() && !state.is_alive());
    let same_time = observe(&state, &HealthVerdict::Healthy, &check, probed_task, at(4));
    assert_eq!(same_time.alive, Some(true));
    assert_eq!(
        observe(&state, &HealthVerdict::Unchanged, &check, probed_task, at(5)).state,
        state
    );
}

#[test]
fn statuses_from_200_to_399_are_healthy_and_a_failing_component_is_ignored() {
    let (plain, lenient) = (check(&json!({})), check(&json!({"ignoreHttp1xx": true})));
    let sick = |cause: &str| HealthVerdict::Unhealthy(cause.to_owned());
    let failure = |reason| Failure {
        reason,
        message: "GET /: no".to_owned(),
    };
    let failed = |reason| Err(failure(reason));
    let none = |reason| HealthVerdict::NoResult(failure(reason));
    for (result, expected) in [
        (Ok(Outcome::Http(199)), sick("199 <unknown status code>")),
        (Ok(Outcome::Http(200)), HealthVerdict::Healthy),
        (Ok(Outcome::Http(399)), HealthVerdict::Healthy),
        (Ok(Outcome::Http(400)), sick("400 Bad Request")),
        (Ok(Outcome::Http(503)), sick("503 Service Unavailable")),
        (Ok(Outcome::Tcp(true)), HealthVerdict::Healthy),
        (Ok(Outcome::Tcp(false)), sick("the connection failed")),
        (Ok(Outcome::Custom("{}".to_owned())), HealthVerdict::Unchanged),
        (failed(Reason::TimedOut), sick("GET /: no")),
        (failed(Reason::Unreachable), sick("GET /: no")),
        (failed(Reason::Invalid), sick("GET /: no")),
        (failed(Reason::Denied), none(Reason::Denied)),
        (failed(Reason::Internal), none(Reason::Internal)),
        (failed(Reason::Plugin), none(Reason::Plugin)),
    ] {
        assert_eq!(evaluate(&plain, &result), expected, "{result:?}");
    }
    assert_eq!(
        evaluate(&plain, &Ok(Outcome::Http(101))),
        sick("101 Switching Protocols")
    );
    assert_eq!(
        evaluate(&lenient, &Ok(Outcome::Http(101))),
        HealthVerdict::Unchanged
    );
    assert_eq!(
        evaluate(&lenient, &Ok(Outcome::Http(500))),
        sick("500 Internal Server Error")
    );
}

#[test]
fn first_attempt_is_at_most_five_seconds_after_the_start() {
    for (interval, expected) in [(60, 5), (5, 5), (2, 2)] {
        let check = check(&json!({"intervalSeconds": interval}));
        assert_eq!(first_attempt(&check), Duration::from_secs(expected));
    }
}

#[test]
fn attempts_without_a_result_are_counted_until_there_is_one() {
    let check = check(&json!({"gracePeriodSeconds": 0}));
    let probed_task = ProbedTask {
        started: at(0),
        may_be_killed: true,
    };
    let none = HealthVerdict::NoResult(Failure {
        reason: Reason::Plugin,
        message: "no version of http serves".to_owned(),
    });
    let healthy = HealthState {
        last_success: Some(at(1)),
        ..HealthState::default()
    };
    let first = observe(&healthy, &none, &check, probed_task, at(2));
    let second = observe(&first.state, &none, &check, probed_task, at(3));
    let row = second.state.no_result.as_ref().unwrap();
    assert_eq!((row.count, row.since, row.is_of_plugin()), (2, at(2), true));
    assert!(second.state.is_alive() && !second.failed && !second.kill && second.alive.is_none());
    for verdict in [HealthVerdict::Healthy, HealthVerdict::Unhealthy("503".to_owned())] {
        let after = observe(&second.state, &verdict, &check, probed_task, at(4));
        assert_eq!(after.state.no_result, None);
    }
}
