//! The scheduler's part of the main recording: subscriptions, launches, kills, reconciliation,
//! errors, failover.

use crate::{
    agent,
    client::{self, Request, Response},
    documents,
    framework::{Framework, adapt_to_offer},
    run::{Error, Run},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ALPHA: &str = "1-main/12-alpha-first-stream";
const BETA: &str = "1-main/13-beta-stream";

/// Replays the complete run.
pub(crate) async fn replay(run: &mut Run) -> Result<(), Error> {
    let (mut operator, operator_events) = {
        let (head, stream) = client::open(
            run.master,
            &Request::post("/api/v1", &json!({"type": "SUBSCRIBE"})),
        )
        .await?;
        run.compare_head(
            "1-main/15-operator-subscribe",
            &Response {
                head,
                body: Vec::new(),
            },
        );
        (stream, run.recordings.events("1-main/15-operator-subscribe")?)
    };
    let subscribe = run.recordings.request_body(ALPHA)?;
    let mut alpha = first_subscription(run, &subscribe).await?;
    wrong_calls(run, &alpha).await;
    groups(run, &mut alpha).await?;
    // The offers that the first framework holds would be missing from the second one's offer.
    alpha.decline_and_suppress().await?;
    let mut beta = Framework::subscribe(run.master, &run.recordings.request_body(BETA)?).await?;
    beta.use_agent_of(&alpha);
    with_two_frameworks(run, &mut beta).await?;
    agent::documents(run, &alpha.id).await?;
    rejected_tasks(run, &mut alpha, &mut beta).await?;
    reconciliation(run, &mut alpha, &mut beta).await?;
    kills(run, &mut alpha, &mut beta).await?;
    calls(run, &alpha).await;
    let alpha = failover(run, alpha, &subscribe).await?;
    endings(run, alpha, beta).await?;
    compare_operator_events(run, &mut operator, &operator_events).await
}

/// The first subscription, its first offer and its first task.
async fn first_subscription(run: &mut Run, subscribe: &Value) -> Result<Framework, Error> {
    let mut alpha = Framework::subscribe(run.master, subscribe).await?;
    run.compare_head(
        ALPHA,
        &Response {
            head: alpha.head.clone(),
            body: Vec::new(),
        },
    );
    let recorded = run.recordings.events(ALPHA)?;
    let heartbeat = alpha.any("a heartbeat").await?;
    run.compare_event(ALPHA, "HEARTBEAT after SUBSCRIBED", &recorded[1], &heartbeat);
    let mark = alpha.mark();
    let offers = alpha.any("the first offers").await?;
    run.compare_event(ALPHA, "OFFERS after that", &recorded[2], &offers);
    alpha.rewind(mark);
    let offer = alpha.wait_for_offer().await?;
    documents::at_moment(
        run,
        "02-1fw-0task",
        &["state", "frameworks", "slaves", "tasks"],
        &["GET_STATE", "GET_FRAMEWORKS"],
    )
    .await;
    let request = run.recordings.json("1-main/03-accept-launch.request.json")?;
    let answer = alpha.call(&adapt_to_offer(&request, &offer)).await?;
    run.compare("1-main/03-accept-launch", "ACCEPT with LAUNCH", &answer);
    for state in ["TASK_STARTING", "TASK_RUNNING"] {
        compare_update(run, &mut alpha, "task-1", state).await?;
    }
    // When this was recorded, no resources were offered; here other agents may offer some.
    alpha.decline_and_suppress().await?;
    documents::all_at_moment(run, "03-1fw-1task").await;
    Ok(alpha)
}

/// Compares an update of a task with the one recorded on the first stream.
async fn compare_update(
    run: &mut Run,
    framework: &mut Framework,
    task: &str,
    state: &str,
) -> Result<(), Error> {
    let recorded = recorded_update(run, task, state)?.unwrap_or_default();
    let live = framework.update(task, state).await?;
    run.compare_event(ALPHA, &format!("{state} of {task}"), &recorded, &live);
    Ok(())
}

/// The recorded update of this task with this state on the first stream.
fn recorded_update(run: &Run, task: &str, state: &str) -> Result<Option<Value>, Error> {
    let events = run.recordings.events(ALPHA)?;
    Ok(events.into_iter().find(|event| {
        let status = &event["update"]["status"];
        status["task_id"]["value"] == task && status["state"] == state
    }))
}

/// Tasks that end without a kill, and a task group.
async fn groups(run: &mut Run, alpha: &mut Framework) -> Result<(), Error> {
    let offer = alpha.offer().await?;
    let request = run.recordings.json("1-main/04-accept-group.request.json")?;
    alpha.call(&adapt_to_offer(&request, &offer)).await?;
    let ends = [("task-3", "TASK_FAILED"), ("task-4", "TASK_FINISHED")];
    let runs = ["task-2", "grp-a", "grp-b"].map(|task| (task, "TASK_RUNNING"));
    let starts = ["task-2", "task-3", "task-4", "grp-a", "grp-b"].map(|task| (task, "TASK_STARTING"));
    for (task, state) in starts.into_iter().chain(runs).chain(ends) {
        compare_update(run, alpha, task, state).await?;
    }
    Ok(())
}

/// Subscribes a second framework, without capabilities.
async fn with_two_frameworks(run: &mut Run, beta: &mut Framework) -> Result<(), Error> {
    let offer = beta.wait_for_offer().await?;
    let recorded = run.recordings.json("1-main/05-offer-legacy.json")?;
    run.compare_json(
        "1-main/05-offer-legacy",
        "an offer to a framework without MULTI_ROLE",
        &recorded,
        &offer,
    );
    let request = run.recordings.json("1-main/08-accept-stale-offer-legacy.json")?;
    let mut accept = adapt_to_offer(&request["call"], &offer);
    accept["accept"]["offer_ids"] = json!([offer["id"]]);
    accept["accept"]["operations"][0]["launch"]["task_infos"][0]["task_id"]["value"] = json!("beta-1");
    beta.call(&accept).await?;
    beta.update("beta-1", "TASK_RUNNING").await?;
    beta.decline_and_suppress().await?;
    documents::all_at_moment(run, "05-2fw").await;
    Ok(())
}

/// Tasks that are not launched for various reasons.
async fn rejected_tasks(run: &mut Run, alpha: &mut Framework, beta: &mut Framework) -> Result<(), Error> {
    let cases = [
        "accept-stale-offer",
        "accept-too-much",
        "accept-duplicate-id",
        "accept-no-command",
        "accept-bad-command",
        "accept-bad-user",
        "fetch-fails",
    ];
    for case in cases {
        let recording = format!("1-main/08-{case}");
        let recorded = run.recordings.json(&format!("{recording}.json"))?;
        let offer = alpha.offer().await?;
        alpha.call(&adapt_to_offer(&recorded["call"], &offer)).await?;
        compare_status(run, alpha, &recording, &recorded["event"]).await?;
    }
    let recording = "1-main/08-accept-stale-offer-legacy";
    let recorded = run.recordings.json(&format!("{recording}.json"))?;
    beta.call(&recorded["call"]).await?;
    compare_status(run, beta, recording, &recorded["event"]).await
}

/// Waits for the update with which a recording ends, and compares it.
async fn compare_status(
    run: &mut Run,
    framework: &mut Framework,
    recording: &str,
    recorded: &Value,
) -> Result<(), Error> {
    let (task, state) = (
        &recorded["update"]["status"]["task_id"],
        &recorded["update"]["status"]["state"],
    );
    let reason = &recorded["update"]["status"]["reason"];
    let live = framework
        .wait_for(&format!("{state} of {task}"), |event| {
            let status = &event["update"]["status"];
            status["task_id"] == *task && status["state"] == *state && status["reason"] == *reason
        })
        .await?;
    run.compare_event(recording, &format!("{state} of {task}"), recorded, &live);
    Ok(())
}

async fn reconciliation(run: &mut Run, alpha: &mut Framework, beta: &mut Framework) -> Result<(), Error> {
    let agent = alpha.update("task-1", "TASK_RUNNING").await?["update"]["status"]["agent_id"].clone();
    for case in [
        "known",
        "unknown",
        "unknown-noagent",
        "unknown-badagent",
        "unknown-legacy",
    ] {
        let recording = format!("1-main/08-reconcile-{case}");
        let recorded = run.recordings.json(&format!("{recording}.json"))?;
        let mut call = recorded["call"].clone();
        if call
            .pointer("/reconcile/tasks/0/agent_id/value")
            .is_some_and(|id| id != "nope")
        {
            call["reconcile"]["tasks"][0]["agent_id"] = agent.clone();
        }
        let framework = if case == "unknown-legacy" {
            &mut *beta
        } else {
            &mut *alpha
        };
        framework.call(&call).await?;
        compare_status(run, framework, &recording, &recorded["event"]).await?;
    }
    let recording = "1-main/08-reconcile-implicit";
    let recorded = run.recordings.json(&format!("{recording}.json"))?;
    let mark = alpha.mark();
    alpha
        .call(&json!({"type": "RECONCILE", "reconcile": {"tasks": []}}))
        .await?;
    for event in recorded["events"].as_array().into_iter().flatten() {
        alpha.rewind(mark);
        compare_status(run, alpha, recording, event).await?;
    }
    Ok(())
}

async fn kills(run: &mut Run, alpha: &mut Framework, beta: &mut Framework) -> Result<(), Error> {
    for (case, legacy) in [("kill", false), ("kill-unknown", false), ("kill-legacy", true)] {
        let recording = format!("1-main/08-{case}");
        let recorded = run.recordings.json(&format!("{recording}.json"))?;
        let mut call = recorded["call"].clone();
        if let Some(kill) = call["kill"].as_object_mut() {
            kill.remove("agent_id");
        }
        let framework = if legacy { &mut *beta } else { &mut *alpha };
        framework.call(&call).await?;
        compare_status(run, framework, &recording, &recorded["event"]).await?;
    }
    let group = "1-main/08-kill-group-member";
    let recorded = run.recordings.json(&format!("{group}.json"))?;
    alpha.call(&recorded["call"]).await?;
    // Whether a container still has its network when it is killed depends on a race; one of the two
    // recordings has it.
    let mut both = vec![recorded["event"].clone()];
    both.extend(recorded_update(run, "grp-b", "TASK_KILLING")?);
    let live = [
        alpha.update("grp-a", "TASK_KILLING").await?,
        alpha.update("grp-b", "TASK_KILLING").await?,
    ];
    run.compare_json(group, "TASK_KILLING of both", &json!(both), &json!(live));
    for (task, state) in [
        ("task-2", "TASK_KILLED"),
        ("grp-a", "TASK_KILLED"),
        ("grp-b", "TASK_KILLED"),
    ] {
        compare_update(run, alpha, task, state).await?;
    }
    let recorded = run
        .recordings
        .events(ALPHA)?
        .into_iter()
        .find(|event| event["type"] == "FAILURE")
        .unwrap_or_default();
    let failure = alpha
        .wait_for("FAILURE of the group's executor", |event| {
            event["type"] == "FAILURE"
        })
        .await?;
    run.compare_event(ALPHA, "FAILURE after the group's end", &recorded, &failure);
    Ok(())
}

/// Calls that have no effect except their answer.
async fn calls(run: &mut Run, alpha: &Framework) {
    let cases = [
        ("suppress", json!({"type": "SUPPRESS"})),
        (
            "suppress-roles",
            json!({"type": "SUPPRESS", "suppress": {"roles": ["alpha"]}}),
        ),
        ("revive", json!({"type": "REVIVE"})),
        (
            "revive-roles",
            json!({"type": "REVIVE", "revive": {"roles": ["alpha"]}}),
        ),
        (
            "revive-other-role",
            json!({"type": "REVIVE", "revive": {"roles": ["other"]}}),
        ),
        (
            "decline-unknown",
            json!({"type": "DECLINE", "decline": {"offer_ids": [{"value": "x"}], "filters": {"refuse_seconds": 5}}}),
        ),
        (
            "reconcile-ops",
            json!({"type": "RECONCILE_OPERATIONS", "reconcile_operations": {"operations": []}}),
        ),
        ("request", json!({"type": "REQUEST", "request": {"requests": []}})),
        (
            "message",
            json!({"type": "MESSAGE", "message": {"agent_id": {"value": "x"}, "executor_id": {"value": "task-1"}, "data": "aGk="}}),
        ),
        ("update-framework", update_framework(&alpha.id, true)),
        ("update-framework-badcap", update_framework(&alpha.id, false)),
    ];
    for (name, call) in cases {
        run.ask(&format!("1-main/09-call-{name}"), &alpha.request(&call))
            .await;
    }
}

fn update_framework(id: &str, checkpoint: bool) -> Value {
    let capabilities = [
        "MULTI_ROLE",
        "PARTITION_AWARE",
        "TASK_KILLING_STATE",
        "RESERVATION_REFINEMENT",
    ]
    .map(|kind| json!({"type": kind}));
    json!({"type": "UPDATE_FRAMEWORK", "update_framework": {"framework_info": {
        "user": "root", "name": "alpha", "roles": ["alpha"], "checkpoint": checkpoint, "failover_timeout": 3600.0,
        "hostname": "sched.example.org", "webui_url": "http://changed/", "capabilities": capabilities,
        "labels": {"labels": [{"key": "team", "value": "a"}]}, "id": {"value": id},
    }}})
}

/// Calls that the master rejects.
async fn wrong_calls(run: &mut Run, alpha: &Framework) {
    let revive = alpha.request(&json!({"type": "REVIVE"}));
    let raw = |body: &str| Request {
        body: body.as_bytes().to_vec(),
        ..revive.clone()
    };
    let plain = |body: Value| Request::post("/api/v1/scheduler", &body);
    let subscribe = |info: Value| plain(json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}}));
    let good = json!({"user": "root", "name": "x"});
    let cases = [
        (
            "wrong-stream-id",
            revive
                .clone()
                .with("Mesos-Stream-Id", "00000000-0000-0000-0000-000000000000"),
        ),
        ("no-stream-id", revive.clone().with("Mesos-Stream-Id", "")),
        ("bad-json", raw("{not json")),
        ("empty-body", raw("")),
        ("json-array", raw("[]")),
        ("json-wrong-type", raw(r#"{"type":"REVIVE","framework_id":"x"}"#)),
        (
            "unknown-enum",
            raw(r#"{"type":"FROB","framework_id":{"value":"x"}}"#),
        ),
        ("no-type", raw(r#"{"framework_id":{"value":"x"}}"#)),
        ("missing-required", alpha.request(&json!({"type": "ACCEPT"}))),
        (
            "kill-missing-required",
            alpha.request(&json!({"type": "KILL", "kill": {}})),
        ),
        ("no-framework-id", raw(r#"{"type":"REVIVE"}"#)),
        (
            "unknown-framework",
            raw(r#"{"type":"REVIVE","framework_id":{"value":"nobody"}}"#),
        ),
        ("no-content-type", revive.clone().with("Content-Type", "")),
        (
            "bad-content-type",
            revive.clone().with("Content-Type", "text/plain"),
        ),
        (
            "content-type-charset",
            revive
                .clone()
                .with("Content-Type", "application/json; charset=utf-8"),
        ),
        (
            "bad-accept-subscribe",
            subscribe(good.clone()).with("Accept", "text/html"),
        ),
        (
            "subscribe-with-stream-id",
            subscribe(good).with("Mesos-Stream-Id", "00000000-0000-0000-0000-000000000000"),
        ),
        ("subscribe-no-user", subscribe(json!({"name": "x"}))),
        (
            "subscribe-roles-without-multirole",
            subscribe(json!({"user": "root", "name": "x", "roles": ["a"]})),
        ),
        (
            "subscribe-bad-role",
            subscribe(json!({"user": "root", "name": "x", "role": "a/../b"})),
        ),
        (
            "subscribe-id-mismatch",
            plain(
                json!({"type": "SUBSCRIBE", "framework_id": {"value": "x"}, "subscribe": {"framework_info": {"user": "root", "name": "x"}}}),
            ),
        ),
        (
            "unknown-json-field",
            alpha.request(&json!({"type": "REVIVE", "frobnicate": 1})),
        ),
    ];
    for (name, request) in cases {
        run.ask(&format!("1-main/07-err-{name}"), &request).await;
    }
    let acknowledge = |uuid: &str| {
        let part = json!({"agent_id": {"value": "x"}, "task_id": {"value": "x"}, "uuid": uuid});
        alpha.request(&json!({"type": "ACKNOWLEDGE", "acknowledge": part}))
    };
    run.ask("5-misc/ack-bad-uuid", &acknowledge("AAAA")).await;
    run.ask("5-misc/ack-not-base64", &acknowledge("!!!")).await;
    for accept in ["none", "star", "q", "both", "recordio"] {
        let value = match accept {
            "none" => "",
            "star" => "*/*",
            "q" => "application/json;q=0.5, application/x-protobuf;q=0.9",
            "both" => "application/x-protobuf, application/json",
            _ => "application/recordio",
        };
        let request = subscribe(json!({"user": "root", "name": "accept"})).with("Accept", value);
        compare_open(run, &format!("8-http/subscribe-accept-{accept}"), &request).await;
    }
}

/// Compares the head of a response whose body may not end.
async fn compare_open(run: &mut Run, recording: &str, request: &Request) {
    let recorded = match run.recordings.answer(recording) {
        Ok(recorded) => recorded,
        Err(error) => return run.fail(recording, "head of the stream", &error),
    };
    match client::open(run.master, request).await {
        Ok((head, _stream)) => run.compare_heads(
            recording,
            &recorded,
            &Response {
                head,
                body: Vec::new(),
            },
        ),
        Err(error) => run.fail(recording, "head of the stream", &error),
    }
}

/// The framework subscribes again: the old stream ends, and calls with its stream id are rejected.
async fn failover(run: &mut Run, mut old: Framework, subscribe: &Value) -> Result<Framework, Error> {
    let mut again = subscribe.clone();
    again["framework_id"] = json!({"value": old.id});
    again["subscribe"]["framework_info"]["id"] = json!({"value": old.id});
    let new = Framework::subscribe(run.master, &again).await?;
    let recorded = run
        .recordings
        .events(ALPHA)?
        .into_iter()
        .find(|event| event["type"] == "ERROR")
        .unwrap_or_default();
    let error = old
        .wait_for("ERROR on the old stream", |event| event["type"] == "ERROR")
        .await?;
    run.compare_event(ALPHA, "ERROR on the old stream", &recorded, &error);
    old.wait_until_ended().await?;
    run.ask(
        "1-main/12-failover-old-stream-call",
        &old.request(&json!({"type": "REVIVE"})),
    )
    .await;
    documents::at_moment(run, "12-failover", &["state", "frameworks"], &[]).await;
    let call = new.request(&json!({"type": "REVIVE"}));
    drop(new);
    wait_until_disconnected(run, &call).await?;
    run.ask("1-main/12-disconnected-call", &call).await;
    documents::at_moment(run, "12-disconnected", &["state", "frameworks"], &[]).await;
    let third = Framework::subscribe(run.master, &again).await?;
    documents::at_moment(run, "12-resubscribed", &["frameworks"], &[]).await;
    Ok(third)
}

/// Waits until the master has detected that a stream was closed.
async fn wait_until_disconnected(run: &Run, call: &Request) -> Result<(), Error> {
    let end = Instant::now() + Duration::from_secs(10);
    while client::exchange(run.master, call).await?.head.code() == 202 {
        if Instant::now() > end {
            return Err(Error::Missing(
                "the master did not detect the closed stream within 10 s".to_owned(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A framework that disconnects, one that may not subscribe again, and one that is torn down.
async fn endings(run: &mut Run, mut alpha: Framework, beta: Framework) -> Result<(), Error> {
    let (id, call) = (beta.id.clone(), beta.request(&json!({"type": "REVIVE"})));
    drop(beta);
    wait_until_disconnected(run, &call).await?;
    documents::at_moment(run, "13-beta-gone", &["state", "frameworks", "tasks"], &[]).await;
    let recording = "1-main/13-resubscribe-removed";
    let mut again = run.recordings.request_body(recording)?;
    again["framework_id"]["value"] = json!(id);
    again["subscribe"]["framework_info"]["id"]["value"] = json!(id);
    let (head, mut stream) = client::open(run.master, &Request::post("/api/v1/scheduler", &again)).await?;
    run.compare_head(
        recording,
        &Response {
            head,
            body: Vec::new(),
        },
    );
    let error = stream.record(Duration::from_secs(10)).await?.unwrap_or_default();
    let recorded = run.recordings.events(recording)?;
    run.compare_event(recording, "ERROR", &recorded[0], &error);
    let answer = alpha.call(&json!({"type": "TEARDOWN"})).await?;
    run.compare("1-main/14-teardown", "TEARDOWN", &answer);
    alpha.wait_until_ended().await?;
    documents::at_moment(
        run,
        "14-after-teardown",
        &["state", "frameworks", "tasks", "slaves", "metrics_snapshot"],
        &["GET_STATE", "GET_TASKS", "GET_FRAMEWORKS"],
    )
    .await;
    Ok(())
}

/// Compares all operator events with the recorded ones, separately for each type of event.
async fn compare_operator_events(
    run: &mut Run,
    operator: &mut client::Stream,
    recorded: &[Value],
) -> Result<(), Error> {
    let mut live = Vec::new();
    loop {
        let event = operator
            .record(Duration::from_secs(10))
            .await?
            .unwrap_or_default();
        let last = event["type"] == "FRAMEWORK_REMOVED"
            && event.pointer("/framework_removed/framework_info/name") == Some(&json!("alpha"));
        live.push(event);
        if last || live.last().is_some_and(Value::is_null) {
            break;
        }
    }
    let of_type = |events: &[Value], kind: &str| -> Value {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .cloned()
            .collect()
    };
    for kind in [
        "SUBSCRIBED",
        "HEARTBEAT",
        "FRAMEWORK_ADDED",
        "FRAMEWORK_UPDATED",
        "FRAMEWORK_REMOVED",
        "TASK_ADDED",
        "TASK_UPDATED",
    ] {
        let found = of_type(&live, kind);
        if found.as_array().is_none_or(Vec::is_empty) {
            run.fail(
                "1-main/15-operator-subscribe",
                kind,
                &Error::Missing(format!("no {kind} event came")),
            );
        }
        run.compare_json(
            "1-main/15-operator-subscribe",
            kind,
            &of_type(recorded, kind),
            &found,
        );
    }
    Ok(())
}
