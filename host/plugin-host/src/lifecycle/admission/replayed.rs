//! Decides whether a version may serve after a replay.

use std::time::Duration;

use crate::{
    lifecycle::replay::ReplayReport,
    manifest::rollout::{ReplayPlan, WithoutCalls},
};

/// Why the version may not serve. Display is for an operator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ReplayRejection {
    #[error(
        "{count} of {compared} recorded calls ({percent:.1} %) were answered differently, {allowed} % are allowed (replay.max-differences-percent); {example}"
    )]
    Differs {
        count: u64,
        compared: u64,
        percent: f64,
        allowed: f64,
        example: String,
    },
    #[error("there are no recorded calls of the serving version to replay (replay.without-calls){0}")]
    NoCalls(String),
    #[error(
        "it answered {compared} recorded calls within {timeout:?}, and {late} were left (replay.timeout)"
    )]
    TooLong {
        compared: u64,
        late: u64,
        timeout: Duration,
    },
}

/// Returns the result of the stage for an operator.
pub(super) fn judge(
    plan: &ReplayPlan,
    report: &ReplayReport,
    is_recording: bool,
) -> Result<String, ReplayRejection> {
    let (compared, percent) = (report.compared, report.percent());
    if percent > plan.max_differences_percent || report.skipped.given_up > 0 {
        return Err(ReplayRejection::Differs {
            count: report.different + report.failed,
            compared,
            percent,
            allowed: plan.max_differences_percent,
            example: example(report),
        });
    }
    if report.skipped.late > 0 {
        return Err(ReplayRejection::TooLong {
            compared,
            late: report.skipped.late,
            timeout: plan.timeout,
        });
    }
    if compared == 0 {
        let why = match report.skipped.total() {
            0 if !is_recording => ": calls are not recorded (plugins.recording)".to_owned(),
            0 => String::new(),
            _ => format!(": {}", report.skipped),
        };
        return match plan.without_calls {
            WithoutCalls::Admit => Ok(format!("no recorded calls{why}")),
            WithoutCalls::Reject => Err(ReplayRejection::NoCalls(why)),
        };
    }
    let skipped = match report.skipped.total() {
        0 => String::new(),
        _ => format!("; {}", report.skipped),
    };
    let differences = report.different + report.failed;
    Ok(format!(
        "{compared} recorded calls, {differences} answered differently{skipped}"
    ))
}

fn example(report: &ReplayReport) -> String {
    let group = report.differences.first();
    let example = group.and_then(|group| Some((group, group.examples.first()?)));
    example.map_or_else(String::new, |(group, it)| {
        format!(
            "for example {}: {}, recorded {}, now {}",
            group.kind, it.question, it.recorded, it.candidate
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::replay::Skipped;

    const PLAN: ReplayPlan = ReplayPlan {
        since: Duration::from_hours(1),
        max_calls: 100,
        max_differences_percent: 10.0,
        without_calls: WithoutCalls::Reject,
        timeout: Duration::from_mins(1),
    };

    fn report(same: u64, different: u64, failed: u64, late: u64) -> ReplayReport {
        ReplayReport {
            compared: same + different + failed,
            same,
            different,
            failed,
            skipped: Skipped {
                late,
                ..Skipped::default()
            },
            ..ReplayReport::default()
        }
    }

    #[test]
    fn version_is_admitted_with_as_many_differences_as_the_plan_allows() {
        for (report, expected) in [
            (
                report(9, 1, 0, 0),
                Ok("10 recorded calls, 1 answered differently"),
            ),
            (report(8, 1, 1, 0), Err("2 of 10 recorded calls (20.0 %)")),
            (report(0, 0, 1, 0), Err("1 of 1 recorded calls (100.0 %)")),
            (
                report(5, 0, 0, 3),
                Err("answered 5 recorded calls within 60s, and 3 were left"),
            ),
            (
                report(0, 0, 0, 0),
                Err("no recorded calls of the serving version"),
            ),
        ] {
            let found = judge(&PLAN, &report, true).map_err(|it| it.to_string());
            match (&found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                _ => panic!("{found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn plan_decides_about_a_log_without_replayable_calls() {
        let masked = ReplayReport {
            skipped: Skipped {
                masked: 7,
                ..Skipped::default()
            },
            ..ReplayReport::default()
        };
        let rejection = judge(&PLAN, &masked, true).unwrap_err().to_string();
        assert!(rejection.ends_with(": 7 have masked secrets"), "{rejection}");
        let rejection = judge(&PLAN, &ReplayReport::default(), false)
            .unwrap_err()
            .to_string();
        assert!(rejection.contains("plugins.recording"), "{rejection}");
        let plan = ReplayPlan {
            without_calls: WithoutCalls::Admit,
            ..PLAN
        };
        let admitted = judge(&plan, &masked, true).unwrap();
        assert_eq!(admitted, "no recorded calls: 7 have masked secrets");
    }
}
