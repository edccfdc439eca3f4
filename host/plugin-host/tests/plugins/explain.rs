//! Explanations of what plugins decide. These calls are not counted anywhere.

use std::time::Duration;

use serde_json::{Value, json};
use transom_plugin_host::{
    events::{Event, Query},
    explain::{FilterExplanation, MatcherExplanation},
    matcher::{Constraint, Task},
    probe::{Kind, Outcome, Reason},
};

use crate::{
    canary::{CANARY_TASKS, MANUAL, OTHER_TASKS, probe, start_canary},
    chain::agent,
    recording::record,
    support::{Server, Site, request, response, wait_until},
};

fn filter(config: &str) -> String {
    format!(
        "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n[probation]\nmax-faults = 0\n[config]\n{config}\n"
    )
}

fn event(sequence: u64, kind: &str, body: &Value) -> Event {
    Event {
        sequence,
        kind: kind.to_owned(),
        subject: Some("/web".to_owned()),
        body: body.to_string(),
    }
}

async fn filters(first: &str, second: &str) -> Site {
    let (first, second) = (filter(first), filter(second));
    let installed = [
        ("tests/faulty-events", "first", Some(&*first)),
        ("tests/faulty-events", "second", Some(&*second)),
    ];
    Site::with_config(&installed, |config| {
        record(config);
        config.bindings.filters = vec!["first".to_owned(), "second".to_owned()];
    })
    .await
}

async fn explain(site: &Site, events: &[Event]) -> FilterExplanation {
    let mut explainer = site.plugins.explain_filter(Query::default()).await.unwrap();
    for batch in events.chunks(2) {
        explainer.decide(batch).await;
    }
    explainer.finish()
}

/// Counters that would change if a plugin were called in service.
fn counts(site: &Site, name: &str) -> Vec<u64> {
    let status = site.status(name);
    assert_eq!(status.disabled_reason, None);
    vec![
        status.calls,
        status.traps,
        status.timeouts,
        status.denials,
        status.instances,
    ]
}

async fn recorded(site: &Site, name: &str) -> usize {
    let calls = site
        .plugins
        .recorded_calls(name, Duration::from_hours(1), 10)
        .await;
    calls.unwrap().calls.len()
}

/// Kind, outcome, plugin and number of events.
fn outcomes(explanation: &FilterExplanation) -> Vec<(String, Value, Option<&str>, u64)> {
    let outcomes = explanation.kinds.iter().flat_map(|kind| {
        kind.outcomes.iter().map(|it| {
            (
                kind.kind.clone(),
                json!(it.outcome),
                it.plugin.as_deref(),
                it.events,
            )
        })
    });
    outcomes.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_explained_by_the_filter_that_ends_it() {
    let site = filters("drop = [\"a\"]", "trap_on = [\"b\"]\ntoken = \"hunter2-token\"").await;
    let before = ["first", "second"].map(|name| counts(&site, name));
    let events: Vec<Event> = (1..)
        .zip(["a", "c", "b", "c", "a", "c"])
        .map(|(at, kind)| event(at, kind, &json!({"eventType": kind, "note": "was hunter2-token"})))
        .collect();
    let explanation = explain(&site, &events).await;
    assert_eq!(explanation.filters, ["first", "second"]);
    let (dropped, failed, replaced) = (json!("dropped"), json!("failed"), json!("replaced"));
    assert_eq!(
        outcomes(&explanation),
        [
            ("a".to_owned(), dropped, Some("first"), 2),
            ("b".to_owned(), failed, Some("second"), 1),
            ("c".to_owned(), replaced, Some("second"), 3),
        ]
    );
    assert_eq!(
        (
            explanation.events,
            explanation.passed,
            explanation.replaced,
            explanation.dropped,
            explanation.failed
        ),
        (6, 0, 3, 2, 1)
    );
    let examples = &explanation.kinds[2].outcomes[0].examples;
    assert_eq!(
        examples.len(),
        2,
        "the number of examples is bounded: {examples:?}"
    );
    let replacement = examples[0].replacement.as_deref().unwrap();
    assert!(replacement.contains("********"), "{replacement}");
    assert!(
        !json!(explanation).to_string().contains("hunter2"),
        "{explanation:?}"
    );
    let message = explanation.kinds[1].outcomes[0].examples[0]
        .message
        .as_deref()
        .unwrap();
    assert!(message.contains("plugin `second` trapped"), "{message}");

    // None of these calls count. In service the trap would have disabled the plugin.
    assert_eq!(["first", "second"].map(|name| counts(&site, name)), before);
    for name in ["first", "second"] {
        assert_eq!(recorded(&site, name).await, 0, "{name}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_query_and_failing_filter_are_the_explanation() {
    let site = filters("", "fault = \"reject\"").await;
    let rejection = site.plugins.explain_filter(Query::default()).await.unwrap_err();
    assert_eq!(rejection, "second: rejected, as asked");
    let events: Vec<Event> = (1..=20).map(|at| event(at, "a", &json!({}))).collect();

    // The filter fails on every event, so that it is no longer called after a few events.
    site.replace("tests/faulty-events", "second", &filter("fault = \"trap\""))
        .await;
    let explanation = explain(&site, &events).await;
    let failure = explanation.failure.clone().unwrap();
    assert_eq!(failure.plugin.as_deref(), Some("second"));
    assert!((1..20).contains(&explanation.failed), "{explanation:?}");

    site.replace("tests/faulty-events", "second", &filter("fault = \"trap-open\""))
        .await;
    let explanation = explain(&site, &events).await;
    assert!(explanation.failure.unwrap().message.contains("trapped"));
    assert_eq!(explanation.events, 0);

    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_filter_is_the_explanation() {
    let site = filters("", "fault = \"trap-open\"").await;
    let opened = site.plugins.open_view(Query::default()).await;
    assert!(opened.is_err(), "{opened:?}");
    wait_until("second is disabled", || {
        site.status("second").disabled_reason.is_some()
    })
    .await;
    let failure = explain(&site, &[event(1, "a", &json!({}))])
        .await
        .failure
        .unwrap();
    assert_eq!(failure.plugin.as_deref(), Some("second"));
    assert!(
        failure.message.contains("plugin `second` is disabled"),
        "{failure:?}"
    );
    site.stop().await;
}

fn task(constraints: &[(&str, &str, Option<&str>)]) -> Task {
    let constraints = constraints
        .iter()
        .map(|(field, operator, operand)| Constraint::Field {
            field: (*field).to_owned(),
            operator: (*operator).to_owned(),
            operand: operand.map(str::to_owned),
        });
    Task {
        run_spec: "/web".to_owned(),
        instances: 3,
        constraints: constraints.collect(),
        ..Task::default()
    }
}

/// Condition and number of rejected agents.
fn rejections(explanation: &MatcherExplanation) -> Vec<(&str, usize)> {
    let rejections = explanation.rejections.iter();
    rejections.map(|it| (it.condition.as_str(), it.agents)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_agents_are_grouped_by_condition_and_value() {
    let installed = [("attributes", "attributes", None), ("attributes", "second", None)];
    let site = Site::with_config(&installed, |config| {
        record(config);
        config.bindings.matchers = vec!["attributes".to_owned(), "second".to_owned()];
    })
    .await;
    let mut agents = site.plugins.agent_set(None);
    let explained = agents.explain(task(&[])).await;
    assert_eq!(
        (explained.agents, explained.accepted, explained.failure),
        (0, 0, None)
    );
    let known = (1..)
        .zip(["a", "a", "b", "b", "c"])
        .map(|(handle, rack)| agent(handle, rack));
    agents.update(known.collect(), vec![]);

    let before = counts(&site, "attributes");
    let explained = agents.explain(task(&[])).await;
    assert_eq!((explained.agents, explained.accepted), (5, 5));
    let mut placed = task(&[("rack", "LIKE", Some("a|b")), ("@hostname", "UNIQUE", None)]);
    // Agent 9 is not in the set.
    placed.placed = vec![1, 9];
    let explained = agents.explain(placed).await;
    assert_eq!(
        (explained.agents, explained.accepted, explained.placed),
        (5, 3, 1)
    );
    assert_eq!(
        rejections(&explained),
        [("rack LIKE a|b", 1), ("@hostname UNIQUE", 1)]
    );
    assert_eq!(
        json!(explained.rejections[0].values),
        json!([{"value": "c", "agents": 1}])
    );
    assert_eq!(explained.rejections[1].examples, ["host1"]);
    assert_eq!(explained.rejections[0].plugin, "attributes");
    assert_eq!(counts(&site, "attributes"), before);

    std::fs::remove_file(site.dir.path().join("second.wasm")).unwrap();
    site.plugins.rescan().await;
    let failure = agents.explain(task(&[])).await.failure.unwrap();
    assert_eq!(failure.plugin.as_deref(), Some("second"));
    assert!(failure.message.contains("second"), "{failure:?}");
    site.stop().await;
}

async fn probes(grants: &str) -> Site {
    let manifest = format!(
        "world = \"check-probe\"\n[grants]\n{grants}\n[limits]\nmemory = \"16MiB\"\n[probation]\nmax-faults = 0\n"
    );
    let installed = [
        ("tests/faulty-probe", "odd", Some(&*manifest)),
        ("check-http", "check-http", None),
    ];
    Site::with_config(&installed, record).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_is_shown_step_by_step_and_not_counted() {
    let site = probes("network = [\"task\"]").await;
    let before = counts(&site, "odd");
    let server = Server::http(|_| async { response(503, "Set-Cookie: a\r\n", "no") }).await;
    let transcript = site
        .plugins
        .explain_probe(&Kind::Http, request(Some(&server.endpoint)), None)
        .await;
    assert_eq!(transcript.result, Ok(Outcome::Http(503)));
    assert_eq!(
        (&transcript.outcome, transcript.runs, transcript.omitted_steps),
        (&Some(json!({"http": 503})), 1, 0)
    );
    let step = &transcript.steps[0];
    assert_eq!(
        (&step.step["http"]["method"], &step.step["http"]["path"]),
        (&json!("GET"), &json!("/"))
    );
    assert_eq!(step.answer["http"]["status"], 503, "{step:?}");
    assert!(
        transcript.cpu_micros > 0 && transcript.took_micros >= step.at_micros + step.took_micros,
        "{transcript:?}"
    );

    // Credentials in headers are masked, and a denial has a reason.
    let kind = Kind::Named("odd".to_owned());
    let explain = async |settings: &str| {
        let mut request = request(Some(&server.endpoint));
        request.settings = settings.to_owned();
        site.plugins.explain_probe(&kind, request, None).await
    };
    let transcript =
        explain(r#"{"do": "http", "path": "/", "headers": [["Authorization", "Basic hunter2"]]}"#).await;
    assert_eq!(
        transcript.steps[0].step["http"]["headers"],
        json!([["Authorization", "********"]])
    );
    let transcript = explain(r#"{"do": "connect", "host": "10.0.0.1", "port": 1}"#).await;
    assert_eq!(transcript.steps[0].answer, json!({"error": "denied"}));
    let denied = transcript.steps[0].denied.as_deref().unwrap();
    assert!(denied.contains("10.0.0.1:1"), "{denied}");
    let transcript = explain(r#"{"do": "run", "command": "true"}"#).await;
    assert!(
        transcript.steps[0]
            .denied
            .as_deref()
            .unwrap()
            .contains("grants.command"),
        "{transcript:?}"
    );

    // The plugin's limits apply, and the fault is reported as the failure.
    let transcript = explain(r#"{"do": "steps"}"#).await;
    assert_eq!(transcript.steps.len(), 64);
    let failure = transcript.failure.unwrap();
    assert!(failure.message.contains("limits.steps"), "{failure:?}");
    for (settings, part) in [
        (r#"{"do": "trap"}"#, "trapped"),
        (r#"{"do": "loop"}"#, "limits.cpu"),
    ] {
        let failure = explain(settings).await.failure.unwrap();
        assert_eq!(failure.reason, Reason::Plugin, "{settings}");
        assert!(failure.message.contains(part), "{failure:?}");
    }

    // With `max-faults = 0` each of these faults would have disabled the plugin in service.
    assert_eq!(counts(&site, "odd"), before);
    let found = site.probe("odd", "{}", None).await;
    assert!(found.is_ok(), "{found:?}");
    assert_eq!(
        recorded(&site, "odd").await,
        1,
        "only the last attempt was made in service"
    );

    let absent = Kind::Named("absent".to_owned());
    let transcript = site.plugins.explain_probe(&absent, request(None), None).await;
    assert_eq!(
        (
            transcript.plugin.as_str(),
            &transcript.version,
            transcript.steps.len()
        ),
        ("absent", &None, 0)
    );
    assert!(transcript.failure.unwrap().message.contains("absent"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_has_the_answers_of_the_canary_and_of_the_serving_version() {
    let source = "tests/faulty-probe";
    let site = Site::with(&[(source, "odd", Some(&probe("", "mark = \"v1\"")))]).await;
    start_canary(&site, source, "odd", &probe(MANUAL, "mark = \"v2\"")).await;
    let explain = async |task: &str| {
        let mut request = request(None);
        request.task = task.to_owned();
        let kind = Kind::Named("odd".to_owned());
        site.plugins.explain_probe(&kind, request, None).await
    };
    let mark = |outcome: &Option<Value>| outcome.as_ref().unwrap()["custom"]["mark"].clone();
    let before = counts(&site, "odd");
    let transcript = explain(CANARY_TASKS[0]).await;
    let canary = transcript.canary.unwrap();
    assert_eq!(
        (mark(&transcript.outcome), mark(&canary.answer.outcome)),
        (json!("v1"), json!("v2"))
    );
    assert_eq!(canary.versions[0].plugin, "odd");
    assert_eq!(explain(OTHER_TASKS[0]).await.canary, None);
    assert_eq!(counts(&site, "odd"), before);
    site.stop().await;
}

/// A canary with nearly all calls. Its share includes the app `/web` and the default query.
const CANARY_99_PERCENT: &str = "rollout = \"canary-manual\"\ncanary = { percent = 99 }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanations_of_events_and_agents_include_the_canary() {
    let odd = filter("mark = \"v1\"");
    let installed = [
        ("tests/faulty-events", "first", Some(&*odd)),
        ("attributes", "attributes", None),
    ];
    let site = Site::with_config(&installed, |config| {
        config.bindings.filters = vec!["first".to_owned()];
    })
    .await;
    let next = filter("mark = \"v1\"\ndrop = [\"a\"]").replacen('\n', &format!("\n{CANARY_99_PERCENT}"), 1);
    start_canary(&site, "tests/faulty-events", "first", &next).await;
    let explanation = explain(&site, &[event(1, "a", &json!({})), event(2, "b", &json!({}))]).await;
    let canary = explanation.canary.unwrap();
    assert_eq!((explanation.events, explanation.dropped), (2, 0));
    assert_eq!((canary.answer.events, canary.answer.dropped), (2, 1));

    let manifest = format!("world = \"attribute-matcher\"\n{CANARY_99_PERCENT}");
    start_canary(&site, "attributes", "attributes", &manifest).await;
    let mut agents = site.plugins.agent_set(None);
    agents.update(vec![agent(1, "a")], vec![]);
    let explanation = agents.explain(task(&[])).await;
    let canary = explanation.canary.unwrap();
    assert_eq!((explanation.accepted, canary.answer.accepted), (1, 1));
    assert_eq!(canary.versions[0].plugin, "attributes");
    assert_eq!(canary.answer.canary, None);
    site.stop().await;
}
