//! Every limit is enforced, named in the error, and affects no other plugin.

use std::time::Duration;

use transom_plugin_host::{
    CallError, Status,
    events::{Decision, Event, MAX_EVENT_BYTES, OpenError, Query},
    probe::{Failure, Kind, Outcome, Reason},
};

use crate::support::{Server, Site, Waiting, custom, request, response};

fn manifest(limits: &str) -> String {
    format!("world = \"check-probe\"\n[grants]\nnetwork = [\"task\"]\n[limits]\nmemory = \"16MiB\"\n{limits}")
}

async fn odd(limits: &str) -> Site {
    Site::with(&[
        ("tests/faulty-probe", "odd", Some(&manifest(limits))),
        ("check-tcp", "check-tcp", None),
    ])
    .await
}

fn status(site: &Site, name: &str) -> Status {
    site.plugins
        .list()
        .into_iter()
        .find(|it| it.name == name)
        .unwrap()
}

/// Checks that the call fails as the plugin's fault, that the message names the plugin and contains
/// `what`, and that the next call succeeds.
async fn stopped(site: &Site, settings: &str, what: &str) -> Failure {
    let failure = site.probe("odd", settings, None).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Plugin, "{failure}");
    assert!(
        failure.message.contains("`odd`") && failure.message.contains(what),
        "{settings}: {failure}"
    );
    let report = site.probe("odd", "{}", None).await;
    assert!(
        matches!(report, Ok(Outcome::Custom(_))),
        "after {settings}: {report:?}"
    );
    failure
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_loop_is_stopped_and_other_plugins_answer_meanwhile() {
    let site = odd("cpu = \"1s\"\nwall-clock = \"50s\"").await;
    let server = Server::new(|_| async {}).await;
    let others = async {
        let mut answered = 0;
        for _ in 0..20 {
            let found = site
                .plugins
                .probe(Kind::Tcp, request(Some(&server.endpoint)), None)
                .await;
            answered += usize::from(found == Ok(Outcome::Tcp(true)));
        }
        answered
    };
    // The number of loops equals the number of worker threads of the runtime.
    let looping = || site.probe("odd", r#"{"do":"loop"}"#, None);
    let mut loops = Box::pin(async { tokio::join!(looping(), looping()) });
    let answered = tokio::select! {
        answered = others => answered,
        ended = &mut loops => panic!("the loops ended first: {ended:?}"),
    };
    assert_eq!(answered, 20);
    let (first, second) = loops.as_mut().await;
    drop(loops);
    for failure in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(failure.reason, Reason::Plugin);
        assert!(failure.message.contains("limits.cpu"), "{failure}");
    }
    assert_eq!(status(&site, "odd").timeouts, 2);
    assert_eq!(status(&site, "check-tcp").timeouts, 0);
    assert_eq!(site.calls_with_outcome("odd", "timeout"), 2, "{}", site.metrics());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_beyond_the_wall_clock_limit_is_stopped() {
    let site = odd("cpu = \"30s\"\nwall-clock = \"300ms\"").await;
    stopped(&site, r#"{"do":"loop"}"#, "limits.wall-clock").await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_exhausted_limit_or_invalid_output_ends_the_call() {
    let site = odd("cpu = \"5s\"\nwall-clock = \"50s\"\noutput = \"64KiB\"").await;
    stopped(&site, r#"{"do":"trap"}"#, "unreachable").await;
    stopped(
        &site,
        r#"{"do":"allocate"}"#,
        "16777216 bytes of memory (limits.memory",
    )
    .await;
    stopped(&site, r#"{"do":"recurse"}"#, "out of bounds memory access").await;
    stopped(&site, r#"{"do":"deep"}"#, "call stack exhausted").await;
    let output = "more than 65536 bytes in one call (limits.output)";
    stopped(&site, r#"{"do":"output","bytes":100000}"#, output).await;
    stopped(&site, r#"{"do":"bad-json"}"#, "not a JSON object").await;
    stopped(&site, r#"{"do":"bad-text"}"#, "utf-8").await;
    let code = "expected one from 100 to 599";
    for status in [0, 99, 600, 9999] {
        stopped(&site, &format!(r#"{{"do":"status","status":{status}}}"#), code).await;
    }
    assert_eq!(status(&site, "odd").traps, 11);
    assert_eq!(site.calls_with_outcome("odd", "trap"), 11);
    for status in [100, 599] {
        let found = site
            .probe("odd", &format!(r#"{{"do":"status","status":{status}}}"#), None)
            .await;
        assert_eq!(found, Ok(Outcome::Http(status)));
    }
    let fine = site.probe("odd", r#"{"do":"output","bytes":1000}"#, None).await;
    assert!(fine.is_ok(), "{fine:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_beyond_the_step_limit_fails() {
    let site = odd("steps = 5").await;
    let server = Server::new(|_| async {}).await;
    let failure = site
        .probe("odd", r#"{"do":"steps"}"#, Some(&server.endpoint))
        .await
        .unwrap_err();
    assert_eq!(failure.reason, Reason::Plugin);
    assert!(failure.message.contains("within 5 steps"), "{failure}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_after_the_first_sixteen_are_delayed() {
    let site = odd("steps = 116").await;
    let server = Server::new(|_| async {}).await;
    let start = std::time::Instant::now();
    let failure = site
        .probe("odd", r#"{"do":"steps"}"#, Some(&server.endpoint))
        .await
        .unwrap_err();
    assert!(failure.message.contains("within 116 steps"), "{failure}");
    assert!(start.elapsed() >= Duration::from_millis(100));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_over_the_limit_are_dropped_and_counted() {
    let site = odd("log-lines = 5").await;
    let found = site
        .probe("odd", r#"{"do":"log","lines":1000,"bytes":10}"#, None)
        .await;
    assert!(found.is_ok(), "{found:?}");
    let drops = status(&site, "odd").log_drops;
    // The limit is per second, so that a slow call lets a few more lines pass.
    assert!((900..=990).contains(&drops), "{drops}");
    assert_eq!(
        site.sum("transom_plugins_log_drops_total", &["plugin=\"odd\""]),
        drops
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_of_an_attempt_are_limited_in_both_directions() {
    let site = odd("attempt-input = \"100KiB\"\nattempt-output = \"10KiB\"").await;
    let server = Server::new(|mut stream| async move {
        use tokio::io::AsyncWriteExt;
        // Ends when the host closes the connection at its limit.
        while stream.write_all(&[b'x'; 1000]).await.is_ok() {}
    })
    .await;
    let at = Some(&server.endpoint);
    let found = site.probe("odd", r#"{"do":"receive"}"#, at).await;
    assert_eq!(found, Ok(custom(r#"{"receive": "protocol"}"#)));
    let found = site.probe("odd", r#"{"do":"send","bytes":20000}"#, at).await;
    assert_eq!(found, Ok(custom(r#"{"send": "protocol"}"#)));
    let found = site.probe("odd", r#"{"do":"send","bytes":2000}"#, at).await;
    assert_eq!(found, Ok(custom(r#"{"send": "ok"}"#)));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn io_times_out_at_the_attempt_time_or_request_timeout() {
    let site = odd("attempt-time = \"400ms\"").await;
    let server = Server::http(|_| std::future::pending()).await;
    let found = site
        .probe("odd", r#"{"do":"http","path":"/"}"#, Some(&server.endpoint))
        .await;
    assert_eq!(
        found,
        Ok(custom(r#"{"http": "timed-out"}"#)),
        "the component receives the timeout and decides the result"
    );
    let mut probe_request = request(Some(&server.endpoint));
    probe_request.settings = r#"{"do":"http","path":"/"}"#.into();
    probe_request.timeout = Duration::from_millis(100);
    let start = std::time::Instant::now();
    let found = site
        .plugins
        .probe(Kind::Named("odd".into()), probe_request, None)
        .await;
    assert_eq!(found, Ok(custom(r#"{"http": "timed-out"}"#)));
    assert!(start.elapsed() >= Duration::from_millis(100));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_fails_when_steps_continue_after_its_time_limit() {
    let site = odd("steps = 1000000\nattempt-time = \"300ms\"").await;
    let server = Server::new(|_| async {}).await;
    let failure = site
        .probe("odd", r#"{"do":"steps"}"#, Some(&server.endpoint))
        .await
        .unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut, "{failure}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_beyond_the_concurrency_limit_is_rejected() {
    let site = odd("concurrency = 1").await;
    let (server, mut waiting) = Waiting::server().await;
    let slow = site.probe("odd", r#"{"do":"http","path":"/"}"#, Some(&server.endpoint));
    let meanwhile = async {
        waiting.arrived().await;
        let rejected = site.probe("odd", "{}", None).await.unwrap_err();
        assert!(rejected.message.contains("limits.concurrency"), "{rejected}");
        assert_eq!(status(&site, "odd").in_flight, 1);
        waiting.release();
    };
    let (slow, ()) = tokio::join!(slow, meanwhile);
    assert_eq!(slow, Ok(custom(r#"{"status": 200, "bytes": 0}"#)));
    assert_eq!(status(&site, "odd").in_flight, 0);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_call_fails_when_no_instance_is_free_in_time() {
    let site = odd("instances = 1\ncpu = \"30s\"\nwall-clock = \"1s\"").await;
    let looping = || site.probe("odd", r#"{"do":"loop"}"#, None);
    // The first call uses up its wall-clock limit. The last one waits longer than that for an
    // instance.
    let (first, second, third) = tokio::join!(looping(), looping(), looping());
    let messages = [first, second, third].map(|it| it.unwrap_err().message);
    for limit in ["limits.wall-clock)", "no instance was free within 1s"] {
        assert!(
            messages.iter().any(|it| it.contains(limit)),
            "{limit}: {messages:?}"
        );
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_is_replaced_after_its_maximum_of_calls() {
    let site = odd("instances = 1\nmax-calls-per-instance = 3").await;
    let mut numbers = Vec::new();
    for _ in 0..7 {
        let Ok(Outcome::Custom(json)) = site.probe("odd", "{}", None).await else {
            panic!("no report")
        };
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        numbers.push(json["attempt"].as_u64().unwrap());
    }
    assert_eq!(numbers, [1, 2, 3, 1, 2, 3, 1]);
    // All steps of an attempt run on the instance on which it began.
    let server = Server::http(|_| async { response(204, "", "") }).await;
    for _ in 0..5 {
        let found = site
            .probe("odd", r#"{"do":"http","path":"/"}"#, Some(&server.endpoint))
            .await;
        assert_eq!(found, Ok(custom(r#"{"status": 204, "bytes": 0}"#)));
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_lose_their_instance_restart() {
    let site = odd("instances = 1").await;
    let (server, mut waiting) = Waiting::server().await;
    let waiting_attempt = site.probe("odd", r#"{"do":"http","path":"/"}"#, Some(&server.endpoint));
    let trap = async {
        waiting.arrived().await;
        stopped(&site, r#"{"do":"trap"}"#, "trapped").await;
        waiting.release();
        waiting.arrived().await;
        waiting.release();
    };
    let (found, ()) = tokio::join!(waiting_attempt, trap);
    assert_eq!(found, Ok(custom(r#"{"status": 200, "bytes": 0}"#)));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_of_an_event_filter_view_leaves_other_views_working() {
    let manifest = "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\ncpu = \"1s\"\nwall-clock = \"50s\"\noutput = \"1MiB\"\n";
    let site = Site::with(&[("tests/faulty-events", "faulty-events", Some(manifest))]).await;
    let events = [1, 2].map(|sequence| Event {
        sequence,
        kind: "a".into(),
        subject: None,
        body: "{}".into(),
    });
    let query = |fault: Option<&str>| Query {
        expression: fault.map(Into::into),
        ..Query::default()
    };
    let good = site.plugins.open_view(query(None)).await.unwrap();
    for (fault, is) in [
        ("trap", "Trapped"),
        ("loop", "CpuExhausted"),
        ("allocate", "OutOfMemory"),
        ("short", "Malformed"),
        ("long", "Malformed"),
        ("bad-json", "Malformed"),
        ("huge", "Trapped"),
    ] {
        let view = site.plugins.open_view(query(Some(fault))).await.unwrap();
        let Err(OpenError::Call(error)) = view.decide(&events).await else {
            panic!("{fault} was let pass")
        };
        let kind = match error {
            CallError::Trapped { .. } => "Trapped",
            CallError::CpuExhausted { .. } => "CpuExhausted",
            CallError::OutOfMemory { .. } => "OutOfMemory",
            CallError::Malformed { .. } => "Malformed",
            other => panic!("{fault}: {other}"),
        };
        assert_eq!(kind, is, "{fault}");
        assert_eq!(good.decide(&events).await.unwrap().len(), 2, "after {fault}");
    }
    for (fault, text) in [
        ("trap-open", "trapped"),
        ("loop-open", "limits.cpu"),
        ("reject", "as asked"),
    ] {
        let error = site.plugins.open_view(query(Some(fault))).await.unwrap_err();
        assert!(error.to_string().contains(text), "{fault}: {error}");
    }
    assert_eq!(good.decide(&events).await.unwrap().len(), 2);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacement_of_an_event_is_at_most_one_mebibyte() {
    let frame = r#"{"grown":""}"#.len();
    let manifest = |bytes: usize| {
        let text = bytes - frame;
        format!("world = \"event-filter\"\n[config]\ngrow = {text}\n")
    };
    let site = Site::with(&[(
        "tests/faulty-events",
        "faulty-events",
        Some(&manifest(MAX_EVENT_BYTES)),
    )])
    .await;
    let event = Event {
        sequence: 1,
        kind: "a".into(),
        subject: None,
        body: "{}".into(),
    };
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    let decisions = view.decide(std::slice::from_ref(&event)).await.unwrap();
    let [Decision::Replace(body)] = &decisions[..] else {
        panic!("{} decisions", decisions.len());
    };
    assert_eq!(body.len(), MAX_EVENT_BYTES);

    site.replace(
        "tests/faulty-events",
        "faulty-events",
        &manifest(MAX_EVENT_BYTES + 1),
    )
    .await;
    let found = view.decide(&[event]).await;
    let Err(OpenError::Call(CallError::Malformed { message, .. })) = found else {
        panic!("a replacement of more than the limit was accepted");
    };
    assert!(message.contains("1048577 bytes"), "{message}");
    site.stop().await;
}
