//! Restores into a kvstore of several members, and restores after one that is stuck.

use std::path::Path;

use transom_cluster::v1::TaskState;

use super::backups::{back_up, finish, info, requested, restore, running_one_off, start, wait_for_phase};
use super::kvstore::kvstore;
use super::site::Site;
use crate::backup::Phase;
use crate::kind::Kind;
use crate::settings::Engine;

/// A kvstore of three members, and the name of a backup of it.
async fn three_members(folder: &Path) -> (Site, String) {
    let site = start(folder, Engine::Kvstore, kvstore(3)).await;
    let name = back_up(&site).await;
    site.world.etcd.lock().unwrap().done.clear();
    (site, name)
}

/// The events of a restore: one member gets the backup, and the others join it.
const RESTORED: &[&str] = &[
    "restore m3sdatastore",
    "join m3sdatastore-1",
    "join m3sdatastore-2",
];

/// Reports the datastore as healthy, and waits until the restore has ended.
async fn finish_restore(site: &Site) {
    finish(site, "done").await;
    wait_for_phase(site, None).await;
    site.wait_until_settled().await;
}

fn happened(site: &Site) -> Vec<String> {
    std::mem::take(&mut site.world.etcd.lock().unwrap().done)
}

/// Ends both other members, and launches no replacements.
async fn lose_quorum(site: &Site) {
    site.scheduler.set_immediate_launches(false);
    for member in &site.views.get().tasks.datastore[1..] {
        site.scheduler.update(&member.id, TaskState::Lost, None);
    }
    site.wait_until("a lost quorum", |view| {
        view.waiting
            .iter()
            .any(|it| it.reason.contains("the kvstore has no quorum"))
    })
    .await;
}

#[tokio::test]
async fn first_member_gets_the_backup_and_the_others_join_it() {
    let folder = tempfile::tempdir().unwrap();
    let (site, name) = three_members(folder.path()).await;
    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    assert_eq!(site.tasks(Kind::Server), [""; 0]);
    finish_restore(&site).await;
    let removed = ["remove m3sdatastore-2", "remove m3sdatastore-1"];
    assert_eq!(happened(&site), [&removed[..], RESTORED].concat());
    assert_eq!(
        site.views.get().backup.last_restore.clone().unwrap().problem,
        None
    );
    let members = site.tasks(Kind::Datastore);
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    assert_eq!(site.tasks(Kind::Datastore), members, "no member is replaced");
}

#[tokio::test]
async fn a_kvstore_without_a_quorum_is_restored_on_the_host_of_the_remaining_member() {
    let folder = tempfile::tempdir().unwrap();
    let (site, name) = three_members(folder.path()).await;
    lose_quorum(&site).await;
    restore(&site, folder.path(), &name).await;
    let request = requested(&site, "m3s:datastore").await;
    let constraints = format!("{:?}", request.spec.constraints);
    assert!(constraints.contains("LIKE"), "bound to its host: {constraints}");
    finish_restore(&site).await;
    assert_eq!(happened(&site), RESTORED);
}

#[tokio::test]
async fn a_kvstore_without_running_members_is_restored_on_any_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (site, name) = three_members(folder.path()).await;
    lose_quorum(&site).await;
    let left = site.views.get().tasks.datastore[0].id.clone();
    site.scheduler.update(&left, TaskState::Lost, None);
    site.wait_until("no member", |view| {
        view.tasks
            .datastore
            .iter()
            .all(|task| task.state.as_deref() != Some("TASK_RUNNING"))
    })
    .await;
    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    let request = requested(&site, "m3s:datastore").await;
    let constraints = format!("{:?}", request.spec.constraints);
    assert!(!constraints.contains("LIKE"), "{constraints}");
    // A new leader continues with the same member.
    let site = site.restarted(|_| {}).await;
    finish_restore(&site).await;
    assert_eq!(happened(&site), RESTORED);
}

#[tokio::test]
async fn all_members_return_to_their_data_when_a_restore_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (site, name) = three_members(folder.path()).await;
    lose_quorum(&site).await;
    site.scheduler.set_immediate_launches(true);
    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    running_one_off(&site).await;
    finish(&site, "failed etcdctl: unhealthy").await;
    wait_for_phase(&site, Some(Phase::Revert)).await;
    finish_restore(&site).await;
    let mut happened = happened(&site);
    assert_eq!(happened.remove(0), "restore m3sdatastore");
    happened.sort();
    let expected = [
        "return m3sdatastore-1",
        "return m3sdatastore-2",
        "revert m3sdatastore",
    ];
    assert_eq!(happened, expected);
    let outcome = site.views.get().backup.last_restore.clone().unwrap();
    let problem = outcome.problem.unwrap();
    assert!(problem.ends_with("the former data is back"), "{problem}");
}

#[tokio::test]
async fn a_restore_after_one_that_is_stuck_keeps_the_first_former_data() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Kvstore, |_| {}).await;
    let name = back_up(&site).await;
    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    let first = operation(&site);
    finish(&site, "failed first").await;
    wait_for_phase(&site, Some(Phase::Revert)).await;
    finish(&site, "failed second").await;
    wait_for_phase(&site, Some(Phase::Held)).await;

    for attempt in ["second", "third"] {
        site.scheduler.set_immediate_launches(false);
        restore(&site, folder.path(), &name).await;
        let request = requested(&site, "m3s:datastore").await;
        assert_ne!(operation(&site), first, "{attempt}");
        let line = info(&request).command.unwrap().value.unwrap();
        assert!(line.contains(&format!("before-{first}\"")), "{attempt}: {line}");
        finish(&site, "failed first").await;
        wait_for_phase(&site, Some(Phase::Revert)).await;
        finish(&site, "failed second").await;
        wait_for_phase(&site, Some(Phase::Held)).await;
    }
}

/// The id of the operation under way.
fn operation(site: &Site) -> String {
    let view = site.views.get();
    view.backup.operation.as_ref().unwrap().id.clone()
}
