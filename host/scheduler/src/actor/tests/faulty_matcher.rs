//! A matcher that fails, for some run specs or for all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use transom_common::Backoff;

use super::rig::{Fault, Rig};
use crate::testing::{offer, spec, task_request};
use crate::{Reason, RunSpec, SchedulerApi};

const FAULTS: &[Fault] = &[
    Fault::Trap,
    Fault::Hang,
    Fault::CpuExhausted,
    Fault::OutOfMemory,
    Fault::Malformed,
    Fault::UnknownAgent,
];

async fn registered(mut rig: Rig) -> Rig {
    assert_eq!(rig.event_text().await, "registered F-1");
    rig
}

/// How often the matcher was called for the run spec.
fn calls_for(rig: &Rig, run_spec: &str) -> usize {
    let asked = rig.script.asked.lock().unwrap();
    asked.iter().filter(|asked| *asked == run_spec).count()
}

fn offers(round: &str, count: u32) -> Vec<transom_cluster::v1::Offer> {
    let one = |n: u32| offer(&format!("{round}-{n}"), &format!("a{n}"), 0.5, &[]);
    (0..count).map(one).collect()
}

#[tokio::test]
async fn run_spec_on_which_the_matcher_fails_delays_no_other() {
    for &fault in FAULTS {
        let mut rig = registered(Rig::new().await).await;
        rig.script.faults.lock().unwrap().insert("/bad".to_owned(), fault);
        let specs = ["/bad", "/a", "/b"].map(|id| Arc::new(spec(id)));
        let requests = specs.iter().map(|spec| task_request(&spec.id[1..], spec));
        rig.scheduler.submit(requests.collect());
        rig.master.offer(&offers("first", 5));
        let mut launched = [rig.event_text().await, rig.event_text().await];
        launched.sort();
        assert_eq!(
            launched,
            ["launched a TASK_STAGING", "launched b TASK_STAGING"],
            "{fault:?}"
        );
        rig.wait_for_turn().await;
        let pending = rig.scheduler.pending().to_vec();
        let reasons = &pending[0].reasons;
        assert_eq!(
            reasons.last,
            BTreeMap::from([(Reason::MatcherUnavailable, 1)]),
            "{fault:?}"
        );
        assert!(reasons.message.is_some(), "{fault:?}");

        // During its backoff, later tasks of other run specs are placed, and it is not asked again.
        rig.submit(&specs[1], &["c"]).await;
        rig.master.offer(&offers("second", 2));
        assert_eq!(rig.event_text().await, "launched c TASK_STAGING", "{fault:?}");
        assert_eq!(calls_for(&rig, "/bad"), 1, "{fault:?}");

        // Another version of the component ends the backoff.
        rig.script.faults.lock().unwrap().clear();
        let revived = rig.master.calls("REVIVE").len();
        rig.script.changed.notify_one();
        rig.master.call("REVIVE", revived + 1).await;
        rig.master.offer(&offers("third", 1));
        assert_eq!(rig.event_text().await, "launched bad TASK_STAGING", "{fault:?}");
    }
}

/// Ten run specs whose calls hang take turns with the other work: what fits is launched before the
/// next of them is tried, and they are tried rarely.
#[tokio::test]
async fn many_run_specs_whose_calls_hang_do_not_add_up() {
    let rig = Rig::with_timeouts(|timeouts| {
        timeouts.matcher = Backoff {
            base: Duration::from_millis(1),
            max: Duration::from_millis(1),
        };
    });
    let mut rig = registered(rig.await).await;
    let hanging: Vec<String> = (0..10).map(|n| format!("/hanging{n}")).collect();
    for id in &hanging {
        rig.script.faults.lock().unwrap().insert(id.clone(), Fault::Hang);
        let requests = vec![task_request(&id[1..], &Arc::new(spec(id)))];
        rig.scheduler.submit(requests);
    }
    rig.master.offer(&offers("first", 1));
    transom_testkit::eventually("a call for each run spec", async || {
        let asked = hanging.iter().filter(|id| calls_for(&rig, id) > 0).count();
        if asked == hanging.len() {
            Ok(())
        } else {
            Err(format!("{asked} asked"))
        }
    })
    .await;
    rig.script.asked.lock().unwrap().clear();
    rig.submit(&Arc::new(spec("/good")), &["good"]).await;
    rig.master.offer(&offers("second", 1));
    assert_eq!(rig.event_text().await, "launched good TASK_STAGING");
    let asked = rig.script.asked.lock().unwrap().clone();
    let hung = asked.iter().take_while(|asked| *asked != "/good");
    let hung = hung.filter(|asked| hanging.contains(asked)).count();
    assert!(hung <= 1, "{asked:?}");
}

/// A component that fails on everything is asked for one run spec, not for each.
#[tokio::test]
async fn matcher_that_fails_for_all_is_called_once_per_backoff() {
    for fault in [Fault::Trap, Fault::Hang, Fault::Malformed] {
        let rig = registered(Rig::new().await).await;
        rig.script.faults.lock().unwrap().insert("*".to_owned(), fault);
        let specs = (0..20).map(|n| Arc::new(spec(&format!("/{n}"))));
        let requests = specs.map(|spec| task_request(&spec.id[1..], &spec));
        rig.scheduler.submit(requests.collect());
        rig.master.offer(&offers("first", 3));
        rig.master.call("DECLINE", 1).await;
        // One for placing a task, and a simple question that shows whose fault it is.
        assert_eq!(rig.script.asked.lock().unwrap().len(), 2, "{fault:?}");
        let pending = rig.scheduler.pending().to_vec();
        let unavailable = |reasons: &crate::Reasons| reasons.last.contains_key(&Reason::MatcherUnavailable);
        assert!(
            pending.iter().all(|pending| unavailable(&pending.reasons)),
            "{fault:?}"
        );
    }
}

/// A run spec with many tasks that fit nowhere is matched once per pass, not once per batch.
#[tokio::test]
async fn many_tasks_that_fit_nowhere_are_matched_once() {
    let rig = registered(Rig::new().await).await;
    rig.script.rejected_agents.lock().unwrap().insert("a0".to_owned());
    let wide = Arc::new(RunSpec {
        instances: 1500,
        ..spec("/wide")
    });
    let tasks = (0..1500).map(|n| task_request(&format!("t{n}"), &wide));
    rig.scheduler.submit(tasks.collect());
    rig.master.offer(&offers("first", 1));
    rig.master.call("DECLINE", 1).await;
    assert_eq!(
        rig.script.asked.lock().unwrap().len(),
        2,
        "one choice and its reasons"
    );
    let pending = rig.scheduler.pending().to_vec();
    assert_eq!(pending.len(), 1500);
    assert_eq!(pending[1499].reasons.rounds, 1);
}

/// Nothing can be done about the end of a backoff then, so that it must not wake the scheduler.
#[tokio::test]
async fn backoff_that_ends_without_a_subscription_keeps_no_core_busy() {
    let backoff = Duration::from_millis(100);
    let rig = Rig::with_timeouts(|timeouts| {
        timeouts.matcher = Backoff {
            base: backoff,
            max: backoff,
        };
    });
    let mut rig = registered(rig.await).await;
    rig.script
        .faults
        .lock()
        .unwrap()
        .insert("/bad".to_owned(), Fault::Trap);
    rig.submit(&Arc::new(spec("/bad")), &["bad"]).await;
    rig.master.offer(&offers("first", 1));
    rig.master.call("DECLINE", 1).await;
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("SUBSCRIBE");
    });
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    let turns = rig.scheduler.shared.turns.subscribe();
    let before = *turns.borrow();
    // Longer than the backoff.
    rig.master.call("SUBSCRIBE", 12).await;
    let turns = *turns.borrow() - before;
    assert!(turns < 200, "{turns} turns");
}
