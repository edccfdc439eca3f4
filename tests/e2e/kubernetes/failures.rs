//! The Kubernetes framework during faults around it: of its datastore, of the daemon in the middle
//! of a start, of the source of the first script, and of the component that prepares it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use transom_testkit::eventually;
use transom_tests::kubernetes::{Api, Tasks, all_task_ids, task_ids};
use transom_tests::plugin::Plugin;
use transom_tests::site::Site;

fn api(site: &Site) -> Api {
    Api::new(site.kubernetes(""))
}

/// The ids of all tasks that were ever launched, in order. Each was launched once.
fn launched(site: &Site) -> Vec<String> {
    let launches = site.cluster.launches();
    assert!(launches.values().all(|times| *times == 1), "{launches:?}");
    launches.into_keys().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_datastore_a_cluster_keeps_its_nodes_and_starts_no_server() {
    let tasks = Tasks::with_nodes_only();
    let site = Site::start_with(&tasks.section(1)).await;
    let api = api(&site);
    let before = api.wait_until_settled(1).await;

    tasks.hold("datastore");
    site.cluster.kill_process(&task_ids(&before, "datastore")[0]);
    api.wait_for_reason("its tasks keep failing; the next launch is delayed")
        .await;
    api.put("/server/scale/2").await;
    let lost = api.wait_for_reason("the datastore is not healthy yet").await;
    for kind in ["server", "agent"] {
        assert_eq!(task_ids(&lost, kind), task_ids(&before, kind), "{lost}");
    }

    // Scaled back: with nodes only, two servers have no datastore in common and would not share
    // their nodes.
    api.put("/server/scale/1").await;
    tasks.release("datastore");
    // The server is replaced, because the new datastore has another port.
    let running = |seen: &serde_json::Value| {
        ["datastore", "server", "agent"]
            .iter()
            .all(|kind| task_ids(seen, kind).len() == 1 && seen["tasks"][*kind][0]["state"] == "TASK_RUNNING")
    };
    let after = api
        .wait_for_explain("one running task of each kind", running)
        .await;
    // Each attempt was a separate task.
    let launched = launched(&site);
    assert!(
        all_task_ids(&after).iter().all(|task| launched.contains(task)),
        "{after}"
    );
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_that_is_killed_in_each_phase_of_the_start_starts_nothing_twice() {
    let tasks = Tasks::with_nodes_only();
    tasks.hold("server");
    // The daemon is killed while the launch of the datastore is delayed.
    let (mut site, gate) = Site::start_delaying("ACCEPT", &tasks.section(3)).await;
    gate.wait_for_delayed_call("the launch of the datastore", |_| true)
        .await;
    site.kill_daemon();
    gate.release();
    site.start_daemon().await;

    // The server is running but its API does not respond.
    let running = |seen: &serde_json::Value| seen["tasks"]["server"][0]["state"] == "TASK_RUNNING";
    let before = api(&site).wait_for_explain("a running server", running).await;
    assert!(task_ids(&before, "agent").is_empty(), "{before}");
    site.kill_daemon();
    let accepts = || gate.calls().iter().filter(|call| *call == "ACCEPT").count();
    let known = accepts();
    site.start_daemon().await;
    let unchanged = api(&site).wait_for_explain("the same server", running).await;
    assert_eq!(all_task_ids(&unchanged), all_task_ids(&before));

    // The daemon is killed while the launch of the agents is delayed.
    gate.delay("ACCEPT");
    tasks.release("server");
    eventually("the launch of the agents", || async {
        if accepts() > known {
            Ok(())
        } else {
            Err(format!("{} calls", accepts()))
        }
    })
    .await;
    site.kill_daemon();
    gate.release();
    site.start_daemon().await;
    let after = api(&site).wait_until_settled(3).await;
    assert_eq!(task_ids(&after, "server"), task_ids(&before, "server"));
    assert_eq!(task_ids(&after, "datastore"), task_ids(&before, "datastore"));
    assert_eq!(
        launched(&site),
        all_task_ids(&after),
        "no other task was ever launched"
    );
    site.cluster.stop_after(site.daemon);
}

/// An HTTP server for the first script, or for another response in its place.
struct ScriptServer {
    address: SocketAddr,
    answer: Arc<Mutex<(StatusCode, String)>>,
}

impl ScriptServer {
    async fn start() -> Self {
        let answer = Arc::new(Mutex::new((StatusCode::NOT_FOUND, String::new())));
        let serving = Arc::clone(&answer);
        let router = Router::new().route(
            "/bootstrap.sh",
            get(async move || serving.lock().expect("an answer").clone()),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        // The task ends with the test's runtime.
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, answer }
    }

    fn set_script(&self, script: String) {
        *self.answer.lock().expect("an answer") = (StatusCode::OK, script);
    }
}

/// The maximum size of the script.
const MAX_BYTES: usize = 600_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_the_first_script_is_explained_and_mended_without_a_restart() {
    let (tasks, source) = (Tasks::with_nodes_only(), ScriptServer::start().await);
    let site = Site::start_with(&format!(
        "[kubernetes]\n{}orch_agent_count = 0\nbootstrap_url = \"http://{}/bootstrap.sh\"\n\
         [kubernetes.bootstrap]\nmax_bytes = {MAX_BYTES}\nrefresh_seconds = 0\n",
        tasks.settings(),
        source.address,
    ))
    .await;
    let api = api(&site);
    api.wait_for_reason("bootstrap.sh answered with status 404").await;
    let good = format!("#!/bin/sh\nexec \"$@\"\n{}\n", "#".repeat(MAX_BYTES / 2));
    source.set_script("#".repeat(MAX_BYTES + 1));
    api.wait_for_reason(&format!("has more than {MAX_BYTES} bytes"))
        .await;
    source.set_script("exec \"$@\"\n".to_owned());
    let seen = api
        .wait_for_reason("the bootstrap component rejects the script")
        .await;
    assert!(seen["waiting"].to_string().contains("#!"), "{seen}");
    assert_eq!(launched(&site), task_ids(&seen, "datastore"), "{seen}");
    source.set_script(good);
    api.wait_until_settled(0).await;

    // A component whose memory is too small for the script traps.
    let mut trapping = Plugin::first_party("bootstrap");
    trapping.manifest = trapping.manifest.replace("32MiB", "1536KiB");
    assert!(trapping.manifest.contains("1536KiB"), "{}", trapping.manifest);
    trapping.install(&site.plugins(), "bootstrap");
    site.rescan().await;
    api.put("/agent/scale/2").await;
    let seen = api
        .wait_for_reason("the bootstrap component is not available")
        .await;
    assert!(seen["waiting"].to_string().contains("trap"), "{seen}");
    assert_eq!(launched(&site).len(), 2, "{seen}");
    Plugin::first_party("bootstrap")
        .stamped(1)
        .install(&site.plugins(), "bootstrap");
    site.rescan().await;
    let after = api.wait_until_settled(2).await;
    assert_eq!(launched(&site), all_task_ids(&after));
    site.cluster.stop_after(site.daemon);
}
