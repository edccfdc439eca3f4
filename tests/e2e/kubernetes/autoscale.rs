//! The count of agents follows the pods of a real control plane.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::{eventually, wait_for};
use transom_tests::site::Site;

use super::real::{create, kubectl, programs, start_with, wait_for_ready_nodes};

/// Starts a pod that any agent may run.
fn start_pod(config: &Path, name: &str, cpu: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        // No kubelet finishes deletions here, so the grace period is zero: the API then deletes the
        // pod immediately.
        "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                 "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}]},
    });
    create(config, &pod);
}

/// The node of a pod; empty while the pod is pending.
fn node_of(config: &Path, pod: &str) -> String {
    kubectl(config, &["get", "pod", pod, "--output=jsonpath={.spec.nodeName}"]).expect("a pod")
}

async fn autoscaler(site: &Site) -> Result<Value, String> {
    let explained = site.get(&site.kubernetes("/explain")).await?;
    Ok(explained["autoscale"].clone())
}

/// Waits for a note of the autoscaler that contains this text.
async fn wait_for_note(site: &Site, text: &str) {
    eventually(text, || async {
        let shown = autoscaler(site).await?;
        let notes = shown["notes"].as_array().into_iter().flatten();
        let found = notes.filter_map(Value::as_str).any(|note| note.contains(text));
        if found { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

/// Requests a count; returns the status and the answer.
async fn scale(site: &Site, count: u32) -> (u16, String) {
    let request = site.http.put(site.kubernetes(&format!("/agent/scale/{count}")));
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a text"))
}

/// Waits until this node is the only one of an agent.
async fn wait_for_only_node(site: &Site, file: &Path, node: &str) {
    let nodes = wait_for_ready_nodes(site, file, 2).await;
    assert!(
        nodes.iter().any(|found| found == node),
        "{node} is busy: {nodes:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_follow_the_pods_between_their_limits() {
    let Some(programs) = programs("kubernetes_autoscale") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let autoscale = "[kubernetes.agents.autoscale]\nenabled = true\nmin = 1\nmax = 3\nscale_up_delay = \"1s\"\n\
                     scale_down_delay = \"3s\"\ncooldown = \"1s\"\n";
    let site = start_with(&programs, folder.path(), 1, autoscale).await;
    let file = folder.path().join("kubeconfig");
    let nodes = wait_for_ready_nodes(&site, &file, 2).await;
    // Each node has one CPU, and the server's node accepts no pods.
    let server = nodes.iter().find(|node| node.starts_with("server-"));
    let server = server.expect("the server's node").as_str();
    kubectl(&file, &["taint", "nodes", server, "server=only:NoSchedule"]).expect("tainted");

    for count in [0, 4] {
        let (status, text) = scale(&site, count).await;
        let expected = format!("The count {count} is outside of the limits");
        assert!(status == 422 && text.contains(&expected), "{status} {text}");
    }

    start_pod(&file, "giant", "1500m");
    wait_for_note(&site, "no agent can hold their requests: default/giant").await;
    start_pod(&file, "first", "600m");
    wait_for("its node", async || !node_of(&file, "first").is_empty()).await;
    let shown = autoscaler(&site).await.expect("an answer");
    assert_eq!(shown["last"], Value::Null, "neither asked for an agent");

    start_pod(&file, "second", "600m");
    wait_for("a node for the second pod", async || {
        !node_of(&file, "second").is_empty()
    })
    .await;
    let last = &autoscaler(&site).await.expect("an answer")["last"];
    assert_eq!((&last["from"], &last["to"]), (&json!(1), &json!(2)));
    assert_eq!(last["reason"], "pods unschedulable for 1s: default/second");
    start_pod(&file, "third", "600m");
    wait_for("a node for the third pod", async || {
        !node_of(&file, "third").is_empty()
    })
    .await;
    let placed: BTreeSet<String> = ["first", "second", "third"]
        .iter()
        .map(|pod| node_of(&file, pod))
        .collect();
    assert_eq!(placed.len(), 3, "{placed:?}");
    wait_for_ready_nodes(&site, &file, 4).await;
    start_pod(&file, "fourth", "600m");
    wait_for_note(&site, "default/fourth; the count is `max`, 3").await;

    kubectl(&file, &["delete", "pod", "fourth", "first", "third"]).expect("deleted");
    let busy = node_of(&file, "second");
    wait_for_only_node(&site, &file, &busy).await;
    let last = autoscaler(&site).await.expect("an answer")["last"].clone();
    assert_eq!(last["to"], 1, "{last}");
    assert!(
        last["reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("agents idle for 3s: ")),
        "{last}"
    );

    // It is not enough that the pods are deleted: the nodes must have been drained before their
    // tasks ended.
    let log = site.daemon.as_ref().expect("a daemon").output();
    for node in placed.iter().filter(|node| **node != busy) {
        let drained = log
            .lines()
            .any(|line| line.contains("node drained") && line.contains(node.as_str()));
        assert!(drained, "{node} in {log}");
    }

    // A request within the limits is executed immediately; the additional agents are removed after
    // they were idle long enough.
    let first = last["at"].clone();
    let (status, text) = scale(&site, 3).await;
    assert_eq!(status, 200, "{text}");
    // The number of running tasks is not compared, because removed ones may still be ending.
    let wanted = site
        .get(&site.kubernetes("/agent/scale"))
        .await
        .expect("an answer");
    assert_eq!(wanted["Scale"], 3, "{wanted}");
    eventually("the agents to leave", || async {
        let last = autoscaler(&site).await?["last"].clone();
        if last["at"] != first && last["to"] == 1 {
            Ok(())
        } else {
            Err(last.to_string())
        }
    })
    .await;
    wait_for_only_node(&site, &file, &busy).await;

    let metrics = site.http.get(site.admin("/metrics")).send().await;
    let metrics = metrics.expect("an answer").text().await.expect("a text");
    let changes = |direction: &str| {
        metrics
            .lines()
            .filter(|line| line.starts_with("transom_kubernetes_autoscale_changes_total{"))
            .find(|line| line.contains(&format!("direction=\"{direction}\"")))
            .and_then(|line| line.split_whitespace().last()?.parse::<u32>().ok())
    };
    assert_eq!(changes("up"), Some(2), "{metrics}");
    assert!(changes("down").is_some_and(|count| count >= 2), "{metrics}");
    site.cluster.stop_after(site.daemon);
}
