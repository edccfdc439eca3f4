//! Metrics of what the API shows.

use serde_json::json;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::World;

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
        "transom_apps_unhealthy 0.0",
        "transom_apps_instances{condition=\"Running\"} 2.0",
        "transom_apps_events_total{kind=\"deployment_success\"} 1",
    ] {
        wait_for(line, async || world.metrics().contains(&format!("\n{line}\n"))).await;
    }
    world.stop().await;
}
