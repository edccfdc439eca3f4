//! The core with a scripted scheduler, cluster and orchestrator.

mod autoscale;
mod backups;
mod datastore;
mod etcd;
mod explain;
mod kvstore;
mod restores;
mod rolling;
mod secrets;
mod servers;
mod site;
mod takeover;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_cluster::v1::TaskState;
use transom_testkit::wait_for;

use super::command::{Command, Rejection, Resource, Scope};
use crate::kind::{Kind, PerKind};
use crate::orchestrator::LOOK_UPS;
use site::{Away, CLIENT_CONFIG, Site};

fn counts(datastore: u32, server: u32, agent: u32) -> PerKind<u32> {
    PerKind {
        datastore,
        server,
        agent,
    }
}

#[tokio::test]
async fn a_cluster_starts_and_its_client_configuration_is_served() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let view = site.views.get();
    assert_eq!(view.wanted, counts(1, 1, 2));
    assert_eq!(site.tasks(Kind::Agent).len(), 2);
    let server = &view.tasks.server[0];
    let address = format!("{}:{}", server.host.as_ref().unwrap(), server.ports[0]);
    let expected = CLIENT_CONFIG.replace("127.0.0.1:6443", &address);
    assert_eq!(
        view.client_config.as_deref(),
        Some(&*format!("{expected}# {}\n", server.id))
    );
    assert_eq!(view.orchestrator.as_ref().unwrap().version, "v1.31.5+k3s1");
    assert!(view.waiting.is_empty(), "{:?}", view.waiting);
}

#[tokio::test]
async fn scaled_counts_survive_a_restart_unless_the_configured_count_changes() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    assert_eq!(site.scale(Kind::Agent, 3).await.unwrap(), 2);
    site.wait_until("three agents", |view| view.running(Kind::Agent) == 3)
        .await;
    let before = site.tasks(Kind::Agent);
    let former = Arc::clone(&site.views);
    let site = site.restarted(|_| {}).await;
    // The views of the former leader and of the new one never show other counts.
    assert_eq!(former.get().wanted, counts(1, 1, 3));
    assert_eq!(site.views.get().wanted, counts(1, 1, 3));
    site.wait_until_settled().await;
    assert_eq!(site.views.get().wanted, counts(1, 1, 3));
    assert_eq!(site.tasks(Kind::Agent), before, "no task was restarted");

    let site = site.restarted(|config| config.kinds.agent.count = 2).await;
    site.wait_until("two agents", |view| view.ready && view.running(Kind::Agent) == 2)
        .await;
}

#[tokio::test]
async fn agents_are_drained_and_their_nodes_removed_before_they_end() {
    let site = Site::start(|config| config.kinds.agent.count = 3).await;
    site.wait_until_settled().await;
    assert_eq!(site.scale(Kind::Agent, 1).await.unwrap(), -2);
    site.wait_until("one agent", |view| view.ready && view.running(Kind::Agent) == 1)
        .await;
    let done = site.world.done();
    let verbs = |verb: &str| done.iter().filter(|what| what.starts_with(verb)).count();
    assert_eq!((verbs("drain"), verbs("remove")), (2, 2), "{done:?}");
    let last_drain = done.iter().rposition(|what| what.starts_with("drain")).unwrap();
    assert!(
        done[last_drain..].iter().any(|what| what.starts_with("remove")),
        "{done:?}"
    );
}

#[tokio::test]
async fn impossible_counts_are_rejected() {
    let site = Site::start(|_| {}).await;
    let rejected = site.scale(Kind::Agent, 101).await;
    assert!(
        matches!(
            rejected,
            Err(Rejection::AboveMaximum {
                count: 101,
                maximum: 100
            })
        ),
        "{rejected:?}"
    );
    let rejected = site.scale(Kind::Datastore, 2).await;
    assert!(
        matches!(rejected, Err(Rejection::SeveralSqlDatastores(2))),
        "{rejected:?}"
    );
    let site = Site::start(|config| config.settings.ds_etcd = true).await;
    let rejected = site.scale(Kind::Datastore, 2).await;
    assert!(matches!(rejected, Err(Rejection::EvenKvstore(2))), "{rejected:?}");
    assert_eq!(site.scale(Kind::Datastore, 3).await.unwrap(), 2);
}

#[tokio::test]
async fn a_failed_agent_is_replaced_once_and_its_node_removed() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let failed = site.tasks(Kind::Agent).remove(0);
    site.scheduler
        .update(&failed, TaskState::Failed, Some("out of memory"));
    let node = format!("node-{failed}");
    site.wait_until("the replacement", |view| {
        view.ready && view.tasks.agent.iter().all(|task| task.id != failed)
    })
    .await;
    assert_eq!(site.tasks(Kind::Agent).len(), 2);
    assert!(
        site.world.done().contains(&format!("remove {node}")),
        "{:?}",
        site.world.done()
    );
    site.scheduler.wait_until_purged(&failed).await;
}

#[tokio::test]
async fn the_client_configuration_follows_the_server() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let server = site.tasks(Kind::Server).remove(0);
    let before = site.views.get().client_config.clone();
    site.scheduler.update(&server, TaskState::Lost, None);
    site.wait_until("another configuration", |view| {
        view.ready && view.client_config != before
    })
    .await;
    let view = site.views.get();
    let config = view.client_config.as_deref().unwrap();
    assert!(config.contains(&view.tasks.server[0].id), "{config}");
}

#[tokio::test]
async fn a_rejected_script_starts_nothing_and_the_reason_is_shown() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    *site.world.rejection.lock().unwrap() = Some("line 7: no".to_owned());
    site.scale(Kind::Agent, 2).await.unwrap();
    site.wait_until("the reason", |view| {
        view.waiting
            .iter()
            .any(|waiting| waiting.reason.contains("line 7: no"))
    })
    .await;
    assert_eq!(site.tasks(Kind::Agent).len(), 1);
    *site.world.rejection.lock().unwrap() = None;
    // Another component enters service.
    site.world.script.send_replace("#!/bin/sh\nexec \"$@\"\n");
    site.wait_until("two agents", |view| view.ready && view.running(Kind::Agent) == 2)
        .await;
}

#[tokio::test]
async fn a_pending_task_gets_the_script_of_the_component_in_service() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_launches(false);
    site.scale(Kind::Agent, 2).await.unwrap();
    wait_for("a request", async || site.requested_script().is_some()).await;
    let before = site.requested_script();
    site.world.script.send_replace("#!/bin/sh\n# another\n");
    wait_for("another script", async || site.requested_script() != before).await;

    // Without a component the request is withdrawn.
    *site.world.rejection.lock().unwrap() = Some("no plugin".to_owned());
    site.world.script.send_replace("#!/bin/sh\n# gone\n");
    wait_for("the withdrawal of the request", async || {
        site.scheduler.submitted().is_empty()
    })
    .await;
}

#[tokio::test]
async fn the_result_of_a_component_that_was_replaced_in_the_meantime_is_discarded() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_launches(false);
    site.world.held.send_replace(true);
    *site.world.rejection.lock().unwrap() = Some("the former component".to_owned());
    let prepared = |site: &Site| {
        let done = site.world.done();
        done.iter()
            .filter(|what| what.starts_with("prepare agent"))
            .count()
    };
    let before = prepared(&site);
    site.scale(Kind::Agent, 2).await.unwrap();
    wait_for("the call of the former one", async || prepared(&site) > before).await;
    *site.world.rejection.lock().unwrap() = None;
    site.world.script.send_replace("#!/bin/sh\n# another\n");
    // The core handles the request after the change of the component.
    site.scale(Kind::Agent, 2).await.unwrap();
    site.world.held.send_replace(false);
    wait_for("a request", async || site.requested_script().is_some()).await;
    assert_eq!(prepared(&site), before + 2);
    assert!(
        site.views
            .get()
            .waiting
            .iter()
            .all(|it| !it.reason.contains("former"))
    );
}

#[tokio::test]
async fn a_drain_that_fails_is_tried_again_before_the_agent_ends() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    *site.world.failing_drains.lock().unwrap() = 1;
    site.scale(Kind::Agent, 1).await.unwrap();
    site.wait_until("one agent", |view| view.ready && view.running(Kind::Agent) == 1)
        .await;
    let done = site.world.done();
    let nodes = done.iter().filter(|what| !what.starts_with("prepare"));
    let verbs: Vec<&str> = nodes.filter_map(|what| what.split(' ').next()).collect();
    assert_eq!(verbs, ["drain", "drain", "remove"]);
}

#[tokio::test]
async fn a_drain_that_keeps_failing_ends_with_its_timeout() {
    let site = Site::start(|config| {
        config.kinds.agent.count = 2;
        config.settings.drain_timeout = Duration::from_millis(200).into();
    })
    .await;
    site.wait_until_settled().await;
    *site.world.failing_drains.lock().unwrap() = u32::MAX;
    site.scale(Kind::Agent, 1).await.unwrap();
    site.wait_until("one agent", |view| view.ready && view.running(Kind::Agent) == 1)
        .await;
}

#[tokio::test]
async fn a_stopped_cluster_starts_again_with_its_counts() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let rejected = site.ask(|reply| Command::Start { reply }).await;
    assert!(matches!(rejected, Err(Rejection::AlreadyStarted)), "{rejected:?}");
    site.ask(|reply| Command::Stop { reply }).await.unwrap();
    assert_eq!(site.views.get().wanted, counts(0, 0, 0));
    wait_for("all tasks to end", async || {
        Kind::ALL.into_iter().all(|kind| site.tasks(kind).is_empty())
    })
    .await;
    assert_eq!(site.world.drains(), [""; 0]);
    let rejected = site
        .ask(|reply| Command::Restart {
            scope: Scope::All,
            reply,
        })
        .await;
    assert!(
        matches!(rejected, Err(Rejection::NothingToRestart)),
        "{rejected:?}"
    );
    let site = site.restarted(|_| {}).await;
    site.ask(|reply| Command::Start { reply }).await.unwrap();
    assert_eq!(site.views.get().wanted, counts(1, 1, 2));
    site.wait_until_settled().await;
}

#[tokio::test]
async fn nodes_are_cordoned_and_uncordoned_on_request() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let cordon = async |cordoned| {
        site.ask(|reply| Command::Cordon { cordoned, reply })
            .await
            .unwrap();
        wait_for("the nodes to change", async || {
            let nodes = site.world.nodes.lock().unwrap();
            let agents = site.tasks(Kind::Agent);
            let mut nodes = nodes
                .values()
                .filter(|node| agents.contains(node.task.as_ref().unwrap()));
            nodes.all(|node| node.cordoned == cordoned)
        })
        .await;
    };
    cordon(true).await;
    cordon(false).await;
    let server = format!("node-{}", site.tasks(Kind::Server)[0]);
    assert!(!site.world.done().iter().any(|what| what.ends_with(&server)));
}

#[tokio::test]
async fn an_uncordon_waits_for_a_cordon_that_is_under_way() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let node = format!("node-{}", site.tasks(Kind::Agent)[0]);
    let is_done = async |change: &str| site.world.done().contains(&format!("{change} {node}"));
    site.world.held_cordons.send_replace(true);
    for cordoned in [true, false] {
        site.ask(|reply| Command::Cordon { cordoned, reply })
            .await
            .unwrap();
        wait_for("the cordon", async || is_done("cordon").await).await;
    }
    // Other requests are handled in the meantime.
    site.scale(Kind::Agent, 1).await.unwrap();
    site.world.held_cordons.send_replace(false);
    wait_for("the uncordon", async || is_done("uncordon").await).await;
}

#[tokio::test]
async fn changes_of_nodes_that_fail_are_tried_again_after_a_delay() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.world.failing_changes.store(true, Ordering::SeqCst);
    let agent = site.tasks(Kind::Agent).remove(0);
    let attempts = |change: &str| {
        let change = format!("{change} node-{agent}");
        site.world.done().iter().filter(|done| **done == change).count()
    };
    let assert_delayed = async |change: &str| {
        wait_for(change, async || attempts(change) > 0).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(attempts(change) < 10, "{:?}", site.world.done());
        site.world.failing_changes.store(false, Ordering::SeqCst);
        let failed = attempts(change);
        wait_for("the next attempt", async || attempts(change) > failed).await;
        site.world.failing_changes.store(true, Ordering::SeqCst);
    };
    for cordoned in [true, false] {
        site.ask(|reply| Command::Cordon { cordoned, reply })
            .await
            .unwrap();
        assert_delayed(if cordoned { "cordon" } else { "uncordon" }).await;
    }
    site.scheduler.update(&agent, TaskState::Failed, None);
    assert_delayed("remove").await;
}

/// A comparison of members with nodes costs as much as there are of both, not their product.
#[tokio::test]
async fn an_observation_compares_each_node_a_few_times() {
    const AGENTS: u32 = 40;
    let site = Site::start(|config| config.kinds.agent.count = AGENTS).await;
    site.wait_until_settled().await;
    let observed = || site.world.observations.load(Ordering::SeqCst);
    let (compared, before) = (LOOK_UPS.get(), observed());
    wait_for("further observations", async || observed() > before + 3).await;
    let nodes = site.world.nodes.lock().unwrap().len();
    let compared = (LOOK_UPS.get() - compared) / ((observed() - before) * nodes);
    assert!(
        (1..=20).contains(&compared),
        "{compared} comparisons of each node"
    );
}

#[tokio::test]
async fn a_node_that_waits_for_its_finalizers_is_deleted_once() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.world.has_finalizers.store(true, Ordering::SeqCst);
    let agent = site.tasks(Kind::Agent).remove(0);
    site.scheduler.update(&agent, TaskState::Failed, None);
    let removal = format!("remove node-{agent}");
    wait_for("the removal", async || site.world.done().contains(&removal)).await;
    let listed = || site.world.observations.load(Ordering::SeqCst);
    let before = listed();
    wait_for("further observations", async || listed() > before + 3).await;
    let removals = site.world.done().iter().filter(|done| **done == removal).count();
    assert_eq!(removals, 1);
}

#[tokio::test]
async fn a_restart_replaces_every_task_of_its_kinds() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let before = PerKind::from_fn(|kind| site.tasks(kind));
    site.ask(|reply| Command::Restart {
        scope: Scope::Agents,
        reply,
    })
    .await
    .unwrap();
    site.wait_until("other agents", |view| {
        view.ready
            && view
                .tasks
                .agent
                .iter()
                .all(|task| !before.agent.contains(&task.id))
    })
    .await;
    assert_eq!(site.tasks(Kind::Server), before.server);
    assert_eq!(site.world.drains().len(), 2);
}

#[tokio::test]
async fn a_changed_image_replaces_tasks_and_an_unchanged_one_does_not() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let before = PerKind::from_fn(|kind| site.tasks(kind));
    let site = site
        .restarted(|config| config.settings.image_sql = "docker.io/mariadb:11".to_owned())
        .await;
    site.wait_until("another datastore and server", |view| {
        view.ready
            && view
                .tasks
                .datastore
                .iter()
                .all(|task| !before.datastore.contains(&task.id))
            && view
                .tasks
                .server
                .iter()
                .all(|task| !before.server.contains(&task.id))
    })
    .await;
    assert_eq!(
        site.tasks(Kind::Agent),
        before.agent,
        "agents do not use the datastore"
    );
}

#[tokio::test]
async fn the_framework_id_is_dropped_only_if_the_master_does_not_list_it() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    *site.world.listed.lock().unwrap() = true;
    site.ask(|reply| Command::ForgetFramework { reply })
        .await
        .unwrap();
    assert!(!site.abdication.is_requested());
    *site.world.listed.lock().unwrap() = false;
    site.ask(|reply| Command::ForgetFramework { reply })
        .await
        .unwrap();
    assert!(site.abdication.is_requested());
}

#[tokio::test]
async fn the_framework_id_is_kept_while_no_master_answers() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    for (registered, away) in [
        (true, Away::Rejects),
        (true, Away::Silent),
        (false, Away::Rejects),
    ] {
        site.scheduler.set_unregistered(!registered);
        *site.world.master_away.lock().unwrap() = Some(away);
        let kept = site.ask(|reply| Command::ForgetFramework { reply }).await;
        assert!(
            matches!(kept, Err(Rejection::MasterUnavailable)),
            "{away:?}: {kept:?}"
        );
    }
    assert!(!site.abdication.is_requested());
    *site.world.master_away.lock().unwrap() = None;
    site.ask(|reply| Command::ForgetFramework { reply })
        .await
        .unwrap();
    assert!(!site.abdication.is_requested(), "it has no id");
}

#[tokio::test]
async fn no_agent_is_replaced_while_the_api_does_not_answer() {
    let site = Site::start(|config| {
        config.kinds.agent.count = 2;
        config.settings.orch_node_timeout = Duration::from_hours(1).into();
    })
    .await;
    site.wait_until_settled().await;
    let before = site.tasks(Kind::Agent);
    *site.world.silent.lock().unwrap() = true;
    site.wait_until("the reason", |view| {
        view.orchestrator.is_none() && view.waiting.iter().any(|it| it.reason.contains("silent"))
    })
    .await;
    *site.world.silent.lock().unwrap() = false;
    site.wait_until_settled().await;
    assert_eq!(site.tasks(Kind::Agent), before);
}

#[tokio::test]
async fn an_agent_without_a_node_is_replaced_despite_short_outages_of_the_api() {
    let site = Site::start(|config| {
        config.kinds.agent.count = 2;
        config.settings.orch_node_timeout = Duration::from_secs(1).into();
    })
    .await;
    site.wait_until_settled().await;
    let away = site.tasks(Kind::Agent).remove(0);
    let node = format!("node-{away}");
    site.world.nodes.lock().unwrap().get_mut(&node).unwrap().ready = false;
    wait_for("the replacement", async || {
        for silent in [true, false] {
            *site.world.silent.lock().unwrap() = silent;
            site.wait_until("the answer", |view| view.orchestrator.is_none() == silent)
                .await;
        }
        !site.tasks(Kind::Agent).contains(&away)
    })
    .await;
}

#[tokio::test]
async fn impossible_resources_are_rejected() {
    let site = Site::start(|_| {}).await;
    for amount in [0, u32::MAX] {
        let (kind, resource) = (Kind::Agent, Resource::Memory);
        let rejected = site
            .ask(|reply| Command::Adjust {
                kind,
                resource,
                limit: false,
                amount,
                reply,
            })
            .await;
        assert!(matches!(rejected, Err(Rejection::BadResource(_))), "{rejected:?}");
    }
}
