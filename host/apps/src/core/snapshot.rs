//! The snapshot for readers: immutable, published after every change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use transom_scheduler::TaskRecord;

use super::history::History;
use crate::deploy::Deployment;
use crate::ids::{AppId, GroupId, InstanceId};
use crate::instance::Instance;
use crate::model::App;
use crate::time::Moment;
use crate::tree::Group;

/// Everything that the API reads. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Apps without those that are being deleted.
    pub(crate) apps: OrdMap<AppId, Arc<AppView>>,
    /// Apps that are being deleted, while they have tasks.
    pub(crate) deleted: OrdMap<AppId, Arc<AppView>>,
    /// Groups with definitions; the root group may have none.
    pub(crate) groups: OrdMap<GroupId, Arc<Group>>,
    /// Running deployments by version and id, oldest first.
    pub(crate) deployments: OrdMap<(Moment, String), Arc<Deployment>>,
    /// The deployment that locks an app.
    pub(crate) locks: OrdMap<AppId, Arc<str>>,
    /// The last changes.
    pub(crate) history: History,
}

impl Snapshot {
    /// The id of the deployment that locks an app.
    pub(crate) fn lock(&self, app: &AppId) -> Option<&Arc<str>> {
        self.locks.get(app)
    }

    /// Whether there is such a group. The root group always exists.
    pub(crate) fn has_group(&self, id: &GroupId) -> bool {
        id.is_root() || self.groups.contains_key(id)
    }

    /// The apps below a group, at any depth.
    pub(crate) fn apps_below(&self, group: &GroupId) -> impl Iterator<Item = &Arc<AppView>> + use<'_> {
        let (from, prefix) = (group.prefix(), group.prefix());
        self.apps
            .range::<_, str>((Bound::Included(from.as_str()), Bound::Unbounded))
            .take_while(move |(id, _)| id.as_str().starts_with(&prefix))
            .map(|(_, view)| view)
    }
}

/// One app.
#[derive(Clone, Debug)]
pub(crate) struct AppView {
    pub(crate) app: Arc<App>,
    /// All kept versions, the current one last.
    pub(crate) versions: Arc<[Moment]>,
    /// Past definitions that instances were launched from.
    pub(crate) past: BTreeMap<Moment, Arc<App>>,
    pub(crate) instances: OrdMap<InstanceId, Arc<Instance>>,
    pub(crate) last_failure: Option<TaskFailure>,
}

impl AppView {
    /// The definition that a task was launched from; the current one if that one is not known.
    pub(crate) fn definition(&self, version: Moment) -> &Arc<App> {
        self.past.get(&version).unwrap_or(&self.app)
    }
}

/// The app's most recent task failure, as `lastTaskFailure` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskFailure {
    pub(crate) app_id: AppId,
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
    pub(crate) fn new(app: &AppId, version: Moment, record: &TaskRecord) -> Self {
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
