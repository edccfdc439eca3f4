//! Several services in one daemon: frameworks with different leaders, a service that cannot start,
//! and the rules for ports, which are the same for every service.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::http;
use transom_tests::process::{Transom, binary};
use transom_tests::site::{Cluster, addresses, copy_components};

/// Credentials, and no trusted networks: the leader must accept forwarded requests.
const PROTECTED: &str = "trusted_networks = []\napi_username = \"user\"\napi_password = \"password\"\n";

struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    http: reqwest::Client,
}

impl Daemon {
    /// A daemon with the services of `sections`.
    fn start(dir: &Path, name: &str, master: SocketAddr, store: SocketAddr, sections: &str) -> Daemon {
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n\
             [store]\nserver = \"{store}\"\nlease_seconds = 2\n\
             [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n{sections}"
        );
        let file = format!("{name}.toml");
        fs::write(dir.join(&file), configuration).expect("written");
        let mut process = Transom::start(dir, ["serve", "--config", file.as_str()]);
        let addresses = addresses(&mut process);
        Daemon {
            process,
            addresses,
            http: http(),
        }
    }

    /// Waits until `/ready` shows these services, each with its leader and whether it is this
    /// daemon.
    async fn wait_for_services(&self, expected: &[(&str, &Daemon, bool)]) {
        let url = format!("http://{}/ready", self.addresses["admin"]);
        let services: serde_json::Map<String, Value> = expected
            .iter()
            .map(|(service, leader, leading)| {
                let name = if *service == "apps" { "marathon" } else { "Airflow" };
                let leader = leader.addresses[*service].to_string();
                let mut framework = json!({"name": name, "leader": leader, "leading": leading});
                if *leading {
                    framework["subscribed"] = json!(true);
                }
                let service = (*service).to_owned();
                (service, json!({"ready": true, "framework": framework}))
            })
            .collect();
        let expected = json!({"ready": true, "services": services});
        eventually(&format!("a daemon that shows {expected}"), || async {
            let answer = self.http.get(&url).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            let mut seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            let store = seen.as_object_mut().and_then(|seen| seen.remove("store"));
            if seen == expected && store.is_some_and(|store| store["durability"].is_string()) {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
    }

    async fn post(&self, app: &str, password: Option<&str>) -> u16 {
        let url = format!("http://{}/v2/apps", self.addresses["apps"]);
        let app = json!({"id": app, "cmd": "sleep 1000", "cpus": 0.1, "mem": 16});
        let mut request = self.http.post(url).json(&app);
        if let Some(password) = password {
            request = request.basic_auth("user", Some(password));
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    async fn queue(&self, id: &str) -> u16 {
        let url = format!("http://{}/v0/queue_command", self.addresses["workflow"]);
        let job = json!({"workflow_task_id": id, "command": ["true"], "cpus": 0.1, "mem_limit": 16});
        let request = self.http.post(url).json(&job);
        request.send().await.expect("an answer").status().as_u16()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_framework_has_its_own_leader_and_ready_names_it() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let (cluster, redis) = (Cluster::start(dir.path()), RedisServer::in_memory().started());
    let apps = format!("[apps]\nport = 0\n{PROTECTED}");
    let both = format!("{apps}[workflow]\nport = 0\ncontainers = false\n");
    let start = |name, sections| Daemon::start(dir.path(), name, cluster.master, redis.address(), sections);

    let first = start("first", &apps);
    first.wait_for_services(&[("apps", &first, true)]).await;
    let second = start("second", &both);
    second
        .wait_for_services(&[("apps", &first, false), ("workflow", &second, true)])
        .await;
    let third = start("third", &both);
    third
        .wait_for_services(&[("apps", &first, false), ("workflow", &second, false)])
        .await;

    // Each request reaches the leader of its framework. It is forwarded with the credentials of the
    // daemon that received it.
    assert_eq!(second.post("/by-standby", Some("password")).await, 201);
    assert_eq!(third.queue("by-standby").await, 200);
    assert_eq!(second.queue("by-leader").await, 200);
    for daemon in [&first, &second] {
        assert_eq!(daemon.post("/rejected", None).await, 401);
        assert_eq!(daemon.post("/rejected", Some("wrong")).await, 401);
    }

    // The leader of one framework ends; the other framework keeps its leader.
    let Daemon { process, .. } = first;
    process.kill();
    let url = format!("http://{}/ready", third.addresses["admin"]);
    let workflow = second.addresses["workflow"].to_string();
    eventually("a new leader of apps", || async {
        let answer = third.http.get(&url).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
        assert_eq!(
            seen["services"]["workflow"]["framework"]["leader"], workflow,
            "{seen}"
        );
        let leader = &seen["services"]["apps"]["framework"]["leader"];
        let candidates = [&second, &third].map(|daemon| json!(daemon.addresses["apps"].to_string()));
        if candidates.contains(leader) {
            Ok(())
        } else {
            Err(seen.to_string())
        }
    })
    .await;
    for daemon in [second, third] {
        let (status, output) = daemon.process.interrupt();
        assert!(status.success(), "{output}");
    }
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_cannot_start_stops_the_others_and_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let (cluster, redis) = (Cluster::start(dir.path()), RedisServer::in_memory().started());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let discovery = format!(
        "[discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_listener = \"127.0.0.1\"\nhttp_port = {port}\n"
    );
    let others = "[apps]\nport = 0\n[workflow]\nport = 0\ncontainers = false\n";
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{}\"\n[store]\nserver = \"{}\"\nlease_seconds = 60\n\
         [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n{others}{discovery}",
        cluster.master,
        redis.address()
    );
    fs::write(dir.path().join("broken.toml"), configuration).expect("written");
    let mut broken = Transom::start(dir.path(), ["serve", "--config", "broken.toml"]);
    let status = broken.wait();
    let output = broken.output();
    assert_eq!(status.code(), Some(3), "{output}");
    let expected = format!("port {port} on 127.0.0.1 is in use, so `discovery` cannot listen there");
    assert!(output.contains(&expected), "{output}");
    assert!(output.contains("--port discovery=N"), "{output}");

    // The failed daemon holds no lease, so that the next one leads without waiting.
    let daemon = Daemon::start(dir.path(), "next", cluster.master, redis.address(), others);
    daemon
        .wait_for_services(&[("apps", &daemon, true), ("workflow", &daemon, true)])
        .await;
    let (status, output) = daemon.process.interrupt();
    assert!(status.success(), "{output}");
    cluster.stop();
}

#[test]
fn every_exposed_port_without_credentials_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    for section in ["admin", "apps", "workflow"] {
        let configuration = format!("[{section}]\nlistener = \"0.0.0.0\"\nport = 0\n");
        fs::write(dir.path().join("transom.toml"), configuration).expect("written");
        let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
        let status = daemon.wait();
        let output = daemon.output();
        assert_eq!(status.code(), Some(2), "{output}");
        let expected = format!("`{section}.listener` is 0.0.0.0: other machines can reach this port");
        assert!(output.contains(&expected), "{output}");
        assert!(
            output.contains(&format!("{section}.trusted_networks")),
            "{output}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_and_admin_ports_serve_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(dir.path().join("key.pem"), key.serialize_pem()).expect("written");
    fs::write(dir.path().join("cert.pem"), certificate.pem()).expect("written");
    let tls = "tls_certificate = \"cert.pem\"\ntls_key = \"key.pem\"\n";
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"127.0.0.1:1\"\n[store]\nserver = \"file:{}\"\n\
         [plugins]\ndir = \"plugins\"\n[apps]\nport = 0\n{tls}[admin]\nport = 0\n{tls}",
        dir.path().join("store").display()
    );
    let file = dir.path().join("transom.toml");
    fs::write(&file, configuration).expect("written");
    let file = file.to_str().expect("UTF-8");
    let mut daemon = Transom::start(Path::new("/"), ["serve", "--config", file]);
    let addresses = addresses(&mut daemon);
    let trusted = reqwest::Certificate::from_pem(certificate.pem().as_bytes()).expect("PEM");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([trusted]);
    let client = client.build().expect("a client");
    let apps = addresses["apps"];
    let info: Value = client
        .get(format!("https://{apps}/v2/info"))
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    let ports = json!({"http_port": 0, "https_port": apps.port()});
    assert_eq!(info["http_config"], ports, "{info}");
    assert!(client.get(format!("http://{apps}/ping")).send().await.is_err());

    // Commands with the same configuration trust the daemon's certificate.
    let listed = Command::new(binary())
        .args(["plugin", "list", "--config", file])
        .args(["--admin", &format!("https://{}", addresses["admin"])])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(
        listed.status.success() && text.contains("attributes"),
        "{listed:?}"
    );
    let (status, output) = daemon.interrupt();
    assert!(status.success(), "{output}");
}
