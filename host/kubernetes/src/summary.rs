//! A summary of an instance for operators: its tasks, its nodes, and the reasons why something waits.
//! All values are read from the view.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::kind::Kind;
use crate::view::{Failing, View, Views};

/// Reads summaries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SummaryReader {
    pub(crate) views: Arc<Views>,
}

/// The state of an instance; a standby has no tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The counts.
    pub numbers: Numbers,
    /// Why the next task does not start, or the next change waits: a kind and a sentence.
    pub waiting: Vec<(&'static str, String)>,
    /// The kinds whose tasks keep failing.
    pub failing: Vec<Failing>,
}

/// Counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Tasks that are wanted.
    pub wanted: u64,
    /// Tasks by state: `TASK_RUNNING` and so on, and `waiting` for those without an offer.
    pub tasks: BTreeMap<String, u64>,
    /// Tasks that run.
    pub running: u64,
    /// Nodes of the orchestrator by phase: `ready`, `cordoned` or `not_ready`.
    pub nodes: BTreeMap<&'static str, u64>,
    /// Whether every wanted server and agent is a ready node.
    pub ready: bool,
    /// The version of the orchestrator; none while it does not answer.
    pub version: Option<String>,
}

impl SummaryReader {
    /// Reads the current state.
    pub fn read(&self) -> Summary {
        summary(&self.views.get())
    }
}

fn summary(view: &View) -> Summary {
    let mut numbers = Numbers {
        ready: view.ready,
        version: view.orchestrator.as_ref().map(|it| it.version.clone()),
        ..Numbers::default()
    };
    for kind in Kind::ALL {
        numbers.wanted += u64::from(*view.wanted.of(kind));
        numbers.running += view.running(kind) as u64;
        for task in view.tasks.of(kind) {
            let state = task.state.clone().unwrap_or_else(|| "waiting".to_owned());
            *numbers.tasks.entry(state).or_insert(0) += 1;
        }
    }
    for node in view.orchestrator.iter().flat_map(|it| &it.nodes) {
        let phase = match (node.ready, node.cordoned) {
            (false, _) => "not_ready",
            (true, true) => "cordoned",
            (true, false) => "ready",
        };
        *numbers.nodes.entry(phase).or_insert(0) += 1;
    }
    let waiting = view.waiting.iter();
    Summary {
        numbers,
        waiting: waiting
            .map(|one| (one.kind.as_str(), one.reason.clone()))
            .collect(),
        failing: view.failing.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::PerKind;
    use crate::view::{NodeView, OrchestratorView, TaskView, Waiting};

    #[test]
    fn tasks_and_nodes_are_counted_by_state() {
        let task = |number, state: Option<&str>| TaskView {
            id: format!("t{number}"),
            number,
            state: state.map(str::to_owned),
            node: None,
            host: None,
            ports: Vec::new(),
        };
        let node = |name: &str, ready, cordoned| NodeView {
            name: name.to_owned(),
            info: serde_json::Value::Null,
            ready,
            cordoned,
        };
        let view = View {
            wanted: PerKind {
                datastore: 1,
                server: 1,
                agent: 3,
            },
            tasks: PerKind {
                datastore: vec![task(0, Some("TASK_RUNNING"))],
                server: vec![task(0, Some("TASK_STAGING"))],
                agent: vec![task(0, Some("TASK_RUNNING")), task(1, None)],
            },
            orchestrator: Some(Arc::new(OrchestratorView {
                version: "v1.20.2".to_owned(),
                nodes: vec![
                    node("a", true, false),
                    node("b", true, true),
                    node("c", false, true),
                ],
            })),
            waiting: vec![Waiting {
                kind: Kind::Agent,
                reason: "no offer".to_owned(),
            }],
            ..View::default()
        };
        let found = summary(&view);
        let tasks = [("TASK_RUNNING", 2), ("TASK_STAGING", 1), ("waiting", 1)];
        assert_eq!(
            found.numbers,
            Numbers {
                wanted: 5,
                tasks: tasks.map(|(state, count)| (state.to_owned(), count)).into(),
                running: 2,
                nodes: [("cordoned", 1), ("not_ready", 1), ("ready", 1)].into(),
                ready: false,
                version: Some("v1.20.2".to_owned()),
            }
        );
        assert_eq!(found.waiting, [("agent", "no offer".to_owned())]);
    }
}
