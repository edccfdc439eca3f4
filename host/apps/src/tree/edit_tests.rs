#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::model::{read, read_group};
use crate::testing::operations;

/// A context whose version is new in each edit.
fn context() -> EditContext<'static> {
    static EDITS: AtomicI64 = AtomicI64::new(0);
    EditContext {
        definitions: Box::leak(Box::new(crate::testing::settings())),
        force: false,
        max_instances: 100,
        service_ports: &(10_000..=20_000),
        checks: Checks::default(),
        version: Moment::now().plus_millis(EDITS.fetch_add(1, Ordering::SeqCst)),
    }
}

fn put(tree: &Tree, body: &Value) -> Result<Edited, Invalid> {
    let mut editor = Editor::new(tree, context());
    let update = read(body).unwrap();
    editor.put(update.id.clone().unwrap(), update, true, false, "");
    editor.finish()
}

fn put_group(tree: &Tree, body: &Value) -> Result<Edited, Invalid> {
    let mut editor = Editor::new(tree, context());
    let update = read_group(body, &GroupId::root(), None)?;
    editor.put_group(update);
    editor.finish()
}

fn paths(invalid: Result<Edited, Invalid>) -> Value {
    match invalid.unwrap_err() {
        Invalid::Shape(problems) | Invalid::Rules(problems) => json!(problems),
    }
}

fn ids(tree: &Tree) -> Vec<&str> {
    tree.specs_below(&GroupId::root())
        .map(|app| app.id().as_str())
        .collect()
}

fn sleeper(id: &str) -> Value {
    json!({"id": id, "cmd": "sleep 1"})
}

#[test]
fn group_document_defines_apps_and_groups_below_it() {
    let body = json!({
        "id": "/shop", "dependencies": ["/db"],
        "apps": [sleeper("web")],
        "groups": [{"id": "back", "apps": [sleeper("/shop/back/api"), sleeper("worker")]}],
    });
    let edited = put_group(&Tree::default(), &body).unwrap();
    assert_eq!(
        ids(&edited.tree),
        ["/shop/back/api", "/shop/back/worker", "/shop/web"]
    );
    let groups: Vec<String> = edited
        .groups
        .iter()
        .map(|group| group.after.as_ref().unwrap().id.to_string())
        .collect();
    assert_eq!(groups, ["/shop", "/shop/back"]);
    let shop = edited.tree.group(&GroupId::parse("/shop").unwrap()).unwrap();
    assert_eq!(json!(shop.dependencies), json!(["/db"]));
}

#[test]
fn lists_of_a_group_document_replace_all_apps_and_absent_lists_keep_them() {
    let body = json!({
        "id": "/g", "apps": [sleeper("a"), sleeper("b")], "groups": [{"id": "h", "apps": [sleeper("c")]}],
    });
    let tree = put_group(&Tree::default(), &body).unwrap().tree;
    let kept = put_group(&tree, &json!({"id": "/g", "dependencies": ["/x"]})).unwrap();
    assert_eq!(ids(&kept.tree), ["/g/a", "/g/b", "/g/h/c"]);
    let replaced = put_group(&tree, &json!({"id": "/g", "apps": [sleeper("b")]})).unwrap();
    assert_eq!(ids(&replaced.tree), ["/g/b", "/g/h/c"]);
    let removed = put_group(&tree, &json!({"id": "/g", "groups": []})).unwrap();
    assert_eq!(ids(&removed.tree), ["/g/a", "/g/b"]);
    assert!(!removed.tree.has_group(&GroupId::parse("/g/h").unwrap()));
}

#[test]
fn unchanged_app_of_a_group_keeps_its_version() {
    let body = json!({"id": "/g", "apps": [sleeper("a"), sleeper("b")]});
    let first = put_group(&Tree::default(), &body).unwrap();
    let mut changed = body.clone();
    changed["apps"][1]["cpus"] = json!(2);
    let second = put_group(&first.tree, &changed).unwrap();
    let kept = |index: usize| {
        let app = &second.specs[index];
        app.before.as_ref().unwrap().version() == app.after.as_ref().unwrap().version()
    };
    assert!(kept(0) && !kept(1));
}

#[test]
fn problems_of_a_group_document_have_the_path_of_their_app() {
    let body = json!({
        "id": "/g",
        "apps": [{"id": "a"}, {"id": "/other/b", "cmd": "sleep 1"}],
        "groups": [{"id": "h", "apps": [{"id": "c", "cmd": "sleep 1", "instances": 2,
            "labels": {"MARATHON_SINGLE_INSTANCE_APP": "true"},
            "upgradeStrategy": {"minimumHealthCapacity": 0, "maximumOverCapacity": 0}}]}],
    });
    let found = paths(put_group(&Tree::default(), &body));
    let paths: Vec<&str> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/apps(0)", "/apps(1)/id", "/groups(0)/apps(0)/instances"]);
    let wrong = json!({"id": "/g", "groups": [{"id": "h", "apps": [{"id": "c", "cpus": "x"}]}]});
    let found = paths_of_shape(&wrong);
    assert_eq!(found[0]["path"], "/groups(0)/apps(0)/cpus");
}

fn paths_of_shape(body: &Value) -> Value {
    paths(put_group(&Tree::default(), body))
}

#[test]
fn new_ids_beyond_the_limits_are_rejected() {
    let deep = "/a".repeat(65);
    let long = format!("/{}", "a".repeat(190));
    for (id, limit) in [(&deep, "at most 64"), (&long, "at most 190")] {
        for (found, path) in [
            (put(&Tree::default(), &sleeper(id)), "/id"),
            (put_pod_with(&json!({"id": id})), "/id"),
            (put_group(&Tree::default(), &json!({"id": id})), "/id"),
            (
                put_group(&Tree::default(), &json!({"id": "/", "groups": [{"id": id}]})),
                "/groups(0)/id",
            ),
            (
                put_group(&Tree::default(), &json!({"id": "/", "apps": [sleeper(id)]})),
                "/apps(0)/id",
            ),
        ] {
            let found = paths(found);
            assert_eq!(found[0]["path"], path, "{found}");
            assert!(found[0]["errors"].to_string().contains(limit), "{found}");
        }
    }
    // An app that was accepted before there were limits can still be changed.
    let mut tree = Tree::default();
    tree.insert(crate::testing::app(&sleeper(&long)).into());
    let changed = put(&tree, &json!({"id": long, "cpus": 2}));
    assert_eq!(changed.unwrap().specs.len(), 1);
}

/// Creates a pod with one container and these members.
fn put_pod_with(members: &Value) -> Result<Edited, Invalid> {
    let tree = Tree::default();
    let mut editor = Editor::new(&tree, context());
    let mut body = members.clone();
    body["containers"] = json!([{"name": "c", "resources": {"cpus": 1, "mem": 32}}]);
    let input = crate::model::pod::read_pod(&body)?;
    editor.put_pod(input.id.clone().unwrap(), input);
    editor.finish()
}

#[test]
fn app_and_group_cannot_have_the_same_id() {
    let text = "Groups and Applications may not have the same identifier.";
    let tree = put(&Tree::default(), &sleeper("/a/b")).unwrap().tree;
    for wrong in [sleeper("/a"), sleeper("/a/b/c")] {
        let found = paths(put(&tree, &wrong));
        assert_eq!(found, json!([{"path": "/id", "errors": [text]}]), "{wrong}");
    }
    for (wrong, path) in [
        (json!({"id": "/a/b"}), "/id"),
        (json!({"id": "/a/b/c"}), "/id"),
        (
            json!({"id": "/", "groups": [{"id": "/a", "groups": [{"id": "b"}]}]}),
            "/groups(0)/groups(0)/id",
        ),
    ] {
        let found = paths(put_group(&tree, &wrong));
        assert_eq!(found, json!([{"path": path, "errors": [text]}]), "{wrong}");
    }
    let moved = json!({"id": "/", "groups": [{"id": "/a", "apps": [], "groups": [{"id": "b"}]}]});
    assert!(
        put_group(&tree, &moved).is_ok(),
        "the app is removed by the same request"
    );
}

#[test]
fn repeated_app_is_rejected() {
    let body = json!({"id": "/g", "apps": [sleeper("a"), sleeper("a")]});
    assert_eq!(
        paths(put_group(&Tree::default(), &body)),
        json!([{"path": "/apps(1)/id", "errors": ["/g/a is given twice"]}])
    );
}

#[test]
fn scaling_a_group_multiplies_instances_and_rounds_up() {
    let body = json!({"id": "/g", "apps": [
        {"id": "a", "cmd": "sleep 1", "instances": 3}, {"id": "b", "cmd": "sleep 1", "instances": 0},
    ]});
    let tree = put_group(&Tree::default(), &body).unwrap().tree;
    let mut editor = Editor::new(&tree, context());
    editor.scale_group(&GroupId::parse("/g").unwrap(), 1.5);
    let scaled = editor.finish().unwrap();
    let instances: Vec<u32> = scaled
        .specs
        .iter()
        .map(|app| app.after.as_ref().unwrap().instances())
        .collect();
    assert_eq!(instances, [5, 0]);
    let mut editor = Editor::new(&tree, context());
    editor.scale_group(&GroupId::root(), 1e12);
    assert_eq!(paths(editor.finish())[0]["path"], "/scaleBy");
}

#[test]
fn more_instances_than_the_maximum_are_rejected() {
    let app = |instances: u32| json!({"id": "/g/a", "cmd": "sleep 1", "instances": instances});
    let tree = put(&Tree::default(), &app(100)).unwrap().tree;
    let text = |instances: u32, max: u32| {
        format!("{instances} instances are more than {max}, the maximum (`apps.max_instances`)")
    };
    let rejected = json!([{"path": "/instances", "errors": [text(101, 100)]}]);
    assert_eq!(paths(put(&Tree::default(), &app(101))), rejected);
    assert_eq!(
        paths(put(&tree, &json!({"id": "/g/a", "instances": 101}))),
        rejected
    );
    let found = paths(put_group(&tree, &json!({"id": "/g", "apps": [app(101)]})));
    assert_eq!(found[0]["path"], "/apps(0)/instances");
    let found = paths(put_pod_with(
        &json!({"id": "/p", "scaling": {"kind": "fixed", "instances": 101}}),
    ));
    assert_eq!(found[0]["path"], "/scaling/instances");
    let mut editor = Editor::new(&tree, context());
    editor.scale_group(&GroupId::root(), 1.01);
    let found = paths(editor.finish());
    let expected = format!("/g/a: {}", text(101, 100));
    assert_eq!(found, json!([{"path": "/scaleBy", "errors": [expected]}]));

    // A number that was accepted under a higher limit may stay or become smaller.
    let lower = EditContext {
        max_instances: 10,
        ..context()
    };
    for body in [json!({"cpus": 2}), json!({"instances": 50})] {
        let mut editor = Editor::new(&tree, lower);
        editor.put(
            SpecId::parse("/g/a").unwrap(),
            read(&body).unwrap(),
            true,
            false,
            "",
        );
        assert!(editor.finish().is_ok(), "{body}");
    }
    let mut editor = Editor::new(&tree, lower);
    editor.scale_group(&GroupId::root(), 0.5);
    assert!(editor.finish().is_ok());
}

#[test]
fn many_apps_get_different_service_ports_until_the_range_is_exhausted() {
    let range = (10_000..=20_000u16).len();
    let count = range + 1000;
    let apps: Vec<Value> = (0..count).map(|index| sleeper(&format!("a{index}"))).collect();
    operations::take();
    let edited = put_group(&Tree::default(), &json!({"id": "/g", "apps": apps})).unwrap();
    // One search of the whole range shows that it is full.
    let lookups = operations::take();
    assert!(lookups <= 2 * range + count, "{lookups} lookups for {count} apps");
    assert!(edited.lacks_service_ports);
    let mut ports: Vec<u16> = edited
        .specs
        .iter()
        .flat_map(|app| app.after.as_ref().unwrap().service_ports().collect::<Vec<_>>())
        .collect();
    ports.sort_unstable();
    assert_eq!(ports.iter().filter(|port| **port == 0).count(), 1000);
    ports.dedup();
    assert_eq!(ports.len(), range + 1);
    // A port that the same edit releases is assigned again.
    let mut editor = Editor::new(&edited.tree, context());
    let new = |id: &str| (SpecId::parse(id).unwrap(), read(&sleeper(id)).unwrap());
    for (id, is_assigned) in [("/x", false), ("/y", true), ("/z", false)] {
        if is_assigned {
            editor.remove(&SpecId::parse("/g/a0").unwrap());
        }
        let (id, update) = new(id);
        editor.put(id.clone(), update, false, false, "");
        let port = editor.tree().spec(&id).unwrap().service_ports().next();
        assert_eq!(port != Some(0), is_assigned, "{id}");
    }
}

#[test]
fn group_that_an_app_created_stays_when_the_app_is_deleted() {
    let tree = put(&Tree::default(), &sleeper("/a/b/c")).unwrap().tree;
    let mut editor = Editor::new(&tree, context());
    editor.remove(&SpecId::parse("/a/b/c").unwrap());
    let edited = editor.finish().unwrap();
    assert!(edited.tree.has_group(&GroupId::parse("/a/b").unwrap()));
    assert_eq!((edited.groups, edited.specs.len()), (Vec::new(), 1));
}

#[test]
fn external_volume_belongs_to_one_app_unless_it_is_shared() {
    let app = |id: &str, name: &str, shared: bool| {
        json!({
            "id": id, "cmd": "sleep 1",
            "container": {"type": "MESOS", "volumes": [{
                "containerPath": "data", "mode": "RW",
                "external": {"name": name, "provider": "dvdi", "shared": shared, "options": {"dvdi/driver": "rexray"}},
            }]},
        })
    };
    let tree = put(&Tree::default(), &app("/one", "disk", false)).unwrap().tree;
    let tree = put(&tree, &app("/common", "all", true)).unwrap().tree;
    // An update of the app that owns the volume is allowed.
    let tree = put(&tree, &app("/one", "disk", false)).unwrap().tree;
    assert!(put(&tree, &app("/two", "other", false)).is_ok());
    assert!(put(&tree, &app("/two", "all", true)).is_ok());
    let problems = paths(put(&tree, &app("/two", "disk", false)));
    assert!(
        problems
            .to_string()
            .contains("conflicts with volume(s) of same name in app(s): /one"),
        "{problems}"
    );
}

/// The users of volumes that one new app with a volume is compared with.
fn compared_users(others: usize) -> usize {
    let app = |id: &str, name: &str| {
        json!({
            "id": id, "cmd": "sleep 1",
            "container": {"type": "MESOS", "volumes": [{
                "containerPath": "data", "mode": "RW",
                "external": {"name": name, "provider": "dvdi", "options": {"dvdi/driver": "rexray"}},
            }]},
        })
    };
    let mut tree = Tree::default();
    for number in 0..others {
        let (id, name) = (format!("/a{number}"), format!("disk{number}"));
        tree.insert(crate::testing::app(&app(&id, &name)).into());
    }
    operations::take();
    put(&tree, &app("/new", "disk")).unwrap();
    let compared = operations::take();
    assert!(put(&tree, &app("/new", "disk0")).is_err());
    tree.remove(&SpecId::parse("/a0").unwrap());
    assert!(put(&tree, &app("/new", "disk0")).is_ok());
    compared
}

#[test]
fn exclusive_volume_is_compared_only_with_its_own_users() {
    assert_eq!(compared_users(10), compared_users(500));
}

/// The result of an edit by a client, whose dependencies must exist.
fn put_related(tree: &Tree, body: &Value) -> Result<Edited, Invalid> {
    let mut editor = Editor::new(tree, context());
    editor.put_group(read_group(body, &GroupId::root(), None)?);
    editor.check_relations();
    editor.finish()
}

#[test]
fn ids_in_a_group_document_are_relative_to_the_enclosing_group() {
    let mut web = sleeper("web");
    web["dependencies"] = json!(["../db/pg", "api"]);
    let document = json!({
        "id": "/rel", "groups": [
            {"id": "db", "apps": [sleeper("pg")]},
            {"id": "front", "apps": [web, sleeper("api")], "dependencies": ["../../rel/db"]},
        ],
    });
    let edited = put_related(&Tree::default(), &document).unwrap();
    assert_eq!(
        json!(edited.tree.dependencies_at("/rel/front/web")),
        json!(["/rel/db/pg", "/rel/front/api"])
    );
    assert_eq!(
        json!(edited.tree.dependencies_at("/rel/front")),
        json!(["/rel/db"])
    );
}

#[test]
fn dependency_that_names_nothing_is_a_problem_of_the_definition_that_adds_it() {
    let mut web = sleeper("web");
    web["dependencies"] = json!(["db", "/x"]);
    let document = json!({"id": "/g", "apps": [web, sleeper("db")], "dependencies": ["/y"]});
    let found = paths(put_related(&Tree::default(), &document));
    assert_eq!(found[0]["path"], "/dependencies(0)", "{found}");
    assert_eq!(found[1]["path"], "/apps(0)/dependencies(1)", "{found}");
    assert!(found.to_string().contains("/x does not exist"), "{found}");
    // One that the store already has does not prevent other changes.
    let stored = put_group(&Tree::default(), &document).unwrap().tree;
    let mut changed = document.clone();
    changed["apps"][0]["cpus"] = json!(2);
    put_related(&stored, &changed).unwrap();
    changed["apps"].as_array_mut().unwrap().pop();
    let found = paths(put_related(&stored, &changed));
    assert_eq!(
        found[0]["path"], "/apps(0)/dependencies(0)",
        "its target is removed: {found}"
    );
}

#[test]
fn group_document_that_was_read_can_be_written_back() {
    let document =
        json!({"id": "/g", "apps": [sleeper("a")], "groups": [{"id": "h", "apps": [sleeper("b")]}]});
    let tree = put_group(&Tree::default(), &document).unwrap().tree;
    let version = |id: &str| tree.group_version(&GroupId::parse(id).unwrap());
    let mut read = document.clone();
    read["version"] = json!(version("/g"));
    read["groups"][0]["version"] = json!(version("/g/h"));
    read["apps"][0]["instances"] = json!(3);
    let edited = put_related(&tree, &read).unwrap();
    assert_eq!(edited.tree.spec_with_path("/g/a").unwrap().instances(), 3);
    // Of another version, it would undo changes; and a command is not part of a definition.
    for (change, path) in [
        (json!({"version": "2015-01-01T00:00:00.000Z"}), "/version"),
        (json!({"scaleBy": 2}), "/scaleBy"),
        (
            json!({"groups": [{"id": "h", "scaleBy": 2}]}),
            "/groups(0)/scaleBy",
        ),
        (
            json!({"groups": [{"id": "h", "version": "2015-01-01T00:00:00.000Z"}]}),
            "/groups(0)/version",
        ),
    ] {
        let mut wrong = read.clone();
        wrong
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let found = paths(put_related(&tree, &wrong));
        assert_eq!(found[0]["path"], path, "{found}");
    }
    // An app without a number of instances keeps its number.
    let kept = put_related(&edited.tree, &document).unwrap();
    assert_eq!(kept.tree.spec_with_path("/g/a").unwrap().instances(), 3);
}

#[test]
fn enforced_role_changes_only_in_a_request_that_changes_no_service() {
    let tree = put_group(&Tree::default(), &json!({"id": "/g", "apps": [sleeper("a")]}))
        .unwrap()
        .tree;
    put_related(&tree, &json!({"id": "/g", "enforceRole": true})).unwrap();
    for apps in [json!([]), json!([sleeper("a"), sleeper("b")])] {
        let found = paths(put_related(
            &tree,
            &json!({"id": "/g", "enforceRole": true, "apps": apps}),
        ));
        assert_eq!(found[0]["path"], "/enforceRole", "{found}");
    }
}
