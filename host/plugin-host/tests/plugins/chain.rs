//! Several plugins at one extension point.

use serde_json::{Value, json};
use transom_plugin_host::{
    CallError, Change,
    events::{Decision, Event, OpenError, Query},
    matcher::{Agent, Attribute, AttributeValue, Candidate, Constraint, Task, Verdict},
};

use crate::support::Site;

fn filter(config: &str) -> String {
    format!("world = \"event-filter\"\n[config]\n{config}\n")
}

fn event(sequence: u64, kind: &str) -> Event {
    Event {
        sequence,
        kind: kind.to_owned(),
        subject: None,
        body: json!({"eventType": kind}).to_string(),
    }
}

/// The documents that a subscriber receives, without the dropped events.
fn documents(events: &[Event], decisions: Vec<Decision>) -> Vec<Value> {
    let decided = events.iter().zip(decisions);
    let sent = decided.filter_map(|(event, decision)| match decision {
        Decision::Pass => Some(event.body.clone()),
        Decision::Replace(body) => Some(body),
        Decision::Drop => None,
    });
    sent.map(|body| serde_json::from_str(&body).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_filter_receives_the_events_that_the_one_before_it_passes() {
    let first = filter("mark = \"first\"\ndrop = [\"a\"]");
    let second = filter("drop = [\"b\"]\ntrap_on = [\"a\"]");
    let installed = [
        ("tests/faulty-events", "first", Some(&*first)),
        ("tests/faulty-events", "second", Some(&*second)),
    ];
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let site = Site::with_config(&installed, |config| {
        config.bindings.filters = names(&["first", "second"]);
    })
    .await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    let events = [event(1, "a"), event(2, "b"), event(3, "c")];
    let decisions = view.decide(&events).await.unwrap();
    let marked = json!({"eventType": "c", "mark": "first"});
    assert_eq!(documents(&events, decisions), [marked]);

    // One filter is replaced while the view is open. The other one is not affected.
    let manifest = filter("mark = \"second\"");
    let change = site.replace("tests/faulty-events", "second", &manifest).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    let decisions = view.decide(&events).await.unwrap();
    let marked = |kind: &str| json!({"eventType": kind, "mark": "second"});
    assert_eq!(documents(&events, decisions), [marked("b"), marked("c")]);

    // A rejection names the filter.
    let manifest = filter("fault = \"reject\"");
    site.replace("tests/faulty-events", "second", &manifest).await;
    let rejected = site.plugins.open_view(Query::default()).await.unwrap_err();
    assert_eq!(
        rejected,
        OpenError::Rejected("second: rejected, as asked".to_owned())
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_with_a_missing_plugin_fails() {
    let first = filter("");
    let installed = [("tests/faulty-events", "first", Some(&*first))];
    let site = Site::with_config(&installed, |config| {
        config.bindings.filters = vec!["first".to_owned(), "absent".to_owned()];
        config.bindings.matchers = vec!["absent".to_owned()];
    })
    .await;
    let missing = site.plugins.open_view(Query::default()).await.unwrap_err();
    let OpenError::Call(CallError::Missing { name, .. }) = &missing else {
        panic!("{missing:?}");
    };
    assert_eq!(name, "absent");
    let mut agents = site.plugins.agent_set(None);
    let missing = agents.place(&Task::default(), &[], 1).await.unwrap_err();
    assert!(matches!(missing, CallError::Missing { .. }), "{missing:?}");
    site.stop().await;
}

pub(crate) fn agent(handle: u32, rack: &str) -> Agent {
    Agent {
        handle,
        id: handle.to_string(),
        hostname: format!("host{handle}"),
        region: None,
        zone: None,
        attributes: vec![Attribute {
            name: "rack".to_owned(),
            value: AttributeValue::Text(rack.to_owned()),
        }],
        extensions: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_matchers_accept_an_agent_and_rejections_are_counted_by_matcher() {
    let site = Site::with_config(
        &[("attributes", "attributes", None), ("attributes", "second", None)],
        |config| {
            config.bindings.matchers = vec!["attributes".to_owned(), "second".to_owned()];
        },
    )
    .await;
    let wrong = Constraint::Field {
        field: "rack".to_owned(),
        operator: "NONSENSE".to_owned(),
        operand: None,
    };
    let errors = site.plugins.validate_constraints(&[wrong]).await.unwrap();
    let names: Vec<&str> = errors
        .iter()
        .filter_map(|error| error.message.split(": ").next())
        .collect();
    assert_eq!(names, ["attributes", "second"], "{errors:?}");

    let mut agents = site.plugins.agent_set(None);
    let racks = ["a", "a", "b", "c"];
    agents.update(
        (1..)
            .zip(racks)
            .map(|(handle, rack)| agent(handle, rack))
            .collect(),
        vec![],
    );
    let on = |operator: &str, operand: Option<&str>| Task {
        run_spec: "/app".to_owned(),
        instances: 4,
        constraints: vec![Constraint::Field {
            field: "rack".to_owned(),
            operator: operator.to_owned(),
            operand: operand.map(str::to_owned),
        }],
        ..Task::default()
    };
    let candidates: Vec<Candidate> = (1..=4).map(|agent| Candidate { agent, capacity: 2 }).collect();
    let verdicts = agents
        .evaluate(&on("CLUSTER", Some("a")), &candidates)
        .await
        .unwrap();
    let rejected = Verdict::Refused(0);
    assert_eq!(verdicts, [Verdict::Fits, Verdict::Fits, rejected, rejected]);
    assert_eq!(agents.refusals(), [("attributes".to_owned(), 2)]);
    let chosen = agents
        .place(&on("CLUSTER", Some("a")), &candidates, 9)
        .await
        .unwrap();
    assert_eq!(chosen.len(), 4, "{chosen:?}");
    assert!(chosen.iter().all(|agent| [1, 2].contains(agent)), "{chosen:?}");
    let chosen = agents.place(&on("UNIQUE", None), &candidates, 9).await.unwrap();
    assert_eq!(chosen.len(), 3, "one for each rack: {chosen:?}");
    let killed = agents
        .select_kills(
            &Task {
                placed: vec![1, 2],
                ..on("UNIQUE", None)
            },
            1,
        )
        .await
        .unwrap();
    assert!(killed.len() <= 1, "{killed:?}");
    site.stop().await;
}
