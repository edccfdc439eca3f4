//! What a new leader takes over from the former one.

use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_scheduler::SchedulerApi;

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
