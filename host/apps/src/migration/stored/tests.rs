//! Nodes as Marathon's formats define them, read into the documents of its API.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use transom_testkit::marathon_state::{Message, node, pair, reference, resource, storage_version};

use super::super::tests::{NEW, OLD, UUID, all_tasks, marathon, pod, translated};
use super::super::{Kind, Report};
use super::app_tests::small;
use super::*;

/// [`NEW`] and [`OLD`] as names of nodes, which have no fraction that is zero.
const NEW_NODE: &str = "2018-01-02T00:00:00Z";
const OLD_NODE: &str = "2018-01-01T00:00:00Z";
const NEW_MILLIS: u64 = 1_514_851_200_000;
const OLD_MILLIS: u64 = 1_514_764_800_000;

fn message() -> Message {
    Message::default()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// The app of the fixture, as Marathon stores it.
fn web(version: &str, instances: u64) -> Vec<u8> {
    let check = message().number(1, 0).number(2, 60).number(3, 20).number(4, 15);
    let health = message()
        .number(1, 0)
        .number(3, 300)
        .number(4, 60)
        .number(5, 20)
        .number(7, 3);
    let unreachable = message().number(1, 0).number(2, 0);
    let port = message().number(1, 10000).text(2, "default").text(3, "tcp");
    let app = message()
        .text(1, "/web/api")
        .nested(2, message().text(3, "./api --port $PORT0"))
        .number(3, instances)
        .nested(4, resource("cpus", 0.5))
        .nested(4, resource("mem", 128.0))
        .nested(4, resource("disk", 0.0))
        .nested(4, resource("gpus", 0.0))
        .nested(7, message().text(1, "@hostname").number(2, 0))
        .text(8, "")
        .text(11, version)
        .nested(
            12,
            health.number(2, 0).text(6, "/health").number(9, 0).number(13, 1),
        )
        .number(13, 1_000)
        .real(14, 1.15)
        .nested(15, message().real(1, 1.0).real(2, 1.0))
        .number(18, 0)
        .nested(20, pair("HAPROXY_GROUP", "external"))
        .number(21, 300_000)
        .number(23, NEW_MILLIS)
        .number(24, OLD_MILLIS)
        .nested(27, port)
        .nested(32, unreachable)
        .number(33, 1)
        .nested(34, message().number(1, 1))
        .nested(37, check.number(5, 0).text(7, "/ping"))
        .text(38, "*");
    app.bytes()
}

fn root() -> Vec<u8> {
    let web = message().text(1, "web").text(2, OLD_NODE).text(5, "pair");
    let web = web.nested(6, reference("web_api", NEW_NODE)).number(9, 0);
    let root = message().text(1, "").text(2, NEW_NODE);
    root.nested(4, web).nested(7, reference("pair", OLD_NODE)).bytes()
}

fn instance(id: &str, tasks: &Value) -> Vec<u8> {
    let instance = json!({
        "instanceId": {"idString": id},
        "agentInfo": {"host": "a1", "agentId": "a-S0", "attributes": []},
        "tasksMap": tasks, "runSpecVersion": OLD,
        "state": {"since": OLD, "condition": {"str": "Running"}, "goal": "Running"},
    });
    serde_json::to_vec(&instance).unwrap()
}

fn stored_task(id: &str, ports: &[u16]) -> Value {
    json!({
        "taskId": id, "runSpecVersion": OLD,
        "status": {
            "stagedAt": "2018-01-01T00:00:01.000Z", "startedAt": "2018-01-01T00:00:02.000Z", "condition": "Running",
            "mesosStatus": "CgA=", "networkInfo": {"hostName": "a1", "hostPorts": ports, "ipAddresses": []},
        },
    })
}

/// The state of the fixture, as it is stored.
fn state(task: &str) -> StoredState {
    let mut state = StoredState::new("fw", &root()).unwrap();
    let (web_id, pair_id) = (
        format!("web_api.instance-{UUID}"),
        format!("pair.instance-{UUID}"),
    );
    let tasks = json!({task: stored_task(task, &[31001])});
    state.add_instance(&node("instance", &web_id), &instance(&web_id, &tasks));
    let [one, two] = ["one", "two"].map(|name| format!("{pair_id}.{name}"));
    let tasks = json!({&one: stored_task(&one, &[31002]), &two: stored_task(&two, &[])});
    state.add_instance(&node("instance", &pair_id), &gzip(&instance(&pair_id, &tasks)));
    let current: Vec<_> = state.current().iter().cloned().collect();
    for reference in current {
        let data = match reference.category {
            Category::Pods => serde_json::to_vec(&pod()).unwrap(),
            _ => web(NEW, 1),
        };
        state.add_definition(&reference, &reference.folder(), &data);
        if reference.category == Category::Apps {
            let version = OLD_NODE.to_owned();
            let past = Reference { version, ..reference };
            state.add_definition(&past, &past.folder(), &web(OLD, 3));
        }
    }
    state
}

#[test]
fn stored_state_becomes_the_same_records_as_the_responses_of_the_api() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let stored = state(&id).into_marathon();
    assert_eq!(stored.findings, []);
    let (report, records) = translated(&stored, &all_tasks(&id));
    let mut api = marathon(&id);
    let past = api.versions.values_mut().flatten();
    for app in api.apps.iter_mut().chain(past) {
        app["healthChecks"][0]["ignoreHttp1xx"] = json!(false);
    }
    // The settings of Marathon are not stored, and those of the fixture do not differ.
    let (expected_report, expected) = translated(&api, &all_tasks(&id));
    assert_eq!(report, expected_report);
    assert_eq!(records, expected);
}

#[test]
fn names_of_nodes_are_spread_by_the_hash_of_java() {
    // `"root".hashCode()` is 3506402, `"id".hashCode()` 3355, `"polygenelubricants".hashCode()` the
    // least integer.
    for (category, name, path) in [
        (Category::Group, "root", "/state/group/2/root"),
        (Category::FrameworkId, "id", "/state/framework-id/b/id"),
        (
            Category::Apps,
            "polygenelubricants",
            "/state/apps/0/polygenelubricants",
        ),
        (Category::TaskFailures, "a", "/state/taskFailures/1/a"),
    ] {
        assert_eq!(category.node(name), path);
    }
}

#[test]
fn storage_versions_of_marathon_1_5_to_1_11_are_read_and_others_rejected_by_name() {
    for version in [
        [1, 5, 0],
        [1, 5, 11],
        [1, 6, 352],
        [17, 0, 0],
        [18, 0, 0],
        [18, 100, 0],
        [18, 200, 0],
        [19, 100, 0],
        [19, 200, 0],
        [19, 300, 0],
        [110, 0, 0],
    ] {
        assert!(check_version(&storage_version(version, 1)).is_ok(), "{version:?}");
    }
    for (version, format) in [
        ([1, 4, 9], 1),
        ([1, 5, 0], 0),
        ([1, 7, 0], 1),
        ([16, 0, 0], 1),
        ([17, 0, 1], 1),
        ([18, 300, 0], 1),
        ([111, 0, 0], 1),
        ([2, 5, 0], 1),
    ] {
        let error = check_version(&storage_version(version, format))
            .unwrap_err()
            .to_string();
        let [major, minor, patch] = version;
        let name = format!("storage version {major}.{minor}.{patch} (format {format}) is not supported");
        assert!(error.contains(&name) && error.contains("1.5 to 1.11"), "{error}");
    }
    let damaged = check_version(b"{}").unwrap_err();
    assert!(matches!(damaged, StoredError::Protobuf(_)), "{damaged}");
}

/// Reads the state of the fixture with a change; returns the findings of the translation.
fn report(change: impl FnOnce(&mut StoredState)) -> Report {
    let id = format!("web_api.instance-{UUID}._app.1");
    let mut state = state(&id);
    change(&mut state);
    translated(&state.into_marathon(), &all_tasks(&id)).0
}

/// The current version of the app.
fn api() -> Reference {
    Reference {
        category: Category::Apps,
        id: "/web/api".to_owned(),
        version: NEW_NODE.to_owned(),
    }
}

/// A change of the state of the fixture.
type Change<'a> = Box<dyn FnOnce(&mut StoredState) + 'a>;

#[test]
fn nodes_that_cannot_be_read_are_rejected_with_their_paths() {
    let path = node("instance", &format!("gone.instance-{UUID}"));
    let damaged = |data: Vec<u8>| {
        let path = path.clone();
        move |state: &mut StoredState| state.add_instance(&path, &data)
    };
    let defined = |data: Vec<u8>| move |state: &mut StoredState| state.add_definition(&api(), "/n", &data);
    let other = instance(&format!("web_api.instance-{UUID}"), &json!({}));
    let mut truncated = gzip(&other);
    truncated.truncate(30);
    let failure = api().failure();
    let bomb = gzip(&vec![b' '; 65 << 20]);
    let table: Vec<(Change<'_>, &str, &str)> = vec![
        (Box::new(damaged(b"{".to_vec())), &path, "damaged: EOF"),
        (Box::new(damaged(b"{}".to_vec())), &path, "missing field"),
        (Box::new(damaged(truncated)), &path, "damaged gzip"),
        (Box::new(damaged(bomb)), &path, "more than 67108864 bytes"),
        (Box::new(damaged(other)), &path, "does not belong there"),
        (
            Box::new(damaged(instance("x", &json!({})))),
            &path,
            "does not belong there",
        ),
        (
            Box::new(defined(b"{\"id\"".to_vec())),
            "/n",
            "damaged: failed to decode",
        ),
        (Box::new(defined(web(OLD, 1))), "/n", "does not belong there"),
        (
            Box::new(defined(small(NEW, 1).number(6, 1).bytes())),
            "/n",
            "ports",
        ),
        (
            Box::new(|state| state.add_deployment("/d", b"\xff")),
            "/d",
            "damaged",
        ),
        (
            Box::new(|state| state.add_failure(&api(), b"\x0a")),
            &failure,
            "damaged",
        ),
        (
            Box::new(|state| state.reject("/v", &StoredError::Missing)),
            "/v",
            "deleted while",
        ),
    ];
    for (change, subject, expected) in table {
        let report = report(change);
        let found = report.findings.iter().find(|one| one.subject == subject);
        let found = found.unwrap_or_else(|| panic!("{subject} {expected}: {:#?}", report.findings));
        assert!(
            found.kind == Kind::Rejected && found.text.contains(expected),
            "{found:?}"
        );
        assert!(!report.is_accepted());
    }
}

#[test]
fn running_deployments_are_rejected_and_damaged_past_versions_listed() {
    let plan = message().text(1, "5f3c").text(6, OLD_NODE).text(7, NEW_NODE);
    let running = report(|state| state.add_deployment("/d", &plan.bytes()));
    let found = running.findings.first().unwrap();
    assert_eq!((found.kind, &*found.subject), (Kind::Rejected, "deployment 5f3c"));
    let past = Reference {
        category: Category::Apps,
        id: "/web/api".to_owned(),
        version: "2017-01-01T00:00:00Z".to_owned(),
    };
    let damaged = report(|state| state.add_definition(&past, "/p", b"\xff"));
    assert!(damaged.is_accepted(), "{damaged:#?}");
    let found = damaged.findings.first().unwrap();
    assert!(
        found.subject == "/p" && found.text.contains("past version"),
        "{found:?}"
    );
}

#[test]
fn the_last_failure_belongs_to_its_app() {
    let failure = message()
        .text(1, "/web/api")
        .nested(2, message().text(1, "t"))
        .number(3, 3)
        .text(4, "exit 1")
        .text(5, "a1")
        .text(6, NEW)
        .text(7, NEW)
        .nested(8, message().text(1, "a-S0"));
    let id = format!("web_api.instance-{UUID}._app.1");
    let mut state = state(&id);
    state.add_failure(&api(), &failure.bytes());
    let (_, records) = translated(&state.into_marathon(), &all_tasks(&id));
    let stored = &records.records["apps/web/api"]["last_failure"];
    assert_eq!(
        (&stored["state"], &stored["slaveId"]),
        (&json!("TASK_FAILED"), &json!("a-S0")),
        "{stored}"
    );
}

#[test]
fn ended_tasks_of_apps_are_left_out_and_legacy_conditions_read() {
    for (condition, count) in [
        (json!("Running"), 1),
        (json!({"str": "Running"}), 1),
        (json!({"str": "Unreachable"}), 1),
        (json!("Killed"), 0),
        (json!({"str": "failed"}), 0),
    ] {
        let id = format!("a.instance-{UUID}");
        let task = format!("{id}._app.2");
        let mut stored = stored_task(&task, &[1]);
        stored["status"]["condition"] = condition.clone();
        let instance = Instance::parse(&instance(&id, &json!({task: stored}))).unwrap();
        assert_eq!(instance.app_tasks().count(), count, "{condition}");
    }
}

#[test]
fn versions_are_chosen_by_time_and_use() {
    let names = [
        "2018-01-01T00:00:00Z",
        "2018-01-01T00:00:00.5Z",
        "2018-01-01T00:00:00.123Z",
        "2017-01-01T00:00:00Z",
        "2016-01-01T00:00:00Z",
    ];
    let names = || names.map(str::to_owned).to_vec();
    let used = ["2016-01-01T00:00:00.000Z".to_owned()];
    assert_eq!(
        wanted_versions(names(), &used, 2).unwrap(),
        [
            "2018-01-01T00:00:00.5Z",
            "2018-01-01T00:00:00.123Z",
            "2016-01-01T00:00:00Z"
        ]
    );
    let with_other = [names(), vec!["lock".to_owned()]].concat();
    let error = wanted_versions(with_other, &[], 2).unwrap_err();
    assert!(error.to_string().contains("\"lock\""), "{error}");
}

#[test]
fn root_groups_that_cannot_be_followed_are_rejected() {
    let root = |group: Message| StoredState::new("fw", &message().nested(4, group).bytes());
    for (reference, expected) in [
        (reference("a", "../../x"), "../../x"),
        (reference("a/b", NEW_NODE), "a/b"),
    ] {
        let error = root(message().nested(6, reference)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let deep = (0..200).fold(message(), |below, _| message().nested(4, below));
    assert!(matches!(root(deep).unwrap_err(), StoredError::Protobuf(_)));
}
