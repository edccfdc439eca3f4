//! `GET /explain`: why tasks wait, and where the others are. An extension of the specification, on
//! the neutral prefix only.

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::{Api, document};
use crate::kind::{Kind, PerKind};
use crate::view::TaskView;

#[derive(Serialize)]
struct Explanation<'a> {
    waiting: Vec<Wait<'a>>,
    tasks: PerKind<Vec<Task<'a>>>,
}

#[derive(Serialize)]
struct Wait<'a> {
    kind: Kind,
    reason: &'a str,
}

#[derive(Serialize)]
struct Task<'a> {
    number: u32,
    id: &'a str,
    /// `None`: it waits for an offer.
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

/// See the module.
pub(super) async fn get(State(api): State<Api>) -> Response {
    let view = api.0.views.get();
    let waiting = view.waiting.iter().map(|waiting| Wait {
        kind: waiting.kind,
        reason: &waiting.reason,
    });
    document(&Explanation {
        waiting: waiting.collect(),
        tasks: PerKind::from_fn(|kind| view.tasks.of(kind).iter().map(Task::from).collect()),
    })
}
