//! The view that requests read.

use std::collections::HashMap;
use std::sync::Arc;

use transom_cluster::TaskId;
use transom_common::ambient;

use super::Core;
use super::members::{Member, ScriptState};
use crate::kind::{Kind, PerKind};
use crate::orchestrator::NodesByTask;
use crate::view::{NodeView, OrchestratorView, TaskView, View, Waiting};

impl Core {
    pub(super) fn publish_view(&mut self) {
        let observation = self.orchestrator.observation.as_ref();
        let nodes = NodesByTask::new(observation.iter().flat_map(|it| &it.nodes));
        let node_of = |task: &str| nodes.of(task).first().map(|node| node.name.clone());
        let task = |(number, member): (&u32, &Member)| TaskView {
            id: member.task.to_string(),
            number: *number,
            state: member.record.as_ref().map(|record| record.state.to_string()),
            node: node_of(member.task.as_str()),
            host: member.record.as_ref().map(|record| record.agent.hostname.clone()),
            ports: member
                .record
                .as_ref()
                .map(|record| record.host_ports.clone())
                .unwrap_or_default(),
        };
        let tasks = PerKind::from_fn(|kind| self.members.of(kind).iter().map(task).collect());
        let orchestrator = observation.map(|observation| {
            let nodes = observation.nodes.iter();
            Arc::new(OrchestratorView {
                version: observation.version.clone(),
                nodes: nodes
                    .map(|node| NodeView {
                        name: node.name.clone(),
                        info: node.info.clone(),
                        ready: node.ready,
                        cordoned: node.cordoned,
                    })
                    .collect(),
            })
        });
        let client_config = self.client_config.as_ref();
        let view = View {
            wanted: self.wanted.counts,
            tasks,
            orchestrator,
            ready: self.plan.settled && self.wanted.counts.server > 0 && !self.stops_servers(),
            client_config: client_config.and_then(|config| config.text_for_clients.clone()),
            waiting: self.waiting(),
            failing: self.members.failing(ambient::now()),
            autoscale: self.show_autoscaler(),
            backup: self.backup.state.clone(),
        };
        self.service.metrics.update(&view);
        self.service.views.publish(view);
    }

    /// The reasons why tasks do not start or changes wait, in sentences.
    fn waiting(&self) -> Vec<Waiting> {
        let mut waiting: Vec<Waiting> = self
            .plan
            .waiting
            .iter()
            .map(|(kind, reason)| Waiting {
                kind: *kind,
                reason: reason.clone(),
            })
            .collect();
        for (kind, number, member) in self.members.iter() {
            if let ScriptState::Failed(reason, _) = &member.script {
                waiting.push(Waiting {
                    kind,
                    reason: format!("{kind} {number} is not started: {reason}"),
                });
            }
        }
        for kind in Kind::ALL {
            let failure = self.members.failure(kind, ambient::now());
            waiting.extend(failure.map(|failure| Waiting {
                kind,
                reason: format!("the last {kind} that failed ended with {failure}"),
            }));
        }
        if !self.subscribed() {
            let reason = "the framework is not subscribed with the cluster manager".to_owned();
            waiting.push(Waiting {
                kind: Kind::Datastore,
                reason,
            });
        }
        if self.datastore.differs_from(&self.config) {
            waiting.push(Waiting {
                kind: Kind::Datastore,
                reason:
                    "`ds_mysql_password` (DS_MYSQL_PASSWORD) is not the password in use and is ignored until \
                         `transom fw credentials --adopt`"
                        .to_owned(),
            });
        }
        let kind = Kind::Datastore;
        let ignored = self.ignored.iter().cloned();
        waiting.extend(ignored.map(|reason| Waiting { kind, reason }));
        waiting.extend(self.explain_data_host().map(|reason| Waiting { kind, reason }));
        if let Some(operation) = &self.backup.state.operation {
            let problem = operation.problem.as_ref();
            let problem = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
            waiting.push(Waiting {
                kind: Kind::Datastore,
                reason: format!("{}{problem}", operation.describe()),
            });
        }
        waiting.extend(self.pending());
        let runs = self.running_server().is_some();
        let fails = self.members.backoff(Kind::Server, ambient::now()).is_some();
        if self.client_config.is_none() && (runs || fails) {
            waiting.push(Waiting {
                kind: Kind::Server,
                reason: "no server has answered yet. If its log has `bootstrap data already found and encrypted with \
                         different token`, the datastore is of a former cluster: set `orch_token` (ORCH_TOKEN) to the \
                         token of that cluster, which its backups contain"
                    .to_owned(),
            });
        }
        if let (true, None, Some(problem)) =
            (runs, &self.orchestrator.observation, &self.orchestrator.problem)
        {
            waiting.push(Waiting {
                kind: Kind::Server,
                reason: format!("the server's API does not answer: {problem}"),
            });
        }
        waiting
    }

    fn subscribed(&self) -> bool {
        self.scheduler.subscription().connected
    }

    /// The reasons why requested tasks wait for an offer.
    fn pending(&self) -> Vec<Waiting> {
        let pending = self.scheduler.pending().to_vec();
        let members = self.members.iter();
        let members: HashMap<&TaskId, (Kind, u32)> = members
            .map(|(kind, number, member)| (&member.task, (kind, number)))
            .collect();
        let described = pending.iter().filter_map(|task| {
            let (kind, name) = if self.backup.owns(&task.task) {
                (Kind::Datastore, "its one-off task".to_owned())
            } else {
                let (kind, number) = *members.get(&task.task)?;
                (kind, format!("{kind} {number}"))
            };
            Some(Waiting {
                kind,
                reason: format!("{name} waits for an offer: {}", task.reasons.sentence()),
            })
        });
        described.collect()
    }
}
