//! Rules between definitions: no app has the path of a group.

use std::collections::BTreeSet;

use transom_web::Problems;

use super::Tree;
use crate::ids::{AppId, GroupId};

/// Upstream's text.
const SAME_ID: &str = "Groups and Applications may not have the same identifier.";

/// The problems of apps and groups that are new in the tree. `path` is where the request names an
/// app or group.
pub(super) fn check(
    tree: &Tree,
    apps: &BTreeSet<AppId>,
    groups: &BTreeSet<GroupId>,
    path: impl Fn(&str) -> String,
) -> Problems {
    let mut problems = Problems::default();
    for id in apps {
        if tree.has_group(&GroupId::from(id)) || in_app(tree, &id.group()) {
            problems.add(path(id.as_str()), SAME_ID);
        }
    }
    for id in groups {
        if in_app(tree, id) {
            problems.add(path(id.as_str()), SAME_ID);
        }
    }
    problems
}

/// Whether an app has the path of this group or of one that it lies in.
fn in_app(tree: &Tree, group: &GroupId) -> bool {
    let mut paths = group.with_ancestors();
    paths.any(|path| AppId::parse(path.as_str()).is_ok_and(|id| tree.app(&id).is_some()))
}
