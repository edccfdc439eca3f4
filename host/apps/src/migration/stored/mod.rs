//! The state that a Marathon stores in ZooKeeper, as the responses that its API would give.
//!
//! Pure: the caller reads the nodes. Their paths are below that of Marathon (`--zk`):
//!
//! | node | content |
//! |---|---|
//! | `/state/internal:storage:version` | a `ZKStoreEntry` with a `StorageVersion` |
//! | `/state/framework-id/B/id` | a `mesos.FrameworkID` |
//! | `/state/group/B/root` | a `GroupDefinition`: the tree of groups; it names the version of each app and pod |
//! | `/state/apps/B/ID/VERSION` | a `ServiceDefinition` |
//! | `/state/pods/B/ID/VERSION` | the pod as JSON |
//! | `/state/instance/B/ID` | the instance with its tasks as JSON |
//! | `/state/deployment/B/ID` | a `DeploymentPlanDefinition`, while it runs |
//! | `/state/taskFailures/B/ID` | a `TaskFailure`: the last one of the app |
//! | `/leader-curator/…` | an ephemeral node for each running process |
//!
//! `B` is a hash of the next name in the path. The names of apps, pods and instances are their ids with `_` for
//! `/`. A node without content is a deleted one. Marathon can be told to compress nodes; 1.5 and
//! later do not, and gzip is recognized by its first bytes.
//!
//! Formats and field numbers are those of the sources of Marathon 1.5.x, 1.8, 1.9 and master after
//! 1.10 (`marathon.proto`, `ZkPersistenceStore`, `ZkStoreSerialization`, `AppDefinition`, `Instance`,
//! and the migrations, from which the storage versions are known), and of Mesos 1.7 (`mesos.proto`).
//!
//! Not in these nodes, so not imported: results of checks, backoffs, the queue.

mod app;
#[cfg(test)]
mod app_tests;
mod checks;
mod container;
mod instance;
mod layout;
mod messages;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::{Value, json};

pub use layout::{Category, LEADERS, VERSION, check_version, wanted_versions};

use self::instance::Instance;
use self::layout::{content, message};
use super::Marathon;
use super::report::{Finding, Kind};

/// `mesos.TaskState`, by number.
const TASK_STATES: &[&str] = &[
    "TASK_STARTING",
    "TASK_RUNNING",
    "TASK_FINISHED",
    "TASK_FAILED",
    "TASK_KILLED",
    "TASK_LOST",
    "TASK_STAGING",
    "TASK_ERROR",
    "TASK_KILLING",
    "TASK_DROPPED",
    "TASK_UNREACHABLE",
    "TASK_GONE",
    "TASK_GONE_BY_OPERATOR",
    "TASK_UNKNOWN",
];

/// Why a node cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// Its content is no such message.
    #[error("it is damaged")]
    Protobuf(#[source] prost::DecodeError),
    /// Its content is no such JSON.
    #[error("it is damaged")]
    Json(#[source] serde_json::Error),
    /// It is compressed and damaged.
    #[error("it is damaged gzip")]
    Gzip(#[source] io::Error),
    /// Its content is too large when it is decompressed.
    #[error("it has more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// It is not there, or was deleted after it was listed.
    #[error("it does not exist, or was deleted while the state was read")]
    Missing,
    /// It contains something that is not imported.
    #[error("{0}")]
    Unsupported(String),
    /// The state has another storage version.
    #[error(
        "the storage version {found} (format {format}) is not supported, only those of Marathon 1.5 to 1.11: 1.5.x, \
         1.6.x, 17, 18, 18.100, 18.200, 19.100, 19.200, 19.300 and 110, each with format 1. Start a Marathon of one of \
         these releases once, which migrates its state, or import over Marathon's API while it runs"
    )]
    Version {
        /// The version.
        found: String,
        /// The number of the storage format.
        format: i32,
    },
}

type Result<T> = std::result::Result<T, StoredError>;

fn unsupported(text: impl Into<String>) -> StoredError {
    StoredError::Unsupported(text.into())
}

/// Reads the framework's id from the content of its node.
///
/// # Errors
/// If it is damaged.
pub fn read_framework_id(data: &[u8]) -> Result<String> {
    Ok(message::<messages::Id>(data)?.value)
}

/// An app or a pod at one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The category of its nodes.
    pub category: Category,
    /// Its id, such as `/shop/web`.
    pub id: String,
    /// The name of the version's node.
    pub version: String,
}

impl Reference {
    /// The path of the node that contains all versions, below the path of Marathon.
    pub fn folder(&self) -> String {
        self.category.node(&safe_path(&self.id))
    }

    /// The path of the last failure, below the path of Marathon.
    pub fn failure(&self) -> String {
        Category::TaskFailures.node(&safe_path(&self.id))
    }
}

/// The name of a node for an id.
fn safe_path(id: &str) -> String {
    id.trim_start_matches('/').replace('/', "_")
}

/// The id that a node's name stands for.
fn from_safe_path(name: &str) -> String {
    format!("/{}", name.replace('_', "/"))
}

/// The state that is collected node by node.
///
/// A node that cannot be read becomes a finding with its path, so that a report names all of them.
#[derive(Debug)]
pub struct StoredState {
    marathon: Marathon,
    /// The current versions.
    current: BTreeSet<Reference>,
    /// The instances by the ids of their apps and pods.
    instances: BTreeMap<String, Vec<Instance>>,
}

impl StoredState {
    /// A state from the framework's id and the content of the root group.
    ///
    /// # Errors
    /// If the root group cannot be read.
    pub fn new(framework_id: &str, root: &[u8]) -> Result<Self> {
        let root: messages::Group = message(root)?;
        let mut current = BTreeSet::new();
        let groups = groups(&root, &mut current)?;
        let marathon = Marathon {
            info: json!({"frameworkId": framework_id}),
            groups,
            ..Marathon::default()
        };
        Ok(Self {
            marathon,
            current,
            instances: BTreeMap::new(),
        })
    }

    /// The apps and pods with their current versions.
    pub fn current(&self) -> &BTreeSet<Reference> {
        &self.current
    }

    /// Adds a node of [`Category::Instances`]. Call this before [`Self::used_versions`].
    pub fn add_instance(&mut self, path: &str, data: &[u8]) {
        let instance = content(data).and_then(|content| Instance::parse(&content));
        let instance = instance.and_then(|instance| {
            let is_here = path.ends_with(&Category::Instances.node(instance.id()));
            let spec = instance.spec().filter(|_| is_here);
            let spec = spec.ok_or_else(|| {
                let id = instance.id();
                unsupported(format!(
                    "it contains the instance {id:?}, which does not belong there"
                ))
            });
            Ok((spec?, instance))
        });
        match instance {
            Ok((spec, instance)) => self.instances.entry(spec).or_default().push(instance),
            Err(error) => self.reject(path, &error),
        }
    }

    /// Adds a node of [`Category::Deployments`].
    pub fn add_deployment(&mut self, path: &str, data: &[u8]) {
        match message::<messages::Deployment>(data) {
            Ok(deployment) => self.marathon.deployments.push(json!({"id": deployment.id})),
            Err(error) => self.reject(path, &error),
        }
    }

    /// The versions of an app or pod that its tasks were launched from.
    pub fn used_versions(&self, id: &str) -> Vec<String> {
        let instances = self.instances.get(id).into_iter().flatten();
        let versions: BTreeSet<&str> = instances.flat_map(Instance::versions).collect();
        versions.into_iter().map(str::to_owned).collect()
    }

    /// Adds the definition of a version. Unless it is the current one, a definition that cannot be read
    /// is left out, and listed.
    pub fn add_definition(&mut self, definition: &Reference, path: &str, data: &[u8]) {
        let is_current = self.current.contains(definition);
        match read_definition(definition, data) {
            Ok(document) => {
                if is_current {
                    let list = match definition.category {
                        Category::Pods => &mut self.marathon.pods,
                        _ => &mut self.marathon.apps,
                    };
                    list.push(document.clone());
                }
                let versions = self.marathon.versions.entry(definition.id.clone());
                versions.or_default().push(document);
            }
            Err(error) if is_current => self.reject(path, &error),
            Err(error) => {
                let text = format!("This past version is not imported: {}.", text(&error));
                self.add_finding(Kind::Differs, path, text);
            }
        }
    }

    /// Adds the last failure of an app. Call this after its current definition was added.
    pub fn add_failure(&mut self, app: &Reference, data: &[u8]) {
        match read_failure(&app.id, data) {
            Ok(failure) => {
                let last = self.marathon.apps.last_mut();
                if let Some(document) = last.filter(|document| document["id"] == app.id) {
                    document["lastTaskFailure"] = failure;
                }
            }
            Err(error) => self.reject(&app.failure(), &error),
        }
    }

    /// Adds the reason why a node cannot be read.
    pub fn reject(&mut self, path: &str, error: &StoredError) {
        self.add_finding(
            Kind::Rejected,
            path,
            format!("It cannot be read: {}.", text(error)),
        );
    }

    fn add_finding(&mut self, kind: Kind, subject: &str, text: String) {
        let subject = subject.to_owned();
        self.marathon.findings.push(Finding { kind, subject, text });
    }

    /// The state as the responses of Marathon's API.
    pub fn into_marathon(mut self) -> Marathon {
        let of = |document: &Value| {
            let id = document["id"].as_str().unwrap_or_default();
            self.instances.get(id).map(Vec::as_slice).unwrap_or_default()
        };
        for app in &mut self.marathon.apps {
            let tasks = of(app).iter().flat_map(Instance::app_tasks);
            app["tasks"] = tasks.collect();
        }
        for pod in &self.marathon.pods {
            let versions = pod["id"].as_str().and_then(|id| self.marathon.versions.get(id));
            let instances = of(pod).iter().map(|instance| {
                let version = time(instance.version());
                let is_its = |one: &&Value| one["version"].as_str().and_then(time) == version;
                let definition = versions.into_iter().flatten().find(is_its);
                instance.pod_instance(definition.unwrap_or(&Value::Null))
            });
            let status = json!({"id": pod["id"], "instances": instances.collect::<Vec<_>>()});
            self.marathon.pod_statuses.push(status);
        }
        self.marathon
    }
}

/// A version, which is written with or without zeros at its end.
fn time(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

fn text(error: &StoredError) -> String {
    transom_common::error_chain(error)
}

/// The document of a group, in the form of `GET /v2/groups`. The decoder limits the depth.
fn groups(group: &messages::Group, current: &mut BTreeSet<Reference>) -> Result<Value> {
    let apps = group.apps.iter().map(|one| (Category::Apps, one));
    let pods = group.pods.iter().map(|one| (Category::Pods, one));
    for (category, reference) in apps.chain(pods) {
        if reference.id.contains('/') || reference.version.parse::<jiff::Timestamp>().is_err() {
            return Err(unsupported(format!(
                "it names the version {:?} of {:?}",
                reference.version, reference.id
            )));
        }
        current.insert(Reference {
            category,
            id: from_safe_path(&reference.id),
            version: reference.version.clone(),
        });
    }
    let below = group.groups.iter().map(|below| groups(below, current));
    let below = below.collect::<Result<Vec<_>>>()?;
    let dependencies = group.dependencies.iter();
    Ok(json!({
        "id": from_safe_path(&group.id),
        "version": group.version,
        "dependencies": dependencies.map(|one| from_safe_path(one)).collect::<Vec<_>>(),
        "enforceRole": group.enforce_role.unwrap_or_default(),
        "groups": below,
    }))
}

fn read_definition(definition: &Reference, data: &[u8]) -> Result<Value> {
    let document = match definition.category {
        Category::Pods => serde_json::from_slice(&content(data)?).map_err(StoredError::Json)?,
        _ => app::document(&message(data)?)?,
    };
    let version = document["version"].as_str().and_then(time);
    if document["id"] == definition.id && version == time(&definition.version) {
        return Ok(document);
    }
    Err(unsupported(format!(
        "it contains {} {}, which does not belong there",
        document["id"], document["version"]
    )))
}

fn read_failure(app: &str, data: &[u8]) -> Result<Value> {
    let failure: messages::TaskFailure = message(data)?;
    if failure.app_id != app {
        let id = failure.app_id;
        return Err(unsupported(format!(
            "it contains the failure of {id:?}, which does not belong there"
        )));
    }
    Ok(json!({
        "appId": failure.app_id,
        "taskId": failure.task_id.value,
        "state": values::named(TASK_STATES, failure.state, "state of a task")?,
        "message": failure.message.unwrap_or_default(),
        "host": failure.host.unwrap_or_default(),
        "version": failure.version,
        "timestamp": failure.timestamp,
        "slaveId": failure.agent_id.map(|id| id.value),
    }))
}
