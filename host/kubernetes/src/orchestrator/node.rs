//! A node of the orchestrator, and the task in which it runs.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::pods::Amounts;
use super::quantity::Resources;

/// The label with the task's id, which upstream's commands set.
const TASK_LABEL: &str = "m3s.aventer.biz/taskid";
/// The annotation of a node that is cordoned only because this service drains it. A new leader
/// continues the drain, or cancels it.
pub(super) const DRAINING: &str = "transom/draining";
/// The arguments of the node's program as a JSON list.
const ARGUMENTS: &str = "k3s.io/node-args";
const ROLES: &[&str] = &[
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

#[cfg(test)]
thread_local! {
    /// How often this thread has compared a node with tasks.
    pub(crate) static LOOK_UPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// The id of its task, from a label or the arguments of its program.
    pub(crate) task: Option<String>,
    /// Whether its condition `Ready` is `True`.
    pub(crate) ready: bool,
    /// Since when it is ready or not ready.
    pub(crate) ready_since: Option<Timestamp>,
    /// Whether it is cordoned.
    pub(crate) cordoned: bool,
    /// Whether this service has cordoned it for a drain.
    pub(crate) draining: bool,
    /// Whether it is deleted and remains only until its finalizers have ended.
    pub(crate) deleting: bool,
    /// Its resources for pods, if the API reports them.
    pub(crate) allocatable: Option<Resources>,
    /// `status.nodeInfo` as the API sent it.
    pub(crate) info: Value,
    /// Whether it has a role of the control plane.
    pub(crate) control_plane: bool,
}

impl Node {
    /// The ids of which one is its task's: its task id, or without one each end of its name that
    /// follows a dash, because the name ends with the id.
    pub(crate) fn possible_tasks(&self) -> impl Iterator<Item = &str> {
        #[cfg(test)]
        LOOK_UPS.with(|count| count.set(count.get() + 1));
        let ends = self
            .name
            .match_indices('-')
            .map(|(dash, _)| &self.name[dash + 1..]);
        let ends = ends.filter(|end| self.task.is_none() && !end.is_empty());
        self.task.as_deref().into_iter().chain(ends)
    }
}

/// Nodes by the tasks that may be theirs, so that comparing members with nodes costs as much as there
/// are of both. The nodes of a task are in the order of the API.
#[derive(Debug, Default)]
pub(crate) struct NodesByTask<'n>(HashMap<&'n str, Vec<&'n Node>>);

impl<'n> NodesByTask<'n> {
    pub(crate) fn new(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        let mut by_task: HashMap<&str, Vec<&Node>> = HashMap::new();
        for node in nodes {
            for task in node.possible_tasks() {
                by_task.entry(task).or_default().push(node);
            }
        }
        Self(by_task)
    }

    /// The nodes of a task.
    pub(crate) fn of(&self, task: &str) -> &[&'n Node] {
        self.0.get(task).map_or(&[], Vec::as_slice)
    }
}

/// The fields of a `Node` that are read. Unknown fields are ignored, and fields may be missing from a
/// node that has just been registered.
#[derive(Deserialize)]
pub(super) struct NodeObject {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    /// A value may be `null`, because some servers store the `null` of a patch literally.
    annotations: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Deserialize)]
struct Spec {
    unschedulable: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    node_info: Option<Value>,
    allocatable: Option<Amounts>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    last_transition_time: Option<String>,
}

impl From<NodeObject> for Node {
    fn from(object: NodeObject) -> Self {
        let labels = object.metadata.labels.unwrap_or_default();
        let (info, allocatable, conditions) = match object.status {
            Some(status) => (
                status.node_info,
                status.allocatable.and_then(|amounts| amounts.allocatable()),
                status.conditions.unwrap_or_default(),
            ),
            None => (None, None, Vec::new()),
        };
        let ready = conditions.iter().find(|condition| condition.r#type == "Ready");
        let task = labels.get(TASK_LABEL).filter(|id| !id.is_empty()).cloned();
        let annotation = |name: &str| object.metadata.annotations.as_ref()?.get(name)?.as_ref();
        let arguments = annotation(ARGUMENTS);
        Self {
            name: object.metadata.name,
            task: task.or_else(|| arguments.and_then(|list| task_in_arguments(list))),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            ready_since: ready
                .and_then(|ready| ready.last_transition_time.as_deref())
                .and_then(|time| time.parse().ok()),
            draining: annotation(DRAINING).is_some(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            allocatable,
            cordoned: object.spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            info: info.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            control_plane: ROLES.iter().any(|role| labels.contains_key(*role)),
        }
    }
}

/// The task's id from `["server", "--node-label m3s.aventer.biz/taskid=<id>"]`. Upstream's agents have
/// `--kubelet-arg node-labels m3s…` instead, and a program may split the argument at `=`.
fn task_in_arguments(list: &str) -> Option<String> {
    const NAME: &str = "taskid";
    let arguments: Vec<String> = serde_json::from_str(list).ok()?;
    let found = arguments.iter().enumerate().find_map(|(at, argument)| {
        let after = &argument[argument.rfind(NAME)? + NAME.len()..];
        match after.strip_prefix('=') {
            Some(id) => id.split([' ', ',']).next(),
            None if after.is_empty() => arguments.get(at + 1).map(String::as_str),
            None => None,
        }
    });
    found.filter(|id| !id.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(object: Value) -> Node {
        serde_json::from_value::<NodeObject>(object).unwrap().into()
    }

    #[test]
    fn task_is_read_from_the_label_or_the_arguments() {
        for (labels, arguments, task) in [
            (
                json!({TASK_LABEL: "t1"}),
                r#"["--node-label","m3s.aventer.biz/taskid=t2"]"#,
                Some("t1"),
            ),
            (
                json!({}),
                r#"["server","--node-label m3s.aventer.biz/taskid=t2","--x"]"#,
                Some("t2"),
            ),
            (
                json!({}),
                r#"["agent","--kubelet-arg","node-labels m3s.aventer.biz/taskid=t3,a=b"]"#,
                Some("t3"),
            ),
            (
                json!({}),
                r#"["--node-label","m3s.aventer.biz/taskid","t4"]"#,
                Some("t4"),
            ),
            (json!({}), r#"["--node-label","m3s.aventer.biz/taskid"]"#, None),
            (json!({}), r#"["--node-label","m3s.aventer.biz/taskid="]"#, None),
            (json!({TASK_LABEL: ""}), r#"["server"]"#, None),
            (json!(null), "not a list", None),
        ] {
            let metadata = json!({"name": "n", "labels": labels, "annotations": {ARGUMENTS: arguments}});
            let node = node(json!({"metadata": metadata}));
            assert_eq!(node.task.as_deref(), task, "{labels} {arguments}");
        }
    }

    #[test]
    fn a_deleted_node_with_finalizers_is_recognised() {
        let deleting =
            json!({"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
        for (metadata, expected) in [(deleting, true), (json!({"name": "n"}), false)] {
            assert_eq!(node(json!({"metadata": metadata})).deleting, expected);
        }
    }

    #[test]
    fn node_belongs_to_a_task_by_id_or_else_by_name() {
        for (name, label, task, expected) in [
            ("agent", json!({TASK_LABEL: "t1"}), "t1", true),
            ("agent-t2", json!({TASK_LABEL: "t1"}), "t2", false),
            ("agent-t2", json!({}), "t2", true),
            ("agentt2", json!({}), "t2", false),
            ("agent-t2", json!({}), "", false),
            ("t2", json!({}), "t2", false),
        ] {
            let node = node(json!({"metadata": {"name": name, "labels": label}}));
            let by_task = NodesByTask::new([&node]);
            assert_eq!(!by_task.of(task).is_empty(), expected, "{name} {label} {task}");
        }
    }

    #[test]
    fn node_info_is_kept_as_it_was_sent() {
        let info = json!({
            "machineID": "m", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "v1.31.5+k3s1", "kubeProxyVersion": "",
            "operatingSystem": "", "architecture": "",
        });
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-04-07T10:00:00Z"});
        let read = node(json!({
            "metadata": {"name": "s", "labels": {"node-role.kubernetes.io/control-plane": "true"}},
            "spec": {"unschedulable": true},
            "status": {"allocatable": {"cpu": "1500m", "memory": "1Gi", "pods": "110", "hugepages-2Mi": "0"}, "nodeInfo": info, "conditions": [{"type": "DiskPressure", "status": "True"}, ready]},
        }));
        assert_eq!(read.info, info);
        assert!(read.ready && read.cordoned && read.control_plane);
        assert_eq!(read.ready_since, Some("2026-04-07T10:00:00Z".parse().unwrap()));
        let allocatable = Resources {
            cpu_millis: 1500,
            memory: 1 << 30,
            pods: 110,
        };
        assert_eq!((read.allocatable, read.draining), (Some(allocatable), false));
    }

    #[test]
    fn node_without_status_is_not_ready() {
        let read = node(json!({"metadata": {"name": "new"}}));
        assert!(!read.ready && !read.cordoned && !read.control_plane);
        assert_eq!((read.ready_since, read.info), (None, json!({})));
        assert_eq!(read.allocatable, None);
        let annotations = json!({DRAINING: "true"});
        assert!(node(json!({"metadata": {"name": "n", "annotations": annotations}})).draining);
        let removed = json!({DRAINING: null});
        assert!(!node(json!({"metadata": {"name": "n", "annotations": removed}})).draining);
        let odd = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": "soon"});
        let read = node(json!({"metadata": {"name": "odd"}, "status": {"conditions": [odd]}}));
        assert_eq!((read.ready, read.ready_since), (false, None));
    }
}
