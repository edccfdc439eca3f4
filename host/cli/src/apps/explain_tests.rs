use serde_json::{Value, json};

use super::*;

/// The queue's entry of an app whose instances need 100 CPUs and an agent each, in a cluster of two
/// agents.
fn recorded() -> Value {
    let step = |reason: &str, declined: u64, processed: u64| json!({"reason": reason, "declined": declined, "processed": processed});
    let offer = |host: &str, cpus: f64| {
        json!({
            "offer": {
                "id": "o", "hostname": host, "agentId": format!("agent-{host}"), "attributes": [],
                "resources": [
                    {"name": "cpus", "role": "*", "scalar": cpus}, {"name": "mem", "role": "*", "scalar": 4096.0},
                    {"name": "ports", "role": "*", "ranges": [{"begin": 31000, "end": 31009}]},
                ],
            },
            "timestamp": "2026-01-01T00:00:05.000Z", "reason": ["InsufficientCpus"],
        })
    };
    let steps = json!([
        step("UnfulfilledRole", 0, 3),
        step("UnfulfilledConstraint", 1, 3),
        step("InsufficientCpus", 2, 2),
        step("InsufficientMemory", 0, 0),
        step("SomethingNew", 1, 1),
    ]);
    json!({
        "app": {
            "id": "/big", "cpus": 100, "mem": 32, "constraints": [["@hostname", "UNIQUE"]],
            "portDefinitions": [{"port": 0}],
        },
        "count": 1, "role": "*", "delay": {"timeLeftSeconds": 0, "overdue": true}, "since": "2026-01-01T00:00:00.000Z",
        "processedOffersSummary": {
            "processedOffersCount": 12, "unusedOffersCount": 12, "rejectSummaryLastOffers": steps,
            "rejectSummaryLaunchAttempt": [],
        },
        "lastUnusedOffers": [offer("127.0.0.1", 4.0), offer("127.0.0.2", 3.9)],
        "reasons": {
            "last": {"InsufficientCpus": 2, "UnfulfilledConstraint": 1}, "last_offers": 3,
            "last_constraints": {"0": 1}, "message": null,
        },
    })
}

/// The daemon's words; `advice` is that of each reason.
fn words() -> Value {
    let words = |label: &str, sentence: &str, resource: Option<&str>| {
        json!({
            "label": label, "sentence": sentence, "advice": format!("Advice about {label}."), "kind": "offer",
            "resource": resource,
        })
    };
    let mut obstacle = words("subscription", "the framework is not registered", None);
    obstacle["kind"] = json!("obstacle");
    json!({
        "UnfulfilledConstraint": words("constraints", "offers come from rejected agents", None),
        "InsufficientCpus": words("cpus", "offers have too few CPUs", Some("cpus")),
        "InsufficientPorts": words("ports", "offers have too few ports", Some("ports")),
        "Disconnected": obstacle,
    })
}

#[test]
fn conditions_are_shown_with_counts_needs_and_the_largest_offer() {
    let (entry, words) = (recorded(), words());
    let item = Item {
        entry: &entry,
        words: &words,
    };
    let now: jiff::Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
    let lock = json!({"id": "d1", "currentStep": 1, "totalSteps": 1, "currentActions": []});
    let lines = explanation(item, &[&lock], now);
    assert_eq!(
        lines.lines_before,
        [
            "/big: 1 instance waits for 10 s: constraints: 1 of 3 offers come from rejected agents, cpus: 2 of 2 offers have less than 100, SomethingNew: 1 of 1 offers do not match"
        ]
    );
    assert_eq!(
        lines.rows[4][0], "SomethingNew",
        "a reason without words keeps its name"
    );
    assert_eq!(lines.rows[3][0], "InsufficientMemory");
    assert_eq!(lines.rows[2], ["cpus", "2", "2", "100", "4 (127.0.0.1)"]);
    let after = lines.lines_after.join("\n");
    for part in [
        "Constraint [@hostname UNIQUE] rejected 1 agents",
        "3 in the last round, from 2 agents; 12 since it started waiting, 12 of them unused",
        "Deployment d1: step 1 of 1",
        "It needs 100 cpus, and the largest offer has 4 (127.0.0.1). Advice about cpus.",
        "`transom apps update /big --set cpus=…`",
        "constraints: 1 of 3 offers come from rejected agents. Advice about constraints.",
        "deployments --rollback d1",
    ] {
        assert!(after.contains(part), "{part}: {after}");
    }
}

#[test]
fn document_contains_conditions_needs_and_constraints() {
    let (entry, words) = (recorded(), words());
    let document = document(
        Item {
            entry: &entry,
            words: &words,
        },
        &[],
    );
    assert_eq!(document["id"], "/big");
    let cpus = &document["conditions"][2];
    assert_eq!(
        (&cpus["condition"], &cpus["declined"]),
        (&json!("cpus"), &json!(2))
    );
    assert_eq!(
        (&cpus["needed"], &cpus["largestOffer"]),
        (&json!(100.0), &json!(4.0))
    );
    assert_eq!(document["constraints"][0]["rejectedAgents"], 1);
    assert_eq!(document["agents"], 2);
}

#[test]
fn fixed_ports_and_impossible_constraints_are_named() {
    let text = "host port 80 is in none of 3 offers: agents offer 31000-32000";
    let constraint = "constraint hostname CLUSTER x: no agent is called x: 3 offers came from h1, h2, h3";
    let rejections = json!([
        {"reason": "InsufficientPorts", "text": text},
        {"reason": "UnfulfilledConstraint", "text": constraint},
    ]);
    let (mut entry, words) = (recorded(), words());
    entry["reasons"]["rejections"] = rejections.clone();
    entry["processedOffersSummary"]["rejectSummaryLastOffers"] = json!([
        {"reason": "UnfulfilledConstraint", "declined": 2, "processed": 3},
        {"reason": "InsufficientPorts", "declined": 1, "processed": 1},
    ]);
    let item = Item {
        entry: &entry,
        words: &words,
    };
    assert_eq!(
        main_reason(item),
        format!("constraints: {constraint}, ports: {text}")
    );
    let lines = explanation(item, &[], jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(
        lines.rows[1],
        ["ports", "1", "1", "1", "-"],
        "the number of other ports is no help"
    );
    let after = lines.lines_after.join("\n");
    for part in [
        format!("ports: {text}. Advice about ports."),
        format!("constraints: {constraint}. Advice about constraints."),
    ] {
        assert!(after.contains(&part), "{part}: {after}");
    }
    assert_eq!(document(item, &[])["rejections"], rejections);
}

#[test]
fn delay_and_obstacles_take_precedence_over_declined_offers() {
    let (mut entry, words) = (recorded(), words());
    entry["delay"] = json!({"timeLeftSeconds": 12, "overdue": false});
    let item = Item {
        entry: &entry,
        words: &words,
    };
    assert_eq!(main_reason(item), "the next launch is in 12 s, after failures");
    let document = document(item, &[]);
    assert!(
        document["advice"][0]
            .as_str()
            .is_some_and(|text| text.contains("--reset-delay"))
    );
    let mut entry = recorded();
    entry["reasons"]["last"] = json!({"Disconnected": 1});
    let item = Item {
        entry: &entry,
        words: &words,
    };
    assert_eq!(main_reason(item), "the framework is not registered");
    assert_eq!(
        advice(item, &[])[0],
        "Nothing is launched now: the framework is not registered. Advice about subscription."
    );
}

#[test]
fn needs_of_a_pod_are_the_sums_of_its_containers_and_its_executor() {
    let pod = json!({
        "id": "/p", "executorResources": {"cpus": 0.1, "mem": 32},
        "containers": [
            {"resources": {"cpus": 0.5, "mem": 64}, "endpoints": [{"hostPort": 0}, {"name": "no host port"}]},
            {"resources": {"cpus": 0.2}},
        ],
    });
    assert_eq!(needed(&pod, "cpus").map(format_number).as_deref(), Some("0.8"));
    assert_eq!(needed(&pod, "mem"), Some(96.0));
    assert_eq!(needed(&pod, "ports"), Some(1.0));
}

#[test]
fn unexpected_documents_are_explained_without_details() {
    for entry in [Value::Null, json!([]), json!({"app": 1, "count": "x"})] {
        let item = Item {
            entry: &entry,
            words: &Value::Null,
        };
        assert_eq!(main_reason(item), "no suitable offer yet");
        assert!(
            explanation(item, &[], jiff::Timestamp::UNIX_EPOCH)
                .rows
                .is_empty()
        );
    }
    assert!(queue_item(&json!({"queue": [recorded()]}), "/big").is_some());
    assert!(queue_item(&json!({"queue": [recorded()]}), "/other").is_none());
}
