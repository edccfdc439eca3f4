//! The snapshot that requests read: one immutable value, replaced at each change.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;

use crate::autoscale::Autoscaled;
use crate::backup::State;
use crate::kind::{Kind, PerKind};

/// What requests read.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The wanted counts.
    pub(crate) wanted: PerKind<u32>,
    /// The tasks, pending ones included, by number.
    pub(crate) tasks: PerKind<Vec<TaskView>>,
    /// The last answer of the orchestrator's API; `None`: it does not answer.
    pub(crate) orchestrator: Option<Arc<OrchestratorView>>,
    /// Whether every wanted server and agent is a ready node.
    pub(crate) ready: bool,
    /// The client configuration with the server's address for clients; `None`: not read yet.
    pub(crate) client_config: Option<Arc<str>>,
    /// Why the next task does not start, or the next change waits; empty: nothing waits.
    pub(crate) waiting: Vec<Waiting>,
    /// The kinds whose tasks keep failing.
    pub(crate) failing: Vec<Failing>,
    /// The backup or restore under way, and how the last ones ended.
    pub(crate) backup: State,
    /// The autoscaler; `None`: it is off.
    pub(crate) autoscale: Option<AutoscaleView>,
}

/// The autoscaler of the agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AutoscaleView {
    /// The limits of the count.
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) unschedulable_pods: usize,
    pub(crate) idle_agents: usize,
    /// Why the count stays although there is a reason to change it, in sentences.
    pub(crate) notes: Vec<String>,
    /// The last decision.
    pub(crate) last: Option<Autoscaled>,
}

/// One task of the framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskView {
    /// The task's id.
    pub(crate) id: String,
    /// Its number, 0 for the first of its kind.
    pub(crate) number: u32,
    /// The task's state, such as `TASK_RUNNING`; `None`: it is not launched.
    pub(crate) state: Option<String>,
    /// Its node in Kubernetes, if it has one.
    pub(crate) node: Option<String>,
    /// The host name of the cluster's agent on which it runs, once it is launched.
    pub(crate) host: Option<String>,
    /// Its host ports, once it is launched.
    pub(crate) ports: Vec<u16>,
}

/// The state of the orchestrator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OrchestratorView {
    /// `gitVersion` of its API.
    pub(crate) version: String,
    /// Its nodes, by name.
    pub(crate) nodes: Vec<NodeView>,
}

/// A node of the orchestrator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeView {
    /// Its name.
    pub(crate) name: String,
    /// `status.nodeInfo`, as the orchestrator sends it.
    pub(crate) info: serde_json::Value,
    /// Whether its condition `Ready` is `True`.
    pub(crate) ready: bool,
    /// Whether it is cordoned.
    pub(crate) cordoned: bool,
}

/// Something that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The kind of the task.
    pub(crate) kind: Kind,
    /// One sentence: what waits and why.
    pub(crate) reason: String,
}

/// Tasks of a kind that fail one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The kind.
    pub name: &'static str,
    /// How many have failed in a row.
    pub count: u32,
    /// When the first of them failed.
    pub since: Timestamp,
    /// Host names of the cluster's agents, newest first, at most three.
    pub hosts: Vec<String>,
    /// The cause in one sentence, beginning with the name.
    pub message: String,
}

impl View {
    /// How many tasks of a kind run.
    pub(crate) fn running(&self, kind: Kind) -> usize {
        let runs = |task: &&TaskView| task.state.as_deref() == Some("TASK_RUNNING");
        self.tasks.of(kind).iter().filter(runs).count()
    }
}

/// The current [`View`]. Readers never wait.
#[derive(Debug, Default)]
pub(crate) struct Views(ArcSwap<View>);

impl Views {
    /// The current one.
    pub(crate) fn get(&self) -> Arc<View> {
        self.0.load_full()
    }

    /// Replaces it.
    pub(crate) fn publish(&self, view: View) {
        self.0.store(Arc::new(view));
    }
}
