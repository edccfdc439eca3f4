//! Explanations of where a pending member may run.

use http::StatusCode;
use transom_cluster::v1::TaskState;
use transom_framework::Explain;

use super::Site;
use crate::kind::Kind;

/// Asserts that the explanation of a member is rejected with this status and this part of the message.
async fn is_rejected(site: &Site, id: &str, status: StatusCode, part: &str) {
    let error = site.explainer.explain(id).await.expect_err(id);
    assert_eq!(error.status(), status, "{id}: {}", error.message());
    assert!(error.message().contains(part), "{id}: {}", error.message());
}

#[tokio::test]
async fn pending_member_is_explained_with_the_run_spec_of_its_request() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_launches(false);
    site.scale(Kind::Agent, 3).await.unwrap();
    let requested = site.scheduler.wait_until_submitted(2).await;
    let view = site.views.get();
    let task = view.tasks.agent.iter().find(|task| task.number == 2).unwrap();
    assert!(requested.iter().any(|id| id.as_str() == task.id), "{requested:?}");
    let explained = site.explainer.explain("agent/2").await.unwrap();
    assert_eq!(explained.id, "agent/2");
    assert_eq!(
        (explained.matchers.constraints, explained.matchers.instances),
        (vec!["m3s:agent".to_owned()], 3)
    );
    for (id, status, part) in [
        ("agent/0", StatusCode::CONFLICT, "TASK_RUNNING on agent1.test"),
        ("agent/3", StatusCode::NOT_FOUND, "`GET /api/fw/v0/explain`"),
        ("agent", StatusCode::BAD_REQUEST, "for example server/0"),
        ("pod/0", StatusCode::BAD_REQUEST, "for example server/0"),
        ("agent/x", StatusCode::BAD_REQUEST, "for example server/0"),
    ] {
        is_rejected(&site, id, status, part).await;
    }
}

#[tokio::test]
async fn member_that_is_not_requested_is_rejected_with_the_reason() {
    let site = Site::start(|config| config.kinds.agent.count = 0).await;
    site.wait_until("a server", |view| view.running(Kind::Server) == 1)
        .await;
    *site.world.rejection.lock().unwrap() = Some("no such script".to_owned());
    site.scale(Kind::Agent, 1).await.unwrap();
    site.wait_until("the reason", |view| {
        view.waiting
            .iter()
            .any(|waiting| waiting.reason.contains("no such script"))
    })
    .await;
    is_rejected(&site, "agent/0", StatusCode::CONFLICT, "no such script").await;
}

#[tokio::test]
async fn checks_of_members_cannot_be_executed_for_operators() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let view = site.views.get();
    let reason = |kind: Kind| {
        site.explainer
            .probe_rejection(&view.tasks.of(kind)[0].id)
            .unwrap()
    };
    assert!(reason(Kind::Datastore).contains("health check the cluster's agent makes"));
    assert!(reason(Kind::Server).contains("has no check"));
    assert_eq!(site.explainer.probe_rejection("absent"), None);
}

#[tokio::test]
async fn the_end_of_a_failed_task_is_explained_until_the_next_one_may_start() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let text = "Memory limits can only be set on tasks launched in Mesos containers";
    let agent = site.tasks(Kind::Agent).remove(0);
    site.scheduler.update(&agent, TaskState::Dropped, Some(text));
    let expected = format!("the last agent that failed ended with TASK_DROPPED, {text}");
    site.wait_until("the text of the cluster's agent", |view| {
        view.waiting.iter().any(|waiting| waiting.reason == expected)
    })
    .await;
    site.wait_until_settled().await;
    site.wait_until("no reason", |view| view.waiting.is_empty()).await;
}

#[tokio::test]
async fn tasks_that_keep_failing_are_one_problem_with_the_last_message() {
    let site = Site::start(|_| {}).await;
    for _ in 0..3 {
        site.wait_until_settled().await;
        let agent = site.tasks(Kind::Agent).remove(0);
        site.scheduler
            .update(&agent, TaskState::Failed, Some("Command exited with status 1"));
        site.wait_until("the end of the task", |view| {
            view.tasks.agent.iter().all(|task| task.id != agent)
        })
        .await;
    }
    site.wait_until("the problem", |view| {
        let [one] = &view.failing[..] else { return false };
        let end = "last: TASK_FAILED, Command exited with status 1";
        (one.name, one.count, one.hosts.len()) == ("agent", 3, 1) && one.message.ends_with(end)
    })
    .await;
}
