//! Budgets in bytes: what clients post does not fill the memory, also after a restart with a smaller
//! budget.

use std::fs;

use reqwest::StatusCode;
use serde_json::{Value, json};
use transom_tests::site::Site;

/// Jobs wait, because no agent has so many CPUs. As parsed values this `executor_config` needs twenty
/// times its text.
fn waiting_job(id: usize) -> Value {
    json!({
        "workflow_task_id": format!("large-{id}"),
        "command": ["true"],
        "cpus": 10_000,
        "executor_config": {"zeros": vec![0; 30_000]},
    })
}

/// The resident memory of the daemon in bytes.
fn resident(site: &Site) -> usize {
    let pid = site.daemon.as_ref().expect("a daemon").pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.expect("its resident memory") * 1024
}

async fn send(site: &Site, method: reqwest::Method, url: &str, body: &Value) -> (StatusCode, String) {
    let answer = site
        .http
        .request(method, url)
        .basic_auth("user", Some("password"))
        .json(body)
        .send()
        .await;
    let answer = answer.expect("an answer");
    (answer.status(), answer.text().await.expect("a body"))
}

async fn queue(site: &Site, body: &Value) -> (StatusCode, String) {
    let url = format!("http://{}/v0/queue_command", site.addresses["workflow"]);
    send(site, reqwest::Method::POST, &url, body).await
}

fn replace_in_config(site: &Site, from: &str, to: &str) {
    let text = fs::read_to_string(site.config()).expect("a configuration");
    assert!(text.contains(from), "{text}");
    fs::write(site.config(), text.replace(from, to)).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_jobs_need_little_more_memory_than_their_bytes() {
    const BUDGET: usize = 24 << 20;
    let mut site = Site::start_with(&format!(
        "[workflow]\nport = 0\ncontainers = false\napi_username = \"user\"\napi_password = \"password\"\n\
         max_jobs_bytes = {BUDGET}\n"
    ))
    .await;
    // The first jobs also fill caches and pools.
    for number in 0..10 {
        let (status, text) = queue(&site, &waiting_job(number)).await;
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    let before = resident(&site);
    let mut accepted = 10;
    let message = loop {
        let (status, text) = queue(&site, &waiting_job(accepted)).await;
        if status != StatusCode::OK {
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{text}");
            break text;
        }
        accepted += 1;
    };
    assert!(
        message.contains(&format!("the maximum is {BUDGET} (`max_jobs_bytes`)")),
        "{message}"
    );
    assert!((300..500).contains(&accepted), "{accepted} jobs of 60 KB");
    let grown = resident(&site).saturating_sub(before);
    assert!(grown < 4 * BUDGET, "{grown} bytes for {BUDGET} bytes of jobs");
    println!("{accepted} jobs: {grown} bytes more for {BUDGET} bytes of jobs");
    let delete = |number: usize| format!("http://{}/v0/task/large-{number}", site.addresses["workflow"]);
    let (status, text) = send(&site, reqwest::Method::DELETE, &delete(0), &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    transom_testkit::eventually("room for one more job", || async {
        match queue(&site, &waiting_job(accepted)).await {
            (StatusCode::OK, _) => Ok(()),
            (_, text) => Err(text),
        }
    })
    .await;

    replace_in_config(
        &site,
        &format!("max_jobs_bytes = {BUDGET}"),
        "max_jobs_bytes = 1048576",
    );
    site.kill_daemon();
    site.start_daemon().await;
    let warning =
        |line: &str| (line.contains("WARN") && line.contains("workflow.max_jobs_bytes")).then_some(());
    let daemon = site.daemon.as_mut().expect("a daemon");
    daemon.wait_for_line("warning that names the setting", warning);
    let job = json!({"command": ["true"], "cpus": 10_000});
    transom_testkit::eventually(
        "the stored jobs to be served and new ones to be rejected",
        || async {
            let (status, text) = queue(&site, &job).await;
            let url = format!("http://{}/v0/task/large-1", site.addresses["workflow"]);
            let seen = site.get(&url).await?;
            if status == StatusCode::TOO_MANY_REQUESTS && seen["status"]["state"] == "TASK_STAGING" {
                Ok(())
            } else {
                Err(format!("{status} {text} {seen}"))
            }
        },
    )
    .await;
    let restarted = resident(&site);
    assert!(
        restarted < before + 4 * BUDGET,
        "{restarted} bytes after the restart, {before} before the jobs"
    );
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_above_the_budget_are_served_and_only_growth_is_rejected() {
    const BUDGET: usize = 24 << 20;
    let mut site = Site::start_with_apps(&format!("max_definitions_bytes = {BUDGET}\n")).await;
    let definition = |id: usize, bytes: usize| {
        json!({"id": format!("/large-{id}"), "cmd": "sleep 1", "instances": 0,
            "labels": {"text": "x".repeat(bytes)}})
    };
    let mut count = 0;
    let message = loop {
        let (status, text) = send(
            &site,
            reqwest::Method::POST,
            &site.apps("/v2/apps"),
            &definition(count, 900_000),
        )
        .await;
        if status != StatusCode::CREATED {
            assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
            break text;
        }
        count += 1;
    };
    assert!(
        message.contains(&format!("the maximum is {BUDGET} (`apps.max_definitions_bytes`)")),
        "{message}"
    );
    assert!((20..30).contains(&count), "{count} apps of 900 KB");

    replace_in_config(
        &site,
        &format!("max_definitions_bytes = {BUDGET}"),
        "max_definitions_bytes = 16777216",
    );
    site.kill_daemon();
    site.start_daemon().await;
    let warning =
        |line: &str| (line.contains("WARN") && line.contains("apps.max_definitions_bytes")).then_some(());
    let daemon = site.daemon.as_mut().expect("a daemon");
    daemon.wait_for_line("warning that names the setting", warning);
    let put = async |id: usize, body: &Value| {
        let url = site.apps(&format!("/v2/apps/large-{id}?force=true"));
        send(&site, reqwest::Method::PUT, &url, body).await
    };
    transom_testkit::eventually("the stored apps to be served", || async {
        let (status, text) = put(0, &json!({"instances": 0})).await;
        if status == StatusCode::OK {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    let (status, text) = put(1, &definition(1, 900_100)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    for id in 1..12 {
        let (status, text) = put(id, &definition(id, 10)).await;
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    let (status, text) = send(
        &site,
        reqwest::Method::POST,
        &site.apps("/v2/apps"),
        &definition(99, 900_000),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED, "{text}");
    site.cluster.stop_after(site.daemon);
}
