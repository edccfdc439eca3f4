//! The Kubernetes framework with a real control plane: etcd, servers and agents as tasks, and
//! kubectl with the client configuration that the API serves.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use transom_testkit::{eventually, wait_for};
use transom_tests::process::{orchestrator, user};
use transom_tests::site::Site;

/// The folder of the control plane's programs; `None`: the test is skipped.
pub(crate) fn programs(test: &str) -> Option<String> {
    let found = std::env::var("TRANSOM_KUBERNETES").ok();
    if found.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{test}: TRANSOM_KUBERNETES is not set"
        );
        println!("skipped: {test}: TRANSOM_KUBERNETES is not set; `cargo xtask test` sets it");
    }
    found
}

/// A site with a datastore, a server and two agents as processes.
async fn start(programs: &str, folder: &Path) -> Site {
    start_with(programs, folder, 2, "").await
}

/// A site with this number of agents and additional sections of the configuration.
pub(crate) async fn start_with(programs: &str, folder: &Path, agents: u32, more: &str) -> Site {
    let script = folder.join("bootstrap.sh");
    // A real k3s needs root and kernel features for containers; if it is installed, the tasks run
    // it.
    let text = format!(
        "#!/bin/sh\nexport TRANSOM_KUBERNETES='{programs}'\n\
         if command -v k3s >/dev/null; then shift; exec k3s \"$@\"; fi\nexec \"$@\"\n"
    );
    fs::write(&script, text).expect("written");
    let program = orchestrator(folder);
    let program = program.display();
    let data = folder.display();
    let etcd = "exec etcd --data-dir $DATA_DIR --listen-client-urls http://127.0.0.1:$PORT0 \
                --listen-peer-urls http://127.0.0.1:0";
    Site::start_with(&format!(
        "[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
         ds_etcd = true\nds_mysql = false\nds_command = \"{etcd}\"\nds_cpu = 0.1\nds_mem = 64\nds_disk = 1\n\
         orch_ds_constraint = \"127.0.0.1\"\nvolume_ds = \"{data}/datastore\"\n\
         orch_container = false\norch_server_string = \"{program} server\"\nvolume_orch_server = \"{data}/server\"\n\
         orch_server_cpu = 0.5\norch_server_mem = 512\norch_server_disk = 1\nkubeconfig = \"k3s.yaml\"\n\
         orch_agent_string = \"{program} agent\"\norch_agent_count = {agents}\norch_agent_cpu = 0.1\norch_agent_mem = 32\n\
         orch_agent_disk = 1\norch_node_timeout = \"30s\"\ndrain_timeout = \"10s\"\n\
         portrange_from = 1024\nportrange_to = 65535\nbootstrap_url = \"file://{}\"\n{more}",
        user(),
        script.display(),
    ))
    .await
}

/// Fetches the client configuration that the API serves, stores it in the file and returns it.
async fn save_client_config(site: &Site, file: &Path) -> Result<String, String> {
    let answer = site.http.get(site.kubernetes("/server/config")).send().await;
    let answer = answer.map_err(|error| error.to_string())?;
    let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
    if !status.is_success() {
        return Err(format!("{status} {text}"));
    }
    fs::write(file, &text).expect("written");
    Ok(text)
}

/// Starts on each node a pod that any drain may evict, and one that a disruption budget protects.
fn start_pods(config: &Path, nodes: &[String]) {
    for (at, node) in nodes.iter().enumerate() {
        for kind in ["free", "kept"] {
            let name = format!("{kind}-{at}");
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": {"kind": kind}},
                // No kubelet finishes deletions here, so the grace period is zero: the API then
                // deletes the pod immediately.
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                         "containers": [{"name": "main", "image": "none"}]},
                // Disruption budgets ignore pods that are not running.
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            });
            let file = create(config, &pod);
            let status = format!("/api/v1/namespaces/default/pods/{name}/status");
            kubectl(config, &["replace", "--raw", &status, "-f", &file]).expect("a status");
        }
    }
    let budget = json!({
        "apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"},
        "spec": {"minAvailable": nodes.len(), "selector": {"matchLabels": {"kind": "kept"}}},
    });
    create(config, &budget);
}

/// Creates an object; returns the path of the file that contains it.
pub(crate) fn create(config: &Path, object: &Value) -> String {
    let file = config.with_file_name("object.json");
    fs::write(&file, object.to_string()).expect("written");
    let file = file.display().to_string();
    kubectl(config, &["create", "-f", &file]).expect("created");
    file
}

/// The names of all pods.
fn pods(config: &Path) -> Result<String, String> {
    kubectl(config, &["get", "pods", "--output=name"])
}

pub(crate) fn kubectl(config: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(config)
        .arg("--request-timeout=5s")
        .args(arguments)
        // Agents are on addresses of this machine.
        .env("NO_PROXY", "*")
        .output()
        .expect("kubectl");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The names of the ready nodes, if the API accepts pods.
async fn ready_nodes(site: &Site, file: &Path) -> Result<Vec<String>, String> {
    save_client_config(site, file).await?;
    let nodes = kubectl(file, &["get", "nodes", "--no-headers"])?;
    let rows = nodes
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let ready = rows.filter(|row| row.get(1) == Some(&"Ready"));
    // The controller manager creates it after the namespace; until then the API rejects pods.
    kubectl(file, &["get", "serviceaccount", "default"])?;
    Ok(ready.map(|row| row[0].to_owned()).collect())
}

pub(crate) async fn wait_for_ready_nodes(site: &Site, file: &Path, count: usize) -> Vec<String> {
    eventually("the nodes to be ready", || async {
        let nodes = ready_nodes(site, file).await;
        match nodes {
            Ok(nodes) if nodes.len() == count => Ok(nodes),
            other => {
                let explained: Value = site.get(&site.kubernetes("/explain")).await?;
                Err(format!("{other:?} {explained}"))
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_follows_a_real_control_plane_through_scaling_and_loss_of_the_server() {
    let Some(programs) = programs("kubernetes_real") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let site = start(&programs, folder.path()).await;
    let file = folder.path().join("kubeconfig");

    let nodes = wait_for_ready_nodes(&site, &file, 3).await;
    let version = site
        .get(&site.kubernetes("/server/version"))
        .await
        .expect("an answer");
    assert!(version.to_string().contains("1.20.2"), "{version}");

    // A certificate authority that did not sign the server's certificate.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let wrong = folder.path().join("wrong");
    let authority = folder.path().join("other.pem");
    fs::copy(&file, &wrong).expect("copied");
    fs::write(&authority, other.cert.pem()).expect("written");
    let authority = authority.display().to_string();
    let set = [
        "config",
        "set-cluster",
        "default",
        "--embed-certs",
        "--certificate-authority",
        &authority,
    ];
    kubectl(&wrong, &set).expect("changed");
    let error = kubectl(&wrong, &["get", "nodes"]).expect_err("an error");
    assert!(error.contains("x509"), "{error}");

    let agents: Vec<String> = nodes
        .into_iter()
        .filter(|node| node.starts_with("agent-"))
        .collect();
    start_pods(&file, &agents);
    wait_for("the budget to count its pods", async || {
        let healthy = "--output=jsonpath={.status.currentHealthy}";
        kubectl(
            &file,
            &["get", "poddisruptionbudgets.v1beta1.policy", "keep", healthy],
        )
        .is_ok_and(|count| count == "2")
    })
    .await;
    let scaled = site
        .http
        .put(site.kubernetes("/agent/scale/1"))
        .send()
        .await
        .expect("an answer");
    assert!(scaled.status().is_success(), "{}", scaled.status());
    // The node stays until the drain timeout, because the budget protects a pod.
    wait_for("one pod to be evicted", async || {
        pods(&file).is_ok_and(|pods| pods.matches("pod/free-").count() == 1)
    })
    .await;
    let names = pods(&file).expect("pods");
    assert_eq!(names.matches("pod/kept-").count(), 2, "{names}");
    let unschedulable = "--output=jsonpath={.items[*].spec.unschedulable}";
    let cordoned = kubectl(&file, &["get", "nodes", unschedulable]).expect("nodes");
    assert_eq!(cordoned, "true", "one node is cordoned and not removed yet");
    wait_for("the agent's node to be removed", async || {
        kubectl(&file, &["get", "nodes", "--no-headers"]).is_ok_and(|nodes| nodes.lines().count() == 2)
    })
    .await;
    let before = wait_for_ready_nodes(&site, &file, 2).await;

    let server = before.iter().find_map(|node| node.strip_prefix("server-"));
    let server = server.expect("the server's node").to_owned();
    site.cluster.kill_process(&server);
    eventually("another server to serve its own node", || async {
        let nodes = ready_nodes(&site, &file).await?;
        let moved = nodes
            .iter()
            .any(|node| node.starts_with("server-") && !node.ends_with(&server));
        if moved { Ok(()) } else { Err(format!("{nodes:?}")) }
    })
    .await;
    wait_for_ready_nodes(&site, &file, 2).await;
    site.cluster.stop_after(site.daemon);
}
