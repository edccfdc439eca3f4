//! The whole life of an app: it is posted, placed, run, checked, published in events and DNS,
//! scaled, kept over a crash of the daemon, and deleted.

use std::collections::BTreeSet;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::Value;
use transom_testkit::eventually;
use transom_tests::dns;
use transom_tests::events::Events;
use transom_tests::site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn app_is_run_published_probed_resolved_scaled_and_kept() {
    let mut site = Site::start().await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events?ids=true")).await;
    assert_eq!(
        events.next().await.expect("a frame").event,
        "event_stream_attached"
    );

    for example in ["http.json", "tcp.json", "exec.json"] {
        let posted = site.post_example(example).await;
        assert_eq!(
            posted["deployments"].as_array().map(Vec::len),
            Some(1),
            "{posted}"
        );
    }
    check_events(&mut events).await;
    check_probes(&site).await;
    check_dns(&site).await;
    check_scaling(&site).await;
    check_crash_recovery(&mut site).await;
    check_deletion(&site).await;
    site.cluster.stop();
}

/// The event stream reports each of the three apps, from the request to the end of its deployment.
async fn check_events(events: &mut Events) {
    let mut wanted: BTreeSet<(&str, String)> = BTreeSet::new();
    for app in ["/http", "/tcp", "/exec"] {
        for kind in [
            "api_post_event",
            "status_update_event",
            "instance_changed_event",
            "deployment_success",
        ] {
            wanted.insert((kind, app.to_owned()));
        }
    }
    while !wanted.is_empty() {
        let frame = events.next().await.expect("the stream goes on");
        assert_eq!(frame.data["eventType"], frame.event);
        let subjects = match frame.event.as_str() {
            "api_post_event" => vec![frame.data["appDefinition"]["id"].clone()],
            "status_update_event" if frame.data["taskStatus"] == "TASK_RUNNING" => {
                vec![frame.data["appId"].clone()]
            }
            "instance_changed_event" if frame.data["condition"] == "Running" => {
                vec![frame.data["runSpecId"].clone()]
            }
            "deployment_success" => frame.data["plan"]["steps"]
                .as_array()
                .expect("steps")
                .iter()
                .map(|step| step["app"].clone())
                .collect(),
            _ => vec![],
        };
        for subject in subjects {
            wanted.retain(|(kind, app)| *kind != frame.event || subject != app.as_str());
        }
    }
}

/// Each kind of check shows its result in the task.
async fn check_probes(site: &Site) {
    for (app, pointer, expected) in [
        ("/http", "/checkResult/http/statusCode", Value::from(200)),
        ("/tcp", "/checkResult/tcp/succeeded", Value::from(true)),
        ("/exec", "/checkResult/command/exitCode", Value::from(0)),
    ] {
        site.tasks_when(app, &format!("a check result of {app}"), |tasks| {
            tasks.len() == 1 && tasks[0].pointer(pointer) == Some(&expected)
        })
        .await;
    }
}

/// A and SRV queries over UDP and TCP, and the HTTP lookups, return the address and port of the
/// task.
async fn check_dns(site: &Site) {
    let task = site.wait_until_running("/http", 1).await.remove(0);
    let host: std::net::IpAddr = task["host"]
        .as_str()
        .expect("a host")
        .parse()
        .expect("an address");
    let port = u16::try_from(task["ports"][0].as_u64().expect("a port")).expect("a port");

    let a = site
        .wait_until_resolves("http.marathon.mesos.", RecordType::A, |answer| {
            answer.addresses == [host]
        })
        .await;
    let srv = site
        .wait_until_resolves("_http._tcp.marathon.mesos.", RecordType::SRV, |answer| {
            answer.services.iter().any(|(_, number)| *number == port)
        })
        .await;
    let tcp = dns::ask_tcp(site.addresses["dns"], "http.marathon.mesos.", RecordType::A)
        .await
        .expect("an answer");
    assert_eq!(tcp, a);
    let target = srv.services[0].0.clone();
    site.wait_until_resolves(&target, RecordType::A, |answer| answer.addresses == [host])
        .await;

    let lookups = format!("http://{}", site.addresses["discovery"]);
    let hosts = site
        .get(&format!("{lookups}/v1/hosts/http.marathon.mesos"))
        .await
        .expect("hosts");
    assert_eq!(hosts[0]["ip"], host.to_string());
    let services = site
        .get(&format!("{lookups}/v1/services/_http._tcp.marathon.mesos."))
        .await
        .expect("services");
    assert_eq!(services[0]["port"], port.to_string());
    let all = site
        .get(&format!("{lookups}/v1/enumerate"))
        .await
        .expect("an enumeration");
    assert!(all.to_string().contains("exec.marathon.mesos."), "{all}");
    assert_eq!(
        site.get(&format!("{lookups}/v1/version"))
            .await
            .expect("a version")["Service"],
        "Transom"
    );
    assert_eq!(
        site.get(&format!("{lookups}/v1/config")).await.expect("a config")["Domain"],
        "mesos"
    );
}

/// Scales to three instances and back to one; the DNS zone follows.
async fn check_scaling(site: &Site) {
    let first = ids(&site.wait_until_running("/http", 1).await);
    site.scale("/http", 3).await;
    let three = ids(&site.wait_until_running("/http", 3).await);
    assert!(three.is_superset(&first));
    site.wait_until_resolves("_http._tcp.marathon.mesos.", RecordType::SRV, |answer| {
        answer.services.len() == 3
    })
    .await;

    eventually("the deployment to end", || async {
        let running = site.get(&site.apps("/v2/deployments")).await?;
        if running.as_array().is_some_and(Vec::is_empty) {
            Ok(())
        } else {
            Err(running.to_string())
        }
    })
    .await;
    site.scale("/http", 1).await;
    let one = ids(&site.wait_until_running("/http", 1).await);
    assert!(one.is_subset(&three));
    site.wait_until_resolves("_http._tcp.marathon.mesos.", RecordType::SRV, |answer| {
        answer.services.len() == 1
    })
    .await;
}

/// Kills the daemon with SIGKILL. The next one uses the same framework id and takes over the
/// running tasks without launching any a second time.
async fn check_crash_recovery(site: &mut Site) {
    let apps = ["/http", "/tcp", "/exec"];
    let mut before = BTreeSet::new();
    for app in apps {
        before.extend(ids(&site.wait_until_running(app, 1).await));
    }
    let framework = site.get(&site.apps("/v2/info")).await.expect("info")["frameworkId"].clone();
    site.kill_daemon();
    site.start_daemon().await;

    assert_eq!(
        site.get(&site.apps("/v2/info")).await.expect("info")["frameworkId"],
        framework
    );
    let mut after = BTreeSet::new();
    for app in apps {
        after.extend(ids(&site.wait_until_running(app, 1).await));
    }
    assert_eq!(after, before);
    // Probes continue, and so does the scheduler: a new instance is launched once, and no old one
    // is launched again.
    check_probes(site).await;
    site.scale("/tcp", 2).await;
    site.wait_until_running("/tcp", 2).await;
    let launches = site.cluster.launches();
    assert!(launches.values().all(|count| *count == 1), "{launches:?}");
    for task in &before {
        assert!(
            launches.contains_key(task),
            "{task} is not in the journals: {launches:?}"
        );
    }
}

/// A deleted app is removed from the API and from DNS.
async fn check_deletion(site: &Site) {
    for app in ["/http", "/tcp", "/exec"] {
        let url = site.apps(&format!("/v2/apps{app}"));
        let answer = site.http.delete(&url).send().await.expect("an answer");
        assert_eq!(
            answer.status().as_u16(),
            200,
            "{}",
            answer.text().await.unwrap_or_default()
        );
        eventually(&format!("{app} to be gone"), || async {
            let answer = site
                .http
                .get(&url)
                .send()
                .await
                .map_err(|error| error.to_string())?;
            if answer.status().as_u16() == 404 {
                Ok(())
            } else {
                Err(answer.status().to_string())
            }
        })
        .await;
    }
    site.wait_until_resolves("http.marathon.mesos.", RecordType::A, |answer| {
        answer.code == ResponseCode::NXDomain
    })
    .await;
    site.wait_until_resolves("_http._tcp.marathon.mesos.", RecordType::SRV, |answer| {
        answer.services.is_empty()
    })
    .await;
}

fn ids(tasks: &[Value]) -> BTreeSet<String> {
    tasks
        .iter()
        .map(|task| task["id"].as_str().expect("an id").to_owned())
        .collect()
}
