//! Plans changes: computes the definitions after a request, its deployment, and the records to store.
//!
//! A [`Planner`] reads a snapshot, so a large change is planned while the core handles other input.

mod edit;
mod records;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use transom_common::ambient;
use transom_common::trace::TraceContext;
use transom_store::limits::MAX_CHANGES;
use transom_store::typed;
use transom_web::Problems;

use super::budgets::PastBytes;
use super::command::{Edit, GroupEdit, Options, Rejection};
use super::history::History;
use super::persist::{Changes, Repository, SpecRecord};
use super::snapshot::Snapshot;
use super::spec_view::SpecView;
use crate::bus::{Draft, shapes};
use crate::deploy::{ActionKind, Change, Deadline, Deployment, SharedTexts, Step, plan};
use crate::ids::{GroupId, SpecId};
use crate::model::{DefinitionSettings, Effect, Invalid, Spec};
use crate::settings::{Checks, PlanForm};
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::{Edited, EditedGroup, EditedSpec, Restart};

/// The number of definitions of a change that is planned and stored before other input is handled, on
/// a thread that also serves ports.
const MAX_INLINE: usize = 16;

/// The settings that changes depend on; see [`crate::Config`].
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) definitions: DefinitionSettings,
    pub(crate) checks: Checks,
    /// The deadline of deployments whose request specifies none.
    pub(crate) deadline: Option<Deadline>,
    pub(crate) max_running_deployments: usize,
    pub(crate) max_apps: Option<usize>,
    pub(crate) max_instances: u32,
    pub(crate) max_versions: usize,
    pub(crate) max_definitions_bytes: u64,
    pub(crate) max_versions_bytes: u64,
    pub(crate) service_ports: RangeInclusive<u16>,
    /// The form of plans in events.
    pub(crate) plan_form: PlanForm,
}

/// All definitions without those that are being deleted, and their last changes. A clone is cheap.
#[derive(Clone, Default)]
pub(super) struct Definitions {
    pub(super) tree: Tree,
    pub(super) history: History,
}

/// What a change is planned from: the state of the core at one time, shared with it.
#[derive(Clone)]
pub(super) struct Planner {
    pub(super) settings: Arc<Settings>,
    pub(super) repository: Repository,
    pub(super) snapshot: Snapshot,
    pub(super) past_bytes: PastBytes,
    /// The number of deployments that run, or will run once their requests are stored.
    pub(super) running: usize,
}

/// A validated and planned change.
pub(super) struct PreparedChange {
    pub(super) specs: Vec<EditedSpec>,
    pub(super) groups: Vec<EditedGroup>,
    /// The records of the changed apps and pods.
    pub(super) records: Vec<SpecRecord>,
    pub(super) deployment: Deployment,
    /// Deployments that it cancels.
    pub(super) cancels: Vec<String>,
    /// Whether the app, pod or group is new.
    pub(super) created: bool,
}

/// A planned change, and what it changes in the store.
pub(super) struct PlannedChange {
    pub(super) prepared: PreparedChange,
    pub(super) changes: Changes,
    /// The definitions after the change.
    pub(super) after: Definitions,
    /// The events of the deployment's beginning.
    pub(super) events: Vec<Draft>,
}

/// The definitions that result from a request.
struct EditOutcome {
    edited: Edited,
    /// The group that events report as changed.
    group: GroupId,
    created: bool,
}

impl Planner {
    /// Validates and plans a change, and computes what it changes in the store, without any effect.
    /// `version` is that of the definitions that it changes, `trace` that of its request.
    pub(super) async fn plan_change(
        &self,
        before: &Definitions,
        edit: Edit,
        options: Options,
        version: Moment,
        trace: TraceContext,
    ) -> Result<PlannedChange, Rejection> {
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
        // A deployment that reverts another has no deadline, so that it is not reverted itself.
        let reverts = matches!(edit, Edit::Revert(_));
        let deadline = options.deadline.or(self.settings.deadline).filter(|_| !reverts);
        let outcome = self.edit(before, edit, options.force, version).await?;
        let definitions = outcome.edited.specs.len();
        let options = Options {
            deadline,
            canary: options.canary.filter(|_| !reverts),
            ..options
        };
        away_from_serving(definitions, || {
            let (mut prepared, tree) = self.plan(before, outcome, options, version)?;
            prepared.deployment.trace = trace;
            let history = before.history.clone();
            let mut after = Definitions { tree, history };
            let mut changes = Changes::default();
            self.collect_changes(&mut changes, &mut after, &mut prepared)?;
            let events = start_events(&prepared.deployment, self.settings.plan_form);
            Ok(PlannedChange {
                events: events.into_iter().map(Draft::serialized).collect(),
                prepared,
                changes,
                after,
            })
        })
    }

    /// Whether other input is handled while a change is planned and stored, because it has many
    /// definitions.
    pub(super) fn is_large(&self, before: &Definitions, edit: &Edit) -> bool {
        let below = |group: &GroupId| before.tree.specs_below(group).nth(MAX_INLINE).is_some();
        edit.definitions() > MAX_INLINE
            || match edit {
                // The definitions that the request omits are deleted.
                Edit::Group { id, edit } => !matches!(edit, GroupEdit::Create(_)) && below(id),
                Edit::Revert(id) => {
                    let deployment = self.deployment(id);
                    deployment.is_some_and(|deployment| deployment.change.specs.len() > MAX_INLINE)
                }
                Edit::App { .. } | Edit::Apps { .. } | Edit::Pod { .. } => false,
            }
    }

    /// An app or pod, even if it is being deleted.
    fn view(&self, id: &SpecId) -> Option<&Arc<SpecView>> {
        let present = self.snapshot.specs.get(id);
        present.or_else(|| self.snapshot.deleted.get(id))
    }

    /// A running deployment.
    fn deployment(&self, id: &str) -> Option<&Arc<Deployment>> {
        let mut running = self.snapshot.deployments.values();
        running.find(|deployment| deployment.id == id)
    }

    /// Plans a change and computes the records to store. Returns the definitions after it, too.
    fn plan(
        &self,
        before: &Definitions,
        outcome: EditOutcome,
        options: Options,
        version: Moment,
    ) -> Result<(PreparedChange, Tree), Rejection> {
        let EditOutcome {
            edited,
            group,
            created,
        } = outcome;
        let checks = self.settings.checks;
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
            .filter_map(|spec| self.snapshot.locks.get(&spec.id))
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
            let range = &self.settings.service_ports;
            tracing::warn!(
                first = *range.start(),
                last = *range.end(),
                "service ports are full: some ports of apps stay 0; widen `apps.local_port_min` and `apps.local_port_max`"
            );
        }
        // A change that neither starts nor replaces instances is not counted as a deployment.
        let deploys = !steps.is_empty() && cancels.is_empty() && !options.dry_run;
        self.check_limits(before, &edited, deploys)?;
        let change = Change::new(version, group, &edited, affected);
        let prepared = PreparedChange {
            deployment: Deployment {
                id: ambient::uuid().to_string(),
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
            cancels,
            created,
        };
        Ok((prepared, edited.tree))
    }

    /// Checks the limits of running deployments and of apps. `deploys`: whether one more deployment
    /// will run. A change that adds no apps never exceeds the limit of apps.
    fn check_limits(&self, before: &Definitions, edited: &Edited, deploys: bool) -> Result<(), Rejection> {
        let max_running = self.settings.max_running_deployments;
        if deploys && self.running >= max_running {
            return Err(Rejection::TooManyDeployments(max_running));
        }
        if let Some(max) = self.settings.max_apps
            && edited.tree.len() > max
            && edited.tree.len() > before.tree.len()
        {
            return Err(Rejection::TooManyApps(max));
        }
        self.check_bytes(before, edited)
    }

    /// Checks the memory of all definitions, and that of the past ones that instances run. Deleting,
    /// scaling and definitions that become smaller never exceed it.
    fn check_bytes(&self, before: &Definitions, edited: &Edited) -> Result<(), Rejection> {
        let (before, needed) = (before.tree.bytes(), edited.tree.bytes());
        let max = self.settings.max_definitions_bytes;
        if needed > max && needed > before {
            return Err(Rejection::TooManyDefinitionBytes { needed, max });
        }
        let past = self.past_bytes.in_memory.bytes();
        let replaces = |spec: &EditedSpec| {
            let after = spec.after.as_ref().filter(|_| spec.before.is_some());
            after.is_some_and(|after| after.config_version() == after.version())
        };
        let grows = needed > before || needed == before && edited.specs.iter().any(replaces);
        if past > max && grows {
            return Err(Rejection::TooManyPastBytes { needed: past, max });
        }
        Ok(())
    }
}

/// Does work on that many definitions. If there are many, the runtime's thread first hands its other
/// tasks, which serve every port, to another thread.
fn away_from_serving<T>(definitions: usize, work: impl FnOnce() -> T) -> T {
    let has_other_threads = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    if definitions > MAX_INLINE && Handle::try_current().is_ok_and(has_other_threads) {
        tokio::task::block_in_place(work)
    } else {
        work()
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

/// The events of a deployment that begins. The steps before the current one are skipped, and reported
/// as done.
fn start_events(deployment: &Deployment, form: PlanForm) -> Vec<Draft> {
    if deployment.steps.is_empty() {
        return vec![shapes::deployment_ended(deployment, form, None)];
    }
    let mut events = Vec::new();
    for current in 0..=deployment.current {
        let at = Deployment {
            current,
            ..deployment.clone()
        };
        events.push(shapes::deployment_step("deployment_info", &at, form));
        if current < deployment.current {
            events.push(shapes::deployment_step("deployment_step_success", &at, form));
        }
    }
    events
}
