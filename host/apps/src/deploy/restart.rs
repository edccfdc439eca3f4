//! The upgrade strategy of a restart: how many instances may be killed now, and how many may exist
//! at the same time.

use crate::model::UpgradeStrategy;

/// The current instances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Number of instances in the definition.
    pub(crate) wanted: u32,
    /// Instances of the old configuration that should still run.
    pub(crate) running: u32,
    /// Running instances, old and new.
    pub(crate) healthy: u32,
    /// Whether instances are bound to their agents by volumes.
    pub(crate) resident: bool,
}

/// The limits of the next actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Number of old instances that may be killed now.
    pub(crate) kill: u32,
    /// Number of instances that may exist, old and new together.
    pub(crate) capacity: u32,
}

/// Applies the upgrade strategy. Checks are ignored: a running instance is healthy, whatever its
/// check returns.
pub(crate) fn allow(now: Now, strategy: UpgradeStrategy) -> Allowance {
    let wanted = f64::from(now.wanted);
    let least = (wanted * strategy.minimum_health_capacity).ceil() as u32;
    let mut capacity = (wanted * (1.0 + strategy.maximum_over_capacity)).floor() as u32;
    let mut kill = now.healthy.saturating_sub(least);
    if least == capacity && capacity <= now.healthy {
        // The number may neither fall nor rise, so the restart would never proceed: relax one of
        // the limits by one.
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
            // A check does not make an instance unhealthy here: running instances are healthy.
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
