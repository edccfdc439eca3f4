//! `GET /explain`: why tasks wait, where the other tasks run, and the last change of the autoscaler
//! and the reasons why it changes nothing. An extension of the specification, on the neutral prefix
//! only.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::backups::Progress;
use super::{Api, document};
use crate::kind::{Kind, PerKind};
use crate::view::{AutoscaleView, TaskView};

#[derive(JsonSchema, Serialize)]
pub(super) struct Explanation<'a> {
    /// The backup or restore under way.
    operation: Option<Progress<'a>>,
    waiting: Vec<Wait<'a>>,
    tasks: PerKind<Vec<Task<'a>>>,
    /// `None`: autoscaling is not configured.
    autoscale: Option<Autoscale<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct Autoscale<'a> {
    min: u32,
    max: u32,
    unschedulable_pods: usize,
    idle_agents: usize,
    /// Why the count stays although there is a reason to change it.
    notes: &'a [String],
    last: Option<LastChange<'a>>,
}

/// The last change of the count by the autoscaler.
#[derive(JsonSchema, Serialize)]
struct LastChange<'a> {
    at: Timestamp,
    from: u32,
    to: u32,
    reason: &'a str,
}

#[derive(JsonSchema, Serialize)]
struct Wait<'a> {
    kind: Kind,
    reason: &'a str,
}

#[derive(JsonSchema, Serialize)]
struct Task<'a> {
    number: u32,
    id: &'a str,
    /// `None`: it is not launched.
    state: Option<&'a str>,
    host: Option<&'a str>,
    ports: &'a [u16],
    node: Option<&'a str>,
}

impl<'a> From<&'a TaskView> for Task<'a> {
    fn from(task: &'a TaskView) -> Self {
        Self {
            number: task.number,
            id: &task.id,
            state: task.state.as_deref(),
            host: task.host.as_deref(),
            ports: &task.ports,
            node: task.node.as_deref(),
        }
    }
}

impl<'a> From<&'a AutoscaleView> for Autoscale<'a> {
    fn from(view: &'a AutoscaleView) -> Self {
        Self {
            min: view.min,
            max: view.max,
            unschedulable_pods: view.unschedulable_pods,
            idle_agents: view.idle_agents,
            notes: &view.notes,
            last: view.last.as_ref().map(|last| LastChange {
                at: last.at,
                from: last.from,
                to: last.to,
                reason: &last.reason,
            }),
        }
    }
}

/// See the module.
pub(super) async fn get(State(api): State<Api>) -> Response {
    let view = api.0.views.get();
    let waiting = view.waiting.iter().map(|waiting| Wait {
        kind: waiting.kind,
        reason: &waiting.reason,
    });
    document(&Explanation {
        operation: view.backup.operation.as_ref().map(Progress::from),
        waiting: waiting.collect(),
        tasks: PerKind::from_fn(|kind| view.tasks.of(kind).iter().map(Task::from).collect()),
        autoscale: view.autoscale.as_ref().map(Autoscale::from),
    })
}
