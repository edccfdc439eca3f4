//! Health and readiness checks of real tasks: which tasks are killed, which events are sent, and
//! what a deployment waits for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::site::Site;

/// A task that answers its first `first` requests with one status line and all later ones with
/// another.
fn server(first: u32, then: (&str, &str)) -> String {
    let (before, after) = then;
    format!(
        r#"exec perl -e 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or die $!; setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1); bind(S, sockaddr_in($ENV{{PORT0}}, INADDR_ANY)) or die $!; listen(S, 64) or die $!; while (accept(C, S)) {{ sysread(C, $r, 8192); $s = $n++ < {first} ? "{before}" : "{after}"; syswrite(C, "HTTP/1.1 $s\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"); close(C) }}'"#
    )
}

fn app(id: &str, cmd: &str, more: &Value) -> Value {
    let mut app = json!({
        "id": id, "cmd": cmd, "cpus": 0.1, "mem": 32, "portDefinitions": [{"port": 0, "name": "http"}],
        "backoffSeconds": 0,
    });
    app.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    app
}

/// A health check with an interval of one second that kills the task at the second failure.
fn strict_check(more: &Value) -> Value {
    let mut check = json!({
        "gracePeriodSeconds": 0, "intervalSeconds": 1, "timeoutSeconds": 1, "delaySeconds": 0,
        "maxConsecutiveFailures": 1,
    });
    check
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    check
}

async fn healthy_and_unhealthy(site: &Site, app: &str) -> (Value, Value) {
    let shown = site
        .get(&site.apps(&format!("/v2/apps{app}")))
        .await
        .expect("the app");
    (
        shown["app"]["tasksHealthy"].clone(),
        shown["app"]["tasksUnhealthy"].clone(),
    )
}

async fn wait_until_healthy(site: &Site, app: &str) -> Value {
    let tasks = site
        .tasks_when(app, &format!("{app} is healthy"), |tasks| {
            tasks
                .iter()
                .any(|task| task["healthCheckResults"][0]["alive"] == true)
        })
        .await;
    tasks[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unhealthy_task_is_killed_and_replaced_with_every_event() {
    let site = Site::start().await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
    let cmd = server(2, ("200 OK", "503 Service Unavailable"));
    let definition = app(
        "/sick",
        &cmd,
        &json!({"healthChecks": [strict_check(&json!({"path": "/h"}))]}),
    );
    site.post_app(&definition).await;

    let added = events.next_of("add_health_check_event").await.data;
    assert_eq!(
        (&added["appId"], &added["healthCheck"]["path"]),
        (&json!("/sick"), &json!("/h"))
    );
    let turned = events.next_of("health_status_changed_event").await.data;
    assert_eq!(turned["alive"], true, "{turned}");
    let instance = turned["instanceId"].clone();
    let changed = events.next_of("instance_health_changed_event").await.data;
    assert_eq!(
        (&changed["healthy"], &changed["instanceId"]),
        (&json!(true), &instance)
    );
    // The deployment waited for the health of its instance.
    events.next_of("deployment_success").await;
    let failed = events.next_of("failed_health_check_event").await.data;
    assert_eq!(failed["taskId"], instance);
    let turned = events.next_of("health_status_changed_event").await.data;
    assert_eq!(turned["alive"], false, "{turned}");
    let killed = events.next_of("unhealthy_instance_kill_event").await.data;
    assert_eq!(
        (&killed["instanceId"], &killed["reason"]),
        (&instance, &json!("503 Service Unavailable"))
    );
    let first = killed["taskId"].as_str().expect("a task").to_owned();
    assert!(first.ends_with("._app.1"), "{first}");
    let of_task = events.next_of("unhealthy_task_kill_event").await.data;
    assert_eq!(of_task["taskId"], first);
    loop {
        let status = events.next_of("status_update_event").await.data;
        if status["taskId"]
            .as_str()
            .is_some_and(|task| task.ends_with("._app.2"))
        {
            break;
        }
    }
    let restarted = wait_until_healthy(&site, "/sick").await;
    assert_ne!(restarted["id"], first);
    assert!(restarted["healthCheckResults"][0]["lastSuccess"].is_string());

    // Removing the check neither kills nor restarts a task.
    let url = site.apps("/v2/apps/sick");
    let answer = site
        .http
        .put(&url)
        .json(&json!({"healthChecks": []}))
        .send()
        .await;
    assert_eq!(answer.expect("an answer").status().as_u16(), 200);
    events.next_of("remove_health_check_event").await;
    site.cluster.stop();
}

/// An HTTPS server with a self-signed certificate.
struct Https {
    port: u16,
    stopped: Arc<AtomicBool>,
}

impl Https {
    fn start() -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["unknown.example".to_owned()]).expect("names");
        let certificate = params.self_signed(&key).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a configuration");
        let config = Arc::new(config);
        let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                let mut stream = StreamOwned::new(connection, stream);
                let mut request = [0; 4096];
                if stream.read(&mut request).is_ok_and(|count| count > 0) {
                    let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).and_then(|()| stream.flush());
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            }
        });
        Self { port, stopped }
    }
}

impl Drop for Https {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_shows_a_healthy_task() {
    let site = Site::start().await;
    let https = Https::start();
    let cmd = server(0, ("", "200 OK"));
    for (id, check) in [
        ("/http", json!({"path": "/"})),
        (
            "/https",
            json!({"protocol": "HTTPS", "port": https.port, "path": "/"}),
        ),
        ("/tcp", json!({"protocol": "TCP"})),
        ("/mesos-http", json!({"protocol": "MESOS_HTTP", "path": "/"})),
        ("/mesos-tcp", json!({"protocol": "MESOS_TCP"})),
        (
            "/command",
            json!({"protocol": "COMMAND", "command": {"value": "test -e stdout"}}),
        ),
    ] {
        // A slow machine may probe the task before it listens.
        let mut check = strict_check(&check);
        check["gracePeriodSeconds"] = json!(60);
        site.post_app(&app(id, &cmd, &json!({"healthChecks": [check]})))
            .await;
    }
    for id in ["/http", "/https", "/tcp", "/mesos-http", "/mesos-tcp", "/command"] {
        let task = wait_until_healthy(&site, id).await;
        assert_eq!(task["healthCheckResults"][0]["consecutiveFailures"], 0, "{id}");
        assert_eq!(
            healthy_and_unhealthy(&site, id).await,
            (json!(1), json!(0)),
            "{id}"
        );
    }
    let launches = site.cluster.launches();
    assert_eq!(launches.len(), 6, "no task was replaced: {launches:?}");
    site.cluster.stop();
}

/// After a restart of the daemon, the agent reports the health that it checks itself, and the
/// daemon probes the other tasks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_kill_for_their_health_checks_and_health_outlives_the_daemon() {
    let mut site = Site::start().await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
    let fails = json!({"protocol": "COMMAND", "command": {"value": "test ! -e sick"}});
    let definition = app(
        "/agent",
        "sleep 10; touch sick; sleep 1000",
        &json!({"healthChecks": [strict_check(&fails)]}),
    );
    site.post_app(&definition).await;
    let turned = events.next_of("health_status_changed_event").await.data;
    assert_eq!(
        (&turned["appId"], &turned["alive"]),
        (&json!("/agent"), &json!(true))
    );
    let turned = events.next_of("health_status_changed_event").await.data;
    assert_eq!(turned["alive"], false, "{turned}");
    site.tasks_when("/agent", "the next task", |tasks| {
        tasks
            .iter()
            .any(|task| task["id"].as_str().is_some_and(|id| !id.ends_with("._app.1")))
    })
    .await;

    let cmd = server(0, ("", "200 OK"));
    for (id, check) in [
        ("/daemon", json!({})),
        ("/mesos", json!({"protocol": "MESOS_HTTP"})),
    ] {
        // A slow machine may probe the task before it listens.
        let mut check = strict_check(&check);
        check["gracePeriodSeconds"] = json!(60);
        site.post_app(&app(id, &cmd, &json!({"healthChecks": [check]})))
            .await;
    }
    let before = [
        wait_until_healthy(&site, "/daemon").await,
        wait_until_healthy(&site, "/mesos").await,
    ];
    site.kill_daemon();
    site.start_daemon().await;
    let after = [
        wait_until_healthy(&site, "/daemon").await,
        wait_until_healthy(&site, "/mesos").await,
    ];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before["id"], after["id"]);
    }
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployment_waits_until_its_instance_is_ready() {
    let site = Site::start().await;
    let cmd = server(3, ("503 Service Unavailable", "200 OK"));
    let ready = json!({
        "portName": "http", "path": "/ready", "intervalSeconds": 2, "timeoutSeconds": 1,
        "preserveLastResponse": true,
    });
    site.post_app(&app("/slow", &cmd, &json!({"readinessChecks": [ready]})))
        .await;
    let results = eventually("the first answer", || async {
        let deployments = site.get(&site.apps("/v2/deployments")).await?;
        let results = deployments[0]["currentActions"][0]["readinessCheckResults"].clone();
        // The task is not listening yet when it is probed first.
        if results[0]["lastResponse"]["status"] == 503 {
            Ok(results)
        } else {
            Err(deployments.to_string())
        }
    })
    .await;
    let task = site.wait_until_running("/slow", 1).await.remove(0);
    let expected = json!([{
        "name": "readinessCheck", "taskId": task["id"], "ready": false,
        "lastResponse": {"status": 503, "contentType": "text/plain", "body": "ok\n"},
    }]);
    assert_eq!(results, expected);
    let shown = site
        .get(&site.apps("/v2/apps/slow?embed=app.readiness"))
        .await
        .expect("the app");
    assert_eq!(shown["app"]["readinessCheckResults"][0]["name"], "readinessCheck");
    eventually("the deployment to end", || async {
        let deployments = site.get(&site.apps("/v2/deployments")).await?;
        if deployments == json!([]) {
            Ok(())
        } else {
            Err(deployments.to_string())
        }
    })
    .await;
    assert_eq!(site.wait_until_running("/slow", 1).await[0]["id"], task["id"]);
    site.cluster.stop();
}

/// Load balancers that read `healthCheckResults` would drop every backend of an app without results.
#[tokio::test(flavor = "multi_thread")]
async fn health_has_no_gap_after_a_restart_of_the_daemon() {
    let mut site = Site::start().await;
    let check = json!({
        "path": "/", "protocol": "HTTP", "portIndex": 0, "gracePeriodSeconds": 5, "intervalSeconds": 10,
        "timeoutSeconds": 5, "maxConsecutiveFailures": 3,
    });
    let more = json!({"instances": 2, "healthChecks": [check]});
    site.post_app(&app("/hc", &server(0, ("200 OK", "200 OK")), &more))
        .await;
    eventually("two healthy instances", || async {
        let counts = healthy_and_unhealthy(&site, "/hc").await;
        (counts == (json!(2), json!(0)))
            .then_some(())
            .ok_or(format!("{counts:?}"))
    })
    .await;
    let tasks = site.get(&site.apps("/v2/apps/hc/tasks")).await.expect("tasks");
    let id = |task: &Value| format!("/health/{}", task["id"].as_str().expect("an id"));
    let tasks = tasks["tasks"].as_array().expect("a list").iter().map(id);
    let keys: Vec<String> = tasks
        .filter_map(|id| Some(id.split_once("._app.")?.0.to_owned()))
        .collect();
    assert_eq!(keys.len(), 2);
    let file = site.config().with_file_name("store").join("store.redb");
    eventually("both in the store", || async {
        let store = std::fs::read(&file).map_err(|error| error.to_string())?;
        let has = |key: &String| store.windows(key.len()).any(|window| window == key.as_bytes());
        keys.iter().all(has).then_some(()).ok_or(format!("{keys:?}"))
    })
    .await;
    site.kill_daemon();
    site.start_daemon().await;
    // The first response. The next results are up to five seconds later.
    assert_eq!(healthy_and_unhealthy(&site, "/hc").await, (json!(2), json!(0)));
    let tasks = site.get(&site.apps("/v2/apps/hc/tasks")).await.expect("tasks");
    for task in tasks["tasks"].as_array().expect("a list") {
        assert_eq!(task["healthCheckResults"][0]["alive"], true, "{task}");
    }
}
