//! Inverse offers and their answers.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::{
    answer_inverse_offer, assert_no_event, inverse_offer_answers, inverse_offers, machine, set_schedule,
    unavailability,
};
use crate::support::{Framework, framework_info};
use crate::{fixture, legacy_framework_info, with_task};

#[tokio::test]
async fn inverse_offer_is_as_recorded_and_is_repeated_when_its_filter_expires() {
    let cluster = crate::start_cluster(|_| ()).await;
    let (mut framework, _) = with_task(&cluster, &framework_info(), "t").await;
    let mut idle = Framework::subscribe(cluster.master(), &legacy_framework_info(true)).await;
    idle.expect_accepted(json!({"type": "SUPPRESS"})).await;
    set_schedule(&cluster, &[machine("localhost")], 5).await;
    let sent_offers = inverse_offers(&mut framework).await;
    assert_eq!(sent_offers.len(), 1);
    let recorded: Value = serde_json::from_str(&fixture("5-misc/inverse-offers.json")).unwrap();
    let recorded = &recorded["inverse_offers"]["inverse_offers"][0];
    let keys = |offer: &Value| {
        let keys = offer.as_object().unwrap().keys();
        let mut keys: Vec<String> = keys.cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&sent_offers[0]), keys(recorded));
    assert_eq!(keys(&sent_offers[0]["url"]), keys(&recorded["url"]));
    assert_eq!(sent_offers[0]["unavailability"], unavailability(5));
    assert_eq!(sent_offers[0]["framework_id"]["value"], framework.id);
    let frameworks = cluster
        .operator_call(json!({"type": "GET_FRAMEWORKS"}))
        .await
        .json();
    assert_eq!(
        frameworks["get_frameworks"]["frameworks"][0]["inverse_offers"],
        json!(sent_offers)
    );
    // An inverse offer is outstanding and not answered, so no other one is sent.
    assert_no_event(&mut framework, "INVERSE_OFFERS").await;
    assert_eq!(inverse_offer_answers(&cluster).await, []);
    answer_inverse_offer(&framework, "DECLINE_INVERSE_OFFERS", &sent_offers[0], Some(0.0)).await;
    let id = framework.id.clone();
    assert_eq!(
        inverse_offer_answers(&cluster).await,
        [(id.clone(), "DECLINE".to_owned())]
    );
    let second = inverse_offers(&mut framework).await.remove(0);
    assert_ne!(second["id"], sent_offers[0]["id"]);
    // An answer to one that is no longer valid is ignored.
    answer_inverse_offer(&framework, "ACCEPT_INVERSE_OFFERS", &sent_offers[0], None).await;
    assert_eq!(
        inverse_offer_answers(&cluster).await,
        [(id.clone(), "DECLINE".to_owned())]
    );
    let started_at = Instant::now();
    answer_inverse_offer(&framework, "ACCEPT_INVERSE_OFFERS", &second, Some(0.5)).await;
    assert_eq!(
        inverse_offer_answers(&cluster).await,
        [(id.clone(), "ACCEPT".to_owned())]
    );
    let third = inverse_offers(&mut framework).await.remove(0);
    let waited = started_at.elapsed();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    // The default filter takes five seconds; REVIVE removes it.
    answer_inverse_offer(&framework, "ACCEPT_INVERSE_OFFERS", &third, None).await;
    assert_no_event(&mut framework, "INVERSE_OFFERS").await;
    framework.expect_accepted(json!({"type": "REVIVE"})).await;
    let held = framework.offer().await;
    let fourth = inverse_offers(&mut framework).await.remove(0);
    framework.expect_accepted(json!({"type": "SUPPRESS"})).await;
    let decline = json!({"offer_ids": [held["id"]], "filters": {"refuse_seconds": 600}});
    framework
        .expect_accepted(json!({"type": "DECLINE", "decline": decline}))
        .await;
    framework.kill("t").await;
    framework.wait_for_state("t", "TASK_KILLED").await;
    answer_inverse_offer(&framework, "ACCEPT_INVERSE_OFFERS", &fourth, Some(0.0)).await;
    // The framework no longer uses the agent.
    assert_no_event(&mut framework, "INVERSE_OFFERS").await;
    assert_no_event(&mut idle, "INVERSE_OFFERS").await;
    cluster.stop().await;
}

#[tokio::test]
async fn inverse_offers_are_rescinded_when_the_schedule_changes_or_the_agent_is_gone() {
    let cluster = crate::start_cluster(|_| ()).await;
    let (mut framework, agent) = with_task(&cluster, &framework_info(), "t").await;
    set_schedule(&cluster, &[machine("localhost")], 5).await;
    let first = inverse_offers(&mut framework).await.remove(0);
    answer_inverse_offer(&framework, "ACCEPT_INVERSE_OFFERS", &first, Some(0.0)).await;
    let second = inverse_offers(&mut framework).await.remove(0);
    set_schedule(&cluster, &[machine("localhost")], 9).await;
    let rescinded = |offer: &Value| json!({"inverse_offer_id": offer["id"]});
    let event = framework
        .wait_until(|event| event["type"] == "RESCIND_INVERSE_OFFER")
        .await;
    assert_eq!(event["rescind_inverse_offer"], rescinded(&second));
    assert_eq!(
        inverse_offer_answers(&cluster).await,
        [],
        "the answer for the old window is dropped"
    );
    let third = inverse_offers(&mut framework).await.remove(0);
    assert_eq!(third["unavailability"], unavailability(9));
    let gone = json!({"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": agent}});
    assert_eq!(cluster.operator_call(gone).await.head.code(), 200);
    let event = framework
        .wait_until(|event| event["type"] == "RESCIND_INVERSE_OFFER")
        .await;
    assert_eq!(event["rescind_inverse_offer"], rescinded(&third));
    cluster.stop().await;
}

#[tokio::test]
async fn framework_receives_its_inverse_offer_again_when_it_resubscribes() {
    let cluster = crate::start_cluster(|_| ()).await;
    let (mut framework, _) = with_task(&cluster, &framework_info(), "t").await;
    set_schedule(&cluster, &[machine("localhost")], 5).await;
    let lost = inverse_offers(&mut framework).await.remove(0);
    let id = framework.id.clone();
    drop(framework);
    cluster
        .wait_until("/frameworks", |page| page["frameworks"][0]["connected"] == false)
        .await;
    let mut info = framework_info();
    info["id"] = json!({"value": id});
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let new_offer = inverse_offers(&mut framework).await.remove(0);
    assert_ne!(new_offer["id"], lost["id"]);
    // The filter of an answer ends with the stream too.
    answer_inverse_offer(&framework, "DECLINE_INVERSE_OFFERS", &new_offer, None).await;
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    inverse_offers(&mut framework).await;
    assert_eq!(
        inverse_offer_answers(&cluster).await,
        [(id, "DECLINE".to_owned())]
    );
    cluster.stop().await;
}
