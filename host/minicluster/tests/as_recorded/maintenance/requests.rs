//! Operators' requests for maintenance, valid and not.

use serde_json::{Value, json};
use transom_replay::client::{self, Request};

use super::{machine, maintenance_call, post, schedule_of, set_schedule, start_maintenance, unavailability};
use crate::support::Cluster;

#[tokio::test]
async fn schedules_are_shown_by_both_apis() {
    let cluster = Cluster::start(2, |_| ()).await;
    assert_eq!(cluster.get("/maintenance/schedule").await, json!({}));
    assert_eq!(cluster.get("/maintenance/status").await, json!({}));
    let machines = [machine("a0"), machine("elsewhere")];
    let schedule = schedule_of(&machines, 7);
    let update =
        json!({"type": "UPDATE_MAINTENANCE_SCHEDULE", "update_maintenance_schedule": {"schedule": schedule}});
    let response = cluster.operator_call(update).await;
    assert_eq!((response.head.code(), response.text().as_str()), (200, ""));
    let status = json!({"draining_machines": [{"id": machines[0]}, {"id": machines[1]}]});
    assert_eq!(cluster.get("/master/maintenance/schedule").await, schedule);
    assert_eq!(cluster.get("/master/maintenance/status").await, status);
    for (kind, part, expected) in [
        ("GET_MAINTENANCE_SCHEDULE", "schedule", &schedule),
        ("GET_MAINTENANCE_STATUS", "status", &status),
    ] {
        let mut expected_document = json!({ "type": kind });
        expected_document[kind.to_ascii_lowercase()] = json!({ part: expected });
        assert_eq!(
            cluster.operator_call(json!({ "type": kind })).await.json(),
            expected_document
        );
    }
    let (code, _) = post(&cluster, "/master/machine/down", &json!([machines[1]])).await;
    assert_eq!(code, 200);
    let status = json!({"draining_machines": [{"id": machines[0]}], "down_machines": [machines[1]]});
    assert_eq!(cluster.get("/maintenance/status").await, status);
    let (code, _) = post(&cluster, "/master/machine/up", &json!([machines[1]])).await;
    assert_eq!(code, 200);
    assert_eq!(
        cluster.get("/maintenance/schedule").await,
        schedule_of(&machines[..1], 7)
    );
    let (code, _) = post(&cluster, "/maintenance/schedule", &json!({"windows": []})).await;
    assert_eq!(code, 200);
    assert_eq!(cluster.get("/maintenance/schedule").await, json!({}));
    assert_eq!(cluster.get("/maintenance/status").await, json!({}));
    cluster.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_rejected_and_change_nothing() {
    let cluster = Cluster::start(2, |_| ()).await;
    set_schedule(&cluster, &[machine("a0"), machine("down")], 1).await;
    start_maintenance(&cluster, &[machine("down")]).await;
    let window = |machines: Value| json!({"machine_ids": machines, "unavailability": unavailability(1)});
    let mut backwards = schedule_of(&[machine("down")], 1);
    backwards["windows"][0]["unavailability"]["duration"]["nanoseconds"] = json!(-5);
    let schedules = [
        (
            json!({"windows": [window(json!([]))]}),
            "List of machines in the maintenance window is empty",
        ),
        (backwards, "Unavailability 'duration' is negative"),
        (
            schedule_of(&[json!({})], 1),
            "Both 'hostname' and 'ip' for a machine are empty",
        ),
        (
            schedule_of(&[json!({"ip": "one"})], 1),
            "Failed to parse IPv4: one",
        ),
        (
            schedule_of(&[machine("x"), machine("X")], 1),
            r#"Machine '{"hostname":"X","ip":"127.0.0.1"}' appears more than once in the schedule"#,
        ),
        (
            schedule_of(&[machine("a0")], 1),
            r#"Machine '{"hostname":"down","ip":"127.0.0.1"}' is deactivated and cannot be removed from the schedule"#,
        ),
    ];
    for (schedule, why) in schedules {
        let (code, text) = post(&cluster, "/maintenance/schedule", &schedule).await;
        assert_eq!((code, text.as_str()), (400, why));
        let call = json!({"type": "UPDATE_MAINTENANCE_SCHEDULE", "update_maintenance_schedule": {"schedule": schedule}});
        let response = cluster.operator_call(call).await;
        assert_eq!((response.head.code(), response.text().as_str()), (400, why));
    }
    let machines = [
        ("START_MAINTENANCE", json!([]), "List of machines is empty"),
        (
            "START_MAINTENANCE",
            json!([machine("a0"), machine("A0")]),
            r#"Machine '{"hostname":"A0","ip":"127.0.0.1"}' appears more than once in the schedule"#,
        ),
        (
            "START_MAINTENANCE",
            json!([machine("a0"), machine("a1")]),
            r#"Machine '{"hostname":"a1","ip":"127.0.0.1"}' is not in DRAINING mode and cannot be brought down"#,
        ),
        (
            "START_MAINTENANCE",
            json!([machine("down")]),
            r#"Machine '{"hostname":"down","ip":"127.0.0.1"}' is not in DRAINING mode and cannot be brought down"#,
        ),
        (
            "START_MAINTENANCE",
            json!([{"hostname": "a0"}]),
            r#"Machine '{"hostname":"a0"}' is not part of a maintenance schedule"#,
        ),
        (
            "STOP_MAINTENANCE",
            json!([machine("a0")]),
            r#"Machine '{"hostname":"a0","ip":"127.0.0.1"}' is not in DOWN mode and cannot be brought up"#,
        ),
        (
            "STOP_MAINTENANCE",
            json!([machine("x")]),
            r#"Machine '{"hostname":"x","ip":"127.0.0.1"}' is not part of a maintenance schedule"#,
        ),
    ];
    for (kind, machines, why) in machines {
        let path = if kind == "START_MAINTENANCE" {
            "/machine/down"
        } else {
            "/machine/up"
        };
        let (code, text) = post(&cluster, path, &machines).await;
        assert_eq!((code, text.as_str()), (400, why));
        let response = cluster
            .operator_call(maintenance_call(kind, machines.as_array().unwrap()))
            .await;
        assert_eq!((response.head.code(), response.text().as_str()), (400, why));
    }
    assert_eq!(
        cluster.get("/maintenance/status").await,
        json!({"draining_machines": [{"id": machine("a0")}], "down_machines": [machine("down")]})
    );
    assert_eq!(
        cluster.get("/slaves").await["slaves"].as_array().unwrap().len(),
        2
    );
    cluster.stop().await;
}

#[tokio::test]
async fn malformed_requests_for_maintenance_are_rejected() {
    let cluster = Cluster::start(0, |_| ()).await;
    let request = |method: &str, path: &str, body: &str| {
        let mut request = Request::post(path, &json!({}));
        method.clone_into(&mut request.method);
        body.as_bytes().clone_into(&mut request.body);
        request
            .headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        request.with("Content-Length", &body.len().to_string())
    };
    let not_allowed = |expected: &str| {
        format!("405 Method Not Allowed. Expecting one of {{ {expected} }}, but received 'PUT'.")
    };
    let missing = r#"{"windows": [{"machine_ids": [{"hostname": "a"}]}]}"#;
    let update = r#"{"type": "UPDATE_MAINTENANCE_SCHEDULE"}"#;
    let cases = [
        (
            "PUT",
            "/maintenance/schedule",
            "{}",
            405,
            not_allowed("'GET', 'POST'"),
        ),
        ("PUT", "/maintenance/status", "{}", 405, not_allowed("'GET'")),
        ("PUT", "/machine/down", "[]", 405, not_allowed("'POST'")),
        ("PUT", "/machine/up", "[]", 405, not_allowed("'POST'")),
        (
            "POST",
            "/maintenance/schedule",
            "{no",
            400,
            "syntax error at line 1 near: no".to_owned(),
        ),
        (
            "POST",
            "/maintenance/schedule",
            "[]",
            400,
            "Unexpected JSON type parsed".to_owned(),
        ),
        (
            "POST",
            "/maintenance/schedule",
            missing,
            400,
            "Missing required fields: windows[0].unavailability".to_owned(),
        ),
        (
            "POST",
            "/machine/down",
            "{}",
            400,
            "Unexpected JSON type parsed".to_owned(),
        ),
        (
            "POST",
            "/api/v1",
            update,
            400,
            "Failed to validate master::Call: Expecting 'update_maintenance_schedule' to be present"
                .to_owned(),
        ),
    ];
    for (method, path, body, code, why) in cases {
        let response = client::exchange(cluster.master(), &request(method, path, body))
            .await
            .unwrap();
        assert_eq!(
            (response.head.code(), response.text()),
            (code, why),
            "{method} {path} {body}"
        );
    }
    cluster.stop().await;
}
