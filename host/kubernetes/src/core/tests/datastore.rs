//! A datastore whose agent is unreachable.

use std::slice;
use std::time::Duration;

use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_plugin_host::matcher::Constraint;
use transom_scheduler::SchedulerApi;
use transom_testkit::wait_for;

use super::super::command::Command;
use super::site::Site;
use crate::kind::Kind;
use crate::settings::Engine;

const NODE_TIMEOUT: Duration = Duration::from_millis(300);

/// A site whose only datastore is unreachable, and the task of that datastore.
async fn unreachable(engine: Engine) -> (Site, String) {
    let site = Site::start(|config| {
        config.settings.ds_etcd = engine == Engine::Kvstore;
        config.settings.orch_node_timeout = NODE_TIMEOUT.into();
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

/// The operands of the constraints of the datastore that waits for an offer; `None`: none waits.
fn requested_hosts(site: &Site) -> Option<Vec<String>> {
    let submitted = site.scheduler.submitted();
    let request = submitted
        .iter()
        .find(|task| task.spec.id.ends_with("datastore"))?;
    let operand = |constraint: &Constraint| match constraint {
        Constraint::Field { operand, .. } => operand.clone().unwrap_or_default(),
        Constraint::Expression(expression) => format!("{expression:?}"),
    };
    Some(request.spec.constraints.iter().map(operand).collect())
}

async fn wait_for_request(site: &Site, hosts: &[&str]) {
    wait_for("the request", async || {
        requested_hosts(site).is_some_and(|found| found == hosts)
    })
    .await;
}

#[tokio::test]
async fn the_only_datastore_starts_again_only_where_its_data_are() {
    for engine in [Engine::Sql, Engine::Kvstore] {
        let site = Site::start(|config| config.settings.ds_etcd = engine == Engine::Kvstore).await;
        site.wait_until_settled().await;
        site.scheduler.set_immediate_launches(false);
        let failed = site.tasks(Kind::Datastore).remove(0);
        let host = site.scheduler.tasks()[&TaskId::from(&*failed)]
            .agent
            .hostname
            .clone();
        let pinned = format!("(?i){}", host.replace('.', "\\."));
        site.scheduler.update(&failed, TaskState::Failed, Some("crashed"));
        wait_for_request(&site, &[&pinned]).await;
        site.wait_until("the reason", |view| {
            let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
            reasons.any(|reason| reason.contains(&format!("agent {host}")) && reason.contains("fw move"))
        })
        .await;
        // A new leader, another constraint and a stopped cluster do not change it.
        let site = site
            .restarted(|config| config.kinds.datastore.constraint = Some("elsewhere".to_owned()))
            .await;
        wait_for_request(&site, &[&pinned]).await;
        site.ask(|reply| Command::Stop { reply }).await.unwrap();
        site.wait_until("the end", |view| view.tasks.datastore.is_empty())
            .await;
        site.ask(|reply| Command::Start { reply }).await.unwrap();
        wait_for_request(&site, &[&pinned]).await;

        site.ask(|reply| Command::MoveDatastore { reply }).await.unwrap();
        wait_for_request(&site, &["(?i)elsewhere"]).await;
    }
}

#[tokio::test]
async fn a_datastore_with_volumes_of_the_network_starts_on_any_agent() {
    let site = Site::start(|config| config.settings.volume_driver = "rexray".to_owned()).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_launches(false);
    let failed = site.tasks(Kind::Datastore).remove(0);
    site.scheduler.update(&failed, TaskState::Failed, None);
    wait_for_request(&site, &[]).await;
}

#[tokio::test]
async fn a_changed_datastore_starts_with_the_same_volume_when_the_former_one_has_ended() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_kills(false);
    let former = site.tasks(Kind::Datastore).remove(0);
    let site = site
        .restarted(|config| config.settings.image_sql = "mariadb:10.8.4".to_owned())
        .await;
    site.wait_until("the wait for the end of the former one", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("its former task has ended"))
    })
    .await;
    assert_eq!(site.tasks(Kind::Datastore), slice::from_ref(&former));
    site.scheduler.update(&former, TaskState::Killed, None);
    site.wait_until_settled().await;
    let view = site.views.get();
    let numbers: Vec<u32> = view.tasks.datastore.iter().map(|task| task.number).collect();
    assert_eq!(numbers, [0]);
    assert_ne!(site.tasks(Kind::Datastore), [former]);
}

#[tokio::test]
async fn a_datastore_that_was_moved_starts_on_another_agent() {
    let (site, former) = unreachable(Engine::Sql).await;
    site.scheduler.set_immediate_kills(false);
    site.ask(|reply| Command::MoveDatastore { reply }).await.unwrap();
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
