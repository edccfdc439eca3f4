//! The snapshot for readers: immutable, published after every change.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use super::history::History;
use super::places::Places;
use super::spec_view::SpecView;
use super::totals::Totals;
use crate::deploy::Deployment;
use crate::ids::{GroupId, SpecId};
use crate::model::{App, Pod};
use crate::time::Moment;
use crate::tree::Group;

/// Everything that the API reads. A clone is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Apps and pods without those that are being deleted.
    pub(crate) specs: OrdMap<SpecId, Arc<SpecView>>,
    /// Apps and pods that are being deleted, as long as they have tasks.
    pub(crate) deleted: OrdMap<SpecId, Arc<SpecView>>,
    /// Groups with definitions; the root group may have none.
    pub(crate) groups: OrdMap<GroupId, Arc<Group>>,
    /// Running deployments by version and id, oldest first.
    pub(crate) deployments: OrdMap<(Moment, String), Arc<Deployment>>,
    /// The deployment that locks an app or pod.
    pub(crate) locks: OrdMap<SpecId, Arc<str>>,
    /// The last changes.
    pub(crate) history: History,
    /// Counts of `specs` and `deleted`.
    pub(crate) totals: Totals,
    /// Of `specs` and `deleted`; empty on a standby.
    pub(crate) places: Places,
}

impl Snapshot {
    /// Replaces the view of an app or pod; `None`: it does not exist any more. `deleted`: it is being
    /// deleted.
    pub(super) fn set(&mut self, id: &SpecId, view: Option<Arc<SpecView>>, deleted: bool) {
        let (views, others) = if deleted {
            (&mut self.deleted, &mut self.specs)
        } else {
            (&mut self.specs, &mut self.deleted)
        };
        let earlier = match &view {
            Some(view) => views.insert(id.clone(), Arc::clone(view)),
            None => views.remove(id),
        };
        for (earlier, was_deleted) in [(earlier, deleted), (others.remove(id), !deleted)] {
            if let Some(earlier) = earlier {
                self.totals.remove(&earlier, was_deleted);
            }
        }
        if let Some(view) = view {
            self.totals.add(&view, deleted);
        }
    }

    /// An app.
    pub(crate) fn app(&self, id: &SpecId) -> Option<(&SpecView, &App)> {
        let view = self.specs.get(id)?;
        Some((view, view.record.spec.app()?))
    }

    /// A pod.
    pub(crate) fn pod(&self, id: &SpecId) -> Option<(&Arc<SpecView>, &Pod)> {
        let view = self.specs.get(id)?;
        Some((view, view.record.spec.pod()?))
    }

    /// The id of the deployment that locks an app or pod.
    pub(crate) fn lock(&self, id: &SpecId) -> Option<&Arc<str>> {
        self.locks.get(id)
    }

    /// Whether there is such a group. The root group always exists.
    pub(crate) fn has_group(&self, id: &GroupId) -> bool {
        id.is_root() || self.groups.contains_key(id)
    }

    /// The apps and pods below a group, at any depth.
    pub(crate) fn specs_below(&self, group: &GroupId) -> impl Iterator<Item = &Arc<SpecView>> + use<'_> {
        let (from, prefix) = (group.prefix(), group.prefix());
        self.specs
            .range::<_, str>((Bound::Included(from.as_str()), Bound::Unbounded))
            .take_while(move |(id, _)| id.as_str().starts_with(&prefix))
            .map(|(_, view)| view)
    }
}
