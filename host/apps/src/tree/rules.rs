//! Rules between definitions: apps, pods and groups have different paths.

use std::collections::BTreeSet;

use transom_web::Problems;

use super::Tree;
use crate::ids::{GroupId, SpecId};
use crate::model::Spec;

/// Upstream's texts.
const SAME_AS_APP: &str = "Groups and Applications may not have the same identifier.";
const POD_AND_GROUP: &str = "Groups and Pods may not have the same identifier.";
pub(super) const SAME_AS_POD: &str = "Applications and Pods may not share the same id";

/// The problems of apps, pods and groups that are new in the tree. `path` is where the request names
/// one of them.
pub(super) fn check(
    tree: &Tree,
    specs: &BTreeSet<SpecId>,
    groups: &BTreeSet<GroupId>,
    path: impl Fn(&str) -> String,
) -> Problems {
    let mut problems = Problems::default();
    let text = |is_pod: bool| if is_pod { POD_AND_GROUP } else { SAME_AS_APP };
    for id in specs {
        if tree.has_group(&GroupId::from(id)) {
            let is_pod = tree.spec(id).is_some_and(Spec::is_pod);
            problems.add(path(id.as_str()), text(is_pod));
        } else if let Some(spec) = above(tree, &id.group()) {
            problems.add(path(id.as_str()), text(spec.is_pod()));
        }
    }
    for id in groups {
        if let Some(spec) = above(tree, id) {
            problems.add(path(id.as_str()), text(spec.is_pod()));
        }
    }
    problems
}

/// The app or pod with the path of this group or of one that it lies in.
fn above<'a>(tree: &'a Tree, group: &GroupId) -> Option<&'a Spec> {
    let mut paths = group.with_ancestors();
    paths.find_map(|path| tree.spec(&SpecId::parse(path.as_str()).ok()?))
}
