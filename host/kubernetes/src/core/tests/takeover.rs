//! What a new leader takes over from the former one.

use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_scheduler::{SchedulerApi, TaskRecord};

use super::site::Site;
use crate::kind::Kind;

#[tokio::test]
async fn a_replacement_keeps_its_incarnation_when_its_script_is_prepared_again() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    *site.world.rejection.lock().unwrap() = Some("no plugin".to_owned());
    let failed = site.tasks(Kind::Agent).remove(0);
    site.scheduler.update(&failed, TaskState::Failed, None);
    site.wait_until("the reason", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("no plugin"))
    })
    .await;
    *site.world.rejection.lock().unwrap() = None;
    site.world.script.send_replace("#!/bin/sh\n# another\n");
    site.wait_until_settled().await;
    let replacement = TaskId::from(site.tasks(Kind::Agent).remove(0));
    let record = site.scheduler.tasks()[&replacement].clone();
    assert_eq!(record.metadata["incarnation"], 2);
}

/// Ends the leader, and gives the scheduler a former task of the first agent.
fn end_term(site: &Site, id: &str, change: impl FnOnce(&mut TaskRecord)) {
    let agent = TaskId::from(site.tasks(Kind::Agent).remove(0));
    let mut former = TaskRecord::clone(&site.scheduler.tasks()[&agent]);
    former.id = id.into();
    change(&mut former);
    site.scheduler.set_immediate_kills(false);
    site.token.cancel();
    site.scheduler.take_over(former);
}

fn abandon(record: &mut TaskRecord) {
    record.state = TaskState::Unreachable;
    record.status.as_mut().unwrap().state = TaskState::Unreachable;
    record.killing = true;
}

#[tokio::test]
async fn the_replacement_of_a_task_is_taken_over_and_not_the_former_task() {
    // The scheduler lists the former task first.
    const FORMER: &str = "0";
    let set_incarnation = |record: &mut TaskRecord, incarnation: u32| {
        let mut metadata = (*record.metadata).clone();
        metadata["incarnation"] = incarnation.into();
        record.metadata = metadata.into();
    };
    for is_killed in [true, false] {
        let site = Site::start(|_| {}).await;
        site.wait_until_settled().await;
        let agent = site.tasks(Kind::Agent);
        end_term(&site, FORMER, |record| {
            if is_killed {
                abandon(record);
                set_incarnation(record, 2);
            } else {
                set_incarnation(record, 0);
            }
        });
        let site = site.restarted(|_| {}).await;
        site.wait_until_settled().await;
        let view = site.views.get();
        let taken_over: Vec<&str> = view.tasks.agent.iter().map(|task| &*task.id).collect();
        assert_eq!(taken_over, agent, "{is_killed}");
        let tasks = site.scheduler.tasks();
        let is_killing = |task: &str| tasks[&TaskId::from(task)].killing;
        assert!(is_killing(FORMER) && !is_killing(&agent[0]));
    }
}

#[tokio::test]
async fn a_task_that_was_killed_on_an_unreachable_agent_is_not_taken_over() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let agent = site.tasks(Kind::Agent);
    end_term(&site, "0", |record| {
        abandon(record);
        record.metadata = serde_json::json!({"kind": "agent", "number": 1, "incarnation": 1}).into();
    });
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    let view = site.views.get();
    assert_eq!((view.tasks.agent.len(), &view.tasks.agent[0].id), (1, &agent[0]));
}
