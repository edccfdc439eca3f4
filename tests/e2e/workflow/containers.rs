//! Jobs as real containers of the embedded cluster.

use serde_json::json;
use transom_testkit::containers::IMAGE;
use transom_testkit::eventually;
use transom_tests::site::Site;

use crate::apps::containers::runtime;
use crate::workflow::harness::Workflow;

/// Jobs run in containers, which share the agent's network.
const SECTION: &str = "[workflow]\nport = 0\napi_username = \"user\"\napi_password = \"password\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_image_of_a_job_runs_as_a_container() {
    let Some(runtime) = runtime("docker_image_of_a_job").await else {
        return;
    };
    let workflow = Workflow {
        site: Site::start_with(SECTION).await,
        scratch: tempfile::tempdir().expect("a directory"),
    };
    let data = workflow.scratch.path().display();
    let body = json!({"airflow_task_id": "job", "container_type": "DOCKER", "image": IMAGE, "force_pull": false, "cpus": 0.2,
        "mem_limit": "64m", "network_mode": "bridge", "environment": {"MARK": "a b"},
        "volumes": [format!("{data}:/data")],
        "command": ["/bin/sh", "-c", "ls /; echo $MARK; echo made > /data/made; exit 4"]});
    workflow.queue(body).await;
    let seen = workflow.wait_for_state("job", "TASK_FAILED").await;
    assert_eq!(seen["status"]["message"], "Container exited with status 4");
    let log = workflow.log("job").await;
    // The container's root has no directories of this machine.
    assert!(log.contains("bin\n") && log.ends_with("a b\n"), "{log}");
    assert!(!log.contains("home\n"), "{log}");
    let made = std::fs::read_to_string(workflow.scratch.path().join("made"));
    assert_eq!(made.expect("a file of the job"), "made\n");

    let endless = json!({"airflow_task_id": "long", "container_type": "DOCKER", "image": IMAGE, "force_pull": false,
        "command": ["sleep", "1000"]});
    workflow.queue(endless).await;
    workflow.wait_for_state("long", "TASK_RUNNING").await;
    let work_dir = workflow.site.cluster.work_dir().to_owned();
    assert_eq!(runtime.names(&work_dir).len(), 1);
    workflow.site.cluster.stop_after(workflow.site.daemon);
    eventually("the containers to be gone", || async {
        let names = runtime.names(&work_dir);
        if names.is_empty() {
            Ok(())
        } else {
            Err(names.join(", "))
        }
    })
    .await;
}
