//! The examples of `examples/monitoring` name metrics that a daemon really has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::process::user;
use transom_tests::site::Site;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring");
    fs::read_to_string(folder.join(name)).expect("a file")
}

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("transom_"))
        .map(str::to_owned)
        .collect()
}

async fn metrics(site: &Site) -> Result<String, String> {
    let answer = site.http.get(site.admin("/metrics")).send().await;
    let text = answer.map_err(|error| error.to_string())?.text().await;
    text.map_err(|error| error.to_string())
}

/// The value of a series.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let rest = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(rest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_and_dashboard_name_existing_metrics() {
    let board: Value = serde_json::from_str(&example("grafana.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let expressions = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().expect("targets");
        targets
            .iter()
            .map(|target| target["expr"].as_str().expect("an expression"))
    });
    let expressions: Vec<&str> = expressions.collect();
    let (on_board, in_rules) = (
        named(&expressions.join("\n")),
        named(&example("transom.rules.yml")),
    );
    assert!(
        on_board.len() >= 15 && in_rules.len() >= 10,
        "{on_board:?} {in_rules:?}"
    );

    // A datastore that does nothing is a started task of the Kubernetes framework.
    let services = format!(
        "[workflow]\nport = 0\ncontainers = false\n[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\n\
         ds_command = \"exec sleep 600\"\nds_cpu = 0.1\nds_mem = 32\nds_disk = 1\nportrange_from = 1024\nportrange_to = 65535\n",
        user()
    );
    let site = Site::start_with(&services).await;
    // A probe counts once an instance has one.
    let check = json!({"protocol": "TCP", "intervalSeconds": 1, "gracePeriodSeconds": 600});
    site.post_app(&json!({
        "id": "/a", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "healthChecks": [check],
    }))
    .await;
    site.running("/a", 1).await;
    let names: BTreeSet<&String> = on_board.union(&in_rules).collect();
    eventually("all metrics", || async {
        let text = metrics(&site).await?;
        let known: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(['{', ' ']).next().unwrap_or_default())
            .collect();
        let missing: Vec<_> = names
            .iter()
            .filter(|name| !known.contains(name.as_str()))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?} are not among {known:?}"))
        }
    })
    .await;
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_apps_follow_what_happens_to_apps() {
    let site = Site::start().await;
    site.post_app(&json!({"id": "/good", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "instances": 2}))
        .await;
    site.running("/good", 2).await;
    let missing = site.http.get(site.apps("/v2/apps/absent")).send().await;
    assert_eq!(missing.expect("an answer").status(), 404);
    site.post_app(&json!({
        "id": "/bad", "cmd": "exit 1", "cpus": 0.1, "mem": 16, "backoffSeconds": 600,
    }))
    .await;
    // No agent has so much.
    let huge = json!({"id": "/huge", "cmd": "true", "cpus": 1000, "mem": 16});
    let posted = site
        .http
        .post(site.apps("/v2/apps?deadline=1&onDeadline=fail"))
        .json(&huge);
    assert_eq!(posted.send().await.expect("an answer").status(), 201);
    eventually("every metric has moved", || async {
        let text = metrics(&site).await?;
        for (series, least) in [
            (r#"transom_apps_deployments_total{outcome="succeeded"}"#, 1.0),
            (r#"transom_apps_deployments_total{outcome="failed"}"#, 1.0),
            ("transom_apps_deployment_seconds_count", 2.0),
            ("transom_apps_deployment_seconds_sum", 1.0),
            ("transom_apps_launch_seconds_count", 2.0),
            ("transom_apps_queue_backoff", 1.0),
            (
                r#"transom_apps_api_requests_total{route="/v2/apps",method="POST",status="201"}"#,
                3.0,
            ),
            (
                r#"transom_apps_api_requests_total{route="/v2/apps/{*path}",method="GET",status="404"}"#,
                1.0,
            ),
            (r#"transom_apps_api_seconds_count{route="/v2/apps"}"#, 3.0),
            ("transom_apps_store_commit_seconds_count", 4.0),
            ("transom_apps_turn_seconds_count", 4.0),
        ] {
            let found = value(&text, series);
            if found.is_none_or(|found| found < least) {
                return Err(format!("{series} is {found:?} in {text}"));
            }
        }
        Ok(())
    })
    .await;
    let text = metrics(&site).await.expect("metrics");
    let ours = text.lines().filter(|line| line.starts_with("transom_apps_"));
    for line in ours {
        let names = ["good", "bad", "huge"];
        assert!(
            !names.iter().any(|name| line.contains(name)),
            "an app is named: {line}"
        );
    }
    site.cluster.stop_after(site.daemon);
}
