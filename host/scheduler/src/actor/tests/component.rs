//! Tests with the real `attributes` component as built by `cargo xtask plugins`, which is missing
//! at first and installed while tasks are pending.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_cluster::v1;
use transom_common::Backoff;
use transom_plugin_host::matcher::Constraint;

use super::rig::Rig;
use crate::Matchers;
use crate::matching::OpenOffer;
use crate::matching::agents::Agents;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::queue::Queue;
use crate::matching::round::Round;
use crate::testing::{offer, spec, task_request};
use crate::{Reason, RunSpec, SchedulerApi};

/// The file of the component or of its manifest. `TRANSOM_COMPONENTS` names another folder than the
/// workspace's own.
fn component(file: &str) -> PathBuf {
    let folder = std::env::var_os("TRANSOM_COMPONENTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/components"),
        PathBuf::from,
    );
    let path = folder.join(file);
    assert!(
        path.exists(),
        "{} is missing: run cargo xtask plugins first",
        path.display()
    );
    path
}

fn one_per_rack() -> Arc<RunSpec> {
    let unique = Constraint::Field {
        field: "rack".to_owned(),
        operator: "UNIQUE".to_owned(),
        operand: None,
    };
    Arc::new(RunSpec {
        constraints: vec![unique],
        instances: 3,
        ..spec("/app")
    })
}

fn install(dir: &Path) {
    for file in ["attributes.wasm", "attributes.toml"] {
        std::fs::copy(component(file), dir.join(file)).unwrap();
    }
}

#[tokio::test]
async fn matcher_component_places_tasks_and_launches_wait_for_it() {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let config = transom_plugin_host::Config::new(dir.path());
    let plugins = config
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let mut rig = Rig::with_matchers(Matchers::from(plugins.clone()).host()).await;
    assert_eq!(rig.event_text().await, "registered F-1");

    // The component is missing: nothing is launched, and the reason names the plugin.
    rig.submit(&one_per_rack(), &["t1", "t2", "t3"]).await;
    rig.master.offer(&[offer("o1", "a1", 4.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    let reasons = Arc::clone(&rig.scheduler.pending().to_vec()[0].reasons);
    assert!(
        reasons.last.contains_key(&Reason::MatcherUnavailable),
        "{reasons:?}"
    );
    assert!(
        reasons
            .message
            .as_ref()
            .is_some_and(|message| message.contains("attributes")),
        "{reasons:?}"
    );

    // The component is installed: the scheduler notices it and tries again.
    let revived = rig.master.calls("REVIVE").len();
    install(dir.path());
    plugins.rescan().await;
    rig.master.call("REVIVE", revived + 1).await;
    rig.master
        .offer(&[offer("o2", "a1", 4.0, &[]), offer("o3", "a2", 4.0, &[])]);
    for _ in 0..2 {
        assert!(rig.event_text().await.starts_with("launched"));
    }
    let agents: Vec<_> = rig
        .scheduler
        .tasks()
        .values()
        .map(|record| record.agent.id.to_string())
        .collect();
    assert_eq!(agents, ["a1", "a2"], "one task in each rack");
    let reasons = Arc::clone(&rig.scheduler.pending().to_vec()[0].reasons);
    assert_eq!(
        reasons.last.get(&Reason::UnfulfilledConstraint),
        Some(&2),
        "{reasons:?}"
    );
    assert_eq!(reasons.last_constraints.get(&0), Some(&2));

    // Running tasks count even while their agents send no offers. An agent in a third rack is offered.
    rig.master.offer(&[offer("o4", "a3", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t3 TASK_STAGING");
    rig.token.cancel();
    rig.scheduler.stopped().await;
    token.cancel();
    plugins.stopped().await;
}

/// `GROUP_BY` without a number spreads tasks over all known values: tasks do not wait for the value
/// that is lost with its agent.
#[tokio::test]
async fn instances_of_a_lost_agent_are_placed_on_other_agents() {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    install(dir.path());
    let plugins = transom_plugin_host::Config::new(dir.path())
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let mut rig = Rig::with_matchers(Matchers::from(plugins.clone()).host()).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let spread = Constraint::Field {
        field: "rack".to_owned(),
        operator: "GROUP_BY".to_owned(),
        operand: None,
    };
    let spec = Arc::new(RunSpec {
        constraints: vec![spread],
        instances: 3,
        ..spec("/app")
    });
    rig.submit(&spec, &["t1", "t2", "t3"]).await;
    let offers = |round: u32, agents: &[&str]| -> Vec<v1::Offer> {
        let offers = agents.iter();
        offers
            .map(|agent| offer(&format!("{agent}-{round}"), agent, 4.0, &[]))
            .collect()
    };
    rig.master.offer(&offers(1, &["a1", "a2", "a3"]));
    let mut lost = String::new();
    for _ in 0..3 {
        let event_text = rig.event_text().await;
        let task = event_text.split(' ').nth(1).unwrap().to_owned();
        let record = rig.record(&task).unwrap();
        if record.agent.id.as_str() == "a3" {
            lost = task;
        }
    }
    assert!(!lost.is_empty(), "one task in each rack");
    rig.master.update(&lost, "TASK_UNREACHABLE", "lost");
    assert_eq!(rig.event_text().await, format!("updated {lost} TASK_UNREACHABLE"));
    rig.submit(&spec, &["t4"]).await;
    rig.master.offer(&offers(2, &["a1", "a2"]));
    assert_eq!(rig.event_text().await, "launched t4 TASK_STAGING");
    rig.token.cancel();
    rig.scheduler.stopped().await;
    token.cancel();
    plugins.stopped().await;
}

/// The component rejects the agent by its own rule. That is not a failure, and the reason reports it.
#[tokio::test]
async fn agent_outside_the_home_region_is_reported_as_a_rule_of_the_matcher() {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    install(dir.path());
    let plugins = transom_plugin_host::Config::new(dir.path())
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let mut agents = Agents::default();
    let mut bins = Vec::new();
    for (id, region) in [("a1", "away"), ("a2", "home"), ("a3", "away")] {
        let mut offer = offer(id, id, 0.5, &[]);
        let name = |name: &str| v1::DomainName {
            name: name.to_owned(),
        };
        offer.domain = Some(v1::DomainInfo {
            fault_domain: Some(v1::FaultDomain {
                region: name(region),
                zone: name("z"),
            }),
        });
        let agent = agents.handle_of_offer(&offer, Instant::now()).unwrap();
        bins.push(OpenOffer::new(&offer, agent));
    }
    let backoff = Backoff {
        base: Duration::ZERO,
        max: Duration::ZERO,
    };
    let agent_set = plugins.agent_set(Some("home".to_owned()));
    let mut matcher = MatcherClient::new(Box::new(agent_set), backoff, Counter::default());
    let (changed, removed) = agents.take_changes();
    matcher.update(changed, removed);

    let (mut queue, now) = (Queue::default(), Timestamp::UNIX_EPOCH);
    let spec = Arc::new(spec("/app"));
    queue.push(task_request("t1", &spec), now);
    queue.push(task_request("t2", &spec), now);
    let mut round = Round::new(bins, HashMap::new(), vec!["*".to_owned()], now);
    let batch = &queue.batches(now)[0];
    let failure = round
        .place(batch, &mut matcher, &mut StdRng::seed_from_u64(1))
        .await;
    let failure = failure.expect("one task is not placed");
    assert_eq!(
        round.into_planned().len(),
        1,
        "one task is placed in the home region"
    );
    assert_eq!(failure.reasons[&Reason::UnfulfilledConstraint], 2, "{failure:?}");
    assert!(failure.constraints.is_empty(), "{failure:?}");
    let message = failure.message.unwrap_or_default();
    assert!(message.contains("home region: 2"), "{message}");
    token.cancel();
    plugins.stopped().await;
}

/// An app by host name on twice as many agents as instances, and one by rack. Each call of the
/// component stays within its limits, and the instances are spread.
#[tokio::test]
async fn thousands_of_instances_are_spread_over_thousands_of_agents() {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    install(dir.path());
    let plugins = transom_plugin_host::Config::new(dir.path())
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let mut agents = Agents::default();
    let mut open_offers = Vec::new();
    for n in 0..4000 {
        let mut offer = offer(&format!("o{n}"), &format!("a{n}"), 8.0, &[]);
        offer.hostname = format!("h{n}");
        offer.attributes = vec![v1::Attribute::text("rack", format!("r{}", n % 40))];
        let agent = agents.handle_of_offer(&offer, Instant::now()).unwrap();
        open_offers.push(OpenOffer::new(&offer, agent));
    }
    let no_backoff = Backoff {
        base: Duration::ZERO,
        max: Duration::ZERO,
    };
    let agent_set = Box::new(plugins.agent_set(None));
    let mut matcher = MatcherClient::new(agent_set, no_backoff, Counter::default());
    let (changed, removed) = agents.take_changes();
    matcher.update(changed, removed);
    for (field, instances, most_in_one_place) in [("@hostname", 2000, 1), ("rack", 3000, 75)] {
        let spread = Constraint::Field {
            field: field.to_owned(),
            operator: "GROUP_BY".to_owned(),
            operand: None,
        };
        let spec = Arc::new(RunSpec {
            constraints: vec![spread],
            instances,
            ..spec("/app")
        });
        let (mut queue, now) = (Queue::default(), Timestamp::UNIX_EPOCH);
        for n in 0..instances {
            queue.push(task_request(&format!("t{n}"), &spec), now);
        }
        let mut round = Round::new(open_offers.clone(), HashMap::new(), vec!["*".to_owned()], now);
        for batch in queue.batches(now) {
            let failure = round
                .place(&batch, &mut matcher, &mut StdRng::seed_from_u64(1))
                .await;
            assert_eq!(failure, None, "{field}");
        }
        let mut by_place: HashMap<u32, u32> = HashMap::new();
        for planned in round.into_planned() {
            let agent = planned.assigned.agent;
            *by_place
                .entry(if field == "rack" { agent % 40 } else { agent })
                .or_default() += 1;
        }
        assert_eq!(by_place.values().sum::<u32>(), instances, "{field}");
        assert_eq!(by_place.values().max(), Some(&most_in_one_place), "{field}");
    }
    token.cancel();
    plugins.stopped().await;
}
