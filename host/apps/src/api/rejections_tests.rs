use std::sync::Arc;

use serde_json::{Value, json};
use transom_cluster::v1::Resource;
use transom_scheduler::{AgentLocation, TaskRecord};

use super::*;
use crate::instance::Instance;
use crate::testing;
use crate::time::Moment;

/// An offer of an agent with the host name `host`.
fn unused(host: &str, ports: (u64, u64), rack: Option<&str>, reason: Reason) -> Arc<UnusedOffer> {
    Arc::new(UnusedOffer {
        offer: format!("offer-{host}").as_str().into(),
        agent: Arc::new(location(host)),
        attributes: rack
            .map(|rack| Attribute::text("rack", rack))
            .into_iter()
            .collect(),
        resources: vec![
            Arc::new(Resource::scalar("cpus", 1.0)),
            Arc::new(Resource::ranges("ports", &[ports])),
        ],
        reasons: vec![reason],
        at: jiff::Timestamp::UNIX_EPOCH,
    })
}

fn location(host: &str) -> AgentLocation {
    AgentLocation {
        id: format!("agent-{host}").as_str().into(),
        hostname: host.to_owned(),
        region: None,
        zone: None,
        endpoint: None,
    }
}

fn app(id: &str, more: &Value) -> Spec {
    let mut body = json!({"id": id, "cmd": "sleep 60"});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    Spec::App(Arc::new(testing::app(&body)))
}

/// The places of an instance of this app that uses this port of the agent `host`.
fn used(id: &str, host: &str, port: u16) -> Places {
    let id = SpecId::parse(id).unwrap();
    let mut instance = Instance::new(&id, Moment::now(), Moment::now());
    instance.set_record(&Arc::new(TaskRecord {
        agent: Arc::new(location(host)),
        host_ports: vec![port],
        ..testing::record(instance.task())
    }));
    let mut places = Places::default();
    places.change(&id, &(None, Some(Arc::new(instance))));
    places
}

fn texts(spec: &Spec, reasons: &Reasons, places: &Places) -> Vec<String> {
    let list = rejections(spec, reasons, places);
    list.into_iter().map(|one| one.text).collect()
}

#[test]
fn fixed_port_that_no_offer_has_is_named_with_the_offered_ports_and_its_user() {
    use Reason::InsufficientPorts as Ports;
    let offers = |ports: &[(&str, (u64, u64))]| Reasons {
        last: [(Ports, ports.len() as u32)].into(),
        last_offers: ports.len() as u32,
        unused_offers: ports
            .iter()
            .map(|(host, ports)| unused(host, *ports, None, Ports))
            .collect(),
        ..Reasons::default()
    };
    let nowhere = offers(&[("h1", (31_000, 32_000)), ("h2", (31_000, 32_000))]);
    let fixed = json!({"ports": [8080], "requirePorts": true});
    let missing = "host port 8080 is in none of 2 offers: agents offer 31000-32000";
    let empty = Places::default();
    assert_eq!(texts(&app("/a", &fixed), &nowhere, &empty), [missing]);
    assert_eq!(
        texts(&app("/a", &json!({"ports": [8080]})), &nowhere, &empty),
        [""; 0],
        "without requirePorts the number is a service port"
    );
    let mapped = json!({
        "container": {
            "type": "DOCKER", "docker": {"image": "i"}, "portMappings": [{"containerPort": 80, "hostPort": 8080}],
        },
        "networks": [{"mode": "container/bridge"}],
    });
    assert_eq!(texts(&app("/a", &mapped), &nowhere, &empty), [missing]);
    let pod = testing::pod(&json!({
        "id": "/p", "containers": [{
            "name": "c", "resources": {"cpus": 0.1, "mem": 16}, "endpoints": [{"name": "e", "hostPort": 8080}],
        }],
    }));
    assert_eq!(texts(&Spec::Pod(Arc::new(pod)), &nowhere, &empty), [missing]);
    let mut many = nowhere.clone();
    many.last_offers = 40;
    assert_eq!(
        texts(&app("/a", &fixed), &many, &empty),
        ["host port 8080 is in none of the 2 offers looked at of 40: agents offer 31000-32000"]
    );

    let partly = offers(&[("h1", (31_000, 32_000)), ("h2", (8_000, 9_000))]);
    assert_eq!(
        texts(&app("/a", &fixed), &partly, &used("/other", "h1", 8080)),
        [
            "host port 8080 is not in 1 of 2 offers: agents offer 31000-32000. The port is used by /other on h1"
        ]
    );
    // An instance of an earlier definition, which an update replaces.
    let own = texts(&app("/a", &fixed), &partly, &used("/a", "h1", 8080)).remove(0);
    assert!(
        own.contains("used by /a on h1; with `upgradeStrategy.minimumHealthCapacity` 0"),
        "{own}"
    );
}

/// A constraint, the unused offers, and the texts.
type Row<'a> = (Value, Vec<Arc<UnusedOffer>>, &'a [&'a str]);

#[test]
fn impossible_constraint_is_named_with_the_values_of_the_offered_agents() {
    use Reason::{InsufficientCpus as Cpus, UnfulfilledConstraint as Rule};
    let ports = (31_000, 32_000);
    let (rack1, rack2) = (
        unused("h1", ports, Some("r1"), Rule),
        unused("h2", ports, Some("r2"), Rule),
    );
    let bare = unused("h3", ports, None, Rule);
    let full = unused("h4", ports, Some("r4"), Cpus);
    // Columns: the constraint, the offers, the text.
    let table: &[Row<'_>] = &[
        (
            json!(["hostname", "CLUSTER", "x"]),
            vec![rack1.clone(), rack2.clone()],
            &["constraint hostname CLUSTER x: no agent is called x: 2 offers came from h1, h2"],
        ),
        (
            json!(["hostname", "CLUSTER", "h4"]),
            vec![rack1.clone(), full.clone()],
            &[
                "constraint hostname CLUSTER h4: the offer of h4 was not used for other reasons: InsufficientCpus",
            ],
        ),
        (
            json!(["hostname", "CLUSTER", "h9"]),
            vec![rack1.clone()],
            &["constraint hostname CLUSTER h9: the agent h9 sends no offer, because all it has is in use"],
        ),
        (
            json!(["rack", "IS", "r3"]),
            vec![rack1.clone(), rack2.clone()],
            &["constraint rack IS r3: no agent of 2 offers has the value r3; they have r1, r2"],
        ),
        (
            json!(["rack", "CLUSTER", "r3"]),
            vec![bare.clone()],
            &["constraint rack CLUSTER r3: no agent of 1 offer has the attribute rack"],
        ),
        (
            json!(["hostname", "UNIQUE"]),
            vec![rack1.clone()],
            &["constraint hostname UNIQUE: rejects 1 agents, because instances run already on h1"],
        ),
        (
            json!(["rack", "LIKE", "x.*"]),
            vec![rack1.clone(), bare.clone()],
            &["constraint rack LIKE x.*: rejects 1 agents; the values of 2 offers are r1"],
        ),
        (
            json!(["@zone", "GROUP_BY"]),
            vec![bare],
            &["constraint @zone GROUP_BY: no agent of 1 offer has a zone"],
        ),
    ];
    let places = used("/other", "h9", 31_000);
    for (constraint, offers, expected) in table {
        let reasons = Reasons {
            last: [(Rule, 1)].into(),
            last_offers: offers.len() as u32,
            last_constraints: [(0, 1)].into(),
            unused_offers: offers.clone(),
            ..Reasons::default()
        };
        let spec = app("/a", &json!({"constraints": [constraint]}));
        assert_eq!(&texts(&spec, &reasons, &places), expected, "{constraint}");
    }
}

#[test]
fn values_of_agents_are_bounded_and_escaped() {
    let offers = (0..9).map(|host| {
        let name = format!("h{host}\n{}", "x".repeat(100));
        unused(&name, (1, 2), None, Reason::UnfulfilledConstraint)
    });
    let reasons = Reasons {
        last: [(Reason::UnfulfilledConstraint, 9)].into(),
        last_offers: 9,
        last_constraints: [(0, 9)].into(),
        unused_offers: offers.collect(),
        ..Reasons::default()
    };
    let spec = app("/a", &json!({"constraints": [["hostname", "CLUSTER", "x"]]}));
    let text = texts(&spec, &reasons, &Places::default()).remove(0);
    assert!(
        text.ends_with("and 4 more") && text.contains("h0\\u{a}x") && text.len() < 600,
        "{text}"
    );
}
