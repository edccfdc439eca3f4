//! The upgrade strategy of a rolling restart: how many replicas may be killed now, and how many may
//! exist at the same time.

/// How many replicas a restart may remove and add, as fractions of their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpgradeStrategy {
    /// The fraction that may exist in addition: 0 for none, 1 for twice the number in total.
    pub maximum_over_capacity: f64,
    /// The fraction that stays running, from 0 to 1.
    pub minimum_health_capacity: f64,
}

/// How far a restart has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of replicas in the definition.
    pub wanted: u32,
    /// Replicas of the old configuration that should still run.
    pub running: u32,
    /// Healthy replicas, old and new.
    pub healthy: u32,
    /// Whether replicas are bound to their agents by volumes.
    pub resident: bool,
}

/// The limits of the next actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Number of old replicas that may be killed now.
    pub kill: u32,
    /// Number of replicas that may exist, old and new together.
    pub capacity: u32,
}

/// Applies the upgrade strategy. A Mesos check (as opposed to a health check) does not affect health:
/// a running replica without health checks is healthy, whatever its check returns.
pub fn allow(progress: Progress, strategy: UpgradeStrategy) -> Allowance {
    let wanted = f64::from(progress.wanted);
    let min_healthy = (wanted * strategy.minimum_health_capacity).ceil() as u32;
    let mut capacity = (wanted * (1.0 + strategy.maximum_over_capacity)).floor() as u32;
    let mut kill = progress.healthy.saturating_sub(min_healthy);
    if min_healthy == capacity && capacity <= progress.healthy {
        // The number may neither fall nor rise, so the restart would never proceed: relax one of
        // the limits by one.
        if progress.resident {
            kill = progress.healthy - min_healthy + 1;
        } else {
            capacity += 1;
        }
    }
    if progress.wanted < progress.running {
        kill = kill.max(progress.running - progress.wanted);
    }
    Allowance { kill, capacity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn allowance_matches_upstream_in_the_recorded_cases() {
        let suite: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/restart-strategy.json")).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            let input = &case["input"];
            let number = |key: &str| input[key].as_u64().unwrap() as u32;
            let strategy = UpgradeStrategy {
                maximum_over_capacity: input["maximumOverCapacity"].as_f64().unwrap(),
                minimum_health_capacity: input["minimumHealthCapacity"].as_f64().unwrap(),
            };
            // In this crate a Mesos check does not make a replica unhealthy: running replicas are healthy.
            let check_only = input.get("why").is_some();
            let healthy = if check_only {
                number("running")
            } else {
                number("considered_healthy")
            };
            let now = Progress {
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
