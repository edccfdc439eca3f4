//! Prepares a request without any effect: computes the definitions after it, its deployment, and
//! the records to store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_common::trace::TraceContext;
use transom_store::limits::MAX_CHANGES;
use transom_store::typed;
use transom_web::Problems;
use uuid::Uuid;

use super::Core;
use super::batch::{Batch, EditOutcome, PreparedChange};
use super::command::{Edit, Options, Rejection};
use super::history::History;
use super::persist::{Changes, KeptVersions, PastVersion, SpecRecord};
use super::spec_state::SpecState;
use super::write::away_from_serving;
use crate::deploy::{ActionKind, Change, Deployment, SharedTexts, Step, plan};
use crate::ids::{GroupId, SpecId};
use crate::model::{Effect, Invalid, Spec, json_bytes};
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::{Edited, EditedSpec, Restart};

impl Core {
    /// Validates and plans a change without any effect.
    pub(super) async fn prepare(
        &mut self,
        batch: &Batch,
        edit: Edit,
        options: Options,
    ) -> Result<PreparedChange, Rejection> {
        let definitions = edit.definitions();
        if definitions > MAX_CHANGES {
            // No store accepts so many records, so the definitions are not even compared.
            return Err(typed::Error::from(transom_store::Error::TooLarge {
                what: "a change, in definitions,".to_owned(),
                size: definitions,
                limit: MAX_CHANGES,
            })
            .into());
        }
        let (version, force) = (self.new_version(), options.force);
        // A deployment that reverts another has no deadline, so that it is not reverted itself.
        let reverts = matches!(edit, Edit::Revert(_));
        let deadline = options.deadline.or(self.deadline).filter(|_| !reverts);
        let outcome = self.edit(&batch.tree, edit, force, version).await?;
        let definitions = outcome.edited.specs.len();
        let options = Options {
            deadline,
            canary: options.canary.filter(|_| !reverts),
            ..options
        };
        away_from_serving(definitions, || self.plan(batch, outcome, options, version))
    }

    /// Plans a change and computes the records to store.
    fn plan(
        &self,
        batch: &Batch,
        outcome: EditOutcome,
        options: Options,
        version: Moment,
    ) -> Result<PreparedChange, Rejection> {
        let EditOutcome {
            edited,
            group,
            created,
        } = outcome;
        let checks = self.launch.checks;
        let mut affected = Vec::new();
        let mut records = Vec::new();
        let mut outdated = BTreeSet::new();
        for spec in &edited.specs {
            let record = self.record(spec);
            let replaced = record.as_ref().is_some_and(|record| self.has_outdated(record));
            if replaced {
                outdated.insert(spec.id.clone());
            }
            let same = match (&spec.before, &spec.after) {
                (Some(before), Some(after)) => before.version() == after.version(),
                (before, after) => before.is_none() && after.is_none(),
            };
            if !same || replaced || spec.restart == Restart::Withdrawn {
                affected.push(spec);
                records.extend(record);
            }
        }
        let locks: BTreeSet<&Arc<str>> = affected
            .iter()
            .filter_map(|spec| self.locks.get(&spec.id))
            .collect();
        let cancels: Vec<String> = locks.iter().map(ToString::to_string).collect();
        if !cancels.is_empty() && !options.force {
            return Err(Rejection::Locked(cancels));
        }
        let groups: Vec<GroupId> = edited
            .groups
            .iter()
            .filter_map(|group| group.after.as_ref().map(|group| group.id.clone()))
            .collect();
        let effect = |spec: &EditedSpec, old: &Spec, new: &Spec| {
            if spec.restart == Restart::All || outdated.contains(&spec.id) {
                Effect::Replace
            } else {
                old.effect_of(new, checks)
            }
        };
        let steps = plan::steps(&edited.tree, &edited.specs, &groups, effect).map_err(|cycle| {
            let mut problems = Problems::default();
            problems.add("/dependencies", cycle.to_string());
            Rejection::Invalid(Invalid::Rules(problems))
        })?;
        if edited.lacks_service_ports {
            let range = &self.service_ports;
            tracing::warn!(
                first = *range.start(),
                last = *range.end(),
                "service ports are full: some ports of apps stay 0; widen `apps.local_port_min` and `apps.local_port_max`"
            );
        }
        // A change that neither starts nor replaces instances is not counted as a deployment.
        let deploys = !steps.is_empty() && cancels.is_empty() && !options.dry_run;
        self.check_limits(batch, &edited, deploys)?;
        let change = Change::new(version, group, &edited, affected);
        Ok(PreparedChange {
            deployment: Deployment {
                id: Uuid::new_v4().to_string(),
                version,
                current: first_step(&steps),
                steps: Arc::new(steps),
                change: Arc::new(change),
                deadline: options.deadline,
                canary: options.canary,
                held_since: None,
                trace: TraceContext::default(),
                texts: SharedTexts::default(),
            },
            specs: edited.specs,
            groups: edited.groups,
            records,
            tree: edited.tree,
            cancels,
            created,
        })
    }

    /// Checks the limits of running deployments and of apps. `deploys`: whether one more deployment
    /// will run. A change that adds no apps never exceeds the limit of apps.
    fn check_limits(&self, batch: &Batch, edited: &Edited, deploys: bool) -> Result<(), Rejection> {
        let accepted = batch
            .prepared
            .iter()
            .map(|accepted| &accepted.prepared.deployment);
        let accepted = accepted.filter(|deployment| !deployment.steps.is_empty());
        let running = self.deployments.len() + accepted.count();
        if deploys && running >= self.max_running_deployments {
            return Err(Rejection::TooManyDeployments(self.max_running_deployments));
        }
        if let Some(max) = self.max_apps
            && edited.tree.len() > max
            && edited.tree.len() > batch.tree.len()
        {
            return Err(Rejection::TooManyApps(max));
        }
        self.check_bytes(batch, edited)
    }

    /// Adds the records of a prepared request to the changes of the batch.
    pub(super) fn store(
        &self,
        batch: &mut Batch,
        mut prepared: PreparedChange,
    ) -> Result<PreparedChange, Rejection> {
        let (mut changes, mut history) = (Changes::default(), batch.history.clone());
        let mut tree = prepared.tree.clone();
        away_from_serving(prepared.specs.len(), || {
            self.collect_changes(&mut changes, &mut history, &mut tree, &mut prepared)
        })?;
        batch.changes.extend(changes);
        (batch.tree, batch.history) = (tree, history);
        let specs = prepared.deployment.change.specs.iter();
        batch.ids.extend(specs.map(|spec| spec.id.clone()));
        Ok(prepared)
    }

    fn collect_changes(
        &self,
        changes: &mut Changes,
        history: &mut History,
        tree: &mut Tree,
        prepared: &mut PreparedChange,
    ) -> typed::Result<()> {
        let deployment = &prepared.deployment;
        let (specs, groups) = (&deployment.change.specs, &prepared.groups);
        let mut unused = Vec::new();
        if !specs.is_empty() || !groups.is_empty() {
            let change = Arc::clone(&deployment.change);
            changes.put_change(&change)?;
            for dropped in history.push(change) {
                changes.delete_change(dropped.version);
                unused.extend(history.release(&dropped));
            }
        }
        if !deployment.steps.is_empty() {
            changes.put_deployment(deployment)?;
            history.retain(&deployment.change);
        }
        for cancelled in &prepared.cancels {
            changes.delete_deployment(cancelled);
            if let Some(running) = self.deployments.get(cancelled) {
                unused.extend(history.release(&running.deployment.change));
            }
        }
        prepared
            .records
            .extend(self.revived(&prepared.cancels, &prepared.specs));
        for record in &prepared.records {
            changes.put_spec(record)?;
            if !record.deleted {
                tree.insert(record.spec.clone());
            }
            unused.extend(self.dropped_versions(record));
        }
        for spec in &prepared.specs {
            if let Some(before) = &spec.before
                && spec
                    .after
                    .as_ref()
                    .is_none_or(|after| after.version() != before.version())
            {
                changes.put_version(before)?;
            }
        }
        for group in groups {
            match (&group.before, &group.after) {
                (_, Some(after)) => changes.put_group(after)?,
                (Some(before), None) => changes.delete_group(&before.id),
                (None, None) => {}
            }
        }
        let records: BTreeMap<&SpecId, &SpecRecord> = prepared
            .records
            .iter()
            .map(|record| (record.spec.id(), record))
            .collect();
        for (id, version) in unused {
            let present = || self.specs.get(&id).map(|state| &state.record);
            let record = records.get(&id).copied().or_else(present);
            let kept = record.is_some_and(|record| record.versions().any(|kept| kept == version));
            if !kept && !history.refers_to(&id, version) {
                changes.delete_version(&id, version);
            }
        }
        Ok(())
    }

    /// The versions that the new record omits.
    fn dropped_versions(&self, record: &SpecRecord) -> Vec<(SpecId, Moment)> {
        let id = record.spec.id();
        let before = self.specs.get(id).map(|state| state.record.versions());
        let kept: BTreeSet<Moment> = record.versions().collect();
        let dropped = before.into_iter().flatten();
        dropped
            .filter(|version| !kept.contains(version))
            .map(|version| (id.clone(), version))
            .collect()
    }

    /// The records of apps and pods that the cancelled deployments were deleting, without the mark
    /// of deletion. Those that `edited` names are left out.
    pub(super) fn revived(&self, cancelled: &[String], edited: &[EditedSpec]) -> Vec<SpecRecord> {
        let named: BTreeSet<&SpecId> = edited.iter().map(|app| &app.id).collect();
        let deployments = cancelled.iter().filter_map(|id| self.deployments.get(id));
        let specs = deployments.flat_map(|running| running.deployment.specs());
        specs
            .filter(|id| !named.contains(id))
            .filter_map(|id| self.specs.get(id))
            .filter(|state| state.record.deleted)
            .map(|state| SpecRecord {
                deleted: false,
                ..state.record.clone()
            })
            .collect()
    }

    /// Whether this record makes it necessary to replace an instance.
    fn has_outdated(&self, record: &SpecRecord) -> bool {
        let Some(state) = self.specs.get(record.spec.id()).filter(|_| !record.deleted) else {
            return false;
        };
        let wanted = state
            .instances()
            .values()
            .filter(|instance| instance.replica.is_wanted());
        let versions: BTreeSet<Moment> = wanted.map(|instance| instance.version()).collect();
        versions.into_iter().any(|version| record.is_outdated(version))
    }

    /// The record to store: the new definition, or the last one marked as deleted.
    fn record(&self, edited: &EditedSpec) -> Option<SpecRecord> {
        let state = self.specs.get(&edited.id);
        let present = state.map(|state| &state.record);
        let Some(spec) = &edited.after else {
            return present.map(|record| SpecRecord {
                deleted: true,
                ..record.clone()
            });
        };
        let restarted_at = match edited.restart {
            Restart::AsBefore => present.and_then(|record| record.restarted_at),
            Restart::All => Some(spec.version()),
            Restart::Withdrawn => None,
        };
        let checks = self.launch.checks;
        let config = match present {
            // The digest is kept, because another release of this daemon may compute a different
            // one.
            Some(present) if present.spec.effect_of(spec, checks) != Effect::Replace => {
                Arc::clone(&present.config)
            }
            _ => spec.config(checks).into(),
        };
        let mut past = present.map(|record| record.past.clone()).unwrap_or_default();
        if let Some(present) = present.filter(|present| present.spec.version() != spec.version()) {
            past.push(PastVersion {
                version: present.spec.version(),
                config: Arc::clone(&present.config),
                bytes: Some(json_bytes(&present.spec)),
            });
        }
        // Versions that instances run are kept, because their definitions are needed.
        let used = state.map(SpecState::used_versions).unwrap_or_default();
        let others = self.past_bytes.stored.bytes() - state.map_or(0, SpecState::stored_past_bytes);
        let kept = KeptVersions {
            count: self.max_versions.saturating_sub(1),
            bytes: self.max_versions_bytes.saturating_sub(others),
        };
        kept.apply(&mut past, &used);
        Some(SpecRecord {
            last_failure: present.and_then(|record| record.last_failure.clone()),
            terminations: present
                .map(|record| record.terminations.clone())
                .unwrap_or_default(),
            spec: spec.clone(),
            config,
            past,
            deleted: false,
            restarted_at,
        })
    }
}

/// The first step is done immediately if it only starts apps and pods, because these have no
/// instances yet.
fn first_step(steps: &[Step]) -> usize {
    let starts = |step: &Step| {
        let mut actions = step.actions.iter();
        actions.all(|action| action.kind == ActionKind::Start)
    };
    usize::from(steps.len() > 1 && steps.first().is_some_and(starts))
}
