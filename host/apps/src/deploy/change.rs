//! The record of what a request changed. It is needed for reverts, and for rollbacks of groups.

use serde::{Deserialize, Serialize};

use crate::ids::{GroupId, SpecId};
use crate::model::Spec;
use crate::time::Moment;
use crate::tree::edit::{Edited, EditedGroup, EditedSpec};

/// A change of definitions. Apps and pods are referred to by version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// The version of the definitions that it made.
    pub(crate) version: Moment,
    /// The group that the request changed, or that the changed app or pod lies in.
    pub(crate) group: GroupId,
    /// The changed apps and pods, in the order of their ids.
    pub(crate) specs: Vec<ChangedSpec>,
    /// The changed groups, in the order of their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<EditedGroup>,
}

/// The versions of an app or pod before and after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedSpec {
    pub(crate) id: SpecId,
    /// `None`: it was new.
    pub(crate) before: Option<Moment>,
    /// `None`: it was deleted.
    pub(crate) after: Option<Moment>,
}

impl Change {
    /// The record of an edit. `affected` are the apps and pods whose definition or instances the
    /// edit changes.
    pub(crate) fn new<'a>(
        version: Moment,
        group: GroupId,
        edited: &Edited,
        affected: impl IntoIterator<Item = &'a EditedSpec>,
    ) -> Self {
        let specs = affected.into_iter().map(|spec| ChangedSpec {
            id: spec.id.clone(),
            before: spec.before.as_ref().map(Spec::version),
            after: spec.after.as_ref().map(Spec::version),
        });
        Self {
            version,
            group,
            specs: specs.collect(),
            groups: edited.groups.clone(),
        }
    }

    /// Whether it changed anything below the group, or the group itself.
    pub(crate) fn concerns(&self, group: &GroupId) -> bool {
        let mut specs = self.specs.iter();
        let specs = specs.any(|spec| group.is_above(spec.id.as_str()));
        let groups = self.groups.iter().any(|changed| {
            let id = changed
                .after
                .as_ref()
                .or(changed.before.as_ref())
                .map(|group| &group.id);
            id.is_some_and(|id| id == group || group.is_above(id.as_str()))
        });
        specs || groups
    }
}
