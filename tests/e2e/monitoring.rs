//! The examples of `examples/monitoring` name metrics that a daemon really has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
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

    let site = Site::start_with("[workflow]\nport = 0\ncontainers = false\n").await;
    site.post_app(&json!({"id": "/a", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16}))
        .await;
    site.running("/a", 1).await;
    let names: BTreeSet<&String> = on_board.union(&in_rules).collect();
    eventually("all metrics", || async {
        let answer = site.http.get(site.admin("/metrics")).send().await;
        let text = answer.map_err(|error| error.to_string())?.text().await;
        let text = text.map_err(|error| error.to_string())?;
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
