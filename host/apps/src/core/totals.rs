//! Counts over all apps and pods, which change with each of them.

use std::sync::Arc;

use imbl::OrdMap;
use transom_replicas::LaunchBackoff;

use super::counts::InstanceCounts;
use super::spec_view::SpecView;
use crate::core::failing;
use crate::ids::SpecId;

/// Counts over all apps and pods of a snapshot. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Without those that are being deleted.
    pub(crate) pods: u64,
    /// The instances that apps and pods ask for, without those that are being deleted.
    pub(crate) wanted: u64,
    pub(crate) instances: InstanceCounts,
    /// Apps and pods with unhealthy instances, and how many.
    pub(crate) unhealthy: OrdMap<SpecId, u32>,
    /// Apps and pods that may be in [`Failing`](crate::core::failing::Failing), which also depends on the
    /// time.
    pub(crate) failing: OrdMap<SpecId, Arc<SpecView>>,
    /// Apps and pods whose launches have a delay, which may be over.
    pub(crate) delayed: OrdMap<SpecId, Arc<SpecView>>,
}

impl Totals {
    /// Adds an app or pod. `deleted`: it is being deleted.
    pub(super) fn add(&mut self, view: &Arc<SpecView>, deleted: bool) {
        if !deleted {
            self.pods += u64::from(view.record.spec.is_pod());
            self.wanted += u64::from(view.record.spec.instances());
        }
        self.instances.add_all(&view.counts);
        if view.counts.unhealthy > 0 {
            let id = view.record.spec.id().clone();
            self.unhealthy.insert(id, view.counts.unhealthy);
        }
        if !deleted && failing::is_candidate(view) {
            self.failing
                .insert(view.record.spec.id().clone(), Arc::clone(view));
        }
        if view.backoff != LaunchBackoff::default() {
            self.delayed
                .insert(view.record.spec.id().clone(), Arc::clone(view));
        }
    }

    /// Removes an app or pod that was added.
    pub(super) fn remove(&mut self, view: &SpecView, deleted: bool) {
        if !deleted {
            self.pods -= u64::from(view.record.spec.is_pod());
            self.wanted -= u64::from(view.record.spec.instances());
        }
        self.instances.remove_all(&view.counts);
        self.unhealthy.remove(view.record.spec.id());
        self.failing.remove(view.record.spec.id());
        self.delayed.remove(view.record.spec.id());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;
    use transom_replicas::Condition;

    use super::super::snapshot::Snapshot;
    use super::*;
    use crate::health::HealthState;
    use crate::instance::Instance;
    use crate::model::Spec;
    use crate::testing::{app, pod};
    use crate::time::Moment;

    /// A view with these conditions, of which every third is unhealthy and every second has a result.
    fn view(spec: Spec, conditions: &[Condition]) -> Arc<SpecView> {
        let mut view = SpecView::of(spec);
        for (number, condition) in conditions.iter().enumerate() {
            let mut instance =
                Instance::new(view.record.spec.id(), view.record.spec.version(), Moment::now());
            instance.replica.condition = *condition;
            if number % 2 == 0 {
                let (now, fails) = (Moment::now(), number % 3 == 0);
                instance.health = vec![HealthState {
                    last_success: Some(now).filter(|_| !fails),
                    last_failure: Some(now).filter(|_| fails),
                    ..HealthState::default()
                }];
            }
            view.counts.add(&instance);
            view.instances.insert(instance.id.clone(), Arc::new(instance));
        }
        Arc::new(view)
    }

    #[test]
    fn totals_are_those_of_all_views_after_every_change() {
        let named = |number: usize| json!({"id": format!("/a{number}"), "cmd": "sleep 1", "instances": 3});
        let mut snapshot = Snapshot::default();
        for step in 0..60 {
            let number = step % 4;
            let spec: Spec = if number == 3 {
                let container = json!({"name": "c", "resources": {"cpus": 0.1, "mem": 32}});
                pod(&json!({"id": "/a3", "containers": [container]})).into()
            } else {
                app(&named(number)).into()
            };
            let id = spec.id().clone();
            let first = step % Condition::ALL.len();
            let changed = (step % 5 != 4).then(|| view(spec, &Condition::ALL[first..]));
            snapshot.set(&id, changed, step % 7 == 6);

            let mut expected = Totals::default();
            for (views, deleted) in [(&snapshot.specs, false), (&snapshot.deleted, true)] {
                for view in views.values() {
                    expected.add(view, deleted);
                }
            }
            let found = &snapshot.totals;
            assert_eq!(
                (found.pods, found.wanted, found.instances, &found.unhealthy),
                (
                    expected.pods,
                    expected.wanted,
                    expected.instances,
                    &expected.unhealthy
                )
            );
        }
        assert!(!snapshot.totals.unhealthy.is_empty() && snapshot.totals.wanted > 0);
    }
}
