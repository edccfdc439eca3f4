//! Metrics: each is compared after the action that it counts.
#![allow(clippy::float_cmp, reason = "counts are exact")]

use std::time::Duration;

use serde_json::json;
use transom_cluster::v1::TaskState;
use transom_plugin_host::probe::{Failure, Outcome, Reason};
use transom_testkit::wait_for;

use super::sleeper;
use crate::Config;
use crate::testing::World;

impl World {
    /// The value of a series; 0 if there is none yet.
    fn metric(&self, series: &str) -> f64 {
        let text = self.metrics();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_default()
    }

    async fn wait_for_metric(&self, series: &str, expected: f64) {
        wait_for(&format!("{series} {expected}"), async || {
            (self.metric(series) - expected).abs() < f64::EPSILON
        })
        .await;
    }
}

#[tokio::test]
async fn state_is_counted_at_each_scrape() {
    let world = World::start().await;
    assert!(world.metrics().contains("\ntransom_apps_apps 0"));
    let mut app = sleeper("/a/b");
    app["instances"] = json!(2);
    world.send("POST", "/v2/apps", app).await;
    for line in [
        "transom_apps_apps 1.0",
        "transom_apps_pods 0.0",
        "transom_apps_deployments_running 0.0",
        "transom_apps_queue_waiting 0.0",
        "transom_apps_queue_backoff 0.0",
        "transom_apps_unhealthy 0.0",
        "transom_apps_instances{condition=\"Running\"} 2.0",
        "transom_apps_events_total{kind=\"deployment_success\"} 1",
    ] {
        wait_for(line, async || world.metrics().contains(&format!("\n{line}\n"))).await;
    }
    world.stop().await;
}

const SUCCEEDED: &str = "transom_apps_deployments_total{outcome=\"succeeded\"}";
const CANCELLED: &str = "transom_apps_deployments_total{outcome=\"cancelled\"}";
const FAILED: &str = "transom_apps_deployments_total{outcome=\"failed\"}";

#[tokio::test]
async fn deployments_count_by_how_they_end() {
    let world = World::start().await;
    for series in [SUCCEEDED, CANCELLED, FAILED] {
        assert!(world.metrics().contains(&format!("\n{series} 0\n")), "{series}");
    }
    world.send("POST", "/v2/apps", sleeper("/a")).await;
    world.settled("/a", 1).await;
    world.wait_for_metric(SUCCEEDED, 1.0).await;
    world
        .wait_for_metric("transom_apps_deployment_seconds_count", 1.0)
        .await;
    // A change that affects no instance is not counted as a deployment.
    let labelled = world.send(
        "PUT",
        "/v2/apps/a",
        json!({"upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0.5}}),
    );
    assert_eq!(labelled.await.status, 200);
    assert_eq!(world.metric(SUCCEEDED), 1.0);

    // New tasks are not launched from here on, so no deployment completes.
    world.scheduler.set_immediate_launches(false);
    let ids = [json!({"instances": 2}), json!({"instances": 3})];
    for change in ids {
        let forced = world.send("PUT", "/v2/apps/a?force=true", change).await;
        assert_eq!(forced.status, 200, "{forced:?}");
    }
    world.wait_for_metric(CANCELLED, 1.0).await;
    let running = world.get("/v2/deployments").await[0]["id"].clone();
    let path = format!("/v2/deployments/{}?force=true", running.as_str().unwrap());
    assert_eq!(world.call("DELETE", &path, None).await.status, 202);
    world.wait_for_metric(CANCELLED, 2.0).await;
    assert_eq!(world.metric(FAILED), 0.0);
    assert_eq!(world.metric("transom_apps_deployment_seconds_count"), 3.0);
    world.stop().await;
}

#[tokio::test]
async fn deployment_that_misses_its_deadline_counts_as_failed() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let started = world
        .send("POST", "/v2/apps?deadline=1&onDeadline=fail", sleeper("/a"))
        .await;
    assert_eq!(started.status, 201, "{started:?}");
    world.wait_for_metric(FAILED, 1.0).await;
    assert_eq!((world.metric(SUCCEEDED), world.metric(CANCELLED)), (0.0, 0.0));
    assert!(world.metric("transom_apps_deployment_seconds_sum") >= 1.0);
    world.stop().await;
}

#[tokio::test]
async fn launch_lasts_from_the_request_to_running_and_counts_once() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    world.send("POST", "/v2/apps", sleeper("/a")).await;
    let task = world.scheduler.wait_until_submitted(1).await.remove(0);
    // The delay that the histogram must include.
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.scheduler.launch(task.as_str()).await;
    world.scheduler.update(task.as_str(), TaskState::Starting, None);
    assert_eq!(world.metric("transom_apps_launch_seconds_count"), 0.0);
    world.scheduler.update(task.as_str(), TaskState::Running, None);
    world
        .wait_for_metric("transom_apps_launch_seconds_count", 1.0)
        .await;
    let first = world.metric("transom_apps_launch_seconds_sum");
    assert!(first >= 0.1, "{first}");
    world.settled("/a", 1).await;
    // A task that returns from an unreachable agent is not counted as a launch; the replacement of
    // a failed task is.
    world
        .scheduler
        .update(task.as_str(), TaskState::Unreachable, None);
    world.scheduler.update(task.as_str(), TaskState::Running, None);
    world.scheduler.set_immediate_launches(true);
    world.scheduler.update(task.as_str(), TaskState::Failed, None);
    world
        .wait_for_metric("transom_apps_launch_seconds_count", 2.0)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn apps_whose_launch_is_delayed_are_counted_until_the_delay_is_reset() {
    let world = World::start().await;
    let mut app = sleeper("/a");
    app["backoffSeconds"] = json!(600);
    world.send("POST", "/v2/apps", app).await;
    world.settled("/a", 1).await;
    assert_eq!(world.metric("transom_apps_queue_backoff"), 0.0);
    world.scheduler.set_immediate_launches(false);
    let task = world.scheduler.running().remove(0);
    world.scheduler.update(task.as_str(), TaskState::Failed, None);
    world.wait_for_metric("transom_apps_queue_backoff", 1.0).await;
    assert_eq!(world.call("DELETE", "/v2/queue/a/delay", None).await.status, 204);
    world.wait_for_metric("transom_apps_queue_backoff", 0.0).await;
    assert_eq!(world.metric("transom_apps_queue_waiting"), 1.0);
    world.stop().await;
}

#[tokio::test]
async fn probes_are_counted_by_outcome_and_agents_results_when_they_change() {
    let world = World::start().await;
    let series = |outcome| {
        format!("transom_apps_checks_total{{purpose=\"health\",kind=\"http\",outcome=\"{outcome}\"}}")
    };
    let timed_out = Failure {
        reason: Reason::TimedOut,
        message: "timeout".to_owned(),
    };
    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(200));
    let check = json!({"protocol": "HTTP", "intervalSeconds": 1, "gracePeriodSeconds": 600, "maxConsecutiveFailures": 0});
    let mut app = sleeper("/web");
    app["portDefinitions"] = json!([{"port": 0}]);
    app["healthChecks"] = json!([check]);
    assert_eq!(world.send("POST", "/v2/apps", app).await.status, 201);
    for (result, outcome) in [
        (Ok(Outcome::Http(200)), "passed"),
        (Ok(Outcome::Http(503)), "failed"),
        (Err(timed_out), "timed-out"),
    ] {
        *world.components.probe.lock().unwrap() = result;
        wait_for(outcome, async || world.metric(&series(outcome)) >= 1.0).await;
    }
    assert!(world.metric("transom_apps_probe_lateness_seconds_count{purpose=\"health\"}") >= 3.0);
    assert_eq!(world.metric("transom_apps_probes_scheduled"), 1.0);

    let task = world.scheduler.running().remove(0);
    let of_agent =
        |outcome| format!("transom_apps_agent_checks_total{{purpose=\"health\",outcome=\"{outcome}\"}}");
    for healthy in [true, true, false] {
        world.scheduler.report_health(task.as_str(), healthy);
    }
    world.wait_for_metric(&of_agent("failed"), 1.0).await;
    assert_eq!(world.metric(&of_agent("passed")), 1.0);
    world.stop().await;
}

#[tokio::test]
async fn requests_commits_and_turns_are_timed() {
    let world = World::start().await;
    let before = world.metric("transom_apps_store_commit_seconds_count");
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a/b")).await.status, 201);
    world.settled("/a/b", 1).await;
    assert_eq!(world.call("GET", "/v2/apps//absent", None).await.status, 404);
    assert_eq!(world.call("GET", "/v2/absent", None).await.status, 404);
    let _stream = world.listen("").await;
    for series in [
        "transom_apps_api_requests_total{route=\"/v2/apps\",method=\"POST\",status=\"201\"}",
        "transom_apps_api_requests_total{route=\"/v2/apps/{*path}\",method=\"GET\",status=\"404\"}",
        "transom_apps_api_requests_total{route=\"unmatched\",method=\"GET\",status=\"404\"}",
        "transom_apps_api_requests_total{route=\"/v2/events\",method=\"GET\",status=\"200\"}",
        "transom_apps_api_seconds_count{route=\"/v2/events\"}",
    ] {
        world.wait_for_metric(series, 1.0).await;
    }
    // One commit for the request, and one for the end of its deployment.
    let commits = world.metric("transom_apps_store_commit_seconds_count") - before;
    assert!(commits >= 2.0, "{commits}");
    assert!(
        !world.metrics().contains("/a/b"),
        "a metric contains the id of an app"
    );
    world.stop().await;
}

#[tokio::test]
async fn commit_and_turn_contain_the_time_of_a_slow_store() {
    let config = Config {
        store_timeout: Duration::from_millis(200),
        ..Config::default()
    };
    let world = World::start_with(config).await;
    world.store.hold_after(0);
    // The commit fails after the timeout.
    let rejected = world.send("POST", "/v2/apps", sleeper("/a")).await;
    assert_eq!(rejected.status, 503, "{rejected:?}");
    assert!(world.metric("transom_apps_store_commit_seconds_sum") >= 0.2);
    wait_for("the turn ends", async || {
        world.metric("transom_apps_turn_seconds_sum") >= 0.2
    })
    .await;
    world.store.release();
    world.stop().await;
}
