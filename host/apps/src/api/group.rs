//! Documents of groups, with everything that lies below them.

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

/// A group's document.
pub(super) fn group_info<'a>(snapshot: &'a Snapshot, id: &GroupId, parts: &EmbeddedParts) -> GroupInfo<'a> {
    let mut document = GroupInfo::new(snapshot, id.clone(), parts);
    if parts.groups {
        let below = snapshot.groups.keys();
        for group in below.filter(|group| id.is_above(group.as_str())) {
            document.at(snapshot, group, parts);
        }
    }
    for view in snapshot.specs_below(id) {
        // Absent if the group that contains it is not requested.
        let Some(group) = document.at(snapshot, &view.spec.id().group(), parts) else {
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
    fn at(&mut self, snapshot: &'a Snapshot, id: &GroupId, parts: &EmbeddedParts) -> Option<&mut Self> {
        let mut chain: Vec<GroupId> = id
            .with_ancestors()
            .take_while(|group| *group != self.id)
            .collect();
        chain.reverse();
        let mut document = self;
        for group in chain {
            let groups = document.groups.as_mut()?;
            let existing = groups.iter().rposition(|existing| existing.id == group);
            let index = existing.unwrap_or_else(|| {
                groups.push(Self::new(snapshot, group, parts));
                groups.len() - 1
            });
            document = groups.get_mut(index)?;
        }
        Some(document)
    }
}
