//! The work for small events, which must not grow with the size of the app: counted are the visits of
//! instances, not times.

use std::collections::BTreeSet;
use std::iter::once;
use std::sync::Arc;

use axum::response::Response;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_common::trace::TraceContext;
use transom_replicas::Condition;
use transom_scheduler::{PendingSnapshot, TaskRequest};
use transom_testkit::wait_for;

use super::sleeper;
use crate::api::app::{self, Embed};
use crate::api::group::{EmbeddedParts, group_response};
use crate::api::query::Query;
use crate::api::{deployments, pieces, pod_status, queue, tasks};
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::deploy::Deployment;
use crate::ids::GroupId;
use crate::instance::Instance;
use crate::model::Spec;
use crate::task::{LaunchSettings, run_spec};
use crate::testing::{self, World, operations};
use crate::time::Moment;

/// The visits of instances for ten status updates of one task of an app.
async fn work_of_updates(instances: u64, is_deploying: bool) -> usize {
    let world = World::start().await;
    let mut app = sleeper("/a");
    app["instances"] = json!(instances);
    world.send("POST", "/v2/apps", app).await;
    let app = world.settled("/a", instances).await;
    if is_deploying {
        world.scheduler.set_immediate_launches(false);
        let change = json!({"instances": instances + 1});
        let started = world.send("PUT", "/v2/apps/a", change).await;
        assert_eq!(started.status, 200, "{started:?}");
        world.scheduler.wait_until_submitted(1).await;
    }
    let task = app["tasks"][0]["id"].as_str().unwrap();
    operations::take();
    for _ in 0..10 {
        let before = world.published();
        world.scheduler.update(task, TaskState::Running, None);
        wait_for("the event of the update", async || world.published() > before).await;
    }
    let work = operations::take();
    world.stop().await;
    work
}

#[tokio::test]
async fn work_of_a_status_update_does_not_grow_with_the_app() {
    for is_deploying in [false, true] {
        // Small apps are counted again in debug builds.
        let (small, large) = (
            work_of_updates(25, is_deploying).await,
            work_of_updates(400, is_deploying).await,
        );
        assert!(
            0 < small && large <= 2 * small,
            "deploying: {is_deploying}; {small} and {large} visits"
        );
    }
}

/// The visits of instances while ten new instances of a restarted app begin to run, one after the other;
/// each replaces an old one.
async fn work_of_restart(instances: u64) -> usize {
    let world = World::start().await;
    let mut app = sleeper("/a");
    app["instances"] = json!(instances);
    world.send("POST", "/v2/apps", app).await;
    world.settled("/a", instances).await;
    world.scheduler.set_immediate_launches(false);
    let started = world
        .send("PUT", "/v2/apps/a", json!({"cmd": "sleep 2000"}))
        .await;
    assert_eq!(started.status, 200, "{started:?}");
    let new = world.scheduler.wait_until_submitted(instances as usize).await;
    operations::take();
    for task in &new[..10] {
        world.scheduler.launch(task.as_str()).await;
        world.scheduler.update(task.as_str(), TaskState::Running, None);
        wait_for("the end of an old task", async || {
            world.scheduler.running().len() as u64 == instances
        })
        .await;
    }
    let work = operations::take();
    world.stop().await;
    work
}

#[tokio::test]
async fn work_of_a_restart_for_each_instance_does_not_grow_with_the_app() {
    // Small apps are counted again in debug builds.
    let (small, large) = (work_of_restart(25).await, work_of_restart(400).await);
    assert!(
        0 < small && large <= 2 * small,
        "{small} and {large} visits of instances"
    );
}

/// Counts are read, not computed, by `/metrics` and by documents of apps.
#[tokio::test]
async fn counts_are_read_without_visits_of_instances() {
    let world = World::start().await;
    let mut app = sleeper("/a");
    app["instances"] = json!(30);
    world.send("POST", "/v2/apps", app).await;
    world.settled("/a", 30).await;
    operations::take();
    assert!(
        world
            .metrics()
            .contains("transom_apps_instances{condition=\"Running\"} 30.0")
    );
    assert_eq!(world.get("/v2/apps").await["apps"][0]["tasksRunning"], 30);
    assert_eq!(operations::take(), 1, "the entry of the app");
    world.stop().await;
}

/// The entries that are written until the first part of an answer is received, and the lengths of all
/// parts.
async fn parts(response: Response) -> (usize, Vec<usize>, Value) {
    operations::take();
    let mut parts = response.into_body().into_data_stream();
    let (mut first, mut lengths, mut text) = (None, Vec::new(), Vec::new());
    while let Some(part) = parts.next().await {
        let part = part.unwrap();
        first.get_or_insert_with(operations::take);
        lengths.push(part.len());
        text.extend_from_slice(&part);
    }
    (first.unwrap(), lengths, serde_json::from_slice(&text).unwrap())
}

/// An app with this number of running instances.
fn running(id: &str, instances: usize) -> Arc<SpecView> {
    running_instances(testing::app(&sleeper(id)).into(), instances)
}

fn running_instances(spec: Spec, instances: usize) -> Arc<SpecView> {
    let mut view = SpecView::of(spec);
    for _ in 0..instances {
        let mut instance = Instance::new(view.record.spec.id(), view.record.spec.version(), Moment::now());
        instance.replica.condition = Condition::Running;
        instance.set_record(&Arc::new(testing::record(instance.task())));
        view.instances.insert(instance.id.clone(), Arc::new(instance));
    }
    Arc::new(view)
}

#[tokio::test]
async fn long_answers_are_written_while_they_are_sent() {
    let pending = |view: &Arc<SpecView>| TaskRequest {
        id: view.record.spec.id().to_string().into(),
        spec: run_spec(&view.record.spec, BTreeSet::new(), &LaunchSettings::default()),
        not_before: None,
        priority: 0,
        reservation: None,
        trace: TraceContext::default(),
    };
    let views: Vec<Arc<SpecView>> = (0..2000).map(|n| running(&format!("/g/a{n:04}"), 3)).collect();
    let requests = views.iter().map(|view| (pending(view), Timestamp::UNIX_EPOCH));
    let queue = Arc::new(PendingSnapshot::of(requests, &Arc::default()));
    let mut snapshot = Snapshot::default();
    for view in &views {
        snapshot
            .specs
            .insert(view.record.spec.id().clone(), Arc::clone(view));
    }
    let big = running("/big", 6000);
    let container = json!({"name": "c", "resources": {"cpus": 0.1, "mem": 32}});
    let pod = testing::pod(&json!({"id": "/p", "containers": [container]}));
    let pod = running_instances(pod.into(), 2000);
    // A deployment of all apps in one step, and one of each after the other.
    let action = |view: &Arc<SpecView>| json!({"action": "ScaleApplication", "app": view.record.spec.id()});
    let actions: Vec<Value> = views.iter().map(action).collect();
    let step_each: Vec<Value> = actions
        .iter()
        .map(|action| json!({"actions": [action]}))
        .collect();
    for (id, steps) in [("all", json!([{"actions": actions}])), ("each", json!(step_each))] {
        let now = Moment::now();
        let change = json!({"version": now, "group": "/g", "specs": []});
        let deployment = json!({"id": id, "version": now, "steps": steps, "current": 0, "change": change});
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        let key = (deployment.version, deployment.id.clone());
        snapshot.deployments.insert(key, Arc::new(deployment));
    }
    let snapshot = Arc::new(snapshot);
    let query = Query::default();
    let tasks = tasks::response(views.into_iter(), |_| true, false);
    let group = group_response(Arc::clone(&snapshot), &GroupId::root(), EmbeddedParts::of(&query));
    let app = app::documents(once(big), Arc::clone(&snapshot), Embed::for_one(&query));
    let status = pod_status::documents(once(pod), None, |_| None);
    let deployments = deployments::documents(Arc::clone(&snapshot), false, false);
    let queue = queue::response(snapshot, queue, queue::Embed::of(&query));
    for (response, list, count) in [
        (tasks, "/tasks", 6000),
        (group, "/groups/0/apps", 2000),
        (queue, "/queue", 2000),
        (pieces::response("", "", app), "/tasks", 6000),
        (pieces::response("", "", status), "/instances", 2000),
        (
            pieces::response("{\"all\":[", "]}", deployments),
            "/all/0/currentActions",
            2000,
        ),
    ] {
        let (first, lengths, document) = parts(response).await;
        assert_eq!(document.pointer(list).unwrap().as_array().unwrap().len(), count);
        assert!(
            first < 600,
            "{list}: {first} of {count} entries before the first part"
        );
        let longest = lengths.iter().max().unwrap();
        assert!(lengths.len() > 5 && *longest < 80_000, "{list}: {lengths:?}");
    }
}
