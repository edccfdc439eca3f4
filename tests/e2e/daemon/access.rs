//! Who may do what: every route of every port, on a leader and on a standby, without, with wrong, with
//! read-only and with full credentials, compared with one table ([`Need`]); targets that programs read
//! differently; and attacks by name.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use transom_testkit::redis::RedisServer;
use transom_testkit::{WAIT_TIMEOUT, eventually, free_port};
use transom_tests::http;
use transom_tests::kubernetes::Tasks;
use transom_tests::process::Transom;
use transom_tests::site::{Cluster, addresses, copy_components};

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// Credentials of either user.
    Read,
    /// Those of the full user.
    Change,
    /// More than anybody has there: a `GET` that changes something, through the admin port.
    Never,
}

/// The credentials of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    Nothing,
    Wrong,
    Reader,
    Full,
}

const ALL: &[With] = &[With::Nothing, With::Wrong, With::Reader, With::Full];

/// The table: the status of a rejection; `None` if the request is handled.
fn rejection(need: Need, with: With) -> Option<u16> {
    match (need, with) {
        (Need::Nothing, _) | (Need::Read, With::Reader) | (Need::Read | Need::Change, With::Full) => None,
        (_, With::Nothing | With::Wrong) => Some(401),
        (_, With::Reader | With::Full) => Some(403),
    }
}

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"];

/// The routes of the admin port, without those of the services.
const ADMIN: &[&str] = &[
    "/",
    "/health",
    "/metrics",
    "/ready",
    "/ui",
    "/ui/",
    "/ui/none.js",
    "/v1/cluster/agents",
    "/v1/cluster/log",
    "/v1/history",
    "/v1/overview",
    "/v1/overview/stream",
    "/v1/plugins",
    "/v1/plugins/explain/filter",
    "/v1/plugins/explain/matcher",
    "/v1/plugins/explain/probe",
    "/v1/plugins/none",
    "/v1/plugins/none/abort",
    "/v1/plugins/none/calls",
    "/v1/plugins/none/files",
    "/v1/plugins/none/history",
    "/v1/plugins/none/rollback",
    "/v1/plugins/rescan",
    "/v1/user",
];

/// Changes that would be made although no id exists, so they are not sent with full credentials.
const REAL_CHANGES: &[&str] = &[
    "/v2/leader",
    "/v2/groups",
    "/cluster/",
    "/restart",
    "/cordon",
    "/uncordon",
    "/framework",
    "/datastore/backups",
    "/datastore/move",
    "/eventSubscriptions",
];

/// Paths that are rejected on every port.
const MANGLED: &[&str] = &[
    r"/bootstrap/..\api\fw\v0\agent\scale\3",
    "/bootstrap/.%2e/api/fw/v0/agent/scale/3",
    "/bootstrap/%2e%2e/api/fw/v0/agent/scale/3",
    "/bootstrap/%2E./api/fw/v0/agent/scale/3",
    "/bootstrap/..%5capi%5cfw%5cv0%5cagent%5cscale%5c3",
    "/bootstrap/../api/fw/v0/agent/scale/3",
    "/ping/..%2fv2%2fapps",
    "/health/./",
    "/v2/apps/..",
    "/v2/apps/a%00b",
    r"http://localhost/backup/..\v2\apps",
];

fn credentials(with: With) -> Option<String> {
    // In base64: full:wrong, reader:read, full:secret.
    let encoded = match with {
        With::Nothing => return None,
        With::Wrong => "ZnVsbDp3cm9uZw==",
        With::Reader => "cmVhZGVyOnJlYWQ=",
        With::Full => "ZnVsbDpzZWNyZXQ=",
    };
    Some(format!("Authorization: Basic {encoded}\r\n"))
}

/// A connection from a network of its own: wrong credentials delay further ones from the same network.
async fn connect(addr: SocketAddr) -> TcpStream {
    static NETWORK: AtomicU16 = AtomicU16::new(256);
    let [high, low] = NETWORK.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind((Ipv4Addr::new(127, high, low, 1), 0).into())
        .expect("bound");
    socket.connect(addr).await.expect("connected")
}

/// Sends a request as it is written; returns the status and the beginning of the answer.
async fn send(addr: SocketAddr, line: &str, headers: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = connect(addr).await;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        // An event stream does not end.
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            if stream.read_buf(&mut answer).await.expect("an answer") == 0 {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = timeout(WAIT_TIMEOUT, exchange).await.expect("an answer in time");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{line}: {answer:?}")), answer)
}

struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
}

impl Daemon {
    fn start(dir: &Path, name: &str, configuration: &str) -> Daemon {
        let file = format!("{name}.toml");
        fs::write(dir.join(&file), configuration).expect("written");
        let mut process = Transom::start(dir, ["serve", "--config", file.as_str()]);
        let addresses = addresses(&mut process);
        Daemon { process, addresses }
    }

    async fn send(&self, port: &str, line: &str, with: With) -> (u16, String) {
        send(self.addresses[port], line, &credentials(with).unwrap_or_default()).await
    }

    /// Waits until every framework is led by this daemon, or by another one.
    async fn wait_until_leading(&self, leading: bool) {
        let ready = format!("http://{}/ready", self.addresses["admin"]);
        let http = http();
        eventually(&format!("a daemon that is ready, leading: {leading}"), || async {
            let answer = http.get(&ready).send().await.map_err(|error| error.to_string())?;
            let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            let leads = |name: &str| seen["services"][name]["framework"]["leading"] == leading;
            if seen["ready"] == true && ["apps", "kubernetes", "workflow"].into_iter().all(leads) {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
    }

    /// The wanted number of agents of the Kubernetes cluster.
    async fn scale(&self) -> String {
        let path = "/api/fw/v0/agent/scale";
        let url = format!("http://{}{path}", self.addresses["kubernetes"]);
        let answer = http().get(url).basic_auth("full", Some("secret")).send().await;
        answer.expect("an answer").text().await.expect("a text")
    }
}

/// Two daemons on one Redis, whose ports all have a full and a read-only user and trust no network.
struct Site {
    leader: Daemon,
    standby: Daemon,
    _tasks: Tasks,
    _cluster: Cluster,
    _redis: RedisServer,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn start() -> Site {
        let (tasks, dir) = (
            Tasks::with_nodes_only(),
            tempfile::tempdir().expect("a directory"),
        );
        copy_components(&dir.path().join("plugins"));
        let (cluster, redis) = (Cluster::start(dir.path()), RedisServer::in_memory().started());
        let users = |prefix: &str| {
            format!(
                "{prefix}username = \"full\"\n{prefix}password = \"secret\"\n\
                 {prefix}read_only_username = \"reader\"\n{prefix}read_only_password = \"read\"\n\
                 trusted_networks = []\n"
            )
        };
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{}\"\n\
             [store]\nserver = \"{}\"\nlease_seconds = 5\n[plugins]\ndir = \"plugins\"\nuploads = true\n\
             [admin]\nport = 0\n{}[apps]\nport = 0\n{}[workflow]\nport = 0\ncontainers = false\n{}\
             [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_listener = \"127.0.0.1\"\nhttp_port = 0\n{}{}",
            cluster.master,
            redis.address(),
            users(""),
            users("api_"),
            users("api_"),
            tasks.section(0),
            users("auth_"),
        );
        // The port of the scripts, which is off by default.
        let start = |name| {
            let port = free_port();
            let configuration = format!("{configuration}[kubernetes.bootstrap]\nport = {port}\n");
            let mut daemon = Daemon::start(dir.path(), name, &configuration);
            let scripts = (Ipv4Addr::LOCALHOST, port).into();
            daemon.addresses.insert("scripts".to_owned(), scripts);
            daemon
        };
        let leader = start("leader");
        leader.wait_until_leading(true).await;
        let standby = start("standby");
        standby.wait_until_leading(false).await;
        Site {
            leader,
            standby,
            _tasks: tasks,
            _cluster: cluster,
            _redis: redis,
            _dir: dir,
        }
    }
}

/// The paths of an OpenAPI document with their methods.
fn described(document: &str) -> Vec<(String, Vec<String>)> {
    let document: Value = serde_json::from_str(document).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").iter();
    let methods = |path: &Value| {
        let names = path.as_object().expect("methods").keys();
        names.map(|name| name.to_ascii_uppercase()).collect()
    };
    paths.map(|(path, of)| (path.clone(), methods(of))).collect()
}

/// A path of a document with ids that do not exist.
fn without_ids(path: &str) -> String {
    let mut text = path
        .replace("{kind}", "agent")
        .replace("{scope}", "agent")
        .replace("{resource}", "cpus");
    while let Some((before, rest)) = text.split_once('{') {
        let after = rest.split_once('}').expect("a parameter").1;
        text = format!("{before}none{after}");
    }
    if text == "/v0/events" {
        // It would wait for a change.
        text += "?wait=0";
    }
    text
}

fn reads(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// What a request to a service's own port needs. `methods`: those that the document describes.
fn need(service: &str, method: &str, path: &str, methods: &[String]) -> Need {
    let by_method = if reads(method) { Need::Read } else { Need::Change };
    match service {
        "discovery" => Need::Nothing,
        "kubernetes" => {
            let is_open = path.ends_with("/versions")
                || path.starts_with("/bootstrap/")
                || path.starts_with("/backup/");
            let is_described = methods.iter().any(|described| described == method);
            match (is_described, is_open) {
                (false, _) | (_, true) => Need::Nothing,
                _ if ["/scale/none", "/datastore/credentials", "/server/token"]
                    .iter()
                    .any(|end| path.ends_with(end)) =>
                {
                    Need::Change
                }
                _ => by_method,
            }
        }
        _ => by_method,
    }
}

/// The same through the admin port.
fn need_through_admin(service: &str, method: &str, path: &str, methods: &[String]) -> Need {
    match need(service, method, path, methods) {
        Need::Change if reads(method) => Need::Never,
        _ if reads(method) => Need::Read,
        _ => Need::Change,
    }
}

async fn check(daemon: &Daemon, port: &str, method: &str, path: &str, need: Need, failed: &mut Vec<String>) {
    for &with in ALL {
        let is_real = !reads(method) && REAL_CHANGES.iter().any(|part| path.contains(part));
        if with == With::Full && is_real {
            continue;
        }
        // One method of each path is enough.
        if with == With::Wrong && method != "GET" {
            continue;
        }
        let (status, answer) = daemon.send(port, &format!("{method} {path}"), with).await;
        let found = matches!(status, 401 | 403).then_some(status);
        if found != rejection(need, with) {
            failed.push(format!("{port} {method} {path} {need:?} {with:?}: {answer}"));
        }
    }
}

/// A service, the name of its port, and its paths with their methods.
type Service = (&'static str, &'static str, Vec<(String, Vec<String>)>);

/// Walks all routes of a daemon; returns the answers that the table does not expect.
async fn walk(daemon: &Daemon, services: &[Service]) -> Vec<String> {
    let mut failed = Vec::new();
    for (service, port, paths) in services {
        for (path, methods) in paths {
            let path = without_ids(path);
            for &method in METHODS {
                let own = need(service, method, &path, methods);
                check(daemon, port, method, &path, own, &mut failed).await;
                let through_admin = format!("/v1/services/{service}{path}");
                let need = need_through_admin(service, method, &path, methods);
                check(daemon, "admin", method, &through_admin, need, &mut failed).await;
            }
        }
    }
    for path in [
        "/bootstrap/none/none",
        "/api/fw/v0/agent/scale",
        "/api/fw/v0/agent/scale/3",
    ] {
        for &method in METHODS {
            let (status, answer) = daemon
                .send("scripts", &format!("{method} {path}"), With::Full)
                .await;
            if !matches!(status, 404 | 405) {
                failed.push(format!("scripts {method} {path}: {answer}"));
            }
            check(daemon, "scripts", method, path, Need::Nothing, &mut failed).await;
        }
    }
    for &path in ADMIN {
        for &method in METHODS {
            let need = match path {
                // The reader's credentials count here too.
                "/health" | "/ready" if reads(method) => Need::Nothing,
                "/health" | "/ready" => continue,
                _ if reads(method) => Need::Read,
                _ => Need::Change,
            };
            check(daemon, "admin", method, path, need, &mut failed).await;
        }
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_needs_what_the_table_says_on_leader_and_standby() {
    let site = Site::start().await;
    let url = format!(
        "http://{}/api/fw/v0/openapi.json",
        site.leader.addresses["kubernetes"]
    );
    let answer = http().get(url).basic_auth("full", Some("secret")).send().await;
    let kubernetes = answer.expect("an answer").text().await.expect("a text");
    let services: [Service; 4] = [
        (
            "apps",
            "apps",
            described(include_str!("../../../docs/apps.openapi.json")),
        ),
        (
            "workflow",
            "workflow",
            described(include_str!("../../../docs/workflow.openapi.json")),
        ),
        (
            "discovery",
            "discovery",
            described(include_str!("../../../docs/discovery.openapi.json")),
        ),
        ("kubernetes", "kubernetes", described(&kubernetes)),
    ];
    let (mut failed, of_standby) =
        tokio::join!(walk(&site.leader, &services), walk(&site.standby, &services));
    failed.extend(of_standby);
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mangled_paths_reach_nothing_on_leader_and_standby() {
    let site = Site::start().await;
    let before = site.leader.scale().await;
    for daemon in [&site.leader, &site.standby] {
        for port in ["admin", "apps", "workflow", "discovery", "kubernetes", "scripts"] {
            for &path in MANGLED {
                for (method, with) in [
                    ("GET", With::Nothing),
                    ("GET", With::Reader),
                    ("GET", With::Full),
                    ("POST", With::Nothing),
                    ("BREW", With::Nothing),
                ] {
                    let (status, answer) = daemon.send(port, &format!("{method} {path}"), with).await;
                    assert_eq!(status, 400, "{port} {method} {path} {with:?}: {answer}");
                }
            }
        }
        for path in [
            r"/v1/services/kubernetes/api/fw/v0/datastore/backups/..\..\agent\scale\5",
            "/v1/services/kubernetes/api/fw/v0/datastore/backups/%2e%2e/%2e%2e/agent/scale/5",
            "/v1/services/kubernetes/bootstrap/..%5c../api/fw/v0/agent/scale/5",
        ] {
            for with in [With::Reader, With::Full] {
                let (status, answer) = daemon.send("admin", &format!("GET {path}"), with).await;
                assert_eq!(status, 400, "{path} {with:?}: {answer}");
            }
        }
    }
    assert_eq!(site.leader.scale().await, before);
}

/// The reader of the admin port has no credentials for the service's port: the standby proves the
/// reader's rights to the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_of_the_admin_ports_users_travel_from_standby_to_leader() {
    let site = Site::start().await;
    let before = site.leader.scale().await;
    for daemon in [&site.leader, &site.standby] {
        for (line, with, expected) in [
            ("GET /v1/services/apps/v2/apps", With::Reader, 200),
            ("GET /v1/services/apps/v2/queue", With::Reader, 200),
            (
                "GET /v1/services/kubernetes/api/fw/v0/agent/scale",
                With::Reader,
                200,
            ),
            (
                "GET /v1/services/kubernetes/api/fw/v0/agent/scale/5",
                With::Reader,
                403,
            ),
            (
                "PUT /v1/services/kubernetes/api/fw/v0/agent/scale/5",
                With::Reader,
                403,
            ),
            (
                "GET /v1/services/kubernetes/api/fw/v0/agent/scale/5",
                With::Full,
                403,
            ),
            ("GET /v1/services/workflow/v0/dags", With::Reader, 200),
            ("DELETE /v1/services/apps/v2/apps/none", With::Reader, 403),
            ("DELETE /v1/services/apps/v2/apps/none", With::Full, 404),
        ] {
            let (status, answer) = daemon.send("admin", line, with).await;
            assert_eq!(status, expected, "{line} {with:?}: {answer}");
        }
    }
    assert_eq!(site.leader.scale().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_port_without_credentials_gives_no_more_than_the_services_own_ports() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let cluster = Cluster::start(dir.path());
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{}\"\n[store]\nserver = \"file:store\"\n\
         [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n\
         [apps]\nport = 0\napi_username = \"full\"\napi_password = \"secret\"\ntrusted_networks = []\n\
         [workflow]\nport = 0\ncontainers = false\n",
        cluster.master
    );
    let daemon = Daemon::start(dir.path(), "daemon", &configuration);
    let spoofed = "X-Transom-Client: 203.0.113.7\r\nX-Transom-User: full\r\nX-Transom-Rights: full\r\n\
                   X-Transom-Proof: 1.AAAA\r\n";
    let authorization = credentials(With::Full).unwrap_or_default();
    for (port, line, expected) in [
        ("admin", "POST /v1/services/apps/v2/apps", 403),
        ("admin", "GET /v1/services/apps/v2/apps", 403),
        ("admin", "GET /v1/services/workflow/v0/queue", 200),
        ("admin", "GET /v1/services/workflow/v0/dags", 403),
        ("workflow", "GET /v0/dags", 401),
    ] {
        for headers in ["", spoofed, authorization.as_str()] {
            let (status, answer) = send(daemon.addresses[port], line, headers).await;
            assert_eq!(status, expected, "{port} {line} {headers}: {answer}");
        }
    }
    let app = json!({"id": "/web", "cmd": "sleep 1000"});
    let url = format!("http://{}/v1/services/apps/v2/apps", daemon.addresses["admin"]);
    let answer = http().post(url).json(&app).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 403);
    let body: Value = answer.json().await.expect("JSON");
    let text = body["message"].as_str().expect("a message");
    assert!(text.contains("`admin.username` and `admin.password`"), "{text}");
    cluster.stop_after(Some(daemon.process));
}
