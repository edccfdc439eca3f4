//! How fast a restart may go: what may be killed at once and how many instances may exist side by side.

use crate::model::UpgradeStrategy;

/// What there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Instances wanted.
    pub(crate) wanted: u32,
    /// Instances of the old configuration that are still meant to run.
    pub(crate) running: u32,
    /// Instances, old and new, that run.
    pub(crate) healthy: u32,
    /// Whether instances are bound to their agents by volumes.
    pub(crate) resident: bool,
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// So many old ones may be killed now.
    pub(crate) kill: u32,
    /// So many may exist, old and new together.
    pub(crate) capacity: u32,
}

/// Applies the upgrade strategy. A check has no say: an instance that runs is healthy, whatever its check finds.
pub(crate) fn allow(now: Now, strategy: UpgradeStrategy) -> Allowance {
    let wanted = f64::from(now.wanted);
    let least = (wanted * strategy.minimum_health_capacity).ceil() as u32;
    let mut capacity = (wanted * (1.0 + strategy.maximum_over_capacity)).floor() as u32;
    let mut kill = now.healthy.saturating_sub(least);
    if least == capacity && capacity <= now.healthy {
        // Neither fewer nor more are allowed, so nothing could ever move: bend one of the two by one.
        if now.resident {
            kill = now.healthy - least + 1;
        } else {
            capacity += 1;
        }
    }
    if now.wanted < now.running {
        kill = kill.max(now.running - now.wanted);
    }
    Allowance { kill, capacity }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn fixtures() {
        let suite: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/restart-strategy.json")).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            let input = &case["input"];
            let number = |key: &str| input[key].as_u64().unwrap() as u32;
            let strategy = UpgradeStrategy {
                maximum_over_capacity: input["maximumOverCapacity"].as_f64().unwrap(),
                minimum_health_capacity: input["minimumHealthCapacity"].as_f64().unwrap(),
            };
            // A check does not make an instance unhealthy here: those that run are the healthy ones.
            let check_only = input.get("why").is_some();
            let healthy = if check_only {
                number("running")
            } else {
                number("considered_healthy")
            };
            let now = Now {
                wanted: number("instances"),
                running: number("running"),
                healthy,
                resident: input["resident"] == true,
            };
            let found = allow(now, strategy);
            let expected = if check_only {
                &case["expect"]["desired"]
            } else {
                &case["expect"]
            };
            assert_eq!(
                json!({"nrToKillImmediately": found.kill, "maxCapacity": found.capacity}),
                *expected,
                "{}",
                case["id"]
            );
        }
    }
}
