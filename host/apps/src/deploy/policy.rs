//! Converts the rules of a definition into policies of the crate `transom_replicas`.

use std::time::Duration;

use transom_replicas::{BackoffPolicy, Policy, ScalingPolicy};

use crate::model::{KillSelection, Spec, UnreachableStrategy};
use crate::time::Moment;

/// The number of instances, and the limits while it changes.
pub(crate) fn scaling(spec: &Spec) -> ScalingPolicy {
    ScalingPolicy {
        replicas: spec.instances(),
        kill_selection: match spec.kill_selection() {
            KillSelection::YoungestFirst => transom_replicas::KillSelection::YoungestFirst,
            KillSelection::OldestFirst => transom_replicas::KillSelection::OldestFirst,
        },
        upgrade: transom_replicas::UpgradeStrategy {
            maximum_over_capacity: spec.upgrade_strategy().maximum_over_capacity,
            minimum_health_capacity: spec.upgrade_strategy().minimum_health_capacity,
        },
        resident: spec.is_resident(),
    }
}

/// The backoff of launches after failures.
pub(crate) fn backoff(spec: &Spec) -> BackoffPolicy {
    let backoff = spec.backoff();
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    BackoffPolicy {
        initial: duration(backoff.initial_delay),
        factor: backoff.factor,
        max: duration(backoff.max_delay),
    }
}

/// The policy of one instance. `replace`: false while the app or pod is being deleted.
pub(crate) fn instance(spec: &Spec, launch_timeout: Duration, replace: bool) -> Policy<Moment> {
    Policy {
        launch_timeout,
        version: spec.version(),
        unreachable: match spec.unreachable_strategy() {
            UnreachableStrategy::Enabled {
                inactive_after_seconds,
                expunge_after_seconds,
            } => transom_replicas::UnreachableStrategy::Enabled {
                inactive_after: seconds(inactive_after_seconds),
                expunge_after: seconds(expunge_after_seconds),
            },
            UnreachableStrategy::Disabled(_) => transom_replicas::UnreachableStrategy::Disabled,
        },
        replace,
        resident: spec.is_resident(),
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::app;
    use serde_json::json;

    #[test]
    fn policies_are_read_from_the_app_definition() {
        let app = Spec::from(app(&json!({
            "id": "/a", "cmd": "sleep 1", "instances": 3, "killSelection": "OLDEST_FIRST",
            "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0.25},
            "backoffSeconds": 2, "backoffFactor": 1.5, "maxLaunchDelaySeconds": 60,
            "unreachableStrategy": {"inactiveAfterSeconds": 10, "expungeAfterSeconds": 30},
        })));
        let scaling = scaling(&app);
        assert_eq!(scaling.replicas, 3);
        assert_eq!(
            scaling.kill_selection,
            transom_replicas::KillSelection::OldestFirst
        );
        let (least, over) = (
            scaling.upgrade.minimum_health_capacity,
            scaling.upgrade.maximum_over_capacity,
        );
        assert_eq!((least, over), (0.5, 0.25));
        let expected = BackoffPolicy {
            initial: Duration::from_secs(2),
            factor: 1.5,
            max: Duration::from_mins(1),
        };
        assert_eq!(backoff(&app), expected);
        let instance = instance(&app, Duration::from_mins(5), true);
        assert_eq!(instance.launch_timeout, Duration::from_mins(5));
        assert_eq!(instance.version, app.version());
        let unreachable = transom_replicas::UnreachableStrategy::Enabled {
            inactive_after: Duration::from_secs(10),
            expunge_after: Duration::from_secs(30),
        };
        assert_eq!(instance.unreachable, unreachable);
    }
}
