//! Images that are pulled with credentials.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::json;
use transom_testkit::containers::IMAGE;

use crate::support::{EVENT_TIMEOUT, Framework, framework_info};
use crate::{ContainerCluster, docker_task, mesos_task};

/// The registry's users in htpasswd format: `reader` with the password `correct horse`.
const USERS: &str = "reader:$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e\n";

/// A registry that requires credentials. Dropping it kills the process.
struct Registry {
    child: std::process::Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Registry {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path_of = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path_of("users"), USERS).unwrap();
        // Another process may take the port before the registry starts; then another port is tried.
        for _ in 0..10 {
            let address = format!("127.0.0.1:{}", transom_testkit::free_port());
            let config = format!(
                "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    \
                 rootdirectory: {}\nhttp:\n  addr: {address}\nauth:\n  htpasswd:\n    realm: test\n    path: {}\n",
                path_of("storage"),
                path_of("users")
            );
            std::fs::write(path_of("registry.yml"), config).unwrap();
            let mut child = std::process::Command::new(registry_program())
                .args(["serve", &path_of("registry.yml")])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let end = Instant::now() + EVENT_TIMEOUT;
            while Instant::now() < end && child.try_wait().unwrap().is_none() {
                if tokio::net::TcpStream::connect(&address).await.is_ok() {
                    return Self {
                        child,
                        address,
                        _dir: dir,
                    };
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("docker-registry does not start")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn registry_program() -> PathBuf {
    let unpacked =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin/docker-registry");
    [PathBuf::from("/usr/bin/docker-registry"), unpacked]
        .into_iter()
        .find(|program| program.exists())
        .expect("docker-registry is missing: `cargo xtask test` installs it")
}

#[tokio::test]
async fn images_are_pulled_with_the_credentials_of_the_task() {
    let Some(containers) = ContainerCluster::start("pull").await else {
        return;
    };
    let registry = Registry::start().await;
    let name = format!("{}/team/tiny:1", registry.address);
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let config = |password: &str| {
        let auth = encode(&format!("reader:{password}"));
        json!({"auths": {&registry.address: {"auth": auth}}}).to_string()
    };
    let file = containers.cluster.dir.path().join("config.json");
    std::fs::write(&file, config("correct horse")).unwrap();
    if containers.runtime.program == "podman" {
        let file = file.display().to_string();
        containers
            .runtime
            .run(&["push", "--authfile", &file, "--tls-verify=false", IMAGE, &name]);
    } else {
        containers.runtime.run(&["tag", IMAGE, &name]);
        let directory = containers.cluster.dir.path().display().to_string();
        containers.runtime.run(&["--config", &directory, "push", &name]);
        containers.runtime.run(&["rmi", &name]);
    }
    let present = || {
        let output = std::process::Command::new(&containers.runtime.program)
            .args(["image", "inspect", &name])
            .output();
        output.unwrap().status.success()
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let secret = |password: &str| json!({"type": "VALUE", "value": {"data": encode(&config(password))}});

    let offer = framework.offer().await;
    let mut wrong = mesos_task("wrong", &offer, "true");
    wrong["container"]["mesos"]["image"]["docker"] = json!({"name": name, "config": secret("wrong")});
    framework.launch(&offer, json!([wrong])).await;
    let failed = framework.wait_for_state("wrong", "TASK_FAILED").await;
    let message = failed["message"].as_str().unwrap();
    assert!(
        message.contains("pull") && message.contains("unauthorized"),
        "{message}"
    );
    assert!(!message.contains(&encode(&config("wrong"))), "{message}");
    assert_eq!(failed["reason"], "REASON_CONTAINER_LAUNCH_FAILED");
    assert!(!present());

    // The Mesos containerizer takes the credentials from the task, Docker's from a file in the
    // sandbox.
    let offer = framework.offer().await;
    let mut right = mesos_task("right", &offer, "echo pulled");
    right["container"]["mesos"]["image"]["docker"] = json!({"name": name, "config": secret("correct horse")});
    framework.launch(&offer, json!([right])).await;
    framework.wait_for_state("right", "TASK_FINISHED").await;
    assert!(present());
    containers.runtime.run(&["rmi", &name]);

    let offer = framework.offer().await;
    let mut file_of_task = docker_task("file", &offer, "echo pulled", &json!({"image": name}));
    file_of_task["command"]["uris"] =
        json!([{"value": file.display().to_string(), "output_file": ".docker/config.json"}]);
    framework.launch(&offer, json!([file_of_task])).await;
    framework.wait_for_state("file", "TASK_FINISHED").await;
    containers.runtime.run(&["rmi", &name]);
    let left_over = std::fs::read_dir(containers.cluster.dir.path())
        .unwrap()
        .flatten();
    let left_over: Vec<_> = left_over
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("credentials"))
        .collect();
    assert!(left_over.is_empty(), "{left_over:?}");
    containers.cluster.stop().await;
}
