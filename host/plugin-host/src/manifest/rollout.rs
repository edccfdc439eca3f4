//! How a new version replaces the serving one: `rollout`, `[shadow]` and `[replay]` of a manifest.

use std::time::Duration;

use super::{ManifestError, section::Section};

/// Maximum shadow duration, and age of replayed calls.
pub(super) const MAX_WATCH: Duration = Duration::from_hours(7 * 24);
/// Maximum duration of a replay.
const MAX_REPLAY: Duration = Duration::from_hours(1);
/// Maximum number of replayed calls.
pub(crate) const MAX_REPLAYED: u64 = 10_000;

/// How a new version replaces the serving one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rollout {
    Immediate,
    /// As a shadow first; the host promotes it once it meets the plan.
    Shadow(ShadowPlan),
    /// As a shadow first; an operator promotes it.
    ShadowManual(ShadowPlan),
    /// Only if it answers recorded calls as they were answered.
    Replay(ReplayPlan),
}

impl Rollout {
    /// The plan of a shadow, and whether it is promoted automatically; none for another rollout.
    pub(crate) fn shadow(self) -> Option<(ShadowPlan, bool)> {
        match self {
            Rollout::Immediate | Rollout::Replay(_) => None,
            Rollout::Shadow(plan) => Some((plan, true)),
            Rollout::ShadowManual(plan) => Some((plan, false)),
        }
    }

    /// The plan of a replay; none for another rollout.
    pub(crate) fn replay(self) -> Option<ReplayPlan> {
        match self {
            Rollout::Replay(plan) => Some(plan),
            Rollout::Immediate | Rollout::Shadow(_) | Rollout::ShadowManual(_) => None,
        }
    }
}

/// When a shadow version is promoted automatically, and how many calls it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShadowPlan {
    pub(crate) min_duration: Duration,
    /// Answers compared.
    pub(crate) min_calls: u64,
    pub(crate) sample_percent: u64,
    pub(crate) max_differences: u64,
}

/// Which recorded calls a new version is asked, and which differences it may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplayPlan {
    /// The age of the oldest ones.
    pub(crate) since: Duration,
    /// The newest are asked.
    pub(crate) max_calls: u64,
    /// Of the calls that were compared.
    pub(crate) max_differences_percent: f64,
    /// Whether a version is admitted if there are no calls that it could be asked.
    pub(crate) without_calls: WithoutCalls,
    /// For the replay as a whole.
    pub(crate) timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutCalls {
    Admit,
    Reject,
}

pub(super) fn rollout(top: &mut Section) -> Result<Rollout, ManifestError> {
    let how = top.string("rollout")?;
    let shadow = shadow_plan(top.section("shadow")?)?;
    let replay = replay_plan(top.section("replay")?)?;
    match how.as_deref() {
        None | Some("immediate") => Ok(Rollout::Immediate),
        Some("shadow") => Ok(Rollout::Shadow(shadow)),
        Some("shadow-manual") => Ok(Rollout::ShadowManual(shadow)),
        Some("replay") => Ok(Rollout::Replay(replay)),
        Some(other) => Err(top.wrong(
            "rollout",
            other,
            "\"immediate\", \"shadow\", \"shadow-manual\" or \"replay\"",
        )),
    }
}

fn shadow_plan(mut it: Section) -> Result<ShadowPlan, ManifestError> {
    let plan = ShadowPlan {
        min_duration: it.duration("min-duration", Duration::from_mins(10), MAX_WATCH)?,
        min_calls: it.number("min-calls", 100, 1_000_000_000)?,
        sample_percent: it.number("sample-percent", 100, 100)?,
        max_differences: it.number_from("max-differences", 0, 0, 1_000_000_000)?,
    };
    it.finish(&["min-duration", "min-calls", "sample-percent", "max-differences"])?;
    Ok(plan)
}

fn replay_plan(mut it: Section) -> Result<ReplayPlan, ManifestError> {
    let without_calls = match it.string("without-calls")?.as_deref() {
        None | Some("reject") => WithoutCalls::Reject,
        Some("admit") => WithoutCalls::Admit,
        Some(other) => return Err(it.wrong("without-calls", other, "\"reject\" or \"admit\"")),
    };
    let plan = ReplayPlan {
        since: it.duration("since", Duration::from_hours(24), MAX_WATCH)?,
        max_calls: it.number("max-calls", 1000, MAX_REPLAYED)?,
        max_differences_percent: it.percent("max-differences-percent", 0.0)?,
        without_calls,
        timeout: it.duration("timeout", Duration::from_mins(1), MAX_REPLAY)?,
    };
    it.finish(&[
        "since",
        "max-calls",
        "max-differences-percent",
        "without-calls",
        "timeout",
    ])?;
    Ok(plan)
}
