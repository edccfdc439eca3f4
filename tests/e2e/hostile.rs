//! Hostile components at work in a running daemon: a probe that never comes back from any look, and an event filter that spins for one
//! subscriber. Ports, other plugins and other subscribers are served meanwhile, and the daemon says who was stopped.
#![allow(clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use transom_tests::events::Events;
use transom_tests::plugin::Plugin;
use transom_tests::site::Site;
use transom_tests::{PATIENCE, eventually};

/// Spins at every look, and is left in service all the same.
fn spinning_probe() -> Plugin {
    Plugin {
        manifest:
            "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\ncpu = \"200ms\"\nwall-clock = \"10s\"\n\
                   [probation]\nmost = 1000000\n[config]\nattempt = { do = \"loop\" }\n"
                .to_owned(),
        ..Plugin::odd("odd-probe")
    }
}

/// Spins for those whose query says so.
fn spinning_filter() -> Plugin {
    Plugin {
        manifest:
            "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\ncpu = \"200ms\"\nwall-clock = \"10s\"\n\
                   [probation]\nmost = 1000000\n"
                .to_owned(),
        ..Plugin::odd("odd-events")
    }
}

async fn plugin(site: &Site, name: &str) -> Result<Value, String> {
    site.get(&site.admin(&format!("/v1/plugins/{name}"))).await
}

async fn timeouts(site: &Site, name: &str) -> u64 {
    let status = plugin(site, name).await.expect("a status");
    status["timeouts"].as_u64().expect("a number")
}

/// Waits until so many more calls of a plugin were stopped.
async fn stopped(site: &Site, name: &str, more: u64) {
    let enough = timeouts(site, name).await + more;
    eventually(&format!("calls of {name} to be stopped"), || async {
        let status = plugin(site, name).await?;
        if status["timeouts"].as_u64() >= Some(enough) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}

/// The ports answer, and what they answer is true.
async fn ports_answer(site: &Site) {
    let app = site.get(&site.apps("/v2/apps/http")).await.expect("the app");
    assert_eq!(app["app"]["id"], "/http");
    site.resolves("http.marathon.mesos.", RecordType::A, |answer| {
        !answer.addresses.is_empty()
    })
    .await;
    let hosts = format!(
        "http://{}/v1/hosts/http.marathon.mesos",
        site.addresses["discovery"]
    );
    let hosts = site.get(&hosts).await.expect("hosts");
    assert!(hosts[0]["ip"].is_string(), "{hosts}");
}

/// A subscriber who takes what comes, up to the event of the app `/last`.
async fn until_the_last(mut stream: Events) {
    while stream.next_of("api_post_event").await.data["appDefinition"]["id"] != "/last" {}
}

/// A subscriber for whom the filter spins, and who comes back whenever its stream is closed for that.
async fn spin(http: reqwest::Client, url: String) {
    loop {
        let mut stream = Events::open(&http, &url).await;
        while stream.next_within(PATIENCE).await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_serves_while_components_spin() {
    let site = Site::start_with("[plugins.use]\ntcp = \"hostile\"\n").await;
    spinning_probe().install(&site.plugins(), "hostile");
    spinning_filter().install(&site.plugins(), "events");
    site.rescan().await;
    let patient = Events::open(&site.http, &site.apps("/v2/events")).await;
    let patient = tokio::spawn(until_the_last(patient));
    let spinning = tokio::spawn(spin(site.http.clone(), site.apps("/v2/events?filter=loop")));

    site.post_example("tcp.json").await;
    site.running("/tcp", 1).await;
    stopped(&site, "hostile", 2).await;
    stopped(&site, "events", 1).await;

    // Posted, judged by the matcher, placed, run and probed while both spin.
    site.post_example("http.json").await;
    let tasks = site.running("/http", 1).await;
    assert_eq!(tasks.len(), 1);
    let (hostile, filter) = (timeouts(&site, "hostile").await, timeouts(&site, "events").await);
    while timeouts(&site, "hostile").await < hostile + 3 || timeouts(&site, "events").await < filter + 1 {
        ports_answer(&site).await;
        // So that there is something to filter.
        let scaled = json!({"labels": {"again": "and again"}});
        let url = site.apps("/v2/apps/http?force=true");
        let answer = site.http.put(&url).json(&scaled).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200);
    }
    site.tasks_when("/http", "a result of the check", |tasks| {
        !tasks.is_empty() && !tasks[0]["checkResult"]["http"].is_null()
    })
    .await;

    // Another subscriber of the same plugin has missed nothing.
    site.post_app(&json!({"id": "/last", "cmd": "true", "instances": 0}))
        .await;
    patient.await.expect("every event up to the last app's");
    // What was stopped is said, with the plugin's name; what was not is not blamed.
    let url = site.apps("/v2/apps/tcp/tasks?embed=checkFailure");
    let tasks = site.get(&url).await.expect("tasks");
    let failure = &tasks["tasks"][0]["checkFailure"]["message"];
    assert!(
        failure
            .as_str()
            .is_some_and(|it| it.contains("`hostile`") && it.contains("limits.cpu")),
        "{tasks}"
    );
    for name in ["check-http", "attributes"] {
        let status = plugin(&site, name).await.expect("a status");
        assert_eq!(
            (&status["traps"], &status["timeouts"]),
            (&json!(0), &json!(0)),
            "{status}"
        );
    }
    let metrics = site
        .http
        .get(site.admin("/metrics"))
        .send()
        .await
        .expect("metrics");
    let metrics = metrics.text().await.expect("text");
    let counted = |name: &str, outcome: &str| {
        metrics.lines().any(|line| {
            line.starts_with(&format!(
                "transom_plugins_calls_total{{plugin=\"{name}\",version=\"0.1.0+"
            )) && line.contains(&format!("outcome=\"{outcome}\""))
                && !line.ends_with(" 0")
        })
    };
    for (name, outcome) in [
        ("hostile", "timeout"),
        ("events", "timeout"),
        ("events", "ok"),
        ("check-http", "ok"),
    ] {
        assert!(counted(name, outcome), "{name} {outcome} in {metrics}");
    }
    spinning.abort();
    site.cluster.stop_after(site.daemon);
}
