//! Documents of groups, with everything that lies below them.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::app::{self, AppInfo, Embed};
use super::pod_status::{self, PodStatus};
use super::query::Query;
use crate::core::snapshot::Snapshot;
use crate::ids::{GroupId, SpecId};
use crate::model::Spec;
use crate::time::Moment;

/// A group.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupInfo<'a> {
    id: GroupId,
    dependencies: &'a [SpecId],
    /// The latest version of its definition and of the apps and pods below it.
    version: Moment,
    /// Whether its name is the role of new apps and pods below it. Shown only when it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    enforce_role: bool,
    /// The apps that lie directly in it. Only if the request embeds apps.
    #[serde(skip_serializing_if = "Option::is_none")]
    apps: Option<Vec<AppInfo<'a>>>,
    /// The pods that lie directly in it. Only if the request embeds pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Vec<PodStatus<'a>>>,
    /// The groups that lie directly in it. Only if the request embeds groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupInfo<'a>>>,
}

/// The parts of a group's document.
pub(super) struct EmbeddedParts {
    groups: bool,
    apps: bool,
    pods: bool,
    embed: Embed,
}

impl EmbeddedParts {
    /// The requested parts; all if none is named.
    pub(super) fn of(query: &Query) -> Self {
        let is_requested = |part: &str| query.all("embed").any(|embed| embed == part);
        let (groups, apps, pods) = (
            is_requested("group.groups"),
            is_requested("group.apps"),
            is_requested("group.pods"),
        );
        let none = !groups && !apps && !pods;
        Self {
            groups: groups || none,
            apps: apps || none,
            pods: pods || none,
            embed: Embed::of(query),
        }
    }
}

/// The position of each group's document in the list of the group that contains it.
type Positions = HashMap<GroupId, usize>;

/// A group's document.
pub(super) fn group_info<'a>(snapshot: &'a Snapshot, id: &GroupId, parts: &EmbeddedParts) -> GroupInfo<'a> {
    let mut document = GroupInfo::new(snapshot, id.clone(), parts);
    let mut positions = Positions::new();
    if parts.groups {
        let below = snapshot.groups.keys();
        for group in below.filter(|group| id.is_above(group.as_str())) {
            document.at(snapshot, group, parts, &mut positions);
        }
    }
    for view in snapshot.specs_below(id) {
        // Absent if the group that contains it is not requested.
        let Some(group) = document.at(snapshot, &view.spec.id().group(), parts, &mut positions) else {
            continue;
        };
        match &view.spec {
            Spec::App(app) => {
                if let Some(apps) = &mut group.apps {
                    apps.push(app::app_info(view, app, snapshot, parts.embed));
                }
            }
            Spec::Pod(pod) => {
                if let Some(pods) = &mut group.pods {
                    pods.push(pod_status::pod_status(view, pod));
                }
            }
        }
    }
    document
}

impl<'a> GroupInfo<'a> {
    /// A group with empty lists of the requested parts.
    fn new(snapshot: &'a Snapshot, id: GroupId, parts: &EmbeddedParts) -> Self {
        let group = snapshot.groups.get(&id);
        let below = snapshot.specs_below(&id).map(|view| view.spec.version());
        let version = group.map(|group| group.version).into_iter().chain(below).max();
        Self {
            dependencies: group.map_or(&[], |group| &group.dependencies),
            version: version.unwrap_or_else(|| Moment::from(jiff::Timestamp::UNIX_EPOCH)),
            enforce_role: group.is_some_and(|group| group.enforce_role),
            apps: parts.apps.then(Vec::new),
            pods: parts.pods.then(Vec::new),
            groups: parts.groups.then(Vec::new),
            id,
        }
    }

    /// The document of this group, or of one below it, which is added if it is missing. `None` if
    /// groups are not requested.
    fn at(
        &mut self,
        snapshot: &'a Snapshot,
        id: &GroupId,
        parts: &EmbeddedParts,
        positions: &mut Positions,
    ) -> Option<&mut Self> {
        let mut chain: Vec<GroupId> = id
            .with_ancestors()
            .take_while(|group| *group != self.id)
            .collect();
        chain.reverse();
        let mut document = self;
        for group in chain {
            #[cfg(test)]
            crate::testing::operations::count();
            let groups = document.groups.as_mut()?;
            let position = *positions.entry(group).or_insert_with_key(|group| {
                groups.push(Self::new(snapshot, group.clone(), parts));
                groups.len() - 1
            });
            document = groups.get_mut(position)?;
        }
        Some(document)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::core::snapshot::SpecView;
    use crate::testing::{app, operations};
    use crate::tree::Group;

    /// The lookups of groups for a document with this number of groups, each with one app.
    fn lookups(count: usize) -> usize {
        let mut snapshot = Snapshot::default();
        for number in 0..count {
            let app = app(&json!({"id": format!("/top/g{number}/a"), "cmd": "sleep 1"}));
            let (id, group) = (app.id.clone(), app.id.group());
            for id in group.with_ancestors().filter(|id| !id.is_root()) {
                let group = Group::new(id.clone(), Moment::now());
                snapshot.groups.insert(id, Arc::new(group));
            }
            snapshot.specs.insert(id, Arc::new(SpecView::of(app.into())));
        }
        let parts = EmbeddedParts {
            groups: true,
            apps: true,
            pods: true,
            embed: Embed::default(),
        };
        operations::take();
        let document = group_info(&snapshot, &GroupId::root(), &parts);
        let top = &document.groups.unwrap()[0];
        let groups = top.groups.as_ref().unwrap();
        assert_eq!(groups.len(), count);
        assert!(groups.iter().all(|group| group.apps.as_ref().unwrap().len() == 1));
        operations::take()
    }

    #[test]
    fn lookups_of_a_document_grow_with_its_groups() {
        let (small, large) = (lookups(50), lookups(800));
        assert!(large <= 17 * small, "{small} and {large} lookups");
    }
}
