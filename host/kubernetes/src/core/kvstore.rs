//! The members of a kvstore: which of them vote in its etcd cluster, and where their data are.
//!
//! A voting member is recorded in the store before the plan counts it as a voter, and its record is
//! removed when it has left the etcd cluster. So a leader knows which of the ended members have data
//! to return to, and which addresses the servers received.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use transom_cluster::TaskId;
use transom_common::{HostPort, ambient, error_chain};
use transom_framework::ActorError;
use transom_replicas::Condition;

use super::Core;
use super::command::Rejection;
use super::job_result::JobResult;
use super::members::Member;
use super::reconcile::{DRAIN_RETRY_DELAY, OBSERVE_INTERVAL};
use crate::config::Config;
use crate::kind::Kind;
use crate::kvstore::{EtcdState, KvstoreError, KvstoreRecord, Voter, observe};
use crate::plan::{self, Absent, Kvstore, Start};
use crate::settings::Engine;
use crate::task::{DataHost, MemberStart, client_address, member_name};

/// How often the members are queried while one joins or is away, unless the heartbeat is shorter.
const BUSY_OBSERVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// The volume driver whose volumes exist on one host only.
const LOCAL_DRIVER: &str = "local";

/// The kvstore as the core last saw it.
#[derive(Debug, Default)]
pub(super) struct KvstoreState {
    /// The record, with changes that may not be stored yet.
    pub(super) record: KvstoreRecord,
    /// Whether the record has changes that are not stored yet.
    has_unstored_changes: bool,
    /// The last answer; `None`: no member answers.
    etcd_state: Option<EtcdState>,
    /// Since when no member answers.
    silent_since: Option<Timestamp>,
    /// Counts the changes of members: those that this daemon has made, and those of their tasks.
    changes: u64,
    observing: bool,
    /// When the members are queried again; `None`: immediately.
    observe_at: Option<Instant>,
    /// Whether a member is being removed.
    dismissing: bool,
    /// The numbers of former members that are given up, because new members take these numbers.
    abandoned: BTreeSet<u32>,
}

impl KvstoreState {
    pub(super) fn new(record: KvstoreRecord) -> Self {
        Self {
            record,
            ..Self::default()
        }
    }

    /// When the core must act on the kvstore again.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.abandoned.is_empty() {
            self.observe_at
        } else {
            Some(Instant::now())
        }
    }

    /// Replaces the record, and discards the answers of the former members.
    pub(super) fn replace(&mut self, record: KvstoreRecord) {
        self.record = record;
        self.has_unstored_changes = false;
        self.etcd_state = None;
        self.task_changed();
    }

    /// Notes that a task or a member has changed, so that a query under way is discarded and repeated.
    pub(super) fn task_changed(&mut self) {
        self.changes += 1;
        self.observe_at = None;
    }

    /// The last answer, if it contains the list of members.
    fn listed(&self) -> Option<&EtcdState> {
        self.etcd_state
            .as_ref()
            .filter(|etcd_state| !etcd_state.members.is_empty())
    }

    /// The id of a task's member in the etcd cluster, if it is listed there.
    fn etcd(&self, config: &Config, number: u32, task: &TaskId) -> Option<u64> {
        let etcd_state = self.listed()?;
        let recorded = self.record.voters.get(&number);
        let recorded = recorded.filter(|voter| voter.task == *task);
        let answered = etcd_state.answers.get(task).map(|status| status.id);
        let id = answered.or(recorded.and_then(|voter| voter.etcd));
        let name = member_name(config, number);
        let listed = etcd_state.members.iter().find(|member| match id {
            Some(id) => member.id == id,
            None => member.name == name,
        });
        listed.map(|member| member.id)
    }

    fn is_listed_voter(&self, etcd: u64) -> bool {
        let listed = self
            .listed()
            .and_then(|etcd_state| etcd_state.members.iter().find(|it| it.id == etcd));
        listed.is_some_and(|member| !member.learner)
    }

    /// Whether a member is healthy. A member that answers is healthy if it knows a leader and its
    /// health check has not failed; another one only if its health check has succeeded.
    fn healthy(&self, member: &Member) -> bool {
        let check = member.record.as_ref().and_then(|record| record.healthy());
        let answer = self
            .etcd_state
            .as_ref()
            .and_then(|etcd_state| etcd_state.answers.get(&member.task));
        match answer {
            Some(status) => status.has_leader && check != Some(false),
            None => check == Some(true),
        }
    }

    /// Whether a member is a healthy voter at its recorded address.
    pub(super) fn votes(&self, number: u32, member: &Member) -> bool {
        let (voter, launched) = (self.record.voters.get(&number), member.record.as_ref());
        let is_recorded = voter
            .zip(launched)
            .is_some_and(|(voter, launched)| voter.task == member.task && voter.ports == launched.host_ports);
        is_recorded && member.replica.condition == Condition::Running && self.healthy(member)
    }
}

impl Core {
    /// Whether the datastore is a kvstore in the form that can have several members. A single member
    /// in a container has the form of upstream's datastore until several are wanted for the first
    /// time.
    pub(super) fn is_clustered(&self) -> bool {
        let settings = &self.config.settings;
        settings.engine() == Engine::Kvstore
            && !settings.runs_ds_command()
            && (self.wanted.clustered || !settings.containers)
    }

    /// Stores which members vote and which hosts have their data, before the plan relies on it. A
    /// datastore without an etcd cluster is recorded as its only voter.
    pub(super) async fn record_voters(&mut self) {
        let record = self.present_voters();
        if self.kvstore.has_unstored_changes || record != self.kvstore.record {
            if let Err(error) = self.repository.put_kvstore(&record).await {
                tracing::warn!(
                    framework = self.config.name(),
                    error = error_chain(&error),
                    "storing the members of the datastore and their hosts failed; retrying"
                );
                return;
            }
            let voters: Vec<u32> = record.voters.keys().copied().collect();
            tracing::info!(
                framework = self.config.name(),
                ?voters,
                "the members of the datastore, or their hosts, have changed"
            );
            self.kvstore.record = record;
            self.kvstore.has_unstored_changes = false;
        }
        self.kvstore.abandoned.clear();
    }

    fn present_voters(&self) -> KvstoreRecord {
        let (state, clustered) = (&self.kvstore, self.is_clustered());
        let mut record = state.record.clone();
        record.voters.retain(|number, voter| {
            let has_left = |etcd: u64| {
                !state
                    .listed()
                    .is_none_or(|etcd_state| etcd_state.members.iter().any(|it| it.id == etcd))
            };
            !state.abandoned.contains(number) && !voter.etcd.is_some_and(has_left)
        });
        for (number, member) in self.members.of(Kind::Datastore) {
            let (Some(launched), Condition::Running) = (&member.record, member.replica.condition) else {
                continue;
            };
            let etcd = state.etcd(&self.config, *number, &member.task);
            let counts = match etcd {
                Some(etcd) => state.is_listed_voter(etcd),
                // The health check of a learner fails. A single member votes in any case.
                None => match launched.healthy() {
                    None => !clustered,
                    Some(healthy) => healthy && state.listed().is_none(),
                },
            };
            if counts && member.replica.is_wanted() {
                let known = record.voters.get(number);
                let known = known.filter(|voter| voter.task == member.task);
                let voter = Voter {
                    task: member.task.clone(),
                    // While no member returns the list, a known id stays valid.
                    etcd: etcd.or(known.and_then(|voter| voter.etcd)),
                    host: launched.agent.hostname.clone(),
                    ports: launched.host_ports.clone(),
                };
                let address = client_address(&self.config, *number, &voter.host, &voter.ports);
                record.addresses.insert(*number, address);
                record.voters.insert(*number, voter);
            }
        }
        // While a member moves, servers keep its former address until the new one is known.
        if record.voters.len() == *self.wanted.counts.of(Kind::Datastore) as usize {
            let voters = &record.voters;
            record.addresses.retain(|number, _| voters.contains_key(number));
        }
        record
    }

    /// The etcd cluster as input of the plan; `None`: the datastore is not clustered.
    pub(super) fn planned_kvstore(&self) -> Option<Kvstore> {
        if !self.is_clustered() {
            return None;
        }
        let (state, members) = (&self.kvstore, self.members.of(Kind::Datastore));
        let lives = |task: &TaskId| members.values().any(|member| member.task == *task);
        let absent = state.record.voters.iter().filter_map(|(number, voter)| {
            let (member, ended) = (members.get(number), !lives(&voter.task));
            let is_absent = member.map_or(ended, |member| match member.replica.condition {
                Condition::Scheduled => member.replica.is_wanted(),
                Condition::Unreachable | Condition::UnreachableInactive => member.task == voter.task,
                _ => false,
            });
            is_absent.then(|| Absent {
                number: *number,
                host: voter.host.clone(),
                ended: member.is_none(),
            })
        });
        let voters = state.listed().map_or(state.record.voters.len(), |etcd_state| {
            etcd_state.members.iter().filter(|member| !member.learner).count()
        });
        Some(Kvstore {
            voters,
            stale: self.stale_members(),
            absent: absent.collect(),
            dismissing: state.dismissing,
            silent_since: state.silent_since,
        })
    }

    /// The members of the etcd cluster that this framework has added and whose tasks have ended.
    /// Members with foreign names are never among them.
    fn stale_members(&self) -> Vec<u64> {
        let (state, members) = (&self.kvstore, self.members.of(Kind::Datastore));
        let Some(etcd_state) = state.listed() else {
            return Vec::new();
        };
        let live: Vec<u64> = members
            .iter()
            .filter_map(|(number, member)| state.etcd(&self.config, *number, &member.task))
            .collect();
        let names: Vec<String> = members
            .keys()
            .map(|number| member_name(&self.config, *number))
            .collect();
        let joining = members
            .values()
            .any(|member| !state.record.voters.values().any(|it| it.task == member.task));
        let alias = member_name(&self.config, 0);
        let is_ours = |name: &str| {
            let number = name.strip_prefix(&alias).and_then(|rest| rest.strip_prefix('-'));
            name == alias || number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let ended = etcd_state.members.iter().filter(|member| {
            let ours = if member.name.is_empty() {
                // The member has never started.
                member.learner && !joining
            } else {
                is_ours(&member.name) && !names.contains(&member.name)
            };
            ours && !live.contains(&member.id)
        });
        ended.map(|member| member.id).collect()
    }

    /// Adds the state of the etcd cluster to the datastore's members in the plan's input.
    pub(super) fn plan_members(&self, members: &mut [plan::Member]) {
        for planned in members {
            let Some(member) = self.members.of(Kind::Datastore).get(&planned.number) else {
                continue;
            };
            let voter = self.kvstore.record.voters.get(&planned.number);
            planned.voter = voter.is_some_and(|voter| voter.task == member.task);
            planned.etcd = self.kvstore.etcd(&self.config, planned.number, &member.task);
            planned.healthy = Some(self.kvstore.healthy(member));
        }
    }

    /// Notes since when members are not healthy.
    pub(super) fn record_unhealthy_times(&mut self, now: Timestamp) {
        if !self.is_clustered() {
            return;
        }
        let numbers: Vec<u32> = self.members.of(Kind::Datastore).keys().copied().collect();
        for number in numbers {
            let Some(member) = self.members.get_mut(Kind::Datastore, number) else {
                continue;
            };
            let runs = member.replica.condition == Condition::Running;
            if !runs || self.kvstore.healthy(member) {
                member.unready_since = None;
            } else {
                member.unready_since.get_or_insert(now);
            }
        }
    }

    /// Starts a member of the kvstore.
    pub(super) fn launch_member(&mut self, number: u32, start: Start, version: &str, now: Timestamp) {
        let recorded = self.kvstore.record.voters.contains_key(&number);
        if start == Start::Join && recorded {
            // The record of the former member is removed first. A later call launches the new one.
            self.kvstore.abandoned.insert(number);
            return;
        }
        let member = self.member_start(number, start);
        let task = self.launch(Kind::Datastore, number, version, now, Some(member));
        if let (Start::Return, Some(voter)) = (start, self.kvstore.record.voters.get_mut(&number)) {
            voter.task = task;
            self.kvstore.has_unstored_changes = true;
        }
    }

    /// Whether the datastore's data exist only on the host where it ran.
    fn has_local_data(&self) -> bool {
        let settings = &self.config.settings;
        !settings.containers || settings.volume_driver == LOCAL_DRIVER
    }

    /// The host that has the data of a datastore without an etcd cluster. It starts only there, because
    /// anywhere else it would start empty.
    pub(super) fn data_host(&self) -> Option<&str> {
        let voters = &self.kvstore.record.voters;
        let alone = voters
            .get(&0)
            .filter(|_| !self.is_clustered() && self.has_local_data());
        alone.map(|voter| voter.host.as_str())
    }

    /// The reason why such a datastore does not run, with its host and the ways out.
    pub(super) fn explain_data_host(&self) -> Option<String> {
        let (host, members) = (self.data_host()?, self.members.of(Kind::Datastore).values());
        let mut away = members.filter(|member| member.replica.condition != Condition::Running);
        away.next()?;
        let constraint = self.config.kinds.datastore.constraint.as_deref();
        let other = constraint.filter(|constraint| !constraint.eq_ignore_ascii_case(host));
        let ignored = other.map(|other| format!("; the constraint {other} is ignored"));
        Some(format!(
            "the datastore has its data on agent {host} and runs only there{}. Start that agent if it is down, or \
             free resources on it. If its data are lost, `transom fw move {} --without-data` starts the datastore on another agent \
             without them; then restore a backup",
            ignored.unwrap_or_default(),
            self.config.name()
        ))
    }

    /// Gives up the data of a datastore without an etcd cluster, so that it starts on any agent.
    pub(super) async fn move_datastore(&mut self) -> Result<(), Rejection> {
        if *self.wanted.counts.of(Kind::Datastore) == 0 && self.config.settings.ds_endpoint.is_some() {
            return Err(Rejection::DatastoreOutside);
        }
        if self.is_clustered() {
            return Err(Rejection::SeveralMembers);
        }
        self.check_may_scale(Kind::Datastore)?;
        let stored = self.replace_voters(self.kvstore.record.reduced(None)).await;
        stored.map_err(ActorError::from)?;
        // The next term uses the configured settings.
        let record = self.datastore.using(None);
        let stored = self.repository.put_datastore(&record).await;
        stored.map_err(ActorError::from)?;
        self.datastore = record;
        tracing::warn!(
            framework = self.config.name(),
            "moving the datastore; its former data are given up"
        );
        let numbers: Vec<u32> = self.members.of(Kind::Datastore).keys().copied().collect();
        for number in numbers {
            let effects = self.members.remove(Kind::Datastore, number, ambient::now());
            self.apply_effects(effects);
        }
        self.publish_view();
        Ok(())
    }

    fn member_start(&self, number: u32, start: Start) -> MemberStart {
        let record = &self.kvstore.record;
        let others = record.voters.iter().filter(|(other, _)| **other != number);
        let others = others
            .map(|(other, voter)| client_address(&self.config, *other, &voter.host, &voter.ports))
            .collect();
        let voter = record.voters.get(&number);
        let home = voter.filter(|_| start == Start::Return && self.has_local_data());
        MemberStart {
            start,
            others,
            home: home.map(|voter| DataHost {
                host: voter.host.clone(),
                ports: voter.ports.clone(),
            }),
        }
    }

    /// Replaces the requests of members that wait for an offer, if the addresses of the other members
    /// have changed.
    pub(super) fn refresh_members(&mut self) {
        let pending: Vec<u32> = self
            .members
            .of(Kind::Datastore)
            .iter()
            .filter(|(_, member)| member.record.is_none() && member.replica.is_wanted())
            .map(|(number, _)| *number)
            .collect();
        for number in pending {
            let Some(start) = self
                .members
                .of(Kind::Datastore)
                .get(&number)
                .and_then(|it| it.start.as_ref())
            else {
                continue;
            };
            let others = self.member_start(number, start.start).others;
            if start.others == others {
                continue;
            }
            if let Some(member) = self.members.get_mut(Kind::Datastore, number) {
                let (task, incarnation) = (member.task.clone(), member.replica.incarnation);
                if let Some(start) = &mut member.start {
                    start.others = others;
                }
                let metadata = crate::task::Metadata {
                    kind: Kind::Datastore,
                    number,
                    incarnation,
                };
                self.submit(metadata, &task, None);
            }
        }
    }

    /// The running members, and the addresses of their APIs.
    fn member_addresses(&self) -> Vec<(TaskId, HostPort)> {
        let members = self.members.of(Kind::Datastore).values();
        members
            .filter(|member| member.replica.condition == Condition::Running)
            .filter_map(|member| {
                let record = member.record.as_ref()?;
                let address = HostPort::new(&record.agent.hostname, *record.host_ports.first()?);
                Some((member.task.clone(), address))
            })
            .collect()
    }

    /// Queries the members about their cluster.
    pub(super) fn observe_kvstore(&mut self) {
        let now = Instant::now();
        if !self.is_clustered()
            || self.kvstore.observing
            || self.kvstore.observe_at.is_some_and(|at| at > now)
        {
            return;
        }
        self.kvstore.observe_at = None;
        let addresses = self.member_addresses();
        if addresses.is_empty() {
            self.kvstore.etcd_state = None;
            return;
        }
        self.kvstore.observing = true;
        let (kvstore, changes) = (self.service.kvstore.clone(), self.kvstore.changes);
        self.spawn_job(async move {
            let result = observe(&*kvstore, &addresses).await;
            JobResult::Kvstore { changes, result }
        });
    }

    pub(super) fn handle_kvstore_state(&mut self, changes: u64, result: Result<EtcdState, KvstoreError>) {
        let state = &mut self.kvstore;
        state.observing = false;
        if changes != state.changes {
            // The answer may be older than a change.
            state.observe_at = None;
            return;
        }
        match result {
            Ok(etcd_state) => {
                if state.silent_since.take().is_some() {
                    tracing::info!(framework = self.config.name(), "the kvstore API answers");
                }
                state.etcd_state = Some(etcd_state);
            }
            Err(error) => {
                state.etcd_state = None;
                if state.silent_since.is_none() {
                    state.silent_since = Some(ambient::now());
                    tracing::warn!(
                        framework = self.config.name(),
                        error = error_chain(&error),
                        "the kvstore API does not answer"
                    );
                }
            }
        }
        let members = self.members.of(Kind::Datastore);
        let complete = members.len() == *self.wanted.counts.of(Kind::Datastore) as usize
            && members.len() == self.kvstore.record.voters.len()
            && members.values().all(|member| self.kvstore.healthy(member));
        let interval = if complete {
            OBSERVE_INTERVAL
        } else {
            BUSY_OBSERVE_INTERVAL
        };
        let interval = interval.min(self.config.settings.heartbeat_interval.duration());
        self.kvstore.observe_at = Some(Instant::now() + interval);
    }

    /// Removes a member from the etcd cluster, through the API of another member.
    pub(super) fn dismiss(&mut self, etcd: u64) {
        let Some(etcd_state) = self
            .kvstore
            .etcd_state
            .as_ref()
            .filter(|_| !self.kvstore.dismissing)
        else {
            return;
        };
        let others: Vec<HostPort> = self
            .member_addresses()
            .into_iter()
            .filter(|(task, _)| {
                let status = etcd_state.answers.get(task);
                status.is_some_and(|it| it.id != etcd && it.has_leader && self.kvstore.is_listed_voter(it.id))
            })
            .map(|(_, address)| address)
            .collect();
        self.kvstore.dismissing = true;
        tracing::info!(
            framework = self.config.name(),
            member = format!("{etcd:x}"),
            "removing a member of the kvstore"
        );
        let kvstore = self.service.kvstore.clone();
        self.spawn_job(async move {
            let mut result = None;
            for address in others {
                let removed = kvstore.remove(&address, etcd).await;
                let done = removed.is_ok();
                result = Some(removed);
                if done {
                    break;
                }
            }
            if !matches!(result, Some(Ok(()))) {
                sleep(DRAIN_RETRY_DELAY).await;
            }
            JobResult::Dismissed { etcd, result }
        });
    }

    pub(super) fn handle_dismissal(&mut self, etcd: u64, result: Option<Result<(), KvstoreError>>) {
        self.kvstore.dismissing = false;
        self.kvstore.task_changed();
        match result {
            Some(Ok(())) => {
                if let Some(etcd_state) = &mut self.kvstore.etcd_state {
                    etcd_state.members.retain(|member| member.id != etcd);
                }
            }
            Some(Err(error)) => tracing::warn!(
                framework = self.config.name(),
                member = format!("{etcd:x}"),
                error = error_chain(&error),
                "removing a member of the kvstore failed; retrying"
            ),
            None => {}
        }
    }
}
