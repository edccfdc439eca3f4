//! Tests each rule with a document that violates it, and with a similar one that does not.

use serde_json::{Value, json};

use super::*;

/// The problems of a document: `severity source: message`.
fn problems(document: Value) -> Vec<String> {
    let overview: Overview = serde_json::from_value(document).expect("an overview");
    let actual = find(&overview);
    assert!(
        actual.iter().all(|problem| !problem.advice.is_empty()),
        "{actual:?}"
    );
    let severity = |severity| match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let actual = actual.iter();
    actual
        .map(|problem| {
            format!(
                "{} {}: {}",
                severity(problem.severity),
                problem.source,
                problem.message
            )
        })
        .collect()
}

/// Checks a table of documents and the beginnings of the expected problems.
fn check(table: &[(Value, &[&str])]) {
    for (document, expected) in table {
        let actual = problems(document.clone());
        let fits = actual.len() == expected.len()
            && actual
                .iter()
                .zip(*expected)
                .all(|(actual, expected)| actual.starts_with(expected));
        assert!(fits, "{document}: {actual:#?}, expected {expected:#?}");
    }
}

fn service(service: Value) -> Value {
    let services = vec![service];
    json!({"now": "2026-01-01T01:00:00Z", "services": services})
}

fn framework(leader: Option<&str>, leading: bool, subscribed: Option<bool>) -> Value {
    json!({"name": "marathon", "leader": leader, "leading": leading, "subscribed": subscribed})
}

#[test]
fn services_without_leader_subscription_or_records_are_errors() {
    let apps = |ready: bool, framework: Value| {
        service(json!({"name": "apps", "ready": ready, "framework": framework}))
    };
    let discovery = |ready: bool, source: &str, age: f64| {
        service(
            json!({"name": "discovery", "ready": ready, "source": source, "summary": {"age_seconds": age}}),
        )
    };
    check(&[
        (json!({}), &[]),
        (apps(true, framework(Some("a:1"), true, Some(true))), &[]),
        (apps(true, framework(Some("b:1"), false, None)), &[]),
        (
            apps(false, framework(None, false, None)),
            &["error apps: no daemon leads the framework marathon"],
        ),
        (
            apps(false, framework(Some("a:1"), true, Some(false))),
            &["error apps: the framework marathon is not subscribed"],
        ),
        (
            apps(false, framework(Some("a:1"), true, Some(true))),
            &["error apps: the service is not ready"],
        ),
        (discovery(true, "stream", 299.0), &[]),
        (
            discovery(true, "stream", 301.0),
            &["warning discovery: the records are stale: the cluster confirmed them 5 min ago (stream)"],
        ),
        (
            discovery(true, "none", 10.0),
            &[
                "error discovery: no master can be reached; lookups are answered from records that are 10 s old",
            ],
        ),
        (
            service(
                json!({"name": "discovery", "ready": false, "source": "stream", "summary": {"problem": "no tasks"}}),
            ),
            &["error discovery: no tasks"],
        ),
        (
            discovery(false, "none", 10.0),
            &["error discovery: discovery has no records yet"],
        ),
    ]);
}

#[test]
fn task_that_waits_too_long_is_a_warning_with_its_reason() {
    let waits_with = |name: &str, since: &str, offers: u32, reasons: Value| {
        let waiting = json!({
            "name": "/web", "instances": 2, "since": since, "offers": offers, "reasons": reasons, "why": "the reason",
        });
        service(json!({"name": name, "ready": true, "waiting": [waiting]}))
    };
    let waits = |name: &str, since: &str, reasons: Value| waits_with(name, since, 3, reasons);
    let old = "2026-01-01T00:50:00Z";
    let cpus = || json!({"InsufficientCpus": 3, "Backoff": 1});
    check(&[
        (waits("apps", "2026-01-01T00:59:46Z", cpus()), &[]),
        (
            waits("apps", "2026-01-01T00:59:45Z", cpus()),
            &["warning apps: /web: 2 instances waiting for 15 s: the reason"],
        ),
        (
            waits_with("apps", "2026-01-01T00:59:01Z", 0, json!({"NoOffers": 1})),
            &[],
        ),
        (
            waits_with("apps", "2026-01-01T00:59:00Z", 0, json!({"NoOffers": 1})),
            &["warning apps: /web: 2 instances waiting for 60 s: the reason"],
        ),
        (
            waits("apps", old, cpus()),
            &["warning apps: /web: 2 instances waiting for 10 min: the reason"],
        ),
        (
            waits("workflow", old, json!({})),
            &["warning workflow: /web: 2 tasks waiting for 10 min: the reason"],
        ),
        // A task in backoff after failures waits on purpose.
        (waits("apps", old, json!({"Backoff": 1})), &[]),
        (
            service(
                json!({"name": "kubernetes", "ready": true, "waiting": [{"name": "agent", "message": "m"}]}),
            ),
            &[],
        ),
    ]);
}

#[test]
fn advice_of_the_reasons_precedes_that_of_the_service() {
    let waiting =
        json!({"name": "/web", "since": "2026-01-01T00:00:00Z", "advice": ["Wait.", "Add agents."]});
    let document = service(json!({"name": "apps", "ready": true, "waiting": [waiting]}));
    let overview: Overview = serde_json::from_value(document).expect("an overview");
    let advice = &find(&overview)[0].advice;
    assert!(
        advice.starts_with("Wait. Add agents. `transom apps explain /web`"),
        "{advice}"
    );
}

#[test]
fn unhealthy_instances_and_long_deployments_are_warnings() {
    let deployment = |since: &str| {
        let deployment = json!({"id": "d1", "subject": "/web", "since": since, "step": 1, "steps": 2});
        service(json!({"name": "apps", "ready": true, "deployments": [deployment]}))
    };
    check(&[
        (
            service(json!({"name": "apps", "ready": true, "unhealthy": [{"name": "/web", "instances": 1}]})),
            &["warning apps: /web: 1 instance fails a health check"],
        ),
        (deployment("2026-01-01T00:46:00Z"), &[]),
        (
            deployment("2026-01-01T00:30:00Z"),
            &["warning apps: the deployment of /web has run for 30 min and is in step 1 of 2 (d1)"],
        ),
    ]);
}

#[test]
fn app_that_fails_is_one_problem_and_blocks_its_deployment_at_once() {
    let deployment = json!({
        "id": "d1", "subject": "/web", "since": "2026-01-01T00:59:00Z", "step": 1, "steps": 2, "blocked": "why",
    });
    let document = json!({
        "name": "apps", "ready": true,
        "failing": [{"name": "/web", "message": "/web: unhealthy: GET / failed", "advice": "a"}],
        "unhealthy": [{"name": "/web", "instances": 2}, {"name": "/other", "instances": 1}],
        "waiting": [{"name": "/web", "since": "2026-01-01T00:00:00Z", "why": "the reason"}],
        "deployments": [deployment],
    });
    check(&[(
        service(document),
        &[
            "warning apps: /web: unhealthy: GET / failed",
            "warning apps: /other: 1 instance fails a health check",
            "warning apps: the deployment of /web cannot go on in step 1 of 2 since 2026-01-01T00:59:00Z: why (d1)",
        ],
    )]);
}

#[test]
fn unreachable_masters_and_inactive_agents_are_named() {
    let cluster = |cluster: Value| json!({"cluster": cluster});
    let last_seen = "2026-01-01T00:00:00Z";
    check(&[
        (cluster(json!({"reachable": null})), &[]),
        (
            cluster(json!({"reachable": false, "error": "refused"})),
            &["error cluster: no leading master can be reached: refused"],
        ),
        (
            cluster(json!({"reachable": true, "seen": last_seen, "agents": {"total": 2, "active": 2}})),
            &[],
        ),
        (
            cluster(json!({"reachable": true, "seen": last_seen, "agents": {"total": 0}})),
            &["error cluster: no agent is registered"],
        ),
        (
            cluster(json!({"reachable": true, "seen": last_seen,
                "agents": {"total": 2, "active": 1, "inactive": ["a (disconnected)"]}})),
            &["warning cluster: 1 of 2 agents not active: a (disconnected)"],
        ),
    ]);
}

#[test]
fn store_must_answer_and_keep_what_it_confirms() {
    let store = |reachable: Option<bool>, durability: &str| json!({"store": {"server": "r:6379", "reachable": reachable, "error": "timeout", "durability": durability, "may_lose": "the last writes"}});
    check(&[
        (store(None, "unknown"), &[]),
        (store(Some(true), "appended"), &[]),
        (store(Some(true), "synced"), &[]),
        (
            store(Some(true), "volatile"),
            &["warning store: the store r:6379 can lose data: the last writes"],
        ),
        (store(Some(true), "partly_replicated"), &[]),
        (
            store(Some(true), "unconfirmed"),
            &["warning store: the store r:6379 can lose data: the last writes"],
        ),
        (
            store(Some(false), "appended"),
            &["error store: the store r:6379 cannot be read: timeout"],
        ),
    ]);
}

#[test]
fn plugins_that_are_missing_rejected_or_held_are_named() {
    let point = |missing: Value, used_by: Value| json!({"plugins": {"points": [{"point": "matcher", "plugins": ["attributes"], "missing": missing, "used_by": used_by}]}});
    let attention = |state: &str, serving: bool| json!({"plugins": {"attention": [{"name": "p", "state": state, "serving": serving, "reason": "r"}]}});
    check(&[
        (point(json!([]), json!(["apps"])), &[]),
        (point(json!(["attributes"]), json!([])), &[]),
        (
            point(json!(["attributes"]), json!(["apps", "workflow"])),
            &["error plugins: matcher: no version of attributes serves, which apps, workflow"],
        ),
        (
            attention("refused", false),
            &["error plugins: p was rejected, and no version serves: r"],
        ),
        (
            attention("refused", true),
            &["warning plugins: p has new files that were rejected"],
        ),
        (
            attention("disabled", false),
            &["error plugins: p is disabled after repeated faults: r"],
        ),
        (
            attention("quarantined", true),
            &["warning plugins: p serves an earlier version"],
        ),
    ]);
}

#[test]
fn open_files_near_their_limit_are_a_problem() {
    let process =
        |open: u64, limit: Option<u64>| json!({"process": {"open_files": open, "open_files_limit": limit}});
    check(&[
        (process(79, Some(100)), &[]),
        (process(1000, None), &[]),
        (
            process(80, Some(100)),
            &["warning process: 80 of 100 open files are in use (80 %)"],
        ),
        (process(95, Some(100)), &["error process: 95 of 100"]),
    ]);
}

#[test]
fn errors_come_before_warnings() {
    let document = json!({
        "process": {"open_files": 80, "open_files_limit": 100},
        "store": {"reachable": false},
    });
    let actual = problems(document);
    assert!(
        actual[0].starts_with("error store") && actual[1].starts_with("warning process"),
        "{actual:?}"
    );
}
