//! Several daemons on one store: one runs the jobs, the others forward requests to it, and one of
//! them takes over with every job when the leader ends.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::http;
use transom_tests::process::{Transom, binary};
use transom_tests::site::{Cluster, addresses, copy_components};

/// Credentials, and no trusted networks: the leader must accept forwarded requests.
const SECTION: &str = "[workflow]\nport = 0\ncontainers = false\ntrusted_networks = []\n\
                       api_username = \"user\"\napi_password = \"password\"\n";

struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    http: reqwest::Client,
    scheme: &'static str,
}

/// Writes a certificate for this machine and its key; returns the certificate.
fn certify(dir: &Path) -> reqwest::Certificate {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["127.0.0.1".to_owned()];
    let params = rcgen::CertificateParams::new(names).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(dir.join("key.pem"), key.serialize_pem()).expect("written");
    fs::write(dir.join("cert.pem"), certificate.pem()).expect("written");
    reqwest::Certificate::from_pem(certificate.pem().as_bytes()).expect("PEM")
}

impl Daemon {
    fn start(
        dir: &Path,
        name: &str,
        master: SocketAddr,
        store: SocketAddr,
        trusted: Option<&reqwest::Certificate>,
    ) -> Daemon {
        let file = format!("{name}.toml");
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n\
             [store]\nserver = \"{store}\"\nlease_seconds = 2\n\
             [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n{SECTION}{}",
            trusted.map_or("", |_| "tls_certificate = \"cert.pem\"\ntls_key = \"key.pem\"\n")
        );
        fs::write(dir.join(&file), configuration).expect("written");
        let mut process = Transom::start(dir, ["serve", "--config", file.as_str()]);
        let addresses = addresses(&mut process);
        Daemon {
            process,
            addresses,
            http: trusted.map_or_else(http, |certificate| {
                reqwest::Client::builder()
                    .no_proxy()
                    .tls_certs_only([certificate.clone()])
                    .build()
                    .expect("a client")
            }),
            scheme: trusted.map_or("http", |_| "https"),
        }
    }

    /// Waits until it is ready, leading or standing by.
    async fn wait_until_ready(&self, leading: bool) {
        let ready = format!("http://{}/ready", self.addresses["admin"]);
        eventually(&format!("a daemon that is ready, leading: {leading}"), || async {
            let answer = self.http.get(&ready).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            if seen["ready"] == true
                && seen["services"]["workflow"]["ready"] == true
                && seen["services"]["workflow"]["framework"]["leading"] == leading
            {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.addresses["workflow"])
    }

    async fn queue(&self, id: &str, command: Value) {
        let body = json!({"workflow_task_id": id, "command": command, "cpus": 0.1, "mem_limit": 16});
        let request = self.http.post(self.url("/v0/queue_command")).json(&body);
        let answer = request.basic_auth("user", Some("password")).send().await;
        let answer = answer.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.expect("a text"));
        assert_eq!((status, text.as_str()), (200, "Ok"));
    }

    async fn wait_for_state(&self, id: &str, state: &str) {
        eventually(&format!("{id} to show {state}"), || async {
            let request = self.http.get(self.url(&format!("/v0/task/{id}")));
            let answer = request.basic_auth("user", Some("password")).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            let seen = answer.text().await.map_err(|error| error.to_string())?;
            if seen.contains(state) { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_when_another_daemon_takes_over() {
    another_daemon(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_continue_when_another_daemon_takes_over_with_tls() {
    another_daemon(true).await;
}

async fn another_daemon(tls: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let _ = http();
    let trusted = tls.then(|| certify(dir.path()));
    let start = |name: &str, cluster: &Cluster, redis: &RedisServer| {
        Daemon::start(
            dir.path(),
            name,
            cluster.master,
            redis.address(),
            trusted.as_ref(),
        )
    };
    copy_components(&dir.path().join("plugins"));
    let (cluster, redis) = (Cluster::start(dir.path()), RedisServer::in_memory().started());
    let first = start("first", &cluster, &redis);
    first.wait_until_ready(true).await;
    let second = start("second", &cluster, &redis);
    second.wait_until_ready(false).await;

    // The request is forwarded with its credentials; without credentials it is rejected.
    let rejected = second
        .http
        .get(second.url("/v0/queue"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(rejected.status().as_u16(), 401);
    let flag = dir.path().join("go");
    let until = format!("while [ ! -e '{}' ]; do sleep 0.05; done", flag.display());
    second.queue("runs", json!(["/bin/sh", "-c", until])).await;
    second.wait_for_state("runs", "TASK_RUNNING").await;
    first.wait_for_state("runs", "TASK_RUNNING").await;
    second.queue("killed", json!(["sleep", "1000"])).await;
    second.wait_for_state("killed", "TASK_RUNNING").await;
    let kill = second.http.delete(second.url("/v0/task/killed"));
    let killed = kill
        .basic_auth("user", Some("password"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(killed.status().as_u16(), 200);
    second.wait_for_state("killed", "TASK_KILLED").await;

    first.process.kill();
    second.wait_until_ready(true).await;
    second.wait_for_state("runs", "TASK_RUNNING").await;
    second.wait_for_state("killed", "TASK_KILLED").await;
    fs::write(&flag, "").expect("written");
    second.wait_for_state("runs", "TASK_FINISHED").await;
    second.queue("after", json!(["true"])).await;
    second.wait_for_state("after", "TASK_FINISHED").await;
    if tls {
        // Clients without TLS receive no response.
        let plain = second
            .http
            .get(second.url("/v0/task/after").replace("https:", "http:"));
        assert!(plain.send().await.is_err());
        job_run_within_tls(dir.path(), &second);
    }
    let launches = cluster.launches();
    let expected = ["after", "killed", "operator", "runs"].map(|id| (id.to_owned(), 1));
    let expected = expected.into_iter().filter(|(id, _)| tls || id != "operator");
    assert_eq!(launches, expected.collect());
    cluster.stop_after(Some(second.process));
}

/// Runs `transom job run` with the certificate as one of the system's trusted roots.
fn job_run_within_tls(dir: &Path, daemon: &Daemon) {
    let mut command = Command::new(binary());
    command
        .args(["job", "run", "--url", &daemon.url(""), "--poll-interval", "0.1"])
        .args([
            "--username",
            "user",
            "--password",
            "password",
            "--id",
            "operator",
            "--",
            "true",
        ])
        .env("SSL_CERT_FILE", dir.join("cert.pem"));
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}
