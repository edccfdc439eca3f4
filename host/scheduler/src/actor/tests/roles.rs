//! Roles that are added while the framework runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use transom_cluster::v1;

use super::rig::Rig;
use crate::testing::{offer, spec};
use crate::{Reason, RunSpec, SchedulerApi};

fn of_role(id: &str, role: &str) -> Arc<RunSpec> {
    Arc::new(RunSpec {
        role: Some(role.to_owned()),
        ..spec(id)
    })
}

/// An offer that is allocated to a role, and whose resources are too.
fn allocated(id: &str, agent: &str, role: &str) -> v1::Offer {
    let info = Some(v1::AllocationInfo {
        role: Some(role.to_owned()),
    });
    let mut offer = offer(id, agent, 4.0, &[]);
    offer.allocation_info.clone_from(&info);
    for resource in &mut offer.resources {
        resource.allocation_info.clone_from(&info);
    }
    offer
}

fn roles(info: &Value) -> Vec<&str> {
    let roles = info["roles"].as_array().unwrap().iter();
    roles.map(|role| role.as_str().unwrap()).collect()
}

#[tokio::test]
async fn role_of_a_run_spec_is_added_and_kept_for_later_subscriptions() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.submit(&of_role("/app", "prod"), &["t1"]).await;
    let update = rig.master.call("UPDATE_FRAMEWORK", 1).await;
    let info = &update.body["update_framework"]["framework_info"];
    assert_eq!(roles(info), ["*", "prod"]);
    let subscribed = &rig.master.calls("SUBSCRIBE")[0].body["subscribe"]["framework_info"];
    for field in ["user", "name", "capabilities", "checkpoint", "failover_timeout"] {
        assert_eq!(info[field], subscribed[field], "{field}");
    }
    assert_eq!(info["id"]["value"], "F-1");

    // Only offers for the run spec's role are used, and the launched resources carry that role.
    rig.master
        .offer(&[allocated("o1", "a1", "*"), allocated("o2", "a2", "prod")]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    let accept = rig.master.call("ACCEPT", 1).await;
    assert_eq!(accept.body["accept"]["offer_ids"][0]["value"], "o2");
    let resources = &accept.body["accept"]["operations"][0]["launch"]["task_infos"][0]["resources"];
    assert_eq!(resources[0]["allocation_info"], json!({"role": "prod"}));

    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    let resubscribe = rig.master.call("SUBSCRIBE", 2).await;
    assert_eq!(
        roles(&resubscribe.body["subscribe"]["framework_info"]),
        ["*", "prod"]
    );
    assert_eq!(rig.event_text().await, "reregistered");
    rig.scheduler.add_role("prod");
    rig.scheduler.add_role("not a role");
    rig.scheduler.add_role("dev");
    let update = rig.master.call("UPDATE_FRAMEWORK", 2).await;
    let info = &update.body["update_framework"]["framework_info"];
    assert_eq!(roles(info), ["*", "prod", "dev"]);
}

#[tokio::test]
async fn tasks_stay_pending_while_the_master_rejects_their_role() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("UPDATE_FRAMEWORK");
    });
    rig.submit(&of_role("/app", "prod"), &["t1"]).await;
    rig.submit(&Arc::new(spec("/job")), &["t2"]).await;
    rig.master.call("UPDATE_FRAMEWORK", 2).await;
    rig.master.offer(&[allocated("o1", "a1", "*")]);
    assert_eq!(
        rig.event_text().await,
        "launched t2 TASK_STAGING",
        "other roles are not affected"
    );
    rig.master.offer(&[allocated("o2", "a1", "*")]);
    rig.master
        .call_where("DECLINE", 1, |call| {
            call.body["decline"]["offer_ids"][0]["value"] == "o2"
        })
        .await;
    rig.wait_for_turn().await;
    let pending = rig.scheduler.pending().to_vec();
    assert!(pending[0].reasons.last.contains_key(&Reason::UnfulfilledRole));
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    let resubscribe = rig.master.call("SUBSCRIBE", 2).await;
    assert_eq!(roles(&resubscribe.body["subscribe"]["framework_info"]), ["*"]);
    assert_eq!(rig.event_text().await, "reregistered");
    let before = rig.master.calls("UPDATE_FRAMEWORK").len();
    rig.master.configure(|rules| rules.rejected_calls.clear());
    rig.master.call("UPDATE_FRAMEWORK", before + 1).await;
    rig.master.offer(&[allocated("o3", "a1", "prod")]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
}

#[tokio::test]
async fn only_the_roles_of_pending_tasks_are_revived() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    for role in ["a", "b"] {
        rig.scheduler.add_role(role);
    }
    rig.master.call("UPDATE_FRAMEWORK", 2).await;
    rig.submit(&of_role("/app", "a"), &["t1"]).await;
    let of = |call: &str, part: &'static str, roles: &'static [&str]| {
        let (call, rig) = (call.to_owned(), &rig);
        async move {
            let wanted: BTreeSet<&str> = roles.iter().copied().collect();
            rig.master
                .call_where(&call, 1, |call| {
                    let named = call.body[part]["roles"].as_array().into_iter().flatten();
                    named.filter_map(Value::as_str).collect::<BTreeSet<_>>() == wanted
                })
                .await
        }
    };
    of("SUPPRESS", "suppress", &["*", "b"]).await;
    of("REVIVE", "revive", &["a"]).await;
    rig.submit(&of_role("/job", "b"), &["t2"]).await;
    of("REVIVE", "revive", &["a", "b"]).await;
    rig.master
        .offer(&[allocated("o1", "a1", "b"), allocated("o2", "a1", "a")]);
    let mut launched = [rig.event_text().await, rig.event_text().await];
    launched.sort();
    assert_eq!(launched, ["launched t1 TASK_STAGING", "launched t2 TASK_STAGING"]);
    let accepts = rig.master.calls("ACCEPT");
    let tasks: BTreeSet<(&str, &str)> = accepts
        .iter()
        .map(|call| {
            let accept = &call.body["accept"];
            let info = &accept["operations"][0]["launch"]["task_infos"][0];
            (
                accept["offer_ids"][0]["value"].as_str().unwrap(),
                info["task_id"]["value"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(tasks, BTreeSet::from([("o1", "t2"), ("o2", "t1")]));
}
