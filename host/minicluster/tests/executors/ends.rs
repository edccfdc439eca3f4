//! The ways in which executors end, and the faults that they survive.

use super::{
    encode, executor_pids, executor_task, framework_with_executor, script_executor, send_message,
    silent_executor, wait_for_exit,
};
use crate::support::{
    Cluster, EVENT_TIMEOUT, Framework, framework_info, immediate_restart, is_group_alive, journal,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Subscribes the framework again under the same id.
async fn resubscribe(cluster: &Cluster, framework: &Framework) -> Framework {
    let mut info = framework_info();
    info["id"] = json!({"value": framework.id});
    Framework::subscribe(cluster.master(), &info).await
}

/// Waits until the executor answers a message, which shows that framework and executor are subscribed.
async fn wait_for_executor(framework: &mut Framework, agent: &Value) {
    // A message to an executor that is not subscribed is lost.
    for attempt in 0..100 {
        let text = format!("attempt {attempt}");
        send_message(framework, agent, &text).await;
        let found = tokio::time::timeout(Duration::from_millis(200), async {
            framework.wait_until(|event| event["type"] == "MESSAGE").await
        });
        if found.await.is_ok() {
            return;
        }
    }
    panic!("the executor does not answer");
}

#[tokio::test]
async fn executor_that_exits_fails_its_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    send_message(&framework, &running["agent_id"], "crash").await;
    let failure = framework.wait_until(|event| event["type"] == "FAILURE").await;
    let expected = json!({"agent_id": running["agent_id"], "executor_id": {"value": "e"}, "status": 3 << 8});
    assert_eq!(failure["failure"], expected);
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_TERMINATED");
    assert_eq!(failed["message"], "Executor terminated");
    assert_eq!(failed["source"], "SOURCE_AGENT");
    assert_eq!(failed["executor_id"]["value"], "e");
    assert_eq!(failed.get("container_status"), None);
    let page = cluster
        .wait_until("/state", |page| {
            page["slaves"][0]["used_resources"]["cpus"] == 0.0
        })
        .await;
    assert_eq!(page["frameworks"][0]["executors"], json!([]));
    let lines = journal(&cluster.dir);
    let last = lines.last().unwrap();
    assert_eq!((&last["event"], &last["executor"]), (&json!("exit"), &json!("e")));
    assert_eq!(last["how"], "Command exited with status 3");

    // The same id can be used again.
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([executor_task(&script_executor("e", ""), "next", &offer)]),
        )
        .await;
    framework.wait_for_state("next", "TASK_RUNNING").await;
    assert_eq!(executor_pids(&cluster).len(), 2);
    cluster.stop().await;
}

#[tokio::test]
async fn task_is_dropped_when_the_end_of_its_executors_earlier_run_is_not_acknowledged() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    framework.acknowledge = crate::support::Acknowledge::None;
    send_message(&framework, &running["agent_id"], "crash").await;
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([executor_task(&script_executor("e", ""), "next", &offer)]),
        )
        .await;
    let dropped = framework.wait_for_state("next", "TASK_DROPPED").await;
    assert_eq!(dropped["reason"], "REASON_EXECUTOR_TERMINATED");
    assert_eq!(
        dropped["message"],
        "Master wants to launch executor, but one already exists"
    );
    framework
        .acknowledge(&json!({"update": {"status": failed}}))
        .await;
    framework
        .acknowledge(&json!({"update": {"status": dropped}}))
        .await;
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([executor_task(&script_executor("e", ""), "last", &offer)]),
        )
        .await;
    framework.wait_for_state("last", "TASK_RUNNING").await;
    cluster.stop().await;
}

#[tokio::test]
async fn executor_that_ignores_shutdown_is_killed_after_its_grace_period() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut executor = script_executor("e", "--stubborn");
    executor["shutdown_grace_period"] = json!({"nanoseconds": 200_000_000});
    let (mut framework, running) = framework_with_executor(&cluster, &executor).await;
    let part = json!({"agent_id": running["agent_id"], "executor_id": {"value": "e"}});
    framework
        .expect_accepted(json!({"type": "SHUTDOWN", "shutdown": part}))
        .await;
    let failure = framework.wait_until(|event| event["type"] == "FAILURE").await;
    assert_eq!(failure["failure"]["status"], 9);
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_TERMINATED");
    wait_for_exit(executor_pids(&cluster)[0]).await;
    cluster.stop().await;
}

#[tokio::test]
async fn executor_that_does_not_subscribe_in_time_is_killed() {
    let cluster = Cluster::start(1, |config| {
        config.executor_registration_timeout = Duration::from_millis(300);
    })
    .await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([executor_task(&silent_executor("e"), "t", &offer)]))
        .await;
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_REGISTRATION_TIMEOUT");
    assert_eq!(failed["message"], "Executor did not register within 300ms");
    wait_for_exit(executor_pids(&cluster)[0]).await;
    cluster.stop().await;
}

#[tokio::test]
async fn executors_that_cannot_be_launched_fail_their_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut unfetched = silent_executor("unfetched");
    unfetched["command"]["uris"] = json!([{"value": "/none/such"}]);
    let mut missing = silent_executor("missing");
    missing["command"] = json!({"shell": false, "value": "/none/such"});
    let mut image = silent_executor("image");
    image["container"] =
        json!({"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": "alpine"}}}});
    let cases = [
        (
            unfetched,
            "REASON_CONTAINER_LAUNCH_FAILED",
            "Failed to launch container: Failed to fetch",
            -1,
        ),
        (
            missing,
            "REASON_EXECUTOR_TERMINATED",
            "Executor terminated",
            1 << 8,
        ),
        (
            image,
            "REASON_CONTAINER_LAUNCH_FAILED",
            "Failed to launch container: ",
            -1,
        ),
    ];
    let tasks: Vec<Value> = cases
        .iter()
        .map(|(executor, ..)| {
            executor_task(
                executor,
                executor["executor_id"]["value"].as_str().unwrap(),
                &offer,
            )
        })
        .collect();
    framework.launch(&offer, json!(tasks)).await;
    let mut events = Vec::new();
    while events.len() < 6 {
        let relevant = |event: &Value| ["UPDATE", "FAILURE"].contains(&event["type"].as_str().unwrap());
        events.push(framework.wait_until(relevant).await);
    }
    for (executor, reason, message, status) in cases {
        let id = &executor["executor_id"]["value"];
        let update = events
            .iter()
            .map(|event| &event["update"]["status"])
            .find(|status| status["task_id"]["value"] == *id)
            .unwrap();
        assert_eq!(
            (&update["state"], &update["reason"]),
            (&json!("TASK_FAILED"), &json!(reason))
        );
        assert!(
            update["message"].as_str().unwrap().starts_with(message),
            "{update}"
        );
        let failure = events
            .iter()
            .map(|event| &event["failure"])
            .find(|failure| failure["executor_id"]["value"] == *id)
            .unwrap();
        assert_eq!(failure["status"], status, "{id}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn executors_and_their_tasks_survive_a_restart_of_the_master() {
    let cluster = Cluster::start(1, |config| config.reregister = Duration::from_millis(300)).await;
    let (framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    cluster.fault(immediate_restart()).await;
    let mut framework = resubscribe(&cluster, &framework).await;
    let page = cluster
        .wait_until("/state", |page| {
            page["frameworks"][0]["tasks"][0]["state"] == "TASK_RUNNING"
        })
        .await;
    assert_eq!(page["frameworks"][0]["executors"][0]["executor_id"], "e");
    assert_eq!(page["slaves"][0]["used_resources"]["cpus"], 0.2);
    wait_for_executor(&mut framework, &running["agent_id"]).await;
    framework.kill("t").await;
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn executors_subscribe_again_when_their_agent_returns() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    let pid = executor_pids(&cluster)[0];
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "S0", "keep_tasks": true}))
        .await;
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    wait_for_executor(&mut framework, &running["agent_id"]).await;
    assert!(is_group_alive(pid));
    framework.kill("t").await;
    let killed = framework.wait_for_state("t", "TASK_KILLED").await;
    assert_eq!(killed["container_status"]["executor_pid"], pid);
    cluster.stop().await;
}

#[tokio::test]
async fn executor_that_does_not_subscribe_again_is_killed() {
    let cluster = Cluster::start(1, |config| {
        config.executor_reregistration_timeout = Duration::from_millis(200);
    })
    .await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([executor_task(&silent_executor("e"), "t", &offer)]))
        .await;
    transom_testkit::wait_for("the executor to start", async || {
        !executor_pids(&cluster).is_empty()
    })
    .await;
    for fault in ["kill-agent", "start-agent"] {
        let mut fault = json!({"fault": fault, "agent": "S0"});
        if fault["fault"] == "kill-agent" {
            fault["keep_tasks"] = json!(true);
        }
        cluster.fault(fault).await;
    }
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_REREGISTRATION_TIMEOUT");
    assert_eq!(failed["message"], "Executor did not reregister within 200ms");
    cluster.stop().await;
}

#[tokio::test]
async fn killed_agent_ends_its_executors_and_reports_their_tasks_when_it_returns() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, _) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    let pid = executor_pids(&cluster)[0];
    cluster.fault(json!({"fault": "kill-agent", "agent": "S0"})).await;
    wait_for_exit(pid).await;
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_TERMINATED");
    cluster.stop().await;
}

#[tokio::test]
async fn executors_of_frameworks_without_checkpoint_end_with_their_agent() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut info = framework_info();
    info["checkpoint"] = json!(false);
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([executor_task(&script_executor("e", ""), "t", &offer)]),
        )
        .await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    let pid = executor_pids(&cluster)[0];
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "S0", "keep_tasks": true}))
        .await;
    framework.wait_for_state("t", "TASK_LOST").await;
    wait_for_exit(pid).await;
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    let page = cluster
        .wait_until("/state", |page| {
            page["slaves"][0]["used_resources"]["cpus"] == 0.0
        })
        .await;
    assert_eq!(page["frameworks"][0]["executors"], json!([]));
    cluster.stop().await;
}

#[tokio::test]
async fn removed_framework_shuts_down_its_executors_before_their_resources_are_free() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut executor = script_executor("e", "--stubborn");
    executor["shutdown_grace_period"] = json!({"nanoseconds": 500_000_000});
    let (framework, _) = framework_with_executor(&cluster, &executor).await;
    let pid = executor_pids(&cluster)[0];
    framework.expect_accepted(json!({"type": "TEARDOWN"})).await;
    assert!(is_group_alive(pid));
    let mut next = Framework::subscribe(cluster.master(), &framework_info()).await;
    let cpus = |offer: &Value| {
        let mut resources = offer["resources"].as_array().unwrap().iter();
        let cpus = resources.find(|resource| resource["name"] == "cpus");
        cpus.unwrap()["scalar"]["value"].clone()
    };
    assert_eq!(cpus(&next.offer().await), 1.8);
    wait_for_exit(pid).await;
    assert_eq!(cpus(&next.offer().await), 0.2);
    cluster.stop().await;
}

#[tokio::test]
async fn stopping_the_cluster_leaves_no_executor_behind() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (_framework, _) = framework_with_executor(&cluster, &script_executor("e", "--stubborn")).await;
    let pid = executor_pids(&cluster)[0];
    assert!(is_group_alive(pid));
    let dir = tokio::time::timeout(EVENT_TIMEOUT, cluster.stop_keeping_dir())
        .await
        .unwrap();
    assert!(!is_group_alive(pid), "process group {pid} is still running");
    assert_eq!(journal(&dir).last().unwrap()["event"], "exit");
}

#[tokio::test]
async fn orders_for_a_paused_agents_executor_wait_for_its_return() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    cluster
        .fault(json!({"fault": "pause-agent", "agent": "S0"}))
        .await;
    send_message(&framework, &running["agent_id"], "one").await;
    framework.kill("t").await;
    cluster
        .fault(json!({"fault": "resume-agent", "agent": "S0"}))
        .await;
    let event = framework
        .wait_until(|event| ["MESSAGE", "UPDATE"].contains(&event["type"].as_str().unwrap()))
        .await;
    assert_eq!(event["message"]["data"], encode("one"));
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn executors_end_when_their_agent_unregisters() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, _) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    let pid = executor_pids(&cluster)[0];
    cluster
        .fault(json!({"fault": "unregister-agent", "agent": "S0"}))
        .await;
    framework.wait_for_state("t", "TASK_LOST").await;
    wait_for_exit(pid).await;
    cluster.stop().await;
}

#[tokio::test]
async fn executors_whose_launch_never_reaches_the_agent_leave_no_resources_in_use() {
    for restart in [true, false] {
        let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(300)).await;
        let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
        let offer = framework.offer().await;
        cluster
            .fault(json!({"fault": "pause-agent", "agent": "S0"}))
            .await;
        framework
            .launch(
                &offer,
                json!([executor_task(&script_executor("e", ""), "t", &offer)]),
            )
            .await;
        if restart {
            cluster.fault(immediate_restart()).await;
            framework = resubscribe(&cluster, &framework).await;
        } else {
            framework.wait_for_state("t", "TASK_UNREACHABLE").await;
        }
        cluster
            .fault(json!({"fault": "resume-agent", "agent": "S0"}))
            .await;
        if !restart {
            framework.wait_for_state("t", "TASK_DROPPED").await;
        }
        let page = cluster
            .wait_until("/state", |page| {
                let used = &page["slaves"][0]["used_resources"]["cpus"];
                let offered = &page["slaves"][0]["offered_resources"]["cpus"];
                *used == 0.0 && *offered == 2.0
            })
            .await;
        assert_eq!(page["frameworks"][0]["executors"], json!([]));
        assert_eq!(executor_pids(&cluster), Vec::<u64>::new());
        cluster.stop().await;
    }
}

#[tokio::test]
async fn end_of_a_paused_agents_executor_is_reported_when_the_agent_returns() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, _) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    let pid = executor_pids(&cluster)[0];
    cluster
        .fault(json!({"fault": "pause-agent", "agent": "S0"}))
        .await;
    let kill = std::process::Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
    transom_testkit::wait_for("the agent to see the end", async || {
        journal(&cluster.dir).last().unwrap()["event"] == "exit"
    })
    .await;
    cluster
        .fault(json!({"fault": "resume-agent", "agent": "S0"}))
        .await;
    let mut events = std::collections::BTreeMap::new();
    while events.len() < 2 {
        let event = framework
            .wait_until(|event| ["FAILURE", "UPDATE"].contains(&event["type"].as_str().unwrap()))
            .await;
        events.insert(event["type"].as_str().unwrap().to_owned(), event);
    }
    assert_eq!(events["FAILURE"]["failure"]["status"], 9);
    let status = &events["UPDATE"]["update"]["status"];
    assert_eq!(status["reason"], "REASON_EXECUTOR_TERMINATED");
    cluster.stop().await;
}
