//! The last known health of instances: what the store keeps of it, and what a new leader and a standby
//! show until the next result.
//!
//! A record is written when a check of this daemon begins to succeed or to fail, not with each
//! result, and with the next tick, together with others. The health that agents report is part of
//! the task's record.

use serde::{Deserialize, Serialize};

use super::Core;
use crate::health::{HealthState, StoredHealth};
use crate::ids::InstanceId;
use crate::instance::Instance;
use crate::model::HealthCheck;
use crate::time::Moment;

/// The last known health of an instance's task by this daemon's checks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HealthRecord {
    /// The id of the instance.
    pub(crate) instance: String,
    /// The number of its task.
    pub(crate) incarnation: u32,
    /// Of each health check of its definition.
    pub(crate) checks: Vec<Option<StoredHealth>>,
}

impl HealthRecord {
    /// The record of an instance; `None` if no check has a result.
    pub(super) fn of(instance: &Instance) -> Option<Self> {
        let checks: Vec<_> = instance.health.iter().map(HealthState::to_stored).collect();
        checks.iter().any(Option::is_some).then(|| Self {
            instance: instance.id.to_string(),
            incarnation: instance.replica.incarnation,
            checks,
        })
    }

    fn is_of(&self, instance: &Instance, checks: &[HealthCheck]) -> bool {
        self.incarnation == instance.replica.incarnation && self.checks.len() == checks.len()
    }
}

/// The health of an instance with these checks under an earlier leader, which has published the
/// events.
pub(super) fn last_known(
    instance: &Instance,
    checks: &[HealthCheck],
    stored: Option<&HealthRecord>,
) -> Vec<HealthState> {
    let stored = stored.filter(|record| record.is_of(instance, checks));
    let by_daemon = |index: usize| (*stored?.checks.get(index)?).map(HealthState::of_stored);
    let states = checks.iter().enumerate().map(|(index, check)| {
        let known = if check.protocol.is_made_by_daemon() {
            by_daemon(index)
        } else {
            by_agent(instance)
        };
        known.unwrap_or_default()
    });
    states.collect()
}

/// The health that the agent has reported.
fn by_agent(instance: &Instance) -> Option<HealthState> {
    let record = instance.record()?;
    let healthy = record.healthy()?;
    let updated = Moment::from(record.updated_at);
    Some(HealthState {
        first_success: healthy.then_some(updated),
        last_success: healthy.then_some(updated),
        last_failure: (!healthy).then_some(updated),
        failing_since: (!healthy).then_some(updated),
        consecutive_failures: u32::from(!healthy),
        ..HealthState::default()
    })
}

impl Core {
    /// Restores the last known health of all instances. Records of other tasks are deleted.
    pub(super) fn restore_health(&mut self, records: Vec<HealthRecord>) {
        for state in self.specs.values_mut() {
            let restored = state.instances().values().filter_map(|instance| {
                let checks = state.definition_of(instance).health_checks();
                (!checks.is_empty()).then(|| (instance.id.clone(), last_known(instance, checks, None)))
            });
            let restored: Vec<_> = restored.collect();
            for (id, health) in restored {
                if let Some(instance) = state.instance_mut(&id) {
                    instance.health = health;
                }
            }
        }
        for record in records {
            let Some(id) = InstanceId::parse(&record.instance) else {
                continue;
            };
            let state = id.spec().and_then(|spec| self.specs.get_mut(&spec));
            let known = state.and_then(|state| {
                let instance = state.instances().get(&id)?;
                let checks = state.definition_of(instance).health_checks();
                let health = record
                    .is_of(instance, checks)
                    .then(|| last_known(instance, checks, Some(&record)))?;
                state.instance_mut(&id)?.health = health;
                Some(())
            });
            if known.is_none() {
                self.unstored.health.insert(id);
            }
        }
    }
}
