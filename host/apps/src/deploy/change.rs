//! What a request changed: the record from which a change is reverted, and groups go back to
//! earlier versions.

use serde::{Deserialize, Serialize};

use crate::ids::{AppId, GroupId};
use crate::time::Moment;
use crate::tree::edit::{Edited, EditedApp, EditedGroup};

/// A change of definitions. Apps are referred to by version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// The version of the definitions that it made.
    pub(crate) version: Moment,
    /// The group that the request changed, or that the changed app lies in.
    pub(crate) group: GroupId,
    /// The changed apps, in the order of their ids.
    pub(crate) apps: Vec<ChangedApp>,
    /// The changed groups, in the order of their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<EditedGroup>,
}

/// The versions of an app before and after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedApp {
    pub(crate) id: AppId,
    /// `None`: the app was new.
    pub(crate) before: Option<Moment>,
    /// `None`: the app was deleted.
    pub(crate) after: Option<Moment>,
}

impl Change {
    /// The record of an edit. `affected` are its apps that are changed, or whose instances are.
    pub(crate) fn new<'a>(
        version: Moment,
        group: GroupId,
        edited: &Edited,
        affected: impl IntoIterator<Item = &'a EditedApp>,
    ) -> Self {
        let apps = affected.into_iter().map(|app| ChangedApp {
            id: app.id.clone(),
            before: app.before.as_ref().map(|app| app.version),
            after: app.after.as_ref().map(|app| app.version),
        });
        Self {
            version,
            group,
            apps: apps.collect(),
            groups: edited.groups.clone(),
        }
    }

    /// Whether it changed anything below the group, or the group itself.
    pub(crate) fn concerns(&self, group: &GroupId) -> bool {
        let apps = self.apps.iter().any(|app| group.is_above(app.id.as_str()));
        let groups = self.groups.iter().any(|changed| {
            let id = changed
                .after
                .as_ref()
                .or(changed.before.as_ref())
                .map(|group| &group.id);
            id.is_some_and(|id| id == group || group.is_above(id.as_str()))
        });
        apps || groups
    }
}
