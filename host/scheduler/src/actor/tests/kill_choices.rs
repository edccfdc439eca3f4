//! Kill selections: which instances of a run spec to kill.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use transom_cluster::TaskId;

use super::rig::Rig;
use crate::testing::spec;
use crate::{KillChoice, RunSpec, SchedulerApi};

impl Rig {
    fn ask(&self, candidates: &[&str], count: u32) {
        self.ask_for("/app", candidates, count);
    }

    fn ask_for(&self, run_spec: &str, candidates: &[&str], count: u32) {
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
    rig.running("t1").await;
    rig.running_too("t2").await;
    rig.running_too("t3").await;
    rig.running_too("t4").await;
    rig.master.update("t4", "TASK_FAILED", "failed");
    assert_eq!(rig.heard().await, "updated t4 TASK_FAILED");
    rig.ask(&["t3", "t4", "t1", "never-launched", "t2"], 2);
    assert_eq!(rig.heard().await, "of /app kill t2 t1");
    let (task, agents) = rig.script.asked.lock().unwrap().clone().unwrap();
    assert_eq!((task.run_spec.as_str(), task.instances), ("/app", 1));
    assert_eq!(task.placed.len(), 3);
    assert!(task.placed.iter().all(|handle| agents[handle].id == "a1"));
}

#[tokio::test]
async fn kill_selection_waits_for_the_matcher_and_a_later_one_replaces_it() {
    let mut rig = Rig::new().await;
    rig.running("t1").await;
    rig.running_too("t2").await;
    rig.running_too("t3").await;
    rig.script.missing.store(true, Ordering::SeqCst);
    rig.ask(&["t1", "t2"], 1);
    rig.turn().await;
    rig.ask(&["t1", "t3"], 1);
    rig.turn().await;
    rig.script.missing.store(false, Ordering::SeqCst);
    rig.script.changed.notify_one();
    assert_eq!(rig.heard().await, "of /app kill t3");
    // The first selection gets no answer.
    rig.ask(&["t2", "t1"], 1);
    assert_eq!(rig.heard().await, "of /app kill t1");
}

#[tokio::test]
async fn kill_selection_waits_for_the_subscription() {
    let mut rig = Rig::new().await;
    rig.running("t1").await;
    rig.running_too("t2").await;
    rig.master.hang_up();
    assert_eq!(rig.heard().await, "disconnected");
    rig.ask(&["t1", "t2"], 1);
    assert_eq!(rig.heard().await, "reregistered");
    assert_eq!(rig.heard().await, "of /app kill t2");
}

#[tokio::test]
async fn failed_kill_selection_stops_neither_launches_nor_other_selections() {
    let mut rig = Rig::new().await;
    rig.running("t1").await;
    rig.running_too("t2").await;
    rig.script
        .fails_kills_of
        .lock()
        .unwrap()
        .insert("/bad".to_owned());
    rig.ask_for("/bad", &["t1", "t2"], 1);
    rig.turn().await;
    rig.running_too("t3").await;
    rig.ask_for("/good", &["t1", "t2"], 1);
    rig.turn().await;
    rig.script.changed.notify_one();
    assert_eq!(rig.heard().await, "of /good kill t2");
    rig.script.fails_kills_of.lock().unwrap().clear();
    rig.script.changed.notify_one();
    assert_eq!(rig.heard().await, "of /bad kill t2");
}
