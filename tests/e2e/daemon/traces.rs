//! OpenTelemetry traces, received by a stand-in for a collector. One trace leads from a request
//! over the deployment to the launch and the call of the matcher.

use serde_json::{Value, json};
use transom_testkit::{eventually, free_port};
use transom_tests::collector::{Collector, Received};
use transom_tests::site::Site;

/// The id of a trace that a client started.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn telemetry(collector: &Collector, more: &str) -> String {
    format!(
        "[telemetry]\notlp_endpoint = \"http://{}\"\notlp_headers = {{authorization = \"Bearer opensesame\"}}\n\
         resource_attributes = {{\"deployment.environment.name\" = \"test\"}}\n{more}\n",
        collector.address
    )
}

fn app(id: &str) -> Value {
    json!({
        "id": id, "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16,
        "constraints": [["hostname", "LIKE", ".*"]],
    })
}

/// Creates an app in the client's trace. `flags` is `01` if the client samples the trace.
async fn post_traced(site: &Site, id: &str, flags: &str) {
    let posted = site
        .http
        .post(site.apps("/v2/apps"))
        .header("traceparent", format!("00-{TRACE}-{PARENT}-{flags}"))
        .json(&app(id));
    let answer = posted.send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
}

/// Waits until `found` returns a value for the received spans.
async fn wait_for_spans<T>(collector: &Collector, what: &str, found: impl Fn(&Received) -> Option<T>) -> T {
    eventually(what, || async {
        let received = collector.received();
        let spans: Vec<_> = received.spans.iter().map(|span| received.path(span)).collect();
        found(&received).ok_or_else(|| format!("{spans:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_has_the_request_the_launch_and_the_call_of_the_matcher() {
    let collector = Collector::start().await;
    let site = Site::start_with(&telemetry(&collector, "")).await;
    post_traced(&site, "/traced", "01").await;
    site.wait_until_running("/traced", 1).await;
    let below = ["deployment_step", "POST /v2/apps"];
    let received = wait_for_spans(&collector, "the spans of the launch", |received| {
        let has = |name: &str| {
            let wanted: Vec<String> = [name].iter().chain(&below).map(|&name| name.to_owned()).collect();
            let mut spans = received.spans.iter().filter(|span| span.trace == TRACE);
            spans.any(|span| received.path(span) == wanted)
        };
        let called = received.named("plugin_call").into_iter().any(|call| {
            let path = received.path(call);
            path.first_chunk() == Some(&["plugin_call".to_owned(), "match".to_owned()])
        });
        (has("launch") && has("match") && called).then(|| received.clone())
    })
    .await;

    let ours = |name| {
        let spans = received.named(name).into_iter();
        spans.filter(|span| span.trace == TRACE).collect::<Vec<_>>()
    };
    let requests = ours("POST /v2/apps");
    assert_eq!(requests.len(), 1, "{requests:?}");
    let request = requests[0];
    assert_eq!(request.parent, PARENT);
    assert_eq!(request.attributes["http.route"], "/v2/apps");
    assert_eq!(request.attributes["http.response.status_code"], "201");
    assert_eq!(request.resource["service.name"], "transom");
    assert_eq!(request.resource["deployment.environment.name"], "test");
    let edits = ours("edit");
    assert!(
        edits.iter().all(|edit| edit.parent == request.id) && edits.len() == 1,
        "{edits:?}"
    );

    let launches = ours("launch");
    assert_eq!(launches.len(), 1, "{launches:?}");
    let launch = launches[0];
    let events: Vec<(&str, &str)> = launch
        .events
        .iter()
        .flat_map(|(name, attributes)| attributes.values().map(|value| (name.as_str(), value.as_str())))
        .collect();
    assert!(events.contains(&("accept", "true")), "{events:?}");
    assert!(events.contains(&("status", "TASK_RUNNING")), "{events:?}");
    assert!(launch.attributes["task"].starts_with("traced."), "{launch:?}");

    let calls = ours("plugin_call");
    for call in &calls {
        assert_eq!(call.attributes["plugin"], "attributes", "{call:?}");
        assert_eq!(call.attributes["outcome"], "ok", "{call:?}");
        assert!(call.attributes["version"].contains('+'), "{call:?}");
        assert!(
            call.attributes["cpu_seconds"].parse::<f64>().expect("a number") > 0.0,
            "{call:?}"
        );
    }
    assert!(!calls.is_empty());

    let headers = &received.headers[0];
    assert_eq!(headers["authorization"], "Bearer opensesame");
    assert_eq!(headers["content-type"], "application/x-protobuf");
    // The secret is in no log line.
    let (status, output) = site.daemon.expect("a daemon").interrupt();
    assert!(status.success(), "{output}");
    assert!(!output.contains("opensesame"), "{output}");
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_is_not_sampled_is_not_exported() {
    let collector = Collector::start().await;
    let site = Site::start_with(&telemetry(&collector, "sample_ratio = 0.0")).await;
    site.post_app(&app("/silent")).await;
    site.wait_until_running("/silent", 1).await;
    // The daemon adopts the client's sampling decision, so this trace is exported.
    post_traced(&site, "/traced", "01").await;
    site.wait_until_running("/traced", 1).await;
    wait_for_spans(&collector, "the client's trace", |received| {
        (!received.named("launch").is_empty()).then_some(())
    })
    .await;
    let (status, output) = site.daemon.expect("a daemon").interrupt();
    assert!(status.success(), "{output}");
    // A daemon that stops exports all of its spans first.
    let received = collector.received();
    assert!(
        received.spans.iter().all(|span| span.trace == TRACE),
        "{:?}",
        received.spans
    );
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_changes_nothing_for_clients() {
    let dead = format!(
        "[telemetry]\notlp_endpoint = \"http://127.0.0.1:{}\"\n",
        free_port()
    );
    let site = Site::start_with(&dead).await;
    post_traced(&site, "/a", "01").await;
    site.wait_until_running("/a", 1).await;
    for n in 0..20 {
        let path = format!("/v2/apps/absent-{n}");
        let answer = site.http.get(site.apps(&path)).send().await.expect("an answer");
        assert_eq!(answer.status(), 404);
    }
    let (status, output) = site.daemon.expect("a daemon").interrupt();
    assert!(status.success(), "{output}");
    assert_eq!(
        output.matches("exporting spans failed").count(),
        1,
        "logged once: {output}"
    );
    site.cluster.stop();
}
