//! Rolling changes of image or command, one node after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_testkit::wait_for;

use super::super::command::{Command, Rejection, Scope};
use super::site::Site;
use crate::config::Config;
use crate::kind::Kind;

/// Starts three agents and then changes their command. Returns their tasks before the change. `broken`:
/// the nodes of new tasks do not register.
async fn changed(broken: bool) -> (Site, Vec<String>) {
    let site = Site::start(|config| config.kinds.agent.count = 3).await;
    site.wait_until_settled().await;
    let before = site.tasks(Kind::Agent);
    site.world.no_new_nodes.store(broken, Ordering::SeqCst);
    (Box::pin(with_other_command(site)).await, before)
}

/// Restarts the daemon with another command for agents.
async fn with_other_command(site: Site) -> Site {
    site.restarted(|config| config.settings.orch_agent_string += " --debug")
        .await
}

/// Restarts the daemon with the former command for agents.
async fn with_former_command(site: Site) -> Site {
    site.restarted(|config| {
        let command = &mut config.settings.orch_agent_string;
        *command = command.trim_end_matches(" --debug").to_owned();
    })
    .await
}

fn kept(site: &Site, before: &[String]) -> usize {
    let tasks = site.tasks(Kind::Agent);
    before.iter().filter(|task| tasks.contains(task)).count()
}

#[tokio::test]
async fn a_change_that_breaks_agents_affects_only_one_and_can_be_reverted() {
    let (site, before) = Box::pin(changed(true)).await;
    site.wait_until("the reason of the halt", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("waits until") && reason.ends_with(" is not ready"))
    })
    .await;
    assert_eq!(kept(&site, &before), 2);
    // Further turns of the core change nothing.
    site.scale(Kind::Server, 1).await.unwrap();
    assert_eq!(kept(&site, &before), 2);

    site.world
        .without_node
        .lock()
        .unwrap()
        .extend(site.tasks(Kind::Agent));
    site.world.no_new_nodes.store(false, Ordering::SeqCst);
    let site = Box::pin(with_former_command(site)).await;
    site.wait_until_settled().await;
    assert_eq!(kept(&site, &before), 2);
    assert_eq!(site.world.drains().len(), 1);
}

#[tokio::test]
async fn a_halted_change_resumes_when_the_node_is_ready() {
    let (site, before) = Box::pin(changed(true)).await;
    site.wait_until("the halt", |view| {
        view.waiting
            .iter()
            .any(|waiting| waiting.reason.contains("waits until"))
    })
    .await;
    site.world.no_new_nodes.store(false, Ordering::SeqCst);
    wait_for("other agents", async || kept(&site, &before) == 0).await;
    site.wait_until_settled().await;
}

#[tokio::test]
async fn a_drain_that_a_former_leader_began_is_finished() {
    let site = Site::start(|config| config.kinds.agent.count = 3).await;
    site.wait_until_settled().await;
    *site.world.stuck_drains.lock().unwrap() = true;
    let site = Box::pin(with_other_command(site)).await;
    wait_for("a drain", async || !site.world.drains().is_empty()).await;
    let first = site.world.drains();
    *site.world.stuck_drains.lock().unwrap() = false;
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    wait_for("all drains", async || site.world.drains().len() == 4).await;
    assert_eq!(
        site.world.drains()[1],
        first[0],
        "the drain of the same node continues"
    );
    site.wait_until_settled().await;
}

#[tokio::test]
async fn a_drain_that_a_former_leader_began_is_cancelled_if_the_agent_stays() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let before = site.tasks(Kind::Agent);
    *site.world.stuck_drains.lock().unwrap() = true;
    let site = Box::pin(with_other_command(site)).await;
    let drained = |site: &Site, node: &str| site.world.done().contains(&format!("drain {node}"));
    let nodes: Vec<String> = before.iter().map(|task| format!("node-{task}")).collect();
    wait_for("a drain", async || nodes.iter().any(|node| drained(&site, node))).await;
    let by_hand = nodes.iter().find(|node| !drained(&site, node)).unwrap();
    site.world
        .nodes
        .lock()
        .unwrap()
        .get_mut(by_hand)
        .unwrap()
        .cordoned = true;
    let site = Box::pin(with_former_command(site)).await;
    wait_for("the node to be schedulable", async || {
        let nodes = site.world.nodes.lock().unwrap();
        nodes
            .values()
            .all(|node| !node.draining && (!node.cordoned || node.name == *by_hand))
    })
    .await;
    assert!(
        site.world.nodes.lock().unwrap()[by_hand].cordoned,
        "a node that was cordoned by hand stays cordoned"
    );
    assert_eq!(site.tasks(Kind::Agent), before);
}

#[tokio::test]
async fn counts_that_change_while_the_cluster_starts_are_applied() {
    let site = Site::start(|config| {
        config.kinds.agent.count = 2;
        config.settings.heartbeat_interval = Duration::from_millis(20).into();
    })
    .await;
    // At this time no server answers yet.
    site.scale(Kind::Agent, 4).await.unwrap();
    site.scale(Kind::Server, 2).await.unwrap();
    site.scale(Kind::Agent, 1).await.unwrap();
    site.wait_until("one agent and two servers", |view| {
        view.ready && view.running(Kind::Agent) == 1 && view.running(Kind::Server) == 2
    })
    .await;
    assert_eq!(site.tasks(Kind::Agent).len(), 1);
    assert_eq!(site.tasks(Kind::Server).len(), 2);
}

#[tokio::test]
async fn offers_that_never_fit_are_explained() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.scheduler.set_immediate_launches(false);
    site.scheduler.set_reasons(transom_scheduler::Reasons {
        last: [(transom_scheduler::Reason::InsufficientMemory, 3)].into(),
        last_offers: 4,
        ..Default::default()
    });
    site.scale(Kind::Agent, 2).await.unwrap();
    site.wait_until("the reason", |view| {
        let mut reasons = view.waiting.iter().filter(|waiting| waiting.kind == Kind::Agent);
        reasons.any(|waiting| {
            waiting.reason == "agent 1 waits for an offer: 3 of 4 offers have too little memory"
        })
    })
    .await;
    let view = site.views.get();
    assert!(!view.ready);
    assert_eq!(view.tasks.agent[1].state, None);
}

#[tokio::test]
async fn an_agent_that_was_never_ready_does_not_halt_a_change() {
    // Without others, the first setup was wrong.
    for (others, restarted) in [(0, false), (0, true), (2, false), (2, true)] {
        let site = Site::start(|config| config.kinds.agent.count = others).await;
        site.wait_until_settled().await;
        site.world.no_new_nodes.store(true, Ordering::SeqCst);
        site.scale(Kind::Agent, others + 1).await.unwrap();
        site.wait_until("the agent", |view| {
            view.running(Kind::Agent) == others as usize + 1
        })
        .await;
        // A new leader knows as well that it was never ready.
        let site = site.restarted(|_| {}).await;
        site.wait_until("the API", |view| view.orchestrator.is_some())
            .await;
        let before = site.tasks(Kind::Server);
        let site = if restarted {
            let scope = Scope::Servers;
            let waits = site.ask(|reply| Command::Restart { scope, reply }).await;
            assert_eq!(waits.unwrap(), None);
            site
        } else {
            let change = |config: &mut Config| config.settings.orch_server_string += " --debug";
            site.restarted(change).await
        };
        wait_for("another server", async || {
            site.tasks(Kind::Server).iter().all(|task| !before.contains(task))
        })
        .await;
    }
}

#[tokio::test]
async fn a_restart_says_for_which_node_it_waits() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.wait_until_settled().await;
    let restart = async |scope| site.ask(|reply| Command::Restart { scope, reply }).await;
    let away = site.views.get().tasks.agent[1].id.clone();
    site.world.without_node.lock().unwrap().insert(away.clone());
    site.world.nodes.lock().unwrap().remove(&format!("node-{away}"));
    site.wait_until("the missing node", |view| !view.ready).await;
    let tasks = Kind::ALL.map(|kind| site.tasks(kind));
    let reason = restart(Scope::Servers).await.unwrap().unwrap();
    assert!(reason.ends_with("; agent 1 is not ready"), "{reason}");
    assert_eq!(Kind::ALL.map(|kind| site.tasks(kind)), tasks);
    site.world.without_node.lock().unwrap().clear();
    wait_for("the restart", async || {
        Kind::ALL.map(|kind| site.tasks(kind))[1..]
            .iter()
            .flatten()
            .all(|task| !tasks.iter().flatten().any(|it| it == task))
    })
    .await;
    site.wait_until_settled().await;
    site.scale(Kind::Agent, 0).await.unwrap();
    let nothing = restart(Scope::Agents).await;
    assert!(matches!(nothing, Err(Rejection::NothingToRestart)), "{nothing:?}");
}
