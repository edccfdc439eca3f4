//! Undoes a change in a tree, and keeps later changes.

use std::collections::BTreeMap;

use super::Group;
use super::edit::{EditedGroup, Editor, Restart};
use crate::ids::SpecId;
use crate::model::Spec;

/// Restores the definitions of apps and pods from before the change, `None` for those that were
/// new, and undoes its changes of groups. A new group is kept if it still contains something.
pub(crate) fn revert(
    editor: &mut Editor<'_>,
    specs: &BTreeMap<SpecId, Option<Spec>>,
    groups: &[EditedGroup],
    restart: Restart,
) {
    // Deleted groups are restored first: otherwise restored apps would create them without their
    // dependencies.
    for group in groups {
        if let (Some(before), None) = (&group.before, &group.after)
            && editor.tree().group(&before.id).is_none()
        {
            editor.set_group(Group::clone(before));
        }
    }
    for (id, definition) in specs {
        match definition {
            Some(definition) => editor.restore(definition, restart),
            None => editor.remove(id),
        }
    }
    // Inner groups are removed first, because a group can only be removed when it is empty.
    for group in groups.iter().rev() {
        if let Some(after) = &group.after {
            revert_group(editor, group.before.as_deref(), after);
        }
    }
}

fn revert_group(editor: &mut Editor<'_>, before: Option<&Group>, after: &Group) {
    let Some(present) = editor.tree().group(&after.id).cloned() else {
        return;
    };
    if before.is_none() && editor.remove_empty_group(&after.id) {
        return;
    }
    let were = before.map_or(&[][..], |before| &before.dependencies);
    let added = |on: &SpecId| after.dependencies.contains(on) && !were.contains(on);
    let mut dependencies: Vec<SpecId> = present
        .dependencies
        .iter()
        .filter(|on| !added(on))
        .cloned()
        .collect();
    for on in were {
        if !after.dependencies.contains(on) && !dependencies.contains(on) {
            dependencies.push(on.clone());
        }
    }
    let enforced = before.is_some_and(|before| before.enforce_role);
    // A later change of the setting is kept.
    let enforce_role = if present.enforce_role == after.enforce_role {
        enforced
    } else {
        present.enforce_role
    };
    if dependencies != present.dependencies || enforce_role != present.enforce_role {
        editor.set_group(Group {
            dependencies,
            enforce_role,
            ..Group::clone(&present)
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::{Value, json};

    use super::*;
    use crate::ids::GroupId;
    use crate::model::read_group;
    use crate::testing::app;
    use crate::tree::Tree;
    use crate::tree::edit::{EditContext, Edited};

    fn context() -> EditContext<'static> {
        EditContext {
            definitions: Box::leak(Box::new(crate::testing::settings())),
            force: false,
            max_instances: 100,
            service_ports: &(10_000..=20_000),
            checks: crate::settings::Checks::default(),
            version: crate::time::Moment::now(),
        }
    }

    fn edited(tree: &Tree, edit: impl FnOnce(&mut Editor<'_>)) -> Edited {
        let mut editor = Editor::new(tree, context());
        edit(&mut editor);
        editor.finish().unwrap()
    }

    fn add_app(editor: &mut Editor<'_>, id: &str) {
        editor.restore(
            &app(&json!({"id": id, "cmd": "sleep 1"})).into(),
            Restart::AsBefore,
        );
    }

    fn set_dependencies(editor: &mut Editor<'_>, id: &str, dependencies: &[&str]) {
        let document = json!({"id": id, "dependencies": dependencies});
        editor.put_group(read_group(&document, &GroupId::root(), None).unwrap());
    }

    /// Applies a change that is described in the words of the recorded cases.
    fn change(editor: &mut Editor<'_>, text: &str) {
        let text = text.split(" (after").next().unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["add", "app", id] => add_app(editor, id),
            ["remove", "app", id] => editor.remove(&SpecId::parse(id).unwrap()),
            ["add", "group", id] => set_dependencies(editor, id, &[]),
            ["remove", "group", id] => editor.remove_group(&GroupId::parse(id).unwrap()),
            ["add", "dependencies", on, "to", "new", "group", id] => {
                set_dependencies(editor, id, &on.split(',').collect::<Vec<_>>());
            }
            [id, edits @ ..] => {
                let id = id.trim_end_matches(':');
                let present = editor.tree().group(&GroupId::parse(id).unwrap()).unwrap().clone();
                let mut on: Vec<&str> = present.dependencies.iter().map(SpecId::as_str).collect();
                for edit in edits {
                    match edit.split_at(1) {
                        ("+", added) => on.push(added),
                        (_, removed) => on.retain(|one| *one != removed),
                    }
                }
                set_dependencies(editor, id, &on);
            }
            [] => unreachable!("the change is empty"),
        }
    }

    fn to_json(tree: &Tree) -> Value {
        let groups: serde_json::Map<String, Value> = tree
            .groups()
            .values()
            .filter(|group| !group.id.is_root())
            .map(|group| {
                let mut on = group.dependencies.clone();
                on.sort();
                (group.id.to_string(), json!(on))
            })
            .collect();
        let apps: Vec<&SpecId> = tree.specs_below(&GroupId::root()).map(Spec::id).collect();
        json!({"groups": groups, "apps": apps})
    }

    #[test]
    fn reverts_keep_later_changes_as_in_the_recorded_cases() {
        let suite: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/deployment-revert.json")).unwrap();
        let cases = suite["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4);
        for case in cases {
            let original = edited(&Tree::default(), |editor| {
                for (id, on) in case["input"]["original"]["groups"].as_object().unwrap() {
                    let on = on.as_array().unwrap().iter().map(|on| on.as_str().unwrap());
                    set_dependencies(editor, id, &on.collect::<Vec<_>>());
                }
                for id in case["input"]["original"]["apps"].as_array().unwrap() {
                    add_app(editor, id.as_str().unwrap());
                }
            });
            let text = case["input"]["deployment_to_revert"].as_str().unwrap();
            let undone = edited(&original.tree, |editor| change(editor, text));
            let mut now = undone.tree.clone();
            for later in case["input"]["concurrent_later"].as_array().unwrap() {
                now = edited(&now, |editor| change(editor, later.as_str().unwrap())).tree;
            }
            let apps = undone.specs.iter();
            let apps = apps.map(|app| (app.id.clone(), app.before.clone())).collect();
            let reverted = edited(&now, |editor| {
                revert(editor, &apps, &undone.groups, Restart::Withdrawn);
            });
            let mut expected = case["expect"].clone();
            for on in expected["groups"].as_object_mut().unwrap().values_mut() {
                on.as_array_mut()
                    .unwrap()
                    .sort_by_key(|on| on.as_str().unwrap().to_owned());
            }
            assert_eq!(to_json(&reverted.tree), expected, "{}", case["id"]);
        }
    }
}
