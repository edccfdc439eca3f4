//! Instances and their tasks, which Marathon stores as JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::StoredError;
use crate::ids::InstanceId;

/// Conditions of tasks that have ended.
const ENDED: &[&str] = &["Error", "Failed", "Finished", "Killed", "Gone", "Dropped"];

/// An instance of an app or pod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    #[serde(rename = "instanceId")]
    id: Id,
    agent_info: Option<AgentInfo>,
    run_spec_version: String,
    #[serde(rename = "tasksMap")]
    tasks: BTreeMap<String, Task>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Id {
    id_string: String,
}

#[derive(Debug, Deserialize)]
struct AgentInfo {
    host: String,
    region: Option<String>,
    zone: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    run_spec_version: Option<String>,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    staged_at: Option<String>,
    started_at: Option<String>,
    condition: Option<Condition>,
    network_info: Option<NetworkInfo>,
}

/// A condition: a word, or as Marathon 1.5 wrote it, an object with the word.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Condition {
    Word(String),
    Object { str: String },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkInfo {
    host_ports: Vec<u16>,
}

impl Task {
    fn has_ended(&self) -> bool {
        self.status.condition.as_ref().is_some_and(|condition| {
            let (Condition::Word(word) | Condition::Object { str: word }) = condition;
            ENDED.iter().any(|ended| ended.eq_ignore_ascii_case(word))
        })
    }

    fn host_ports(&self) -> &[u16] {
        let info = self.status.network_info.as_ref();
        info.map_or(&[], |info| &info.host_ports)
    }
}

impl Instance {
    pub(super) fn parse(content: &[u8]) -> Result<Self, StoredError> {
        serde_json::from_slice(content).map_err(StoredError::Json)
    }

    pub(super) fn id(&self) -> &str {
        &self.id.id_string
    }

    /// The id of its app or pod; `None` if its own id has another form than Marathon's.
    pub(super) fn spec(&self) -> Option<String> {
        let spec = InstanceId::parse(self.id())?.spec()?;
        Some(spec.to_string())
    }

    /// Its version.
    pub(super) fn version(&self) -> &str {
        &self.run_spec_version
    }

    /// The versions that its tasks were launched from.
    pub(super) fn versions(&self) -> impl Iterator<Item = &str> {
        let tasks = self.tasks.values();
        tasks
            .filter_map(|task| task.run_spec_version.as_deref())
            .chain([self.run_spec_version.as_str()])
    }

    /// The tasks of an app, in the form of `GET /v2/apps`.
    pub(super) fn app_tasks(&self) -> impl Iterator<Item = Value> {
        let agent = self.agent_info.as_ref();
        let tasks = self.tasks.iter().filter(|(_, task)| !task.has_ended());
        tasks.map(move |(id, task)| {
            json!({
                "id": id,
                "version": task.run_spec_version.as_ref().unwrap_or(&self.run_spec_version),
                "ports": task.host_ports(),
                "host": agent.map(|agent| &agent.host),
                "region": agent.and_then(|agent| agent.region.as_ref()),
                "zone": agent.and_then(|agent| agent.zone.as_ref()),
                "stagedAt": task.status.staged_at,
                "startedAt": task.status.started_at,
            })
        })
    }

    /// The instance of a pod, in the form of `GET /v2/pods/::status`. `pod` is the definition of its
    /// version, which names the endpoints that have its ports.
    pub(super) fn pod_instance(&self, pod: &Value) -> Value {
        let agent = self.agent_info.as_ref();
        let containers = self.tasks.iter().map(|(id, task)| {
            let name = id.strip_prefix(self.id()).and_then(|rest| rest.strip_prefix('.'));
            let name = name.and_then(|rest| rest.split('.').next()).unwrap_or_default();
            let ports = endpoints(pod, name).zip(task.host_ports());
            let endpoints = ports.map(|(name, port)| json!({"name": name, "allocatedHostPort": port}));
            json!({"name": name, "containerId": id, "endpoints": endpoints.collect::<Vec<_>>()})
        });
        json!({
            "id": self.id(),
            "specReference": format!("/{}", self.run_spec_version),
            "agentHostname": agent.map(|agent| &agent.host),
            "agentRegion": agent.and_then(|agent| agent.region.as_ref()),
            "agentZone": agent.and_then(|agent| agent.zone.as_ref()),
            "containers": containers.collect::<Vec<_>>(),
        })
    }
}

/// The endpoints of a container that have a port of the agent, in their order.
fn endpoints<'a>(pod: &'a Value, container: &str) -> impl Iterator<Item = &'a str> {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let named = containers.filter(move |one| one["name"] == container);
    let endpoints = named.flat_map(|one| one["endpoints"].as_array().into_iter().flatten());
    endpoints
        .filter(|endpoint| endpoint["hostPort"].is_u64())
        .filter_map(|endpoint| endpoint["name"].as_str())
}
