//! Status updates, and the end of the subscription, during a call of the matcher and a large launch.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use transom_cluster::v1;
use transom_testkit::eventually;

use super::rig::Rig;
use crate::testing::{SleepBuilder, offer, spec};
use crate::{BuildTask, Placement, RunSpec};

/// A running task `t1`, and a call of the matcher for task `t2` that waits until it is released.
async fn rig_during_a_call() -> Rig {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.call("ACKNOWLEDGE", 1).await;
    *rig.script.held.lock().unwrap() = Some("/held".to_owned());
    rig.submit(&Arc::new(spec("/held")), &["t2"]).await;
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    eventually("a call of the matcher", async || {
        let last = rig.script.last_call.lock().unwrap();
        match last.as_ref() {
            Some((task, _)) if task.run_spec == "/held" => Ok(()),
            last => Err(format!("{last:?}")),
        }
    })
    .await;
    rig
}

#[tokio::test]
async fn status_update_is_stored_and_acknowledged_during_a_call() {
    let mut rig = rig_during_a_call().await;
    rig.master.update("t1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    rig.master.call("ACKNOWLEDGE", 2).await;
    assert_eq!(rig.master.calls("ACCEPT").len(), 1, "the call has not ended");
    rig.script.released.notify_one();
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
}

#[tokio::test]
async fn offers_of_a_subscription_that_ended_during_a_call_are_not_accepted() {
    let mut rig = rig_during_a_call().await;
    // From now on, events are read during the call.
    rig.master.update("t1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    rig.master.hang_up();
    rig.master.call("SUBSCRIBE", 2).await;
    rig.script.released.notify_one();
    assert_eq!(rig.event_text().await, "disconnected");
    assert!(rig.event_text().await.starts_with("reregistered"));
    *rig.script.held.lock().unwrap() = None;
    rig.master.offer(&[offer("o3", "a2", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
    let accepted = rig.master.calls("ACCEPT");
    assert_eq!(accepted.len(), 2, "{accepted:?}");
    let last = format!("{:?}", accepted[1]);
    assert!(last.contains("o3") && !last.contains("o2"), "{last}");
}

/// A builder that tells when it is first called, and takes long for each task until it is told to
/// be fast.
#[derive(Debug, Default)]
struct SlowBuilder {
    has_begun: tokio::sync::Notify,
    is_fast: Mutex<bool>,
    changed: Condvar,
}

impl BuildTask for SlowBuilder {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        self.has_begun.notify_one();
        let (is_fast, limit) = (self.is_fast.lock().unwrap(), Duration::from_millis(500));
        let _guard = self
            .changed
            .wait_timeout_while(is_fast, limit, |is_fast| !*is_fast)
            .unwrap();
        SleepBuilder.build(placement)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn status_update_is_handled_while_many_tasks_are_built() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    let builder = Arc::new(SlowBuilder::default());
    let spec = RunSpec {
        mem: 10.0,
        build: Arc::clone(&builder).into(),
        ..spec("/slow")
    };
    let tasks: Vec<String> = (0..60).map(|number| format!("slow{number}")).collect();
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    rig.submit(&Arc::new(spec), &tasks).await;
    rig.master.offer(&[offer("o2", "a2", 30.0, &[])]);
    builder.has_begun.notified().await;
    rig.master.update("t1", "TASK_FINISHED", "end");
    // Events are in order, so no task has been launched yet.
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    *builder.is_fast.lock().unwrap() = true;
    builder.changed.notify_all();
    assert!(rig.event_text().await.starts_with("launched slow"));
}
