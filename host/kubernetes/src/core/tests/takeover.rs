//! What a new leader takes over from the former one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_common::HostPort;
use transom_scheduler::{SchedulerApi, TaskRecord};
use transom_store::typed::TypedStore;
use transom_testkit::wait_for;

use super::super::command::Command;
use super::super::persist::{Repository, StoredClientConfig, WANTED, Wanted};
use super::super::version::IMPORTED;
use super::site::{CLIENT_CONFIG, Site};
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

#[tokio::test]
async fn the_stored_client_configuration_is_used_while_the_file_of_the_same_server_cannot_be_read() {
    for answers in [true, false] {
        let site = Site::start(|_| {}).await;
        site.wait_until_settled().await;
        let server = site.tasks(Kind::Server);
        site.world.unwritten.store(answers, Ordering::SeqCst);
        site.world.unreadable.store(!answers, Ordering::SeqCst);
        let site = site.restarted(|_| {}).await;
        site.wait_until_settled().await;
        assert_eq!(site.tasks(Kind::Server), server, "{answers}");
    }
}

/// A new leader with this stored client configuration, whose server has written no file.
async fn restarted_without_file(
    change: impl FnOnce(&mut StoredClientConfig),
    change_server: impl FnOnce(&mut TaskRecord),
) -> Site {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.token.cancel();
    site.world.unwritten.store(true, Ordering::SeqCst);
    let server = TaskId::from(site.tasks(Kind::Server).remove(0));
    let mut record = TaskRecord::clone(&site.scheduler.tasks()[&server]);
    let mut stored = StoredClientConfig {
        text: CLIENT_CONFIG.to_owned(),
        address: HostPort::new(&record.agent.hostname, record.host_ports[0]),
        task: String::new(),
    };
    change(&mut stored);
    change_server(&mut record);
    site.scheduler.take_over(record);
    let repository = Repository::new(Arc::clone(&site.store), &site.config);
    repository.put_client_config(&stored).await.unwrap();
    site.restarted(|_| {}).await
}

#[tokio::test]
async fn an_imported_client_configuration_is_used_until_the_server_has_written_one() {
    let elsewhere = HostPort::new("elsewhere.test", 6443);
    for is_moved in [false, true] {
        let site = Box::pin(restarted_without_file(
            |stored| {
                if is_moved {
                    stored.address = elsewhere.clone();
                }
            },
            |server| {
                if is_moved {
                    server.version = IMPORTED.to_owned();
                }
            },
        ))
        .await;
        site.wait_until_settled().await;
        let text = site.views.get().client_config.clone().unwrap();
        assert!(
            !text.contains('#') && text.contains("elsewhere") == is_moved,
            "{text}"
        );
        site.world.unwritten.store(false, Ordering::SeqCst);
        *site.world.silent.lock().unwrap() = true;
        let server = site.tasks(Kind::Server).remove(0);
        site.wait_until("the server's own configuration", |view| {
            let text = view.client_config.as_deref().unwrap_or_default();
            text.ends_with(&format!("# {server}\n"))
        })
        .await;
    }
}

#[tokio::test]
async fn the_client_configuration_of_another_server_is_not_used() {
    let other: [fn(&mut StoredClientConfig); 2] = [
        |stored| stored.task = "another".to_owned(),
        |stored| stored.address = HostPort::new("elsewhere.test", 6443),
    ];
    for change in other {
        let site = Box::pin(restarted_without_file(change, |_| {})).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(site.views.get().orchestrator.is_none());
        site.world.unwritten.store(false, Ordering::SeqCst);
        site.wait_until_settled().await;
    }
}

#[tokio::test]
async fn scripts_of_tasks_that_were_not_launched_end_with_the_term() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_launches(false);
    site.scale(Kind::Agent, 2).await.unwrap();
    wait_for("a request", async || site.requested_script().is_some()).await;
    let (digest, token) = site.requested_script_path().unwrap();
    assert!(site.world.scripts.get(&digest, &token).is_some());
    // The fetcher still needs the script of a task that does not run yet.
    let launched = site.scheduler.submitted().pop().unwrap().id;
    site.scheduler.launch(launched.as_str()).await;
    let site = site.restarted(|_| {}).await;
    assert!(site.world.scripts.get(&digest, &token).is_some());

    site.scale(Kind::Agent, 3).await.unwrap();
    wait_for("a request", async || site.requested_script().is_some()).await;
    let (digest, token) = site.requested_script_path().unwrap();
    let site = site.restarted(|_| {}).await;
    assert!(site.world.scripts.get(&digest, &token).is_none());
}

#[tokio::test]
async fn a_new_leader_finishes_an_uncordon_and_then_leaves_nodes_as_they_are() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let node = format!("node-{}", site.tasks(Kind::Agent)[0]);
    let set_cordoned = async |site: &Site, cordoned: bool| {
        let cordon = |reply| Command::Cordon { cordoned, reply };
        site.ask(cordon).await.unwrap();
    };
    let wait_until_cordoned = async |site: &Site, expected: bool| {
        wait_for("the node to change", async || {
            site.world.nodes.lock().unwrap()[&node].cordoned == expected
        })
        .await;
    };
    set_cordoned(&site, true).await;
    wait_until_cordoned(&site, true).await;
    site.world.failing_changes.store(true, Ordering::SeqCst);
    set_cordoned(&site, false).await;
    let site = site.restarted(|_| {}).await;
    site.world.failing_changes.store(false, Ordering::SeqCst);
    wait_until_cordoned(&site, false).await;

    let is_finished = async || {
        let store = TypedStore::new(Arc::clone(&site.store), site.config.name());
        let wanted = store.get::<Wanted>(WANTED).await.unwrap().unwrap();
        !wanted.value.uncordoning
    };
    wait_for("the end of the uncordon", is_finished).await;
    // The node is cordoned by other means.
    site.world.nodes.lock().unwrap().get_mut(&node).unwrap().cordoned = true;
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(site.world.nodes.lock().unwrap()[&node].cordoned);
}
