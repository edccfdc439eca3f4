//! Hostile components in a running daemon: a probe whose attempts never return, and an event filter
//! that spins for one subscriber. Meanwhile the daemon serves its ports, other plugins and other
//! subscribers, and reports the interrupted plugin.

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use transom_testkit::{WAIT_TIMEOUT, eventually};
use transom_tests::events::Events;
use transom_tests::plugin::Plugin;
use transom_tests::site::Site;

use super::hostile_wat::HostileProbe;

/// Loops in every call. Its manifest permits so many faults that it stays in service.
fn spinning_probe() -> Plugin {
    Plugin {
        manifest:
            "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\ncpu = \"200ms\"\nwall-clock = \"10s\"\n\
                   [probation]\nmax-faults = 1000000\n[config]\nattempt = { do = \"loop\" }\n"
                .to_owned(),
        ..Plugin::test_guest("faulty-probe")
    }
}

/// Loops for subscribers whose query requests it.
fn spinning_filter() -> Plugin {
    Plugin {
        manifest:
            "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\ncpu = \"200ms\"\nwall-clock = \"10s\"\n\
                   [probation]\nmax-faults = 1000000\n"
                .to_owned(),
        ..Plugin::test_guest("faulty-events")
    }
}

async fn plugin(site: &Site, name: &str) -> Result<Value, String> {
    site.get(&site.admin(&format!("/v1/plugins/{name}"))).await
}

async fn timeouts(site: &Site, name: &str) -> u64 {
    let status = plugin(site, name).await.expect("a status");
    status["timeouts"].as_u64().expect("a number")
}

/// Waits until `more` further calls of a plugin have been interrupted.
async fn wait_for_timeouts(site: &Site, name: &str, more: u64) {
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

/// The ports respond with correct data.
async fn check_ports(site: &Site) {
    let app = site.get(&site.apps("/v2/apps/http")).await.expect("the app");
    assert_eq!(app["app"]["id"], "/http");
    site.wait_until_resolves("http.marathon.mesos.", RecordType::A, |answer| {
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

/// A subscriber that reads all events, up to that of the app `/last`.
async fn read_until_last(mut stream: Events) {
    while stream.next_of("api_post_event").await.data["appDefinition"]["id"] != "/last" {}
}

/// A subscriber for which the filter loops. It reconnects whenever the daemon closes its stream for
/// that reason.
async fn subscribe_to_looping_filter(http: reqwest::Client, url: String) {
    loop {
        let mut stream = Events::open(&http, &url).await;
        while stream.next_within(WAIT_TIMEOUT).await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_serves_while_components_spin() {
    let site = Site::start_with("[plugins.use]\ntcp = \"hostile\"\n").await;
    spinning_probe().install(&site.plugins(), "hostile");
    spinning_filter().install(&site.plugins(), "events");
    site.rescan().await;
    let patient = Events::open(&site.http, &site.apps("/v2/events")).await;
    let patient = tokio::spawn(read_until_last(patient));
    let spinning = tokio::spawn(subscribe_to_looping_filter(
        site.http.clone(),
        site.apps("/v2/events?filter=loop"),
    ));

    site.post_example("tcp.json").await;
    site.wait_until_running("/tcp", 1).await;
    wait_for_timeouts(&site, "hostile", 2).await;
    wait_for_timeouts(&site, "events", 1).await;

    // An app is posted, checked by the matcher, placed, started and probed while both components
    // loop.
    site.post_example("http.json").await;
    let tasks = site.wait_until_running("/http", 1).await;
    assert_eq!(tasks.len(), 1);
    let (hostile, filter) = (timeouts(&site, "hostile").await, timeouts(&site, "events").await);
    while timeouts(&site, "hostile").await < hostile + 3 || timeouts(&site, "events").await < filter + 1 {
        check_ports(&site).await;
        // Causes events that the filter has to process.
        let scaled = json!({"env": {"AGAIN": "and again"}});
        let url = site.apps("/v2/apps/http?force=true");
        let answer = site.http.put(&url).json(&scaled).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200);
    }
    site.tasks_when("/http", "a result of the check", |tasks| {
        !tasks.is_empty() && !tasks[0]["checkResult"]["http"].is_null()
    })
    .await;

    // Another subscriber of the same plugin received every event.
    site.post_app(&json!({"id": "/last", "cmd": "true", "instances": 0}))
        .await;
    patient.await.expect("every event up to the last app's");
    // The interrupted plugin is reported by name; other plugins are not reported.
    let url = site.apps("/v2/apps/tcp/tasks?embed=checkFailure");
    // On a busy machine an attempt may reach the check's own timeout before the plugin's limit.
    eventually("the plugin and its limit as the check's failure", || async {
        let tasks = site.get(&url).await?;
        let failure = &tasks["tasks"][0]["checkFailure"]["message"];
        match failure.as_str() {
            Some(it) if it.contains("`hostile`") && it.contains("limits.cpu") => Ok(()),
            _ => Err(tasks.to_string()),
        }
    })
    .await;
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

/// Logs 5,000 messages of eight megabytes in each attempt, without a loop or a function between the
/// calls into the host.
fn logging_probe() -> Plugin {
    let log = "(call $log (i32.const 0) (i32.const 131072) (i32.const 8000000))\n";
    let probe = HostileProbe {
        next: &log.repeat(5000),
        free_pages: 200,
        ..HostileProbe::default()
    };
    Plugin {
        wasm: probe.component(),
        manifest:
            "world = \"check-probe\"\n[limits]\nmemory = \"64MiB\"\ncpu = \"50ms\"\nwall-clock = \"5s\"\n\
                   [probation]\nmax-faults = 1000000\n"
                .to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_serves_and_stops_while_components_only_call_the_host() {
    let site = Site::start_with("[plugins.use]\ntcp = \"hostile\"\n").await;
    logging_probe().install(&site.plugins(), "hostile");
    site.rescan().await;
    site.post_example("http.json").await;
    site.wait_until_running("/http", 1).await;
    site.post_example("tcp.json").await;
    site.wait_until_running("/tcp", 1).await;
    site.scale("/tcp", 4).await;
    site.wait_until_running("/tcp", 4).await;
    let before = timeouts(&site, "hostile").await;
    while timeouts(&site, "hostile").await < before + 8 {
        check_ports(&site).await;
    }
    let url = site.apps("/v2/apps/tcp/tasks?embed=checkFailure");
    let failed = eventually("the limit as the check's failure", || async {
        let tasks = site.get(&url).await?;
        let failure = &tasks["tasks"][0]["checkFailure"]["message"];
        match failure.as_str() {
            Some(it) if it.contains("limits.cpu") => Ok(()),
            _ => Err(tasks.to_string()),
        }
    });
    failed.await;
    let (status, output) = site.daemon.expect("a daemon").terminate();
    assert!(
        status.success() && !output.contains("shutdown timeout"),
        "{status}: {output}"
    );
    site.cluster.stop();
}

/// Reports a JSON object of eight megabytes in every call.
fn giant_probe() -> Plugin {
    Plugin {
        manifest: "world = \"check-probe\"\n[limits]\nmemory = \"64MiB\"\noutput = \"16MiB\"\ncpu = \"5s\"\n\
                   wall-clock = \"20s\"\n[config]\nattempt = { do = \"output\", bytes = 8000000 }\n"
            .to_owned(),
        ..Plugin::test_guest("faulty-probe")
    }
}

/// The peak of a process's resident memory in MiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("its peak") / 1024
}

/// The sum of a metric over the series that have these labels.
async fn metric(site: &Site, name: &str, labels: &str) -> u64 {
    let answer = site
        .http
        .get(site.admin("/metrics"))
        .send()
        .await
        .expect("metrics");
    let text = answer.text().await.expect("text");
    let series = text.lines().filter_map(|line| line.strip_prefix(name));
    series
        .filter(|line| line.contains(labels))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_results_fail_checks_and_close_no_stream() {
    let site = Site::start_with("[plugins.use]\ntcp = \"hostile\"\n").await;
    giant_probe().install(&site.plugins(), "hostile");
    site.rescan().await;
    let mut plain = Events::open(&site.http, &site.apps("/v2/events")).await;
    let url = site.apps("/v2/events?event_type=check_result_changed_event&event_type=api_post_event");
    let mut checks = Events::open(&site.http, &url).await;
    site.post_app(&json!({
        "id": "/giant",
        "cmd": "sleep 600",
        "cpus": 0.05,
        "mem": 16,
        "instances": 10,
        "portDefinitions": [{"port": 0, "protocol": "tcp"}],
        "check": {"tcp": {"portIndex": 0}, "intervalSeconds": 11, "timeoutSeconds": 10, "delaySeconds": 0},
    }))
    .await;
    site.wait_until_running("/giant", 10).await;
    let too_large = "plugin `hostile`: result too large: 8000014 bytes, at most 4096";
    let tasks = eventually("every check to have failed for its size", || async {
        let tasks = site
            .get(&site.apps("/v2/apps/giant/tasks?embed=checkFailure"))
            .await?;
        let tasks = tasks["tasks"].as_array().cloned().unwrap_or_default();
        let failed = |task: &Value| task["checkFailure"]["message"] == too_large;
        if tasks.len() == 10 && tasks.iter().all(failed) {
            Ok(tasks)
        } else {
            Err(format!("{tasks:?}"))
        }
    })
    .await;
    for task in &tasks {
        assert_eq!(task["checkResult"], Value::Null, "{task}");
    }
    // After a second round of attempts both streams are still open and receive events.
    let looks = r#"kind="tcp""#;
    eventually("two looks at each", || async {
        match metric(&site, "transom_apps_checks_total", looks).await {
            enough if enough >= 20 => Ok(()),
            few => Err(few.to_string()),
        }
    })
    .await;
    site.post_app(&json!({"id": "/later", "cmd": "true", "instances": 0}))
        .await;
    for stream in [&mut plain, &mut checks] {
        while stream.next_of("api_post_event").await.data["appDefinition"]["id"] != "/later" {}
    }
    assert_eq!(
        metric(&site, "transom_apps_event_streams_closed_total", "").await,
        0
    );
    let status = plugin(&site, "hostile").await.expect("a status");
    assert_eq!(status["traps"], 0, "{status}");
    let status = plugin(&site, "events").await.expect("a status");
    assert_eq!(
        (&status["traps"], &status["timeouts"]),
        (&json!(0), &json!(0)),
        "{status}"
    );
    let peak = peak_memory(site.daemon.as_ref().expect("a daemon").pid());
    assert!(peak < 400, "the daemon had {peak} MiB resident");
    site.cluster.stop_after(site.daemon);
}

/// One event is too large, and the component traps on another one. Other events are sent, and no
/// stream is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeliverable_event_is_dropped_and_others_are_sent() {
    let site = Site::start().await;
    let url = site.apps("/v2/events?event_type=api_post_event");
    let mut stream = Events::open(&site.http, &url).await;
    let url = site.apps("/v2/events?event_type=event_too_large_event");
    let mut losses = Events::open(&site.http, &url).await;
    let app = |id: &str, text: &str| json!({"id": id, "cmd": "true", "instances": 0, "env": {"TEXT": text}});
    site.post_app(&app("/large", &"x".repeat(2 << 20))).await;
    site.post_app(&app("/small", "x")).await;
    let next = stream.next_of("api_post_event").await;
    assert_eq!(next.data["appDefinition"]["id"], "/small");
    let lost = losses.next_of("event_too_large_event").await;
    assert_eq!(
        (
            &lost.data["droppedEventType"],
            &lost.data["subject"],
            &lost.data["maxBytes"]
        ),
        (&json!("api_post_event"), &json!("/large"), &json!(1 << 20)),
        "{lost:?}"
    );
    let name = "transom_apps_events_dropped_total";
    assert_eq!(metric(&site, name, r#"reason="too-large""#).await, 1);

    // Another component replaces the filter while the streams stay open.
    let trapping = Plugin {
        manifest: "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n[config]\ntrap_on = [\"group_change_success\"]\n"
            .to_owned(),
        ..Plugin::test_guest("faulty-events")
    };
    trapping.install(&site.plugins(), "events");
    site.rescan().await;
    let mut all = Events::open(&site.http, &site.apps("/v2/events")).await;
    site.post_app(&app("/first", "x")).await;
    site.post_app(&app("/second", "x")).await;
    for id in ["/first", "/second"] {
        let next = stream.next_of("api_post_event").await;
        assert_eq!(next.data["appDefinition"]["id"], id);
        while all.next_of("api_post_event").await.data["appDefinition"]["id"] != id {}
    }
    eventually("what it traps on to be counted", || async {
        match metric(&site, name, r#"reason="undecided""#).await {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(
        metric(&site, "transom_apps_event_streams_closed_total", "").await,
        0
    );
    site.cluster.stop_after(site.daemon);
}

/// A probe with a grant for every address cannot connect to any port of the daemon or to a master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broad_grant_does_not_reach_the_daemon() {
    let site = Site::start_with("[plugins.use]\ntcp = \"hostile\"\n").await;
    let reaching = |network: &str, name: &str| {
        let to = match name {
            "master" => site.cluster.master,
            name => site.addresses[name],
        };
        Plugin {
            manifest: format!(
                "world = \"check-probe\"\n[grants]\nnetwork = [{network}]\n[limits]\nmemory = \"16MiB\"\n\
                 [config]\nattempt = {{ do = \"connect\", host = \"{}\", port = {} }}\n",
                to.ip(),
                to.port()
            ),
            ..Plugin::test_guest("faulty-probe")
        }
    };
    let check =
        json!({"tcp": {"portIndex": 0}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0});
    reaching("\"0.0.0.0/0\"", "admin").install(&site.plugins(), "hostile");
    site.rescan().await;
    site.post_app(&json!({
        "id": "/probed",
        "cmd": "sleep 600",
        "cpus": 0.05,
        "mem": 16,
        "portDefinitions": [{"port": 0, "protocol": "tcp"}],
        "check": check,
    }))
    .await;
    let broad = "\"0.0.0.0/0\", \"::/0\", \"127.0.0.0/8\", \"task\"";
    let mut stamp = 0;
    for name in ["admin", "apps", "discovery", "dns", "master"] {
        // A grant of this exact address permits the connection.
        let exact = match name {
            "master" => site.cluster.master,
            name => site.addresses[name],
        };
        for (network, result) in [(broad.to_owned(), "denied"), (format!("\"{exact}\""), "ok")] {
            stamp += 1;
            reaching(&network, name)
                .stamped(stamp)
                .install(&site.plugins(), "hostile");
            site.rescan().await;
            site.tasks_when("/probed", &format!("{name} to be {result}"), |tasks| {
                tasks.len() == 1 && tasks[0]["checkResult"] == json!({"plugin": {"connect": result}})
            })
            .await;
            if result == "denied" {
                // The counter starts at zero for each version, and the new manifest makes a new
                // version.
                eventually(&format!("a denial of {name} to be counted"), || async {
                    match status_of(&site, "denials").await {
                        0 => Err("none is".to_owned()),
                        _ => Ok(()),
                    }
                })
                .await;
                let wanted = exact.to_string();
                let owner = if name == "master" { "a master" } else { name };
                eventually(&format!("a denial of {name} in the log"), || async {
                    let output = site.daemon.as_ref().expect("a daemon").output();
                    let said = output.lines().any(|line| {
                        line.contains("plugin access denied")
                            && line.contains(&wanted)
                            && line.contains(owner)
                            && line.contains("/probed")
                    });
                    if said { Ok(()) } else { Err(output) }
                })
                .await;
            }
        }
    }
    site.cluster.stop_after(site.daemon);
}

async fn status_of(site: &Site, key: &str) -> u64 {
    let status = plugin(site, "hostile").await.expect("a status");
    status[key].as_u64().expect("a number")
}
