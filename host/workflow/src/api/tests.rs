//! The calls, as clients see them.

use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use serde_json::json;
use transom_cluster::v1::TaskState;
use transom_testkit::assert_checked_in;

use crate::Settings;
use crate::job_index::VISITED;
use crate::testing::{Answer, BINARY, Site};

/// `user:password`
const VALID_AUTHORIZATION: &str = "Basic dXNlcjpwYXNzd29yZA==";
const INVALID_AUTHORIZATION: &str = "Basic dXNlcjp3cm9uZw==";

fn with_credentials() -> Settings {
    Settings {
        api_username: Some("user".to_owned()),
        api_password: Some("password".into()),
        ..Settings::default()
    }
}

fn is_rejected(answer: &Answer) -> bool {
    if answer.status != StatusCode::UNAUTHORIZED {
        return false;
    }
    assert_eq!(answer.text, "Unauthorized Access");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(
        answer.header("www-authenticate"),
        Some("Basic realm=\"Authentication Required\"")
    );
    true
}

#[tokio::test]
async fn access_depends_on_credentials_and_network() {
    let body = json!({"airflow_task_id": "a", "command": ["true"]});
    let (loopback, external) = ([127, 0, 0, 1], [10, 0, 0, 1]);
    for (config, configured) in [(with_credentials(), true), (Settings::default(), false)] {
        let site = Site::start_with(config).await;
        site.queue(body.clone()).await;
        for (method, path, from_loopback, from_external) in [
            (Method::POST, "/v0/queue_command", true, false),
            (Method::GET, "/v0/task/a", true, false),
            (Method::GET, "/v0/agent/a1", true, false),
            (Method::GET, "/v0/queue", true, false),
            (Method::GET, "/v0/events?wait=0", true, false),
            (Method::DELETE, "/v0/task/a", !configured, false),
            (Method::GET, "/v0/dags", false, false),
        ] {
            for (peer, authorization, expected) in [
                (loopback, None, from_loopback),
                (external, None, from_external),
                (external, Some(INVALID_AUTHORIZATION), false),
                // A wrong password is rejected even from a trusted network. Without configured
                // credentials no password is wrong.
                (
                    loopback,
                    Some(INVALID_AUTHORIZATION),
                    !configured && from_loopback,
                ),
                (external, Some(VALID_AUTHORIZATION), configured),
                (loopback, Some(VALID_AUTHORIZATION), configured || from_loopback),
            ] {
                let posted = (method == Method::POST).then(|| body.clone());
                let answer = site
                    .ask_from(peer, method.clone(), path, posted, authorization)
                    .await;
                assert_eq!(
                    !is_rejected(&answer),
                    expected,
                    "{method} {path} from {peer:?} with {authorization:?}, configured: {configured}: {answer:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn configured_trusted_networks_replace_loopback() {
    let mut config = with_credentials();
    config.trusted_networks = Some(vec!["10.0.0.0/8".parse().unwrap()]);
    let site = Site::start_with(config).await;
    for (peer, trusted) in [
        ([10, 9, 9, 9], true),
        ([127, 0, 0, 1], false),
        ([11, 0, 0, 1], false),
    ] {
        let answer = site.ask_from(peer, Method::GET, "/v0/task/a", None, None).await;
        assert_eq!(!is_rejected(&answer), trusted, "{peer:?}");
    }
}

#[tokio::test]
async fn responses_match_upstream_byte_for_byte() {
    let site = Site::start_with(with_credentials()).await;
    let json = Some("application/json");
    let unknown = site.get("/v0/task/nobody").await;
    assert_eq!(
        (unknown.text.as_str(), unknown.header("content-type")),
        ("null", json)
    );
    let agent = site.get("/v0/agent/a1").await;
    assert_eq!(
        (agent.text.as_str(), agent.header("content-type")),
        (r#"{"hostname": "h1", "port": "5051"}"#, json)
    );
    let agent = site.get("/v0/agent/zz").await;
    assert_eq!((agent.status, agent.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(agent.header("content-type"), json);
    let none = site
        .ask(Method::POST, "/v0/queue_command", Some(json!({"image": "a"})))
        .await;
    assert_eq!(none.status, StatusCode::BAD_REQUEST);
    assert_eq!(none.text, "Expecting command in queue_command call");
    assert_eq!(none.header("content-type"), Some("text/html; charset=utf-8"));
    let ok = site
        .ask(
            Method::POST,
            "/v0/queue_command",
            Some(json!({"command": ["true"]})),
        )
        .await;
    assert_eq!(
        (ok.text.as_str(), ok.header("content-type")),
        ("Ok", Some("text/html; charset=utf-8"))
    );
}

#[tokio::test]
async fn invalid_bodies_are_reported_field_by_field() {
    let site = Site::start().await;
    for (body, status, message) in [
        ("", StatusCode::BAD_REQUEST, "Please specify data in JSON format"),
        ("{", StatusCode::BAD_REQUEST, "Invalid JSON"),
        ("[]", StatusCode::UNPROCESSABLE_ENTITY, "Invalid JSON"),
    ] {
        let answer = raw(&site, body).await;
        assert_eq!(answer.status, status, "{body}");
        assert_eq!(answer.json()["message"], message, "{body}");
    }
    let body = json!({"command": ["true"], "cpus": "many", "attributes": ["gpu"]});
    let answer = site.ask(Method::POST, "/v0/queue_command", Some(body)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let details = answer.json()["details"].clone();
    assert_eq!(details[0]["path"], "/cpus", "{details}");
    // The matcher names the invalid constraint; while it is unavailable the job is accepted.
    let body = json!({"command": ["true"], "attributes": ["a:b", "gpu"]});
    let answer = site
        .ask(Method::POST, "/v0/queue_command", Some(body.clone()))
        .await
        .json();
    assert_eq!(
        answer["details"],
        json!([{"path": "/attributes(1)", "errors": ["expected key:value"]}])
    );
    site.matcher.is_unavailable.store(true, Ordering::Relaxed);
    site.queue(body).await;
}

async fn raw(site: &Site, body: &str) -> Answer {
    use axum::body::Body;
    use axum::extract::ConnectInfo;
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    let mut request = http::Request::post("/v0/queue_command")
        .body(Body::from(body.to_owned()))
        .unwrap();
    let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    request.extensions_mut().insert(ConnectInfo(peer));
    let (head, body) = site.router.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8_lossy(&body).into_owned(),
        body,
    }
}

#[tokio::test]
async fn openapi_documents_exactly_the_served_calls() {
    let site = Site::start_with(with_credentials()).await;
    let document = site.get("/v0/openapi.json").await.json();
    assert_checked_in(
        "docs/workflow.openapi.json",
        &transom_web::routes::text(&document),
    );
    let documented = document["paths"].as_object().unwrap();
    let is_documented =
        |path: &str, method: &Method| documented[path].get(method.as_str().to_lowercase()).is_some();
    for path in documented.keys() {
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            let uri = format!("{}?wait=0", path.replace("{id}", "none"));
            let answer = site
                .ask_from(
                    [127, 0, 0, 1],
                    method.clone(),
                    &uri,
                    None,
                    Some(VALID_AUTHORIZATION),
                )
                .await;
            let is_allowed = answer.status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(
                is_documented(path, &method),
                is_allowed,
                "{method} {path}: {answer:?}"
            );
            if is_allowed {
                // The document also describes the status of the response.
                let status = answer.status.as_str();
                let responses = &documented[path][method.as_str().to_lowercase()]["responses"];
                assert!(responses.get(status).is_some(), "{method} {path}: {status}");
            }
        }
    }
    // The document lists only fields that are read: each field is rejected if its type is wrong.
    let fields = document["components"]["schemas"]["Job"]["properties"]
        .as_object()
        .unwrap();
    for (name, schema) in fields {
        let mut body = json!({"command": ["true"]});
        body[name] = json!({"not": ["what", "is", "expected"]});
        if schema["type"] == "object" {
            body[name] = json!(["not what is expected"]);
        }
        let rejected = site.ask(Method::POST, "/v0/queue_command", Some(body)).await;
        assert_eq!(
            rejected.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{name}: {rejected:?}"
        );
        assert!(rejected.text.contains(name), "{rejected:?}");
    }
}

#[tokio::test]
async fn events_returns_changes_as_they_happen() {
    let site = Site::start().await;
    let none = site.get("/v0/events?since=0&wait=0").await.json();
    assert_eq!(none["events"], json!([]));
    let since = none["next"].as_u64().unwrap();
    let path = format!("/v0/events?since={since}&wait=20");
    let (waited, ()) = tokio::join!(site.get(&path), async {
        site.queue(json!({"workflow_task_id": "a", "command": ["true"]}))
            .await;
    });
    let waited = waited.json();
    assert_eq!(
        (&waited["events"][0]["task_id"], &waited["events"][0]["state"]),
        (&json!("a"), &json!("TASK_STAGING"))
    );
    let last = site.get("/v0/events?since=last").await.json();
    assert_eq!((&last["events"], &last["next"]), (&json!([]), &waited["next"]));
    // The position is from another store.
    let reset = site.get("/v0/events?since=9007199254740991&wait=20").await.json();
    assert_eq!(
        (&reset["reset"], reset["events"].as_array().unwrap().len()),
        (&json!(true), 1)
    );
    let invalid = site.get("/v0/events?since=soon").await;
    assert_eq!(invalid.status, StatusCode::BAD_REQUEST);
    assert!(invalid.text.contains("'since' is 'soon'"), "{invalid:?}");
}

#[tokio::test]
async fn queue_lists_pending_jobs_with_their_reason() {
    let site = Site::start_with(with_credentials()).await;
    let key = json!({"dag_id": "d", "task_id": "t", "run_id": "r", "try_number": 1});
    let waits = json!({"workflow_task_id": "a", "command": ["true"], "attributes": ["rack:r1", "gpu:true"],
        "airflow_key": key, "executor_config": {"cpus": 2, "mem_limit": "512m"}, "priority": 1});
    let first = json!({"workflow_task_id": "first", "command": ["true"], "priority": 2});
    site.queue(json!({"workflow_task_id": "b", "command": ["true"]}))
        .await;
    site.queue(json!({"workflow_task_id": "c", "command": ["true"]}))
        .await;
    site.queue(waits).await;
    site.queue(first).await;
    let wanted = site.scheduler.wait_until_submitted(4).await;
    assert_eq!(wanted.len(), 4);
    site.scheduler.launch("c").await;
    transom_testkit::eventually("only three jobs are pending", async || {
        let queue = site.get("/v0/queue").await.json();
        if queue["count"] == 3 {
            Ok(())
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    // Sorted in the order in which jobs are matched.
    let queue = site.get("/v0/queue").await.json();
    let ids: Vec<&str> = queue["queue"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["task_id"].as_str().unwrap())
        .collect();
    assert_eq!((ids, &queue["count"]), (vec!["first", "a", "b"], &json!(3)));
    assert_eq!(queue["queue"][1]["priority"], 1);
    // All agents are evaluated, with and without offers.
    let deadline = tokio::time::Instant::now() + transom_testkit::WAIT_TIMEOUT;
    let first = loop {
        let queue = site.get("/v0/queue?task_id=a").await.json();
        if queue["queue"][0]["reason"]["unsatisfied_constraints"] != json!([]) {
            break queue["queue"][0].clone();
        }
        assert!(tokio::time::Instant::now() < deadline, "{queue}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(first["reason"]["code"], "UnfulfilledConstraint");
    assert_eq!(first["reason"]["unsatisfied_constraints"], json!(["gpu:true"]));
    let message = first["reason"]["message"].as_str().unwrap();
    assert!(
        message.contains("no active agent satisfies the constraint `gpu:true` (1 agent in the cluster)"),
        "{message}"
    );
    let one = site.get("/v0/queue?task_id=b").await.json();
    assert_eq!(one["queue"].as_array().unwrap().len(), 1);
    // `/v0/dags` lists pending tasks of DAGs only.
    let dags = site
        .ask_from(
            [127, 0, 0, 1],
            Method::GET,
            "/v0/dags",
            None,
            Some(VALID_AUTHORIZATION),
        )
        .await;
    assert_eq!(dags.header("content-type"), Some("application/json"));
    assert_eq!(
        dags.json(),
        json!([{"dag_id": "d", "task_id": "t", "run_id": "r", "try_number": 1,
                "MesosExecutor": {"cpus": 2, "mem_limit": "512m"}}])
    );
}

/// A request for one job goes through no other, and one with a limit through as many as it lists.
#[tokio::test]
async fn queue_visits_only_the_jobs_that_it_lists() {
    const JOBS: usize = 300;
    let site = Site::start().await;
    for number in 0..JOBS {
        site.queue(json!({"workflow_task_id": format!("job{number}"), "command": ["true"]}))
            .await;
    }
    for (path, listed) in [
        ("/v0/queue?task_id=job7", 1),
        ("/v0/queue?task_id=job7&limit=0", 0),
        ("/v0/queue?task_id=unknown", 0),
        ("/v0/queue?task_id=", 0),
        ("/v0/queue?limit=5", 5),
    ] {
        VISITED.set(0);
        let queue = site.get(path).await.json();
        assert_eq!(queue["count"], JOBS, "{path}");
        assert_eq!(queue["queue"].as_array().map(Vec::len), Some(listed), "{path}");
        let most = if path.contains("task_id") { 0 } else { listed };
        assert!(VISITED.get() <= most, "{path}: {} jobs", VISITED.get());
    }
}

#[tokio::test]
async fn log_returns_the_output_of_a_job() {
    let site = Site::start().await;
    site.queue(json!({"workflow_task_id": "a", "command": ["true"]}))
        .await;
    let missing = site.get("/v0/task/a/log").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    site.scheduler.launch("a").await;
    site.scheduler.update("a", TaskState::Finished, None);
    site.wait_for_state("a", "TASK_FINISHED").await;
    let output = site.get("/v0/task/a/log").await;
    assert_eq!(
        output.text,
        "stdout of a of fw-1 on h1:5051\nstderr of a of fw-1 on h1:5051\n"
    );
    let part = site.get("/v0/task/a/log?stream=stderr&offset=7&length=4").await;
    assert_eq!(
        (part.text.as_str(), part.header("transom-next-offset")),
        ("of a", Some("11"))
    );
    let invalid = site.get("/v0/task/a/log?stream=stdin").await;
    assert_eq!(invalid.status, StatusCode::BAD_REQUEST);
    let site = site.restart().await;
    assert_eq!(site.get("/v0/task/a/log").await.text, output.text);
}

#[tokio::test]
async fn log_of_a_silent_agent_is_an_error_within_a_few_seconds() {
    let site = Site::start().await;
    site.queue(json!({"airflow_task_id": "silent", "command": ["true"]}))
        .await;
    site.scheduler.launch("silent").await;
    site.scheduler.update("silent", TaskState::Running, None);
    site.wait_for_state("silent", "TASK_RUNNING").await;
    for path in ["/v0/task/silent/log", "/v0/task/silent/log?stream=stdout"] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
        assert!(
            answer.text.contains("agent h1:5051 did not answer"),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn log_offsets_and_lengths_are_in_bytes() {
    let site = Site::start().await;
    site.queue(json!({"workflow_task_id": "binary", "command": ["true"]}))
        .await;
    site.scheduler.launch("binary").await;
    site.scheduler.update("binary", TaskState::Running, None);
    site.wait_for_state("binary", "TASK_RUNNING").await;
    // Parts of any length add up to the written bytes, without gaps and repetitions.
    for length in [1, 2, 3, 5, 7, 8, 1000] {
        let (mut received, mut offset) = (Vec::new(), 0);
        while offset < BINARY.len() {
            let path = format!("/v0/task/binary/log?stream=stdout&offset={offset}&length={length}");
            let part = site.get(&path).await;
            let next: usize = part.header("transom-next-offset").unwrap().parse().unwrap();
            assert_eq!(next - offset, part.body.len(), "{length}");
            received.extend_from_slice(&part.body);
            offset = next;
        }
        assert_eq!(received, BINARY, "{length}");
    }
    // At the end the part is empty, and the offset is unchanged.
    let end = BINARY.len();
    let path = format!("/v0/task/binary/log?stream=stdout&offset={end}");
    let beyond_end = site.get(&path).await;
    assert_eq!(
        (beyond_end.body.len(), beyond_end.header("transom-next-offset")),
        (0, Some(end.to_string().as_str()))
    );
    let output = site.get("/v0/task/binary/log?length=4").await;
    assert_eq!(&output.body[..4], &BINARY[end - 4..]);
    // The end of one stream, and where to continue.
    let tail = site
        .get("/v0/task/binary/log?stream=stdout&tail=true&length=4")
        .await;
    assert_eq!(
        (tail.body.as_ref(), tail.header("transom-next-offset")),
        (&BINARY[end - 4..], Some(end.to_string().as_str()))
    );
}

#[tokio::test]
async fn ids_may_contain_special_characters() {
    let site = Site::start().await;
    let id = "airflow.d:1 ü?#%.t";
    site.queue(json!({"workflow_task_id": id, "command": ["true"]}))
        .await;
    let task = site.scheduler.wait_until_submitted(1).await.remove(0);
    site.scheduler.launch(task.as_str()).await;
    site.scheduler.update(task.as_str(), TaskState::Running, None);
    let encoded = "airflow.d%3A1%20%C3%BC%3F%23%25.t";
    let task = site.wait_for_state(encoded, "TASK_RUNNING").await;
    assert_eq!(task["status"]["task_id"]["value"], id);
    let log = site.get(&format!("/v0/task/{encoded}/log")).await;
    assert_eq!(log.status, StatusCode::OK);
}
