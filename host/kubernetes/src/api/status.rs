//! `/status`: the state of each kind, as one word or by task.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, JSON, document, success};
use crate::backup::Operation;
use crate::kind::Kind;
use crate::view::{TaskView, View};

/// The states of tasks, the worst first. All other states count as the worst.
const WORST_FIRST: &[&str] = &[
    "TASK_LOST",
    "TASK_UNREACHABLE",
    "TASK_ERROR",
    "TASK_FAILED",
    "TASK_KILLED",
    "TASK_FINISHED",
    "TASK_KILLING",
    STAGING,
    "TASK_STARTING",
    "TASK_RUNNING",
];
const STAGING: &str = "TASK_STAGING";
/// Upstream's state of a task that waits for an offer.
const WAITING_STATE: &str = "__NEW";

/// The Status object of the specification.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Status<'a> {
    server: &'a str,
    agent: &'a str,
    #[serde(rename = "API")]
    api: &'static str,
    kvstore: &'a str,
    /// The backup or restore under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
}

/// The status in upstream's format.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TaskStates<'a> {
    server: BTreeMap<&'a str, NodeState<'a>>,
    agent: BTreeMap<&'a str, NodeState<'a>>,
    #[serde(rename = "API")]
    api: &'static str,
    datastore: BTreeMap<&'a str, &'a str>,
}

/// The state of a task that is a node.
#[derive(JsonSchema, Serialize)]
struct NodeState<'a> {
    #[serde(rename = "Status")]
    status: &'a str,
    #[serde(rename = "K3sNodeName")]
    node: &'a str,
}

/// `GET /status/fw`
pub(super) async fn flat(State(api): State<Api>) -> Response {
    let view = api.0.views.get();
    document(&Status {
        server: worst(&view, Kind::Server),
        agent: worst(&view, Kind::Agent),
        api: ok_if(view.orchestrator.is_some()),
        kvstore: worst(&view, Kind::Datastore),
        operation: view.backup.operation.as_ref().map(Operation::describe),
    })
}

/// `GET /status/m3s`
pub(super) async fn maps(State(api): State<Api>) -> Response {
    let view = api.0.views.get();
    document(&TaskStates {
        server: nodes(&view.tasks.server),
        agent: nodes(&view.tasks.agent),
        // It is always empty in upstream as well.
        api: "",
        datastore: view
            .tasks
            .datastore
            .iter()
            .map(|task| (task.id.as_str(), task.state.as_deref().unwrap_or(WAITING_STATE)))
            .collect(),
    })
}

/// `GET /status/orch`: whether every wanted server and agent is a ready node.
pub(super) async fn orchestrator(State(api): State<Api>) -> Response {
    success(JSON, ok_if(api.0.views.get().ready))
}

fn ok_if(good: bool) -> &'static str {
    if good { "ok" } else { "nok" }
}

/// The worst state of a kind's tasks; empty if the kind has no tasks and none are wanted.
fn worst(view: &View, kind: Kind) -> &str {
    let states = view.tasks.of(kind).iter();
    let states = states.map(|task| task.state.as_deref().unwrap_or(STAGING));
    let rank = |state: &&str| WORST_FIRST.iter().position(|known| known == state).unwrap_or(0);
    let missing = if *view.wanted.of(kind) > 0 { STAGING } else { "" };
    states.min_by_key(rank).unwrap_or(missing)
}

fn nodes(tasks: &[TaskView]) -> BTreeMap<&str, NodeState<'_>> {
    let nodes = tasks.iter().map(|task| {
        let state = NodeState {
            status: task.state.as_deref().unwrap_or(WAITING_STATE),
            node: task.node.as_deref().unwrap_or_default(),
        };
        (task.id.as_str(), state)
    });
    nodes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_is_the_worst_state_of_the_tasks() {
        let of = |wanted: u32, states: &[Option<&str>]| {
            let task = |state: Option<&str>| TaskView {
                id: "a".to_owned(),
                number: 0,
                state: state.map(str::to_owned),
                node: None,
                host: None,
                ports: Vec::new(),
            };
            let mut view = View::default();
            view.wanted.agent = wanted;
            view.tasks.agent = states.iter().copied().map(task).collect();
            worst(&view, Kind::Agent).to_owned()
        };
        let order = [
            "TASK_LOST",
            "TASK_UNREACHABLE",
            "TASK_ERROR",
            "TASK_FAILED",
            "TASK_KILLED",
            "TASK_KILLING",
            "TASK_STAGING",
            "TASK_STARTING",
            "TASK_RUNNING",
        ];
        for (index, worse) in order.iter().enumerate() {
            assert_eq!(of(1, &[Some(worse)]), *worse);
            for better in &order[index..] {
                assert_eq!(of(2, &[Some(better), Some(worse)]), *worse, "{better}");
                assert_eq!(of(2, &[Some(worse), Some(better)]), *worse, "{better}");
            }
        }
        assert_eq!(of(0, &[]), "");
        assert_eq!(of(1, &[]), "TASK_STAGING");
        assert_eq!(of(2, &[Some("TASK_RUNNING"), None]), "TASK_STAGING");
        assert_eq!(of(0, &[Some("TASK_KILLING")]), "TASK_KILLING");
        assert_eq!(of(1, &[Some("TASK_GONE"), Some("TASK_FAILED")]), "TASK_GONE");
    }
}
