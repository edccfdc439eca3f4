//! How a new version replaces the serving one: `rollout`, `[shadow]`, `[canary]` and `[replay]` of a
//! manifest.

use std::time::Duration;

use super::{ManifestError, section::Section};

/// Maximum duration of a shadow or a canary, and age of replayed calls.
pub(super) const MAX_OBSERVATION: Duration = Duration::from_hours(7 * 24);
/// Maximum duration of a replay.
const MAX_REPLAY_DURATION: Duration = Duration::from_hours(1);
/// Maximum number of replayed calls.
pub(crate) const MAX_REPLAYED_CALLS: u64 = 10_000;
/// Maximum `canary.max-latency-ratio`.
const MAX_RATIO: f64 = 1000.0;

/// How a new version replaces the serving one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rollout {
    Immediate,
    /// It first runs alongside the serving version, and then the host (`automatic`) or an operator
    /// promotes it.
    WithCandidate {
        plan: Plan,
        automatic: bool,
    },
    /// It is admitted only if its answers to recorded calls equal the recorded answers.
    Replay(ReplayPlan),
}

/// How a version runs alongside the serving one, and when it may be promoted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Plan {
    /// It repeats calls that the serving version has answered.
    Shadow(ShadowPlan),
    /// It answers a share of the calls.
    Canary(CanaryPlan),
}

impl Rollout {
    /// How the version runs alongside the serving one. `None` if it does not.
    pub(crate) fn plan(self) -> Option<Plan> {
        match self {
            Rollout::WithCandidate { plan, .. } => Some(plan),
            Rollout::Immediate | Rollout::Replay(_) => None,
        }
    }

    /// The plan of a replay. `None` for another rollout.
    pub(crate) fn replay(self) -> Option<ReplayPlan> {
        match self {
            Rollout::Replay(plan) => Some(plan),
            Rollout::Immediate | Rollout::WithCandidate { .. } => None,
        }
    }
}

/// When a shadow version is promoted automatically, and how many calls it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShadowPlan {
    pub(crate) min_duration: Duration,
    /// Minimum number of compared answers.
    pub(crate) min_calls: u64,
    pub(crate) sample_percent: u64,
    pub(crate) max_differences: u64,
}

/// Which calls a canary answers, when it is promoted automatically and when it is aborted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CanaryPlan {
    /// Share of the tasks, queries, apps or containers whose calls it answers: 1 to 99.
    pub(crate) percent: u64,
    pub(crate) min_duration: Duration,
    /// Minimum number of calls that it answered.
    pub(crate) min_calls: u64,
    pub(crate) max_faults: u64,
    /// Share of its answers that are compared: these calls are repeated on the serving version.
    pub(crate) compare_percent: u64,
    /// Maximum share of differences among the compared calls.
    pub(crate) max_differences_percent: f64,
    /// Maximum ratio of its p99 latency to the serving version's.
    pub(crate) max_latency_ratio: f64,
    /// A p99 latency up to this never exceeds `max_latency_ratio`.
    pub(crate) latency_floor: Duration,
}

impl CanaryPlan {
    /// Calls to compare before differences are judged; 0 if any number of differences is allowed.
    pub(crate) fn min_compared(&self) -> u64 {
        if self.max_differences_percent >= 100.0 {
            return 0;
        }
        (self.min_calls * self.compare_percent).div_ceil(100).max(1)
    }
}

/// Which recorded calls a new version has to answer, and how many differences it may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplayPlan {
    /// Maximum age of the replayed calls.
    pub(crate) since: Duration,
    /// Maximum number of replayed calls; the newest ones are chosen.
    pub(crate) max_calls: u64,
    /// Maximum share of differences among the compared calls.
    pub(crate) max_differences_percent: f64,
    /// Whether a version is admitted if there are no recorded calls that it could answer.
    pub(crate) without_calls: WithoutCalls,
    /// Time limit of the replay as a whole.
    pub(crate) timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutCalls {
    Admit,
    Reject,
}

/// The values of `rollout`, with the table that belongs to each.
const ROLLOUTS: &[(&str, Option<&str>)] = &[
    ("immediate", None),
    ("shadow", Some("shadow")),
    ("shadow-manual", Some("shadow")),
    ("canary", Some("canary")),
    ("canary-manual", Some("canary")),
    ("replay", Some("replay")),
];

pub(super) fn rollout(top: &mut Section) -> Result<Rollout, ManifestError> {
    let chosen = top.string("rollout")?;
    let chosen = chosen.as_deref().unwrap_or("immediate");
    let present = ["shadow", "canary", "replay"].map(|key| (key, top.has(key)));
    let shadow = shadow_plan(top.section("shadow")?)?;
    let canary = canary_plan(top.section("canary")?)?;
    let replay = replay_plan(top.section("replay")?)?;
    let Some((_, table)) = ROLLOUTS.iter().find(|(value, _)| *value == chosen) else {
        let expected =
            "\"immediate\", \"shadow\", \"shadow-manual\", \"canary\", \"canary-manual\" or \"replay\"";
        return Err(top.invalid_value("rollout", chosen, expected));
    };
    // Without this check, a forgotten `rollout` would put the version into service for every call.
    if let Some((key, _)) = present
        .iter()
        .find(|(key, present)| *present && Some(*key) != *table)
    {
        let values: Vec<String> = ROLLOUTS
            .iter()
            .filter(|(_, table)| *table == Some(*key))
            .map(|(value, _)| format!("{value:?}"))
            .collect();
        let expected = format!("{}, because there is a table [{key}]", values.join(" or "));
        return Err(top.invalid_value("rollout", chosen, expected));
    }
    let with_candidate = |plan| Rollout::WithCandidate {
        plan,
        automatic: !chosen.ends_with("-manual"),
    };
    Ok(match chosen {
        "shadow" | "shadow-manual" => with_candidate(Plan::Shadow(shadow)),
        "canary" | "canary-manual" => with_candidate(Plan::Canary(canary)),
        "replay" => Rollout::Replay(replay),
        _ => Rollout::Immediate,
    })
}

fn shadow_plan(mut section: Section) -> Result<ShadowPlan, ManifestError> {
    let plan = ShadowPlan {
        min_duration: section.duration("min-duration", Duration::from_mins(10), MAX_OBSERVATION)?,
        min_calls: section.number("min-calls", 100, 1_000_000_000)?,
        sample_percent: section.number("sample-percent", 100, 100)?,
        max_differences: section.number_from("max-differences", 0, 0, 1_000_000_000)?,
    };
    section.finish(&["min-duration", "min-calls", "sample-percent", "max-differences"])?;
    Ok(plan)
}

fn canary_plan(mut section: Section) -> Result<CanaryPlan, ManifestError> {
    let plan = CanaryPlan {
        percent: section.number("percent", 10, 99)?,
        min_duration: section.duration("min-duration", Duration::from_mins(10), MAX_OBSERVATION)?,
        min_calls: section.number("min-calls", 100, 1_000_000_000)?,
        max_faults: section.number_from("max-faults", 0, 0, 1_000_000)?,
        compare_percent: section.number_from("compare-percent", 0, 100, 100)?,
        // A new version may be intended to answer differently.
        max_differences_percent: section.percent("max-differences-percent", 100.0)?,
        max_latency_ratio: section.ratio("max-latency-ratio", 2.0, MAX_RATIO)?,
        latency_floor: section.duration("latency-floor", Duration::from_millis(10), MAX_REPLAY_DURATION)?,
    };
    section.finish(&[
        "percent",
        "min-duration",
        "min-calls",
        "max-faults",
        "compare-percent",
        "max-differences-percent",
        "max-latency-ratio",
        "latency-floor",
    ])?;
    if plan.compare_percent == 0 && plan.max_differences_percent < 100.0 {
        let expected = "1 to 100, because max-differences-percent is below 100";
        return Err(section.invalid_value("compare-percent", 0, expected));
    }
    Ok(plan)
}

fn replay_plan(mut section: Section) -> Result<ReplayPlan, ManifestError> {
    let without_calls = match section.string("without-calls")?.as_deref() {
        None | Some("reject") => WithoutCalls::Reject,
        Some("admit") => WithoutCalls::Admit,
        Some(other) => return Err(section.invalid_value("without-calls", other, "\"reject\" or \"admit\"")),
    };
    let plan = ReplayPlan {
        since: section.duration("since", Duration::from_hours(24), MAX_OBSERVATION)?,
        max_calls: section.number("max-calls", 1000, MAX_REPLAYED_CALLS)?,
        max_differences_percent: section.percent("max-differences-percent", 0.0)?,
        without_calls,
        timeout: section.duration("timeout", Duration::from_mins(1), MAX_REPLAY_DURATION)?,
    };
    section.finish(&[
        "since",
        "max-calls",
        "max-differences-percent",
        "without-calls",
        "timeout",
    ])?;
    Ok(plan)
}
