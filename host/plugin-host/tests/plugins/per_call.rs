//! A new instance for each call, and the shared instance pool.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::task::JoinSet;
use transom_plugin_host::{
    events::{Decision, Event, Query},
    matcher::{Agent, Candidate, Task, Verdict},
    probe::{Kind, Outcome, Reason},
};

use crate::support::{Server, Site, TIMEOUT, Waiting, custom, request};

const HTTP: &str = r#"{"do":"http","path":"/"}"#;

fn manifest(limits: &str) -> String {
    format!(
        "world = \"check-probe\"\n[grants]\nnetwork = [\"task\"]\n[limits]\nmemory = \"16MiB\"\n{limits}\n\
         [probation]\nmax-faults = 1000000\n[config]\nmark = \"x\"\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_state_of_one_call_reaches_the_next() {
    let site = Site::with(&[(
        "tests/faulty-probe",
        "odd",
        Some(&manifest("instances = \"per-call\"")),
    )])
    .await;
    for _ in 0..5 {
        let found = site.probe("odd", "{}", None).await;
        assert_eq!(found, Ok(custom(r#"{"mark": "x", "attempt": 1}"#)));
        assert_eq!(site.status("odd").instances, 0);
    }
    let (server, mut waiting) = Waiting::server().await;
    let waiting_attempt = site.probe("odd", HTTP, Some(&server.endpoint));
    let trap = async {
        waiting.arrived().await;
        assert_eq!(site.status("odd").instances, 1);
        let failure = site.probe("odd", r#"{"do":"trap"}"#, None).await.unwrap_err();
        assert!(failure.message.contains("trapped"), "{failure}");
        assert_eq!(site.status("odd").instances, 1);
        waiting.release();
    };
    // If this attempt restarted, it would wait for the release of a second request.
    let (found, ()) = tokio::join!(waiting_attempt, trap);
    assert_eq!(found, Ok(custom(r#"{"status": 200, "bytes": 0}"#)));
    let status = site.status("odd");
    assert_eq!((status.instances, status.in_flight, status.traps), (0, 0, 1));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_sets_and_views_are_loaded_with_each_call() {
    let limits = "[limits]\nmemory = \"16MiB\"\ninstances = \"per-call\"\n";
    let filter = format!("world = \"event-filter\"\n{limits}[config]\nmark = \"x\"\ndrop = [\"b\"]\n");
    let matcher = format!("world = \"attribute-matcher\"\n{limits}");
    let site = Site::with(&[
        ("tests/faulty-events", "faulty-events", Some(&filter)),
        ("attributes", "attributes", Some(&matcher)),
    ])
    .await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    let events = ["a", "b"].map(|kind| Event {
        sequence: 1,
        kind: kind.into(),
        subject: None,
        body: "{}".into(),
    });
    let expected = [Decision::Replace("{\"mark\":\"x\"}".into()), Decision::Drop];
    let mut agent_set = site.plugins.agent_set(None);
    let agent = |handle| Agent {
        handle,
        id: format!("agent-{handle}"),
        hostname: format!("host{handle}"),
        region: None,
        zone: None,
        attributes: vec![],
        extensions: vec![],
    };
    for handle in 1..4 {
        assert_eq!(view.decide(&events).await.unwrap(), expected);
        agent_set.update(vec![agent(handle)], vec![]);
        let candidates: Vec<_> = (1..=handle)
            .map(|agent| Candidate { agent, capacity: 1 })
            .collect();
        let verdicts = agent_set.evaluate(&Task::default(), &candidates).await.unwrap();
        assert_eq!(verdicts, vec![Verdict::Fits; handle as usize]);
    }
    for name in ["faulty-events", "attributes"] {
        assert_eq!(site.status(name).instances, 0, "{name}");
    }
    site.stop().await;
}

/// Thousands of concurrent calls create no more instances than one plugin may have, and other
/// plugins answer in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_calls_use_no_more_instances_than_allowed() {
    const CALLS: usize = 3000;
    let odd = manifest("instances = \"per-call\"\nwall-clock = \"50s\"\ncpu = \"1s\"");
    // The limits are generous, because the machine may be busy and only the answer matters.
    let patient = "world = \"check-probe\"\n[grants]\nnetwork = [\"task\"]\n[limits]\nwall-clock = \"50s\"\ncpu = \"1s\"\n";
    let site = Site::with(&[
        ("tests/faulty-probe", "odd", Some(&odd)),
        ("check-tcp", "check-tcp", Some(patient)),
    ])
    .await;
    let mut calls = JoinSet::new();
    for n in 0..CALLS {
        let (plugins, mut probe_request) = (site.plugins.clone(), request(None));
        probe_request.settings = if n % 10 == 0 { r#"{"do":"trap"}"# } else { "{}" }.into();
        probe_request.timeout = TIMEOUT;
        calls.spawn(async move {
            plugins
                .probe(Kind::Named("odd".into()), probe_request, None)
                .await
        });
    }
    let server = Server::new(|_| async {}).await;
    let most = AtomicU64::new(0);
    let watch = async {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        loop {
            pace.tick().await;
            most.fetch_max(site.status("odd").instances, Relaxed);
        }
    };
    let other_plugin = async {
        loop {
            let mut probe_request = request(Some(&server.endpoint));
            probe_request.timeout = TIMEOUT;
            let found = site.plugins.probe(Kind::Tcp, probe_request, None).await;
            assert_eq!(found, Ok(Outcome::Tcp(true)));
        }
    };
    let found = tokio::select! {
        found = tokio::time::timeout(TIMEOUT, calls.join_all()) => found.expect("all calls are answered"),
        never = watch => never,
        never = other_plugin => never,
    };
    let answered = found.iter().filter(|it| it.is_ok()).count();
    assert_eq!(answered, CALLS - CALLS / 10);
    let most = most.load(Relaxed);
    assert!((1..=32).contains(&most), "{most}");
    assert_eq!(site.status("odd").instances, 0);
    assert_eq!(site.calls_with_outcome("odd", "trap"), CALLS as u64 / 10);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_a_free_instance_fails_as_busy() {
    let odd = manifest("instances = \"per-call\"\nwall-clock = \"300ms\"\ncpu = \"10s\"");
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&odd))]).await;
    let (server, mut waiting) = Waiting::server().await;
    let mut calls = JoinSet::new();
    for _ in 0..32 {
        let (plugins, mut probe_request) = (site.plugins.clone(), request(Some(&server.endpoint)));
        probe_request.settings = HTTP.into();
        calls.spawn(async move {
            plugins
                .probe(Kind::Named("odd".into()), probe_request, None)
                .await
        });
    }
    for _ in 0..32 {
        waiting.arrived().await;
    }
    let rejected = site.probe("odd", "{}", None).await.unwrap_err();
    assert_eq!(rejected.reason, Reason::Plugin);
    assert!(
        rejected
            .message
            .contains("`odd` is busy: no instance was free within 300ms"),
        "{rejected}"
    );
    assert_eq!(site.calls_with_outcome("odd", "busy"), 1);
    for _ in 0..32 {
        waiting.release();
    }
    let found = calls.join_all().await;
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert!(site.probe("odd", "{}", None).await.is_ok());
    site.stop().await;
}

/// Another plugin's call waits for a free slot until its deadline. It gets a slot that becomes free
/// in time, and the error `busy` otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exhausted_pool_returns_busy() {
    let greedy = manifest("instances = \"per-call\"");
    let (hasty, patient) = (
        manifest("wall-clock = \"300ms\"\ncpu = \"10s\""),
        manifest("wall-clock = \"50s\""),
    );
    let installed = [
        ("tests/faulty-probe", "greedy", Some(greedy.as_str())),
        ("tests/faulty-probe", "hasty", Some(&hasty)),
        ("tests/faulty-probe", "patient", Some(&patient)),
    ];
    let site = Site::with_config(&installed, |config| config.instances = 4).await;
    let (server, mut waiting) = Waiting::server().await;
    let mut calls = JoinSet::new();
    for _ in 0..4 {
        let (plugins, mut probe_request) = (site.plugins.clone(), request(Some(&server.endpoint)));
        probe_request.settings = HTTP.into();
        calls.spawn(async move {
            plugins
                .probe(Kind::Named("greedy".into()), probe_request, None)
                .await
        });
    }
    for _ in 0..4 {
        waiting.arrived().await;
    }
    let rejected = site.probe("hasty", "{}", None).await.unwrap_err();
    assert!(
        rejected
            .message
            .contains("`hasty` is busy: all 4 instance slots are in use"),
        "{rejected}"
    );
    assert_eq!(
        (
            site.calls_with_outcome("hasty", "busy"),
            site.status("hasty").traps
        ),
        (1, 0)
    );
    let patient = site.probe("patient", "{}", None);
    let release = async {
        // The patient call already waits now, or it finds a free slot immediately.
        waiting.release();
    };
    let (found, ()) = tokio::join!(patient, release);
    assert_eq!(found, Ok(custom(r#"{"mark": "x", "attempt": 1}"#)));
    for _ in 0..3 {
        waiting.release();
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert!(site.probe("hasty", "{}", None).await.is_ok());
    site.stop().await;
}

/// There are more plugins than slots in the pool. Idle instances are dropped for other plugins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_instances_are_dropped_for_other_plugins() {
    let kept = manifest("instances = 1\nwall-clock = \"50s\"\ncpu = \"1s\"");
    let names = ["one", "two", "three"];
    let installed = names.map(|name| ("tests/faulty-probe", name, Some(kept.as_str())));
    let site = Site::with_config(&installed, |config| config.instances = 2).await;
    for _ in 0..3 {
        for name in names {
            let found = site.probe(name, "{}", None).await;
            assert!(matches!(found, Ok(Outcome::Custom(_))), "{name}: {found:?}");
        }
    }
    let instances: u64 = names.iter().map(|name| site.status(name).instances).sum();
    assert_eq!(instances, 2);
    site.stop().await;
}
