//! How tasks and instances ended, as it is stored and shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_scheduler::TaskRecord;

use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;
use crate::time::Moment;

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
    /// Parses the last status of a task.
    pub(crate) fn of(record: &TaskRecord) -> Self {
        let message = record.status.as_ref().and_then(|status| status.message.clone());
        let message = message.unwrap_or_default();
        Self {
            exit_code: exit_code(&message),
            message,
        }
    }
}

/// The exit code in the message of a status: agents report it nowhere else.
pub(crate) fn exit_code(message: &str) -> Option<i32> {
    let (_, rest) = message.split_once("exited with status ")?;
    rest.split_whitespace().next()?.parse().ok()
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
