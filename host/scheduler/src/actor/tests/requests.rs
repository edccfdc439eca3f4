//! Requests of the service, which never wait, are merged, are repeated while the store fails, and
//! may be rejected.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use transom_cluster::v1;

use super::rig::Rig;
use crate::testing::{offer, spec, task_request};
use crate::{BuildTask, Placement, RunSpec, SchedulerApi};

#[tokio::test]
async fn purge_is_repeated_and_precedes_a_later_submission_while_the_store_fails() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.update("t1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    rig.store.down.store(true, Ordering::SeqCst);
    rig.scheduler.purge(vec!["t1".into()]);
    // Another run of the same id, which must be neither lost nor mistaken for the purged one.
    rig.scheduler
        .submit(vec![task_request("t1", &Arc::new(spec("/app")))]);
    for _ in 0..2 {
        rig.store.rejected.notified().await;
    }
    assert!(rig.record("t1").is_some());
    assert!(rig.scheduler.pending().is_empty());
    rig.store.down.store(false, Ordering::SeqCst);
    rig.master.offer(&[offer("o2", "a1", 4.0, &[])]);
    while rig.scheduler.pending().is_empty() && rig.master.calls("ACCEPT").len() < 2 {
        rig.wait_for_turn().await;
    }
    rig.master.offer(&[offer("o3", "a1", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
}

#[tokio::test]
async fn failing_purge_does_not_delay_a_kill_while_the_store_fails() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    rig.master.update("t1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    rig.store.down.store(true, Ordering::SeqCst);
    rig.scheduler.purge(vec!["t1".into()]);
    rig.store.rejected.notified().await;
    rig.scheduler.kill(vec!["t2".into()], None);
    let kill = rig.master.call("KILL", 1).await;
    assert_eq!(kill.body["kill"]["task_id"]["value"], "t2");
    rig.store.down.store(false, Ordering::SeqCst);
    while rig.record("t1").is_some() {
        rig.wait_for_turn().await;
    }
}

#[tokio::test]
async fn task_killed_before_it_was_taken_is_reported_and_not_killed_at_the_master() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.scheduler.shared.requests.add(|requests| {
        requests.submit(task_request("t1", &Arc::new(spec("/app"))));
        requests.kill(&"t1".into(), crate::api::request_queue::Kill::default());
    });
    assert_eq!(rig.event_text().await, "never launched t1");
    assert!(rig.scheduler.pending().is_empty());
    rig.wait_for_turn().await;
    assert!(rig.master.calls("KILL").is_empty());
}

#[tokio::test]
async fn rejected_purge_does_not_prevent_the_purge_of_other_tasks() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    rig.master.update("t2", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t2 TASK_FINISHED");
    rig.scheduler.purge(vec!["t1".into(), "t2".into()]);
    let rejected = rig.event_text().await;
    assert!(
        rejected.starts_with("rejected t1: task `t1` is not terminal"),
        "{rejected}"
    );
    assert!(rig.record("t1").is_some() && rig.record("t2").is_none());
}

/// A builder that wants no task `unwanted`.
#[derive(Debug)]
struct Selective;

impl BuildTask for Selective {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        (placement.task.as_str() != "unwanted").then(v1::TaskInfo::default)
    }
}

#[tokio::test]
async fn task_that_its_builder_no_longer_wants_is_dropped_without_a_launch() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let spec = RunSpec {
        build: Arc::new(Selective).into(),
        ..spec("/app")
    };
    rig.submit(&Arc::new(spec), &["unwanted", "wanted"]).await;
    rig.master.offer(&[offer("o1", "a1", 4.0, &[])]);
    let mut event_texts = [rig.event_text().await, rig.event_text().await];
    event_texts.sort();
    assert_eq!(
        event_texts,
        ["launched wanted TASK_STAGING", "never launched unwanted"]
    );
    assert!(rig.scheduler.pending().is_empty() && rig.record("unwanted").is_none());
    let accept = rig.master.call("ACCEPT", 1).await;
    let launched = &accept.body["accept"]["operations"][0]["launch"]["task_infos"];
    assert_eq!(launched.as_array().unwrap().len(), 1);
}
