//! A kvstore whose members start, move and end.

use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::TaskState;
use transom_store::typed::TypedStore;
use transom_testkit::wait_for;

use super::super::command::{Command, Rejection, Scope};
use super::super::persist::KVSTORE;
use super::site::Site;
use crate::config::Config;
use crate::kind::Kind;
use crate::kvstore::KvstoreRecord;

pub(super) fn kvstore(count: u32) -> impl FnOnce(&mut Config) {
    move |config| {
        config.settings.ds_etcd = true;
        config.settings.ds_port = 2379;
        config.settings.mapped_addresses = true;
        config.kinds.datastore.count = count;
    }
}

async fn start(count: u32) -> Site {
    let site = Site::start(kvstore(count)).await;
    site.wait_until_settled().await;
    site
}

const NAMES: [&str; 3] = ["m3sdatastore", "m3sdatastore-1", "m3sdatastore-2"];

/// The events of the etcd cluster since the last call. Asserts that it always had a quorum.
fn done(site: &Site) -> Vec<String> {
    let mut etcd = site.world.etcd.lock().unwrap();
    assert!(!etcd.lost_quorum, "{etcd:?}");
    std::mem::take(&mut etcd.done)
}

/// The addresses of the datastore in the environment of the running server.
fn server_endpoint(site: &Site) -> String {
    let server = site.tasks(Kind::Server).remove(0);
    let launched = site.scheduler.launched();
    let variables = launched.iter().rev().find_map(|info| {
        let variables = &info.command.as_ref()?.environment.as_ref()?.variables;
        let is_server = variables.iter().any(|it| it.value.as_deref() == Some(&*server));
        is_server.then(|| variables.clone())
    });
    let endpoint = variables
        .unwrap()
        .into_iter()
        .find(|it| it.name == "K3S_DATASTORE_ENDPOINT");
    endpoint.unwrap().value.unwrap()
}

#[tokio::test]
async fn members_join_one_cluster_and_servers_know_all_of_them() {
    let site = start(3).await;
    let expected = ["new m3sdatastore", "join m3sdatastore-1", "join m3sdatastore-2"];
    assert_eq!(done(&site), expected);
    assert_eq!(site.world.etcd_names(), NAMES);
    assert_eq!(server_endpoint(&site).split(',').count(), 3);
    assert_eq!(site.scheduler.launches(), 5, "no task was started twice");
}

#[tokio::test]
async fn a_lost_member_leaves_the_cluster_before_another_one_joins() {
    let site = start(3).await;
    let before = (site.tasks(Kind::Server), server_endpoint(&site));
    done(&site);
    let lost = site.views.get().tasks.datastore[1].id.clone();
    site.scheduler.update(&lost, TaskState::Lost, None);
    site.wait_until("another member and a server that knows it", |view| {
        let replaced = view.tasks.datastore.iter().all(|task| task.id != lost);
        view.ready && replaced && view.tasks.server.iter().all(|task| !before.0.contains(&task.id))
    })
    .await;
    assert_eq!(done(&site), ["remove m3sdatastore-1", "join m3sdatastore-1"]);
    assert_ne!(server_endpoint(&site), before.1);
}

#[tokio::test]
async fn with_container_names_a_member_moves_without_another_server() {
    let site = Site::start(|config| {
        kvstore(3)(config);
        config.settings.mapped_addresses = false;
    })
    .await;
    site.wait_until_settled().await;
    let servers = site.tasks(Kind::Server);
    let expected =
        "http://m3sdatastore.local:2379,http://m3sdatastore-1.local:2379,http://m3sdatastore-2.local:2379";
    assert_eq!(server_endpoint(&site), expected);
    let lost = site.views.get().tasks.datastore[0].id.clone();
    site.scheduler.update(&lost, TaskState::Failed, None);
    site.wait_until("another member", |view| {
        view.ready && view.tasks.datastore.iter().all(|task| task.id != lost)
    })
    .await;
    assert_eq!(site.tasks(Kind::Server), servers);
}

#[tokio::test]
async fn a_restart_replaces_one_member_at_a_time() {
    let site = start(3).await;
    let before = site.tasks(Kind::Datastore);
    done(&site);
    let all = |reply| Command::Restart {
        scope: Scope::All,
        reply,
    };
    site.ask(all).await.unwrap();
    site.wait_until("other members", |view| {
        let mut tasks = view.tasks.datastore.iter();
        view.ready && tasks.all(|task| !before.contains(&task.id))
    })
    .await;
    let done = done(&site);
    let kinds: Vec<&str> = done.iter().filter_map(|what| what.split(' ').next()).collect();
    assert_eq!(kinds, ["remove", "join"].repeat(3), "{done:?}");
    assert_eq!(site.world.etcd_names().len(), 3);
}

#[tokio::test]
async fn a_kvstore_grows_from_one_member_and_shrinks_to_it() {
    let site = start(1).await;
    let single = site.tasks(Kind::Datastore);
    assert_eq!(site.scale(Kind::Datastore, 3).await.unwrap(), 2);
    site.wait_until("three members", |view| {
        view.ready && view.tasks.datastore.len() == 3
    })
    .await;
    // The single member had no port for other members, so it is restarted once.
    let expected = [
        "single default",
        "return m3sdatastore",
        "join m3sdatastore-1",
        "join m3sdatastore-2",
    ];
    assert_eq!(done(&site), expected);
    assert!(!site.tasks(Kind::Datastore).contains(&single[0]));

    let grown = site.views.get().tasks.datastore.clone();
    assert_eq!(site.scale(Kind::Datastore, 1).await.unwrap(), -2);
    site.wait_until("one member", |view| view.ready && view.tasks.datastore.len() == 1)
        .await;
    assert_eq!(done(&site), ["remove m3sdatastore-2", "remove m3sdatastore-1"]);
    assert_eq!(
        site.views.get().tasks.datastore[0].id,
        grown[0].id,
        "the first member stays"
    );
}

#[tokio::test]
async fn without_an_answer_of_the_api_members_are_removed_only_while_the_quorum_remains() {
    let site = Site::start(|config| {
        kvstore(3)(config);
        config.settings.drain_timeout = Duration::from_millis(200).into();
    })
    .await;
    site.wait_until_settled().await;
    for task in site.tasks(Kind::Datastore) {
        site.scheduler.report_health(&task, true);
    }
    site.world.etcd.lock().unwrap().silent = true;
    assert_eq!(site.scale(Kind::Datastore, 1).await.unwrap(), -2);
    site.wait_until("the reason", |view| {
        let reason = "member 1 leaves the kvstore when the others have the quorum without it";
        view.tasks.datastore.len() == 2 && view.waiting.iter().any(|it| it.reason == reason)
    })
    .await;
    // The member whose task has ended is still in the etcd cluster.
    assert_eq!(site.world.etcd_names().len(), 3);
    site.world.etcd.lock().unwrap().silent = false;
    site.wait_until("one member", |view| view.ready && view.tasks.datastore.len() == 1)
        .await;
    assert_eq!(site.world.etcd_names(), ["m3sdatastore"]);
    assert!(!site.world.etcd.lock().unwrap().lost_quorum);
}

#[tokio::test]
async fn if_all_members_have_ended_they_return_to_their_data() {
    let site = start(3).await;
    done(&site);
    site.scheduler.set_immediate_launches(false);
    for task in site.tasks(Kind::Datastore) {
        site.scheduler.update(&task, TaskState::Lost, None);
    }
    let site = site.restarted(|_| {}).await;
    site.scheduler.wait_until_submitted(3).await;
    let former: Vec<u16> = site
        .scheduler
        .launched()
        .iter()
        .filter(|task| task.name.ends_with("datastore"))
        .flat_map(|task| {
            let ports = task.discovery.as_ref().unwrap().ports.as_ref().unwrap();
            ports
                .ports
                .iter()
                .map(|port| port.number as u16)
                .collect::<Vec<_>>()
        })
        .collect();
    for request in site.scheduler.submitted() {
        for port in &request.spec.ports {
            let transom_scheduler::PortRequest::Fixed(port) = port else {
                panic!("{port:?}");
            };
            assert!(former.contains(port), "{port} {former:?}");
        }
        assert_eq!(
            request.spec.constraints.len(),
            1,
            "{:?}",
            request.spec.constraints
        );
    }
    site.scheduler.set_immediate_launches(true);
    site.scheduler.launch_all();
    site.wait_until_settled().await;
    let mut etcd = site.world.etcd.lock().unwrap();
    etcd.done.sort();
    let expected = [
        "return m3sdatastore",
        "return m3sdatastore-1",
        "return m3sdatastore-2",
    ];
    assert_eq!(etcd.done, expected);
}

/// The tasks of the stored voting members, and whether their ids in the etcd cluster are known.
async fn stored_voters(site: &Site) -> Vec<(String, bool)> {
    let store = TypedStore::new(Arc::clone(&site.store), site.config.name());
    let stored = store.get::<KvstoreRecord>(KVSTORE).await.unwrap().unwrap();
    let voters = stored.value.voters.into_values();
    voters
        .map(|voter| (voter.task.to_string(), voter.etcd.is_some()))
        .collect()
}

#[tokio::test]
async fn members_that_return_are_stored_with_their_tasks() {
    let site = start(3).await;
    site.scheduler.set_immediate_launches(false);
    for task in site.tasks(Kind::Datastore) {
        site.scheduler.update(&task, TaskState::Lost, None);
    }
    let mut returning: Vec<String> = {
        let submitted = site.scheduler.wait_until_submitted(3).await;
        submitted.iter().map(ToString::to_string).collect()
    };
    returning.sort();
    wait_for("the tasks to be stored", async || {
        let voters = stored_voters(&site).await.into_iter();
        let mut tasks: Vec<String> = voters.map(|(task, _)| task).collect();
        tasks.sort();
        tasks == returning
    })
    .await;
}

#[tokio::test]
async fn the_ids_of_members_stay_known_while_the_api_is_silent() {
    let site = start(3).await;
    let known: Vec<(String, bool)> = stored_voters(&site).await;
    assert!(known.iter().all(|(_, has_id)| *has_id), "{known:?}");
    for task in site.tasks(Kind::Datastore) {
        site.scheduler.report_health(&task, true);
    }
    site.world.etcd.lock().unwrap().silent = true;
    // The API is queried at each heartbeat.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stored_voters(&site).await, known);
}

#[tokio::test]
async fn a_stopped_kvstore_starts_again_from_its_first_member() {
    let site = start(3).await;
    done(&site);
    site.ask(|reply| Command::Stop { reply }).await.unwrap();
    wait_for("all members to end", async || {
        site.tasks(Kind::Datastore).is_empty()
    })
    .await;
    assert_eq!(done(&site), ["remove m3sdatastore-2", "remove m3sdatastore-1"]);
    site.ask(|reply| Command::Start { reply }).await.unwrap();
    site.wait_until_settled().await;
    let etcd = site.world.etcd.lock().unwrap();
    let expected = [
        "return m3sdatastore",
        "join m3sdatastore-1",
        "join m3sdatastore-2",
    ];
    assert_eq!(etcd.done, expected);
}

#[tokio::test]
async fn a_kvstore_without_a_quorum_can_be_stopped_and_started_with_all_members() {
    let site = start(3).await;
    done(&site);
    site.scheduler.set_immediate_launches(false);
    for member in &site.views.get().tasks.datastore[1..] {
        site.scheduler.update(&member.id, TaskState::Lost, None);
    }
    site.wait_until("the reason", |view| {
        let says = |text: &str| view.waiting.iter().any(|it| it.reason.contains(text));
        says("the kvstore has no quorum") && says("member 1 has its data on")
    })
    .await;
    site.ask(|reply| Command::Stop { reply }).await.unwrap();
    wait_for("all members to end", async || {
        site.tasks(Kind::Datastore).is_empty()
    })
    .await;
    site.scheduler.set_immediate_launches(true);
    site.ask(|reply| Command::Start { reply }).await.unwrap();
    site.wait_until_settled().await;
    let mut etcd = site.world.etcd.lock().unwrap();
    etcd.done.sort();
    assert_eq!(etcd.done, NAMES.map(|name| format!("return {name}")));
}

#[tokio::test]
async fn a_member_whose_host_does_not_return_is_replaced_when_the_quorum_is_restored() {
    let site = Site::start(|config| {
        kvstore(3)(config);
        config.settings.orch_node_timeout = Duration::from_millis(500).into();
    })
    .await;
    site.wait_until_settled().await;
    done(&site);
    site.scheduler.set_immediate_launches(false);
    for member in &site.views.get().tasks.datastore[1..] {
        site.scheduler.update(&member.id, TaskState::Lost, None);
    }
    site.scheduler.wait_until_submitted(2).await;
    let [back, away] = [0, 1].map(|at| site.scheduler.submitted()[at].id.to_string());
    site.scheduler.launch(&back).await;
    site.scheduler.update(&back, TaskState::Running, None);
    wait_for("the request of the other one to be dropped", async || {
        let submitted = site.scheduler.submitted();
        submitted.iter().all(|request| request.id.as_str() != away)
    })
    .await;
    site.scheduler.set_immediate_launches(true);
    site.scheduler.launch_all();
    site.wait_until_settled().await;
    assert!(site.tasks(Kind::Datastore).contains(&back));
    let etcd = site.world.etcd.lock().unwrap();
    let kinds: Vec<&str> = etcd
        .done
        .iter()
        .filter_map(|what| what.split(' ').next())
        .collect();
    assert_eq!(kinds, ["return", "remove", "join"], "{:?}", etcd.done);
}

#[tokio::test]
async fn the_next_member_waits_until_the_last_one_has_caught_up() {
    let site = Site::start(kvstore(5)).await;
    site.world.etcd.lock().unwrap().slow = true;
    site.wait_until("the reason", |view| {
        view.waiting
            .iter()
            .any(|it| it.reason == "member 1 is joining the kvstore")
    })
    .await;
    assert_eq!(site.tasks(Kind::Datastore).len(), 2);
    site.world.etcd.lock().unwrap().slow = false;
    site.wait_until("five members", |view| {
        view.ready && view.tasks.datastore.len() == 5
    })
    .await;
    done(&site);
}

#[tokio::test]
async fn a_datastore_with_a_configured_command_cannot_have_several_members() {
    let site = Site::start(|config| {
        kvstore(1)(config);
        config.settings.containers = false;
        config.settings.ds_command = Some("exec etcd".to_owned());
    })
    .await;
    site.wait_until_settled().await;
    let rejected = site.scale(Kind::Datastore, 3).await;
    assert!(
        matches!(rejected, Err(Rejection::SeveralCommands(3))),
        "{rejected:?}"
    );
}
