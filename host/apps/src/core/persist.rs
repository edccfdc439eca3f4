//! Contents of the store, under the service's prefix:
//!
//! * `apps<id>`: an app or pod with its current definition and the list of its past versions
//! * `versions<id>/<version>`: a past definition
//! * `groups<group id>`: a group's own definition
//! * `deployments/<id>`: a running deployment
//! * `deployment-steps/<id>`: its current step, if it is not the first
//! * `health/<instance>`: the last known health of an instance by this daemon's checks, written when a
//!   check begins to succeed or to fail
//! * `history/<version>`: one of the last changes, from which groups go back to earlier versions
//! * `term`: the number of terms, which is part of the ids of events
//! * `format`: the format of all this ([`format`](super::format))
//!
//! Instances are the scheduler's task records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_store::Expect;
use transom_store::typed::{self, TypedStore};

use super::ends::{TaskFailure, Termination};
use super::failures::Failures;
use super::known_health::HealthRecord;
use crate::deploy::{Change, Deployment};
use crate::ids::{GroupId, InstanceId, SpecId};
use crate::model::{Spec, json_bytes};
use crate::time::Moment;
use crate::tree::Group;
use crate::{Error, Result};

/// The folders under the prefix.
const SPECS: &str = "apps/";
const DEPLOYMENTS: &str = "deployments/";
const STEPS: &str = "deployment-steps/";
const GROUPS: &str = "groups/";
const HEALTH: &str = "health/";
const HISTORY: &str = "history/";

/// The number of past definitions that are read concurrently.
const MAX_CONCURRENT_READS: usize = 16;

/// An app or pod in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpecRecord {
    pub(crate) spec: Spec,
    /// Identifies the configuration of `spec`.
    pub(crate) config: Arc<str>,
    /// The past versions without the current one, oldest first.
    pub(crate) past: Vec<PastVersion>,
    /// Whether it is deleted. The record is kept until all instances have ended.
    #[serde(default, rename = "gone")]
    pub(crate) deleted: bool,
    #[serde(default)]
    pub(crate) last_failure: Option<TaskFailure>,
    /// The last failures in a row of its tasks in this configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failures: Option<Failures>,
    /// The last instances of a pod that ended, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) terminations: Vec<Termination>,
    /// The last request for a restart: instances of earlier versions are outdated.
    #[serde(default)]
    pub(crate) restarted_at: Option<Moment>,
}

/// A past version of an app or pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastVersion {
    pub(crate) version: Moment,
    /// Identifies its configuration.
    pub(crate) config: Arc<str>,
    /// Bytes of its stored definition; `None` in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

/// How many past versions of one app or pod are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptVersions {
    /// Their number.
    pub(super) count: usize,
    /// Bytes of their definitions.
    pub(super) bytes: u64,
}

impl KeptVersions {
    /// Removes the oldest versions beyond the limits. Those in `used` are kept, because instances
    /// run them.
    pub(super) fn apply(self, past: &mut Vec<PastVersion>, used: &BTreeSet<Moment>) {
        let sizes = past.iter().map(|past| past.bytes.unwrap_or(0));
        let mut excess = past.len().saturating_sub(self.count);
        let mut excess_bytes = sizes.sum::<u64>().saturating_sub(self.bytes);
        past.retain(|past| {
            let surplus = (excess > 0 || excess_bytes > 0) && !used.contains(&past.version);
            if surplus {
                excess = excess.saturating_sub(1);
                excess_bytes = excess_bytes.saturating_sub(past.bytes.unwrap_or(0));
            }
            !surplus
        });
    }
}

impl SpecRecord {
    /// A definition without a past. `config` identifies its configuration.
    pub(crate) fn new(spec: Spec, config: Arc<str>) -> Self {
        Self {
            spec,
            config,
            past: Vec::new(),
            deleted: false,
            last_failure: None,
            failures: None,
            terminations: Vec::new(),
            restarted_at: None,
        }
    }

    /// Bytes of the past versions' definitions in the store. The current definition stands for one of
    /// unknown size.
    pub(super) fn past_bytes(&self) -> u64 {
        let is_unknown = |past: &PastVersion| past.bytes.is_none();
        let current = if self.past.iter().any(is_unknown) {
            json_bytes(&self.spec)
        } else {
            0
        };
        self.past.iter().map(|past| past.bytes.unwrap_or(current)).sum()
    }

    /// Whether an instance of this version has to be replaced. The versions' configurations are
    /// compared, not their times: after a rollback, instances of the restored definition are kept.
    pub(crate) fn is_outdated(&self, version: Moment) -> bool {
        if self
            .restarted_at
            .is_some_and(|restarted_at| version < restarted_at)
        {
            return true;
        }
        let past = || self.past.iter().find(|past| past.version == version);
        version != self.spec.version() && past().is_none_or(|past| past.config != self.config)
    }

    /// The versions whose instances are kept.
    pub(crate) fn current_versions(&self) -> BTreeSet<Moment> {
        self.versions()
            .filter(|version| !self.is_outdated(*version))
            .collect()
    }

    /// The versions with the same configuration as this one, which is among them.
    pub(crate) fn versions_like(&self, version: Moment) -> BTreeSet<Moment> {
        let config = self.past.iter().find(|past| past.version == version);
        let config = config.map(|past| &past.config);
        let same = self.past.iter().filter(|past| Some(&past.config) == config);
        same.map(|past| past.version).chain([version]).collect()
    }

    /// All kept versions, the current one last.
    pub(crate) fn versions(&self) -> impl Iterator<Item = Moment> {
        let past = self.past.iter().map(|past| past.version);
        past.chain([self.spec.version()])
    }
}

/// The service's part of the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Repository(TypedStore);

/// The current step of a deployment, if it is not its first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StepRecord {
    deployment: String,
    pub(super) current: usize,
}

/// Changes that are committed together.
#[derive(Debug, Default)]
pub(super) struct Changes {
    changes: typed::Changes,
    pub(super) touched: Touched,
}

/// The records that some changes concern.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    pub(super) specs: BTreeSet<SpecId>,
    pub(super) groups: BTreeSet<GroupId>,
    /// Ids of deployments.
    pub(super) deployments: BTreeSet<String>,
    /// Versions of changes in the history.
    pub(super) history: BTreeSet<Moment>,
    /// Instances whose health has changed.
    pub(super) health: BTreeSet<InstanceId>,
}

impl Touched {
    pub(super) fn is_empty(&self) -> bool {
        self.specs.is_empty()
            && self.groups.is_empty()
            && self.deployments.is_empty()
            && self.history.is_empty()
            && self.health.is_empty()
    }

    /// Removes the instances beyond this number and returns them.
    pub(super) fn split_health(&mut self, max: usize) -> BTreeSet<InstanceId> {
        let first_later = self.health.iter().nth(max).cloned();
        first_later.map_or_else(BTreeSet::new, |first| self.health.split_off(&first))
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.specs.extend(other.specs);
        self.groups.extend(other.groups);
        self.deployments.extend(other.deployments);
        self.history.extend(other.history);
        self.health.extend(other.health);
    }
}

/// All records that are read at the start.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) specs: Vec<SpecRecord>,
    pub(super) groups: Vec<Arc<Group>>,
    /// Oldest first.
    pub(super) deployments: Vec<Deployment>,
    /// Oldest first.
    pub(super) history: Vec<Change>,
    pub(super) health: Vec<HealthRecord>,
}

impl Repository {
    pub(crate) fn new(store: TypedStore) -> Self {
        Self(store)
    }

    /// Reads everything but past definitions; called once, at the start.
    pub(super) async fn load(&self) -> Result<Records> {
        let mut deployments: Vec<Deployment> = self.load_all(DEPLOYMENTS, "reading deployments").await?;
        deployments.sort_by_key(|deployment| deployment.version);
        let steps: Vec<StepRecord> = self.load_all(STEPS, "reading steps of deployments").await?;
        let steps: BTreeMap<&str, usize> = steps
            .iter()
            .map(|step| (step.deployment.as_str(), step.current))
            .collect();
        for deployment in &mut deployments {
            deployment.continue_at(steps.get(deployment.id.as_str()).copied().unwrap_or_default());
        }
        Ok(Records {
            specs: self.load_all(SPECS, "reading apps and pods").await?,
            groups: self.load_all(GROUPS, "reading groups").await?,
            deployments,
            history: self.load_all(HISTORY, "reading the history of groups").await?,
            health: self.load_all(HEALTH, "reading the health of instances").await?,
        })
    }

    /// The numbers of specs, groups, deployments and changes that [`Self::load`] reads.
    #[cfg(test)]
    pub(crate) async fn counts(&self) -> Result<[usize; 4]> {
        let records = self.load().await?;
        Ok([
            records.specs.len(),
            records.groups.len(),
            records.deployments.len(),
            records.history.len(),
        ])
    }

    async fn load_all<T: DeserializeOwned>(&self, folder: &str, doing: &'static str) -> Result<Vec<T>> {
        let stored = self.0.load_all(folder).await;
        let stored = stored.map_err(|error| Error::of_store(doing, error))?;
        Ok(stored.into_iter().map(|stored| stored.value).collect())
    }

    /// A past definition; `None` if it is not kept.
    pub(crate) async fn definition(&self, id: &SpecId, version: Moment) -> typed::Result<Option<Spec>> {
        let stored = self.0.get(&version_key(id, version)).await?;
        Ok(stored.map(|stored| stored.value))
    }

    /// Reads several past definitions, and omits those that are not kept.
    pub(super) async fn definitions(
        &self,
        wanted: impl IntoIterator<Item = (SpecId, Moment)>,
    ) -> typed::Result<BTreeMap<(SpecId, Moment), Spec>> {
        let read = |(id, version): (SpecId, Moment)| async move {
            let definition = self.definition(&id, version).await?;
            typed::Result::Ok(((id, version), definition))
        };
        let found = futures::stream::iter(wanted)
            .map(read)
            .buffer_unordered(MAX_CONCURRENT_READS);
        let found: Vec<_> = found.try_collect().await?;
        let found = found
            .into_iter()
            .filter_map(|(key, definition)| Some((key, definition?)));
        Ok(found.collect())
    }

    /// Begins a term; returns its number.
    pub(super) async fn next_term(&self) -> Result<u64> {
        let term = self.0.next_term().await;
        term.map_err(|error| Error::of_store("counting this term", error))
    }

    /// Commits all changes; they are durable when it returns.
    pub(super) async fn commit(&self, changes: Changes) -> typed::Result<()> {
        self.0.commit(changes.changes).await.map(drop)
    }
}

impl Changes {
    pub(super) fn extend(&mut self, other: Self) {
        self.changes.extend(other.changes);
        self.touched.extend(other.touched);
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends to the last of `batches`, or begins another one if that would exceed `max` changes.
    pub(super) fn append_to(self, batches: &mut Vec<Self>, max: usize) {
        match batches.last_mut() {
            Some(last) if last.changes.len() + self.changes.len() <= max => last.extend(self),
            _ => batches.push(self),
        }
    }

    pub(super) fn put_spec(&mut self, record: &SpecRecord) -> typed::Result<()> {
        let id = record.spec.id();
        self.touched.specs.insert(id.clone());
        self.changes.put(spec_key(id), record, Expect::Any)
    }

    pub(super) fn delete_spec(&mut self, id: &SpecId) {
        self.touched.specs.insert(id.clone());
        self.changes.delete(spec_key(id), Expect::Any);
    }

    /// Stores a definition that is replaced or deleted.
    pub(super) fn put_version(&mut self, spec: &Spec) -> typed::Result<()> {
        self.changes
            .put(version_key(spec.id(), spec.version()), spec, Expect::Any)
    }

    pub(super) fn delete_version(&mut self, id: &SpecId, version: Moment) {
        self.changes.delete(version_key(id, version), Expect::Any);
    }

    pub(super) fn put_group(&mut self, group: &Group) -> typed::Result<()> {
        self.touched.groups.insert(group.id.clone());
        self.changes.put(group_key(&group.id), group, Expect::Any)
    }

    pub(super) fn delete_group(&mut self, id: &GroupId) {
        self.touched.groups.insert(id.clone());
        self.changes.delete(group_key(id), Expect::Any);
    }

    pub(super) fn put_deployment(&mut self, deployment: &Deployment) -> typed::Result<()> {
        self.touched.deployments.insert(deployment.id.clone());
        self.changes
            .put(deployment_key(&deployment.id), deployment, Expect::Any)
    }

    /// Stores the current step of a deployment. It has a record of its own, because the record of a
    /// deployment with many steps is large, and each of them ends once.
    pub(super) fn put_step(&mut self, id: &str, current: usize) -> typed::Result<()> {
        self.touched.deployments.insert(id.to_owned());
        let record = StepRecord {
            deployment: id.to_owned(),
            current,
        };
        self.changes.put(step_key(id), &record, Expect::Any)
    }

    pub(super) fn delete_deployment(&mut self, id: &str) {
        self.touched.deployments.insert(id.to_owned());
        self.changes.delete(step_key(id), Expect::Any);
        self.changes.delete(deployment_key(id), Expect::Any);
    }

    pub(super) fn put_change(&mut self, change: &Change) -> typed::Result<()> {
        self.touched.history.insert(change.version);
        self.changes.put(change_key(change.version), change, Expect::Any)
    }

    pub(super) fn put_health(&mut self, record: &HealthRecord) -> typed::Result<()> {
        self.changes
            .put(health_key(&record.instance), record, Expect::Any)
    }

    pub(super) fn delete_health(&mut self, instance: &InstanceId) {
        self.changes.delete(health_key(instance.as_str()), Expect::Any);
    }

    pub(super) fn delete_change(&mut self, version: Moment) {
        self.touched.history.insert(version);
        self.changes.delete(change_key(version), Expect::Any);
    }
}

/// Decodes a record as the core does, and returns it in the form in which the core writes it, with
/// its key. `None` if no record of the service has such a key.
///
/// # Errors
/// The record cannot be decoded.
pub(crate) fn normalized(key: &str, record: &Value) -> Option<serde_json::Result<(String, Value)>> {
    fn read<T: DeserializeOwned + Serialize>(
        record: &Value,
        key: impl FnOnce(&T) -> String,
    ) -> serde_json::Result<(String, Value)> {
        let read = T::deserialize(record)?;
        Ok((key(&read), serde_json::to_value(&read)?))
    }
    let (folder, _) = key.split_once('/')?;
    Some(match folder {
        "apps" => read::<SpecRecord>(record, |one| spec_key(one.spec.id())),
        "versions" => read::<Spec>(record, |one| version_key(one.id(), one.version())),
        "groups" => read::<Group>(record, |one| group_key(&one.id)),
        "deployments" => read::<Deployment>(record, |one| deployment_key(&one.id)),
        "deployment-steps" => read::<StepRecord>(record, |one| step_key(&one.deployment)),
        "health" => read::<HealthRecord>(record, |one| health_key(&one.instance)),
        "history" => read::<Change>(record, |one| change_key(one.version)),
        _ => return None,
    })
}

/// The id begins with a slash.
pub(crate) fn spec_key(id: &SpecId) -> String {
    format!("apps{id}")
}

pub(crate) fn version_key(id: &SpecId, version: Moment) -> String {
    format!("versions{id}/{version}")
}

pub(crate) fn group_key(id: &GroupId) -> String {
    format!("groups{id}")
}

fn deployment_key(id: &str) -> String {
    format!("{DEPLOYMENTS}{id}")
}

fn health_key(instance: &str) -> String {
    format!("{HEALTH}{instance}")
}

fn step_key(id: &str) -> String {
    format!("{STEPS}{id}")
}

fn change_key(version: Moment) -> String {
    format!("{HISTORY}{version}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn health_beyond_the_limit_of_a_write_is_kept_for_later() {
        let app = SpecId::parse("/a").unwrap();
        let all: BTreeSet<InstanceId> = (0..5).map(|_| InstanceId::new(&app)).collect();
        for (max, now) in [(0, 0), (3, 3), (5, 5), (9, 5)] {
            let mut touched = Touched {
                health: all.clone(),
                ..Touched::default()
            };
            let later = touched.split_health(max);
            assert_eq!((touched.health.len(), later.len()), (now, 5 - now));
            assert_eq!(&touched.health | &later, all);
        }
    }

    #[test]
    fn oldest_unused_versions_are_dropped_by_count_and_by_bytes() {
        let base: Moment = "2020-01-01T00:00:00Z".parse().unwrap();
        let past: Vec<PastVersion> = (0..4)
            .map(|number| PastVersion {
                version: base.plus_millis(number),
                config: "c".into(),
                bytes: Some(10),
            })
            .collect();
        let used = BTreeSet::from([base]);
        for (count, bytes, expected) in [
            (9, 100, vec![0, 1, 2, 3]),
            (3, 100, vec![0, 2, 3]),
            (9, 40, vec![0, 1, 2, 3]),
            (9, 39, vec![0, 2, 3]),
            (9, 15, vec![0]),
            (0, 0, vec![0]),
        ] {
            let mut kept = past.clone();
            KeptVersions { count, bytes }.apply(&mut kept, &used);
            let expected: Vec<Moment> = expected
                .into_iter()
                .map(|number| base.plus_millis(number))
                .collect();
            let kept: Vec<Moment> = kept.iter().map(|past| past.version).collect();
            assert_eq!(kept, expected, "{count} versions, {bytes} bytes");
        }
    }
}
