//! Several instances of the Kubernetes framework in one daemon and one cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::process::{binary, user};
use transom_tests::site::Site;

/// Takes the place of the orchestrator's script.
const SCRIPT: &str = "#!/bin/sh\nexec sleep 600\n";

/// A cluster, a Redis, and a daemon with instances whose tasks are processes: a datastore and a
/// server that do nothing.
struct Instances {
    site: Site,
    _redis: RedisServer,
    folder: tempfile::TempDir,
}

impl Instances {
    async fn start(sections: &str) -> Instances {
        let folder = tempfile::tempdir().expect("a directory");
        let script = folder.path().join("bootstrap.sh");
        fs::write(&script, SCRIPT).expect("written");
        let redis = RedisServer::in_memory().started();
        let shared = format!(
            "[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
             ds_command = \"exec sleep 600\"\nds_cpu = 0.1\nds_mem = 16\nds_disk = 1\norch_server_cpu = 0.1\n\
             orch_server_mem = 16\norch_server_disk = 1\nportrange_from = 1024\nportrange_to = 65535\n\
             orch_agent_count = 0\nbootstrap_url = \"file://{}\"\n{sections}",
            user(),
            script.display(),
        );
        let site = Site::start_on_redis(redis.address(), &shared).await;
        Instances {
            site,
            _redis: redis,
            folder,
        }
    }

    /// The URL of a call of an instance, on the port of its section; `path` is the instance's
    /// prefix.
    fn url(&self, instance: &str, path: &str, call: &str) -> String {
        let address = self.site.addresses[&format!("kubernetes.{instance}")];
        format!("http://{address}{path}/api/fw/v0/{call}")
    }

    async fn put(&self, url: &str) {
        let answer = self.site.http.put(url).send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
        assert!(status.is_success(), "{url}: {status} {text}");
    }

    async fn get(&self, url: &str) -> Value {
        self.site
            .get(url)
            .await
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// Waits until `count` datastores and `count` servers of an instance are running.
    async fn wait_until_tasks_run(&self, instance: &str, path: &str, count: u32) {
        for kind in ["kvstore", "server"] {
            let url = self.url(instance, path, &format!("{kind}/scale"));
            let explain = self.url(instance, path, "explain");
            eventually(&format!("{count} running {kind} of {instance}"), || async {
                let scale = self.site.get(&url).await?;
                if scale["Running"] == count {
                    Ok(())
                } else {
                    Err(format!("{scale} {}", self.site.get(&explain).await?))
                }
            })
            .await;
        }
    }

    /// The active frameworks that have a section in the command line's configuration: ids and
    /// addresses by name.
    fn listed(&self) -> BTreeMap<String, (String, String)> {
        let list: Value = serde_json::from_str(&self.fw(&["list", "--output", "json"])).expect("JSON");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let frameworks = list["frameworks"].as_array().expect("a list").iter();
        frameworks
            .map(|one| (text(&one["name"]), (text(&one["id"]), text(&one["webui_url"]))))
            .collect()
    }

    /// Runs a `transom fw` command; returns its output.
    fn fw(&self, words: &[&str]) -> String {
        let file = self.folder.path().join("cli.toml");
        let master = self.site.cluster.master;
        let sections = "[fw.blue]\n[fw.green]\n[fw.crimson]\n";
        fs::write(&file, format!("[master]\naddress = \"{master}\"\n{sections}")).expect("written");
        let mut command = transom(self.folder.path());
        command.env("CLUSTER_CLI_CONFIG", file).arg("fw").args(words);
        let output = command.output().expect("transom runs");
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// `transom` without this process's `TRANSOM_` variables.
fn transom(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    let variables = std::env::vars().map(|(name, _)| name);
    for name in variables.filter(|name| name.starts_with("TRANSOM_") || name.ends_with("_CLI_CONFIG")) {
        command.env_remove(name);
    }
    command.current_dir(dir);
    command
}

/// Two instances below paths of the shared port, and one with its own port.
const THREE: &str =
    "[kubernetes.blue]\n[kubernetes.green]\n[kubernetes.red]\nport = 0\nframework_name = \"crimson\"\n";
/// The sections of these instances with their paths.
const SECTIONS: &[(&str, &str)] = &[("blue", "/blue"), ("green", "/green"), ("red", "")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_instance_scales_and_stops_separately_and_keeps_its_framework_id_and_tasks() {
    let mut all = Instances::start(THREE).await;
    for (name, path) in SECTIONS {
        all.wait_until_tasks_run(name, path, 1).await;
    }
    assert_eq!(
        all.site.addresses["kubernetes.blue"],
        all.site.addresses["kubernetes.green"]
    );
    assert_ne!(
        all.site.addresses["kubernetes.blue"],
        all.site.addresses["kubernetes.red"]
    );
    let before = all.listed();
    assert_eq!(before.keys().collect::<Vec<_>>(), ["blue", "crimson", "green"]);
    for (framework, section, path) in [
        ("blue", "blue", "/blue"),
        ("green", "green", "/green"),
        ("crimson", "red", ""),
    ] {
        let address = all.site.addresses[&format!("kubernetes.{section}")];
        assert_eq!(before[framework].1, format!("http://{address}{path}"));
    }

    // Each instance has its own counts, which the API and the command line change.
    all.put(&all.url("green", "/green", "agent/scale/3")).await;
    assert_eq!(
        all.fw(&["scale", "--agent", "blue", "2"]),
        "Scale up/down agent\n2\n"
    );
    assert_eq!(
        all.fw(&["scale", "--agent", "crimson", "4"]),
        "Scale up/down agent\n4\n"
    );
    for ((name, path), count) in SECTIONS.iter().zip([2, 3, 4]) {
        assert_eq!(
            all.get(&all.url(name, path, "agent/scale")).await["Scale"],
            count,
            "{name}"
        );
    }
    labels_name_the_instances(&all).await;
    unknown_instances_get_the_list(&all).await;

    // One instance ends its tasks; the others keep theirs and respond.
    all.put(&all.url("green", "/green", "cluster/shutdown")).await;
    all.wait_until_tasks_run("green", "/green", 0).await;
    for (name, path) in [("blue", "/blue"), ("red", "")] {
        all.wait_until_tasks_run(name, path, 1).await;
        all.put(&all.url(name, path, "agent/scale/1")).await;
    }

    let launches = all.site.cluster.launches();
    assert_eq!(launches.len(), 6, "{launches:?}");
    all.site.kill_daemon();
    all.site.start_daemon().await;
    for ((name, path), (running, agents)) in SECTIONS.iter().zip([(1, 1), (0, 0), (1, 1)]) {
        all.wait_until_tasks_run(name, path, running).await;
        assert_eq!(
            all.get(&all.url(name, path, "agent/scale")).await["Scale"],
            agents,
            "{name}"
        );
    }
    let ids = |listed: BTreeMap<String, (String, String)>| -> BTreeMap<_, _> {
        listed.into_iter().map(|(name, (id, _))| (name, id)).collect()
    };
    assert_eq!(ids(all.listed()), ids(before));
    assert_eq!(
        all.site.cluster.launches(),
        launches,
        "every task is the same as before"
    );
    all.put(&all.url("green", "/green", "cluster/start")).await;
    all.wait_until_tasks_run("green", "/green", 1).await;
    all.site.cluster.stop_after(all.site.daemon);
}

/// Every metric of the instances is described once, and each sample has the label of its framework.
async fn labels_name_the_instances(all: &Instances) {
    eventually("the wanted agents of each framework", || async {
        let answer = all.site.http.get(all.site.admin("/metrics")).send().await;
        let text = answer
            .map_err(|error| error.to_string())?
            .text()
            .await
            .unwrap_or_default();
        let metric = "transom_kubernetes_tasks_wanted";
        let help = format!("# HELP {metric} ");
        assert_eq!(text.matches(&help).count(), 1, "{text}");
        let wanted = text.lines().filter(|line| line.starts_with(metric));
        let agents: Vec<_> = wanted.filter(|line| line.contains("kind=\"agent\"")).collect();
        for (framework, count) in [("blue", 2), ("green", 3), ("crimson", 4)] {
            let label = format!("framework=\"{framework}\"");
            let end = format!(" {count}");
            if !agents
                .iter()
                .any(|line| line.contains(&label) && line.ends_with(&end))
            {
                return Err(format!("no {label}{end} in {agents:?}"));
            }
        }
        Ok(())
    })
    .await;
}

async fn unknown_instances_get_the_list(all: &Instances) {
    let shared = all.site.addresses["kubernetes.blue"];
    for path in [
        "/nosuch/api/fw/v0/agent/scale/1",
        "/api/fw/v0/agent/scale",
        "/red/api/fw/v0/agent/scale",
    ] {
        let url = format!("http://{shared}{path}");
        let answer = all.site.http.put(url).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 404, "{path}");
        let body: Value = answer.json().await.expect("JSON");
        let message = format!("Not found: {path}. The instances on this port are at /blue, /green");
        assert_eq!(body["message"], json!(message));
    }
    // The port of one instance serves no other instance.
    let answer = all
        .site
        .http
        .get(all.url("red", "/blue", "agent/scale"))
        .send()
        .await;
    assert_eq!(answer.expect("an answer").status().as_u16(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_instances_run_in_one_daemon() {
    let names: Vec<String> = (0..20).map(|number| format!("k{number:02}")).collect();
    let sections: Vec<String> = names
        .iter()
        .map(|name| format!("[kubernetes.{name}]\n"))
        .collect();
    let sections = sections.concat();
    let all = Instances::start(&sections).await;
    for name in &names {
        all.wait_until_tasks_run(name, &format!("/{name}"), 1).await;
    }
    for (name, count) in names.iter().zip(1_u32..) {
        let path = format!("/{name}");
        all.put(&all.url(name, &path, &format!("agent/scale/{count}")))
            .await;
    }
    for (name, count) in names.iter().zip(1_u32..) {
        let url = all.url(name, &format!("/{name}"), "agent/scale");
        assert_eq!(all.get(&url).await["Scale"], count, "{name}");
    }
    let launches = all.site.cluster.launches();
    assert_eq!(launches.len(), 40, "{launches:?}");
    let daemon = all.site.daemon.as_ref().expect("a daemon").pid();
    println!("daemon with 20 instances: {} KiB", resident(daemon));
    all.site.cluster.stop_after(all.site.daemon);
}

/// The resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("its resident memory")
}

#[test]
fn wrong_configuration_is_rejected_with_all_faults() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "[store]\nserver = \"file:store\"\n[kubernetes]\nport = 10000\norch_agent_cpu = 0\n\
        [kubernetes.a]\nport = 10000\nds_mem = -1.0\nvolume_ds = \"/x\"\n\
        [kubernetes.b]\nframework_name = \"a\"\nvolume_ds = \"/x/\"\nauth_username = \"u\"\n\
        [kubernetes.C]\n";
    fs::write(dir.path().join("wrong.toml"), text).expect("written");
    for words in [&["config", "check"][..], &["serve"]] {
        let mut command = transom(dir.path());
        command.args(words).args(["--config", "wrong.toml"]);
        let Output { status, stderr, .. } = command.output().expect("transom runs");
        let stderr_text = String::from_utf8(stderr).expect("text");
        assert_eq!(status.code(), Some(2), "{words:?}: {stderr_text}");
        for fault in [
            "[kubernetes.C]",
            "`kubernetes.b.auth_username` has no effect",
            "`kubernetes.orch_agent_cpu`",
            "`kubernetes.a.ds_mem`",
            "`kubernetes.a.framework_name` and `kubernetes.b.framework_name` are both \"a\"",
            "`kubernetes.a.volume_ds` and `kubernetes.b.volume_ds` are both \"/x\"",
            "`kubernetes.port` and `kubernetes.a.port` are both 10000",
        ] {
            assert!(
                stderr_text.contains(fault),
                "{words:?}: no {fault} in {stderr_text}"
            );
        }
    }
}
