//! Each first-party component works.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::{
    Change, Config,
    events::{Decision, Event, OpenError, Query},
    matcher::{Agent, Attribute, AttributeValue, Candidate, Constraint, Task, Verdict},
    probe::{CommandLine, CommandOutput, IoError, Kind, Outcome, Reason, Runner},
};

use crate::support::{Server, Site, install, request, response};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_reports_the_status() {
    let site = Site::with(&[("check-http", "check-http", None)]).await;
    let server = Server::http(|line| async move {
        match line.as_str() {
            "GET /healthy?deep=1 HTTP/1.1" => response(200, "", "fine"),
            _ => response(503, "", "no"),
        }
    })
    .await;
    for (path, status) in [("/healthy?deep=1", 200), ("/other", 503)] {
        let mut request = request(Some(&server.endpoint));
        request.path = path.into();
        let found = site.plugins.probe(Kind::Http, request, None).await;
        assert_eq!(found, Ok(Outcome::Http(status)), "{path}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_reports_whether_it_connects() {
    let site = Site::with(&[("check-tcp", "check-tcp", None)]).await;
    let server = Server::new(|_| async {}).await;
    let found = site
        .plugins
        .probe(Kind::Tcp, request(Some(&server.endpoint)), None)
        .await;
    assert_eq!(found, Ok(Outcome::Tcp(true)));
    let closed = Server::closed().await;
    let found = site.plugins.probe(Kind::Tcp, request(Some(&closed)), None).await;
    assert_eq!(found, Ok(Outcome::Tcp(false)));
    site.stop().await;
}

/// Answers one command with an exit code and a long output, and fails for every other command.
struct Echo;

#[async_trait]
impl Runner for Echo {
    async fn run(&self, command: CommandLine, timeout: Duration) -> Result<CommandOutput, IoError> {
        assert!(timeout <= Duration::from_secs(30));
        match command {
            CommandLine::Shell(line) if line == "exit 7" => Ok(CommandOutput {
                exit_code: 7,
                stdout: vec![b'x'; 100_000],
                stderr: vec![],
            }),
            _ => Err(IoError::Unavailable("gone".into())),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_reports_the_exit_code() {
    let site = Site::with(&[("check-command", "check-command", None)]).await;
    let mut asked = request(None);
    asked.command = Some("exit 7".into());
    let found = site
        .plugins
        .probe(Kind::Exec, asked.clone(), Some(Arc::new(Echo)))
        .await;
    assert_eq!(found, Ok(Outcome::Command(7)));
    let failure = site
        .plugins
        .probe(Kind::Exec, asked.clone(), None)
        .await
        .unwrap_err();
    assert_ne!(failure.reason, Reason::Plugin, "{failure}");
    asked.command = Some("other".into());
    let failure = site
        .plugins
        .probe(Kind::Exec, asked, Some(Arc::new(Echo)))
        .await
        .unwrap_err();
    assert!(failure.message.contains("gone"), "{failure}");
    site.stop().await;
}

fn agent(handle: u32, rack: &str) -> Agent {
    Agent {
        handle,
        id: format!("agent-{handle}"),
        hostname: format!("host{handle}"),
        region: None,
        zone: None,
        attributes: vec![Attribute {
            name: "rack".into(),
            value: AttributeValue::Text(rack.into()),
        }],
        extensions: vec![],
    }
}

fn constraint(field: &str, operator: &str, operand: Option<&str>) -> Constraint {
    Constraint::Field {
        field: field.into(),
        operator: operator.into(),
        operand: operand.map(Into::into),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_evaluates_and_places() {
    let site = Site::with(&[("attributes", "attributes", None)]).await;
    let errors = site
        .plugins
        .validate_constraints(&[
            constraint("rack", "CLUSTER", Some("r1")),
            constraint("rack", "NONSENSE", None),
        ])
        .await
        .unwrap();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].constraint, 1);

    let mut agent_set = site.plugins.agent_set(None);
    agent_set.update(
        (1..=6000)
            .map(|n| agent(n, if n % 2 == 0 { "even" } else { "odd" }))
            .collect(),
        vec![],
    );
    let task = Task {
        run_spec: "/shop/web".into(),
        instances: 3,
        constraints: vec![constraint("rack", "CLUSTER", Some("even"))],
        ..Task::default()
    };
    let candidates: Vec<_> = (1..=4).map(|agent| Candidate { agent, capacity: 1 }).collect();
    let verdicts = agent_set.evaluate(&task, &candidates).await.unwrap();
    assert_eq!(
        verdicts,
        [
            Verdict::Refused(0),
            Verdict::Fits,
            Verdict::Refused(0),
            Verdict::Fits
        ]
    );
    assert_eq!(agent_set.place(&task, &candidates, 3).await.unwrap(), [2, 4]);

    // The host only sends the change to the instance, and the next verdicts depend on it.
    agent_set.update(vec![agent(1, "even")], vec![6000]);
    let verdicts = agent_set.evaluate(&task, &candidates[..2]).await.unwrap();
    assert_eq!(verdicts, [Verdict::Fits, Verdict::Fits]);

    // An instance of the new version has no agents until the host has loaded the whole set again.
    let manifest = "world = \"attribute-matcher\"\n[limits]\ncpu = \"2s\"\nmemory = \"128MiB\"\n[config]\n";
    let change = site.replace("attributes", "attributes", manifest).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    let verdicts = agent_set.evaluate(&task, &candidates[..3]).await.unwrap();
    assert_eq!(verdicts, [Verdict::Fits, Verdict::Fits, Verdict::Refused(0)]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_receives_each_property_of_agents() {
    let site = Site::with(&[("attributes", "attributes", None)]).await;
    let attribute = |name: &str, value| Attribute {
        name: name.into(),
        value,
    };
    let complete = Agent {
        region: Some("west".into()),
        zone: Some("west-1".into()),
        attributes: vec![
            attribute("rack", AttributeValue::Text("räck-1".into())),
            attribute("weight", AttributeValue::Scalar(1.5)),
            attribute("ports", AttributeValue::Ranges(vec![(8000, u64::MAX), (1, 2)])),
            attribute("disks", AttributeValue::Set(vec!["ssd".into(), String::new()])),
            attribute("rack", AttributeValue::Text("second".into())),
            attribute("empty", AttributeValue::Text(String::new())),
        ],
        extensions: vec![("kernel".into(), "6.1".into())],
        ..agent(7, "")
    };
    let mut agent_set = site.plugins.agent_set(None);
    agent_set.update(vec![agent(6, "r1"), complete, agent(u32::MAX, "r1")], vec![]);
    let candidates = [6, 7, u32::MAX].map(|agent| Candidate { agent, capacity: 1 });
    for (field, pattern) in [
        ("@hostname", "host7"),
        ("@region", "west"),
        ("@zone", "west-1"),
        ("rack", "räck-1"),
        ("weight", "1.5"),
        ("ports", r"\[1-2,8000-18446744073709551615\]"),
        ("disks", r"\{,ssd\}"),
        ("empty", ""),
    ] {
        // An empty operand is none.
        let pattern = if pattern.is_empty() { "()" } else { pattern };
        let task = Task {
            run_spec: "/shop/web".into(),
            instances: 1,
            constraints: vec![constraint(field, "LIKE", Some(pattern))],
            ..Task::default()
        };
        let verdicts = agent_set.evaluate(&task, &candidates).await.unwrap();
        assert_eq!(
            verdicts,
            [Verdict::Refused(0), Verdict::Fits, Verdict::Refused(0)],
            "{field} LIKE {pattern}"
        );
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_filters_by_kind() {
    let dir = TempDir::new().unwrap();
    install(dir.path(), "events", "events", None);
    let token = CancellationToken::new();
    let plugins = Config::new(dir.path())
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let event = |sequence, kind: &str| Event {
        sequence,
        kind: kind.into(),
        subject: None,
        body: format!("{{\"eventType\":\"{kind}\"}}"),
    };
    let query = Query {
        event_types: vec!["a".into()],
        ..Query::default()
    };
    let view = plugins.open_view(query.clone()).await.unwrap();
    let decisions = view
        .decide(&[event(1, "a"), event(2, "b"), event(3, "a")])
        .await
        .unwrap();
    assert_eq!(decisions, [Decision::Pass, Decision::Drop, Decision::Pass]);
    let filtered = |expression: &str| Query {
        expression: Some(expression.into()),
        ..query.clone()
    };
    let view = plugins
        .open_view(filtered("event.eventType.startsWith(kind)"))
        .await
        .unwrap();
    let decisions = view.decide(&[event(1, "a"), event(2, "b")]).await.unwrap();
    assert_eq!(decisions, [Decision::Pass, Decision::Drop]);
    let rejected = plugins.open_view(filtered("kind == 'a' &&\n  x == 1")).await;
    assert!(
        matches!(&rejected, Err(OpenError::Rejected(text)) if text.contains("line 2, column 3: unknown variable `x`")),
        "{rejected:?}"
    );
    token.cancel();
    plugins.stopped().await;
}

/// Opens many expensive filters at a time. None of them may make the component reach a limit of its
/// manifest, which would count as its fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_stays_within_its_limits_for_expensive_filters() {
    let dir = TempDir::new().unwrap();
    install(dir.path(), "events", "events", None);
    let token = CancellationToken::new();
    let plugins = Config::new(dir.path())
        .start(&mut Registry::default(), token.clone())
        .await
        .unwrap();
    let expressions = [
        // These take time: loops, copies, comparisons, searches.
        "event.n.all(x, event.n.all(y, x == y))".to_owned(),
        "event.n.map(x, event.n.map(y, x + y)).size() > 0".to_owned(),
        "event.n.all(x, x in event.n + event.n)".to_owned(),
        "event.n.all(x, event == event)".to_owned(),
        "event.m.all(k, event.m[k] == 1)".to_owned(),
        "event.n.all(x, event.t.matches('((a|b|ab)*c){10}') || true)".to_owned(),
        // These take memory: lists and texts.
        "event.n.map(x, [x, x, x, x, x, x]).size() > 0".to_owned(),
        "event.n.map(x, event.t + event.t).size() > 0".to_owned(),
        "event.n.map(x, 'a' + string(x)).size() > 0".to_owned(),
        "(event.n + event.n + event.n).size() > 0".to_owned(),
        // These take stack: nested parentheses, negations and conditions.
        format!("{}true{}", "(".repeat(31), ")".repeat(31)),
        format!("{}true", "!".repeat(30)),
        format!("{}true", "event.z == 1 ? true : ".repeat(15)),
    ];
    let large = [
        format!(
            r#"{{"n": [{}1], "m": {{{}"z": 1}}, "t": "{}"}}"#,
            "1,".repeat(100_000),
            (0..20_000)
                .map(|key| format!("\"k{key}\": 1,"))
                .collect::<Vec<_>>()
                .concat(),
            "ab".repeat(200_000)
        ),
        format!(r#"{{"n": [{}1]}}"#, "[0],".repeat(100_000)),
        format!(r#"{{"n": [{}1]}}"#, r#"{"":0},"#.repeat(60_000)),
        format!(r#"{{"n": [{}1]}}"#, r#""\n","#.repeat(200_000)),
        format!(r#"{{"n": {}{}}}"#, "[".repeat(120), "]".repeat(120)),
        format!(r#"{{"n": {}"#, "[".repeat(500_000)),
    ];
    let event = |sequence, body: &String| Event {
        sequence,
        kind: "a".into(),
        subject: None,
        body: body.clone(),
    };
    // Batches of the sizes that the event bus sends: many small events, or a mebibyte and one more
    // event.
    let small = r#"{"n": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "t": "a text of some length, as messages have"}"#;
    let batches: Vec<Vec<Event>> = large
        .iter()
        .map(|body| vec![event(1, body), event(2, body)])
        .chain([(1..=256)
            .map(|sequence| event(sequence, &small.to_owned()))
            .collect()])
        .collect();
    // Each view remains open, with an expression of nearly the maximum length.
    let mut views = Vec::new();
    for number in 0..240 {
        let mut expression = format!(
            "kind == '{number}' || {}",
            expressions[number % expressions.len()]
        );
        while expression.len() < 3_900 {
            expression.push_str(
                " || kind in ['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q']",
            );
            if expression.matches("','").count() > 300 {
                break;
            }
        }
        let query = Query {
            expression: Some(expression),
            ..Query::default()
        };
        views.push(plugins.open_view(query).await.unwrap());
    }
    for (view, expression) in views.iter().zip(&expressions) {
        for batch in &batches {
            let begun = std::time::Instant::now();
            let decided = view.decide(batch).await;
            assert!(
                decided.is_ok(),
                "{expression}: {decided:?} after {:?}",
                begun.elapsed()
            );
        }
    }
    token.cancel();
    plugins.stopped().await;
}

/// Callers run in tasks of a multi-threaded runtime.
#[test]
fn futures_of_plugin_calls_are_send() {
    fn check(_: &impl Send) {}
    #[allow(dead_code, reason = "compiled, never run")]
    fn of(plugins: &transom_plugin_host::Plugins, agent_set: &mut transom_plugin_host::matcher::AgentSet) {
        check(&plugins.rescan());
        check(&plugins.validate_constraints(&[]));
        check(&plugins.open_view(Query::default()));
        check(&agent_set.evaluate(&Task::default(), &[]));
        check(&agent_set.place(&Task::default(), &[], 1));
    }
}
