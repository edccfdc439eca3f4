//! The translation of recorded responses, and the start of a service with the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::sync::Arc;

use serde_json::{Value, json};
use transom_cluster::operator::GetState;
use transom_cluster::v1::FrameworkInfo;
use transom_scheduler::TaskRecord;
use transom_store::transfer;
use transom_store::typed::TypedStore;
use transom_store::{Batch, Expect, Store};
use transom_testkit::ScriptedScheduler;
use transom_testkit::wait_for;

mod formats;

use super::*;
use crate::Settings;
use crate::core::format;
use crate::core::persist::Repository;
use crate::testing::{Components, World, agent};

pub(super) const UUID: &str = "0664256e-6771-11e5-94e1-be5b2935a987";
pub(super) const OLD: &str = "2018-01-01T00:00:00.000Z";
pub(super) const NEW: &str = "2018-01-02T00:00:00.000Z";

/// An app as Marathon shows it (reference, Appendix B).
pub(super) fn web(task: &str) -> Value {
    let mut app = json!({
        "id": "/web/api", "backoffFactor": 1.15, "backoffSeconds": 1,
        "check": {"http": {"portIndex": 0, "path": "/ping", "scheme": "HTTP"}, "intervalSeconds": 60, "timeoutSeconds": 20, "delaySeconds": 15},
        "cmd": "./api --port $PORT0", "constraints": [["@hostname", "UNIQUE"]], "cpus": 0.5, "disk": 0, "executor": "", "gpus": 0,
        "healthChecks": [{"gracePeriodSeconds": 300, "intervalSeconds": 60, "maxConsecutiveFailures": 3, "path": "/health",
            "portIndex": 0, "protocol": "HTTP", "ipProtocol": "IPv4", "timeoutSeconds": 20, "delaySeconds": 15}],
    });
    let more = json!({
        "instances": 1, "labels": {"HAPROXY_GROUP": "external"}, "maxLaunchDelaySeconds": 300, "mem": 128,
        "networks": [{"mode": "host"}], "portDefinitions": [{"port": 10000, "name": "default", "protocol": "tcp"}],
        "requirePorts": false, "upgradeStrategy": {"maximumOverCapacity": 1, "minimumHealthCapacity": 1},
        "version": NEW, "versionInfo": {"lastScalingAt": NEW, "lastConfigChangeAt": OLD},
        "killSelection": "YOUNGEST_FIRST", "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
        "role": "*", "tasksStaged": 0, "tasksRunning": 1, "tasksHealthy": 1, "tasksUnhealthy": 0, "deployments": [],
        "tasks": [{
            "appId": "/web/api", "healthCheckResults": [], "host": "a1", "id": task,
            "ipAddresses": [{"ipAddress": "10.0.0.1", "protocol": "IPv4"}], "ports": [31001], "servicePorts": [10000],
            "slaveId": "a-S0", "state": "TASK_RUNNING", "stagedAt": "2018-01-01T00:00:01.000Z",
            "startedAt": "2018-01-01T00:00:02.000Z", "version": OLD, "localVolumes": [], "role": "*",
        }],
    });
    let members = more.as_object().unwrap().clone();
    app.as_object_mut().unwrap().extend(members);
    app
}

/// The same app as it was before it was scaled.
fn before(mut app: Value) -> Value {
    app["version"] = json!(OLD);
    app["instances"] = json!(3);
    app
}

pub(super) fn pod() -> Value {
    json!({
        "id": "/pair", "version": OLD, "role": "*",
        "containers": [
            {"name": "one", "exec": {"command": {"shell": "sleep 1000"}}, "resources": {"cpus": 0.1, "mem": 32},
             "endpoints": [{"name": "http", "hostPort": 0, "protocol": ["tcp"]}]},
            {"name": "two", "exec": {"command": {"shell": "sleep 1000"}}, "resources": {"cpus": 0.1, "mem": 32}},
        ],
        "networks": [{"mode": "host"}], "scaling": {"kind": "fixed", "instances": 1},
    })
}

fn pod_status() -> Value {
    let container = |name: &str, endpoints: Value| json!({"name": name, "containerId": format!("pair.instance-{UUID}.{name}"), "endpoints": endpoints});
    json!({"id": "/pair", "instances": [{
        "id": format!("pair.instance-{UUID}"), "specReference": format!("/v2/pods/pair::versions/{OLD}"), "agentHostname": "a1",
        "containers": [container("one", json!([{"name": "http", "allocatedHostPort": 31002}])), container("two", json!([]))],
    }]})
}

pub(super) fn marathon(task: &str) -> Marathon {
    let app = web(task);
    Marathon {
        info: json!({"frameworkId": "fw", "marathon_config": {"hostname": "localhost"}}),
        groups: json!({"id": "/", "dependencies": [], "version": NEW, "groups": [
            {"id": "/web", "dependencies": ["/pair"], "version": OLD, "groups": []},
        ]}),
        versions: [("/web/api".to_owned(), vec![app.clone(), before(app.clone())])].into(),
        apps: vec![app],
        pods: vec![pod()],
        pod_statuses: vec![pod_status()],
        deployments: Vec::new(),
        findings: Vec::new(),
    }
}

fn task(id: &str, framework: &str) -> Value {
    json!({
        "name": "x", "task_id": {"value": id}, "framework_id": {"value": framework}, "agent_id": {"value": "a-S0"},
        "state": "TASK_RUNNING",
        "statuses": [{"task_id": {"value": id}, "state": "TASK_RUNNING", "timestamp": 1_514_764_802.0}],
    })
}

/// The master's view with these tasks, and with those of another framework.
fn state(tasks: &[&str]) -> Value {
    let mut tasks: Vec<Value> = tasks.iter().map(|id| task(id, "fw")).collect();
    tasks.push(task("foreign", "other"));
    json!({
        "get_tasks": {"tasks": tasks},
        "get_frameworks": {"frameworks": [{"framework_info": framework_json()}]},
        "get_agents": {"agents": [{"agent_info": {
            "id": {"value": "a-S0"}, "hostname": "a1", "port": 5051,
            "attributes": [{"name": "rack", "type": "TEXT", "text": {"value": "r1"}}],
        }}]},
    })
}

fn framework_json() -> Value {
    json!({
        "id": {"value": "fw"}, "user": "root", "name": "apps", "roles": ["*"], "checkpoint": true,
        "failover_timeout": 604_800.0, "hostname": "localhost", "principal": "ops",
    })
}

fn pods_tasks() -> [String; 2] {
    ["one", "two"].map(|name| format!("pair.instance-{UUID}.{name}"))
}

pub(super) fn translated(marathon: &Marathon, state: &Value) -> (Report, Records) {
    let state: GetState = serde_json::from_value(state.clone()).unwrap();
    let framework: FrameworkInfo = serde_json::from_value(framework_json()).unwrap();
    translate(marathon, &state, &Settings::default(), &framework)
}

pub(super) fn all_tasks(app: &str) -> Value {
    let [one, two] = pods_tasks();
    state(&[app, &one, &two])
}

#[test]
fn apps_pods_groups_and_tasks_become_records_of_the_present_configuration() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let (report, records) = translated(&marathon(&id), &all_tasks(&id));
    assert!(report.is_accepted() && report.findings.is_empty(), "{report:#?}");
    let carried: Vec<(&str, &str, usize, usize)> = report
        .carried
        .iter()
        .map(|one| (one.kind, one.id.as_str(), one.versions, one.tasks))
        .collect();
    assert_eq!(
        carried,
        [
            ("pod", "/pair", 1, 2),
            ("group", "/web", 1, 0),
            ("app", "/web/api", 2, 1)
        ]
    );
    assert_eq!(records.framework_id(), Some("fw"));
    let keys: Vec<&str> = records.records.keys().map(String::as_str).collect();
    let [one, two] = pods_tasks();
    let expected = [
        "apps/pair".to_owned(),
        "apps/web/api".to_owned(),
        "groups/web".to_owned(),
        format!("tasks/{one}"),
        format!("tasks/{two}"),
        format!("tasks/{id}"),
        format!("versions/web/api/{OLD}"),
    ];
    assert_eq!(keys, expected);
    let app = &records.records["apps/web/api"];
    assert_eq!(app["past"], json!([{"version": OLD, "config": app["config"]}]));
    assert_eq!(app["spec"]["app"]["versionInfo"]["lastConfigChangeAt"], OLD);
    assert_eq!(records.records["groups/web"]["dependencies"], json!(["/pair"]));

    let of_app: TaskRecord = serde_json::from_value(records.records[&format!("tasks/{id}")].clone()).unwrap();
    assert_eq!(
        (of_app.host_ports.as_slice(), of_app.version.as_str()),
        (&[31001][..], OLD)
    );
    assert_eq!(of_app.agent.endpoint.as_ref().unwrap().port, 5051);
    assert_eq!(of_app.agent_attributes.len(), 1);
    let of_pod: TaskRecord =
        serde_json::from_value(records.records[&format!("tasks/{one}")].clone()).unwrap();
    let group = of_pod.group.unwrap();
    assert_eq!((of_pod.host_ports, group.member.as_str()), (vec![31002], "one"));
    assert_eq!(group.executor.as_str(), format!("instance-pair.{UUID}.0"));
}

#[test]
fn translation_of_equal_answers_is_equal() {
    let id = format!("web_api.{UUID}");
    let both = [0, 1].map(|_| translated(&marathon(&id), &all_tasks(&id)));
    assert_eq!(both[0], both[1]);
}

/// A change of the responses; the subject of the finding, and a part of its text.
type Case<'a> = (&'a dyn Fn(&mut Marathon, &mut Value), &'a str, &'a str);

#[test]
fn parts_that_cannot_be_imported_are_rejected_by_name() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let orphan = format!("gone.instance-{UUID}._app.1");
    let table: [Case<'_>; 14] = [
        (
            &|marathon, _| marathon.info = json!({}),
            "Marathon",
            "no framework id",
        ),
        (
            &|marathon, _| marathon.info = json!({"frameworkId": "x"}),
            "framework x",
            "does not know",
        ),
        (
            &|marathon, _| marathon.deployments.push(json!({"id": "d1"})),
            "deployment d1",
            "running",
        ),
        (
            &|marathon, _| marathon.apps[0]["cpus"] = json!("x"),
            "/web/api",
            "/cpus",
        ),
        (
            &|marathon, _| marathon.apps[0]["version"] = json!(7),
            "/web/api",
            "version",
        ),
        (
            &|marathon, _| marathon.apps[0]["id"] = json!("/A B"),
            "app \"/A B\"",
            "not valid",
        ),
        (
            &|marathon, _| marathon.apps[0]["role"] = json!("prod"),
            "/web/api",
            "prod",
        ),
        (
            &|marathon, _| marathon.groups = json!({"id": "/Web"}),
            "group \"/Web\"",
            "not valid",
        ),
        (
            &|_, state| {
                let tasks = state["get_tasks"]["tasks"].as_array_mut().unwrap();
                tasks.push(task(&orphan, "fw"));
            },
            &format!("task {orphan}"),
            "no app or pod /gone",
        ),
        (
            &|_, state| {
                let tasks = state["get_tasks"]["tasks"].as_array_mut().unwrap();
                tasks.push(task("nonsense", "fw"));
            },
            "task nonsense",
            "form",
        ),
        (
            &|marathon, _| marathon.apps[0]["tasks"] = json!([]),
            &format!("task {id}"),
            "does not show it",
        ),
        (
            &|marathon, _| marathon.apps[0]["tasks"][0]["ports"] = json!([]),
            &format!("task {id}"),
            "0 ports",
        ),
        (
            &|marathon, _| marathon.apps[0]["tasks"][0]["version"] = json!("2017-01-01T00:00:00.000Z"),
            &format!("task {id}"),
            "no longer has",
        ),
        (
            &|_, state| {
                state["get_frameworks"]["frameworks"][0]["framework_info"]["principal"] = json!("theirs");
            },
            "cluster.principal",
            "theirs",
        ),
    ];
    for (change, subject, text) in table {
        let (mut marathon, mut state) = (marathon(&id), all_tasks(&id));
        change(&mut marathon, &mut state);
        let (report, _) = translated(&marathon, &state);
        let rejected = report.findings.iter().filter(|one| one.kind == Kind::Rejected);
        let found = rejected
            .clone()
            .any(|one| one.subject == subject && one.text.contains(text));
        assert!(
            found && !report.is_accepted(),
            "{subject}: {:#?}",
            report.findings
        );
    }
}

#[test]
fn apps_with_persistent_volumes_are_rejected_once_and_their_tasks_with_them() {
    let id = format!("web_api.marathon-{UUID}._app.1");
    let (mut marathon, mut state) = (marathon(&id), all_tasks(&id));
    let app = &mut marathon.apps[0];
    app["role"] = json!("ops");
    app["container"] = json!({"type": "MESOS", "volumes": [
        {"containerPath": "data", "mode": "RW", "persistent": {"size": 10}}]});
    app["upgradeStrategy"] = json!({"maximumOverCapacity": 0, "minimumHealthCapacity": 0.5});
    app["unreachableStrategy"] = json!("disabled");
    let framework = &mut state["get_frameworks"]["frameworks"][0]["framework_info"];
    framework["roles"] = json!(["*", "ops"]);
    let state: GetState = serde_json::from_value(state).unwrap();
    let ours = FrameworkInfo {
        roles: vec!["ops".to_owned()],
        ..serde_json::from_value(framework_json()).unwrap()
    };
    let config = Settings {
        role: "ops".to_owned(),
        ..Settings::default()
    };
    let (report, _) = translate(&marathon, &state, &config, &ours);
    let rejected: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|one| one.kind == Kind::Rejected)
        .collect();
    assert_eq!(rejected.len(), 1, "{rejected:#?}");
    assert_eq!(rejected[0].subject, "/web/api");
    assert!(rejected[0].text.contains("persistent volumes"), "{rejected:#?}");
}

/// After a failover the master lists neither the agents that have not registered yet nor their tasks.
#[test]
fn nothing_is_imported_while_agents_have_not_registered_with_a_new_leader() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let mut state = all_tasks(&id);
    state["get_agents"]["recovered_agents"] = json!([{"hostname": "b", "id": {"value": "a-S9"}}]);
    let (report, _) = translated(&marathon(&id), &state);
    assert!(!report.is_accepted());
    let [rejected] = &report.findings[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(rejected.subject, "the master");
    assert!(
        rejected
            .text
            .contains("agents have not registered with it yet (1)"),
        "{rejected:?}"
    );
}

#[test]
fn differences_are_listed_and_do_not_prevent_the_import() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let (mut marathon, mut state) = (marathon(&id), all_tasks(&id));
    marathon.apps[0]["brandNew"] = json!({"a": 1});
    marathon
        .versions
        .get_mut("/web/api")
        .unwrap()
        .push(json!({"id": "/web/api", "version": "2016-01-01T00:00:00.000Z"}));
    marathon.info["marathon_config"]["hostname"] = json!("m1");
    state["get_frameworks"]["frameworks"][0]["framework_info"]["name"] = json!("marathon");
    let left = task(&format!("old.{UUID}"), "fw");
    state["get_tasks"]["unreachable_tasks"] = json!([left]);
    state["get_tasks"]["unreachable_tasks"][0]["state"] = json!("TASK_UNREACHABLE");
    let (report, _) = translated(&marathon, &state);
    assert!(report.is_accepted(), "{report:#?}");
    for (subject, text) in [
        ("/web/api", "/brandNew is not imported"),
        (
            "/web/api",
            "past version 2016-01-01T00:00:00.000Z is not imported",
        ),
        ("apps.hostname", "m1"),
        ("apps.framework_name", "\"marathon\""),
        (&format!("task old.{UUID}"), "has expunged it"),
    ] {
        let found = report
            .findings
            .iter()
            .any(|one| one.subject == subject && one.text.contains(text));
        assert!(found, "{subject} {text}: {:#?}", report.findings);
    }
}

async fn opened(dir: &tempfile::TempDir) -> Arc<dyn Store> {
    let server = format!("file:{}", dir.path().display());
    transom_store::open(&server).await.unwrap()
}

async fn scanned(store: &Arc<dyn Store>) -> Vec<(String, Vec<u8>)> {
    let entries = store.scan("apps/").await.unwrap().into_iter();
    entries.map(|entry| (entry.key, entry.value.to_vec())).collect()
}

/// Ids of older versions of Marathon, each with the id of the instance's next task.
#[tokio::test]
async fn tasks_with_older_ids_are_imported_killed_and_replaced_by_new_ones() {
    for (id, next) in [
        (
            format!("web_api.{UUID}"),
            format!("web_api.marathon-{UUID}._app.1"),
        ),
        (
            format!("web_api.{UUID}.3"),
            format!("web_api.marathon-{UUID}._app.4"),
        ),
        (
            format!("web_api.marathon-{UUID}"),
            format!("web_api.marathon-{UUID}._app.1"),
        ),
        (
            format!("web_api.instance-{UUID}._app"),
            format!("web_api.instance-{UUID}._app.1"),
        ),
        (
            format!("web_api.instance-{UUID}._app.1"),
            format!("web_api.instance-{UUID}._app.2"),
        ),
    ] {
        let (report, records) = translated(&marathon(&id), &all_tasks(&id));
        assert!(report.is_accepted(), "{report:#?}");
        let dir = tempfile::tempdir().unwrap();
        let store = opened(&dir).await;
        Target::new(Arc::clone(&store), "apps")
            .write(&records)
            .await
            .unwrap();
        drop(store);
        let scheduler = ScriptedScheduler::new(agent());
        scheduler.set_immediate_launches(true);
        scheduler.set_immediate_kills(true);
        for (_, task) in records
            .records
            .iter()
            .filter(|(key, _)| key.starts_with("tasks/"))
        {
            scheduler.take_over(serde_json::from_value(task.clone()).unwrap());
        }
        let world = World::with(crate::Config::default(), scheduler, Components::new(), dir).await;
        let shown = world.get("/v2/apps/web/api").await["app"].clone();
        assert_eq!(
            (&shown["tasks"][0]["id"], &shown["tasksRunning"]),
            (&json!(id), &json!(1))
        );
        assert_eq!(world.get("/v2/pods/pair::status").await["status"], "STABLE");
        assert_eq!(
            world.scheduler.launches(),
            0,
            "imported tasks continue, so none is launched"
        );

        let killed = world.delete(&format!("/v2/apps/web/api/tasks/{id}")).await;
        assert_eq!(killed["task"]["id"], id, "{killed}");
        wait_for(&format!("{next} runs"), async || {
            let shown = &world.get("/v2/apps/web/api").await["app"]["tasks"];
            shown[0]["id"] == next && shown[0]["state"] == "TASK_RUNNING"
        })
        .await;
        world.stop().await;
    }
}

#[tokio::test]
async fn records_are_written_once_and_repeated_only_before_a_daemon_has_led() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let (_, records) = translated(&marathon(&id), &all_tasks(&id));
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir).await;
    let target = Target::new(Arc::clone(&store), "apps");
    target.check(&records).await.unwrap();
    assert!(scanned(&store).await.is_empty(), "a check writes nothing");
    // While a daemon leads, nothing is written.
    let lease = store
        .acquire("apps/leader", "1 host:8080", std::time::Duration::from_mins(1))
        .await
        .unwrap();
    for outcome in [target.check(&records).await, target.write(&records).await] {
        let Err(TargetError::Held(transfer::Error::Led { holder, .. })) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(holder, "host:8080");
    }
    store.release(&lease).await.unwrap();

    target.write(&records).await.unwrap();
    let written = scanned(&store).await;
    // A second copy from the same Marathon replaces the first, which has one more app.
    let mut fewer = records.clone();
    fewer.records.remove("apps/pair");
    target.write(&fewer).await.unwrap();
    assert_eq!(scanned(&store).await.len(), written.len() - 1);
    target.write(&records).await.unwrap();
    assert_eq!(scanned(&store).await, written);

    let other = Records {
        origin: "another".to_owned(),
        ..records.clone()
    };
    assert!(matches!(target.write(&other).await, Err(TargetError::NotEmpty { keys }) if !keys.is_empty()));
    store.put("apps/term", "1".into(), Expect::Any).await.unwrap();
    assert!(matches!(target.write(&records).await, Err(TargetError::Used)));
    assert_eq!(scanned(&store).await.len(), written.len() + 1);
}

#[tokio::test]
async fn restored_backup_results_in_the_same_backup() {
    let id = format!("web_api.instance-{UUID}._app.1");
    let (_, records) = translated(&marathon(&id), &all_tasks(&id));
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (first, second) = (opened(&dirs[0]).await, opened(&dirs[1]).await);
    Target::new(Arc::clone(&first), "apps")
        .write(&records)
        .await
        .unwrap();
    first
        .put("apps/daemons/h:1/x", "not JSON".into(), Expect::Any)
        .await
        .unwrap();
    let backup = Backup::of_store(first, "apps").await.unwrap();
    let text = serde_json::to_string_pretty(&backup).unwrap();
    let read = Backup::parse(text.as_bytes()).unwrap();
    assert_eq!(read, backup);
    assert_eq!(read.carried().len(), 3);
    Target::new(Arc::clone(&second), "apps")
        .write(&read.into_records())
        .await
        .unwrap();
    let again = Backup::of_store(second, "apps").await.unwrap();
    assert_eq!(serde_json::to_string_pretty(&again).unwrap(), text);
}
