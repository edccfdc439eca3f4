//! The tasks in Marathon's responses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::marathon::Marathon;

/// A task in Marathon's responses.
#[derive(Debug, Default)]
pub(super) struct MarathonTask {
    pub(super) spec: String,
    pub(super) version: String,
    /// Host ports of an app's task, in the order of the definition.
    pub(super) ports: Vec<u16>,
    /// Host ports of a pod's container, by endpoint.
    pub(super) endpoints: BTreeMap<String, u16>,
    /// The container's name; empty for an app's task.
    pub(super) container: String,
    pub(super) host: String,
    pub(super) region: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) staged_at: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
}

/// All tasks in Marathon's responses, by their ids.
#[derive(Debug)]
pub(super) struct TaskIndex(pub(super) BTreeMap<String, MarathonTask>);

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl TaskIndex {
    pub(super) fn new(marathon: &Marathon) -> Self {
        let mut tasks = BTreeMap::new();
        for app in &marathon.apps {
            for task in list(&app["tasks"]) {
                let marathon_task = MarathonTask {
                    spec: text(&app["id"]).unwrap_or_default(),
                    version: text(&task["version"]).unwrap_or_default(),
                    ports: list(&task["ports"]).filter_map(port).collect(),
                    host: text(&task["host"]).unwrap_or_default(),
                    region: text(&task["region"]),
                    zone: text(&task["zone"]),
                    staged_at: time(&task["stagedAt"]),
                    started_at: time(&task["startedAt"]),
                    ..MarathonTask::default()
                };
                tasks.extend(text(&task["id"]).map(|id| (id, marathon_task)));
            }
        }
        for status in &marathon.pod_statuses {
            for instance in list(&status["instances"]) {
                let reference = text(&instance["specReference"]).unwrap_or_default();
                let version = reference.rsplit_once('/').map_or("", |(_, version)| version);
                for container in list(&instance["containers"]) {
                    let endpoints = list(&container["endpoints"]).filter_map(|endpoint| {
                        Some((text(&endpoint["name"])?, port(&endpoint["allocatedHostPort"])?))
                    });
                    let marathon_task = MarathonTask {
                        spec: text(&status["id"]).unwrap_or_default(),
                        version: version.to_owned(),
                        endpoints: endpoints.collect(),
                        container: text(&container["name"]).unwrap_or_default(),
                        host: text(&instance["agentHostname"]).unwrap_or_default(),
                        region: text(&instance["agentRegion"]),
                        zone: text(&instance["agentZone"]),
                        ..MarathonTask::default()
                    };
                    tasks.extend(text(&container["containerId"]).map(|id| (id, marathon_task)));
                }
            }
        }
        Self(tasks)
    }

    /// The versions from which tasks were launched, by the ids of apps and pods.
    pub(super) fn versions(&self) -> BTreeMap<String, Vec<String>> {
        let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for marathon_task in self
            .0
            .values()
            .filter(|marathon_task| !marathon_task.version.is_empty())
        {
            let of_spec = versions.entry(marathon_task.spec.clone()).or_default();
            of_spec.insert(marathon_task.version.clone());
        }
        let sorted = versions.into_iter();
        sorted
            .map(|(id, versions)| (id, versions.into_iter().collect()))
            .collect()
    }
}

impl Marathon {
    /// The versions from which tasks were launched, by the ids of apps and pods. The translation
    /// needs their definitions.
    pub fn used_versions(&self) -> BTreeMap<String, Vec<String>> {
        TaskIndex::new(self).versions()
    }
}
