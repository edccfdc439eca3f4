//! What the snapshot shows of one app or pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use transom_replicas::{Condition, LaunchBackoff};

use super::counts::InstanceCounts;
use super::persist::SpecRecord;
use crate::ids::InstanceId;
use crate::instance::Instance;
use crate::model::Spec;
use crate::time::Moment;

/// One app or pod.
#[derive(Clone, Debug)]
pub(crate) struct SpecView {
    /// The definition, and what is kept of its past.
    pub(crate) record: Arc<SpecRecord>,
    /// All kept versions, the current one last.
    pub(crate) versions: Arc<[Moment]>,
    /// Past definitions that instances were launched from.
    pub(crate) past: BTreeMap<Moment, Spec>,
    pub(crate) instances: OrdMap<InstanceId, Arc<Instance>>,
    /// Counts of `instances`.
    pub(crate) counts: InstanceCounts,
    /// The delay of launches after failures; none on a standby.
    pub(crate) backoff: LaunchBackoff,
}

impl SpecView {
    /// An app or pod without instances.
    pub(crate) fn of(spec: Spec) -> Self {
        Self {
            versions: [spec.version()].into(),
            record: Arc::new(SpecRecord::new(spec, "".into())),
            past: BTreeMap::new(),
            instances: OrdMap::new(),
            counts: InstanceCounts::default(),
            backoff: LaunchBackoff::default(),
        }
    }

    /// Whether instances wait for the end of the delay after failures.
    pub(crate) fn is_delayed(&self, now: Moment) -> bool {
        self.backoff.until(now.timestamp()).is_some() && self.counts.of(Condition::Scheduled) > 0
    }

    /// The current definition, or one that instances were launched from.
    pub(crate) fn kept_definition(&self, version: Moment) -> Option<&Spec> {
        if version == self.record.spec.version() {
            return Some(&self.record.spec);
        }
        self.past.get(&version)
    }

    /// The definition that a task was launched from; the current one if that definition is unknown.
    pub(crate) fn definition(&self, version: Moment) -> &Spec {
        self.past.get(&version).unwrap_or(&self.record.spec)
    }
}
