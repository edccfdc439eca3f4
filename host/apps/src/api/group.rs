//! Documents of groups, with everything that lies below them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::app::{self, AppInfo, Embed};
use super::pieces::{self, Elements};
use super::pod_status::{self, PodStatus};
use super::query::Query;
use crate::core::failing;
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::ids::{GroupId, SpecId};
use crate::time::Moment;

// Its lists are written apart from the other members, element by element.
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
#[derive(Clone, Copy)]
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

/// A group with everything below it that its document contains.
struct Node {
    id: GroupId,
    specs: Vec<Arc<SpecView>>,
    groups: Vec<Self>,
}

/// The position of each group in the list of the group that contains it.
type Positions = HashMap<GroupId, usize>;

/// The document of a group, a [`GroupInfo`], written while it is sent.
pub(super) fn group_response(snapshot: Arc<Snapshot>, id: &GroupId, parts: EmbeddedParts) -> Response {
    pieces::response("", "", group_document(snapshot, id, parts))
}

fn group_document(snapshot: Arc<Snapshot>, id: &GroupId, parts: EmbeddedParts) -> Elements {
    let node = Node::of(&snapshot, id, parts);
    documents(vec![node], snapshot, parts)
}

/// The documents of these groups.
fn documents(groups: Vec<Node>, snapshot: Arc<Snapshot>, parts: EmbeddedParts) -> Elements {
    let mut groups = groups.into_iter();
    Box::new(move |document, pieces| {
        let Some(node) = groups.next() else { return false };
        let info = GroupInfo::new(&snapshot, node.id.clone());
        let specs = node.specs.into_iter();
        let apps = app::documents(specs.clone(), Arc::clone(&snapshot), parts.embed);
        let lists = [
            (parts.apps, ",\"apps\":[", apps),
            (
                parts.pods,
                ",\"pods\":[",
                pod_status::documents(specs, None, failing::if_wanted(parts.embed.failing)),
            ),
            (
                parts.groups,
                ",\"groups\":[",
                documents(node.groups, Arc::clone(&snapshot), parts),
            ),
        ];
        let lists: Vec<_> = lists.into_iter().filter(|(is_wanted, ..)| *is_wanted).collect();
        let lists = lists
            .into_iter()
            .map(|(_, opening, elements)| (opening, elements));
        pieces.object(document, &node.id, &info, lists);
        true
    })
}

impl Node {
    fn new(id: GroupId) -> Self {
        let (specs, groups) = (Vec::new(), Vec::new());
        Self { id, specs, groups }
    }

    fn of(snapshot: &Snapshot, id: &GroupId, parts: EmbeddedParts) -> Self {
        let mut node = Self::new(id.clone());
        let mut positions = Positions::new();
        if parts.groups {
            let below = snapshot.groups.keys();
            for group in below.filter(|group| id.is_above(group.as_str())) {
                node.at(group, parts, &mut positions);
            }
        }
        for view in snapshot.specs_below(id) {
            // Absent if the group that contains it is not requested.
            if let Some(group) = node.at(&view.record.spec.id().group(), parts, &mut positions) {
                group.specs.push(Arc::clone(view));
            }
        }
        node
    }

    /// This group, or one below it, which is added if it is missing. `None` if groups are not
    /// requested.
    fn at(&mut self, id: &GroupId, parts: EmbeddedParts, positions: &mut Positions) -> Option<&mut Self> {
        let mut chain: Vec<GroupId> = id
            .with_ancestors()
            .take_while(|group| *group != self.id)
            .collect();
        if !parts.groups && !chain.is_empty() {
            return None;
        }
        chain.reverse();
        let mut node = self;
        for group in chain {
            #[cfg(test)]
            crate::testing::operations::count();
            let groups = &mut node.groups;
            let position = *positions.entry(group).or_insert_with_key(|group| {
                groups.push(Self::new(group.clone()));
                groups.len() - 1
            });
            node = groups.get_mut(position)?;
        }
        Some(node)
    }
}

impl<'a> GroupInfo<'a> {
    /// A group without the lists of its parts.
    fn new(snapshot: &'a Snapshot, id: GroupId) -> Self {
        let group = snapshot.groups.get(&id);
        let below = snapshot.specs_below(&id).map(|view| view.record.spec.version());
        let version = group.map(|group| group.version).into_iter().chain(below).max();
        Self {
            dependencies: group.map_or(&[], |group| &group.dependencies),
            version: version.unwrap_or_else(|| Moment::from(jiff::Timestamp::UNIX_EPOCH)),
            enforce_role: group.is_some_and(|group| group.enforce_role),
            apps: None,
            pods: None,
            groups: None,
            id,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::{Value, json};

    use super::super::pieces::Pieces;
    use super::*;
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
        let mut rest = Pieces::default();
        rest.list(
            "",
            group_document(Arc::new(snapshot), &GroupId::root(), parts),
            "",
        );
        let (mut text, mut pieces, mut longest) = (Vec::new(), 0, 0);
        loop {
            let before = text.len();
            if !rest.write_next(&mut text) {
                break;
            }
            (pieces, longest) = (pieces + 1, longest.max(text.len() - before));
        }
        assert!(
            pieces > 3 * count && longest < 2000,
            "{pieces} pieces, {longest} bytes"
        );
        let document: Value = serde_json::from_slice(&text).unwrap();
        let groups = document["groups"][0]["groups"].as_array().unwrap();
        assert_eq!(groups.len(), count);
        assert!(
            groups
                .iter()
                .all(|group| group["apps"].as_array().unwrap().len() == 1)
        );
        operations::take()
    }

    #[test]
    fn lookups_of_a_document_grow_with_its_groups() {
        let (small, large) = (lookups(50), lookups(800));
        assert!(large <= 17 * small, "{small} and {large} lookups");
    }
}
