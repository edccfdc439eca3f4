//! Apps and pods as real containers of the embedded cluster, with their networks and checks.

use serde_json::{Value, json};
use transom_testkit::containers::{IMAGE, Runtime};
use transom_testkit::eventually;
use transom_tests::site::Site;

/// The container runtime of this machine; `None`: the test is skipped.
pub(crate) async fn runtime(test: &str) -> Option<Runtime> {
    let dir = tempfile::tempdir().expect("a directory");
    let token = tokio_util::sync::CancellationToken::new();
    let config = transom_minicluster::Config::new(dir.path());
    let cluster = config.start(token.clone()).await.expect("a cluster");
    let found = cluster.container_runtime().await;
    token.cancel();
    cluster.stopped().await;
    Runtime::for_test(test, found)
}

/// Serves its own environment on port 8000 of the container.
const SERVER: &str = "mkdir /www && echo \"$MARK\" > /www/index.html && exec httpd -f -p 8000 -h /www";

/// GET of the page that a container serves on a port of its agent.
async fn page(site: &Site, host: &Value, port: &Value) -> Result<String, String> {
    let url = format!("http://{}:{port}/", host.as_str().expect("a host"));
    let answer = site
        .http
        .get(url)
        .send()
        .await
        .map_err(|error| error.to_string())?;
    answer.text().await.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_of_an_app_runs_in_a_bridge_network_and_is_checked_from_outside_and_inside() {
    let Some(runtime) = runtime("image_of_an_app").await else {
        return;
    };
    let site = Site::start().await;
    let check = json!({"gracePeriodSeconds": 60, "intervalSeconds": 1, "timeoutSeconds": 20, "maxConsecutiveFailures": 0});
    let with = |more: Value| {
        let mut check = check.clone();
        check
            .as_object_mut()
            .expect("a check")
            .extend(more.as_object().expect("more").clone());
        check
    };
    site.post_app(&json!({
        "id": "/web", "cmd": SERVER, "cpus": 0.2, "mem": 64, "instances": 2, "env": {"MARK": "made here"},
        "networks": [{"mode": "container/bridge"}],
        "container": {
            "type": "DOCKER",
            "docker": {"image": IMAGE, "forcePullImage": false},
            "portMappings": [{"containerPort": 8000, "hostPort": 0, "name": "http"}],
        },
        "healthChecks": [
            with(json!({"protocol": "HTTP", "path": "/", "portIndex": 0})),
            with(json!({"protocol": "COMMAND", "command": {"value": "test -e /www/index.html && test ! -e /home"}})),
        ],
    }))
    .await;
    let tasks = site.wait_until_running("/web", 2).await;
    eventually("both instances to be healthy", || async {
        let app = site.get(&site.apps("/v2/apps/web")).await?;
        let deployed = app["app"]["deployments"].as_array().is_some_and(Vec::is_empty);
        if app["app"]["tasksHealthy"] == 2 && deployed {
            Ok(())
        } else {
            Err(app.to_string())
        }
    })
    .await;
    for task in &tasks {
        let found = page(&site, &task["host"], &task["ports"][0]).await;
        assert_eq!(found.as_deref(), Ok("made here\n"), "{task}");
    }
    let work_dir = site.cluster.work_dir().to_owned();
    assert_eq!(runtime.names(&work_dir).len(), 2);
    site.scale("/web", 1).await;
    eventually("one container to be gone", || async {
        let names = runtime.names(&work_dir);
        if names.len() == 1 {
            Ok(())
        } else {
            Err(names.join(", "))
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
    assert_eq!(runtime.names(&work_dir), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_a_pod_share_a_network_and_a_volume() {
    let Some(runtime) = runtime("containers_of_a_pod").await else {
        return;
    };
    let site = Site::start().await;
    let shared = tempfile::tempdir().expect("a directory");
    let image = json!({"kind": "DOCKER", "id": IMAGE, "forcePull": false});
    let resources = json!({"cpus": 0.1, "mem": 32});
    let client = "until wget -q -O /shared/page http://127.0.0.1:8000/; do sleep 1; done; exec sleep 1000000";
    let pod = json!({
        "id": "/pair", "environment": {"MARK": "of the pod"},
        "networks": [{"mode": "container/bridge"}],
        "volumes": [{"name": "shared", "host": shared.path()}],
        "containers": [
            {
                "name": "server", "exec": {"command": {"shell": SERVER}}, "image": image, "resources": resources,
                "endpoints": [{"name": "http", "containerPort": 8000, "hostPort": 0, "protocol": ["tcp"]}],
            },
            {
                "name": "client", "exec": {"command": {"shell": client}}, "image": image, "resources": resources,
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            },
        ],
        "scaling": {"kind": "fixed", "instances": 1},
    });
    let answer = site.http.post(site.apps("/v2/pods")).json(&pod).send().await;
    let answer = answer.expect("an answer");
    let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
    assert_eq!(status.as_u16(), 201, "{text}");
    let status = eventually("the pod to be stable", || async {
        let status = site.get(&site.apps("/v2/pods/pair::status")).await?;
        if status["status"] == "STABLE" {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    })
    .await;
    let file = shared.path().join("page");
    eventually("the client to have the page of the server", || async {
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        if found == "of the pod\n" {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
    let instance = &status["instances"][0];
    let containers = instance["containers"].as_array().expect("containers");
    let server = containers
        .iter()
        .find(|one| one["name"] == "server")
        .expect("the server");
    let port = &server["endpoints"][0]["allocatedHostPort"];
    let found = page(&site, &instance["agentHostname"], port).await;
    assert_eq!(found.as_deref(), Ok("of the pod\n"), "{status}");
    let work_dir = site.cluster.work_dir().to_owned();
    site.cluster.stop_after(site.daemon);
    assert_eq!(runtime.names(&work_dir), [""; 0]);
}
