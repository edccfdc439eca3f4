//! Rules between definitions: apps, pods and groups must have different paths, and apps must not
//! share exclusive external volumes.

use std::collections::BTreeSet;

use transom_web::Problems;

use super::Tree;
use crate::ids::{GroupId, SpecId};
use crate::model::{ExternalVolume, Spec, Volume};

/// Upstream's texts.
const SAME_AS_APP: &str = "Groups and Applications may not have the same identifier.";
const POD_AND_GROUP: &str = "Groups and Pods may not have the same identifier.";
pub(super) const SAME_AS_POD: &str = "Applications and Pods may not share the same id";

/// The problems of apps, pods and groups that are new in the tree. `path` returns the path in the
/// request that names one of them.
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

/// The problems of edited apps that use another app's exclusive volume of a driver. `path` returns
/// the path in the request that names one of them.
pub(super) fn check_external_volumes<'a>(
    tree: &Tree,
    edited: impl Iterator<Item = &'a Spec>,
    path: impl Fn(&str) -> String,
) -> Problems {
    const MAX_SHOWN: usize = 10;
    let mut problems = Problems::default();
    for (spec, name) in edited.flat_map(|spec| exclusive_volumes(spec).map(move |name| (spec, name))) {
        let id = spec.id().as_str();
        let others = tree.users_of_volume(name).map(SpecId::as_str);
        let others: Vec<&str> = others.filter(|other| *other != id).take(MAX_SHOWN).collect();
        if !others.is_empty() {
            let text = format!(
                "Volume name '{name}' in {id} conflicts with volume(s) of same name in app(s): {}",
                others.join(", ")
            );
            problems.add(path(id), text);
        }
    }
    problems
}

/// The names of the volumes of Docker volume drivers that only one instance may use.
pub(super) fn exclusive_volumes(spec: &Spec) -> impl Iterator<Item = &str> {
    let volumes = spec.app().map_or(&[][..], |app| app.volumes()).iter();
    volumes.filter_map(|volume| match volume {
        Volume::External {
            external: ExternalVolume::Dvdi(volume),
            ..
        } if !volume.shared => volume.name.as_deref(),
        _ => None,
    })
}

/// The app or pod whose path is that of this group or of a group that contains it.
fn above<'a>(tree: &'a Tree, group: &GroupId) -> Option<&'a Spec> {
    group.paths().find_map(|path| tree.spec_with_path(path))
}
