//! The page about load balancers: each configuration with the real program, while the app is scaled and a
//! task is killed.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use transom_testkit::{eventually, free_port};
use transom_tests::site::Site;

use super::on_this_machine;

const PAGE: &str = include_str!("../../../docs/operations/load-balancing.md");

/// Answers each request with the task's id.
const SERVER: &str = r#"exec perl -e 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or die $!; setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1); bind(S, sockaddr_in($ENV{PORT0}, INADDR_ANY)) or die $!; listen(S, 64) or die $!; while (accept(C, S)) { sysread(C, $r, 8192); $b = $ENV{MESOS_TASK_ID}; syswrite(C, "HTTP/1.1 200 OK\r\nContent-Length: " . length($b) . "\r\nConnection: close\r\n\r\n$b"); close(C) }'"#;

fn block(language: &str, part: &str) -> &'static str {
    super::block(PAGE, language, part)
}

/// A program in the foreground, with all that it starts; killed when dropped.
struct Balancer {
    program: Child,
    address: SocketAddr,
}

impl Balancer {
    fn start(dir: &Path, command: &str, address: SocketAddr) -> Self {
        let program = Command::new("setsid")
            .args(["bash", "-euc", command])
            .current_dir(dir)
            .stdin(Stdio::null())
            .spawn()
            .expect("bash");
        Self { program, address }
    }

    /// Waits until requests reach exactly the tasks of the app.
    async fn balances(&self, site: &Site, instances: usize) -> Vec<String> {
        let tasks = site.wait_until_running("/web", instances).await;
        let ids = tasks.iter().filter_map(|task| task["id"].as_str());
        let expected: BTreeSet<String> = ids.map(str::to_owned).collect();
        eventually("requests to reach the running tasks", || async {
            let mut reached = BTreeSet::new();
            for _ in 0..4 * instances {
                reached.insert(self.ask(site).await?);
            }
            (reached == expected)
                .then_some(())
                .ok_or_else(|| format!("{reached:?} instead of {expected:?}"))
        })
        .await;
        expected.into_iter().collect()
    }

    /// The id of the task that answers a request.
    async fn ask(&self, site: &Site) -> Result<String, String> {
        let url = format!("http://{}/", self.address);
        let answer = site
            .http
            .get(url)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        status
            .is_success()
            .then_some(text)
            .ok_or_else(|| status.to_string())
    }

    /// All requests are answered while a task is killed and replaced.
    async fn survives_the_kill_of(&self, site: &Site, task: &str) {
        let url = site.apps(&format!("/v2/apps/web/tasks/{task}"));
        let killed = site.http.delete(url).send().await.expect("an answer");
        assert!(killed.status().is_success(), "{killed:?}");
        eventually("the task to be replaced", || async {
            self.ask(site).await.expect("an answer while a task ends");
            let tasks: Value = site.get(&site.apps("/v2/apps/web/tasks")).await?;
            let running = tasks["tasks"].as_array().into_iter().flatten();
            let running: Vec<&str> = running
                .filter(|one| one["state"] == "TASK_RUNNING")
                .filter_map(|one| one["id"].as_str())
                .collect();
            (running.len() == 3 && !running.contains(&task))
                .then_some(())
                .ok_or_else(|| format!("{running:?}"))
        })
        .await;
        self.balances(site, 3).await;
    }

    async fn is_tested(&self, site: &Site) {
        let tasks = self.balances(site, 3).await;
        self.survives_the_kill_of(site, &tasks[0]).await;
        for instances in [5, 1] {
            site.scale("/web", instances).await;
            self.balances(site, instances as usize).await;
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let group = format!("-{}", self.program.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.program.wait();
    }
}

async fn site() -> Site {
    let site = Site::start().await;
    let mut app: Value = serde_json::from_str(block("json", "/web")).expect("JSON");
    app["cmd"] = SERVER.into();
    app["cpus"] = json!(0.1);
    app["mem"] = json!(16);
    site.post_app(&app).await;
    site
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_follows_the_tasks() {
    let (site, address) = (site().await, free_address());
    let configuration = on_this_machine(
        block("text", "resolvers"),
        &[
            ("127.0.0.1:8053", &site.addresses["dns"].to_string()),
            ("127.0.0.1:8000", &address.to_string()),
        ],
    );
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("haproxy.cfg"), configuration).expect("written");
    let command = "exec /usr/sbin/haproxy -db -f haproxy.cfg";
    Balancer::start(dir.path(), command, address)
        .is_tested(&site)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_follows_the_tasks() {
    let (site, address) = (site().await, free_address());
    site.wait_until_running("/web", 3).await;
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let configuration = on_this_machine(
        block("nginx", "upstream"),
        &[("127.0.0.1:8000", &address.to_string())],
    );
    fs::write(dir.join("nginx.conf"), configuration).expect("written");
    let script = on_this_machine(
        block("sh", "#!/bin/sh"),
        &[("127.0.0.1:8123", &site.addresses["discovery"].to_string())],
    );
    let file = dir.join("nginx-upstream");
    fs::write(&file, script).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
    fs::write(dir.join("web.upstream"), "server 127.0.0.1:1;\n").expect("written");
    let nginx = "/usr/sbin/nginx -p $PWD -c nginx.conf";
    let follow = on_this_machine(
        block("sh", "./nginx-upstream"),
        &[("nginx -p $PWD -c nginx.conf", nginx)],
    );
    let command = format!("{nginx} -g 'daemon off;' & \n exec {}", follow.trim());
    Balancer::start(dir, &command, address).is_tested(&site).await;
}
