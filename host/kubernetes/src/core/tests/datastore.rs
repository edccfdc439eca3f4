//! A datastore whose agent is unreachable.

use std::slice;
use std::time::Duration;

use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_scheduler::SchedulerApi;

use super::site::Site;
use crate::config::Engine;
use crate::kind::Kind;

const NODE_TIMEOUT: Duration = Duration::from_millis(300);

/// A site whose only datastore is unreachable, and the task of that datastore.
async fn unreachable(engine: Engine) -> (Site, String) {
    let site = Site::start(|config| {
        config.datastore.engine = engine;
        config.orchestrator.node_timeout = NODE_TIMEOUT;
    })
    .await;
    site.wait_until_settled().await;
    let datastore = site.tasks(Kind::Datastore).remove(0);
    site.scheduler.update(&datastore, TaskState::Unreachable, None);
    site.wait_until("the reason", |view| {
        let reason = "the agent of datastore 0 is unreachable";
        view.waiting.iter().any(|it| it.reason.starts_with(reason))
    })
    .await;
    (site, datastore)
}

#[tokio::test]
async fn the_only_datastore_waits_for_its_agent() {
    for engine in [Engine::Sql, Engine::Kvstore] {
        let (site, datastore) = unreachable(engine).await;
        tokio::time::sleep(NODE_TIMEOUT * 2).await;
        // A new leader waits as well.
        let site = site.restarted(|_| {}).await;
        tokio::time::sleep(NODE_TIMEOUT * 2).await;
        assert_eq!(
            site.tasks(Kind::Datastore),
            slice::from_ref(&datastore),
            "{engine:?}"
        );
        site.scheduler.update(&datastore, TaskState::Running, None);
        site.wait_until_settled().await;
        assert_eq!(site.tasks(Kind::Datastore), [datastore], "{engine:?}");
    }
}

#[tokio::test]
async fn a_datastore_that_was_scaled_to_0_and_back_starts_on_another_agent() {
    let (site, former) = unreachable(Engine::Sql).await;
    site.scheduler.set_immediate_kills(false);
    site.scale(Kind::Datastore, 0).await.unwrap();
    site.scale(Kind::Datastore, 1).await.unwrap();
    site.wait_until("another datastore", |view| {
        view.ready && view.tasks.datastore.len() == 1
    })
    .await;
    let view = site.views.get();
    let datastore = &view.tasks.datastore[0];
    assert_eq!(datastore.number, 0);
    assert_ne!(datastore.id, former);
    assert!(site.scheduler.tasks()[&TaskId::from(&*former)].killing);
    // The agent of the former one returns before its task has ended.
    site.scheduler.update(&former, TaskState::Running, None);
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    let after = site.views.get();
    assert_eq!(
        (after.tasks.datastore.len(), &after.tasks.datastore[0].id),
        (1, &datastore.id)
    );
}
