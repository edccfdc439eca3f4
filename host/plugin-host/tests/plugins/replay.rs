//! Recorded calls are replayed on other versions, by plugin authors and at admission.

use std::{fs, path::PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use transom_plugin_host::{
    Change, Config, RecordedCalls,
    bootstrap::{Context, Role},
    matcher::{Agent, Attribute, AttributeValue, Candidate, Constraint, Task},
    probe::Kind,
};
use transom_plugin_tools::workbench::{
    self, Cases, ComponentFiles, ReplayReport, Stage, Verdict, Workbench, export,
};

use crate::{
    recording::{LOG, NAME, SOURCE, calls, decide, filter, manifest, record},
    support::{Server, Site, component, request, response},
};

fn files(source: &str, manifest: &str) -> ComponentFiles {
    let bytes = fs::read(component(source)).unwrap();
    ComponentFiles::new("candidate", bytes, manifest.to_owned())
}

async fn replay(config: &str, recorded: &RecordedCalls) -> ReplayReport {
    admitted(&files(SOURCE, &manifest(config)))
        .await
        .replay(recorded)
        .await
}

async fn admitted(files: &ComponentFiles) -> workbench::Candidate {
    Workbench::new().unwrap().admit(files).await.unwrap()
}

fn kinds(report: &ReplayReport) -> Vec<(u64, &str)> {
    report
        .differences
        .iter()
        .map(|it| (it.calls, it.kind.as_str()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_are_grouped_with_examples() {
    let site = filter("", |_| ()).await;
    decide(&site, &["a", "b"]).await.unwrap();
    decide(&site, &["b"]).await.unwrap();
    decide(&site, &["c"]).await.unwrap();
    let recorded = calls(&site).await;
    let same = replay("", &recorded).await;
    assert_eq!(
        (same.compared, same.same, same.percent()),
        (6, 6, 0.0),
        "{same:?}"
    );
    assert!(
        same.cpu_micros_per_call > 0.0 && same.memory.candidate > 0,
        "{same:?}"
    );

    let other = replay("config = { drop = [\"b\"] }", &recorded).await;
    assert_eq!((other.compared, other.different), (6, 2), "{other:?}");
    assert_eq!(kinds(&other), [(2, "decide: pass -> drop")]);
    let example = &other.differences[0].examples[0];
    assert_eq!(example.question, "decide (b)");
    assert_eq!(
        (example.recorded.as_str(), example.candidate.as_str()),
        ("\"pass\"", "\"drop\"")
    );

    // This version traps at its first call.
    let traps = replay("config = { fault = \"trap-open\" }", &recorded).await;
    assert_eq!((traps.compared, traps.failed), (6, 6), "{traps:?}");
    assert_eq!(kinds(&traps), [(3, "decide: trap"), (3, "open: trap")]);
    assert!(
        traps.differences[0].examples[0].candidate.contains("trapped"),
        "{traps:?}"
    );
    // After a hundred faults the replay stops.
    let mut many = recorded.clone();
    while many.calls.len() < 120 {
        many.calls.extend(recorded.calls.clone());
    }
    let traps = replay("config = { fault = \"trap-open\" }", &many).await;
    assert_eq!(
        (traps.failed, traps.skipped.given_up),
        (100, 20),
        "{:?}",
        traps.skipped
    );
    let error = Workbench::new()
        .unwrap()
        .admit(&files(SOURCE, &manifest("config = { fault = \"trap-config\" }")))
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("trapped"), "{error}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_failed_or_have_masks_are_not_compared() {
    let site = filter(
        "config = { trap_on = [\"b\"], token = \"hunter2-hunter2\" }",
        |_| (),
    )
    .await;
    decide(&site, &["a"]).await.unwrap();
    decide(&site, &["b"]).await.unwrap_err();
    decide(&site, &["hunter2-hunter2"]).await.unwrap();
    let recorded = calls(&site).await;
    // A different configured secret makes no difference, and it is not shown.
    let report = replay("config = { token = \"another-secret\" }", &recorded).await;
    assert_eq!((report.compared, report.different), (4, 0), "{report:?}");
    assert_eq!(
        (report.recovered, report.still_failing, report.skipped.masked),
        (1, 0, 1)
    );
    let report = replay("config = { trap_on = [\"b\"] }", &recorded).await;
    assert_eq!((report.different, report.still_failing), (1, 1), "{report:?}");
    site.stop().await;
}

/// The only file of the log.
fn log(site: &Site) -> PathBuf {
    let folder = site.dir.path().join(LOG).join(NAME);
    let mut files = fs::read_dir(folder).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_and_foreign_records_are_skipped() {
    let site = filter("", |_| ()).await;
    for _ in 0..3 {
        decide(&site, &["a"]).await.unwrap();
    }
    assert_eq!(calls(&site).await.calls.len(), 6);
    let path = log(&site);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[0] = lines[0].replace("\"interface\":\"0.1.0\"", "\"interface\":\"0.9.0\"");
    lines[1] = lines[1].replace("\"event-filter\"", "\"attribute-matcher\"");
    lines[2] = lines[2].replace("\"expect\"", "\"unheard-of\"");
    let last = lines.pop().unwrap();
    let cut = lines.join("\n") + "\n" + &last[..last.len() / 2];
    fs::write(&path, cut).unwrap();
    let recorded = calls(&site).await;
    assert_eq!((recorded.calls.len(), recorded.damaged), (5, 1));
    let report = replay("", &recorded).await;
    let skipped = &report.skipped;
    assert_eq!(
        (skipped.other_interface, skipped.other_world, skipped.invalid),
        (1, 1, 1)
    );
    assert_eq!((report.compared, report.same), (2, 2), "{report:?}");
    let reason = skipped.invalid_reason.as_ref().unwrap();
    assert!(reason.contains("unknown field `unheard-of`"), "{reason}");
    // New records are written to another file.
    let site = site.restart(|_| (), record).await;
    decide(&site, &["a"]).await.unwrap();
    assert_eq!(calls(&site).await.calls.len(), 7);
    site.stop().await;
}

fn with_replay(more: &str) -> String {
    manifest(&format!("rollout = \"replay\"\n{more}"))
}

fn is_rejected(change: &Change, expected: &str) {
    assert!(
        matches!(change, Change::Rejected { reason, .. } if reason.contains(expected)),
        "{expected}: {change:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_is_admitted_only_if_it_answers_recorded_calls_alike() {
    let site = filter("", |_| ()).await;
    for kind in ["a", "b", "c", "d"] {
        decide(&site, &[kind]).await.unwrap();
    }
    let digest = site.status(NAME).digest;
    for (more, reason) in [
        (
            "config = { drop = [\"b\"] }",
            "1 of 8 recorded calls (12.5 %) were answered differently, 0 % are allowed (replay.max-differences-percent); for \
             example decide: pass -> drop: decide (b), recorded \"pass\", now \"drop\"",
        ),
        (
            "config = { drop = [\"a\", \"b\"] }\nreplay = { max-differences-percent = 12.5 }",
            "2 of 8 recorded calls (25.0 %)",
        ),
        (
            "config = { fault = \"trap-open\" }",
            "8 of 8 recorded calls (100.0 %)",
        ),
        (
            "config = { fault = \"loop-open\" }\nreplay = { timeout = \"1ms\", max-differences-percent = 100 }",
            "(replay.timeout)",
        ),
        (
            "replay = { since = \"1us\" }",
            "there are no recorded calls of the serving version",
        ),
    ] {
        is_rejected(&site.replace(SOURCE, NAME, &with_replay(more)).await, reason);
        let status = site.status(NAME);
        assert_eq!(
            (status.digest.as_ref(), status.traps),
            (digest.as_ref(), 0),
            "{more}"
        );
    }
    let matcher = "world = \"attribute-matcher\"\nrollout = \"replay\"\n";
    is_rejected(
        &site.replace("attributes", NAME, matcher).await,
        "its world differs",
    );
    // The old version still serves.
    assert_eq!(decide(&site, &["b"]).await, Ok(1));

    let more = "config = { drop = [\"b\"] }\nreplay = { max-differences-percent = 20 }";
    let change = site.replace(SOURCE, NAME, &with_replay(more)).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    // No call of this version is recorded yet.
    let change = site.replace(SOURCE, NAME, &with_replay("")).await;
    is_rejected(&change, "there are no recorded calls of the serving version");
    let more = "replay = { without-calls = \"admit\" }";
    let change = site.replace(SOURCE, NAME, &with_replay(more)).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_version_needs_no_recorded_calls() {
    let site = Site::with_config(&[(SOURCE, NAME, Some(&with_replay("")))], record).await;
    assert_eq!(site.status(NAME).refusal, None);
    decide(&site, &["a"]).await.unwrap();
    // The same holds after a restart.
    let site = site.restart(|_| (), record).await;
    assert_eq!(site.status(NAME).refusal, None);
    // Without a call log there are no recorded calls of the serving version.
    let site = site.restart(|_| (), |_| ()).await;
    let change = site
        .replace(SOURCE, NAME, &with_replay("config = { mark = \"x\" }"))
        .await;
    is_rejected(&change, "calls are not recorded (plugins.recording)");
    site.stop().await;
}

fn agent(handle: u32, hostname: &str, rack: &str) -> Agent {
    Agent {
        handle,
        id: format!("agent-{handle}"),
        hostname: hostname.to_owned(),
        region: Some("eu".to_owned()),
        zone: None,
        attributes: vec![Attribute {
            name: "rack".to_owned(),
            value: AttributeValue::Text(rack.to_owned()),
        }],
        extensions: Vec::new(),
    }
}

fn field(field: &str, operator: &str, operand: Option<&str>) -> Constraint {
    Constraint::Field {
        field: field.to_owned(),
        operator: operator.to_owned(),
        operand: operand.map(str::to_owned),
    }
}

/// Makes every kind of call to a matcher.
async fn ask_matcher(site: &Site) {
    let mut agents = site.plugins.agent_set(Some("eu".to_owned()));
    // Two of the agents are on one host.
    let all = vec![agent(3, "a", "r1"), agent(5, "a", "r2"), agent(9, "b", "r2")];
    agents.update(all, Vec::new());
    let task = Task {
        run_spec: "/shop/web".to_owned(),
        instances: 4,
        constraints: vec![
            field("rack", "GROUP_BY", Some("2")),
            field("@hostname", "MAX_PER", Some("2")),
        ],
        placed: vec![9, 9, 5],
        extensions: vec![(Task::ENDING.to_owned(), "9".to_owned())],
    };
    let candidate = |agent| Candidate { agent, capacity: 2 };
    let candidates = [candidate(9), candidate(3), candidate(5)];
    agents.evaluate(&task, &candidates).await.unwrap();
    agents.place(&task, &candidates, 2).await.unwrap();
    agents.select_kills(&task, 1).await.unwrap();
    agents.update(vec![agent(3, "a", "r9")], vec![5]);
    let task = Task {
        placed: vec![9],
        extensions: Vec::new(),
        constraints: vec![Constraint::Expression("rack:r9".to_owned())],
        ..task
    };
    agents.evaluate(&task, &candidates[..2]).await.unwrap();
    let constraints = [field("rack", "LIKE", Some("(")), field("rack", "UNIQUE", None)];
    site.plugins.validate_constraints(&constraints).await.unwrap();
}

async fn ask_probe(site: &Site) {
    let server = Server::http(|_| async { response(503, "x-a: b\r\n", "no") }).await;
    let mut asked = request(Some(&server.endpoint));
    asked.labels = vec![("team".to_owned(), "shop".to_owned())];
    for (endpoint, outcome) in [(&server.endpoint, true), (&Server::closed().await, false)] {
        asked.endpoint = Some(endpoint.clone());
        asked.ports[0].endpoint = endpoint.clone();
        let found = site.plugins.probe(Kind::Http, asked.clone(), None).await;
        assert_eq!(found.is_ok(), outcome, "{found:?}");
    }
}

async fn ask_bootstrap(site: &Site) {
    for script in [&b"#!/bin/sh\nexec run\n"[..], b"no script \xff"] {
        let context = Context {
            role: Role::Agent,
            framework: "k3s".to_owned(),
            task: "agent.1".to_owned(),
            number: 1,
            host: "a".to_owned(),
            attributes: vec![
                ("rack".to_owned(), "r1".to_owned()),
                ("rack".to_owned(), "r2".to_owned()),
            ],
            image: "k3s:1".to_owned(),
            ports: vec![(31_000, 80)],
            source: "https://example.com/run.sh".to_owned(),
            digest: String::new(),
            environment: vec![("B".to_owned(), "1".to_owned()), ("A".to_owned(), "2".to_owned())],
            arguments: vec!["--now".to_owned()],
            extensions: Vec::new(),
        };
        let context = Context {
            digest: digest(script),
            ..context
        };
        // The handler rejects the second script.
        let _ = site.plugins.prepare(context, script.to_vec()).await;
    }
}

fn digest(script: &[u8]) -> String {
    transom_common::text::hex(&Sha256::digest(script))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_calls_of_every_world_are_cases_that_pass_on_their_version() {
    let plugins = ["attributes", "check-http", "bootstrap", "events"];
    let installed = plugins.map(|name| (name, name, None));
    let site = Site::with_config(&installed, |config: &mut Config| {
        record(config);
        config.bindings.filters = vec!["events".to_owned()];
    })
    .await;
    ask_matcher(&site).await;
    ask_probe(&site).await;
    ask_bootstrap(&site).await;
    decide(&site, &["app_terminated_event", "status_update_event"])
        .await
        .unwrap();
    for (name, expected) in plugins.into_iter().zip([5, 2, 2, 2]) {
        let hour = std::time::Duration::from_hours(1);
        let recorded = site.plugins.recorded_calls(name, hour, 100).await.unwrap();
        assert_eq!(recorded.calls.len(), expected, "{name}");
        let manifest = fs::read_to_string(component(name).with_extension("toml")).unwrap();
        let files = files(name, &manifest);
        let candidate = admitted(&files).await;
        let report = candidate.replay(&recorded).await;
        assert_eq!(
            (report.same, report.compared),
            (expected as u64, expected as u64),
            "{name}: {report:#?}"
        );

        let exported = export(&recorded);
        assert_eq!(exported.cases.len(), expected, "{name}: {exported:?}");
        let cases = Cases::from_json(&Value::from(exported.cases).to_string()).unwrap();
        let reports = candidate.test(&cases).await;
        for report in &reports {
            assert_eq!(report.verdict, Verdict::Passed, "{name}: {report:?}");
        }
    }
    // Each of the two agent sets is stored once.
    let recorded = site
        .plugins
        .recorded_calls("attributes", std::time::Duration::from_hours(1), 100);
    assert_eq!(recorded.await.unwrap().agents.len(), 2);
    site.stop().await;
}

/// If a probe requests other steps, the recorded answers do not fit, which counts as a difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_with_other_steps_is_a_difference() {
    let site = Site::with_config(&[("check-http", "check-http", None)], record).await;
    ask_probe(&site).await;
    let hour = std::time::Duration::from_hours(1);
    let mut recorded = site
        .plugins
        .recorded_calls("check-http", hour, 100)
        .await
        .unwrap();
    let steps = recorded.calls[0].case.get_mut("steps").unwrap();
    steps[0]["http"]["path"] = "/elsewhere".into();
    let manifest = fs::read_to_string(component("check-http").with_extension("toml")).unwrap();
    let candidate = admitted(&files("check-http", &manifest)).await;
    let report = candidate.replay(&recorded).await;
    assert_eq!(kinds(&report), [(1, "attempt: other steps")]);
    let example = &report.differences[0].examples[0];
    assert!(
        example.candidate.contains("step 1") && example.candidate.contains("/elsewhere"),
        "{example:?}"
    );
    // The name of the stage, as the daemon shows it.
    assert_eq!(serde_json::to_value(Stage::Replay).unwrap(), "replay");
    site.stop().await;
}
