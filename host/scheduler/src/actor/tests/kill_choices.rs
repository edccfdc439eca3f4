//! Kill selections: which instances of a run spec to kill.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use transom_cluster::TaskId;

use super::rig::Rig;
use crate::testing::spec;
use crate::{KillChoice, RunSpec, SchedulerApi};

impl Rig {
    fn request_kills(&self, candidates: &[&str], count: u32) {
        self.request_kills_of("/app", candidates, count);
    }

    fn request_kills_of(&self, run_spec: &str, candidates: &[&str], count: u32) {
        self.scheduler.select_kills(KillChoice {
            spec: Arc::new(RunSpec {
                instances: 1,
                ..spec(run_spec)
            }),
            candidates: candidates.iter().copied().map(TaskId::from).collect(),
            count,
        });
    }
}

#[tokio::test]
async fn matcher_selects_among_candidates_that_have_not_ended() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    rig.start_another_task("t3").await;
    rig.start_another_task("t4").await;
    rig.master.update("t4", "TASK_FAILED", "failed");
    assert_eq!(rig.event_text().await, "updated t4 TASK_FAILED");
    rig.request_kills(&["t3", "t4", "t1", "never-launched", "t2"], 2);
    assert_eq!(rig.event_text().await, "of /app kill t2 t1");
    let (task, agents) = rig.script.last_call.lock().unwrap().clone().unwrap();
    assert_eq!((task.run_spec.as_str(), task.instances), ("/app", 1));
    assert_eq!(task.placed.len(), 3);
    assert!(task.placed.iter().all(|handle| agents[handle].id == "a1"));
}

#[tokio::test]
async fn kill_selection_waits_for_the_matcher_and_a_later_one_replaces_it() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    rig.start_another_task("t3").await;
    rig.script.is_missing.store(true, Ordering::SeqCst);
    rig.request_kills(&["t1", "t2"], 1);
    rig.wait_for_turn().await;
    rig.request_kills(&["t1", "t3"], 1);
    rig.wait_for_turn().await;
    rig.script.is_missing.store(false, Ordering::SeqCst);
    rig.script.changed.notify_one();
    assert_eq!(rig.event_text().await, "of /app kill t3");
    // The first selection gets no answer.
    rig.request_kills(&["t2", "t1"], 1);
    assert_eq!(rig.event_text().await, "of /app kill t1");
}

#[tokio::test]
async fn kill_selection_waits_for_the_subscription() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    rig.request_kills(&["t1", "t2"], 1);
    assert_eq!(rig.event_text().await, "reregistered");
    assert_eq!(rig.event_text().await, "of /app kill t2");
}

#[tokio::test]
async fn failed_kill_selection_stops_neither_launches_nor_other_selections() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    rig.script
        .fails_kills_of
        .lock()
        .unwrap()
        .insert("/bad".to_owned());
    rig.request_kills_of("/bad", &["t1", "t2"], 1);
    rig.wait_for_turn().await;
    rig.start_another_task("t3").await;
    rig.request_kills_of("/good", &["t1", "t2"], 1);
    rig.wait_for_turn().await;
    rig.script.changed.notify_one();
    assert_eq!(rig.event_text().await, "of /good kill t2");
    rig.script.fails_kills_of.lock().unwrap().clear();
    rig.script.changed.notify_one();
    assert_eq!(rig.event_text().await, "of /bad kill t2");
}
