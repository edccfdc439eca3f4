//! The life of jobs, over a scripted scheduler.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use transom_cluster::v1::TaskState;

use crate::Settings;
use crate::testing::Site;

fn job(id: &str) -> Value {
    json!({"airflow_task_id": id, "command": ["true"]})
}

#[tokio::test]
async fn job_is_stored_launched_and_reported_until_its_end() {
    let site = Site::start().await;
    site.queue(job("a")).await;
    assert_eq!(
        site.get("/v0/task/a").await.text,
        r#"{"status": {"state": "TASK_STAGING", "task_id": {"value": "a"}}}"#
    );
    let info = site.scheduler.launch("a").await;
    assert_eq!(info.name, "a");
    site.scheduler.update("a", TaskState::Starting, None);
    site.wait_for_state("a", "TASK_STARTING").await;
    site.scheduler.update("a", TaskState::Running, None);
    site.wait_for_state("a", "TASK_RUNNING").await;
    site.scheduler.update("a", TaskState::Killing, None);
    site.scheduler
        .update("a", TaskState::Failed, Some("Command exited with status 3"));
    let task = site.wait_for_state("a", "TASK_FAILED").await;
    assert_eq!(task["status"]["message"], "Command exited with status 3");
    assert_eq!(task["status"]["container_status"]["container_id"]["value"], "c1");
    // The end is stored before the scheduler's task record is purged.
    site.scheduler.wait_until_purged("a").await;
    let site = site.restart().await;
    assert_eq!(site.wait_for_state("a", "TASK_FAILED").await, task);
}

#[tokio::test]
async fn restart_loses_nothing_and_launches_nothing_twice() {
    let site = Site::start().await;
    for id in ["waits", "runs", "ends"] {
        site.queue(job(id)).await;
    }
    site.scheduler.wait_until_submitted(3).await;
    site.scheduler.launch("runs").await;
    site.scheduler.launch("ends").await;
    site.scheduler.update("runs", TaskState::Running, None);
    site.wait_for_state("runs", "TASK_RUNNING").await;
    let next = site.get("/v0/events?wait=0").await.json()["next"].clone();

    let site = site.restart().await;
    site.wait_for_state("runs", "TASK_RUNNING").await;
    assert_eq!(site.scheduler.wait_until_submitted(1).await, ["waits".into()]);
    // The position in the feed stays valid, and active jobs are listed again.
    let events = site.get(&format!("/v0/events?since={next}&wait=0")).await.json();
    assert_eq!(
        (events["events"].as_array().unwrap().len(), &events["reset"]),
        (3, &json!(false))
    );
    assert!(events["next"].as_u64() > next.as_u64());
    site.scheduler.update("runs", TaskState::Finished, None);
    site.scheduler.update("ends", TaskState::Finished, None);
    site.wait_for_state("runs", "TASK_FINISHED").await;
    site.wait_for_state("ends", "TASK_FINISHED").await;
    site.scheduler.launch("waits").await;
    assert_eq!(site.scheduler.launches(), 3);
}

#[tokio::test]
async fn end_during_downtime_is_reported_after_a_restart() {
    let site = Site::start().await;
    site.queue(job("a")).await;
    site.scheduler.launch("a").await;
    site.wait_for_state("a", "TASK_STAGING").await;
    let scheduler = site.scheduler.clone();
    // The core is stopped, so only the scheduler's task record contains the end.
    let site = {
        let restarting = site.restart();
        scheduler.update("a", TaskState::Finished, None);
        restarting.await
    };
    site.wait_for_state("a", "TASK_FINISHED").await;
    site.scheduler.wait_until_purged("a").await;
}

#[tokio::test]
async fn queueing_an_id_again_creates_a_new_run() {
    let site = Site::start().await;
    site.queue(job("a")).await;
    site.scheduler.launch("a").await;
    site.scheduler.update("a", TaskState::Running, None);
    site.wait_for_state("a", "TASK_RUNNING").await;
    site.queue(job("a")).await;
    // The look-up shows the newest run, even when the older one ends.
    site.wait_for_state("a", "TASK_STAGING").await;
    let second = site.scheduler.wait_until_submitted(1).await.remove(0);
    assert!(second.as_str().starts_with("a."), "{second}");
    site.scheduler.update("a", TaskState::Finished, None);
    site.scheduler.wait_until_purged("a").await;
    site.wait_for_state("a", "TASK_STAGING").await;
    site.scheduler.launch(second.as_str()).await;
    site.scheduler.update(second.as_str(), TaskState::Failed, None);
    let task = site.wait_for_state("a", "TASK_FAILED").await;
    assert_eq!(task["status"]["task_id"]["value"], "a");
    // The same is true after a restart.
    site.scheduler.wait_until_purged(second.as_str()).await;
    let site = site.restart().await;
    site.wait_for_state("a", "TASK_FAILED").await;
    // A `unique` job is rejected only while a job with its id is active.
    let unique = json!({"airflow_task_id": "a", "command": ["true"], "unique": true});
    site.queue(unique.clone()).await;
    let answer = site.ask(Method::POST, "/v0/queue_command", Some(unique)).await;
    assert_eq!(answer.status, StatusCode::CONFLICT, "{answer:?}");
}

#[tokio::test]
async fn repeated_request_key_queues_nothing_new() {
    let site = Site::start().await;
    let keyed =
        |key: &str| json!({"airflow_task_id": "a", "command": ["true"], "unique": true, "request_key": key});
    // Two concurrent requests, as from a client that retries after a timeout.
    tokio::join!(site.queue(keyed("first")), site.queue(keyed("first")));
    let task = site.scheduler.wait_until_submitted(1).await.remove(0);
    assert_eq!(site.get("/v0/task/a").await.json()["request_key"], "first");
    site.scheduler.launch(task.as_str()).await;
    site.scheduler.update(task.as_str(), TaskState::Running, None);
    site.wait_for_state("a", "TASK_RUNNING").await;
    site.queue(keyed("first")).await;
    // Another request queued the active run.
    let answer = site
        .ask(Method::POST, "/v0/queue_command", Some(keyed("second")))
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT, "{answer:?}");
    site.scheduler.update(task.as_str(), TaskState::Finished, None);
    site.wait_for_state("a", "TASK_FINISHED").await;
    // The run has ended, but the same key still queues nothing, even after a restart.
    site.queue(keyed("first")).await;
    site.scheduler.wait_until_purged(task.as_str()).await;
    let site = site.restart().await;
    site.queue(keyed("first")).await;
    site.wait_for_state("a", "TASK_FINISHED").await;
    assert_eq!(site.scheduler.launches(), 1);
    // The next try has another key and creates a new run.
    site.queue(keyed("second")).await;
    site.wait_for_state("a", "TASK_STAGING").await;
    assert_eq!(site.get("/v0/task/a").await.json()["request_key"], "second");
    site.scheduler.wait_until_submitted(1).await;
}

#[tokio::test]
async fn pending_job_is_killed_immediately_and_running_job_by_the_master() {
    let site = Site::start().await;
    site.queue(job("waits")).await;
    site.queue(job("runs")).await;
    site.scheduler.wait_until_submitted(2).await;
    let answer = site.ask(Method::DELETE, "/v0/task/waits", None).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let task = site.wait_for_state("waits", "TASK_KILLED").await;
    assert_eq!(task["status"]["message"], "killed before it was launched");

    site.scheduler.launch("runs").await;
    site.scheduler.update("runs", TaskState::Running, None);
    site.wait_for_state("runs", "TASK_RUNNING").await;
    let answer = site.ask(Method::DELETE, "/v0/task/runs", None).await.json();
    assert_eq!(answer["task_id"], "runs");
    site.scheduler.wait_until_killed("runs").await;
    site.scheduler.update("runs", TaskState::Killed, None);
    site.wait_for_state("runs", "TASK_KILLED").await;
    // Killing an ended job changes nothing.
    let answer = site.ask(Method::DELETE, "/v0/task/runs", None).await.json();
    assert_eq!(answer, json!({"task_id": "runs", "state": "TASK_KILLED"}));
    let answer = site.ask(Method::DELETE, "/v0/task/nobody", None).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(site.scheduler.launches(), 1);
}

#[tokio::test]
async fn kill_continues_after_a_restart() {
    let site = Site::start().await;
    for id in ["waits", "runs"] {
        site.queue(job(id)).await;
    }
    site.scheduler.wait_until_submitted(2).await;
    site.scheduler.launch("runs").await;
    site.scheduler.update("runs", TaskState::Running, None);
    site.wait_for_state("runs", "TASK_RUNNING").await;
    for id in ["waits", "runs"] {
        site.ask(Method::DELETE, &format!("/v0/task/{id}"), None).await;
    }
    let site = site.restart().await;
    site.wait_for_state("waits", "TASK_KILLED").await;
    site.scheduler.wait_until_killed("runs").await;
}

#[tokio::test]
async fn missing_states_are_reported_as_lost() {
    for state in [
        TaskState::Gone,
        TaskState::Dropped,
        TaskState::GoneByOperator,
        TaskState::Lost,
    ] {
        let site = Site::start().await;
        site.queue(job("a")).await;
        site.scheduler.launch("a").await;
        site.scheduler.update("a", state, None);
        site.wait_for_state("a", "TASK_LOST").await;
    }
}

#[tokio::test]
async fn unreachable_job_ends_after_the_grace_period_and_its_task_is_killed() {
    let config = Settings {
        unreachable_grace_seconds: 0,
        ..Settings::default()
    };
    let site = Site::start_with(config).await;
    site.queue(job("a")).await;
    site.scheduler.launch("a").await;
    site.scheduler.update("a", TaskState::Running, None);
    site.wait_for_state("a", "TASK_RUNNING").await;
    site.scheduler.update("a", TaskState::Unreachable, None);
    site.wait_for_state("a", "TASK_UNREACHABLE").await;
    site.scheduler.wait_until_killed("a").await;
    // The task returns and is killed; the job's state does not change.
    site.scheduler.update("a", TaskState::Running, None);
    site.scheduler.update("a", TaskState::Killed, None);
    site.scheduler.wait_until_purged("a").await;
    site.wait_for_state("a", "TASK_UNREACHABLE").await;
    let site = site.restart().await;
    site.wait_for_state("a", "TASK_UNREACHABLE").await;
}

#[tokio::test]
async fn job_fails_when_pending_longer_than_max_wait() {
    let site = Site::start().await;
    let body = json!({"airflow_task_id": "a", "command": ["true"], "max_wait": 0.1});
    site.queue(body).await;
    let task = site.wait_for_state("a", "TASK_FAILED").await;
    let message = task["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("not launched within 0.1 s (max_wait): "),
        "{message}"
    );
    // Programs can tell this end from others, and its pending reason is told.
    assert_eq!(task["status"]["reason"], "MaxWait");
    assert!(
        message.contains("no offered agent satisfies the constraint"),
        "{message}"
    );
    let site = site.restart().await;
    let events = site.get("/v0/events?since=0&wait=0").await.json();
    assert_eq!(
        (&events["events"][0]["reason"], &events["events"][0]["message"]),
        (&json!("MaxWait"), &json!(message))
    );
}

#[tokio::test]
async fn failure_names_the_limit_that_the_task_exceeded() {
    let site = Site::start().await;
    let body = json!({"airflow_task_id": "a", "command": ["true"], "mem_limit": "1g", "max_runtime": 60});
    for (reason, said) in [
        (
            "REASON_CONTAINER_LIMITATION_MEMORY",
            "said; the job's limit: 1024 MB of memory (mem_limit)",
        ),
        (
            "REASON_CONTAINER_LIMITATION_DISK",
            "said; the job's limit: 1000 MB of disk (disk)",
        ),
        (
            "REASON_MAX_COMPLETION_TIME_REACHED",
            "said; the job's limit: 60 s (max_runtime)",
        ),
        ("REASON_COMMAND_EXECUTOR_FAILED", "said"),
    ] {
        let mut body = body.clone();
        body["airflow_task_id"] = json!(reason);
        site.queue(body).await;
        site.scheduler.launch(reason).await;
        site.scheduler.fail(reason, "said", reason);
        let task = site.wait_for_state(reason, "TASK_FAILED").await;
        assert_eq!(
            (&task["status"]["message"], &task["status"]["reason"]),
            (&json!(said), &json!(reason))
        );
    }
    // A Docker container that was killed by the kernel, as the agent reports it.
    let (job, killed) = ("killed", "Container exited with status 137");
    let mut body = body.clone();
    body["airflow_task_id"] = json!(job);
    site.queue(body).await;
    site.scheduler.launch(job).await;
    site.scheduler.fail(job, killed, "REASON_COMMAND_EXECUTOR_FAILED");
    let task = site.wait_for_state(job, "TASK_FAILED").await;
    let said = format!(
        "{killed}: SIGKILL, which a container gets that needs more than its 1024 MB of memory (mem_limit)"
    );
    assert_eq!(task["status"]["message"], json!(said));
}

#[tokio::test]
async fn impossible_amounts_are_told_with_the_largest_agent() {
    let site = Site::start().await;
    site.queue(json!({"airflow_task_id": "a", "command": ["true"], "cpus": 64}))
        .await;
    let told = async {
        loop {
            let queue = site.get("/v0/queue?task_id=a").await.json();
            let reason = queue["queue"][0]["reason"].clone();
            if reason["unsatisfied_resources"] == json!(["cpus"]) {
                break reason;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reason = tokio::time::timeout(transom_testkit::WAIT_TIMEOUT, told)
        .await
        .unwrap();
    let message = reason["message"].as_str().unwrap();
    let said = "the job asks for 64 CPUs, but the largest agent, `h1`, has 4 (1 agent in the cluster)";
    assert!(message.starts_with(said), "{message}");
    assert_eq!(reason["code"], "InsufficientCpus");
}

#[tokio::test]
async fn completed_jobs_are_deleted_after_the_retention() {
    let config = Settings {
        completed_retention_seconds: 0,
        ..Settings::default()
    };
    let site = Site::start_with(config).await;
    site.queue(job("a")).await;
    site.scheduler.launch("a").await;
    site.scheduler.update("a", TaskState::Finished, None);
    site.scheduler.wait_until_purged("a").await;
    let deleted = async {
        while site.get("/v0/task/a").await.text != "null" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(transom_testkit::WAIT_TIMEOUT, deleted)
        .await
        .unwrap();
    assert!(site.store.scan("Airflow/jobs/").await.unwrap().is_empty());
    // The id can be used again.
    site.queue(job("a")).await;
    site.scheduler.launch("a").await;
}

#[tokio::test]
async fn queue_rejects_jobs_beyond_max_jobs() {
    let config = Settings {
        max_jobs: 1,
        ..Settings::default()
    };
    let site = Site::start_with(config).await;
    site.queue(job("a")).await;
    let answer = site.ask(Method::POST, "/v0/queue_command", Some(job("b"))).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("5"));
}

/// A job with this much text in its `executor_config`.
fn large_job(id: &str, bytes: usize) -> Value {
    json!({"airflow_task_id": id, "command": ["true"], "executor_config": {"text": "x".repeat(bytes)}})
}

#[tokio::test]
async fn queue_rejects_jobs_beyond_max_jobs_bytes_until_others_end() {
    let config = Settings {
        max_jobs_bytes: 150_000,
        ..Settings::default()
    };
    let site = Site::start_with(config).await;
    for id in ["a", "b"] {
        site.queue(large_job(id, 60_000)).await;
    }
    let post = |body| site.ask(Method::POST, "/v0/queue_command", Some(body));
    let answer = post(large_job("c", 60_000)).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("5"));
    let message = answer.json()["message"].to_string();
    assert!(
        message.contains("the maximum is 150000 (`max_jobs_bytes`)"),
        "{message}"
    );
    site.queue(job("small")).await;
    site.scheduler.wait_until_submitted(3).await;
    site.scheduler.launch("a").await;
    site.scheduler.update("a", TaskState::Finished, None);
    site.wait_for_state("a", "TASK_FINISHED").await;
    site.queue(large_job("c", 60_000)).await;
}

#[tokio::test]
async fn stored_jobs_above_max_jobs_bytes_continue_and_only_new_ones_are_rejected() {
    let mut site = Site::start().await;
    for id in ["a", "b"] {
        site.queue(large_job(id, 60_000)).await;
    }
    site.set_config(Settings {
        max_jobs_bytes: 70_000,
        ..Settings::default()
    });
    let site = site.restart().await;
    for id in ["a", "b"] {
        site.wait_for_state(id, "TASK_STAGING").await;
    }
    let answer = site.ask(Method::POST, "/v0/queue_command", Some(job("c"))).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    for id in ["a", "b"] {
        site.scheduler.launch(id).await;
        site.scheduler.update(id, TaskState::Finished, None);
        site.wait_for_state(id, "TASK_FINISHED").await;
    }
    site.queue(job("c")).await;
}

#[tokio::test]
async fn oversized_fields_and_jobs_are_rejected_with_their_limits() {
    let site = Site::start().await;
    let long = "x".repeat(300_000);
    for (body, path, limit) in [
        (large_job("a", 65_536), "/executor_config", "65536"),
        (
            json!({"command": ["true"], "attributes": [format!("a:{}", &long[..20_000])]}),
            "/attributes",
            "16384",
        ),
        (json!({"command": ["true", long]}), "/", "262144"),
        (
            json!({"command": ["true"], "environment": {"A": long}}),
            "/",
            "262144",
        ),
        (json!({"command": vec![""; 10_000]}), "/", "262144"),
    ] {
        let answer = site.ask(Method::POST, "/v0/queue_command", Some(body)).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path}");
        let detail = &answer.json()["details"][0];
        assert_eq!(detail["path"], path, "{detail}");
        assert!(detail.to_string().contains(limit), "{detail}");
    }
}

#[tokio::test]
async fn job_that_exceeds_max_wait_is_shown_as_failed_after_its_end_is_stored() {
    let (site, store) = Site::start_with_held_store(Settings::default()).await;
    let body = json!({"airflow_task_id": "a", "command": ["true"], "max_wait": 0.1});
    site.queue(body).await;
    store.hold_after(0);
    store.wait_until_held().await;
    let task = site.get("/v0/task/a").await.json();
    assert_eq!(task["status"]["state"], "TASK_STAGING");
    let since = site.get("/v0/events?since=last").await.json()["next"].clone();
    store.release();
    site.wait_for_state("a", "TASK_FAILED").await;
    let events = site.get(&format!("/v0/events?since={since}&wait=0")).await.json();
    assert_eq!(events["events"][0]["state"], "TASK_FAILED");
    // After a restart the feed lists the end for readers that missed it.
    let site = site.restart().await;
    let events = site.get(&format!("/v0/events?since={since}&wait=0")).await.json();
    assert_eq!(events["events"][0]["state"], "TASK_FAILED");
}

#[tokio::test]
async fn unreachable_job_is_shown_as_ended_after_its_end_is_stored() {
    let config = Settings {
        unreachable_grace_seconds: 0,
        ..Settings::default()
    };
    let (site, store) = Site::start_with_held_store(config).await;
    site.queue(job("a")).await;
    site.scheduler.launch("a").await;
    site.scheduler.update("a", TaskState::Running, None);
    site.wait_for_state("a", "TASK_RUNNING").await;
    store.hold_after(0);
    site.scheduler.update("a", TaskState::Unreachable, None);
    store.wait_until_held().await;
    let task = site.get("/v0/task/a").await.json();
    assert_eq!(task["status"]["state"], "TASK_RUNNING");
    // The end is decided: later status updates change nothing, and the task record stays until the
    // end is stored.
    site.scheduler.wait_until_killed("a").await;
    site.scheduler.update("a", TaskState::Killed, None);
    let task = site.get("/v0/task/a").await.json();
    assert_eq!(task["status"]["state"], "TASK_RUNNING");
    store.release();
    site.wait_for_state("a", "TASK_UNREACHABLE").await;
    site.scheduler.wait_until_purged("a").await;
}

#[tokio::test]
async fn hanging_store_is_answered_with_503_until_it_recovers() {
    let (site, store) = Site::start_with_held_store(Settings::default()).await;
    site.queue(job("before")).await;
    store.hold_after(0);
    let answer = site.ask(Method::POST, "/v0/queue_command", Some(job("a"))).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("5"));
    let answer = site.ask(Method::DELETE, "/v0/task/before", None).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    // Neither request has an effect that clients can see.
    assert_eq!(site.get("/v0/task/a").await.text, "null");
    site.wait_for_state("before", "TASK_STAGING").await;
    assert_eq!(site.scheduler.wait_until_submitted(1).await, ["before".into()]);
    store.release();
    site.queue(job("a")).await;
    site.scheduler.wait_until_submitted(2).await;
    // The job that the store committed after the timeout is deleted.
    let cleaned = async {
        while site.store.scan("Airflow/jobs/").await.unwrap().len() != 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(transom_testkit::WAIT_TIMEOUT, cleaned)
        .await
        .unwrap();
}
