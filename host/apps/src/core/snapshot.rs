//! The snapshot for readers: immutable, published after every change.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_scheduler::TaskRecord;

use crate::deploy::Deployment;
use crate::ids::AppId;
use crate::instance::Instance;
use crate::model::App;
use crate::time::Moment;

/// Everything that the API reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Apps without those that are being deleted.
    pub(crate) apps: BTreeMap<AppId, Arc<AppView>>,
    /// Apps that are being deleted, while they have tasks.
    pub(crate) deleted: BTreeMap<AppId, Arc<AppView>>,
    /// Running deployments, oldest first.
    pub(crate) deployments: Vec<Arc<Deployment>>,
}

impl Snapshot {
    /// Ids of the deployments that lock an app.
    pub(crate) fn locks(&self, app: &AppId) -> impl Iterator<Item = &str> {
        self.deployments
            .iter()
            .filter(move |deployment| deployment.app == *app)
            .map(|deployment| deployment.id.as_str())
    }
}

/// One app.
#[derive(Clone, Debug)]
pub(crate) struct AppView {
    pub(crate) app: Arc<App>,
    /// All kept definitions, the current one last.
    pub(crate) versions: Vec<Arc<App>>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) last_failure: Option<TaskFailure>,
}

impl AppView {
    /// The definition that a task was launched from; the current one if that one is no longer kept.
    pub(crate) fn definition(&self, version: Moment) -> &Arc<App> {
        self.versions
            .iter()
            .find(|app| app.version == version)
            .unwrap_or(&self.app)
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
