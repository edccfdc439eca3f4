//! The records of a planned change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_store::typed;

use super::{Definitions, Planner, PreparedChange};
use crate::core::persist::{Changes, KeptVersions, PastVersion, SpecRecord};
use crate::ids::SpecId;
use crate::model::{Effect, json_bytes};
use crate::time::Moment;
use crate::tree::edit::{EditedSpec, Restart};

impl Planner {
    /// Computes the changes of the store, and the definitions after them.
    pub(super) fn collect_changes(
        &self,
        changes: &mut Changes,
        after: &mut Definitions,
        prepared: &mut PreparedChange,
    ) -> typed::Result<()> {
        let Definitions { tree, history } = after;
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
            if let Some(running) = self.deployment(cancelled) {
                unused.extend(history.release(&running.change));
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
            let present = || self.view(&id).map(|view| &*view.record);
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
        let before = self.view(id).map(|view| view.record.versions());
        let kept: BTreeSet<Moment> = record.versions().collect();
        let dropped = before.into_iter().flatten();
        dropped
            .filter(|version| !kept.contains(version))
            .map(|version| (id.clone(), version))
            .collect()
    }

    /// The records of apps and pods that the cancelled deployments were deleting, without the mark
    /// of deletion. Those that `edited` names are left out.
    pub(in crate::core) fn revived(&self, cancelled: &[String], edited: &[EditedSpec]) -> Vec<SpecRecord> {
        let named: BTreeSet<&SpecId> = edited.iter().map(|app| &app.id).collect();
        let deployments = cancelled.iter().filter_map(|id| self.deployment(id));
        let specs = deployments.flat_map(|deployment| deployment.specs());
        specs
            .filter(|id| !named.contains(id))
            .filter_map(|id| self.view(id))
            .filter(|view| view.record.deleted)
            .map(|view| SpecRecord {
                deleted: false,
                ..SpecRecord::clone(&view.record)
            })
            .collect()
    }

    /// Whether this record makes it necessary to replace an instance.
    pub(super) fn has_outdated(&self, record: &SpecRecord) -> bool {
        let Some(view) = self.view(record.spec.id()).filter(|_| !record.deleted) else {
            return false;
        };
        let wanted = view
            .instances
            .values()
            .filter(|instance| instance.replica.is_wanted());
        let versions: BTreeSet<Moment> = wanted.map(|instance| instance.version()).collect();
        versions.into_iter().any(|version| record.is_outdated(version))
    }

    /// The record to store: the new definition, or the last one marked as deleted.
    pub(super) fn record(&self, edited: &EditedSpec) -> Option<SpecRecord> {
        let view = self.view(&edited.id);
        let present = view.map(|view| &*view.record);
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
        let checks = self.settings.checks;
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
        let instances = view.into_iter().flat_map(|view| view.instances.values());
        let used = instances.map(|instance| instance.version()).collect();
        let others = self.past_bytes.stored.bytes();
        let others = others.saturating_sub(present.map_or(0, SpecRecord::past_bytes));
        let kept = KeptVersions {
            count: self.settings.max_versions.saturating_sub(1),
            bytes: self.settings.max_versions_bytes.saturating_sub(others),
        };
        kept.apply(&mut past, &used);
        Some(SpecRecord {
            last_failure: present.and_then(|record| record.last_failure.clone()),
            failures: present
                .filter(|record| record.spec.config_version() == spec.config_version())
                .and_then(|record| record.failures.clone()),
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
