//! The autoscaler with a scripted cluster, in which each pod needs its own agent.

use std::sync::Arc;
use std::time::Duration;

use transom_testkit::{HeldStore, wait_for};

use super::super::command::{Command, Rejection};
use super::site::Site;
use crate::config::Config;
use crate::kind::Kind;
use crate::settings::{Autoscale, Period};
use crate::view::View;

/// Between 1 and 4 agents, without delays.
fn without_delays(config: &mut Config) {
    config.settings.agents.autoscale = Autoscale {
        enabled: true,
        max: Some(4),
        scale_up_delay: Period::seconds(0),
        scale_down_delay: Period::seconds(0),
        cooldown: Period::seconds(0),
        ..Autoscale::default()
    };
}

/// As [`without_delays`], but idle agents stay.
fn up_only(config: &mut Config) {
    without_delays(config);
    change(config, |autoscale| {
        autoscale.scale_down_delay = Period::seconds(3600);
    });
}

fn change(config: &mut Config, change: impl FnOnce(&mut Autoscale)) {
    change(&mut config.settings.agents.autoscale);
}

fn note(view: &View, text: &str) -> bool {
    let notes = view.autoscale.iter().flat_map(|it| &it.notes);
    notes.into_iter().any(|note| note.contains(text))
}

async fn wait_for_agents(site: &Site, count: u32) {
    site.wait_until(&format!("{count} agents"), |view| {
        view.ready && view.wanted.agent == count && view.running(Kind::Agent) == count as usize
    })
    .await;
}

#[tokio::test]
async fn agents_are_added_for_unschedulable_pods_and_idle_ones_removed() {
    let site = Site::start(without_delays).await;
    wait_for_agents(&site, 1).await;
    *site.world.pods.lock().unwrap() = vec![1, 1, 1];
    wait_for_agents(&site, 3).await;
    let view = site.views.get();
    let last = view.autoscale.as_ref().unwrap().last.as_ref().unwrap();
    assert_eq!((last.from, last.to), (1, 3));
    assert_eq!(
        last.reason,
        "pods unschedulable for 0ns: default/pod-1, default/pod-2"
    );
    site.wait_until("the end of all waits of pods", |view| {
        view.autoscale
            .as_ref()
            .is_some_and(|it| it.unschedulable_pods == 0)
    })
    .await;
    assert_eq!(site.views.get().wanted.agent, 3);

    // The remaining pod is on the node whose name comes first.
    *site.world.pods.lock().unwrap() = vec![1];
    wait_for_agents(&site, 1).await;
    let busy = site
        .world
        .nodes
        .lock()
        .unwrap()
        .keys()
        .cloned()
        .collect::<Vec<_>>();
    let done = site.world.done();
    let drained: Vec<&String> = done.iter().filter(|what| what.starts_with("drain")).collect();
    assert_eq!(drained.len(), 2, "{done:?}");
    for node in busy {
        assert!(!drained.contains(&&format!("drain {node}")), "{done:?}");
    }
}

#[tokio::test]
async fn pods_that_no_agent_can_hold_are_named_and_change_nothing() {
    let site = Site::start(up_only).await;
    wait_for_agents(&site, 1).await;
    *site.world.pods.lock().unwrap() = vec![2];
    site.wait_until("the note that names the pod", |view| {
        note(
            view,
            "ignored, because no agent can hold their requests: default/pod-0",
        )
    })
    .await;
    *site.world.pods.lock().unwrap() = vec![2, 1, 1];
    wait_for_agents(&site, 2).await;
}

#[tokio::test]
async fn an_agent_that_another_party_has_cordoned_does_not_count_for_pods() {
    let site = Site::start(up_only).await;
    wait_for_agents(&site, 1).await;
    for node in site.world.nodes.lock().unwrap().values_mut() {
        node.cordoned = true;
    }
    *site.world.pods.lock().unwrap() = vec![1];
    wait_for_agents(&site, 2).await;
}

#[tokio::test]
async fn the_count_stays_within_its_limits() {
    let site = Site::start(|config| {
        up_only(config);
        config.kinds.agent.count = 9;
    })
    .await;
    wait_for_agents(&site, 4).await;
    *site.world.pods.lock().unwrap() = vec![1; 5];
    site.wait_until("the reason", |view| note(view, "the count is `max`, 4"))
        .await;
    for count in [0, 5] {
        let rejected = site.scale(Kind::Agent, count).await;
        let expected = Rejection::OutsideAutoscale {
            count,
            min: 1,
            max: 4,
        };
        assert_eq!(format!("{:?}", rejected.unwrap_err()), format!("{expected:?}"));
    }
    // The cluster can be stopped although 0 is below `min`.
    site.ask(|reply| Command::Stop { reply }).await.unwrap();
    wait_for("all agents to end", async || site.tasks(Kind::Agent).is_empty()).await;
    assert_eq!(site.views.get().wanted.agent, 0);
}

#[tokio::test]
async fn the_autoscaler_corrects_a_count_that_was_set_by_request() {
    let site = Site::start(without_delays).await;
    wait_for_agents(&site, 1).await;
    *site.world.pods.lock().unwrap() = vec![1];
    site.scale(Kind::Agent, 3).await.unwrap();
    wait_for_agents(&site, 1).await;
    assert_eq!(
        site.views
            .get()
            .autoscale
            .as_ref()
            .unwrap()
            .last
            .as_ref()
            .unwrap()
            .from,
        3
    );
}

#[tokio::test]
async fn a_decision_is_stored_and_the_delays_restart_with_a_new_leader() {
    let site = Site::start(up_only).await;
    wait_for_agents(&site, 1).await;
    *site.world.pods.lock().unwrap() = vec![1, 1];
    wait_for_agents(&site, 2).await;
    let before = site.tasks(Kind::Agent);
    *site.world.pods.lock().unwrap() = vec![1, 1, 1];
    let site = site
        .restarted(|config| change(config, |autoscale| autoscale.cooldown = Period::seconds(3600)))
        .await;
    site.wait_until("the note", |view| note(view, "the cooldown has not passed"))
        .await;
    let view = site.views.get();
    assert_eq!((view.wanted.agent, site.tasks(Kind::Agent)), (2, before.clone()));
    assert_eq!(view.autoscale.as_ref().unwrap().last.as_ref().unwrap().to, 2);
    // Without autoscaling the count stays, and requests may set any count.
    let site = site
        .restarted(|config| config.settings.agents.autoscale.enabled = false)
        .await;
    site.wait_until_settled().await;
    let view = site.views.get();
    assert_eq!((view.wanted.agent, view.autoscale.clone()), (2, None));
    assert_eq!(site.tasks(Kind::Agent), before);
    site.scale(Kind::Agent, 0).await.unwrap();
}

#[tokio::test]
async fn a_decision_starts_nothing_before_it_is_stored() {
    let mut site = Site::start(|config| {
        up_only(config);
        config.store_timeout = Duration::from_millis(200);
    })
    .await;
    wait_for_agents(&site, 1).await;
    let store = HeldStore::new(Arc::clone(&site.store));
    site.store = store.clone();
    let site = site.restarted(|_| {}).await;
    wait_for_agents(&site, 1).await;
    store.hold_after(0);
    *site.world.pods.lock().unwrap() = vec![1, 1];
    site.wait_until("the reason", |view| {
        note(view, "the count 2 was not stored; retrying")
    })
    .await;
    assert_eq!(
        (site.views.get().wanted.agent, site.tasks(Kind::Agent).len()),
        (1, 1)
    );
    store.release();
    wait_for_agents(&site, 2).await;
}

#[tokio::test]
async fn the_chosen_agent_ends_even_if_the_daemon_restarts_first() {
    let site = Site::start(without_delays).await;
    wait_for_agents(&site, 1).await;
    let old = site.tasks(Kind::Agent);
    *site.world.pods.lock().unwrap() = vec![1, 1];
    wait_for_agents(&site, 2).await;
    // The older agent becomes idle, because the only pod runs on the younger one.
    *site.world.stuck_drains.lock().unwrap() = true;
    site.world
        .reserved
        .lock()
        .unwrap()
        .extend(old.iter().map(|task| format!("node-{task}")));
    *site.world.pods.lock().unwrap() = vec![1];
    let node = format!("drain node-{}", old[0]);
    wait_for("the drain of the older agent", async || {
        site.world.done().contains(&node)
    })
    .await;
    *site.world.stuck_drains.lock().unwrap() = false;
    let site = site.restarted(|_| {}).await;
    wait_for_agents(&site, 1).await;
    assert_ne!(site.tasks(Kind::Agent), old);
}

#[tokio::test]
async fn while_the_pods_are_not_known_nothing_changes_and_the_reason_is_shown() {
    let site = Site::start(without_delays).await;
    wait_for_agents(&site, 1).await;
    *site.world.unlisted.lock().unwrap() = Some("it is HTML");
    *site.world.pods.lock().unwrap() = vec![1, 1];
    site.wait_until("the reason", |view| {
        note(view, "the pods are not known") && note(view, "it is HTML")
    })
    .await;
    assert_eq!(site.views.get().wanted.agent, 1);
    *site.world.unlisted.lock().unwrap() = None;
    wait_for_agents(&site, 2).await;
}

#[tokio::test]
async fn no_further_agent_is_added_while_one_does_not_become_ready() {
    let site = Site::start(up_only).await;
    wait_for_agents(&site, 1).await;
    site.world
        .no_new_nodes
        .store(true, std::sync::atomic::Ordering::SeqCst);
    *site.world.pods.lock().unwrap() = vec![1, 1];
    site.wait_until("the reason", |view| {
        view.wanted.agent == 2 && note(view, "agents that do not accept pods yet: 1")
    })
    .await;
    site.world
        .no_new_nodes
        .store(false, std::sync::atomic::Ordering::SeqCst);
    wait_for_agents(&site, 2).await;
}
