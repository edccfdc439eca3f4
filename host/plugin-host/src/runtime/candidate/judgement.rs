//! Decides when a shadow or a canary may serve, and when a canary is aborted. The rules read no
//! clock.

use std::time::Duration;

use crate::manifest::rollout::{CanaryPlan, Plan, ShadowPlan};

/// Measurements of a version that runs alongside the serving one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) age: Duration,
    /// Calls that it answered.
    pub(super) answered: u64,
    pub(super) compared: u64,
    /// Number of compared answers that differ.
    pub(super) differences: u64,
    pub(super) faults: u64,
    /// `None`: there are too few calls to judge it.
    pub(super) latency: Option<Latency>,
}

/// 99th percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) candidate: Duration,
    pub(super) serving: Duration,
}

/// The result of a judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Why the canary is aborted. `None`: it is not.
    pub(super) aborted: Option<String>,
    /// The unmet conditions for serving, a line each.
    pub(super) missing: Vec<String>,
}

pub(super) fn judge(plan: &Plan, evidence: &Evidence) -> Judgement {
    match plan {
        Plan::Shadow(plan) => Judgement {
            aborted: None,
            missing: unmet_shadow_conditions(plan, evidence),
        },
        Plan::Canary(plan) => Judgement {
            aborted: exceeded_limit(plan, evidence),
            missing: unmet_canary_conditions(plan, evidence),
        },
    }
}

fn unmet_shadow_conditions(plan: &ShadowPlan, evidence: &Evidence) -> Vec<String> {
    let has_too_many_differences = evidence.differences > plan.max_differences;
    let reasons = [
        missing_time(plan.min_duration, evidence.age, "shadow"),
        missing_count(
            plan.min_calls,
            evidence.compared,
            "more compared answers (shadow.min-calls)",
        ),
        has_too_many_differences.then(|| {
            format!(
                "{} answers differ, at most {} may (shadow.max-differences)",
                evidence.differences, plan.max_differences
            )
        }),
        (evidence.faults > 0).then(|| format!("{} calls failed on it, none may", evidence.faults)),
    ];
    reasons.into_iter().flatten().collect()
}

fn unmet_canary_conditions(plan: &CanaryPlan, evidence: &Evidence) -> Vec<String> {
    let reasons = [
        missing_time(plan.min_duration, evidence.age, "canary"),
        missing_count(
            plan.min_calls,
            evidence.answered,
            "more calls that it answers (canary.min-calls)",
        ),
        missing_count(
            plan.min_compared(),
            evidence.compared,
            "more compared calls (canary.compare-percent)",
        ),
    ];
    reasons.into_iter().flatten().collect()
}

/// Returns which limit a canary exceeds.
fn exceeded_limit(plan: &CanaryPlan, evidence: &Evidence) -> Option<String> {
    if evidence.faults > plan.max_faults {
        return Some(format!(
            "{} faults, at most {} are allowed (canary.max-faults)",
            evidence.faults, plan.max_faults
        ));
    }
    // At least the planned number of comparisons is the basis, so that a first difference is not
    // 100 %.
    let compared = evidence.compared.max(plan.min_compared());
    let percent = evidence.differences as f64 * 100.0 / compared.max(1) as f64;
    if percent > plan.max_differences_percent {
        return Some(format!(
            "{} of {} compared answers differ, at most {} % may (canary.max-differences-percent)",
            evidence.differences, evidence.compared, plan.max_differences_percent
        ));
    }
    let Latency { candidate, serving } = evidence.latency?;
    let allowed = serving.mul_f64(plan.max_latency_ratio).max(plan.latency_floor);
    (candidate > allowed).then(|| {
        format!(
            "the p99 of its calls is {candidate:.1?}, that of the serving version {serving:.1?}: at most {} times that and {:?} are allowed (canary.max-latency-ratio, canary.latency-floor)",
            plan.max_latency_ratio, plan.latency_floor
        )
    })
}

fn missing_time(min: Duration, age: Duration, table: &str) -> Option<String> {
    let missing = min.checked_sub(age).filter(|it| !it.is_zero())?;
    let missing = if missing < Duration::from_secs(1) {
        missing
    } else {
        // Rounded up, so that a positive rest never shows as 0 s.
        Duration::from_secs(missing.as_secs() + u64::from(missing.subsec_nanos() > 0))
    };
    Some(format!("{missing:?} more ({table}.min-duration)"))
}

fn missing_count(min: u64, found: u64, unit: &str) -> Option<String> {
    let missing = min.checked_sub(found).filter(|it| *it > 0)?;
    Some(format!("{missing} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADOW: Plan = Plan::Shadow(ShadowPlan {
        min_duration: Duration::from_mins(1),
        min_calls: 10,
        sample_percent: 100,
        max_differences: 1,
    });

    const CANARY: CanaryPlan = CanaryPlan {
        percent: 10,
        min_duration: Duration::from_mins(10),
        min_calls: 100,
        max_faults: 1,
        compare_percent: 50,
        max_differences_percent: 10.0,
        max_latency_ratio: 2.0,
        latency_floor: Duration::from_millis(10),
    };

    /// Evidence that meets all conditions.
    const SUFFICIENT: Evidence = Evidence {
        age: Duration::from_mins(10),
        answered: 100,
        compared: 50,
        differences: 5,
        faults: 1,
        latency: Some(Latency {
            candidate: Duration::from_millis(40),
            serving: Duration::from_millis(20),
        }),
    };

    fn latency(candidate: u64, serving: u64) -> Latency {
        let micros = Duration::from_micros;
        Latency {
            candidate: micros(candidate),
            serving: micros(serving),
        }
    }

    #[test]
    fn shadow_may_serve_when_the_plan_is_met() {
        for (seconds, compared, differences, faults, expected) in [
            (60, 10, 0, 0, &[][..]),
            (59, 10, 0, 0, &["1s more (shadow.min-duration)"]),
            (60, 9, 0, 0, &["1 more compared answers (shadow.min-calls)"]),
            (600, 1000, 1, 0, &[]),
            (
                600,
                1000,
                2,
                0,
                &["2 answers differ, at most 1 may (shadow.max-differences)"],
            ),
            (600, 1000, 0, 1, &["1 calls failed on it, none may"]),
        ] {
            let evidence = Evidence {
                age: Duration::from_secs(seconds),
                compared,
                differences,
                faults,
                ..Evidence::default()
            };
            let judgement = judge(&SHADOW, &evidence);
            assert_eq!(judgement.missing, expected, "{evidence:?}");
            assert_eq!(
                judgement.aborted, None,
                "a shadow is never aborted by its judgement"
            );
        }
    }

    #[test]
    fn canary_may_serve_when_the_plan_is_met() {
        let plan = Plan::Canary(CANARY);
        assert_eq!(judge(&plan, &SUFFICIENT), Judgement::default());
        for (evidence, missing) in [
            (
                Evidence {
                    age: Duration::from_millis(599_500),
                    ..SUFFICIENT
                },
                "500ms more (canary.min-duration)",
            ),
            (
                Evidence {
                    age: Duration::from_millis(1_500),
                    ..SUFFICIENT
                },
                "599s more (canary.min-duration)",
            ),
            (
                Evidence {
                    answered: 99,
                    ..SUFFICIENT
                },
                "1 more calls that it answers (canary.min-calls)",
            ),
            (
                Evidence {
                    compared: 49,
                    ..SUFFICIENT
                },
                "1 more compared calls (canary.compare-percent)",
            ),
        ] {
            let judgement = judge(&plan, &evidence);
            assert_eq!(judgement.missing, [missing], "{evidence:?}");
            assert_eq!(judgement.aborted, None, "{evidence:?}");
        }
    }

    #[test]
    fn canary_is_aborted_for_faults_differences_and_latency() {
        for (evidence, expected) in [
            (
                Evidence {
                    faults: 2,
                    ..SUFFICIENT
                },
                Some("2 faults, at most 1 are"),
            ),
            (
                Evidence {
                    differences: 6,
                    ..SUFFICIENT
                },
                Some("6 of 50 compared answers differ, at most 10 % may"),
            ),
            // 5 of 5 differ, but the basis is the planned 50 comparisons, so only the sixth
            // difference is too many.
            (
                Evidence {
                    compared: 5,
                    differences: 5,
                    ..SUFFICIENT
                },
                None,
            ),
            (
                Evidence {
                    compared: 6,
                    differences: 6,
                    ..SUFFICIENT
                },
                Some("6 of 6 compared"),
            ),
            (
                Evidence {
                    latency: Some(latency(40_001, 20_000)),
                    ..SUFFICIENT
                },
                Some("the p99 of its calls is 40.0ms, that of the serving version 20.0ms"),
            ),
            // A thousand times as slow, but not above the floor.
            (
                Evidence {
                    latency: Some(latency(10_000, 10)),
                    ..SUFFICIENT
                },
                None,
            ),
            (
                Evidence {
                    latency: Some(latency(10_001, 10)),
                    ..SUFFICIENT
                },
                Some("canary.latency-floor"),
            ),
            (
                Evidence {
                    latency: None,
                    ..SUFFICIENT
                },
                None,
            ),
        ] {
            let aborted = judge(&Plan::Canary(CANARY), &evidence).aborted;
            match expected {
                None => assert_eq!(aborted, None, "{evidence:?}"),
                Some(expected) => {
                    let reason = aborted.unwrap_or_default();
                    assert!(reason.contains(expected), "{evidence:?}: {reason}");
                }
            }
        }
    }

    #[test]
    fn differences_do_not_count_if_all_are_allowed() {
        let plan = CanaryPlan {
            max_differences_percent: 100.0,
            ..CANARY
        };
        let different = Evidence {
            compared: 0,
            differences: 0,
            ..SUFFICIENT
        };
        assert_eq!(judge(&Plan::Canary(plan), &different), Judgement::default());
        let different = Evidence {
            compared: 70,
            differences: 70,
            ..SUFFICIENT
        };
        assert_eq!(judge(&Plan::Canary(plan), &different), Judgement::default());
        let none = CanaryPlan {
            max_differences_percent: 0.0,
            min_calls: 1,
            compare_percent: 1,
            ..CANARY
        };
        assert_eq!(none.min_compared(), 1);
        let first = Evidence {
            compared: 1,
            differences: 1,
            ..SUFFICIENT
        };
        assert!(judge(&Plan::Canary(none), &first).aborted.is_some());
    }
}
