//! The snapshot for readers: immutable, published after every change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_replicas::{Condition, LaunchBackoff};
use transom_scheduler::TaskRecord;

use super::counts::{InstanceCounts, Totals};
use super::history::History;
use super::persist::SpecRecord;
use super::places::Places;
use crate::deploy::Deployment;
use crate::ids::{GroupId, InstanceId, SpecId};
use crate::instance::Instance;
use crate::model::{App, Pod, Spec};
use crate::time::Moment;
use crate::tree::Group;

/// Everything that the API reads. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Apps and pods without those that are being deleted.
    pub(crate) specs: OrdMap<SpecId, Arc<SpecView>>,
    /// Apps and pods that are being deleted, as long as they have tasks.
    pub(crate) deleted: OrdMap<SpecId, Arc<SpecView>>,
    /// Groups with definitions; the root group may have none.
    pub(crate) groups: OrdMap<GroupId, Arc<Group>>,
    /// Running deployments by version and id, oldest first.
    pub(crate) deployments: OrdMap<(Moment, String), Arc<Deployment>>,
    /// The deployment that locks an app or pod.
    pub(crate) locks: OrdMap<SpecId, Arc<str>>,
    /// The last changes.
    pub(crate) history: History,
    /// Counts of `specs` and `deleted`.
    pub(crate) totals: Totals,
    /// Of `specs` and `deleted`; empty on a standby.
    pub(crate) places: Places,
}

impl Snapshot {
    /// Replaces the view of an app or pod; `None`: it does not exist any more. `deleted`: it is being
    /// deleted.
    pub(super) fn set(&mut self, id: &SpecId, view: Option<Arc<SpecView>>, deleted: bool) {
        for (views, are_deleted) in [(&mut self.specs, false), (&mut self.deleted, true)] {
            if let Some(earlier) = views.remove(id) {
                self.totals.remove(&earlier, are_deleted);
            }
        }
        if let Some(view) = view {
            self.totals.add(&view, deleted);
            let views = if deleted {
                &mut self.deleted
            } else {
                &mut self.specs
            };
            views.insert(id.clone(), view);
        }
    }

    /// An app.
    pub(crate) fn app(&self, id: &SpecId) -> Option<(&SpecView, &App)> {
        let view = self.specs.get(id)?;
        Some((view, view.record.spec.app()?))
    }

    /// A pod.
    pub(crate) fn pod(&self, id: &SpecId) -> Option<(&Arc<SpecView>, &Pod)> {
        let view = self.specs.get(id)?;
        Some((view, view.record.spec.pod()?))
    }

    /// The id of the deployment that locks an app or pod.
    pub(crate) fn lock(&self, id: &SpecId) -> Option<&Arc<str>> {
        self.locks.get(id)
    }

    /// Whether there is such a group. The root group always exists.
    pub(crate) fn has_group(&self, id: &GroupId) -> bool {
        id.is_root() || self.groups.contains_key(id)
    }

    /// The apps and pods below a group, at any depth.
    pub(crate) fn specs_below(&self, group: &GroupId) -> impl Iterator<Item = &Arc<SpecView>> + use<'_> {
        let (from, prefix) = (group.prefix(), group.prefix());
        self.specs
            .range::<_, str>((Bound::Included(from.as_str()), Bound::Unbounded))
            .take_while(move |(id, _)| id.as_str().starts_with(&prefix))
            .map(|(_, view)| view)
    }
}

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

/// The end of a pod's instance, as `terminationHistory` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TerminationHistory")]
pub(crate) struct Termination {
    #[serde(rename = "instanceID")]
    pub(crate) instance: InstanceId,
    pub(crate) started_at: Moment,
    pub(crate) terminated_at: Moment,
    pub(crate) containers: Vec<EndedContainer>,
}

/// A container of an instance that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndedContainer {
    pub(crate) container_id: String,
    pub(crate) last_known_state: String,
    pub(crate) termination: ContainerTermination,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerTermination {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    #[serde(default)]
    pub(crate) message: String,
}

impl ContainerTermination {
    /// Parses the last status of a task. Agents report the exit code only in the message.
    pub(crate) fn of(record: &TaskRecord) -> Self {
        let message = record.status.as_ref().and_then(|status| status.message.clone());
        let message = message.unwrap_or_default();
        let code = message.split_once("exited with status ");
        let code = code.and_then(|(_, rest)| rest.split_whitespace().next());
        Self {
            exit_code: code.and_then(|code| code.parse().ok()),
            message,
        }
    }
}

impl Termination {
    /// The end of an instance whose tasks have all ended.
    pub(crate) fn new(instance: &Instance) -> Option<Self> {
        let records = || instance.tasks.iter().map(|instance_task| &instance_task.record);
        let started = records().map(|record| record.started_at.unwrap_or(record.intended_at));
        let ended = records().map(|record| record.updated_at);
        let containers = records().map(|record| EndedContainer {
            container_id: record.id.to_string(),
            last_known_state: record.state.as_str().to_owned(),
            termination: ContainerTermination::of(record),
        });
        Some(Self {
            instance: instance.id.clone(),
            started_at: Moment::from(started.min()?),
            terminated_at: Moment::from(ended.max()?),
            containers: containers.collect(),
        })
    }
}

/// The app's most recent task failure, as `lastTaskFailure` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskFailure {
    pub(crate) app_id: SpecId,
    pub(crate) host: String,
    pub(crate) message: String,
    pub(crate) state: String,
    pub(crate) task_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slave_id: Option<String>,
    pub(crate) timestamp: Moment,
    pub(crate) version: Moment,
}

impl TaskFailure {
    /// The failure of the task that this record shows.
    pub(crate) fn new(app: &SpecId, version: Moment, record: &TaskRecord) -> Self {
        let message = record.status.as_ref().and_then(|status| status.message.clone());
        Self {
            app_id: app.clone(),
            host: record.agent.hostname.clone(),
            message: message.unwrap_or_default(),
            state: record.state.as_str().to_owned(),
            task_id: record.id.to_string(),
            slave_id: Some(record.agent.id.to_string()),
            timestamp: Moment::from(record.updated_at),
            version,
        }
    }
}
