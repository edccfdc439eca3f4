//! `transom apps import --from zk://…`: a daemon takes over the running tasks of a stopped Marathon.
//!
//! A daemon stands in for Marathon while the tasks are launched. Its definitions and tasks are then
//! written into a real ZooKeeper, in Marathon's formats.

use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::marathon_state::{Message, node, pair, reference, resource, storage_version};
use transom_testkit::zookeeper::{self, Acls, Client, ZooKeeper};
use transom_tests::site::{Cluster, copy_components};

use super::import::{Daemon, MARATHON, configure, create, documented_commands, fails, processes, succeeds};

/// Where Marathon keeps its state.
const ROOT: &str = "/marathon";

/// Marathon's nodes.
struct State<'a>(&'a Client);

impl State<'_> {
    async fn put(&self, path: &str, data: &[u8]) {
        zookeeper::put(self.0, &format!("{ROOT}{path}"), data).await;
    }

    /// Writes a definition at its version; returns the name of the version's node.
    async fn define(&self, category: &str, name: &str, document: &Value) -> String {
        let version = version_node(document);
        let data = match category {
            "apps" => service(document).bytes(),
            _ => document.to_string().into_bytes(),
        };
        let folder = node(category, name);
        self.put(&folder, &data).await;
        self.put(&format!("{folder}/{version}"), &data).await;
        version
    }

    async fn instance(&self, id: &str, version: &Value, tasks: Value) {
        let instance = json!({
            "instanceId": {"idString": id},
            "agentInfo": {"host": "localhost", "agentId": "S0", "attributes": []},
            "tasksMap": tasks, "runSpecVersion": version,
            "state": {"since": version, "condition": "Running", "goal": "Running"}, "role": "*",
        });
        self.put(&node("instance", id), instance.to_string().as_bytes())
            .await;
    }
}

/// The version as the name of a node, without zeros at the end of its fraction.
fn version_node(document: &Value) -> String {
    let version = document["version"].as_str().expect("a version");
    let seconds = version
        .trim_end_matches('Z')
        .trim_end_matches('0')
        .trim_end_matches('.');
    format!("{seconds}Z")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

/// An app of the API as the `ServiceDefinition` that Marathon stores.
fn service(app: &Value) -> Message {
    let health = &app["healthChecks"][0];
    let check = Message::default()
        .number(1, 0)
        .number(2, number(health, "portIndex"))
        .number(3, number(health, "gracePeriodSeconds"))
        .number(4, number(health, "intervalSeconds"))
        .number(5, number(health, "timeoutSeconds"))
        .text(6, text(health, "path"))
        .number(7, number(health, "maxConsecutiveFailures"))
        .number(11, number(health, "delaySeconds"));
    let port = &app["portDefinitions"][0];
    let port = Message::default()
        .number(1, number(port, "port"))
        .text(2, text(port, "name"))
        .text(3, text(port, "protocol"));
    let times = ["lastScalingAt", "lastConfigChangeAt"].map(|name| {
        let time: jiff::Timestamp = text(&app["versionInfo"], name).parse().expect("a time");
        u64::try_from(time.as_millisecond()).expect("after 1970")
    });
    let strategy = &app["unreachableStrategy"];
    let strategy = Message::default()
        .number(1, number(strategy, "inactiveAfterSeconds"))
        .number(2, number(strategy, "expungeAfterSeconds"));
    Message::default()
        .text(1, text(app, "id"))
        .nested(2, Message::default().text(3, text(app, "cmd")))
        .number(3, number(app, "instances"))
        .nested(4, resource("cpus", app["cpus"].as_f64().expect("a number")))
        .nested(4, resource("mem", app["mem"].as_f64().expect("a number")))
        .nested(4, resource("disk", 0.0))
        .nested(4, resource("gpus", 0.0))
        .text(8, "")
        .text(11, text(app, "version"))
        .nested(12, check)
        .number(13, 1_000)
        .real(14, 1.15)
        .nested(15, Message::default().real(1, 1.0).real(2, 1.0))
        .number(21, 1_000 * number(app, "maxLaunchDelaySeconds"))
        .number(23, times[0])
        .number(24, times[1])
        .nested(27, port)
        .nested(32, strategy)
        .number(33, 1)
        .nested(34, Message::default().number(1, 1))
        .text(38, text(app, "role"))
}

fn stored_task(id: &str, version: &Value, task: &Value, ports: &Value) -> Value {
    json!({
        "taskId": id, "runSpecVersion": version,
        "status": {
            "stagedAt": task["stagedAt"].as_str().unwrap_or("2024-01-01T00:00:00.000Z"), "startedAt": task["startedAt"],
            "condition": "Running",
            "networkInfo": {"hostName": "localhost", "hostPorts": ports, "ipAddresses": []},
        },
    })
}

/// Writes the state of the daemon that stands in for Marathon.
async fn write(state: &State<'_>, marathon: &Daemon) {
    let get = async |path: &str| marathon.get(path).await.expect("an answer");
    let app = get("/v2/apps/shop/web").await["app"].clone();
    let pod = get("/v2/pods/pair").await;
    let info = get("/v2/info").await;
    let versions = get("/v2/apps/shop/web/versions").await;
    for version in versions["versions"].as_array().expect("versions") {
        let path = format!("/v2/apps/shop/web/versions/{}", version.as_str().expect("a text"));
        state.define("apps", "shop_web", &get(&path).await).await;
    }
    let app_version = state.define("apps", "shop_web", &app).await;
    let pod_version = state.define("pods", "pair", &pod).await;
    for task in app["tasks"].as_array().expect("tasks") {
        let id = text(task, "id");
        let (instance, _) = id.split_once("._app").expect("an instance");
        let stored = stored_task(id, &task["version"], task, &task["ports"]);
        state
            .instance(instance, &task["version"], json!({id: stored}))
            .await;
    }
    for instance in get("/v2/pods/pair::status").await["instances"]
        .as_array()
        .expect("instances")
    {
        let mut tasks = json!({});
        for container in instance["containers"].as_array().expect("containers") {
            let id = text(container, "containerId");
            let ports = json!([container["endpoints"][0]["allocatedHostPort"]]);
            tasks[id] = stored_task(id, &pod["version"], &Value::Null, &ports);
        }
        state.instance(text(instance, "id"), &pod["version"], tasks).await;
    }
    let shop = Message::default()
        .text(1, "shop")
        .text(2, &app_version)
        .text(5, "pair");
    let shop = shop.nested(6, reference("shop_web", &app_version));
    let root = Message::default()
        .text(1, "")
        .text(2, &app_version)
        .nested(4, shop);
    let root = root.nested(7, reference("pair", &pod_version));
    state.put(&node("group", "root"), &root.bytes()).await;
    let framework = Message::default().text(1, text(&info, "frameworkId"));
    state.put(&node("framework-id", "id"), &framework.bytes()).await;
    state
        .put(
            "/state/internal:storage:version",
            &storage_version([110, 0, 0], 1),
        )
        .await;
}

/// The documented commands with the addresses of the test, the dry run first.
fn commands(server: &str, cluster: &Cluster) -> Vec<Vec<String>> {
    let mut commands = documented_commands(MARATHON, "From Marathon");
    commands.retain(|line| line.contains("--from zk://"));
    assert_eq!(commands.len(), 2, "{commands:?}");
    let with_addresses = |line: &String| {
        let line = line.replace("zk1:2181,zk2:2181", server);
        let line = line.replace("http://master:5050", &format!("http://{}", cluster.master));
        line.split(' ').map(str::to_owned).collect()
    };
    commands.iter().map(with_addresses).collect()
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_stopped_marathon_keep_their_processes() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    copy_components(&dir.join("plugins"));
    let cluster = Cluster::start(dir);
    let server = ZooKeeper::start().await;
    let client = server.client().await;
    let state = State(&client);
    configure(dir, "marathon.toml", cluster.master, "file:theirs");
    configure(dir, "transom.toml", cluster.master, "file:ours");

    let marathon = Daemon::start(dir, "marathon.toml").await;
    create(&marathon).await;
    marathon.tasks(1).await;
    let two = json!({"instances": 2});
    marathon
        .send(reqwest::Method::PUT, "/v2/apps/shop/web", &two)
        .await;
    let before = marathon.tasks(2).await;
    write(&state, &marathon).await;
    marathon.stop();
    let running = processes(&cluster);
    let launches = cluster.launches();

    let commands = commands(&server.address(), &cluster);
    let (dry_run, import) = (words(&commands[0]), words(&commands[1]));
    let leaders = format!("{ROOT}/leader-curator");
    zookeeper::put(&client, &leaders, b"").await;
    let latch = format!("{leaders}/_c_7-latch-");
    let latch = zookeeper::create(&client, &latch, b"10.0.0.7:8080", Acls::anyone_all()).await;
    let (code, text) = fails(dir, &dry_run);
    assert!(
        code == Some(3) && text.contains("Marathon runs: 10.0.0.7:8080"),
        "{code:?} {text}"
    );
    client
        .delete(&format!("{leaders}/{latch}"), None)
        .await
        .expect("deleted");

    // All reasons are reported together.
    let plan = Message::default().text(1, "5f3c");
    let (deployment, junk) = (node("deployment", "5f3c"), node("instance", "junk"));
    state.put(&deployment, &plan.bytes()).await;
    state.put(&junk, b"{").await;
    let (_, text) = fails(dir, &dry_run);
    for part in ["deployment 5f3c", &junk, "2 findings prevent the import"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Marathon deletes a node, or its content.
    client
        .delete(&format!("{ROOT}{junk}"), None)
        .await
        .expect("deleted");
    state.put(&deployment, b"").await;

    let shown = succeeds(dir, &[&dry_run[..], &["--output", "json"]].concat());
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let carried = |id: &str| {
        let carried = shown["carried"].as_array().expect("a list").iter();
        let found = carried.clone().find(|one| one["id"] == id).expect("carried");
        (found["tasks"].clone(), found["versions"].clone())
    };
    assert_eq!(shown["findings"], json!([]), "{shown:#}");
    assert_eq!(carried("/shop/web"), (json!(2), json!(2)));
    assert_eq!(carried("/pair"), (json!(2), json!(1)));
    assert!(!dir.join("ours").exists(), "a dry run creates no store");

    succeeds(dir, &import);
    succeeds(dir, &import);
    let daemon = Daemon::start(dir, "transom.toml").await;
    assert_eq!(daemon.tasks(2).await, before);
    assert_eq!(processes(&cluster), running);
    assert_eq!(cluster.launches(), launches, "nothing was launched again");
    let group = daemon.get("/v2/groups/shop").await.expect("a group");
    assert_eq!(group["dependencies"], json!(["/pair"]));
    daemon.stop();
    cluster.stop();
}

/// Runs the import from this address, which must fail; returns the exit code and the output.
fn rejected(dir: &Path, from: &str) -> (Option<i32>, String) {
    let words = [
        "apps",
        "import",
        "--from",
        from,
        "--config",
        "transom.toml",
        "--dry-run",
    ];
    tokio::task::block_in_place(|| fails(dir, &words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_that_is_not_a_stopped_marathon_s_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    configure(dir, "transom.toml", ([127, 0, 0, 1], 1).into(), "file:ours");
    let server = ZooKeeper::start().await;
    let client = server.client().await;
    let state = State(&client);
    let from = format!("zk://{}{ROOT}", server.address());
    let version = "/state/internal:storage:version";
    let (id, root) = (node("framework-id", "id"), node("group", "root"));
    let framework = Message::default().text(1, "fw").bytes();
    let nested = Message::default().nested(6, pair("web", "now")).bytes();
    // Each step changes one node.
    for (path, data, expected) in [
        (
            "/other",
            vec![],
            format!("{from}{version} does not exist; is this the path"),
        ),
        (
            version,
            storage_version([1, 4, 9], 1),
            "storage version 1.4.9 (format 1) is not supported".to_owned(),
        ),
        (version, b"{}".to_vec(), format!("{from}{version}: it is damaged")),
        (
            version,
            storage_version([19, 300, 0], 1),
            format!("{from}{id} does not exist"),
        ),
        (&id, b"\x0a\x05f".to_vec(), format!("{from}{id}")),
        (&id, framework, format!("{from}{root} does not exist")),
        (
            &root,
            b"\x1f\x8b\x08".to_vec(),
            format!("{from}{root}: it is damaged gzip"),
        ),
        (
            &root,
            nested,
            "it names the version \"now\" of \"web\"".to_owned(),
        ),
    ] {
        state.put(path, &data).await;
        let (code, text) = rejected(dir, &from);
        assert!(
            code == Some(3) && text.contains(&expected),
            "{expected}: {code:?} {text}"
        );
    }
    let secret = format!("zk://ops:hunter2@{}/secret", server.address());
    let with_rights = format!("zk://boss:pw@{}/secret", server.address());
    let owner = Client::connector().with_auth("digest", b"boss:pw");
    let owner = owner.connect(&server.address()).await.expect("a session");
    for path in ["/secret", "/secret/state", &format!("/secret{version}")] {
        zookeeper::create_path(&owner, path, Acls::creator_all()).await;
    }
    for (from, expected, code) in [
        (
            "zk://127.0.0.1:1/marathon",
            "no server of zk://127.0.0.1:1/marathon accepts a session",
            3,
        ),
        ("zk://127.0.0.1:1", "the path is missing", 2),
        (&secret, "ZooKeeper denies reading /secret", 3),
        (
            &with_rights,
            "does not exist; is this the path of Marathon's --zk?",
            3,
        ),
    ] {
        let (found, text) = rejected(dir, from);
        assert!(
            text.contains(expected) && !text.contains("hunter2"),
            "{from}: {text}"
        );
        assert_eq!(found, Some(code), "{from}: {text}");
    }
    assert!(!dir.join("ours").exists(), "no store was created");
}
