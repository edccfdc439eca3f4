//! A scripted etcd cluster. Its members are the running tasks of the datastore, and start as their
//! script would start them.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_common::HostPort;
use transom_scheduler::SchedulerApi;

use super::site::{FakeDependencies, World};
use crate::kvstore::{EtcdMember, Kvstore, KvstoreError, MemberStatus};
use crate::secrets::DatastoreTls;

/// The name of a member that was started without a name.
const SINGLE: &str = "default";

#[derive(Debug, Default)]
pub(super) struct Etcd {
    members: Vec<Member>,
    /// The members in the former data, which a restore has moved away.
    aside: Vec<Member>,
    /// Tasks that have been started.
    started: BTreeSet<TaskId>,
    next: u64,
    /// Whether the API does not answer the daemon.
    pub(super) silent: bool,
    /// Whether learners do not catch up.
    pub(super) slow: bool,
    /// The events, in words.
    pub(super) done: Vec<String>,
    /// Whether several members ever had no quorum.
    pub(super) lost_quorum: bool,
}

#[derive(Clone, Debug)]
struct Member {
    id: u64,
    name: String,
    learner: bool,
    task: TaskId,
}

impl Etcd {
    fn start(&mut self, start: &str, name: &str, task: &TaskId) {
        self.done.push(format!("{start} {name}"));
        if start == "restore" {
            self.aside = std::mem::take(&mut self.members);
        }
        if start == "revert" && !self.aside.is_empty() {
            self.members = std::mem::take(&mut self.aside);
        }
        if start == "return" || start == "revert" {
            let mut members = self.members.iter_mut();
            // A single member in upstream's form has etcd's default name.
            let member = members.find(|member| member.name == name || member.name == SINGLE);
            let member = member.unwrap();
            (member.task, member.name) = (task.clone(), name.to_owned());
            return;
        }
        if start == "new" || start == "single" {
            self.members.clear();
        }
        self.members
            .retain(|member| member.name != name && !member.learner);
        self.next += 1;
        self.members.push(Member {
            id: self.next,
            name: name.to_owned(),
            learner: start == "join",
            task: task.clone(),
        });
    }
}

fn variable(task: &transom_cluster::v1::TaskInfo, name: &str) -> Option<String> {
    let environment = task.command.as_ref()?.environment.as_ref()?;
    let variable = environment
        .variables
        .iter()
        .find(|variable| variable.name == name)?;
    variable.value.clone()
}

impl World {
    /// Updates the cluster from the running tasks. Returns these tasks and their client ports.
    fn run_etcd(&self) -> Vec<(TaskId, u16)> {
        let scheduler = self.scheduler.lock().unwrap().clone().unwrap();
        let (launched, tasks) = (scheduler.launched(), scheduler.tasks());
        let mut etcd = self.etcd.lock().unwrap();
        let running: Vec<(TaskId, u16)> = tasks
            .values()
            .filter(|record| record.run_spec.ends_with("datastore") && record.state == TaskState::Running)
            .map(|record| (record.id.clone(), record.host_ports[0]))
            .collect();
        let runs = |task: &TaskId| running.iter().any(|(running, _)| running == task);
        let (slow, caught_up) = (etcd.slow, etcd.started.clone());
        for member in &mut etcd.members {
            member.learner &= slow || !caught_up.contains(&member.task);
        }
        for info in launched.iter().filter(|info| info.name.ends_with("datastore")) {
            let task = TaskId::from(variable(info, "MESOS_TASK_ID").unwrap());
            if runs(&task) && etcd.started.insert(task.clone()) {
                let start = variable(info, "KVSTORE_START").unwrap_or_else(|| "single".to_owned());
                let name = variable(info, "ETCD_NAME").unwrap_or_else(|| SINGLE.to_owned());
                let line = info.command.as_ref().and_then(|command| command.value.as_deref());
                let start = match line.unwrap_or_default() {
                    line if line.contains("snapshot restore") => "restore",
                    // This command brings the former data back.
                    line if line.contains("former data") => "revert",
                    _ => &*start,
                };
                etcd.start(start, &name, &task);
            }
        }
        let voters = etcd.members.iter().filter(|member| !member.learner);
        let alive = voters.clone().filter(|member| runs(&member.task)).count();
        // A single member may end without an error: the cluster is being stopped.
        let several = voters.clone().count() > 1;
        etcd.lost_quorum |= several && alive <= voters.count() / 2;
        running
    }

    pub(super) fn etcd_names(&self) -> Vec<String> {
        self.run_etcd();
        let etcd = self.etcd.lock().unwrap();
        etcd.members.iter().map(|member| member.name.clone()).collect()
    }

    fn etcd_status(&self, address: &HostPort) -> Option<(Member, bool)> {
        let running = self.run_etcd();
        let etcd = self.etcd.lock().unwrap();
        let (task, _) = running
            .iter()
            .find(|(_, port)| *port == address.port && !etcd.silent)?;
        let member = etcd.members.iter().find(|member| member.task == *task)?.clone();
        let voters = etcd.members.iter().filter(|member| !member.learner);
        let runs = |member: &&Member| running.iter().any(|(task, _)| *task == member.task);
        let alive = voters.clone().filter(runs).count();
        Some((member, alive > voters.count() / 2))
    }
}

fn rejected(status: u16, message: &str) -> KvstoreError {
    KvstoreError::Rejected {
        url: "http://etcd".to_owned(),
        status,
        message: message.to_owned(),
    }
}

#[async_trait]
impl Kvstore for FakeDependencies {
    async fn status(&self, address: &HostPort) -> Result<MemberStatus, KvstoreError> {
        let (member, has_leader) = self
            .0
            .etcd_status(address)
            .ok_or_else(|| rejected(503, "silent"))?;
        Ok(MemberStatus {
            id: member.id,
            has_leader,
        })
    }

    async fn members(&self, address: &HostPort) -> Result<Vec<EtcdMember>, KvstoreError> {
        let (member, _) = self
            .0
            .etcd_status(address)
            .ok_or_else(|| rejected(503, "silent"))?;
        if member.learner {
            return Err(rejected(503, "rpc not supported for learner"));
        }
        let etcd = self.0.etcd.lock().unwrap();
        let listed = etcd.members.iter().map(|member| EtcdMember {
            id: member.id,
            name: member.name.clone(),
            learner: member.learner,
        });
        Ok(listed.collect())
    }

    async fn remove(&self, address: &HostPort, id: u64) -> Result<(), KvstoreError> {
        let (asked, has_leader) = self
            .0
            .etcd_status(address)
            .ok_or_else(|| rejected(503, "silent"))?;
        assert_ne!(asked.id, id, "a member must not be called to remove itself");
        if !has_leader {
            return Err(rejected(503, "no leader"));
        }
        let mut etcd = self.0.etcd.lock().unwrap();
        let name = etcd
            .members
            .iter()
            .find(|member| member.id == id)
            .map(|it| it.name.clone());
        etcd.done.push(format!("remove {}", name.unwrap_or_default()));
        etcd.members.retain(|member| member.id != id);
        Ok(())
    }

    fn with_tls(&self, _tls: &DatastoreTls) -> crate::Result<Arc<dyn Kvstore>> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
}
