//! A job: everything needed to launch it, with defaults filled in. Stored until the job ends.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExecutorConfig, JobPort, Mount};

/// A job's definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) command: Command,
    /// `None`: the configured one.
    pub(crate) image: Option<String>,
    pub(crate) containerizer: Containerizer,
    pub(crate) cpus: f64,
    /// Megabytes, as `disk`.
    pub(crate) mem: f64,
    pub(crate) disk: f64,
    pub(crate) gpus: f64,
    pub(crate) environment: BTreeMap<String, String>,
    /// The job's own conditions; the configured ones are added when it is launched.
    pub(crate) attributes: Vec<String>,
    pub(crate) force_pull: bool,
    /// The network mode as written in the request; `None`: the configured one.
    pub(crate) network_mode: Option<String>,
    /// The user in the container.
    pub(crate) user: Option<String>,
    pub(crate) volumes: Vec<Mount>,
    pub(crate) ports: Vec<JobPort>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether the configured container socket is mounted.
    pub(crate) container_sock: bool,
    /// Jobs with a higher priority are matched with offers first.
    #[serde(default)]
    pub(crate) priority: i32,
    /// Maximum seconds that the job may be pending before it fails.
    pub(crate) max_wait: Option<f64>,
    /// Maximum seconds that the job may run, enforced by its agent.
    pub(crate) max_runtime: Option<f64>,
    /// Seconds between SIGTERM and SIGKILL.
    pub(crate) kill_grace: Option<f64>,
    /// The task of the workflow engine; `/v0/dags` lists jobs that have one.
    pub(crate) key: Option<Key>,
    /// The workflow engine's settings of the task, unchanged; returned by `/v0/dags`.
    pub(crate) executor_config: ExecutorConfig,
}

/// The memory of a list's or map's element besides its text.
const ELEMENT_BYTES: usize = 128;
/// The memory of an active job besides its definition.
const JOB_BYTES: usize = 512;

impl Spec {
    /// The approximate memory of an active job with this definition.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let map = |map: &BTreeMap<String, String>| -> usize {
            let elements = map.iter();
            elements
                .map(|(name, value)| ELEMENT_BYTES + name.len() + value.len())
                .sum()
        };
        let command = match &self.command {
            Command::Args(argv) => argv.iter().map(|word| ELEMENT_BYTES + word.len()).sum(),
            Command::Shell(line) => line.len(),
        };
        let volumes = self.volumes.iter().map(|mount| {
            let texts = mount.source.len() + text(&mount.driver) + mount.container_path.len();
            ELEMENT_BYTES + texts
        });
        let ports = self.ports.iter().map(|port| ELEMENT_BYTES + text(&port.name));
        let key = self.key.as_ref();
        let key = key.map_or(0, |key| key.dag_id.len() + key.task_id.len() + key.run_id.len());
        // The matching keeps its own copies of the constraints.
        let attributes = self.attributes.iter().map(|one| 4 * (ELEMENT_BYTES + one.len()));
        JOB_BYTES
            + size_of::<Self>()
            + command
            + text(&self.image)
            + map(&self.environment)
            + attributes.sum::<usize>()
            + text(&self.network_mode)
            + text(&self.user)
            + volumes.sum::<usize>()
            + ports.sum::<usize>()
            + map(&self.labels)
            + key
            + self.executor_config.len()
    }
}

/// The command of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// A program and its arguments, unchanged. Empty: the image's own command.
    Args(Vec<String>),
    /// A line for the agent's shell.
    Shell(String),
}

/// The containerizer that runs the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Containerizer {
    /// `CONTAINER`, `DOCKER`.
    #[default]
    Docker,
    /// `MESOS`.
    Mesos,
}

/// One try of a task of a DAG's run.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) dag_id: String,
    pub(crate) task_id: String,
    #[serde(default)]
    pub(crate) run_id: String,
    #[serde(default)]
    pub(crate) try_number: i64,
    /// -1 for a task that is not mapped.
    #[serde(default = "unmapped")]
    pub(crate) map_index: i64,
}

fn unmapped() -> i64 {
    -1
}
