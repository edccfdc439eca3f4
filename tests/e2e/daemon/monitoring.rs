//! The examples of `examples/monitoring` use only metrics that a daemon exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::dns;
use transom_tests::metrics::{Family, families, metrics_in_query};
use transom_tests::process::user;
use transom_tests::prometheus::{Prometheus, program};
use transom_tests::site::Site;

use crate::daemon::metrics_page::documented;

const RULES: [&str; 2] = ["transom.records.yml", "transom.rules.yml"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring")
}

fn example(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("a file")
}

/// The queries of all boards, each with the titles of its board and panel.
fn board_queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    let boards = fs::read_dir(folder().join("grafana/dashboards")).expect("a folder");
    for board in boards.flatten() {
        let text = fs::read_to_string(board.path()).expect("a file");
        let board: Value = serde_json::from_str(&text).expect("JSON");
        let title = &board["title"];
        for panel in board["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().expect("targets") {
                let query = target["expr"].as_str().expect("a query").to_owned();
                queries.push((format!("{title} {}", panel["title"]), query));
            }
        }
    }
    queries
}

/// The queries in a file of rules, each with the name of its rule. In the files an expression
/// begins on the line after `expr: >-`.
fn rule_queries(text: &str) -> Vec<(String, String)> {
    let mut queries: Vec<(String, String)> = Vec::new();
    let mut expression = false;
    for line in text.lines() {
        let name = line
            .trim()
            .strip_prefix("- alert: ")
            .or(line.trim().strip_prefix("- record: "));
        if let Some(name) = name {
            queries.push((name.to_owned(), String::new()));
        } else if line.trim_start().starts_with("expr: ") {
            assert_eq!(
                line.trim(),
                "expr: >-",
                "an expression begins on the line after `expr: >-`"
            );
            expression = true;
            continue;
        }
        expression &= line.starts_with("          ");
        if expression {
            let (_, query) = queries.last_mut().expect("a rule");
            query.push_str(line.trim());
            query.push(' ');
        }
    }
    assert!(queries.iter().all(|(_, query)| !query.is_empty()), "{queries:?}");
    queries
}

/// A daemon with all services, each of which has done something that its metrics count.
pub(crate) async fn busy_site() -> Site {
    // The datastore does nothing. It counts as a started task of the Kubernetes framework.
    let services = format!(
        "[workflow]\nport = 0\ncontainers = false\n[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\n\
         ds_command = \"exec sleep 600\"\nds_cpu = 0.1\nds_mem = 32\nds_disk = 1\nportrange_from = 1024\nportrange_to = 65535\n",
        user()
    );
    let site = Site::start_with(&services).await;
    // Probes are counted for each instance with a check.
    let check = json!({"protocol": "TCP", "intervalSeconds": 1, "gracePeriodSeconds": 600});
    site.post_app(&json!({
        "id": "/a", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "healthChecks": [check],
    }))
    .await;
    site.wait_until_running("/a", 1).await;
    let job = json!({"workflow_task_id": "counted", "command": "true", "cpus": 0.1});
    let queue = format!("http://{}/v0/queue_command", site.addresses["workflow"]);
    let queued = site.http.post(queue).json(&job).send().await.expect("an answer");
    assert!(
        queued.status().is_success(),
        "{}",
        queued.text().await.unwrap_or_default()
    );
    for url in [
        format!("http://{}/v1/version", site.addresses["discovery"]),
        site.kubernetes("/api/fw/v0/status"),
        site.admin("/ready"),
    ] {
        drop(site.http.get(url).send().await.expect("an answer"));
    }
    let answer = dns::ask(site.addresses["dns"], "a.marathon.mesos.", RecordType::A).await;
    drop(answer.expect("an answer"));
    site
}

/// Waits until the expected families have series; returns all families.
pub(crate) async fn families_of(site: &Site) -> BTreeMap<String, Family> {
    eventually("series of what the site does", || async {
        let families = families(&metrics(site).await?);
        let has_series = |name: &&&str| families.get(**name).is_some_and(|family| family.labels.is_some());
        let silent: Vec<&&str> = EXPECTED.iter().filter(|name| !has_series(name)).collect();
        if silent.is_empty() {
            Ok(families)
        } else {
            Err(format!("no series of {silent:?}"))
        }
    })
    .await
}

/// Families that have series after the work of `busy_site`. Others need a fault or settings.
const EXPECTED: &[&str] = &[
    "process_resident_memory_bytes",
    "transom_admin_api_requests",
    "transom_apps_checks",
    "transom_apps_probe_seconds",
    "transom_discovery_http_seconds",
    "transom_discovery_queries",
    "transom_framework_leading",
    "transom_kubernetes_api_seconds",
    "transom_kubernetes_tasks_started",
    "transom_plugins_calls",
    "transom_scheduler_task_states",
    "transom_store_operation_seconds",
    "transom_workflow_api_requests",
    "transom_workflow_jobs_completed",
];

async fn metrics(site: &Site) -> Result<String, String> {
    let answer = site.http.get(site.admin("/metrics")).send().await;
    let text = answer.map_err(|error| error.to_string())?.text().await;
    text.map_err(|error| error.to_string())
}

/// Prometheus's own check accepts the metrics in its text format.
async fn check_text_format(site: &Site) {
    let request = site.http.get(site.admin("/metrics"));
    let answer = request
        .header("Accept", "text/plain;version=0.0.4;q=1,*/*;q=0.1")
        .send();
    let answer = answer.await.expect("an answer");
    assert_eq!(
        answer.headers()["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let metrics = answer.text().await.expect("metrics");
    let mut check = Command::new(program("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    let mut input = check.stdin.take().expect("an input");
    input.write_all(metrics.as_bytes()).expect("read");
    drop(input);
    let output = check.wait_with_output().expect("an end");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// The value of a series.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let rest = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(rest)
}

/// The metrics and labels that a query uses and a daemon does not export.
fn unknown_names(query: &str, series: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let (metrics, grouped) = metrics_in_query(query);
    let mut unknown = Vec::new();
    let mut labels: BTreeSet<&str> = ["instance", "job", "le"].into();
    for (name, selecting) in &metrics {
        let Some(known) = series.get(name) else {
            unknown.push(name.clone());
            continue;
        };
        labels.extend(known.iter().map(String::as_str));
        let selects = |label: &&String| *label != "job" && *label != "le" && !known.contains(*label);
        unknown.extend(
            selecting
                .iter()
                .filter(selects)
                .map(|label| format!("{name}{{{label}}}")),
        );
    }
    let groups = grouped.iter().filter(|label| !labels.contains(label.as_str()));
    unknown.extend(groups.map(|label| format!("by ({label})")));
    unknown
}

#[test]
fn unknown_names_of_a_query_are_found() {
    let labels = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let series = BTreeMap::from([
        ("transom_a_total".to_owned(), labels(&["kind"])),
        ("transom_b_seconds_bucket".to_owned(), labels(&[])),
    ]);
    for (query, expected) in [
        (
            r#"sum by (kind) (rate(transom_a_total{kind!~"x|transom_no"}[5m])) > 0"#,
            vec![],
        ),
        (
            "histogram_quantile(0.9, sum by (le) (rate(transom_b_seconds_bucket[5m])))",
            vec![],
        ),
        ("sum by (instance, sort) (transom_a_total)", vec!["by (sort)"]),
        (
            r#"transom_a_total{other="a"} and on (kind) transom_c"#,
            vec!["transom_a_total{other}", "transom_c"],
        ),
        (
            r#"transom_b_seconds_bucket{le="1", kind="{a}"}"#,
            vec!["transom_b_seconds_bucket{kind}"],
        ),
    ] {
        assert_eq!(unknown_names(query, &series), expected, "{query}");
    }
}

#[test]
fn alerts_pass_promtool_and_have_a_line_in_the_runbook() {
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "transom.rules.yml", "transom.records.yml"],
        &["test", "rules", "rules_test.yml"],
    ] {
        let run = Command::new(program("promtool"))
            .args(arguments)
            .current_dir(folder())
            .output();
        let run = run.expect("promtool");
        let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "promtool {arguments:?}: {text}");
    }
    let (rules, tests, readme) = (
        example("transom.rules.yml"),
        example("rules_test.yml"),
        example("README.md"),
    );
    let alerts: Vec<String> = rule_queries(&rules).into_iter().map(|(name, _)| name).collect();
    let headings: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    assert_eq!(
        headings, alerts,
        "README.md has a heading for each alert, in their order"
    );
    for alert in alerts {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        assert!(tests.contains(&fires), "rules_test.yml: {alert} fires in no test");
        let rests = format!("alertname: {alert}\n        exp_alerts: []\n");
        assert!(
            tests.contains(&rests),
            "rules_test.yml: {alert} is missing in the test without faults"
        );
        let runbook = format!("runbook: README.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&runbook), "transom.rules.yml: no {runbook}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_and_boards_name_existing_metrics_and_labels() {
    let site = busy_site().await;
    let families = families_of(&site).await;
    let page = documented();
    let mut series: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, family) in &families {
        // The labels of a family without series are taken from the page.
        let labels = family
            .labels
            .clone()
            .or_else(|| Some(page.get(name)?.labels.clone()));
        for one in family.series(name) {
            series.insert(one, labels.clone().unwrap_or_default());
        }
    }
    let records = rule_queries(&example("transom.records.yml"));
    let mut unknown = Vec::new();
    for (record, query) in &records {
        unknown.extend(
            unknown_names(query, &series)
                .into_iter()
                .map(|it| format!("{record}: {it}")),
        );
    }
    for (record, _) in &records {
        let (labels, _) = record.split_once(':').expect("a level");
        let labels = labels.split('_').map(str::to_owned).collect();
        series.insert(record.clone(), labels);
    }
    let alerts = rule_queries(&example("transom.rules.yml"));
    let boards = board_queries();
    assert!(
        alerts.len() >= 30 && boards.len() >= 100,
        "{} {}",
        alerts.len(),
        boards.len()
    );
    for (place, query) in alerts.iter().chain(&boards) {
        unknown.extend(
            unknown_names(query, &series)
                .into_iter()
                .map(|it| format!("{place}: {it}")),
        );
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prometheus_evaluates_every_rule_and_board() {
    let site = busy_site().await;
    let families = families_of(&site).await;
    check_text_format(&site).await;
    let rules = RULES.map(|name| folder().join(name));
    let prometheus = Prometheus::start(site.addresses["admin"], &rules, &site.http).await;
    eventually("every rule to be evaluated", || async {
        let rules = prometheus.rules().await?;
        let bad: Vec<&Value> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
        if bad.is_empty() && rules.len() >= 40 {
            Ok(())
        } else {
            Err(format!("{} rules, bad: {bad:?}", rules.len()))
        }
    })
    .await;
    // Queries that filter by label values or compare may return nothing.
    let silent: Vec<String> = families
        .iter()
        .filter(|(_, family)| family.labels.is_none())
        .flat_map(|(name, family)| family.series(name))
        .collect();
    let expects_series = |query: &str| {
        let query = query.replace("{job=\"transom\"}", "");
        !query.contains(['{', '>'])
            && !metrics_in_query(&query)
                .0
                .keys()
                .any(|name| silent.contains(name))
    };
    for (place, query) in board_queries() {
        eventually(&format!("{place}: {query}"), || async {
            let result = prometheus.query(&query).await?;
            let found = result.as_array().is_some_and(|series| !series.is_empty());
            if found || !expects_series(&query) {
                Ok(())
            } else {
                Err("no series".to_owned())
            }
        })
        .await;
    }
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_apps_follow_what_happens_to_apps() {
    let site = Site::start().await;
    site.post_app(&json!({"id": "/good", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "instances": 2}))
        .await;
    site.wait_until_running("/good", 2).await;
    let missing = site.http.get(site.apps("/v2/apps/absent")).send().await;
    assert_eq!(missing.expect("an answer").status(), 404);
    site.post_app(&json!({
        "id": "/bad", "cmd": "exit 1", "cpus": 0.1, "mem": 16, "backoffSeconds": 600,
    }))
    .await;
    // No agent has so many CPUs.
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
