//! Offers, the matcher, and the reasons why tasks are pending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::{Timestamp, ToSpan};
use serde_json::Value;
use transom_cluster::scheduler::Event as ClusterEvent;
use transom_plugin_host::matcher::Constraint;

use super::super::EVENT_QUEUE_CAPACITY;
use super::rig::Rig;
use crate::subscription::SubscriptionEvent;
use crate::testing::{offer, spec, task_request};
use crate::{Metrics, PendingTask, PortRequest, Reason, RunSpec, SchedulerApi};

fn ids(values: &Value) -> Vec<&str> {
    values
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id["value"].as_str().unwrap())
        .collect()
}

async fn registered_rig() -> Rig {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig
}

#[tokio::test]
async fn unused_offers_are_declined_suppressed_when_idle_and_revived_on_demand() {
    let mut rig = registered_rig().await;
    rig.master
        .offer(&[offer("o1", "a1", 1.0, &[]), offer("o2", "a2", 1.0, &[])]);
    let decline = rig.master.call("DECLINE", 1).await.body;
    assert_eq!(ids(&decline["decline"]["offer_ids"]), ["o1", "o2"]);
    assert_eq!(decline["decline"]["filters"]["refuse_seconds"], 120.0);
    rig.master.call("SUPPRESS", 1).await;
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    rig.master.call("REVIVE", 1).await;
    rig.master.offer(&[offer("o3", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    rig.master.call("SUPPRESS", 2).await;
}

/// The master offers resources to nobody else while an offer is neither used nor declined.
#[tokio::test]
async fn decline_is_repeated_until_the_master_has_answered() {
    let rig = registered_rig().await;
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("DECLINE");
    });
    rig.master
        .offer(&[offer("o1", "a1", 1.0, &[]), offer("o2", "a2", 1.0, &[])]);
    rig.master.call("DECLINE", 2).await;
    rig.master
        .send(&serde_json::json!({"type": "RESCIND", "rescind": {"offer_id": {"value": "o2"}}}));
    rig.master
        .call_where("DECLINE", 1, |call| {
            ids(&call.body["decline"]["offer_ids"]) == ["o1"]
        })
        .await;
    let declined = || rig.metric("transom_scheduler_declined_offers_total");
    assert!(declined() < 1.0);
    rig.master.configure(|rules| rules.rejected_calls.clear());
    while declined() < 1.0 {
        rig.wait_for_turn().await;
    }
}

#[tokio::test]
async fn round_launches_many_tasks_on_many_offers() {
    let mut rig = registered_rig().await;
    let mut spec = spec("/app");
    spec.ports = vec![PortRequest::Random];
    let tasks: Vec<String> = (0..7).map(|n| format!("t{n}")).collect();
    rig.submit(
        &Arc::new(spec),
        &tasks.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    let offers = [
        offer("o1", "a1", 2.0, &[(1000, 1003)]),
        offer("o2", "a2", 1.0, &[(1, 9)]),
        offer("o3", "a3", 0.1, &[]),
    ];
    rig.master.offer(&offers);
    for _ in 0..6 {
        assert!(rig.event_text().await.starts_with("launched"));
    }
    let accepts = rig.master.calls("ACCEPT");
    let mut sizes = BTreeMap::new();
    for accept in &accepts {
        let infos = accept.body["accept"]["operations"][0]["launch"]["task_infos"]
            .as_array()
            .unwrap();
        sizes.insert(
            ids(&accept.body["accept"]["offer_ids"])[0].to_owned(),
            infos.len(),
        );
    }
    assert_eq!(
        sizes,
        BTreeMap::from([("o1".to_owned(), 4), ("o2".to_owned(), 2)])
    );
    let declined = rig.master.call("DECLINE", 1).await;
    assert_eq!(ids(&declined.body["decline"]["offer_ids"]), ["o3"]);

    let waiting = rig.scheduler.pending().to_vec();
    let [PendingTask { task, reasons, .. }] = &waiting[..] else {
        panic!("{waiting:?}")
    };
    assert_eq!(task.as_str(), "t6");
    assert_eq!(
        (reasons.last_offers, reasons.total_refused_offers, reasons.rounds),
        (3, 1, 1)
    );
    // o1 has neither CPU nor ports left, o2 has no CPU left, and o3 has neither.
    let expected = BTreeMap::from([(Reason::InsufficientCpus, 3), (Reason::InsufficientPorts, 2)]);
    assert_eq!(reasons.last, expected);
    let unused = &reasons.unused_offers;
    assert_eq!(
        unused.len(),
        1,
        "o1 and o2 were used for other tasks of the run spec"
    );
    assert_eq!(
        (unused[0].offer.as_str(), unused[0].agent.hostname.as_str()),
        ("o3", "host-a3")
    );
    let both = [Reason::InsufficientCpus, Reason::InsufficientPorts];
    assert_eq!(unused[0].reasons, both);
    assert_eq!(unused[0].resources.len(), 4);
    assert_eq!(unused[0].attributes.len(), 1);
    assert_eq!(reasons.last_unused_at, Some(unused[0].at));
    assert_eq!(reasons.last_used_at, Some(unused[0].at));
    let known = rig.record("t0").unwrap();
    assert!((1000..=1003).contains(&known.host_ports[0]), "{known:?}");
}

#[tokio::test]
async fn rejected_agent_is_reported_with_its_constraint() {
    let rig = registered_rig().await;
    rig.script.rejected_agents.lock().unwrap().insert("a1".to_owned());
    let conditions = ["gpu:true", "ssd:true"].map(|text| Constraint::Expression(text.to_owned()));
    let conditioned = RunSpec {
        constraints: conditions.to_vec(),
        ..spec("/app")
    };
    rig.submit(&Arc::new(conditioned), &["t1"]).await;
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    let reasons = Arc::clone(&rig.scheduler.pending().to_vec()[0].reasons);
    assert_eq!(reasons.last, BTreeMap::from([(Reason::UnfulfilledConstraint, 1)]));
    let unused = &reasons.unused_offers;
    assert_eq!((unused.len(), reasons.last_used_at), (1, None));
    assert_eq!(unused[0].reasons, [Reason::UnfulfilledConstraint]);
    assert_eq!(reasons.last_constraints, BTreeMap::from([(1, 1)]));
}

#[tokio::test]
async fn launches_pause_while_the_matcher_fails() {
    let mut rig = registered_rig().await;
    rig.script.is_missing.store(true, Ordering::SeqCst);
    rig.submit(&Arc::new(spec("/without-conditions")), &["t1"]).await;
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    let reasons = Arc::clone(&rig.scheduler.pending().to_vec()[0].reasons);
    assert_eq!(reasons.last, BTreeMap::from([(Reason::MatcherUnavailable, 1)]));
    assert_eq!(reasons.message.as_deref(), Some("the plugin host is stopping"));

    let revived = rig.master.calls("REVIVE").len();
    rig.script.is_missing.store(false, Ordering::SeqCst);
    rig.script.changed.notify_one();
    rig.master.call("REVIVE", revived + 1).await;
    rig.master.offer(&[offer("o2", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    assert_eq!(rig.master.calls("ACCEPT").len(), 1);
}

#[tokio::test]
async fn end_of_a_backoff_sends_revive_and_launches() {
    let mut rig = registered_rig().await;
    let spec = Arc::new(spec("/app"));
    let mut later = task_request("t1", &spec);
    later.not_before = Some(Timestamp::now() + 400.milliseconds());
    rig.scheduler.submit(vec![later.clone()]);
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    let waiting = rig.scheduler.pending().to_vec();
    assert_eq!(waiting[0].reasons.last, BTreeMap::from([(Reason::Backoff, 1)]));
    assert_eq!(waiting[0].not_before, later.not_before);
    rig.master.call("SUPPRESS", 1).await;
    rig.master.call("REVIVE", 1).await;
    assert!(Timestamp::now() >= later.not_before.unwrap());
    rig.master.offer(&[offer("o2", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
}

/// Another task is pending all the time, so offers are never suppressed, and an offer that was
/// declined during the backoff is not sent again without a REVIVE.
#[tokio::test]
async fn end_of_a_backoff_sends_revive_while_other_tasks_are_pending() {
    let mut rig = registered_rig().await;
    let large = RunSpec {
        cpus: 100.0,
        ..spec("/large")
    };
    rig.submit(&Arc::new(large), &["large"]).await;
    let mut later = task_request("t1", &Arc::new(spec("/app")));
    later.not_before = Some(Timestamp::now() + 300.milliseconds());
    rig.scheduler.submit(vec![later.clone()]);
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    // Wait until shortly before the end of the backoff, because the requests themselves send REVIVE
    // too.
    let wanted = Instant::now();
    while Timestamp::now() + 100.milliseconds() < later.not_before.unwrap() {
        assert!(wanted.elapsed() < Duration::from_secs(20));
        tokio::task::yield_now().await;
    }
    let revived = rig.master.calls("REVIVE").len();
    rig.master.call("REVIVE", revived + 1).await;
    assert!(Timestamp::now() >= later.not_before.unwrap());
    assert!(rig.master.calls("SUPPRESS").is_empty());
    rig.master.offer(&[offer("o2", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
}

#[tokio::test]
async fn killed_pending_task_is_dropped_without_a_kill_call() {
    let mut rig = registered_rig().await;
    let spec = Arc::new(spec("/app"));
    rig.submit(&spec, &["t1", "t2"]).await;
    rig.kill("t1", None).await;
    assert_eq!(rig.event_text().await, "never launched t1");
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
    assert!(rig.scheduler.pending().is_empty());
    assert_eq!(rig.master.calls("KILL").len(), 0);
}

#[tokio::test]
async fn end_of_a_task_sends_revive_for_pending_tasks() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.submit(&Arc::new(spec("/app")), &["t2"]).await;
    rig.master.call("REVIVE", 1).await;
    rig.master.update("t1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    rig.master.call("REVIVE", 2).await;
}

/// An unreachable task does not count for the constraints of other tasks.
#[tokio::test]
async fn unreachable_task_sends_revive_for_pending_tasks() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.submit(&Arc::new(spec("/app")), &["t2"]).await;
    rig.master.call("REVIVE", 1).await;
    rig.master.update("t1", "TASK_UNREACHABLE", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_UNREACHABLE");
    rig.master.call("REVIVE", 2).await;
}

#[tokio::test]
async fn rescinded_offer_is_not_used() {
    let rig = registered_rig().await;
    // The actor does not run, so the events are handled without a turn in between.
    let (mut actor, _matcher, _link, _scheduler, _events) =
        rig.dependencies().assemble(Metrics::default()).await.unwrap();
    let offers = ["o1", "o2", "o3"].map(|id| offer(id, "a1", 1.0, &[]));
    for event in [
        ClusterEvent::Offers(offers.to_vec()),
        ClusterEvent::Rescind("o2".into()),
        ClusterEvent::Rescind("unheard-of".into()),
    ] {
        actor.take_subscription_events(SubscriptionEvent::Event(Box::new(event)));
    }
    let left: Vec<_> = actor
        .pool
        .offers()
        .iter()
        .map(|offer| offer.id.as_str())
        .collect();
    assert_eq!(left, ["o1", "o3"]);
}

#[tokio::test]
async fn launch_on_a_rescinded_offer_is_reported_as_dropped() {
    let mut rig = registered_rig().await;
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    rig.master
        .send(&serde_json::json!({"type": "RESCIND", "rescind": {"offer_id": {"value": "o1"}}}));
    // The master itself made this status, so it has no uuid.
    rig.master.update("t1", "TASK_DROPPED", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_DROPPED");
    let known = rig.record("t1").unwrap();
    assert!(known.is_terminal() && known.started_at.is_none());
    assert!(rig.master.calls("ACKNOWLEDGE").is_empty());
}

/// With a slow matcher, requests are carried out between the rounds, and every pending task is
/// tried with all offers, including those that arrive meanwhile.
#[tokio::test]
async fn long_matching_is_split_into_several_rounds() {
    let mut rig = registered_rig().await;
    rig.script.call_duration_ms.store(40, Ordering::SeqCst);
    let big = RunSpec {
        cpus: 3.0,
        ..spec("/big")
    };
    let small = (0..20).map(|n| task_request(&format!("t{n}"), &Arc::new(spec(&format!("/{n}")))));
    let all = [task_request("big", &Arc::new(big))].into_iter().chain(small);
    rig.scheduler.submit(all.collect());
    let offers: Vec<_> = (0..21)
        .map(|n| offer(&format!("o{n}"), &format!("a{n}"), 0.5, &[]))
        .collect();
    rig.master.offer(&offers);
    // The offers of one round are accepted concurrently.
    let first = rig.event_text().await;
    assert!(first.starts_with("launched t"), "{first}");
    let mut turns = rig.scheduler.shared.turns.subscribe();
    rig.scheduler
        .submit(vec![task_request("late", &Arc::new(spec("/late")))]);
    turns.changed().await.unwrap();
    rig.master.offer(&[offer("o-big", "a-big", 4.0, &[])]);
    let accepted = rig.master.calls("ACCEPT").len();
    assert!(
        accepted < 20,
        "{accepted} offers accepted when the request was carried out"
    );
    let mut event_texts = Vec::new();
    for _ in 0..21 {
        event_texts.push(rig.event_text().await);
    }
    assert!(
        event_texts.contains(&"launched late TASK_STAGING".to_owned()),
        "{event_texts:?}"
    );
    assert_eq!(event_texts.last().unwrap(), "launched big TASK_STAGING");
    assert_eq!(rig.master.calls("DECLINE").len(), 0, "all offers were used");
    assert!(rig.metric("transom_scheduler_matching_rounds_total") > 3.0);
    assert!(rig.scheduler.pending().is_empty());
}

#[tokio::test]
async fn burst_of_events_is_taken_in_parts_without_loss() {
    let rig = registered_rig().await;
    let (mut actor, _matcher, link, _scheduler, _events) =
        rig.dependencies().assemble(Metrics::default()).await.unwrap();
    let news = |n: usize| {
        let offers = vec![offer(&format!("o{n}"), "a1", 1.0, &[])];
        SubscriptionEvent::Event(Box::new(ClusterEvent::Offers(offers)))
    };
    for n in 1..=EVENT_QUEUE_CAPACITY {
        link.events.try_send(news(n)).unwrap();
    }
    actor.take_subscription_events(news(0));
    assert_eq!(actor.pool.offers().len(), EVENT_QUEUE_CAPACITY);
    let left = actor.subscription_events.try_recv().unwrap();
    assert!(actor.subscription_events.try_recv().is_err());
    actor.take_subscription_events(left);
    assert_eq!(actor.pool.offers().len(), EVENT_QUEUE_CAPACITY + 1);
}
