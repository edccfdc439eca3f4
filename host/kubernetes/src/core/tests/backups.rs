//! Backups and restores, with a scripted scheduler and scripted sandboxes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use transom_cluster::TaskId;
use transom_cluster::v1::{TaskInfo, TaskState};
use transom_scheduler::{SchedulerApi, TaskRequest};
use transom_testkit::{HeldStore, eventually, wait_for};

use super::super::command::{Command, Rejection};
use super::site::Site;
use crate::backup::directory::Directory;
use crate::backup::{Manifest, Phase};
use crate::config::Config;
use crate::kind::Kind;
use crate::settings::Engine;
use crate::testing::placement;

const DATA: &str = "the data";

pub(super) async fn start(folder: &Path, engine: Engine, change: impl FnOnce(&mut Config)) -> Site {
    let site = Site::start(|config| {
        config.settings.ds_etcd = engine == Engine::Kvstore;
        config.settings.backup.dir = Some(folder.to_owned());
        change(config);
    })
    .await;
    site.wait_until_settled().await;
    site
}

fn phase(site: &Site) -> Option<Phase> {
    let view = site.views.get();
    view.backup.operation.as_ref().map(|operation| operation.phase)
}

pub(super) async fn wait_for_phase(site: &Site, expected: Option<Phase>) {
    eventually("the phase", || async {
        let view = site.views.get();
        if phase(site) == expected {
            Ok(())
        } else {
            Err(format!("expected {expected:?}: {:?}", view.backup))
        }
    })
    .await;
}

/// The running one-off task.
pub(super) async fn running_one_off(site: &Site) -> String {
    eventually("a one-off task", || async {
        let tasks = site.scheduler.tasks();
        let mut one_offs = tasks
            .values()
            .filter(|record| record.run_spec == "m3s:backup" && record.state == TaskState::Running);
        let one_off = one_offs.next().map(|record| record.id.to_string());
        one_off.ok_or_else(|| format!("{:?}", site.views.get().backup))
    })
    .await
}

/// Ends the running one-off task with this result.
pub(super) async fn finish(site: &Site, result: &str) {
    let task = running_one_off(site).await;
    for (name, text) in [("result", result), ("backup", DATA)] {
        let file = (task.clone(), name.to_owned());
        site.world
            .files
            .lock()
            .unwrap()
            .insert(file, text.as_bytes().to_vec());
    }
    let done = result.starts_with("done");
    let state = if done {
        TaskState::Finished
    } else {
        TaskState::Failed
    };
    site.scheduler.update(&task, state, None);
    site.scheduler.wait_until_purged(&task).await;
}

fn digest() -> String {
    format!("{:x}", Sha256::digest(DATA))
}

pub(super) async fn back_up(site: &Site) -> String {
    let name = site.ask(|reply| Command::BackUp { reply }).await.unwrap();
    finish(site, &format!("done {}", digest())).await;
    wait_for_phase(site, None).await;
    name
}

fn manifest(folder: &Path, name: &str) -> Manifest {
    Directory::new(folder, "m3s").find(name).unwrap()
}

pub(super) async fn restore(site: &Site, folder: &Path, name: &str) {
    let manifest = manifest(folder, name);
    site.ask(|reply| Command::Restore { manifest, reply })
        .await
        .unwrap();
}

/// Waits for the next request of these tasks, and then launches it. The caller must have paused
/// launches before it triggers the request.
pub(super) async fn requested(site: &Site, run_spec: &str) -> TaskRequest {
    let request = eventually(run_spec, || async {
        let requests = site.scheduler.submitted();
        let found = requests
            .iter()
            .find(|request| request.spec.id == run_spec)
            .cloned();
        found.ok_or_else(|| format!("{:?}", site.views.get().backup))
    })
    .await;
    site.scheduler.set_immediate_launches(true);
    site.scheduler.launch_all();
    request
}

pub(super) fn info(request: &TaskRequest) -> TaskInfo {
    let build = request.spec.build.task().unwrap();
    build.build(&placement(request.id.as_str(), &[31001])).unwrap()
}

#[tokio::test]
async fn backup_is_read_from_the_sandbox_of_its_task() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Sql, |_| {}).await;
    site.scheduler.set_immediate_launches(false);
    let name = site.ask(|reply| Command::BackUp { reply }).await.unwrap();
    let request = requested(&site, "m3s:backup").await;
    let second = site.ask(|reply| Command::BackUp { reply }).await;
    assert!(
        matches!(second, Err(Rejection::OperationUnderWay(_))),
        "{second:?}"
    );
    assert_eq!(running_one_off(&site).await, request.id.as_str());
    let view = site.views.get();
    assert!(view.ready, "a backup stops nothing");
    assert!(view.waiting[0].reason.contains(&name), "{:?}", view.waiting);
    let text = serde_json::to_value(info(&request)).unwrap();
    let line = text["command"]["value"].as_str().unwrap();
    assert!(line.contains("'m3sdatastore.local'"), "{line}");
    assert!(!line.contains("password"), "{line}");
    let variables = text["command"]["environment"]["variables"].as_array().unwrap();
    let password = variables.iter().find(|it| it["name"] == "MYSQL_PWD").unwrap();
    let password = password["value"].as_str().unwrap();
    let found = text.to_string().matches(password).count();
    assert_eq!(
        found, 1,
        "the datastore's password, in the environment only: {text}"
    );
    assert_eq!(text["container"]["docker"]["image"], "docker.io/mariadb:10.8.3");

    finish(&site, &format!("done {}", digest())).await;
    wait_for_phase(&site, None).await;
    let directory = Directory::new(folder.path(), "m3s");
    let found = manifest(folder.path(), &name);
    directory.verify(&found).unwrap();
    assert_eq!(found.size, DATA.len() as u64);
    let token = site.ask(|reply| Command::Token { reply }).await.unwrap();
    assert_eq!(found.token.as_ref(), Some(&token));
    // The store of another daemon has another token until it restores the backup.
    let other_folder = tempfile::tempdir().unwrap();
    let other = start(other_folder.path(), Engine::Sql, |_| {}).await;
    let present = async || other.ask(|reply| Command::Token { reply }).await.unwrap();
    assert_ne!(present().await, token);
    let manifest = found.clone();
    std::fs::copy(
        directory.data_path(&name),
        Directory::new(other_folder.path(), "m3s").data_path(&name),
    )
    .unwrap();
    let agents = other.tasks(Kind::Agent);
    other
        .ask(|reply| Command::Restore { manifest, reply })
        .await
        .unwrap();
    wait_for_phase(&other, Some(Phase::Load)).await;
    finish(&other, "done").await;
    wait_for_phase(&other, None).await;
    assert_eq!(present().await, token);
    other
        .wait_until("agents with the token", |view| {
            view.ready && view.tasks.agent.iter().all(|task| !agents.contains(&task.id))
        })
        .await;
    let state = site.views.get().backup.clone();
    assert_eq!(state.last_success.unwrap().size, found.size);
    assert_eq!(state.last_backup.unwrap().problem, None);
}

#[tokio::test]
async fn failed_backup_reports_the_reason_and_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Sql, |_| {}).await;
    for (result, expected) in [
        ("failed mysqldump: no route", "mysqldump: no route"),
        ("done abc", "digest"),
    ] {
        site.ask(|reply| Command::BackUp { reply }).await.unwrap();
        finish(&site, result).await;
        wait_for_phase(&site, None).await;
        let outcome = site.views.get().backup.last_backup.clone().unwrap();
        let problem = outcome.problem.unwrap();
        assert!(problem.contains(expected), "{problem}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn lost_tasks_are_replaced_and_a_backup_that_takes_too_long_fails() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Sql, |_| {}).await;
    site.ask(|reply| Command::BackUp { reply }).await.unwrap();
    for _ in 0..3 {
        let task = running_one_off(&site).await;
        site.scheduler.update(&task, TaskState::Lost, Some("agent gone"));
        site.scheduler.wait_until_purged(&task).await;
    }
    wait_for_phase(&site, None).await;
    let problem = site.views.get().backup.last_backup.clone().unwrap().problem;
    let problem = problem.unwrap();
    assert!(problem.contains("agent gone"), "{problem}");

    let site = site
        .restarted(|config| config.settings.backup.timeout = Duration::from_millis(300).into())
        .await;
    site.wait_until_settled().await;
    site.ask(|reply| Command::BackUp { reply }).await.unwrap();
    let task = running_one_off(&site).await;
    site.scheduler.wait_until_purged(&task).await;
    wait_for_phase(&site, None).await;
    let problem = site.views.get().backup.last_backup.clone().unwrap().problem;
    assert_eq!(
        problem.as_deref(),
        Some("its task did not end within the timeout")
    );
}

#[tokio::test]
async fn a_lost_task_is_kept_until_its_replacement_is_stored() {
    let store_timeout = Duration::from_millis(200);
    let folder = tempfile::tempdir().unwrap();
    let mut site = start(folder.path(), Engine::Sql, |_| {}).await;
    let store = HeldStore::new(Arc::clone(&site.store));
    site.store = store.clone();
    let site = site
        .restarted(|config| config.store_timeout = store_timeout)
        .await;
    site.wait_until_settled().await;
    site.ask(|reply| Command::BackUp { reply }).await.unwrap();
    let lost = running_one_off(&site).await;
    store.hold_after(0);
    site.scheduler.update(&lost, TaskState::Lost, None);
    store.wait_until_held().await;
    tokio::time::sleep(store_timeout * 2).await;
    assert!(site.scheduler.tasks().contains_key(&TaskId::from(&*lost)));
    store.release();
    site.scheduler.wait_until_purged(&lost).await;
    site.wait_until("the replacement", |view| {
        let operation = view.backup.operation.as_ref();
        operation.is_some_and(|operation| operation.lost == 1 && operation.task.as_ref() != Some(&lost))
    })
    .await;
}

#[tokio::test]
async fn sql_restore_stops_servers_and_keeps_agents_and_datastore_running() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Sql, |config| config.kinds.agent.count = 2).await;
    let name = back_up(&site).await;
    let (server, agents, datastore) = (
        site.tasks(Kind::Server),
        site.tasks(Kind::Agent),
        site.tasks(Kind::Datastore),
    );
    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    assert_eq!(site.tasks(Kind::Server), [""; 0]);
    assert!(!site.views.get().ready);
    let rejected = site.scale(Kind::Datastore, 0).await;
    assert!(
        matches!(rejected, Err(Rejection::OperationUnderWay(_))),
        "{rejected:?}"
    );
    finish(&site, "done").await;
    wait_for_phase(&site, None).await;
    site.wait_until_settled().await;
    assert_ne!(site.tasks(Kind::Server), server);
    assert_eq!(site.tasks(Kind::Agent), agents);
    assert_eq!(site.tasks(Kind::Datastore), datastore);
    let outcome = site.views.get().backup.last_restore.clone().unwrap();
    assert_eq!((outcome.backup, outcome.problem), (name, None));
}

#[tokio::test]
async fn failed_sql_restore_starts_servers_only_with_complete_data() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Sql, |_| {}).await;
    let name = back_up(&site).await;
    restore(&site, folder.path(), &name).await;
    finish(&site, "undone mysql: refused").await;
    wait_for_phase(&site, None).await;
    site.wait_until_settled().await;
    let problem = site.views.get().backup.last_restore.clone().unwrap().problem;
    assert_eq!(
        problem.as_deref(),
        Some("mysql: refused; the former data is back")
    );

    restore(&site, folder.path(), &name).await;
    finish(&site, "broken mysql: refused").await;
    wait_for_phase(&site, Some(Phase::Held)).await;
    let rejected = site.ask(|reply| Command::BackUp { reply }).await;
    assert!(
        matches!(rejected, Err(Rejection::OperationUnderWay(_))),
        "{rejected:?}"
    );
    // The servers stay stopped under a new leader.
    let site = site.restarted(|_| {}).await;
    site.wait_until("the reason", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("mysql: refused") && reason.contains("stay stopped"))
    })
    .await;
    assert_eq!(site.tasks(Kind::Server), [""; 0]);
    // Another restore is allowed.
    restore(&site, folder.path(), &name).await;
    finish(&site, "broken again").await;
    wait_for_phase(&site, Some(Phase::Held)).await;
    site.ask(|reply| Command::Start { reply }).await.unwrap();
    site.wait_until_settled().await;
    let problem = site.views.get().backup.last_restore.clone().unwrap().problem;
    assert_eq!(problem.as_deref(), Some("again"));
}

#[tokio::test]
async fn kvstore_starts_again_with_the_backup() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Kvstore, |_| {}).await;
    let name = back_up(&site).await;
    site.scheduler.set_immediate_launches(false);
    restore(&site, folder.path(), &name).await;
    let request = requested(&site, "m3s:datastore").await;
    running_one_off(&site).await;
    let command = info(&request).command.unwrap();
    let line = command.value.unwrap();
    let (_, start) = line.rsplit_once(") || exit 1\n").unwrap();
    assert!(
        start.contains("exec /usr/local/bin/etcd --listen-client-urls"),
        "{line}"
    );
    assert!(
        line.contains("snapshot restore") && line.contains(&digest()),
        "{line}"
    );
    let url = command.uris[0].value.clone();
    let prefix = format!("http://fw.test:10000/backup/{}/", digest());
    assert!(url.starts_with(&prefix), "{url}");
    let token = url.rsplit('/').next().unwrap();
    assert!(site.delivery.get(&digest(), token).is_some());
    let constraints = format!("{:?}", request.spec.constraints);
    assert!(
        constraints.contains("agent1"),
        "its data is on that host: {constraints}"
    );
    assert_eq!(site.tasks(Kind::Server), [""; 0]);
    finish(&site, "done").await;
    wait_for_phase(&site, None).await;
    site.wait_until_settled().await;
    assert!(site.delivery.get(&digest(), token).is_none());
    let datastore = site.tasks(Kind::Datastore);
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    assert_eq!(
        site.tasks(Kind::Datastore),
        datastore,
        "the datastore is not replaced"
    );
}

#[tokio::test]
async fn kvstore_that_does_not_start_from_a_backup_gets_its_former_data_back() {
    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Kvstore, |_| {}).await;
    let name = back_up(&site).await;
    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    running_one_off(&site).await;
    site.scheduler.set_immediate_launches(false);
    finish(&site, "failed etcdctl: unhealthy").await;
    let request = requested(&site, "m3s:datastore").await;
    wait_for_phase(&site, Some(Phase::Revert)).await;
    let line = info(&request).command.unwrap().value.unwrap();
    assert!(line.contains("former data"), "{line}");
    assert_eq!(site.tasks(Kind::Server), [""; 0]);
    finish(&site, "done").await;
    wait_for_phase(&site, None).await;
    site.wait_until_settled().await;
    let problem = site
        .views
        .get()
        .backup
        .last_restore
        .clone()
        .unwrap()
        .problem
        .unwrap();
    assert!(
        problem.contains("etcdctl: unhealthy") && problem.ends_with("the former data is back"),
        "{problem}"
    );

    restore(&site, folder.path(), &name).await;
    wait_for_phase(&site, Some(Phase::Load)).await;
    finish(&site, "failed first").await;
    wait_for_phase(&site, Some(Phase::Revert)).await;
    finish(&site, "failed second").await;
    wait_for_phase(&site, Some(Phase::Held)).await;
    assert_eq!(site.tasks(Kind::Server), [""; 0]);
}

#[tokio::test]
async fn operations_continue_under_a_new_leader_in_each_phase() {
    for engine in [Engine::Sql, Engine::Kvstore] {
        let folder = tempfile::tempdir().unwrap();
        let site = start(folder.path(), engine, |_| {}).await;
        let name = site.ask(|reply| Command::BackUp { reply }).await.unwrap();
        let task = running_one_off(&site).await;
        let site = site.restarted(|_| {}).await;
        assert_eq!(
            running_one_off(&site).await,
            task,
            "the task of the former daemon is taken over"
        );
        // It ends while no daemon runs.
        let result = format!("done {}", digest());
        let files = [("result", result.as_bytes()), ("backup", DATA.as_bytes())];
        for (file, text) in files {
            let key = (task.clone(), file.to_owned());
            site.world.files.lock().unwrap().insert(key, text.to_vec());
        }
        site.token.cancel();
        site.scheduler.update(&task, TaskState::Finished, None);
        let site = site.restarted(|_| {}).await;
        wait_for_phase(&site, None).await;
        manifest(folder.path(), &name);

        restore(&site, folder.path(), &name).await;
        let site = site.restarted(|_| {}).await;
        wait_for_phase(&site, Some(Phase::Load)).await;
        let task = running_one_off(&site).await;
        let site = site.restarted(|_| {}).await;
        assert_eq!(running_one_off(&site).await, task);
        assert_eq!(site.tasks(Kind::Server), [""; 0]);
        *site.world.silent.lock().unwrap() = true;
        finish(&site, "done").await;
        wait_for_phase(&site, Some(Phase::Resume)).await;
        let site = site.restarted(|_| {}).await;
        wait_for_phase(&site, Some(Phase::Resume)).await;
        *site.world.silent.lock().unwrap() = false;
        wait_for_phase(&site, None).await;
        site.wait_until_settled().await;
        let outcome = site.views.get().backup.last_restore.clone().unwrap();
        assert_eq!(outcome.problem, None, "{engine:?}");
    }
}

#[tokio::test]
async fn operations_that_are_not_possible_are_rejected() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let rejected = site.ask(|reply| Command::BackUp { reply }).await;
    assert!(
        matches!(rejected, Err(Rejection::NoBackupDirectory)),
        "{rejected:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let site = start(folder.path(), Engine::Sql, |_| {}).await;
    let name = back_up(&site).await;
    let datastore = site.tasks(Kind::Datastore).remove(0);
    site.scheduler.report_health(&datastore, false);
    wait_for("a backup to be rejected as unhealthy", async || {
        let rejected = site.ask(|reply| Command::BackUp { reply }).await;
        if matches!(rejected, Err(Rejection::DatastoreNotHealthy)) {
            return true;
        }
        // The backup began before the failed health check was processed.
        if phase(&site).is_some() {
            finish(&site, "failed").await;
        }
        false
    })
    .await;

    let manifest = manifest(folder.path(), &name);
    site.ask(|reply| Command::MoveDatastore { reply }).await.unwrap();
    let site = site.restarted(|config| config.settings.ds_etcd = true).await;
    let rejected = site.ask(|reply| Command::Restore { manifest, reply }).await;
    assert!(
        matches!(
            rejected,
            Err(Rejection::OtherEngine {
                backup: "sql",
                datastore: "kvstore"
            })
        ),
        "{rejected:?}"
    );
    let site = site.restarted(|config| config.kinds.datastore.count = 0).await;
    let rejected = site.ask(|reply| Command::BackUp { reply }).await;
    assert!(
        matches!(rejected, Err(Rejection::DatastoreOutside)),
        "{rejected:?}"
    );
}
