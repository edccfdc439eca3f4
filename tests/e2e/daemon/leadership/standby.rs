//! What a standby serves itself, and what it forwards to the leader.

use std::fs;

use serde_json::{Value, json};
use transom_testkit::eventually;

use super::{Daemon, Site};

#[tokio::test(flavor = "multi_thread")]
async fn standby_serves_the_user_interface_itself_and_forwards_its_requests() {
    let built = tempfile::tempdir().expect("a directory");
    fs::write(built.path().join("index.html"), "<script src=main.js></script>").expect("written");
    let site = Site::start_with(&format!("ui_dir = {:?}\n", built.path())).await;
    let standby = &site.second;
    for path in ["/", "/ui", "/ui/"] {
        let answer = standby.http.get(standby.apps(path)).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.url().as_str(), standby.apps("/ui/"), "{path}");
        assert!(!answer.headers().contains_key("x-marathon-via"), "{answer:?}");
        let text = answer.text().await.expect("a page");
        assert_eq!(text, "<script src=main.js></script>");
    }
    let created = standby.post("/app0").await;
    assert!(created.headers().contains_key("x-marathon-via"), "{created:?}");
    standby.task("/app0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_answers_reads_and_forwards_other_requests() {
    let site = Site::start().await;
    let (leader, standby) = (&site.first, &site.second);
    for daemon in [leader, standby] {
        let leader_document = daemon.get("/v2/leader").await.unwrap();
        assert_eq!(leader_document, json!({"leader": leader.address()}));
        let info = daemon.get("/v2/info").await.unwrap();
        assert_eq!(info["elected"], true, "{info}");
        assert_eq!(info["leader"], leader.address());
    }

    // Requests are forwarded, and their effects are immediately visible at the standby that
    // forwarded them.
    for number in 0..10 {
        let app = format!("/app{number}");
        let answer = standby.post(&app).await;
        let headers = answer.headers();
        assert_eq!(headers["x-marathon-via"], standby.address().as_str());
        assert_eq!(
            headers["x-marathon-leader"],
            format!("http://{}", leader.address()).as_str()
        );
        let shown = standby.get(&format!("/v2/apps{app}")).await.unwrap();
        assert_eq!(shown["app"]["id"], app);
    }
    let id = leader.task("/app0").await;
    assert_eq!(standby.task("/app0").await, id);
    let queue = standby.get("/v2/queue").await.unwrap();
    assert!(
        queue["queue"].is_array(),
        "the queue is requested from the leader: {queue}"
    );

    // An error of the leader is returned unchanged, including its body.
    let again = standby.http.post(standby.apps("/v2/apps"));
    let again = again
        .json(&json!({"id": "/app0", "cmd": "true"}))
        .send()
        .await
        .unwrap();
    assert_eq!(again.status().as_u16(), 409);
    let text = again.text().await.unwrap();
    assert!(text.contains("already exists"), "{text}");

    // The event stream of a standby is redirected to the leader.
    let curious = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let redirect = curious
        .get(standby.apps("/v2/events?event_type=status_update_event"))
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    assert_eq!(redirect.status().as_u16(), 302);
    assert_eq!(
        redirect.headers()["location"],
        leader.apps("/v2/events?event_type=status_update_event").as_str()
    );

    let gone = standby
        .http
        .delete(standby.apps("/v2/apps/app0"))
        .send()
        .await
        .unwrap();
    assert_eq!(gone.status().as_u16(), 200);
    eventually("the deleted app to be gone from the standby", || async {
        match standby.get("/v2/apps/app0").await {
            Err(error) if error.starts_with("404") => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_forwards_with_the_credentials_and_the_address_of_its_client() {
    let site = Site::start_with(
        "trusted_networks = []\napi_username = \"user\"\napi_password = \"hunter2\"\n\
         api_read_only_username = \"reader\"\napi_read_only_password = \"hunter3\"\n",
    )
    .await;
    let (leader, standby) = (&site.first, &site.second);
    // An address that differs from the one from which the standby forwards.
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .local_address(std::net::IpAddr::from([127, 0, 0, 2]))
        .build()
        .unwrap();
    let app = json!({"id": "/web", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16});
    for (user, password, method, path, expected) in [
        // The standby forwards this read, because only the leader has the queue.
        ("reader", "hunter3", "GET", "/v2/queue", 200),
        ("reader", "hunter3", "POST", "/v2/apps", 403),
        ("reader", "hunter3", "DELETE", "/v2/leader", 403),
        ("reader", "hunter2", "GET", "/v2/queue", 401),
        ("user", "hunter2", "POST", "/v2/apps", 201),
    ] {
        for daemon in [leader, standby] {
            let request = client.request(method.parse().unwrap(), daemon.apps(path));
            let request = request.basic_auth(user, Some(password)).json(&app);
            let status = request.send().await.unwrap().status().as_u16();
            // The app exists already when the second daemon receives the request.
            let exists = expected == 201 && std::ptr::eq(daemon, standby);
            assert_eq!(
                status,
                if exists { 409 } else { expected },
                "{user} {method} {path}"
            );
        }
    }
    let audited = |daemon: &Daemon| -> Vec<Value> {
        let lines = daemon.process.output();
        let events = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .filter(|event| event["target"] == "transom::audit")
            .collect()
    };
    let events = eventually("both changes in the leader's audit log", || async {
        let events = audited(leader);
        if events.len() == 2 {
            Ok(events)
        } else {
            Err(format!("{events:?}"))
        }
    })
    .await;
    for (event, status) in events.iter().zip([201, 409]) {
        assert_eq!(
            (&event["client"], &event["user"]),
            (&json!("127.0.0.2"), &json!("user")),
            "{event}"
        );
        assert_eq!(
            (&event["path"], &event["status"]),
            (&json!("/v2/apps"), &json!(status)),
            "{event}"
        );
    }
    assert!(events[0]["deployment"].is_string(), "{events:?}");
    assert!(audited(standby).is_empty(), "only the leader audits the changes");
    for daemon in [leader, standby] {
        let output = daemon.process.output();
        assert!(!output.contains("hunter"), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn named_tasks_are_killed_through_a_standby() {
    let site = Site::start().await;
    let standby = &site.second;
    standby.post("/web").await;
    let task = standby.task("/web").await;
    let kill = |query: &str, task: &str| {
        let url = standby.apps(&format!("/v2/tasks/delete{query}"));
        standby.http.post(url).json(&json!({"ids": [task]})).send()
    };
    let killed: Value = kill("", &task).await.unwrap().json().await.unwrap();
    assert_eq!(killed["tasks"][0]["id"], task.as_str(), "{killed}");
    let next = task.replace("._app.1", "._app.2");
    eventually("the next task of the same instance", || async {
        let seen = standby.task("/web").await;
        if seen == next { Ok(()) } else { Err(seen) }
    })
    .await;
    let scaled = kill("?scale=true", &next).await.unwrap();
    assert_eq!(scaled.status().as_u16(), 200);
    assert!(scaled.headers().contains_key("marathon-deployment-id"));
    assert_eq!(standby.get("/v2/apps/web").await.unwrap()["app"]["instances"], 0);
    let rejected = kill("", "nonsense").await.unwrap();
    assert_eq!(rejected.status().as_u16(), 400);
}
